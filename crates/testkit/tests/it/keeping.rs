//! Another master key, backups and restores, in small; `cargo xtask rewrap 50` and `cargo xtask backups 20` are the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::{backups, rewraps};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_master_key_that_is_killed_leaves_every_secret_readable() {
    let report = rewraps::run(StoreKind::of_this_run(), 3, 7).await.expect("every secret is readable");
    rewraps::print(&report);
    report.verdict().expect("kills came in the middle");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_a_prefix_and_sends_nothing_until_it_is_told() {
    let report = backups::run(StoreKind::of_this_run(), 2).await.expect("what is restored is a prefix");
    backups::print(&report);
    assert!(report.acknowledged > 50 && report.lines > 100 && report.replays_refused > 10, "{report:?}");
}
