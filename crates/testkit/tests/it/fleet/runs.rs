//! Nodes that die, servers that fail over, in small; `cargo xtask fleet` is the same in large.

use countersign_store::testing::Database;
use countersign_testkit::fleet::{kills, replay};

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
    let report = kills::run(&database, 6).await.expect("every kill leaves what was acknowledged");
    kills::print(&report);
    let tally = report.tally;
    assert!(tally.upgrades >= 6 * 300 && tally.events > 100 && tally.queries > 100, "{tally:?}");
    assert!(tally.unanswered > 0 && tally.honest_late == 24, "{tally:?}");
    assert!(report.lanes.handovers() > 0 && report.in_flight > 0, "others took over what was in flight");
}
