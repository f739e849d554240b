//! What an operator sees of an endpoint when its merchant calls, and of what has died.

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_store::Store as _;
use countersign_store::contract::AttemptRow;
use serde_json::{Value, json};

use super::listener::House;

const URL: &str = "https://shop.example/callbacks";

async fn emit(house: &House, client_id: &str) -> String {
    let what = json!({"client_id": client_id, "bizType": "T", "bizId": "A", "bizStatus": "S", "data": {}});
    house.post("/events", what).await.ok().text_of("event_id")
}

/// An event whose only attempt ended so.
async fn dies(house: &House, client_id: &str, outcome: Outcome, http_status: Option<u16>) -> String {
    let event_id = emit(house, client_id).await;
    let detail = format!("came to {}", outcome.name());
    house.record(&event_id, DeliveryState::Dead, None, |row| AttemptRow { outcome, http_status, detail, ..row }).await;
    event_id
}

async fn callbacks(house: &House, client_id: &str) -> Value {
    house.get(&format!("/applications/{client_id}/callbacks")).await.ok().json()
}

/// State, and how many are pending, held and dead.
fn told(seen: &Value) -> (&str, [i64; 3]) {
    let count = |name: &str| seen[name].as_i64().expect("a count");
    (seen["state"].as_str().expect("a state"), [count("pending"), count("held"), count("dead")])
}

/// What the node that delivers tells of the endpoint.
fn of_node(seen: &Value) -> [Value; 5] {
    ["breaker_known", "breaker", "attempts_at_once", "attempts_at_once_max", "in_flight"].map(|name| seen[name].clone())
}

/// That of a node on which nothing was tried yet. Where nodes share a store, this one has no lane: its dispatcher does not run.
fn known_here(house: &House, most: i64) -> [Value; 5] {
    if house.app.store.is_shared() {
        return [json!(false), json!(null), json!(null), json!(null), json!(null)];
    }
    [json!(true), json!("closed"), json!(most), json!(most), json!(0)]
}

#[tokio::test]
async fn an_endpoint_is_told_with_what_waits_and_what_keeps_it() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let fresh = callbacks(&house, &client_id).await;
    assert_eq!(told(&fresh), ("enabled", [0, 0, 0]));
    assert!(fresh["oldest_open_at"].is_null() && fresh["next_attempt_at"].is_null(), "{fresh}");
    emit(&house, &client_id).await;
    house.app.clock.advance_ms(5_000);
    emit(&house, &client_id).await;
    dies(&house, &client_id, Outcome::Timeout, None).await;
    let seen = callbacks(&house, &client_id).await;
    assert_eq!(told(&seen), ("enabled", [2, 0, 1]));
    assert_eq!(seen["oldest_open_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(seen["next_attempt_at"], "2026-01-01T00:00:05.000Z", "it is due, and that is now");
    assert_eq!((&seen["pending_is_at_least"], &seen["dead_is_at_least"]), (&json!(false), &json!(false)));
    assert_eq!(of_node(&seen), known_here(&house, 8));
    assert_eq!(
        (&seen["rate_per_s"], &seen["schedule"][0], &seen["schedule"][11]),
        (&json!(null), &json!("5s"), &json!("1d"))
    );

    let path = format!("/applications/{client_id}");
    let own = json!({"callback_rate_per_s": 7, "callback_concurrency": 3, "callback_schedule": ["9s"]});
    house.patch(&path, own).await.ok();
    let seen = callbacks(&house, &client_id).await;
    assert_eq!((&seen["rate_per_s"], &seen["schedule"]), (&json!(7), &json!(["9s"])));
    assert_eq!(of_node(&seen), known_here(&house, 3));

    house.post(&format!("{path}/callbacks/pause"), json!({})).await.ok();
    let seen = callbacks(&house, &client_id).await;
    assert_eq!(told(&seen), ("paused", [0, 2, 1]));
    assert!(seen["next_attempt_at"].is_null() && seen["oldest_open_at"] == "2026-01-01T00:00:00.000Z", "{seen}");
    house.post(&format!("{path}/callbacks/resume"), json!({})).await.ok();
    house.patch(&path, json!({"callback_url": null})).await.ok();
    assert_eq!(told(&callbacks(&house, &client_id).await), ("no_url", [0, 2, 1]));
    house.patch(&path, json!({"callback_url": URL})).await.ok();
    house.patch("/merchants/m", json!({"enabled": false})).await.ok();
    assert_eq!(told(&callbacks(&house, &client_id).await), ("merchant_disabled", [0, 2, 1]));
    house.patch("/merchants/m", json!({"enabled": true})).await.ok();
    house.app.bell.set_paused(true);
    let held = callbacks(&house, &client_id).await;
    assert_eq!((&held["state"], &held["next_attempt_at"]), (&json!("held_since_restore"), &json!(null)));
    let listed = house.get(&format!("/events?client_id={client_id}&state=pending")).await.ok().json();
    let shown =
        house.get(&format!("/events/{}", listed["items"][0]["event_id"].as_str().expect("an id"))).await.ok().json();
    for event in [&listed["items"][0], &listed["items"][1], &shown] {
        assert_eq!((&event["state"], &event["next_attempt_at"]), (&json!("pending"), &json!(null)), "{event}");
    }
    house.get("/applications/app_nobody/callbacks").await.refused(404, "400404", "app_nobody");
}

async fn causes(house: &House, query: &str) -> Value {
    house.get(&format!("/events/dead-causes{query}")).await.ok().json()
}

/// Of each cause: outcome, status and count.
fn counts(found: &Value) -> Vec<(&str, Option<u64>, i64)> {
    let items = found["items"].as_array().expect("items");
    let of = |item: &'_ Value| (item["http_status"].as_u64(), item["count"].as_i64().expect("a count"));
    items.iter().map(|item| (item["outcome"].as_str().expect("a text"), of(item).0, of(item).1)).collect()
}

#[tokio::test]
async fn dead_events_are_counted_by_what_they_died_of() {
    let house = House::open().await;
    let nothing = json!({"items": [], "items_left_off": 0, "count_is_at_least": false});
    assert_eq!(causes(&house, "").await, nothing);
    let (one, two) = (house.application("m1", Some(URL)).await, house.application("m2", Some(URL)).await);
    emit(&house, &one).await;
    let mut newest = String::new();
    for _ in 0..3 {
        newest = dies(&house, &one, Outcome::HttpStatus, Some(500)).await;
        house.app.clock.advance_ms(1_000);
    }
    dies(&house, &one, Outcome::HttpStatus, Some(404)).await;
    house.app.clock.advance_ms(3_600_000);
    for _ in 0..2 {
        dies(&house, &two, Outcome::Timeout, None).await;
    }
    let found = causes(&house, "").await;
    let all = [("http_status", Some(500), 3), ("timeout", None, 2), ("http_status", Some(404), 1)];
    assert_eq!((counts(&found), &found["count_is_at_least"]), (all.to_vec(), &json!(false)));
    let most = json!({"client_id": one, "outcome": "http_status", "http_status": 500, "detail": "came to http_status", "count": 3,
        "oldest_at": "2026-01-01T00:00:00.000Z", "newest_at": "2026-01-01T00:00:02.000Z", "example_event_id": newest});
    assert_eq!(found["items"][0], most);

    assert_eq!(counts(&causes(&house, &format!("?client_id={two}")).await), all[1..2]);
    let limited = causes(&house, "?limit=1").await;
    assert_eq!((counts(&limited), &limited["items_left_off"]), (all[..1].to_vec(), &json!(2)));
    let between = "?from=2026-01-01T00:00:01Z&to=2026-01-01T00:00:02Z";
    assert_eq!(counts(&causes(&house, between).await), [("http_status", Some(500), 1)], "from is in, to is out");
    assert_eq!(counts(&causes(&house, "?from=2026-01-01T00:30:00Z").await), all[1..2]);
    assert_eq!(counts(&causes(&house, "?to=2026-01-01T00:00:02Z").await), [("http_status", Some(500), 2)]);

    house.post(&format!("/events/{newest}/redeliver"), json!({})).await.ok();
    assert_eq!(counts(&causes(&house, &format!("?client_id={one}")).await)[0], ("http_status", Some(500), 2));
    house.get("/events/dead-causes?client_id=app_nobody").await.refused(404, "400404", "app_nobody");
    for (query, field) in [
        ("from=yesterday", "from"),
        ("to=2026-01-01", "to"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z", "to"),
        ("limit=501", "limit"),
    ] {
        house.get(&format!("/events/dead-causes?{query}")).await.refused(400, "400001", field);
    }
}
