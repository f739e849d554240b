//! What a rotation leaves: who signs callbacks, what may be retired, and what the audit log says of it.

use serde_json::{Value, json};

use super::house::{DAY_MS, House};

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
