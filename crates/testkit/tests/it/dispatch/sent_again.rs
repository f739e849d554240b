//! What becomes of events that an operator sends again.

use countersign::app::identity::EndpointChange;
use countersign_domain::delivery::Schedule;
use countersign_testkit::receiver::Reply;

use super::*;

impl Bench {
    async fn set_delays(&self, owner: &Owner, delays: &[&str]) {
        let schedule = Set::To(Schedule::parse(delays).expect("a schedule"));
        let endpoint = EndpointChange { schedule, ..EndpointChange::default() };
        self.change(owner, ApplicationChange { endpoint, ..ApplicationChange::default() }).await;
    }

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

    async fn send_again(&self, event: &EventRow) {
        events::redeliver(&self.app, event.event_id, &|_| None, &actor()).await.expect("it is redeliverable");
    }
}

#[tokio::test]
async fn a_dead_event_has_one_attempt_where_the_schedule_was_made_longer_since() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Fail);
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_delays(&owner, &["1s"]).await;
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
