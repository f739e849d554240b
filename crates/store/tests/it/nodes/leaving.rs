//! A node that is told to end while something is in flight there.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_keeps_what_it_holds_takes_nothing_and_leaves_the_rest_to_others() {
    let (_database, [one, two]) = two_nodes().await;
    let first = tend(&one, heartbeat(1, &[])).await;
    tend(&two, heartbeat(2, &[])).await;
    let (keeps, gives): (Held, Held) = first.held.iter().partition(|(lane, _)| lane.get() == 7);
    let leaves = tend(&one, Tend { stage: Stage::Leaves, give_back: gives, ..heartbeat(1, &keeps) }).await;
    assert_eq!((leaves.held.as_slice(), leaves.nodes_alive), (keeps.as_slice(), 1), "it is not counted any more");
    let other = tend(&two, heartbeat(2, &[])).await;
    assert_eq!((other.held.len(), other.nodes_alive), (63, 1));
    assert!(other.held.iter().all(|(lane, _)| lane.get() != 7), "what is in flight there goes on");
    let again = tend(&one, Tend { stage: Stage::Leaves, ..heartbeat(1, &keeps) }).await;
    assert_eq!(again.held, keeps, "it is renewed for as long as it takes");
    tend(&one, Tend { stage: Stage::Ends, ..heartbeat(1, &keeps) }).await;
    assert_eq!(tend(&two, heartbeat(2, &other.held)).await.held.len(), 64);
}
