//! What becomes of events that an operator sends again.

use countersign_testkit::receiver::Reply;

use super::*;

impl Bench {
    /// An event that has had so many attempts in vain.
    async fn emit_dead(&self, owner: &Owner, biz_id: &str) -> EventRow {
        let event = self.emit(owner, biz_id).await;
        self.deliver().await;
        while self.state(&event).await == DeliveryState::Pending {
            assert_eq!(self.deliver_next(&event).await, 1);
        }
        assert_eq!(self.state(&event).await, DeliveryState::Dead);
        event
    }

    /// Its endpoint fails new events until its breaker is open, and none of them is due for days.
    async fn open_breaker(&self, owner: &Owner, endpoint: &Receiver) {
        endpoint.answer_with(Reply::Status(503));
        self.set_delays(owner, &["2d"]).await;
        for n in 0..12 {
            self.emit(owner, &n.to_string()).await;
        }
        assert!(self.deliver().await < 12, "it is open");
        self.clock.advance_ms(10_000);
        while self.deliver().await > 0 {
            self.clock.advance_ms(10_000);
        }
    }

    async fn send_again(&self, event: &EventRow) {
        of_one::redeliver(&self.app, event.event_id, &|_| None, &actor()).await.expect("it is redeliverable");
    }
}

/// An endpoint that takes nothing, and events that die of it after two attempts.
async fn failing() -> (Bench, Receiver, Owner) {
    let (bench, endpoint) = (Bench::new().await, receiver().await);
    endpoint.answer_with(Reply::Fail);
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_delays(&owner, &["1s"]).await;
    (bench, endpoint, owner)
}

#[tokio::test]
async fn a_dead_event_has_one_attempt_where_the_schedule_was_made_longer_since() {
    let (bench, endpoint, owner) = failing().await;
    let event = bench.emit_dead(&owner, "order").await;
    bench.set_delays(&owner, &["1s"; 8]).await;
    for attempts in [3, 4] {
        bench.send_again(&event).await;
        assert_eq!(bench.deliver().await, 1);
        let row = bench.row(&event).await;
        assert_eq!((row.state, row.attempts), (DeliveryState::Dead, attempts));
    }
    // What was delivered has what the schedule has left.
    endpoint.answer_with(Reply::Success);
    bench.send_again(&event).await;
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered));
    endpoint.answer_with(Reply::Fail);
    bench.send_again(&event).await;
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Pending));
}

#[tokio::test]
async fn an_attempt_that_tries_an_endpoint_whose_breaker_is_open_does_not_use_up_that_of_a_dead_event() {
    let (bench, endpoint, owner) = failing().await;
    let [brought_back, given_up] = [bench.emit_dead(&owner, "a").await, bench.emit_dead(&owner, "b").await];
    bench.open_breaker(&owner, &endpoint).await;
    bench.send_again(&brought_back).await;
    assert_eq!(bench.deliver().await, 1);
    let row = bench.row(&brought_back).await;
    let due_in = row.due_at.map(|at| at.0 - bench.clock.now().0);
    assert_eq!((row.state, row.attempts, due_in), (DeliveryState::Pending, 3, Some(10_000)));

    bench.send_again(&given_up).await;
    bench.clock.advance_ms(1_000);
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.state(&given_up).await, DeliveryState::Pending);
    endpoint.answer_with(Reply::Success);
    assert_eq!(bench.deliver_next(&brought_back).await, 1);
    assert_eq!(bench.state(&brought_back).await, DeliveryState::Delivered);
    endpoint.answer_with(Reply::Status(503));
    assert_eq!(bench.deliver_next(&given_up).await, 1);
    assert_eq!(bench.state(&given_up).await, DeliveryState::Dead, "the breaker is closed: it was its one attempt");
}

#[tokio::test]
async fn a_dead_event_tries_an_endpoint_whose_breaker_is_open_a_hundred_times_at_the_most() {
    let (bench, endpoint, owner) = failing().await;
    let event = bench.emit_dead(&owner, "a").await;
    bench.open_breaker(&owner, &endpoint).await;
    bench.send_again(&event).await;
    while bench.state(&event).await == DeliveryState::Pending {
        bench.clock.advance_ms(10_000);
        assert_eq!(bench.deliver().await, 1);
    }
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Dead, 101));
}

#[tokio::test]
async fn nor_does_it_use_up_that_of_a_delivered_event_whose_schedule_has_none_left() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "a").await;
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered));
    bench.open_breaker(&owner, &endpoint).await;
    bench.send_again(&event).await;
    for _ in 0..3 {
        assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Pending));
        bench.clock.advance_ms(10_000);
    }
    endpoint.answer_with(Reply::Status(500));
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered), "it stays so");
}

#[tokio::test]
async fn nor_does_a_kept_connection_that_breaks_under_it() {
    let (bench, endpoint, owner) = failing().await;
    let event = bench.emit_dead(&owner, "a").await;
    endpoint.answer_with(Reply::SuccessKeeping);
    bench.emit(&owner, "b").await;
    assert_eq!(bench.deliver().await, 1);
    for (reply, reused, state) in
        [(Reply::Reset, true, DeliveryState::Pending), (Reply::Reset, false, DeliveryState::Dead)]
    {
        endpoint.answer_with(reply);
        if state == DeliveryState::Pending {
            bench.send_again(&event).await;
        }
        assert_eq!(bench.deliver().await, 1);
        let (row, attempts) = bench.read(event.event_id).await;
        assert_eq!((row.state, attempts.last().expect("was made").phases.reused), (state, Some(reused)));
        bench.clock.advance_ms(10_000);
    }
}

/// Nothing else tells of the endpoint: its breaker stays closed.
#[tokio::test]
async fn an_endpoint_that_is_down_uses_up_ten_of_what_is_sent_again_also_where_one_of_its_own_is_under_way() {
    let (bench, endpoint, owner) = failing().await;
    let mut events = Vec::new();
    for n in 0..12 {
        events.push(bench.emit_dead(&owner, &n.to_string()).await);
    }
    endpoint.answer_with(Reply::Status(503));
    for event in &events[..10] {
        bench.send_again(event).await;
        assert_eq!((bench.deliver().await, bench.state(event).await), (1, DeliveryState::Dead));
    }
    bench.set_delays(&owner, &["2d"]).await;
    bench.emit(&owner, "of its own").await;
    for event in &events[10..] {
        bench.send_again(event).await;
    }
    assert_eq!(bench.deliver().await, 3);
    for event in &events[10..] {
        assert_eq!(bench.state(event).await, DeliveryState::Pending);
    }
    endpoint.answer_with(Reply::Success);
    bench.clock.advance_ms(10_000);
    assert_eq!(bench.deliver().await, 2);
    for event in &events[10..] {
        assert_eq!(bench.state(event).await, DeliveryState::Delivered);
    }
}
