//! A node that is told to stop while something is in flight there.

use super::*;

/// The first seven lanes that are held, and the others.
fn split(tended: &Tended) -> (Held, Held) {
    tended.held.iter().partition(|(lane, _)| lane.get() < 7)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_keeps_what_it_holds_takes_nothing_has_no_share_and_is_still_seen() {
    let (_database, [one, two]) = two_nodes().await;
    let (keeps, gives) = split(&tend(&one, heartbeat(1, &[])).await);
    tend(&two, heartbeat(2, &[])).await;
    let leaves = |held: &[(Lane, Fence)]| Tend { stage: Stage::Leaves, ..heartbeat(1, held) };
    let left = tend(&one, Tend { give_back: gives, ..leaves(&keeps) }).await;
    assert_eq!((left.held.as_slice(), left.nodes_alive), (keeps.as_slice(), 1), "the other one is counted");

    let other = tend(&two, heartbeat(2, &[])).await;
    assert_eq!((other.held.len(), other.nodes_alive), (57, 1));
    assert!(!lanes(&other.held).meets(lanes(&keeps)), "what is in flight there goes on");
    let listed = two.nodes(LEASE_MS, 10).await.expect("reads");
    let brief: Vec<_> = listed.iter().map(|node| (node.who.name.as_str(), node.is_alive, node.lanes)).collect();
    assert_eq!(
        brief,
        [("node 1", true, 7), ("node 2", true, 57)],
        "it may still act, and whoever waits for it sees it"
    );

    // It is renewed for as long as that takes, and gives back more; a third node that joins has half of what there is.
    let (fewer, more) = keeps.split_at(1);
    let left = tend(&one, Tend { give_back: more.to_vec(), ..leaves(fewer) }).await;
    assert_eq!(left.held, fewer);
    let third = tend(&two, heartbeat(3, &[])).await;
    assert_eq!((third.held.len(), third.nodes_alive), (6, 2));
    tend(&one, Tend { stage: Stage::Ends, ..heartbeat(1, fewer) }).await;
    assert_eq!(tend(&two, heartbeat(3, &third.held)).await.held.len(), 7);
    assert_eq!(two.nodes(LEASE_MS, 10).await.expect("reads").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_killed_while_it_left_has_its_share_when_it_starts_again() {
    let (_database, [one, two]) = two_nodes().await;
    tend(&one, heartbeat(1, &[])).await;
    let (_, gives) = split(&tend(&two, heartbeat(2, &[])).await);
    tend(&one, Tend { stage: Stage::Leaves, give_back: gives, ..heartbeat(1, &[]) }).await;
    let other = tend(&two, heartbeat(2, &[])).await;
    assert_eq!(other.nodes_alive, 1);
    let begins = tend(&one, Tend { stage: Stage::Begins, ..heartbeat(1, &[]) }).await;
    assert_eq!(begins.nodes_alive, 2);
    assert_eq!(tend(&two, heartbeat(2, &other.held)).await.nodes_alive, 2);
}
