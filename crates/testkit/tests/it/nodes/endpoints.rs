//! What one node sets for an endpoint that another one delivers to.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_set_for_an_endpoint_on_one_node_counts_on_the_one_that_delivers_while_attempts_are_under_way() {
    let fleet = Fleet::new(2, |config| {
        config.dispatch_poll = Period(Duration::from_secs(3_600));
        config.dispatch_lease = Period(Duration::from_secs(10));
        config.callback_concurrency_per_application = 1;
        config.callback_deadline = Period(SOON);
    })
    .await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let held = |node: &Running| node.app.bell.lanes();
    until("the lanes are shared", async || held(&one).len() == 32 && held(&two).len() == 32).await;
    let receiver = Receiver::start().await.expect("a loopback port");
    receiver.answer_with(Reply::Held);
    let access = fleet.access(&one);
    let [_, signer] = one_in_each(&access, &one, &receiver.url(), [held(&one), held(&two)]).await;
    for biz_id in ["1", "2", "3"] {
        access.provision("POST", "/events", event(&signer, biz_id)).await.expect("an event");
    }
    receiver.wait_for(1, SOON).await.expect("one arrives");
    let path = format!("/applications/{}", signer.client_id);
    access.provision("PATCH", &path, json!({"callback_concurrency": 3})).await.expect("set");
    receiver.wait_for(3, SOON).await.expect("three at once, though none has ended");
    let callbacks = async |node: &Running| {
        let path = format!("/operator/v1{path}/callbacks");
        fleet.access(node).call("GET", &path, None).await.expect("an answer").json()
    };
    let (elsewhere, here) = (callbacks(&one).await, callbacks(&two).await);
    let told = |seen: &serde_json::Value| {
        ["breaker_known", "breaker", "attempts_at_once_max", "in_flight"].map(|name| seen[name].clone())
    };
    assert_eq!(told(&elsewhere), [json!(false), json!(null), json!(null), json!(null)]);
    assert_eq!(told(&here), [json!(true), json!("closed"), json!(3), json!(3)]);
    assert_eq!((&elsewhere["pending"], &here["pending"]), (&json!(3), &json!(3)), "what waits is known to both");
    receiver.release(3);
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}
