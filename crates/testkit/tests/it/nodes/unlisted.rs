//! A node that whoever lists the nodes does not see.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_the_others_do_not_see_asks_the_database_for_each_request() {
    let fleet = Fleet::new(1, |_| {}).await;
    let node = fleet.start(0).await;
    let signer = fleet.access(&node).institution("bank", 0, None).await.expect("an institution");
    until_it_is_believed_against_the_database(&fleet, &node, &signer).await;
    // Its heartbeats do not reach the database, and whoever revokes something waits for nobody.
    fleet.database.list_only(None).await;
    until("it is refused", async || pull(&node, &signer, wall_ms()).await.status == 401).await;
    fleet.database.restore_unsaid().await;
    assert_eq!(pull(&node, &signer, wall_ms()).await.code(), "000000", "the database says so");
    assert_eq!(fleet.database.revoke_unsaid().await, 1);
    assert_eq!(pull(&node, &signer, wall_ms()).await.status, 401, "and at once the other way");

    fleet.database.refuse_no_more("node").await;
    fleet.database.restore_unsaid().await;
    until_it_is_believed_against_the_database(&fleet, &node, &signer).await;
    node.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_sees_another_one_and_not_itself_is_not_alone() {
    let fleet = Fleet::new(2, |_| {}).await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    fleet.access(&one).institution("bank", 0, None).await.expect("an institution");
    let other = two.app.node.id().expect("it serves").0;
    fleet.database.list_only(Some(other)).await;
    let began = Instant::now();
    fleet.access(&one).provision("PATCH", "/merchants/bank", json!({"enabled": false})).await.expect("is disabled");
    assert!(began.elapsed() >= FRESH, "the other one may believe what it has in memory");
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}
