//! A sample of the matrix; `cargo xtask matrix` runs all of it.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::hostile::matrix;
use countersign_testkit::wire::wall_ms;

/// One group of requests in this many, of those in which more than one thing is wrong.
const ONE_IN: usize = 12;

#[tokio::test]
async fn nobody_reaches_what_is_another_tenants_by_any_route_key_or_header() {
    let seed = wall_ms().unsigned_abs();
    let report = matrix::run(StoreKind::of_this_run(), ONE_IN, seed).await.expect("the matrix runs");
    report.verdict().unwrap_or_else(|faults| panic!("seed {seed}: {faults}"));
    assert!(report.asked.0 > 5_000 && report.asked.1 > 300, "{report:?}");
}
