//! A move that is killed midway, in small; `cargo xtask move 1000000` is the same in large.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_five_times_midway_brings_every_row_once() {
    let report = countersign_testkit::moves::run(40_000, 5).await.expect("every row is there, once");
    countersign_testkit::moves::print(&report);
    assert_eq!((report.kills_copying, report.kills_comparing), (4, 1));
    assert!(report.rows > 35_000 && report.found.len() == 5, "{report:?}");
}
