//! `kill -9` under load, in small; `cargo xtask kill 200` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::kill::{self, ACKNOWLEDGED_MIN, IN_HAND_MIN, UNANSWERED_MIN};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_is_accepted_twice_over_many_kills() {
    let kind = StoreKind::of_this_run();
    let rounds = 20;
    let report = kill::run(kind, rounds).await.expect("every kill leaves what was acknowledged");
    kill::print(&report);
    assert_eq!(report.rounds, rounds);
    assert!(report.unanswered >= rounds * UNANSWERED_MIN, "{report:?}");
    assert!(report.upgrades >= rounds * ACKNOWLEDGED_MIN, "{report:?}");
    assert!(report.events > 0 && report.queries > 0 && report.chains > 0, "{report:?}");
    assert!(report.in_hand >= rounds * IN_HAND_MIN, "{report:?}");
}
