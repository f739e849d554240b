//! That refusals are measured at all; `cargo xtask timing` judges the times, on a release build.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::hostile::timing;

#[tokio::test]
async fn every_kind_of_refusal_is_measured_as_often_as_the_others() {
    let report = Box::pin(timing::run(StoreKind::of_this_run(), 50, 1)).await.expect("it runs");
    assert_eq!((report.samples, report.verdicts.len()), (50, 5));
    assert!(report.verdicts.iter().all(|verdict| (0.0..=1.0).contains(&verdict.by_length)), "{report:?}");
}
