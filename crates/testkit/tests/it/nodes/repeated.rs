//! What takes a right away, called again on another node while the first call may still wait until every node knows.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_on_another_node_of_what_takes_a_right_away_is_answered_when_no_node_knows_that_right() {
    let fleet = Fleet::new(2, |_| {}).await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let access = fleet.access(&one);
    access.provision("POST", "/institutions", json!({"name": "bank", "merchant_id": "bank"})).await.expect("made");
    let signer = access.application("bank", None).await.expect("an application");
    let application = format!("/operator/v1/applications/{}", signer.client_id);
    let secrets = format!("{application}/secrets");
    assert_eq!(access.call("POST", &secrets, Some(json!({"overlap_s": 60}))).await.expect("an answer").status, 200);
    let made = access.call("GET", &secrets, None).await.expect("an answer").json();
    let [secret, old] =
        [0, 1].map(|no| format!("{secrets}/{}", made["items"][no]["secret_id"].as_str().expect("a secret")));
    let used = access.call("POST", &format!("{secret}/use-for-callbacks"), None).await.expect("an answer");
    assert_eq!(used.status, 200);
    let disabled = json!({"enabled": false});
    for (method, path, body, key) in [
        ("POST", &format!("{old}/retire"), None, Some("0")),
        ("DELETE", &secret, None, Some("1")),
        ("DELETE", &secret, None, None),
        ("POST", &secrets, Some(json!({"overlap_s": 0})), Some("2")),
        ("PATCH", &application, Some(disabled.clone()), Some("3")),
        ("PATCH", &"/operator/v1/merchants/bank".to_owned(), Some(disabled), Some("4")),
    ] {
        let ask = async |node: &Running| {
            let draft = fleet.access(node).draft(method, path, body.as_ref());
            let draft = key.map_or(draft.clone(), |key| draft.with("Idempotency-Key", key));
            let began = Instant::now();
            let answer = once(node.operator_listen, &draft.bytes()).await.expect("an answer");
            assert!(began.elapsed() >= FRESH, "{method} {path}: {} after {:?}", answer.status, began.elapsed());
            answer.status
        };
        let found = if key.is_some() { 200 } else { 404 };
        assert_eq!((ask(&one).await, ask(&two).await), (found, found), "{method} {path}");
    }
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}
