//! A start with many events queued. `cargo xtask queued` is the same in large, with its times and sizes.

use std::time::Duration;

use countersign_testkit::backing::StoreKind;
use countersign_testkit::queued::{self, Plan};

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_come_back_to_a_large_backlog_see_no_more_than_their_rate() {
    // So long after their return that more than their rate would be seen.
    let plan = Plan { events: 5_000, endpoints: 5, rate_per_s: 20, watched: Duration::from_secs(3) };
    let report = queued::run(StoreKind::of_this_run(), plan).await.expect("a run");
    queued::print(&report, plan);
    report.rates(plan).expect("within the rate");
}
