//! What a rotation leaves: who signs callbacks, what may be retired, and what the audit log says of it.

use countersign_store::{Batch, Store as _, Write};
use serde_json::{Value, json};

use super::listener::{DAY_MS, House};

const HOUR_MS: i64 = 3_600_000;

async fn secrets(house: &House, path: &str) -> Vec<Value> {
    house.get(path).await.ok().json()["items"].as_array().expect("items").clone()
}

async fn signing(house: &House, client_id: &str) -> Option<String> {
    let known = house.app.known_application(client_id).await.expect("a store").expect("known");
    known.callback_keys(house.app.clock.now()).signing.map(|key| key.secret_id.clone())
}

/// An application with its path and the id of its first secret.
async fn application(house: &House) -> (String, String, String) {
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let first = secrets(house, &path).await[0]["secret_id"].as_str().expect("an id").to_owned();
    (client_id, path, first)
}

async fn rotate(house: &House, path: &str) -> String {
    house.post(path, json!({"overlap_s": 86_400})).await.ok().text_of("secret_id")
}

#[tokio::test]
async fn the_new_secret_of_a_rotation_is_not_retired_while_every_other_one_is_about_to_end() {
    let house = House::open().await;
    let (_, path, _) = application(&house).await;
    house.app.clock.advance_ms(2 * HOUR_MS);
    let new = rotate(&house, &path).await;
    house.app.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(secrets(&house, &path).await[0]["safe_to_retire"], json!(false));
    house.post(&format!("{path}/{new}/retire"), json!({})).await.refused(409, "400805", "2026-01-02T02:00:00.000Z");
    let newest = rotate(&house, &path).await;
    assert_eq!(secrets(&house, &path).await[1]["safe_to_retire"], json!(true), "now another one stays");
    house.post(&format!("{path}/{new}/retire"), json!({})).await.ok();
    house.post(&format!("{path}/{newest}/retire"), json!({})).await.refused(409, "400805", "ends before");
}

#[tokio::test]
async fn a_rotation_never_changes_which_secret_signs_callbacks() {
    let house = House::open().await;
    let (client_id, path, first) = application(&house).await;
    let second = rotate(&house, &path).await;
    assert_eq!(signing(&house, &client_id).await, Some(first), "the one that was chosen");
    house.app.clock.advance_ms(DAY_MS);
    assert_eq!(signing(&house, &client_id).await, Some(second.clone()), "the chosen one has ended");
    let third = rotate(&house, &path).await;
    assert_eq!(signing(&house, &client_id).await, Some(second.clone()), "nobody asked for another");
    house.delete(&format!("{path}/{second}")).await.ok();
    assert_eq!(signing(&house, &client_id).await, Some(third.clone()));
    rotate(&house, &path).await;
    assert_eq!(signing(&house, &client_id).await, Some(third));
}

#[tokio::test]
async fn what_is_not_counted_for_an_hour_yet_is_not_taken_for_unused() {
    let house = House::open().await;
    let (_, path, old) = application(&house).await;
    let new = rotate(&house, &path).await;
    house.post(&format!("{path}/{new}/use-for-callbacks"), json!({})).await.ok();
    let retire = || house.send(house.request("POST", &format!("{path}/{old}/retire"), None, &[]));
    house.app.clock.advance_ms(HOUR_MS);
    assert_eq!(secrets(&house, &path).await[1]["safe_to_retire"], json!(true));
    // As after an upgrade from a program that did not count.
    let since = house.app.clock.now().0 - HOUR_MS + 1;
    let setting = Write::PutSetting { name: "uses_counted_since_ms".to_owned(), value: since.to_string() };
    house.app.store.commit(Batch(vec![setting])).await.expect("is written");
    assert_eq!(secrets(&house, &path).await[1]["safe_to_retire"], json!(false));
    retire().await.refused(409, "400805", "have been counted since 2026-01-01T00:00:00.001Z");
    house.app.clock.advance_ms(1);
    retire().await.ok();
}

#[tokio::test]
async fn a_secret_that_follows_one_that_is_live_is_not_taken_for_unused_within_its_first_hour() {
    let house = House::open().await;
    let (_, path, old) = application(&house).await;
    let second = rotate(&house, &path).await;
    rotate(&house, &path).await;
    house.app.clock.advance_ms(HOUR_MS - 1);
    let safe = |all: Vec<Value>| all.iter().map(|s| s["safe_to_retire"] == true).collect::<Vec<_>>();
    assert_eq!(safe(secrets(&house, &path).await), [false, false, false], "the newest ends last, the oldest signs");
    house.post(&format!("{path}/{second}/retire"), json!({})).await.refused(409, "400805", "less than an hour ago");
    // The oldest one follows nobody, and whoever had it has had another since.
    house.post(&format!("{path}/{second}/use-for-callbacks"), json!({})).await.ok();
    house.post(&format!("{path}/{old}/retire"), json!({})).await.ok();
    house.app.clock.advance_ms(10);
    let newest = secrets(&house, &path).await[0]["secret_id"].as_str().expect("an id").to_owned();
    house.post(&format!("{path}/{newest}/use-for-callbacks"), json!({})).await.ok();
    house.post(&format!("{path}/{second}/retire"), json!({})).await.ok();
}

#[tokio::test]
async fn the_audit_log_says_which_secret_lost_the_callbacks_and_which_got_them() {
    let house = House::open().await;
    let (_, path, old) = application(&house).await;
    let new = rotate(&house, &path).await;
    house.post(&format!("{path}/{new}/use-for-callbacks"), json!({})).await.ok();
    let line = house.audit().await[0].clone();
    let signers = |side: &str| {
        let all = line[side].as_array().expect("secrets");
        all.iter().map(|s| (s["secret_id"].clone(), s["signs_callbacks"] == true)).collect::<Vec<_>>()
    };
    assert_eq!(signers("before"), [(json!(new), false), (json!(old), true)]);
    assert_eq!(signers("after"), [(json!(new), true), (json!(old), false)]);
    house.delete(&format!("{path}/{new}")).await.ok();
    let after = house.audit().await[0]["after"].clone();
    let of_old = after.as_array().expect("secrets").iter().find(|s| s["secret_id"] == json!(old)).cloned();
    assert_eq!(of_old.expect("who signs from now on is told")["signs_callbacks"], json!(true));
}

#[tokio::test]
async fn the_audit_log_tells_the_revocation_of_a_token_from_its_repetition() {
    let house = House::open().await;
    let made = house.post("/tokens", json!({"name": "till", "role": "viewer"})).await.ok();
    let path = format!("/tokens/{}", made.text_of("token_id"));
    let revoked = |line: &Value, side: &str| line[side]["revoked_at"].clone();
    house.delete(&path).await.ok();
    let line = house.audit().await[0].clone();
    assert_eq!(line["action"], "token.revoke");
    assert_eq!((line["before"]["name"].clone(), revoked(&line, "before")), (json!("till"), Value::Null));
    house.app.clock.advance_ms(1_000);
    house.delete(&path).await.ok();
    let line = house.audit().await[0].clone();
    assert_eq!(revoked(&line, "before"), revoked(&line, "after"));
    assert_eq!(revoked(&line, "before"), "2026-01-01T00:00:00.000Z");
}
