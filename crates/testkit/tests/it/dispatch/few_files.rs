//! A process that may open no more files.

use std::fs::File;

use countersign::dispatch::BreakerState;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Takes all files that this process may have open, of which each test has its own.
fn no_file_left() -> Vec<File> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let few = maximum.map_or(256, |most| most.min(256));
    setrlimit(Resource::Nofile, Rlimit { current: Some(few), maximum }).expect("it may be lowered");
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[tokio::test]
async fn without_a_file_for_a_connection_a_callback_waits_and_its_endpoint_is_charged_with_nothing() {
    let bench = Bench::new().await;
    // The store has its connections, and this node its lanes, before files are few.
    let nowhere = bench.owner(Some("http://127.0.0.1:1/".to_owned())).await;
    bench.emit(&nowhere, "order").await;
    assert_eq!(bench.deliver().await, 1);
    bench.enable(&nowhere, false).await;
    let endpoint = receiver().await;
    // By its address, and by a name, for whose look-up there is no file either.
    let named = endpoint.url().replace("127.0.0.1", "localhost");
    assert_ne!(named, endpoint.url());
    let (owner, other) = (bench.owner(Some(endpoint.url())).await, bench.owner(Some(named)).await);
    let mut events = Vec::new();
    for order in 0..20 {
        events.extend([bench.emit(&owner, &format!("{order}")).await, bench.emit(&other, &format!("{order}")).await]);
    }
    let files = no_file_left();
    assert!(!files.is_empty());
    assert_eq!(bench.deliver().await, 0);
    for event in &events {
        let row = bench.row(event).await;
        assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 0));
    }
    assert_eq!(bench.deliver().await, 0, "they are not tried again at once");
    for owner in [&owner, &other] {
        let found = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
        let view = bench.dispatcher.view(&found.application).await.expect("this node delivers");
        assert_eq!((view.breaker, view.in_flight, view.last), (BreakerState::Closed, 0, None));
    }

    drop(files);
    bench.clock.advance_ms(5_000);
    assert_eq!(bench.deliver().await, events.len());
    let received = endpoint.received();
    assert_eq!(received.len(), events.len());
    assert!(received.iter().all(|one| one.need("x-service-attempt") == "1"));
}
