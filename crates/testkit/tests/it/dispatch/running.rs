//! The dispatcher as it runs: wake-ups, shares, and its end.

use std::collections::HashSet;

use countersign_testkit::receiver::Reply;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

pub(super) struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub(super) fn start(bench: &Bench) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(bench.dispatcher.clone().run(stopped.clone(), stopped)) }
    }

    pub(super) async fn stop(self) {
        // It may have ended already.
        let _ = self.stop.send(true);
        timeout(SOON, self.task).await.expect("the dispatcher ends").expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_emitted_while_it_runs_goes_out_at_once_and_once() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let before: Vec<EventRow> = vec![bench.emit(&owner, "before the start").await];
    let running = Running::start(&bench);
    endpoint.wait_for(1, SOON).await.expect("what was due before the start goes out");
    let mut all = before;
    for n in 0..200 {
        all.push(bench.emit(&owner, &format!("{n}")).await);
    }
    endpoint.wait_for(201, SOON).await.expect("every event goes out");
    running.stop().await;
    let ids: HashSet<String> = endpoint.received().iter().map(|r| r.need("x-service-event-id").to_owned()).collect();
    assert_eq!((ids.len(), endpoint.received().len()), (201, 201));
    for event in &all {
        assert_eq!(bench.state(event).await, DeliveryState::Delivered);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_endpoint_has_its_share_of_attempts_and_others_do_not_wait_for_it() {
    // Longer than all that is waited for below.
    let deadline = 30 * SOON;
    let bench = Bench::with(DispatchSettings { concurrency: 6, per_application: 4, deadline, ..settings() }).await;
    let (hung, well) = (receiver().await, receiver().await);
    hung.answer_with(Reply::Hang);
    let (poor, rich) = (bench.owner(Some(hung.url())).await, bench.owner(Some(well.url())).await);
    // More than one read takes, all of them due before what the other one has.
    let (bench_ref, poor) = (&bench, &poor);
    join_all((0..600).map(|n| async move { bench_ref.emit(poor, &format!("{n}")).await })).await;
    let running = Running::start(&bench);
    hung.wait_for(4, SOON).await.expect("the hung endpoint has its share");
    for n in 0..20 {
        bench.clock.advance_ms(1);
        bench.emit(&rich, &format!("{n}")).await;
        well.wait_for(n + 1, SOON).await.expect("nobody waits for the hung endpoint");
    }
    assert_eq!((hung.received().len(), hung.most_at_once()), (4, 4));
    drop(hung);
    running.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_attempts_are_in_flight_than_are_allowed() {
    let bench = Bench::with(DispatchSettings { concurrency: 5, per_application: 3, ..settings() }).await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Held);
    for _ in 0..3 {
        let owner = bench.owner(Some(endpoint.url())).await;
        for n in 0..5 {
            bench.emit(&owner, &format!("{n}")).await;
        }
    }
    let running = Running::start(&bench);
    for n in 0..15 {
        // Three at least: what is left may be of one application. Once the first has answered, its own may have what is kept from those that
        // nothing is known of.
        let at_once = if n == 1 { 4 } else { 3 };
        endpoint.wait_for((n + at_once).min(15), SOON).await.expect("a place that is free is taken");
        endpoint.release(1);
    }
    running.stop().await;
    assert!((4..=5).contains(&endpoint.most_at_once()), "{} at once", endpoint.most_at_once());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_attempts_in_flight_end_and_begins_no_other() {
    let bench = Bench::with(DispatchSettings { per_application: 1, drain_grace: SOON, ..settings() }).await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Held);
    let owner = bench.owner(Some(endpoint.url())).await;
    let (first, second) = (bench.emit(&owner, "first").await, bench.emit(&owner, "second").await);
    let running = Running::start(&bench);
    endpoint.wait_for(1, SOON).await.expect("an attempt");
    running.stop.send(true).expect("the dispatcher listens");
    endpoint.release(2);
    running.stop().await;
    assert_eq!(
        (bench.state(&first).await, bench.state(&second).await),
        (DeliveryState::Delivered, DeliveryState::Pending)
    );
    assert_eq!(endpoint.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_cut_off_by_the_stop_is_made_again_by_the_next_start() {
    let grace = Duration::from_millis(50);
    let bench = Bench::with(DispatchSettings { drain_grace: grace, ..settings() }).await;
    let endpoint = receiver().await;
    endpoint.script([Reply::Hang]);
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    let running = Running::start(&bench);
    endpoint.wait_for(1, SOON).await.expect("an attempt");
    running.stop().await;
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 0));

    let next = Arc::new(Dispatcher::new(bench.app.clone(), settings()).expect("settings that hold"));
    assert_eq!(next.deliver_due(bench.clock.now()).await, 1);
    assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
    let received = endpoint.received();
    assert_eq!(received.iter().map(|r| r.need("x-service-attempt")).collect::<Vec<_>>(), ["1", "1"]);
    assert_eq!(received[0].body, received[1].body);
}

/// Runs them all at once.
async fn join_all<T>(all: impl IntoIterator<Item = impl Future<Output = T>>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
