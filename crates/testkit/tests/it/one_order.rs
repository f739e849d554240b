//! One name is one order, whoever sends it and whatever is lost, in small; `cargo xtask one-order` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::one_order::{Plan, Subject, run};

const ROUNDS: usize = 8;
const SEED: u64 = 20_260_102;

async fn is_one(subject: Subject) {
    let plan = Plan { rounds: ROUNDS, clients: 64, seed: SEED };
    let counts = run(subject, StoreKind::of_this_run(), plan).await.expect("one order for each name");
    let seen = (counts.equal, counts.duplicates, counts.lost, counts.cut, counts.orders);
    assert_eq!(seen, (64 * ROUNDS, 2 * ROUNDS, ROUNDS, ROUNDS, 3 * ROUNDS), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trade_number_is_one_order_whoever_sends_it_at_once_and_whatever_is_lost() {
    is_one(Subject::TradeNo).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_req_id_is_one_order_whoever_sends_it_at_once_and_whatever_is_lost() {
    is_one(Subject::ClientReqId).await;
}
