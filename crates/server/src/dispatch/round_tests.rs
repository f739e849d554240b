//! What a pass begins, and what is found though nobody rings for it.

use countersign_store::contract::Asker;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use countersign_domain::lanes::Fence;
use countersign_store::nodes::Tended;
use countersign_store::{Batch, Write};

use super::*;
use crate::app::App;
use crate::app::fixtures::{Deployment, application, happens};
use crate::app::trouble::NoChanges;
use crate::dispatch::DispatchSettings;

#[path = "round_terms_tests.rs"]
mod terms;

/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(60);
/// Where nobody listens: each attempt fails at once.
const NOWHERE: &str = "http://127.0.0.1:1/";

async fn opened(deployment: &Deployment) -> (Arc<App>, Arc<Dispatcher>) {
    let app = deployment.open().await;
    let look_every = Duration::from_millis(200);
    let settings = DispatchSettings { allow_private: true, look_every, ..DispatchSettings::default() };
    let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
    (app, dispatcher)
}

/// On a file, with an application whose attempts fail at once, and every lane.
async fn on_a_file() -> (Deployment, Arc<App>, Arc<Dispatcher>, String) {
    let deployment = Deployment::on_sqlite().await.in_real_time();
    let (app, dispatcher) = opened(&deployment).await;
    let client_id = application(&app, "till", Some(NOWHERE)).await;
    dispatcher.leases.tended(&every_lane(), Instant::now(), SOON);
    (deployment, app, dispatcher, client_id)
}

/// On a database that nodes share.
async fn on_a_database() -> (Deployment, Arc<App>, Arc<Dispatcher>) {
    let deployment = Deployment::on_postgres().await.in_real_time();
    let (app, dispatcher) = opened(&deployment).await;
    (deployment, app, dispatcher)
}

fn every_lane() -> Tended {
    Tended { held: Lane::all().map(|lane| (lane, Fence(0))).collect(), nodes_alive: 1, others: Vec::new(), seen: None }
}

/// An endpoint at which no attempt ends, as long as it is there: connections wait in its line for ever.
fn that_hangs() -> (TcpListener, String) {
    let hangs = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", hangs.local_addr().expect("is bound"));
    (hangs, url)
}

async fn attempts(app: &App, event: &EventRow) -> i64 {
    app.store.event(Asker::Operator, event.event_id).await.expect("reads").expect("is there").0.attempts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_begin_at_once_begins_in_several_passes() {
    let deployment = Deployment::on_sqlite().await.in_real_time();
    let app = deployment.open().await;
    let (_hangs, url) = that_hangs();
    for n in 0..2 * BEGUN_MAX + 3 {
        let client_id = application(&app, &format!("till {n}"), Some(&url)).await;
        happens(&app, &client_id).await;
    }
    let settings = DispatchSettings { allow_private: true, ..DispatchSettings::default() };
    let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
    let mut under_way = Vec::new();
    loop {
        let is_cut = dispatcher.pass(app.clock.now(), &|| false).await.expect("the store reads");
        under_way.push(dispatcher.pass_state.lock().await.lineup.under_way());
        if !is_cut {
            break;
        }
    }
    assert_eq!(under_way, [BEGUN_MAX, 2 * BEGUN_MAX, 2 * BEGUN_MAX + 3]);
    // One that is due now, and no lane to deliver it for.
    let mut pass_state = dispatcher.pass_state.lock().await;
    let due = pass_state.lineup.under_way();
    pass_state.lineup.note(TenantNo(1), ApplicationNo(1), app.clock.now());
    drop(pass_state);
    assert_eq!((due, dispatcher.wait().await), (2 * BEGUN_MAX + 3, WAIT_MIN));
    dispatcher.pass_state.lock().await.open = LaneSet::NONE;
    assert_eq!(dispatcher.wait().await, LOOK_EVERY, "it does not spin");
    dispatcher.pass_state.lock().await.tasks.shutdown().await;
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_rings_for_is_found_while_another_lane_is_rung_for_all_the_time() {
    let (_deployment, app, dispatcher) = on_a_database().await;
    let (quiet, model) = (application(&app, "quiet", Some(NOWHERE)).await, application(&app, "model", None).await);
    let view = app.store.application(&quiet).await.expect("reads").expect("is there");
    let model = happens(&app, &model).await;
    let (stop, stopped) = watch::channel(false);
    let runs = tokio::spawn(dispatcher.clone().run(stopped.clone(), stopped));
    let begun = Instant::now();
    while app.bell.lanes().len() < 64 {
        assert!(begun.elapsed() < SOON, "the node takes its lanes");
        sleep(Duration::from_millis(20)).await;
    }
    let lane = Lane::of(view.application.no);
    let other = LaneSet::NONE.with(Lane::all().find(|of| *of != lane).expect("another"));
    // As another node leaves it that dies between its commit and its call.
    let now = app.clock.now();
    let event = EventRow {
        no: EventNo(model.no.0 + 1),
        event_id: SortedId(model.event_id.0 + 1),
        state: DeliveryState::Pending,
        due_at: Some(now),
        client_id: quiet,
        application: view.application.no,
        tenant: view.application.tenant,
        ..model
    };
    app.store.commit(Batch(vec![Write::EnqueueEvent(Arc::new(event.clone()))])).await.expect("is written");
    let begun = Instant::now();
    while attempts(&app, &event).await == 0 {
        assert!(begun.elapsed() < SOON, "it is not found while somebody rings");
        app.bell.ring_lanes(other);
        sleep(Duration::from_millis(20)).await;
    }
    stop.send(true).expect("it runs");
    runs.await.expect("it ends");
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_to_begin_when_a_lease_ran_out_begins_when_it_is_renewed() {
    let (_deployment, app, dispatcher, client_id) = on_a_file().await;
    app.bell.hand_over_for(SOON);
    let pass = async || dispatcher.pass(app.clock.now(), &|| false).await.expect("reads");
    pass().await;
    let event = happens(&app, &client_id).await;
    // It is read and not handed over; while it is read the lease runs out.
    assert_eq!(app.bell.written().events.len(), 1);
    *dispatcher.looks.lock().unwrap_or_else(PoisonError::into_inner) = LaneSet::NONE;
    app.bell.ring(event.tenant, event.application);
    let asked = AtomicUsize::new(0);
    let late = || {
        if asked.fetch_add(1, Ordering::SeqCst) == 1 {
            dispatcher.leases.tended(&every_lane(), Instant::now(), Duration::ZERO);
        }
        false
    };
    dispatcher.pass(app.clock.now(), &late).await.expect("reads");
    // The next heartbeat is answered before the next pass.
    dispatcher.leases.tended(&every_lane(), Instant::now(), SOON);
    pass().await;
    assert!(dispatcher.looks.lock().unwrap_or_else(PoisonError::into_inner).contains(Lane::of(event.application)));
    dispatcher.look_for(LaneSet::ALL).await.expect("reads");
    let begun = Instant::now();
    while attempts(&app, &event).await == 0 {
        assert!(begun.elapsed() < SOON, "nobody looks at it");
        pass().await;
        sleep(Duration::from_millis(5)).await;
    }
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_begins_while_the_store_takes_no_changes() {
    let (_deployment, app, dispatcher, client_id) = on_a_file().await;
    let event = happens(&app, &client_id).await;
    app.trouble.found(Some(NoChanges::Refused));
    let begun = async || {
        dispatcher.look_for(LaneSet::ALL).await.expect("reads");
        dispatcher.pass(app.clock.now(), &|| false).await.expect("reads");
        dispatcher.pass_state.lock().await.lineup.flights()
    };
    assert_eq!((begun().await, begun().await), (0, 0), "it could not be recorded");
    assert_eq!(dispatcher.wait().await, LOOK_EVERY, "it does not spin");
    app.trouble.found(None);
    assert!(begun().await + begun().await > 0);
    let since = Instant::now();
    while attempts(&app, &event).await == 0 {
        assert!(since.elapsed() < SOON, "it goes when the store takes changes");
        begun().await;
        sleep(Duration::from_millis(5)).await;
    }
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_are_not_kept_by_a_node_whose_changes_are_not_taken() {
    let (_deployment, app, dispatcher) = on_a_database().await;
    let lease = dispatcher.settings.lease;
    dispatcher.beat().await;
    let (taken, open) = (Instant::now(), dispatcher.leases.open(Instant::now()));
    assert!(!open.is_empty());
    app.trouble.found(Some(NoChanges::Unanswered));
    dispatcher.beat().await;
    assert_eq!(dispatcher.leases.open(taken + lease), LaneSet::NONE, "another node may have them then");
    app.trouble.found(None);
    dispatcher.beat().await;
    assert_eq!(dispatcher.leases.open(taken + lease), open);
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_looks_at_applications_with_nothing_due_come_one_after_the_other() {
    let deployment = Deployment::on_sqlite().await;
    let (app, dispatcher) = opened(&deployment).await;
    dispatcher.leases.tended(&every_lane(), Instant::now(), SOON);
    let model = application(&app, "model", None).await;
    let model = happens(&app, &model).await;
    let now = app.clock.now();
    let later = now.plus_ms(3_600_000);
    for n in 1..=FIRST_LOOKS_AT_ONCE + 1 {
        let client_id = application(&app, &format!("till {n}"), Some(NOWHERE)).await;
        let view = app.store.application(&client_id).await.expect("reads").expect("is there");
        let (no, event_id) = (EventNo(model.no.0 + n), SortedId(model.event_id.0 + u128::from(n.unsigned_abs())));
        let (application, tenant) = (view.application.no, view.application.tenant);
        let (state, due_at) = (DeliveryState::Pending, Some(later));
        let event = EventRow { no, event_id, state, due_at, client_id, application, tenant, ..model.clone() };
        app.store.commit(Batch(vec![Write::EnqueueEvent(Arc::new(event))])).await.expect("is written");
    }
    let first_at_after = async |at: UnixMillis| {
        dispatcher.pass(at, &|| false).await.expect("reads");
        dispatcher.pass_state.lock().await.lineup.first_at()
    };
    first_at_after(now).await;
    dispatcher.look_for(LaneSet::ALL).await.expect("reads");
    let next = now.plus_ms(FIRST_LOOKS_EVERY_MS);
    assert_eq!(first_at_after(now).await, Some(next), "all are looked at together");
    assert_eq!(first_at_after(next).await, Some(later));
    // Nobody is looked at twice for that.
    dispatcher.look_for(LaneSet::ALL).await.expect("reads");
    assert_eq!(first_at_after(now).await, Some(later));
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_whose_lane_comes_back_from_another_node_is_as_new_and_one_whose_lease_lapsed_is_not() {
    let (_deployment, app, dispatcher, client_id) = on_a_file().await;
    happens(&app, &client_id).await;
    let pass = async || dispatcher.pass(app.clock.now(), &|| false).await.expect("reads");
    let row = app.store.application(&client_id).await.expect("reads").expect("is there").application;
    let last = async || dispatcher.view(&row).await.expect("it is delivered for here").last;
    let begun = Instant::now();
    while last().await.is_none() {
        assert!(begun.elapsed() < SOON, "its attempt fails");
        pass().await;
        sleep(Duration::from_millis(5)).await;
    }
    let elsewhere = Tended { held: Vec::new(), ..every_lane() };
    for (meanwhile, lease, is_known) in [(every_lane(), Duration::ZERO, true), (elsewhere, SOON, false)] {
        dispatcher.leases.tended(&meanwhile, Instant::now(), lease);
        pass().await;
        assert_eq!(dispatcher.view(&row).await, None);
        dispatcher.leases.tended(&every_lane(), Instant::now(), SOON);
        pass().await;
        assert_eq!(last().await.is_some(), is_known);
    }
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_of_attempts_that_are_cut_off_are_given_back_while_the_node_still_answers() {
    let deployment = Deployment::on_postgres().await.in_real_time();
    let app = deployment.open().await;
    let (_hangs, url) = that_hangs();
    let client_id = application(&app, "till", Some(&url)).await;
    let settings =
        DispatchSettings { allow_private: true, drain_grace: Duration::from_millis(50), ..DispatchSettings::default() };
    let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
    let ((stop, stopped), (last, silent)) = (watch::channel(false), watch::channel(false));
    let runs = tokio::spawn(dispatcher.clone().run(stopped, silent));
    let database = deployment.database();
    let begun = Instant::now();
    happens(&app, &client_id).await;
    while dispatcher.pass_state.lock().await.lineup.under_way() == 0 {
        assert!(begun.elapsed() < SOON, "it begins");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(database.holders_and_nodes().await, (1, 1));
    stop.send(true).expect("it runs");
    while database.holders_and_nodes().await != (0, 1) {
        assert!(begun.elapsed() < SOON, "its lanes are given back, and it is still seen");
        sleep(Duration::from_millis(20)).await;
    }
    last.send(true).expect("it runs");
    runs.await.expect("it ends");
    assert_eq!(database.holders_and_nodes().await, (0, 0));
    Deployment::close(&app);
}
