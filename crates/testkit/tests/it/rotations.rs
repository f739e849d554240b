//! Secrets that are rotated under load, and a merchant in whose name others send bad signatures; in small. `cargo xtask rotation` and
//! `cargo xtask victim` are the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::{rotation, victim};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_load_refuses_no_request_and_fails_no_callback() {
    let kind = StoreKind::of_this_run();
    let report = rotation::run(kind, 2, 2, 20_260_102).await.expect("every secret is changed without a gap");
    rotation::print(&report);
    assert_eq!((report.rotations, report.switched), (4, 2));
    assert_eq!(report.refused_after_the_end, 4 * report.nodes);
    assert!(report.requests > 100 && report.callbacks > 20, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_signatures_in_its_name_take_nothing_from_a_merchant() {
    // A budget that is used up within seconds, however slowly bad signatures are sent.
    let budget = "failed_auth_per_s = 1\nfailed_auth_burst = 100\n";
    let report = victim::run(StoreKind::of_this_run(), 3, budget).await.expect("a run");
    victim::print(&report);
    report.verdict(1).expect("the merchant is served, and there was an attack");
    assert!(report.refused >= 100, "{report:?}");
}
