//! Callbacks of one application, paused, resumed and tried out by hand.

use countersign_store::contract::Role;
use serde_json::{Value, json};

use super::listener::{House, request_by};

/// The lines about the switch, newest first: who, what, before, after.
async fn turns(house: &House) -> Vec<Value> {
    let is_turn = |line: &Value| line["action"].as_str().is_some_and(|action| action.ends_with("_callbacks"));
    house.audit().await.into_iter().filter(is_turn).collect()
}

#[tokio::test]
async fn the_switch_holds_and_releases_and_its_reason_is_in_the_audit_log() {
    let house = House::open().await;
    let client_id = house.application("m", Some("https://example.com/callback")).await;
    let path = |what: &str| format!("/applications/{client_id}/callbacks/{what}");
    let emit = async || {
        let event = json!({"client_id": client_id, "bizType": "T", "bizId": "1", "bizStatus": "S", "data": {}});
        house.post("/events", event).await.ok().text_of("event_id")
    };
    let state = async |id: &str| house.get(&format!("/events/{id}")).await.ok().text_of("state");
    let before = emit().await;
    // An operator may: it is the daily business.
    let token = house.token(Role::Operator, None).await;
    let body = r#"{"reason":"their receiver is being mended"}"#;
    let paused = house.send(request_by(&token, "POST", &path("pause"), Some(body), &[])).await.ok().json();
    assert_eq!(paused["callback_enabled"], false);
    let meanwhile = emit().await;
    assert_eq!((state(&before).await, state(&meanwhile).await), ("held".to_owned(), "held".to_owned()));

    let resumed = house.post(&path("resume"), json!({})).await.ok().json();
    assert_eq!(resumed["callback_enabled"], true);
    assert_eq!((state(&before).await, state(&meanwhile).await), ("pending".to_owned(), "pending".to_owned()));
    // It is the one switch that there is.
    house.patch(&format!("/applications/{client_id}"), json!({"callback_enabled": false})).await.ok();
    assert_eq!(house.post(&path("resume"), json!({"reason": null})).await.ok().json()["callback_enabled"], true);

    let lines = turns(&house).await;
    let told: Vec<(&Value, &Value, &Value)> =
        lines.iter().rev().map(|line| (&line["action"], &line["before"], &line["after"])).collect();
    let (on, off) = (json!({"callback_enabled": true}), json!({"callback_enabled": false}));
    let mended = json!({"callback_enabled": false, "why": "their receiver is being mended"});
    let (pauses, resumes) = (json!("application.pause_callbacks"), json!("application.resume_callbacks"));
    let again = json!({"callback_enabled": true, "why": null});
    assert_eq!(told, [(&pauses, &on, &mended), (&resumes, &off, &again), (&resumes, &off, &again)]);
    assert!(lines.iter().all(|line| line["subject"] == client_id.as_str()), "{lines:?}");
}

#[tokio::test]
async fn what_cannot_be_switched_or_tried_is_refused_by_name() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    for what in ["pause", "resume", "test"] {
        let path = format!("/applications/app_nobody/callbacks/{what}");
        house.post(&path, json!({})).await.refused(404, "400404", "app_nobody");
    }
    let path = |what: &str| format!("/applications/{client_id}/callbacks/{what}");
    for reason in [json!(""), json!("x".repeat(201)), json!("a\nb"), json!(7)] {
        house.post(&path("pause"), json!({ "reason": reason })).await.refused(400, "400001", "reason");
    }
    house.post(&path("test"), json!({})).await.refused(409, "400204", "callback_url");
    assert!(turns(&house).await.is_empty(), "a refusal changes nothing");
}

#[tokio::test]
async fn a_test_answers_what_became_of_it_and_under_a_key_it_is_sent_once() {
    let house = House::open().await;
    let client_id = house.application("m", Some("https://localhost/callback")).await;
    let path = format!("/applications/{client_id}/callbacks/test");
    let first = house.post_keyed("k", &path, "{}").await.ok().json();
    assert_eq!((&first["outcome"], &first["http_status"]), (&json!("refused_address"), &Value::Null));
    assert!(first["detail"].as_str().is_some_and(|detail| detail.contains("forbidden range")), "{first}");
    assert!(first["duration_ms"].is_i64() && first["address"].is_null(), "{first}");
    assert_eq!(first["headers"]["x-service-signature"], "(withheld)");
    assert!(first["headers"]["x-service-event-id"].as_str().is_some_and(|id| id.starts_with("evt_")), "{first}");
    let body: Value = serde_json::from_str(first["body"].as_str().expect("a text")).expect("JSON");
    assert_eq!((&body["bizType"], &body["client_id"]), (&json!("CALLBACK_TEST"), &json!(client_id)));
    let sent = async || {
        let lines = house.audit().await;
        lines.iter().filter(|line| line["action"] == "application.test_callback").count()
    };
    assert_eq!(sent().await, 1);
    assert_eq!(house.post_keyed("k", &path, "{}").await.ok().json(), first);
    assert_eq!(sent().await, 1, "a repeat sends nothing");
    assert_ne!(house.post_keyed("l", &path, "{}").await.ok().json()["headers"], first["headers"]);
    assert_eq!(sent().await, 2);
    assert_eq!(house.get("/events").await.ok().json()["items"], json!([]));
}
