//! Fees from end to end, in small; `cargo xtask fees` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::fees::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fee_is_what_paper_says_a_what_if_what_running_the_rule_comes_to_and_a_statement_the_sum_of_its_orders() {
    let plan = Plan { orders: 2_000, seed: 20_260_102 };
    let proved = run(StoreKind::of_this_run(), plan).await.expect("every figure agrees");
    assert_eq!(proved.fees, 2 * plan.orders);
    assert!(proved.rules >= 15 && proved.rounded > plan.orders / 4, "{proved:?}");
    assert!(proved.sums > 5 * 4 * 30 && proved.statements >= 10, "{proved:?}");
}
