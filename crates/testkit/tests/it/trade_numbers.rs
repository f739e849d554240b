//! One trade number is one order, whoever sends it and whatever is lost, in small; `cargo xtask trade-numbers` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::trade_numbers::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trade_number_is_one_order_whoever_sends_it_at_once_and_whatever_is_lost() {
    let plan = Plan { rounds: 12, clients: 64, seed: 20_260_102 };
    let counts = run(StoreKind::of_this_run(), plan).await.expect("one order for each number");
    assert_eq!((counts.equal, counts.lost, counts.cut, counts.orders), (12 * 64, 12, 12, 36), "{counts:?}");
}
