//! Lanes that were lost and taken again, and reads that fail for one application.

use tokio::time::timeout;

use super::*;

/// Every lane, under a term of this number.
fn term(number: i64) -> Tended {
    Tended { held: Lane::all().map(|lane| (lane, Fence(number))).collect(), ..every_lane() }
}

async fn ready(dispatcher: &Dispatcher, event: &EventRow) -> usize {
    dispatcher.pass_state.lock().await.lineup.ready_of(event.application)
}

/// A pass that ends before anything begins: so many things are done in it, each of which is a read here.
async fn pass_of(app: &App, dispatcher: &Arc<Dispatcher>, reads: usize) {
    let asked = AtomicUsize::new(0);
    let must_stop = || asked.fetch_add(1, Ordering::Relaxed) >= reads;
    dispatcher.pass(app.clock.now(), &must_stop).await.expect("the store reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_found_before_its_lane_was_lost_and_taken_again_is_looked_for_anew() {
    let (_deployment, app, dispatcher, client_id) = on_a_file().await;
    let event = happens(&app, &client_id).await;
    happens(&app, &client_id).await;
    dispatcher.leases.tended(&term(1), Instant::now(), SOON);
    pass_of(&app, &dispatcher, 1).await;
    assert_eq!(ready(&dispatcher, &event).await, 2);
    // Two heartbeats between two passes: another node may have had the lanes, and delivered all of it.
    dispatcher.leases.tended(&Tended { held: Vec::new(), ..every_lane() }, Instant::now(), SOON);
    dispatcher.leases.tended(&term(3), Instant::now(), SOON);
    pass_of(&app, &dispatcher, 0).await;
    assert_eq!(ready(&dispatcher, &event).await, 0);
    dispatcher.look_for(LaneSet::ALL).await.expect("reads");
    pass_of(&app, &dispatcher, 1).await;
    assert_eq!(ready(&dispatcher, &event).await, 2);
    dispatcher.leases.tended(&term(3), Instant::now(), SOON);
    pass_of(&app, &dispatcher, 0).await;
    assert_eq!(ready(&dispatcher, &event).await, 2, "a term that is renewed is the same one");
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_while_its_lane_is_lost_and_taken_again_does_not_begin() {
    let (deployment, app, dispatcher) = on_a_database().await;
    let (_hangs, url) = that_hangs();
    let client_id = application(&app, "till", Some(&url)).await;
    dispatcher.leases.tended(&term(1), Instant::now(), SOON);
    let event = happens(&app, &client_id).await;
    dispatcher.look_for(LaneSet::ALL).await.expect("reads");
    let held = deployment.database().hold_table("event").await;
    let passes = tokio::spawn({
        let (app, dispatcher) = (app.clone(), dispatcher.clone());
        async move { dispatcher.pass(app.clock.now(), &|| false).await }
    });
    timeout(SOON, deployment.database().somebody_waits()).await.expect("it reads");
    dispatcher.leases.tended(&term(2), Instant::now(), SOON);
    drop(held);
    passes.await.expect("does not panic").expect("the store reads");
    assert_eq!(ready(&dispatcher, &event).await, 0);
    assert_eq!(dispatcher.pass_state.lock().await.lineup.under_way(), 0);
    dispatcher.look_for(LaneSet::ALL).await.expect("reads");
    dispatcher.pass(app.clock.now(), &|| false).await.expect("the store reads");
    assert_eq!(dispatcher.pass_state.lock().await.lineup.under_way(), 1);
    dispatcher.pass_state.lock().await.tasks.shutdown().await;
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_cannot_be_read_keeps_no_other_one_from_being_delivered_to() {
    let (deployment, app, dispatcher) = on_a_database().await;
    let mut events = Vec::new();
    for n in 0..4 {
        let client_id = application(&app, &format!("till {n}"), Some(NOWHERE)).await;
        events.push(happens(&app, &client_id).await);
    }
    let damaged = events.remove(0);
    deployment.database().damage_events_of(Some(damaged.application.0)).await;
    let (stop, stopped) = watch::channel(false);
    let runs = tokio::spawn(dispatcher.clone().run(stopped.clone(), stopped));
    let begun = Instant::now();
    for event in &events {
        while attempts(&app, event).await == 0 {
            assert!(begun.elapsed() < SOON, "one of another application goes");
            sleep(Duration::from_millis(20)).await;
        }
    }
    deployment.database().damage_events_of(None).await;
    while attempts(&app, &damaged).await == 0 {
        assert!(begun.elapsed() < 2 * SOON, "and when it can be read, that one goes, too");
        sleep(Duration::from_millis(20)).await;
    }
    stop.send(true).expect("it runs");
    runs.await.expect("it ends");
    Deployment::close(&app);
}
