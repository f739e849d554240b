//! Backlogs that are too large to be held or released in one go: the change is small, the rest follows, whoever dies in between.

use countersign::app::identity::MerchantChange;
use countersign_domain::ids::{EventNo, time_ordered};
use countersign_domain::lanes::LaneSet;
use countersign_store::batch::{Batch, DELIVERIES_TURNED_MAX, Write};
use countersign_store::contract::{Cursor, EventFilter, Portion};
use countersign_testkit::patience;
use countersign_testkit::receiver::Reply;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::*;

const BACKLOG: usize = 30_000;
const ROWS_PER_BATCH: usize = 1_000;
/// Who write while a backlog is turned: one may stand still for as long as all of it takes.
const WRITERS: usize = 4;

/// So many events of an application, all due now; the last one and the first.
async fn backlog(bench: &Bench, owner: &Owner, count: usize) -> [EventRow; 2] {
    let first = bench.emit(owner, "order").await;
    let (mut last, mut made) = (first.clone(), 1);
    while made < count {
        let some = ROWS_PER_BATCH.min(count - made);
        let rows: Vec<EventRow> = (made..made + some)
            .map(|n| EventRow {
                // One in each millisecond of the past: those of the present are drawn.
                no: EventNo(time_ordered(UnixMillis(START.0 - 1 - i64::try_from(n).expect("small")), 0)),
                event_id: bench.app.chance.sorted_id(START),
                // None waits for another.
                biz_id: format!("order-{n}"),
                ..first.clone()
            })
            .collect();
        last = rows.last().expect("some").clone();
        let writes = rows.into_iter().map(|row| Write::EnqueueEvent(Arc::new(row))).collect();
        bench.app.store.commit(Batch(writes)).await.expect("a backlog is written");
        made += some;
    }
    [last, first]
}

/// Deliveries that are due by their rows.
async fn due(bench: &Bench) -> usize {
    let mut due = 0;
    for owed in bench.app.store.owed(LaneSet::ALL, Cursor { after: None, limit: 100 }).await.expect("the store reads") {
        let of = vec![(owed.tenant, owed.application)];
        let pending = bench
            .app
            .store
            .pending_of(Portion { of, known: Vec::new(), limit: 40_000 })
            .await
            .expect("the store reads")
            .rows;
        due += pending.iter().filter(|event| event.due_at <= Some(bench.clock.now())).count();
    }
    due
}

async fn noted(bench: &Bench) -> usize {
    let page = Cursor { after: None, limit: 10 };
    bench.app.store.turning(LaneSet::ALL, page).await.expect("the store reads").len()
}

async fn enable_merchant(bench: &Bench, owner: &Owner, enabled: bool) {
    let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    let change = MerchantChange { enabled: Some(enabled), ..MerchantChange::default() };
    identity::update_merchant(&bench.app, &view.merchant.merchant_id, &change, &|_| None, &actor())
        .await
        .expect("a merchant changes");
}

/// Writes until all of a backlog is held: how often while one end of it was and the other was not yet.
async fn write_meanwhile(bench: Arc<Bench>, owner: Arc<Owner>, [one, other]: [EventRow; 2]) -> usize {
    // Either may be the first. One that was the same before and after the other was looked at was so meanwhile.
    let is_halfway = async || {
        let seen = [bench.state(&one).await, bench.state(&other).await, bench.state(&one).await];
        seen[0] != seen[1] && seen[0] == seen[2]
    };
    let mut written = 0;
    while noted(&bench).await > 0 {
        let began_halfway = is_halfway().await;
        bench.emit(&owner, "theirs").await;
        written += usize::from(began_halfway && is_halfway().await);
    }
    written
}

fn run_dispatcher(bench: &Bench) -> (JoinHandle<()>, watch::Sender<bool>) {
    let (stop, stopped) = watch::channel(false);
    let dispatcher = Dispatcher::new(bench.app.clone(), settings()).expect("settings that hold");
    (tokio::spawn(Arc::new(dispatcher).run(stopped.clone(), stopped)), stop)
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    patience::until(what, LONG, async || Ok(holds().await.then_some(()))).await.expect("it comes to hold");
}

async fn states(bench: &Bench, state: DeliveryState) -> Vec<EventRow> {
    let filter = EventFilter { state: Some(state), ..EventFilter::default() };
    events::list(&bench.app, filter, None, 10).await.expect("the list").events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merchant_with_a_large_backlog_is_disabled_at_once_and_others_write_on() {
    let bench = Arc::new(Bench::new().await);
    let endpoint = receiver().await;
    let (owner, neighbour) = (bench.owner(Some(endpoint.url())).await, bench.owner(None).await);
    let ends = backlog(&bench, &owner, BACKLOG).await;
    let last = ends[0].clone();
    enable_merchant(&bench, &owner, false).await;
    assert_eq!((due(&bench).await, noted(&bench).await), (BACKLOG, 1), "nothing is turned with the change");
    let (shown, _) = events::find(&bench.app, last.event_id).await.expect("the event");
    assert_eq!((bench.row(&last).await.state, shown.state), (DeliveryState::Pending, DeliveryState::Held));
    assert_eq!(events::next_attempt_at(&shown), None);
    assert!(states(&bench, DeliveryState::Pending).await.is_empty());
    assert!(states(&bench, DeliveryState::Held).await.iter().all(|row| row.state == DeliveryState::Held));

    let (task, stop) = run_dispatcher(&bench);
    let neighbour = Arc::new(neighbour);
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write_meanwhile(bench.clone(), neighbour.clone(), ends.clone()));
    }
    let written: usize = writers.join_all().await.into_iter().sum();
    assert!(written >= 3, "another tenant wrote {written} times while the backlog was being held");
    assert_eq!(due(&bench).await, 0);
    assert!(endpoint.received().is_empty(), "nothing went out meanwhile");
    stop.send(true).expect("the dispatcher runs");
    task.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_cut_off_between_portions_goes_on_and_a_change_back_turns_it_back() {
    let bench = Arc::new(Bench::new().await);
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let [last, _] = backlog(&bench, &owner, BACKLOG).await;
    // Turned, but not sent: what is due can be counted.
    bench.app.bell.set_paused(true);
    enable_merchant(&bench, &owner, false).await;
    // What a node leaves that dies after its first portion.
    let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    let portion = Write::HoldPending { tenant: view.application.tenant, application: view.application.no };
    bench.app.store.commit(Batch(vec![portion])).await.expect("a portion is held");
    assert_eq!(due(&bench).await, BACKLOG - DELIVERIES_TURNED_MAX, "cut off in the middle");
    assert_eq!(noted(&bench).await, 1);

    enable_merchant(&bench, &owner, true).await;
    let (shown, _) = events::find(&bench.app, last.event_id).await.expect("the event");
    assert_eq!(shown.state, DeliveryState::Pending, "whatever its row says");
    assert!(states(&bench, DeliveryState::Held).await.is_empty());
    let (task, stop) = run_dispatcher(&bench);
    until("all are released", async || noted(&bench).await == 0).await;
    assert_eq!(due(&bench).await, BACKLOG);
    assert!(endpoint.received().is_empty(), "deliveries are paused");
    stop.send(true).expect("the dispatcher runs");
    task.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_gone_is_disabled_at_once_however_much_waits_for_it() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(410));
    let owner = bench.owner(Some(endpoint.url())).await;
    backlog(&bench, &owner, BACKLOG / 3).await;
    let made = bench.deliver().await;
    assert!((1..=settings().per_application).contains(&made), "{made} attempts");
    assert_eq!(bench.deliver().await, 0, "a portion was held with the attempt, the rest follows");
    assert_eq!((due(&bench).await, noted(&bench).await), (0, 0));
    let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    assert!(!view.application.callback_enabled);
}
