//! A data folder that was copied with its node's id.

use super::*;

async fn why_not_ready(node: &Running) -> Option<String> {
    let answer = ready(node).await;
    (answer.status != 200).then(|| answer.json().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_with_one_id_the_older_one_is_not_ready_and_delivers_nothing_until_the_other_is_gone() {
    let fleet = Fleet::new(2, |config| config.dispatch_lease = Period(Duration::from_secs(5))).await;
    let old = fleet.start(0).await;
    std::fs::copy(fleet.configs[0].data.join("node.id"), fleet.configs[1].data.join("node.id")).expect("is copied");
    let signer = fleet.access(&old).institution("bank", 0, None).await.expect("an institution");
    until("it delivers", async || old.app.bell.lanes().len() == 64).await;
    assert_eq!(why_not_ready(&old).await, None);

    let copy = fleet.start(1).await;
    until("the older one hears of it", async || why_not_ready(&old).await.is_some_and(|why| why.contains("node's id")))
        .await;
    until("and gives its lanes up", async || old.app.bell.lanes().is_empty()).await;
    until("the other has them", async || copy.app.bell.lanes().len() == 64).await;
    assert_eq!(why_not_ready(&copy).await, None);
    let began = Instant::now();
    fleet.access(&old).provision("PATCH", "/merchants/bank", json!({"enabled": false})).await.expect("is disabled");
    assert!(began.elapsed() >= FRESH, "it knows that it is not alone");
    assert_eq!(pull(&old, &signer, wall_ms()).await.status, 401);

    copy.stop().await.expect("it stops");
    until("the older one goes on", async || why_not_ready(&old).await.is_none() && old.app.bell.lanes().len() == 64)
        .await;
    old.stop().await.expect("it stops");
}
