//! Few canaries; `cargo xtask canaries` looks for a thousand.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::hostile::canaries;

#[tokio::test]
async fn no_secret_is_found_wherever_a_thief_would_look() {
    let report = canaries::run(StoreKind::of_this_run(), 6).await.expect("it runs");
    report.verdict().unwrap_or_else(|found| panic!("{found}"));
}
