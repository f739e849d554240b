//! Nodes that die, servers that fail over, in small; `cargo xtask fleet` is the same in large.

use countersign_store::testing::Database;
use countersign_testkit::fleet::failover::Standby;
use countersign_testkit::fleet::{failover, kills, pauses, replay, restarts, rolling};

const SEED: u64 = 20_260_102;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_get_one_request_at_once_one_accepts_it_also_when_one_is_killed() {
    let database = Database::new().await;
    let report = replay::run(&database.url(), 100, 6, SEED).await.expect("never two, never none");
    replay::print(&report);
    assert_eq!((report.rounds, report.writes, report.kills), (100, 50, 6));
    assert!(report.won.iter().all(|won| *won > 10), "both nodes are in the race: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_no_lane_is_held_twice_while_one_node_after_the_other_is_killed() {
    let database = Database::new().await;
    let report = kills::run(&database, 3).await.expect("every kill leaves what was acknowledged");
    kills::print(&report);
    let tally = report.tally;
    assert!(tally.upgrades >= 3 * 300 && tally.events > 100 && tally.queries > 100, "{tally:?}");
    assert!(tally.unanswered > 0 && tally.honest_late == 12, "{tally:?}");
    assert!(report.lanes.handovers() > 0 && report.connections >= 3, "others took over what was in flight");
    // Each kill comes when so much is under way, not after a time: on a busy machine that is with fewer bizIds.
    assert!(report.repeats.chains > 50, "{:?}", report.repeats);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_synchronous_standby_loses_nothing_and_accepts_nothing_again() {
    let report = failover::run(Standby::Synchronous, 1).await.expect("the standby has everything");
    failover::print(Standby::Synchronous, &report);
    assert!(report.tally.upgrades > 200 && report.tally.replays_refused > 200, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_standby_that_lags_loses_some_and_the_checks_see_it() {
    let report = failover::run(Standby::Lagging, 1).await.expect("something is lost");
    failover::print(Standby::Lagging, &report);
    assert!(report.lost > 0 && report.lost < report.tally.upgrades, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_brings_that_was_stopped_beyond_its_lease_is_refused() {
    let database = Database::new().await;
    let report = pauses::run(&database, 2).await.expect("every state is right");
    pauses::print(&report);
    assert!(report.fenced >= 2 && report.events == 24, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_outlive_a_restart_of_the_database_and_answer_503_meanwhile() {
    let report = restarts::run(2).await.expect("nothing is lost");
    restarts::print(&report);
    assert!(report.tally.away > 0 && report.tally.honest_late == 8, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_and_no_callback_comes_twice_while_one_node_after_the_other_is_replaced() {
    let database = Database::new().await;
    let report = rolling::run(&database, 2).await.expect("nobody notices");
    rolling::print(&report);
    let tally = report.tally;
    assert!(tally.upgrades >= 2 * 200 && tally.events > 50 && tally.queries > 50, "{tally:?}");
}
