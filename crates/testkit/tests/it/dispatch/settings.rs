//! What an endpoint has of its own: its rate, its number of attempts at once, its schedule. Each is seen to count, also while attempts rest or
//! are under way, and the deployment's counts again where it is cleared.

use countersign::app::identity::EndpointChange;
use countersign::dispatch::{BreakerState, EndpointView};
use countersign_domain::delivery::Schedule;
use countersign_testkit::patience::until;
use countersign_testkit::receiver::Reply;
use tokio::sync::watch;

use super::*;

impl Bench {
    async fn set(&self, owner: &Owner, endpoint: EndpointChange) {
        self.change(owner, ApplicationChange { endpoint, ..ApplicationChange::default() }).await;
    }

    async fn set_rate(&self, owner: &Owner, rate_per_s: Set<u32>) {
        self.set(owner, EndpointChange { rate_per_s, ..EndpointChange::default() }).await;
    }

    async fn set_concurrency(&self, owner: &Owner, concurrency: Set<u32>) {
        self.set(owner, EndpointChange { concurrency, ..EndpointChange::default() }).await;
    }

    async fn set_schedule(&self, owner: &Owner, schedule: Set<Schedule>) {
        self.set(owner, EndpointChange { schedule, ..EndpointChange::default() }).await;
    }

    async fn emit_many(&self, owner: &Owner, count: usize) {
        for n in 0..count {
            self.emit(owner, &format!("order {n}")).await;
        }
    }

    /// Attempts made after so many ms more.
    async fn deliver_after(&self, ms: i64) -> usize {
        self.clock.advance_ms(ms);
        self.deliver().await
    }

    async fn view(&self, owner: &Owner) -> EndpointView {
        let found = identity::find_application(&self.app, &owner.client_id).await.expect("the application");
        self.dispatcher.view(&found.application).await.expect("this node delivers")
    }

    /// How long it is until the next attempt, in ms.
    async fn due_in(&self, event: &EventRow) -> i64 {
        self.row(event).await.due_at.expect("a pending event").0 - self.clock.now().0
    }
}

fn schedule(delays: &[&str]) -> Set<Schedule> {
    Set::To(Schedule::parse(delays).expect("a schedule"))
}

#[tokio::test]
async fn the_rate_of_an_endpoint_counts_before_the_deployments_and_zero_is_none() {
    let bench = Bench::with(DispatchSettings { per_application_per_s: Some(4), ..settings() }).await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_rate(&owner, Set::To(2)).await;
    bench.emit_many(&owner, 12).await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!((bench.deliver_after(499).await, bench.deliver_after(1).await), (0, 1), "two in a second");
    assert_eq!((bench.deliver_after(499).await, bench.deliver_after(1).await), (0, 1));
    bench.set_rate(&owner, Set::Clear).await;
    assert_eq!(bench.deliver_after(500).await, 1);
    assert_eq!((bench.deliver_after(249).await, bench.deliver_after(1).await), (0, 1), "the deployment's four");
    bench.set_rate(&owner, Set::To(10)).await;
    assert_eq!(bench.deliver_after(250).await, 1);
    assert_eq!((bench.deliver_after(99).await, bench.deliver_after(1).await), (0, 1), "more than the deployment's");
    bench.set_rate(&owner, Set::To(0)).await;
    assert_eq!(bench.deliver().await, 5, "as many as there are, though the clock stands");
    assert_eq!(endpoint.received().len(), 12);
}

/// Delivers for as long as the test lasts.
fn run(bench: &Bench) -> watch::Sender<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(bench.dispatcher.clone().run(stopped.clone(), stopped));
    stop
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_that_is_lifted_lets_attempts_go_that_rest_for_it() {
    let bench = Bench::with(DispatchSettings { per_application_per_s: Some(1), ..settings() }).await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.emit_many(&owner, 6).await;
    let _running = run(&bench);
    endpoint.wait_for(1, SOON).await.expect("one goes");
    // The clock stands: nothing but the change lets them go.
    bench.set_rate(&owner, Set::To(0)).await;
    endpoint.wait_for(6, SOON).await.expect("all go");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_attempts_are_under_way_at_once_as_the_endpoint_is_given_and_a_change_counts_at_once() {
    let bench = Bench::with(DispatchSettings { per_application: 3, ..settings() }).await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Held);
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_concurrency(&owner, Set::To(2)).await;
    bench.emit_many(&owner, 14).await;
    let _running = run(&bench);
    endpoint.wait_for(2, SOON).await.expect("two at once");
    for arrived in 3..=6 {
        endpoint.release(1);
        endpoint.wait_for(arrived, SOON).await.expect("a place that is free is taken");
    }
    assert_eq!(endpoint.most_at_once(), 2, "never more");
    bench.set_concurrency(&owner, Set::To(5)).await;
    endpoint.wait_for(9, SOON).await.expect("five at once, though none of the two has ended");
    bench.set_concurrency(&owner, Set::Clear).await;
    let is_told = async || Ok((bench.view(&owner).await.at_once_max == 3).then_some(()));
    until("the deployment's three count again", SOON, is_told).await.expect("they do");
    endpoint.release(3);
    endpoint.wait_for(10, SOON).await.expect("two are left, and a third begins");
    let is_full = async || Ok(Some(bench.view(&owner).await).filter(|view| view.in_flight == 3));
    let (view, _) = until("three are under way", SOON, is_full).await.expect("they are");
    assert_eq!((view.at_once, view.at_once_max, endpoint.received().len()), (3, 3, 10));
    assert_eq!(endpoint.most_at_once(), 5);
    endpoint.release(100);
    endpoint.wait_for(14, SOON).await.expect("all come");
}

#[tokio::test]
async fn the_number_of_an_endpoint_stays_within_that_of_all() {
    let bench = Bench::with(DispatchSettings { concurrency: 3, ..settings() }).await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Held);
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_concurrency(&owner, Set::To(20)).await;
    bench.emit_many(&owner, 9).await;
    endpoint.release(9);
    assert_eq!(bench.deliver().await, 9);
    assert!(endpoint.most_at_once() <= 3, "{} at once", endpoint.most_at_once());
}

#[tokio::test]
async fn the_schedule_of_an_endpoint_says_when_an_attempt_is_repeated_and_when_the_event_is_dead() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Fail);
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_schedule(&owner, schedule(&["7s", "1h"])).await;
    let event = bench.emit(&owner, "own").await;
    assert_eq!(bench.deliver().await, 1);
    let due_in = bench.due_in(&event).await;
    assert!((7_000..=8_400).contains(&due_in), "{due_in}");
    assert_eq!(bench.deliver_next(&event).await, 1);
    let due_in = bench.due_in(&event).await;
    assert!((3_600_000..=4_320_000).contains(&due_in), "{due_in}");
    assert_eq!(bench.deliver_next(&event).await, 1);
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Dead, 3));
    bench.set_schedule(&owner, Set::Clear).await;
    let event = bench.emit(&owner, "the deployment's").await;
    assert_eq!(bench.deliver().await, 1);
    let due_in = bench.due_in(&event).await;
    assert!((5_000..=6_000).contains(&due_in), "{due_in}");
}

#[tokio::test]
async fn a_schedule_that_is_set_during_an_attempt_counts_from_it_on() {
    let bench = Arc::new(Bench::new().await);
    let endpoint = receiver().await;
    endpoint.script([Reply::HeldStatus(500)]);
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    let delivering = tokio::spawn({
        let bench = bench.clone();
        async move { bench.deliver().await }
    });
    endpoint.wait_for(1, SOON).await.expect("an attempt");
    bench.set_schedule(&owner, schedule(&["1h", "1h"])).await;
    endpoint.release(1);
    assert_eq!(delivering.await.expect("no panic"), 1);
    let due_in = bench.due_in(&event).await;
    assert!((3_600_000..=4_320_000).contains(&due_in), "{due_in}");
    // A schedule with fewer attempts than were made: the next one is the last.
    endpoint.answer_with(Reply::Fail);
    bench.set_schedule(&owner, schedule(&["1s"])).await;
    assert_eq!(bench.deliver_next(&event).await, 1);
    assert_eq!(bench.state(&event).await, DeliveryState::Dead);
}

#[tokio::test]
async fn the_pause_of_a_breaker_does_not_outlast_the_endpoints_own_schedule() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(503));
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.set_schedule(&owner, schedule(&["100ms", "100ms", "100ms"])).await;
    bench.emit_many(&owner, 16).await;
    let made = bench.deliver().await;
    assert!((10..16).contains(&made), "the breaker opens before all were tried: {made}");
    let view = bench.view(&owner).await;
    let BreakerState::Open { until } = view.breaker else { panic!("it is open: {view:?}") };
    assert!((100..=120).contains(&(until.0 - bench.clock.now().0)), "a second without that schedule: {view:?}");
    assert_eq!((view.at_once, view.at_once_max, view.in_flight), (0, 8, 0));
    assert_eq!(view.last.map(|(_, outcome)| outcome), Some(Outcome::HttpStatus));
}

#[tokio::test]
async fn an_error_that_may_be_of_one_event_keeps_no_other_waiting() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(500));
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.emit_many(&owner, 30).await;
    assert_eq!(bench.deliver().await, 30, "each had its first attempt");
    let view = bench.view(&owner).await;
    assert_eq!((view.breaker, view.at_once, view.at_once_max), (BreakerState::Closed, 1, 8));
    endpoint.answer_with(Reply::Success);
    bench.emit(&owner, "another order").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.view(&owner).await.at_once, 2, "it stands again, and climbs");
}
