//! One `clientReqId` by 64 clients at once, in small; `cargo xtask client-req-ids` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::client_req_ids::{Report, run};

const ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_by_64_clients_at_once_and_lost_answers_make_one_order_each() {
    let report = run(StoreKind::of_this_run(), ROUNDS).await.expect("one order for each name");
    let orders = 3 * ROUNDS;
    let expected = Report {
        rounds: ROUNDS,
        equal: 64 * ROUNDS,
        other_content: ROUNDS,
        lost_and_found: ROUNDS,
        cut_at_once: ROUNDS,
        orders,
    };
    assert_eq!(report, expected);
}
