//! Applications: made with a secret that is shown once, and changed.

use countersign::dispatch::egress::Egress;
use countersign_domain::time::UnixMillis;
use serde_json::json;

use super::listener::{House, START, all_pages};

#[tokio::test]
async fn an_application_is_made_for_every_kind_of_merchant() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    for merchant in ["i", "s", "m"] {
        let body = json!({"name": "Shop", "callback_url": "https://example.com/callback"});
        let made = house.post(&format!("/merchants/{merchant}/applications"), body).await.ok();
        let (client_id, secret_id) = (made.text_of("client_id"), made.text_of("secret_id"));
        assert!(client_id.starts_with("app_") && client_id.len() == 30, "{client_id}");
        assert_eq!(made.json()["callback_url"], "https://example.com/callback");
        assert_eq!(made.json()["created_at"], "2026-01-01T00:00:00.000Z");
        let secret = made.text_of("payment_api_secret");
        assert!(secret.starts_with("sk_") && secret.len() >= 3 + 64, "256 bits of chance");
        let known = house.app.known_application(&client_id).await.expect("a store").expect("it is known");
        assert_eq!(known.merchant.merchant_id, merchant);
        let key = known.callback_keys(START).signing.expect("a key");
        assert_eq!(key.secret_id, secret_id);
        let signed = countersign_protocol::signing::SigningKey::new(secret.as_bytes()).sign("1767225600000", "n", b"");
        assert!(key.key.verify("1767225600000", "n", b"", &signed), "the stored secret is the one that was shown");
    }
    house.post("/merchants/nobody/applications", json!({"name": "A"})).await.refused(404, "400404", "nobody");
    house.post("/merchants/m/applications", json!({})).await.refused(400, "400001", "name");
}

#[tokio::test]
async fn applications_are_listed_all_or_of_one_merchant() {
    let house = House::open().await;
    let first = house.application("m1", None).await;
    let second = house.application("m2", None).await;
    let ids = |items: Vec<serde_json::Value>| {
        items.iter().map(|i| i["client_id"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(all_pages(&house, "/applications", 1).await), [first.clone(), second.clone()]);
    assert_eq!(ids(all_pages(&house, "/applications?merchant_id=m2", 1).await), [second.as_str()]);
    let paused = async |more: &str| ids(all_pages(&house, &format!("/applications?callback_enabled={more}"), 1).await);
    assert_eq!(paused("false").await, [] as [&str; 0]);
    house.post(&format!("/applications/{second}/callbacks/pause"), json!({})).await.ok();
    assert_eq!(paused("false").await, [second.as_str()]);
    assert_eq!(paused("true").await, [first.as_str()]);
    assert_eq!(paused("false&merchant_id=m2").await, [second.as_str()]);
    assert_eq!(paused("false&merchant_id=m1").await, [] as [&str; 0]);
    assert_eq!(house.get(&format!("/applications/{first}")).await.ok().json()["merchant_id"], "m1");
    house.get("/applications/app_nobody").await.refused(404, "400404", "app_nobody");
    house.get("/applications?merchant_id=nobody").await.refused(404, "400404", "nobody");
}

#[tokio::test]
async fn each_field_of_an_application_can_be_changed_and_the_others_stay() {
    let house = House::open().await;
    let path = format!("/applications/{}", house.application("m", None).await);
    let mut expected = house.get(&path).await.ok().json();
    for (field, value) in [
        ("name", json!("Other")),
        ("enabled", json!(false)),
        ("callback_url", json!("https://example.com:8443/x?y=1")),
        ("callback_enabled", json!(false)),
        ("callback_encoding", json!("base64")),
        ("callback_vocabulary", json!("family")),
        ("timestamp_tolerance_ms", json!(10_000)),
        ("rate_limit_per_s", json!(0)),
        ("callback_rate_per_s", json!(10_000)),
        ("callback_rate_per_s", json!(0)),
        ("callback_concurrency", json!(1_000)),
        ("callback_schedule", json!(["1500ms", "2m", "7d"])),
    ] {
        let mut change = json!({});
        change[field] = value.clone();
        expected[field] = value;
        assert_eq!(house.patch(&path, change).await.ok().json(), expected, "{field}");
        assert_eq!(house.get(&path).await.ok().json(), expected, "{field}");
    }
    let cleared = house
        .patch(
            &path,
            json!({"callback_url": null, "timestamp_tolerance_ms": null, "rate_limit_per_s": null, "name": null,
                "callback_rate_per_s": null, "callback_concurrency": null, "callback_schedule": null}),
        )
        .await;
    let cleared = cleared.ok().json();
    for field in [
        "callback_url",
        "timestamp_tolerance_ms",
        "rate_limit_per_s",
        "callback_rate_per_s",
        "callback_concurrency",
        "callback_schedule",
    ] {
        assert!(cleared[field].is_null(), "{field}");
    }
    assert_eq!(cleared["name"], "Other");
    let line = house.audit().await.remove(0);
    assert_eq!(line["before"]["callback_schedule"], json!(["1500ms", "2m", "7d"]), "{line}");
    assert_eq!(
        (&line["after"]["callback_schedule"], &line["before"]["callback_rate_per_s"]),
        (&json!(null), &json!(0))
    );
}

#[tokio::test]
async fn a_change_is_seen_by_the_next_request_of_the_application() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let known = house.app.known_application(&client_id).await.expect("a store").expect("known");
    assert!(known.application.enabled);
    house.patch(&format!("/applications/{client_id}"), json!({"enabled": false})).await.ok();
    let known = house.app.known_application(&client_id).await.expect("a store").expect("known");
    assert!(!known.application.enabled);
}

#[tokio::test]
async fn a_field_out_of_its_range_is_refused_by_name_and_changes_nothing() {
    let house = House::open().await;
    let path = format!("/applications/{}", house.application("m", None).await);
    let before = house.get(&path).await.ok().json();
    for (field, value) in [
        ("name", json!("")),
        ("enabled", json!("yes")),
        ("callback_url", json!("http://example.com/")),
        ("callback_url", json!("https://user@example.com/")),
        ("callback_url", json!("https://example.com:81/")),
        ("callback_url", json!("https://127.0.0.1/")),
        ("callback_url", json!("https://169.254.169.254/latest")),
        ("callback_url", json!("/callback")),
        ("callback_encoding", json!("HEX")),
        ("callback_vocabulary", json!("own")),
        ("timestamp_tolerance_ms", json!(0)),
        ("timestamp_tolerance_ms", json!(30_001)),
        ("rate_limit_per_s", json!(-1)),
        ("callback_rate_per_s", json!(-1)),
        ("callback_rate_per_s", json!(10_001)),
        ("callback_rate_per_s", json!("5")),
        ("callback_concurrency", json!(0)),
        ("callback_concurrency", json!(1_001)),
        ("callback_concurrency", json!(1.5)),
        ("callback_schedule", json!([])),
        ("callback_schedule", json!("5s")),
        ("callback_schedule", json!(["5"])),
        ("callback_schedule", json!([5])),
        ("callback_schedule", json!(["0s"])),
        ("callback_schedule", json!(["8d"])),
        ("callback_schedule", json!(["5s\u{0}"])),
        ("callback_schedule", json!(vec!["5s"; 33])),
        ("callback_schedule", json!(["9".repeat(30_000)])),
    ] {
        let mut change = json!({});
        change[field] = value;
        let refused = house.patch(&path, change).await;
        refused.refused(400, "400001", field);
        assert!(refused.text.len() < 500, "one sentence: {}", refused.text);
    }
    assert_eq!(house.get(&path).await.ok().json(), before);
    house.patch("/applications/app_nobody", json!({"enabled": true})).await.refused(404, "400404", "app_nobody");
}

#[tokio::test]
async fn an_application_is_made_with_settings_of_its_own_or_not_at_all() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    let own = json!({"callback_rate_per_s": 5, "callback_concurrency": 2, "callback_schedule": ["5s", "1h"]});
    let mut ask = own.clone();
    ask["name"] = json!("A");
    let client_id = house.post("/merchants/m/applications", ask.clone()).await.ok().text_of("client_id");
    let shown = house.get(&format!("/applications/{client_id}")).await.ok().json();
    let lines = house.audit().await;
    for (field, value) in own.as_object().expect("an object") {
        assert_eq!((&shown[field], &lines[0]["after"][field]), (value, value), "{field}");
    }
    for (field, value) in [
        ("callback_rate_per_s", json!(10_001)),
        ("callback_concurrency", json!(0)),
        ("callback_schedule", json!(["5 s"])),
    ] {
        let mut bad = ask.clone();
        bad[field] = value;
        house.post("/merchants/m/applications", bad).await.refused(400, "400001", field);
    }
    assert_eq!(all_pages(&house, "/applications", 50).await.len(), 1);
    assert_eq!(house.audit().await, lines, "what was refused left nothing");
}

#[tokio::test]
async fn private_callback_urls_are_taken_only_where_the_deployment_allows_them() {
    let house = House::open_with(Egress { allow_private: true, allowed_ports: Vec::new() }).await;
    let client_id = house.application("m", Some("http://127.0.0.1:9/callback")).await;
    assert_eq!(
        house.get(&format!("/applications/{client_id}")).await.ok().json()["callback_url"],
        "http://127.0.0.1:9/callback"
    );
    let refused =
        house.patch(&format!("/applications/{client_id}"), json!({"callback_url": "http://169.254.169.254/"})).await;
    refused.refused(400, "400001", "callback_url");
}

#[tokio::test]
async fn a_hundred_changes_at_once_all_happen_one_after_the_other() {
    let house = std::sync::Arc::new(House::open().await);
    let path = format!("/applications/{}", house.application("m", None).await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..100 {
        let (house, path) = (house.clone(), path.clone());
        tasks.spawn(async move { said_again!(house.patch(&path, json!({"name": format!("n{n}")}))).status });
    }
    while let Some(status) = tasks.join_next().await {
        assert_eq!(status.expect("no panic"), 200);
    }
    let client_id = path.rsplit('/').next().expect("an id");
    let view = house.app.known_application(client_id).await.expect("a store").expect("known");
    assert_eq!(view.application.revision, 101);
    assert_eq!(house.app.clock.now(), UnixMillis(START.0));
}
