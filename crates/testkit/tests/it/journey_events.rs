//! `GET /v1/pay/events` and `GET /v1/time`, end to end: the endpoints events and time.

use countersign_testkit::wire::Draft;
use serde_json::{Value, json};

use crate::journey_rule_upgrade::{bank, call, good};

#[tokio::test]
async fn an_application_pulls_its_own_events_in_order_delivered_or_not() {
    let (world, signer) = bank().await;
    let other = world.access.application("bank", None).await.expect("an application");
    for n in 1..=3 {
        for client in [&signer.client_id, &other.client_id] {
            let event = json!({"client_id": client, "bizType": "TRANSFER_ADDRESS", "bizId": "b", "bizStatus": "SUCCESS", "data": {"merchantTradeNo": format!("t{n}")}});
            world.access.provision("POST", "/events", event).await.expect("an event");
        }
    }
    let first = good(&world, &signer, "GET", "/v1/pay/events?limit=2", &Value::Null).await;
    let events = first["events"].as_array().expect("events");
    assert_eq!(events.iter().map(|e| e["seq"].as_i64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(events[0]["client_id"], json!(signer.client_id));
    assert_eq!(events[0]["data"], r#"{"merchantTradeNo":"t1"}"#);
    assert_eq!(first["next"], 2);
    let rest = good(&world, &signer, "GET", "/v1/pay/events?after=2", &Value::Null).await;
    assert_eq!((rest["events"].as_array().map(Vec::len), &rest["next"]), (Some(1), &json!(3)));
    let end = good(&world, &signer, "GET", "/v1/pay/events?after=3", &Value::Null).await;
    assert_eq!((&end["events"], &end["next"]), (&json!([]), &json!(3)));
    for bad in ["limit=0", "limit=501", "after=-1", "after=x"] {
        assert_eq!(
            call(&world, &signer, "GET", &format!("/v1/pay/events?{bad}"), &Value::Null).await["code"],
            "400001",
            "{bad}"
        );
    }
}

#[tokio::test]
async fn the_time_is_told_to_anybody() {
    let (world, _) = bank().await;
    let draft = Draft { method: "GET".into(), target: "/v1/time".into(), headers: vec![], body: vec![] };
    let answer = world.send(&draft).await.expect("an answer").json();
    assert_eq!(answer["data"]["serverTime"], json!(world.clock.now().0));
}
