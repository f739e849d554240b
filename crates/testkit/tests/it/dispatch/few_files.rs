//! A process that may open no more files.

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Takes all files that this process may have open, of which each test has its own.
fn no_file_left() -> Vec<File> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum }).expect("it may be lowered");
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[tokio::test]
async fn without_a_file_for_a_connection_a_callback_waits_and_its_endpoint_is_charged_with_nothing() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    let files = no_file_left();
    assert!(!files.is_empty());
    assert_eq!(bench.deliver().await, 0);
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 0));
    assert_eq!(bench.deliver().await, 0, "it is not tried again at once");

    drop(files);
    bench.clock.advance_ms(5_000);
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered));
    let received = endpoint.received();
    assert_eq!((received.len(), received[0].need("x-service-attempt")), (1, "1"));
}
