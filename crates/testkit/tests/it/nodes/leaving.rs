//! A node that is told to stop while something is under way there.

use countersign_testkit::wire::Connection;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_while_an_endpoint_hangs_gives_the_other_lanes_back_at_once() {
    // It waits for its endpoint for longer than any test takes.
    let fleet = Fleet::new(2, |config| {
        config.limits.drain_timeout = Period(Duration::from_secs(300));
        config.dispatch_lease = Period(Duration::from_secs(10));
        config.callback_deadline = Period(SOON);
    })
    .await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let held = |node: &Running| node.app.bell.lanes();
    until("the lanes are shared", async || held(&one).len() == 32 && held(&two).len() == 32).await;
    let (hangs, takes) = (Receiver::start().await.expect("a port"), Receiver::start().await.expect("a port"));
    hangs.answer_with(Reply::Held);
    let access = fleet.access(&one);
    let [hung, _] = one_in_each(&access, &one, &hangs.url(), [held(&one), held(&two)]).await;
    let lane_of = async |client_id: &str| {
        let found = one.app.store.application(client_id).await.expect("reads").expect("there");
        Lane::of(found.application.no)
    };
    let busy = lane_of(&hung.client_id).await;
    // One whose lane the same node has, and where nothing is in flight.
    let (other, lane) = loop {
        let signer = access.application("bank", Some(&takes.url())).await.expect("an application");
        let lane = lane_of(&signer.client_id).await;
        if held(&one).contains(lane) && lane != busy {
            break (signer, lane);
        }
    };
    access.provision("POST", "/events", event(&hung, "hangs")).await.expect("an event");
    hangs.wait_for(1, SOON).await.expect("it is there, and waits");

    let stopping = tokio::spawn(one.stop());
    until("the other has what nothing is in flight in", async || held(&two) == LaneSet::ALL.without(busy)).await;
    let access = fleet.access(&two);
    access.provision("POST", "/events", event(&other, "goes on")).await.expect("an event");
    takes.wait_for(1, SOON).await.expect("it arrives");
    assert!(held(&two).contains(lane) && !stopping.is_finished(), "the first still waits for its endpoint");
    hangs.release(1);
    stopping.await.expect("no panic").expect("it stops");
    until("the other has all", async || held(&two) == LaneSet::ALL).await;
    let of = two.app.store.application(&hung.client_id).await.expect("reads").expect("there").application;
    let sent = two.app.store.events_after(of.tenant, of.no, 0, 2).await.expect("reads").pop().expect("an event");
    let (sent, attempts) = two.app.store.event(Asker::Operator, sent.event_id).await.expect("reads").expect("there");
    assert_eq!((sent.state, attempts.len()), (DeliveryState::Delivered, 1), "its answer counts: {attempts:?}");
    two.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_is_seen_for_as_long_as_it_answers_and_accepts_nothing_that_was_revoked_by_then() {
    let fleet = Fleet::new(2, |config| {
        config.limits.drain_timeout = Period(Duration::from_secs(300));
        config.limits.body_timeout = Period(Duration::from_secs(300));
    })
    .await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let signer = fleet.access(&one).institution("bank", 0, None).await.expect("an institution");
    until("it is known there", async || pull(&one, &signer, wall_ms()).await.code() == "000000").await;
    // The body of a request is being read when the node is told to stop.
    let draft = signer.draft("POST", "/v1/pay/order/query", b"{}").with("Expect", "100-continue");
    let (bytes, body) = (draft.bytes(), draft.body.len());
    let mut open = Connection::open(one.listen).await.expect("connects");
    open.write(&bytes[..bytes.len() - body]).await.expect("is sent");
    assert_eq!(open.read().await.expect("it asks for the body").status, 100);

    let stopping = tokio::spawn(one.stop());
    until("the other has all lanes", async || two.app.bell.lanes() == LaneSet::ALL).await;
    assert_eq!(two.app.store.nodes(0, 9).await.expect("reads").len(), 2, "it may still accept something");
    let path = format!("/operator/v1/applications/{}/secrets", signer.client_id);
    let access = fleet.access(&two);
    let secrets = access.call("GET", &path, None).await.expect("an answer").json();
    let secret = secrets["items"][0]["secret_id"].as_str().expect("a secret").to_owned();
    assert_eq!(access.call("DELETE", &format!("{path}/{secret}"), None).await.expect("an answer").status, 200);
    open.write(&bytes[bytes.len() - body..]).await.expect("is sent");
    let answer = open.read().await.expect("an answer");
    assert_eq!((answer.status, answer.code()), (401, "400002".to_owned()));
    stopping.await.expect("no panic").expect("it stops");
    assert_eq!(two.app.store.nodes(0, 9).await.expect("reads").len(), 1);
    two.stop().await.expect("it stops");
}
