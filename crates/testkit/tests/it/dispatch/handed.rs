//! Events that the dispatcher gets from whoever wrote them, and does not read.

use std::collections::HashMap;

use tokio::task::{JoinSet, yield_now};

use super::running::Running;
use super::*;

const WRITERS: usize = 8;
const EVENTS_EACH: usize = 150;

/// An application that has had a callback, so that something is known of its endpoint.
async fn known(bench: &Bench, endpoint: &Receiver) -> Owner {
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.emit(&owner, "first").await;
    assert_eq!(bench.deliver().await, 1);
    owner
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_just_written_goes_out_without_being_read() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = known(&bench, &endpoint).await;
    bench.app.bell.hand_over_for(LONG);
    let mut handed = Vec::new();
    for sequence in ["1", "2"] {
        let event = bench.emit(&owner, "handed").await;
        bench.damage(&Damage::Event(event.no)).await;
        assert_eq!(bench.deliver().await, 1, "nobody sees that it cannot be read back");
        let received = endpoint.received().pop().expect("it came");
        assert_eq!(received.need("x-service-event-id"), events::public_id(event.event_id));
        assert_eq!((received.need("x-service-sequence"), received.need("x-service-attempt")), (sequence, "1"));
        assert!(bench.is_signed_by(&received, &owner.secret));
        handed.push(event);
    }

    let lost = bench.emit(&owner, "lost").await;
    bench.damage(&Damage::Event(lost.no)).await;
    assert_eq!(bench.app.bell.written().events.len(), 1, "it was handed over, and that is lost here");
    assert_eq!(bench.deliver().await, 0, "so it is read");
    bench.damage(&Damage::Event(lost.no)).await;
    bench.clock.advance_ms(60_000);
    assert_eq!(bench.deliver().await, 1);
    for event in handed {
        bench.damage(&Damage::Event(event.no)).await;
        assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_while_deliveries_rest_goes_out_once_when_they_go_on() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = known(&bench, &endpoint).await;
    bench.app.bell.set_paused(true);
    let event = bench.emit(&owner, "rests").await;
    assert_eq!(bench.deliver().await, 0);
    bench.app.bell.set_paused(false);
    assert_eq!((bench.deliver().await, bench.deliver().await), (1, 0));
    assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_goes_out_once_whether_it_was_handed_over_or_a_read_has_found_it() {
    let bench = Arc::new(Bench::new().await);
    let endpoint = receiver().await;
    let mut owners = Vec::new();
    for _ in 0..3 {
        owners.push(known(&bench, &endpoint).await);
    }
    let owners = Arc::new(owners);
    let running = Running::start(&bench);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (bench, owners) = (bench.clone(), owners.clone());
        writers.spawn(async move {
            for n in 0..EVENTS_EACH {
                bench.emit(&owners[(writer + n) % owners.len()], &format!("{writer}-{n}")).await;
            }
        });
    }
    // Reads come in between all the time.
    let ringing = bench.clone();
    let rings = tokio::spawn(async move {
        loop {
            ringing.app.ring_all();
            yield_now().await;
        }
    });
    while let Some(ended) = writers.join_next().await {
        ended.expect("no panic");
    }
    let all = owners.len() + WRITERS * EVENTS_EACH;
    endpoint.wait_for(all, LONG).await.expect("every event goes out");
    rings.abort();
    running.stop().await;
    let mut times: HashMap<String, usize> = HashMap::new();
    for received in endpoint.received() {
        *times.entry(received.need("x-service-event-id").to_owned()).or_default() += 1;
    }
    assert_eq!(times.len(), all);
    assert_eq!(times.values().filter(|times| **times != 1).count(), 0, "none came twice");
}
