//! `kill -9` under load, in small; `cargo xtask kill 200` is the same in large.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_is_accepted_twice_over_twenty_kills() {
    let report = countersign_testkit::kill::run(20).await.expect("every kill leaves what was acknowledged");
    countersign_testkit::kill::print(&report);
    assert_eq!(report.rounds, 20);
    assert!(report.unanswered >= 20 * countersign_testkit::kill::UNANSWERED_MIN, "{report:?}");
    assert!(report.upgrades >= 20 * countersign_testkit::kill::ACKNOWLEDGED_MIN, "{report:?}");
    assert!(report.events > 0 && report.queries > 0, "{report:?}");
}
