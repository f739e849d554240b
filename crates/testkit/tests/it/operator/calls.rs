//! Write calls under an `Idempotency-Key`, and what the audit log keeps of every change.

use std::sync::Arc;

use countersign_store::contract::Role;
use countersign_store::testing::Damage;
use serde_json::{Value, json};

use super::listener::{DAY_MS, House, request_by};

#[tokio::test]
async fn the_same_call_again_gives_the_first_answer_with_its_secret_null() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    let body = r#"{"name":"A"}"#;
    let first = house.post_keyed("k", "/merchants/m/applications", body).await.ok();
    let mut expected = first.json();
    assert!(expected["payment_api_secret"].is_string());
    expected["payment_api_secret"] = Value::Null;
    for _ in 0..2 {
        assert_eq!(house.post_keyed("k", "/merchants/m/applications", body).await.ok().json(), expected);
    }
    let rotation = format!("/applications/{}/secrets", first.text_of("client_id"));
    let made = house.post_keyed("r", &rotation, "{}").await.ok();
    let again = house.post_keyed("r", &rotation, "{}").await.ok().json();
    assert_eq!((again["payment_api_secret"].is_null(), &again["secret_id"]), (true, &made.json()["secret_id"]));
    let page = house.get("/applications").await.ok().json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "it was made once");
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused_and_changes_nothing() {
    let house = House::open().await;
    house.post_keyed("k", "/merchants", r#"{"name":"M","merchant_id":"m1"}"#).await.ok();
    for body in [r#"{"name":"M","merchant_id":"m2"}"#, r#"{"name":"M","merchant_id":"m1"} "#, "not even JSON"] {
        house.post_keyed("k", "/merchants", body).await.refused(409, "400804", "Idempotency-Key");
    }
    house.get("/merchants/m2").await.refused(404, "400404", "m2");
}

#[tokio::test]
async fn a_key_belongs_to_its_token_and_its_route() {
    let house = House::open().await;
    for id in ["m1", "m2"] {
        house.post("/merchants", json!({"name": "M", "merchant_id": id})).await.ok();
    }
    let body = r#"{"name":"A"}"#;
    let mut made = vec![
        house.post_keyed("k", "/merchants/m1/applications", body).await.ok().text_of("client_id"),
        house.post_keyed("k", "/merchants/m2/applications", body).await.ok().text_of("client_id"),
    ];
    let spelt_otherwise = house.post_keyed("k", "/merchants/%6d1/applications", body).await.ok();
    assert_eq!(spelt_otherwise.text_of("client_id"), made[0], "%6d is m");
    let other = house.token(Role::Security, None).await;
    let request = request_by(&other, "POST", "/merchants/m1/applications", Some(body), &[("idempotency-key", "k")]);
    made.push(house.send(request).await.ok().text_of("client_id"));
    house.post_keyed("k", "/institutions", body).await.ok();
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len(), 3);
}

#[tokio::test]
async fn a_key_is_remembered_for_a_day_and_then_free() {
    let house = House::open().await;
    // Not at the edge of a day.
    house.app.clock.advance_ms(DAY_MS / 3);
    let call = || house.post_keyed("k", "/merchants", r#"{"name":"M"}"#);
    let first = call().await.ok().text_of("merchant_id");
    house.app.clock.advance_ms(DAY_MS - 1);
    assert_eq!(call().await.ok().text_of("merchant_id"), first);
    house.app.clock.advance_ms(1);
    let second = call().await.ok().text_of("merchant_id");
    assert_ne!(second, first);
    assert_eq!(call().await.ok().text_of("merchant_id"), second, "and then it is remembered again");
}

#[tokio::test]
async fn a_refused_call_does_not_use_its_key_up() {
    let house = House::open().await;
    house.post_keyed("k", "/merchants/m/applications", r#"{"name":"A"}"#).await.refused(404, "400404", "m");
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    house.post_keyed("k", "/merchants/m/applications", r#"{"name":"A"}"#).await.ok();
}

#[tokio::test]
async fn fifty_calls_at_once_under_one_key_have_one_effect() {
    let house = Arc::new(House::open().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let house = house.clone();
        tasks.spawn(async move {
            said_again!(house.post_keyed("k", "/merchants", r#"{"name":"M"}"#)).ok().text_of("merchant_id")
        });
    }
    let ids = tasks.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(house.get("/merchants").await.ok().json()["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_key_that_is_malformed_is_refused_by_name() {
    let house = House::open().await;
    for key in ["", "a b", &"k".repeat(256)] {
        house.post_keyed(key, "/merchants", r#"{"name":"M"}"#).await.refused(400, "400001", "Idempotency-Key");
    }
    let twice = house.request(
        "POST",
        "/merchants",
        Some(r#"{"name":"M"}"#),
        &[("idempotency-key", "a"), ("idempotency-key", "a")],
    );
    house.send(twice).await.refused(400, "400001", "Idempotency-Key");
    house.post_keyed(&"k".repeat(255), "/merchants", r#"{"name":"M"}"#).await.ok();
}

#[tokio::test]
async fn every_change_is_in_the_audit_log_with_who_when_and_from_where_and_no_secret_is() {
    let house = House::open().await;
    let mut shown = Vec::new();
    let mut expected = Vec::new();
    let mut did = |answer: &super::listener::Answer, action: &'static str| {
        expected.push((answer.headers["x-service-request-id"].clone(), action));
        house.app.clock.advance_ms(1);
        for name in ["payment_api_secret", "token"] {
            shown.extend(answer.json()[name].as_str().map(str::to_owned));
        }
    };
    did(&house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok(), "institution.create");
    did(
        &house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok(),
        "sub_account.create",
    );
    did(&house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok(), "merchant.create");
    let made = house.post("/merchants/m/applications", json!({"name": "A"})).await.ok();
    did(&made, "application.create");
    let path = format!("/applications/{}", made.text_of("client_id"));
    did(&house.patch(&path, json!({"enabled": false})).await.ok(), "application.update");
    let rotated = house.post(&format!("{path}/secrets"), json!({})).await.ok();
    did(&rotated, "secret.rotate");
    let second = format!("{path}/secrets/{}", rotated.text_of("secret_id"));
    did(&house.post(&format!("{second}/use-for-callbacks"), json!({})).await.ok(), "secret.use_for_callbacks");
    did(&house.delete(&second).await.ok(), "secret.revoke");
    let order = json!({"sellCurrency": "A1", "buyCurrency": "B1", "sellAmount": "1", "buyAmount": "1", "rate": 1, "order_id": "5"});
    did(&house.post("/merchants/m/convert-orders", order).await.ok(), "convert_order.create");
    did(&house.patch("/convert-orders/5", json!({"status": 3})).await.ok(), "convert_order.move");
    let event = json!({"client_id": made.text_of("client_id"), "bizType": "T", "bizId": "1", "bizStatus": "S", "data": {"private": "matter"}});
    did(&house.post("/events", event).await.ok(), "event.emit");
    let token = house.post("/tokens", json!({"name": "t", "role": "viewer"})).await.ok();
    did(&token, "token.create");
    did(&house.delete(&format!("/tokens/{}", token.text_of("token_id"))).await.ok(), "token.revoke");

    let lines = house.audit().await;
    let found: Vec<(String, &str)> = lines
        .iter()
        .rev()
        .map(|l| (l["request_id"].as_str().unwrap_or("").to_owned(), l["action"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(found, expected);
    for (ms, line) in lines.iter().rev().enumerate() {
        assert!(line["actor"].as_str().is_some_and(|a| a.starts_with("token:tok_")), "{line}");
        let at = format!("2026-01-01T00:00:00.{ms:03}Z");
        assert_eq!((&line["source"], &line["at"]), (&json!("192.0.2.7"), &json!(at)));
        assert!(!line["after"].is_null(), "{line}");
    }
    let update = lines.iter().find(|l| l["action"] == "application.update").expect("a line");
    assert_eq!((&update["before"]["enabled"], &update["after"]["enabled"]), (&json!(true), &json!(false)));
    let of = |action: &str| lines.iter().find(|l| l["action"] == action).expect("a line");
    let made_by = &of("application.create")["after"];
    let secrets = house.get(&format!("{path}/secrets")).await.ok().json();
    let first = secrets["items"].as_array().expect("secrets").last().expect("the first").clone();
    assert_eq!(made_by["merchant_id"], "m");
    assert_eq!((&made_by["secret_id"], &made_by["fingerprint"]), (&first["secret_id"], &first["fingerprint"]));
    let sub_account = of("sub_account.create");
    assert_eq!((&sub_account["merchant_id"], &sub_account["after"]["institution_id"]), (&json!("i"), &json!("i")));
    let owner = house.get("/merchants/m").await.ok().json();
    let converted = &of("convert_order.create")["after"];
    assert_eq!((&converted["merchant_id"], &converted["user_id"]), (&json!("m"), &owner["user_id"]));
    assert_eq!(converted["created_at"], "2026-01-01T00:00:00.008Z");
    assert_eq!((&of("event.emit")["merchant_id"], &of("token.create")["merchant_id"]), (&json!("m"), &Value::Null));
    let text = json!(lines).to_string();
    assert_eq!(shown.len(), 3);
    assert!(shown.iter().all(|secret| !text.contains(secret.as_str())) && !text.contains("matter"));
}

#[tokio::test]
async fn no_answer_shows_a_secret_twice() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    let made = house.post_keyed("k", "/merchants/m/applications", r#"{"name":"A"}"#).await.ok();
    let secret = made.text_of("payment_api_secret");
    assert_eq!(made.headers["cache-control"], "no-store");
    let client_id = made.text_of("client_id");
    for path in [
        "/applications",
        "/audit",
        "/merchants",
        &format!("/applications/{client_id}"),
        &format!("/applications/{client_id}/secrets"),
    ] {
        assert!(!house.get(path).await.ok().text.contains(&secret), "{path}");
    }
    assert!(!house.post_keyed("k", "/merchants/m/applications", r#"{"name":"A"}"#).await.ok().text.contains(&secret));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_back_is_explained_by_what_the_store_said() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    let made = house.post("/merchants/m/applications", json!({"name": "A"})).await.ok();
    let client_id = made.text_of("client_id");
    house.damage(&Damage::Application(client_id.clone())).await;
    let answer = house.get(&format!("/applications/{client_id}")).await;
    answer.refused(500, "300001", "quote the request id");
    assert!(!answer.text.contains("table"), "{}", answer.text);
    let explained =
        house.get(&format!("/requests/{}", answer.json()["request_id"].as_str().expect("an id"))).await.ok();
    let line = &explained.json()["line"];
    assert_eq!(line["reason"], "store_fault");
    assert!(line["error_message"].as_str().is_some_and(|cause| cause.contains("table application")), "{line}");
}
