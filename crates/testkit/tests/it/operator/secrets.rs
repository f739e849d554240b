//! Payment API Secrets: rotated, listed without the secret, switched, revoked.

use std::time::Instant;

use countersign::app::uses;
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use serde_json::{Value, json};

use super::listener::{DAY_MS, House, START};

async fn secrets(house: &House, client_id: &str) -> Vec<Value> {
    let page = house.get(&format!("/applications/{client_id}/secrets")).await.ok().json();
    assert!(page["next"].is_null());
    page["items"].as_array().expect("items").clone()
}

/// The secret that signs callbacks at an instant, by the application's own reckoning.
async fn signing(house: &House, client_id: &str, now: UnixMillis) -> Option<String> {
    let known = house.app.known_application(client_id).await.expect("a store").expect("known");
    known.callback_keys(now).signing.map(|key| key.secret_id.clone())
}

#[tokio::test]
async fn rotation_makes_a_secret_and_the_ones_before_it_end_after_the_overlap() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let first = secrets(&house, &client_id).await[0].clone();
    assert_eq!(
        (&first["signs_callbacks"], &first["not_after"], &first["live"]),
        (&json!(true), &Value::Null, &json!(true))
    );
    let made = house.post(&path, json!({"overlap_s": 3_600})).await.ok();
    let secret = made.text_of("payment_api_secret");
    let all = secrets(&house, &client_id).await;
    assert_eq!(all.len(), 2, "newest first");
    assert_eq!(all[0]["secret_id"], made.json()["secret_id"]);
    assert_eq!(all[0]["last4"].as_str(), secret.get(secret.len() - 4..));
    assert_eq!(all[0]["fingerprint"], made.json()["fingerprint"]);
    assert_eq!(all[0]["fingerprint"].as_str().map(str::len), Some(16));
    assert_eq!((&all[0]["signs_callbacks"], &all[1]["signs_callbacks"]), (&json!(false), &json!(true)));
    assert_eq!((&all[0]["not_after"], &all[1]["not_after"]), (&Value::Null, &json!("2026-01-01T01:00:00.000Z")));
    house.app.clock.advance_ms(3_600_000);
    assert_eq!(secrets(&house, &client_id).await[1]["live"], false);
    let newest = made.text_of("secret_id");
    assert_eq!(
        signing(&house, &client_id, house.app.clock.now()).await,
        Some(newest),
        "the newest live one signs where the chosen one ended"
    );
}

#[tokio::test]
async fn without_a_word_the_overlap_is_a_day() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let rotated = house.send(house.request("POST", &format!("/applications/{client_id}/secrets"), None, &[])).await;
    rotated.ok();
    assert_eq!(secrets(&house, &client_id).await[1]["not_after"], "2026-01-02T00:00:00.000Z");
}

#[tokio::test]
async fn at_most_three_secrets_are_live() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    house.post(&path, json!({})).await.ok();
    house.post(&path, json!({"overlap_s": 2_592_000})).await.ok();
    house.post(&path, json!({"overlap_s": 60})).await.refused(409, "400803", "3 live");
    assert_eq!(secrets(&house, &client_id).await.len(), 3, "the refused one left no trace");
    house.post(&path, json!({"overlap_s": 0})).await.ok();
    let all = secrets(&house, &client_id).await;
    assert_eq!((all.len(), &all[0]["live"]), (1, &json!(true)), "an overlap of nothing revokes all others");
    house.app.clock.advance_ms(DAY_MS);
    house.post(&path, json!({})).await.ok();
}

#[tokio::test]
async fn rotation_never_lengthens_a_life() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    house.post(&path, json!({"overlap_s": 60})).await.ok();
    house.post(&path, json!({"overlap_s": 3_600})).await.ok();
    let all = secrets(&house, &client_id).await;
    assert_eq!(
        (&all[1]["not_after"], &all[2]["not_after"]),
        (&json!("2026-01-01T01:00:00.000Z"), &json!("2026-01-01T00:01:00.000Z"))
    );
}

#[tokio::test]
async fn an_overlap_out_of_its_range_is_refused() {
    let house = House::open().await;
    let path = format!("/applications/{}/secrets", house.application("m", None).await);
    for overlap in [json!(-1), json!(2_592_001), json!("60"), json!(1.5)] {
        house.post(&path, json!({"overlap_s": overlap})).await.refused(400, "400001", "overlap_s");
    }
    house.post("/applications/app_nobody/secrets", json!({})).await.refused(404, "400404", "app_nobody");
    house.get("/applications/app_nobody/secrets").await.refused(404, "400404", "app_nobody");
}

#[tokio::test]
async fn callbacks_are_switched_to_a_secret_that_lives() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let first = secrets(&house, &client_id).await[0]["secret_id"].as_str().expect("an id").to_owned();
    let second = house.post(&path, json!({})).await.ok().text_of("secret_id");
    assert_eq!(signing(&house, &client_id, START).await, Some(first.clone()));
    let switch = |id: &str| house.send(house.request("POST", &format!("{path}/{id}/use-for-callbacks"), None, &[]));
    assert_eq!(switch(&second).await.ok().json()["signs_callbacks"], true);
    assert_eq!(signing(&house, &client_id, START).await, Some(second.clone()));
    let chosen: Vec<bool> = secrets(&house, &client_id).await.iter().map(|s| s["signs_callbacks"] == true).collect();
    assert_eq!(chosen, [true, false]);
    switch(&second).await.ok();
    house.app.clock.advance_ms(DAY_MS);
    switch(&first).await.refused(404, "400404", "ended");
    switch("sec_nobody").await.refused(404, "400404", "sec_nobody");
}

#[tokio::test]
async fn a_revoked_secret_is_gone_at_once_and_the_newest_live_one_signs() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let first = secrets(&house, &client_id).await[0]["secret_id"].as_str().expect("an id").to_owned();
    let second = house.post(&path, json!({})).await.ok().text_of("secret_id");
    let revoked = house.delete(&format!("{path}/{first}")).await.ok().json();
    assert_eq!((&revoked["secret_id"], &revoked["live"]), (&json!(first), &json!(false)));
    assert_eq!(revoked["revoked_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!((&revoked["live_secrets"], &revoked["live_secrets_end_at"]), (&json!(1), &json!(null)));
    assert_eq!(secrets(&house, &client_id).await.len(), 1);
    assert_eq!(signing(&house, &client_id, START).await, Some(second.clone()));
    house.delete(&format!("{path}/{first}")).await.refused(404, "400404", &first);
    let last = house.delete(&format!("{path}/{second}")).await.ok().json();
    assert_eq!((&last["live_secrets"], &last["live_secrets_end_at"]), (&json!(0), &json!(null)));
    assert_eq!(signing(&house, &client_id, START).await, None, "the last one can be revoked too: deliveries wait");
    house.post(&path, json!({})).await.ok();
    assert!(signing(&house, &client_id, START).await.is_some());
}

#[tokio::test]
async fn whoever_revokes_the_one_that_was_to_stay_is_told_when_the_last_one_ends() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let rotated = house.post(&path, json!({})).await.ok();
    let revoked = house.delete(&format!("{path}/{}", rotated.text_of("secret_id"))).await.ok().json();
    assert_eq!(revoked["live_secrets"], 1);
    assert_eq!(revoked["live_secrets_end_at"], rotated.json()["old_secrets_end_at"]);
    assert!(revoked["live_secrets_end_at"].is_string(), "{revoked}");
}

#[tokio::test]
async fn a_secret_of_another_application_is_not_found() {
    let house = House::open().await;
    let (mine, other) = (house.application("m1", None).await, house.application("m2", None).await);
    let foreign = secrets(&house, &other).await[0]["secret_id"].as_str().expect("an id").to_owned();
    house.delete(&format!("/applications/{mine}/secrets/{foreign}")).await.refused(404, "400404", &foreign);
    assert_eq!(secrets(&house, &other).await.len(), 1);
}

/// So many requests are signed with a secret now.
fn used(house: &House, secret_id: &str, count: usize) {
    let tally = house.app.uses.tally(secret_id);
    for _ in 0..count {
        tally.one_more(house.app.clock.now());
    }
}

#[tokio::test]
async fn a_list_of_secrets_says_how_each_is_used_and_whether_it_can_go() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let first = secrets(&house, &client_id).await[0].clone();
    assert_eq!(
        (&first["last_used_at"], &first["uses_last_hour"], &first["safe_to_retire"]),
        (&Value::Null, &json!(0), &json!(false)),
        "the only one can never go"
    );
    let old = first["secret_id"].as_str().expect("an id").to_owned();
    used(&house, &old, 3);
    let rotated = house.post(&path, json!({"overlap_s": 86_400})).await.ok();
    assert_eq!(rotated.json()["old_secrets_end_at"], "2026-01-02T00:00:00.000Z");
    let new = rotated.text_of("secret_id");
    house.post(&format!("{path}/{new}/use-for-callbacks"), json!({})).await.ok();
    let seen = || async {
        let all = secrets(&house, &client_id).await;
        all.iter()
            .map(|s| (s["uses_last_hour"].as_i64(), s["signs_callbacks"] == true, s["safe_to_retire"] == true))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen().await, [(Some(0), true, false), (Some(3), false, false)]);
    uses::note(&house.app).await.expect("is noted");
    assert_eq!(seen().await, [(Some(0), true, false), (Some(3), false, false)], "what is noted is not counted twice");
    house.app.clock.advance_ms(3_599_999);
    used(&house, &new, 1);
    assert_eq!(seen().await, [(Some(1), true, false), (Some(3), false, false)]);
    house.app.clock.advance_ms(60_001);
    assert_eq!(seen().await, [(Some(1), true, false), (Some(0), false, true)], "an hour without a use");
    let all = secrets(&house, &client_id).await;
    assert_eq!(all[1]["last_used_at"], "2026-01-01T00:00:00.000Z");
    house.app.clock.advance_ms(DAY_MS);
    assert_eq!(seen().await[1], (Some(0), false, true), "what has ended can go");
}

#[tokio::test]
async fn a_secret_is_retired_only_when_nobody_would_notice_and_the_refusal_says_why() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    let first = secrets(&house, &client_id).await[0]["secret_id"].as_str().expect("an id").to_owned();
    let retire = |id: &str| house.send(house.request("POST", &format!("{path}/{id}/retire"), None, &[]));
    retire(&first).await.refused(409, "400805", "only live secret");
    let second = house.post(&path, json!({})).await.ok().text_of("secret_id");
    retire(&first).await.refused(409, "400805", "use-for-callbacks");
    house.post(&format!("{path}/{second}/use-for-callbacks"), json!({})).await.ok();
    used(&house, &first, 1);
    retire(&first).await.refused(409, "400805", "2026-01-01T00:00:00.000Z");
    assert_eq!(secrets(&house, &client_id).await.len(), 2, "a refusal changes nothing");
    house.app.clock.advance_ms(3_600_000 + 60_000);
    let retired = retire(&first).await.ok().json();
    assert_eq!((&retired["live"], &retired["revoked_at"]), (&json!(false), &json!("2026-01-01T01:01:00.000Z")));
    assert_eq!(house.audit().await[0]["action"], "secret.retire");
    assert_eq!(secrets(&house, &client_id).await.len(), 1);
    retire(&first).await.refused(404, "400404", &first);
    retire("sec_nobody").await.refused(404, "400404", "sec_nobody");
    // DELETE always acts.
    used(&house, &second, 1);
    house.delete(&format!("{path}/{second}")).await.ok();
}

#[tokio::test]
async fn uses_that_the_store_did_not_take_are_noted_later() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let id = secrets(&house, &client_id).await[0]["secret_id"].as_str().expect("an id").to_owned();
    used(&house, &id, 5);
    uses::note(&house.app).await.expect("is noted");
    used(&house, &id, 2);
    let noted = || async {
        let view = house.app.store.application(&client_id).await.expect("reads").expect("is there");
        house.app.store.secret_uses(view.application.no, 0).await.expect("reads")
    };
    assert_eq!(noted().await, [(id.clone(), 5)]);
    house.app.clock.advance_ms(60_000);
    uses::note(&house.app).await.expect("is noted");
    uses::note(&house.app).await.expect("nothing is left to note");
    assert_eq!(noted().await, [(id, 7)]);
    house.app.clock.advance_ms(92 * 60_000);
    uses::note(&house.app).await.expect("is noted");
    used(&house, "sec_nobody", 1);
    uses::note(&house.app).await.expect("one that is not there is passed over");
    assert_eq!(noted().await, [], "old minutes are forgotten");
}

#[tokio::test]
async fn what_ended_long_ago_leaves_the_list_with_the_next_rotation() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let path = format!("/applications/{client_id}/secrets");
    for _ in 0..40 {
        house.post(&path, json!({"overlap_s": 60})).await.ok();
        house.app.clock.advance_ms(DAY_MS);
        house.app.settled.believe(Instant::now(), house.app.clock.now());
    }
    let all = secrets(&house, &client_id).await;
    assert_eq!(all.len(), 1 + 1 + 30, "the live one, the one before it, and what had ended within 30 days");
    assert_eq!((&all[0]["live"], &all[0]["signs_callbacks"]), (&json!(true), &json!(true)));
    assert!(all[1..].iter().all(|s| s["live"] == false && s["safe_to_retire"] == true));
}
