//! Endpoints that hang beside one that works. `cargo xtask neighbours` is the same in large, with its times.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::neighbours::{self, Plan};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_hung_endpoints_keep_no_first_attempt_of_another_one_waiting() {
    // Nobody gives up within the run, and more hang than may at once: whoever waits for a hung one waits too long, known or not.
    let plan = Plan { hung: 1_000, events_each: 2, events: 200, deadline_s: 300, slow: 256 };
    let report = neighbours::run(StoreKind::of_this_run(), plan).await.expect("a run");
    neighbours::print(&report, plan);
    report.order(plan).expect("in order");
}
