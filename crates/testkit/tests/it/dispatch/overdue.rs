//! What is written for an endpoint that stays away.

use countersign_testkit::receiver::Reply;

use super::*;

/// With six attempts each these would need an hour at a pause of ten seconds.
const EVENTS: usize = 60;
/// Five delays of ten seconds, each with its jitter.
const WHOLE_S: usize = 60;

impl Bench {
    async fn states(&self, events: &[EventRow]) -> Vec<(DeliveryState, i64)> {
        let mut states = Vec::new();
        for event in events {
            let row = self.row(event).await;
            states.push((row.state, row.attempts));
        }
        states
    }
}

/// Many events of an endpoint at which nobody is, and the endpoint.
async fn away() -> (Bench, Owner, Receiver, Vec<EventRow>) {
    let (bench, endpoint) = (Bench::new().await, receiver().await);
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.answer_with(Reply::Reset);
    bench.set_delays(&owner, &["10s"; 5]).await;
    let mut events = Vec::new();
    for n in 0..EVENTS {
        events.push(bench.emit(&owner, &n.to_string()).await);
    }
    (bench, owner, endpoint, events)
}

#[tokio::test]
async fn what_has_been_due_for_as_long_as_its_schedule_takes_dies_of_one_more_attempt_however_much_there_is() {
    let (bench, _, _endpoint, events) = away().await;
    let is_dead = |states: &[(DeliveryState, i64)]| states.iter().filter(|(s, _)| *s == DeliveryState::Dead).count();
    for _ in 0..WHOLE_S {
        bench.deliver().await;
        bench.clock.advance_ms(1_000);
    }
    let states = bench.states(&events).await;
    assert_eq!(is_dead(&states), 0, "no schedule is over yet: {states:?}");
    let mut seconds = 0;
    let states = loop {
        bench.deliver().await;
        bench.clock.advance_ms(1_000);
        seconds += 1;
        let states = bench.states(&events).await;
        if is_dead(&states) == EVENTS || seconds >= 3 * EVENTS {
            break states;
        }
    };
    assert_eq!(is_dead(&states), EVENTS, "one a second, about: {states:?}");
    assert!(states.iter().all(|(_, attempts)| *attempts >= 1), "each was tried: {states:?}");
    let attempts: i64 = states.iter().map(|(_, attempts)| attempts).sum();
    assert!(attempts < 3 * 60, "and not six times: {states:?}");
}

#[tokio::test]
async fn what_is_overdue_and_was_not_tried_again_yet_goes_out_to_an_endpoint_that_is_back() {
    let (bench, _, endpoint, events) = away().await;
    while bench.deliver().await > 0 {}
    bench.clock.advance_ms(300_000);
    endpoint.answer_with(Reply::Success);
    for _ in 0..30 {
        bench.deliver().await;
        bench.clock.advance_ms(1_000);
    }
    let states = bench.states(&events).await;
    assert!(states.iter().all(|(state, _)| *state == DeliveryState::Delivered), "{states:?}");
}
