//! The database is away for longer than a lease, and no node is dead.

use super::*;

/// The endpoints whose last attempt this node knows to have failed.
async fn failing(fleet: &Fleet, node: &Running) -> Vec<String> {
    let answer =
        fleet.access(node).call("GET", "/operator/v1/callbacks/failing", None).await.expect("an answer").json();
    let items = answer["items"].as_array().expect("a list");
    items.iter().map(|item| item["client_id"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_keeps_its_lanes_and_what_it_knows_of_its_endpoints() {
    let fleet = Fleet::new(2, |config| config.dispatch_lease = Period(Duration::from_secs(10))).await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let held = |node: &Running| node.app.bell.lanes();
    until("the lanes are shared", async || held(&one).len() == 32 && held(&two).len() == 32).await;
    let receiver = Receiver::start().await.expect("a loopback port");
    receiver.answer_with(Reply::Status(500));
    let access = fleet.access(&one);
    let signers = one_in_each(&access, &one, &receiver.url(), [held(&one), held(&two)]).await;
    for signer in &signers {
        access.provision("POST", "/events", event(signer, "1")).await.expect("an event");
    }
    let known = async |node: &Running, of: &Signer| failing(&fleet, node).await == [of.client_id.clone()];
    let is_known = async || known(&one, &signers[0]).await && known(&two, &signers[1]).await;
    until("each knows of its own", is_known).await;

    let before = [held(&one), held(&two)];
    fleet.database.take_away().await;
    until("no lease runs any more", async || held(&one).is_empty() && held(&two).is_empty()).await;
    fleet.database.bring_back().await;
    // Whichever comes first: a node alone would have all.
    until("each is there again", async || !held(&one).is_empty() && !held(&two).is_empty()).await;
    assert_eq!([held(&one), held(&two)], before);
    assert!(is_known().await, "and knows what it knew");
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}
