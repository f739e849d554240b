//! An application's own limit on timestamps, and nonces that another node has taken.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_outside_its_applications_own_limit_is_told_of_the_time_by_every_node() {
    let fleet = Fleet::new(2, |_| {}).await;
    let nodes = [fleet.start(0).await, fleet.start(1).await];
    let access = fleet.access(&nodes[0]);
    let signer = access.institution("bank", 0, None).await.expect("an institution");
    let path = format!("/applications/{}", signer.client_id);
    access.provision("PATCH", &path, json!({"timestamp_tolerance_ms": 1_000})).await.expect("changed");
    for node in &nodes {
        until("it knows the limit", async || pull(node, &signer, wall_ms() - 5_000).await.code() == "400003").await;
    }
    for (method, path) in [("GET", "/v1/pay/events"), ("POST", "/v1/pay/order/close")] {
        let draft = signer.draft_at(method, path, b"", wall_ms() - 5_000, &fresh_nonce());
        for node in [&nodes[0], &nodes[1], &nodes[1], &nodes[0]] {
            let answer = once(node.listen, &draft.bytes()).await.expect("the server answers");
            assert_eq!(answer.code(), "400003", "{method}: {}", answer.json());
        }
    }
    for node in nodes {
        node.stop().await.expect("it stops");
    }
}
