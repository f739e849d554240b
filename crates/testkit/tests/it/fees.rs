//! Fees from end to end, in small; `cargo xtask fees` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::fees::crowd::{self, Crowd};
use countersign_testkit::fees::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fee_is_what_paper_says_a_what_if_what_running_the_rule_comes_to_and_a_statement_the_sum_of_its_orders() {
    let plan = Plan { orders: 2_000, seed: 20_260_102 };
    let proved = run(StoreKind::of_this_run(), plan).await.expect("every figure agrees");
    assert_eq!(proved.fees, 2 * plan.orders);
    assert!(proved.rules >= 15 && proved.rounded > plan.orders / 4, "{proved:?}");
    assert!(proved.sums > 5 * 4 * 30 && proved.statements >= 10, "{proved:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fee_names_the_version_in_force_when_its_order_was_paid_however_many_upgrade_and_pay_at_once() {
    let plan = Crowd { rounds: 40, seed: 20_260_102 };
    let seen = crowd::run(StoreKind::of_this_run(), plan).await.expect("every fee names that version");
    assert_eq!(seen.paid, 40 * 12);
    assert!(seen.versions > 40 * 3 && seen.named > 20 && seen.close > 100 && seen.without >= 10, "{seen:?}");
}
