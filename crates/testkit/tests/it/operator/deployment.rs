//! The deployment as a whole: its nodes, and callbacks that are held since a restore.

use countersign::app::delivery::DELIVERY_HELD;
use countersign_store::{Batch, Store as _, Write};
use serde_json::json;

use super::listener::House;

#[tokio::test]
async fn a_node_that_shares_its_database_with_nobody_is_listed_alone() {
    let house = House::open().await;
    house.app.clock.advance_ms(5_000);
    let page = house.get("/nodes").await.ok().json();
    if house.app.store.is_shared() {
        assert_eq!(page, json!({"items": [], "next": null}), "no heart beats here");
        return;
    }
    let alone = json!({
        "node_id": null, "name": "", "version": null, "key_id": null, "started_at": "2026-01-01T00:00:00.000Z",
        "seen_at": "2026-01-01T00:00:05.000Z", "alive": true, "clock_ahead_ms": null, "lanes": 64, "this_node": true,
        "settings_differ": null
    });
    assert_eq!(page, json!({"items": [alone], "next": null}));
}

#[tokio::test]
async fn a_release_says_whether_anything_was_held() {
    let house = House::open().await;
    let release = async || house.post("/delivery/release", json!({})).await.ok().json();
    let at = "2026-01-01T00:00:00.000Z";
    assert_eq!(release().await, json!({"held": false, "released_at": at, "was_held": false}));
    let value = "2025-12-31T00:00:00.000Z".to_owned();
    let held = Write::PutSetting { name: DELIVERY_HELD.to_owned(), value: value.clone() };
    house.app.store.commit(Batch(vec![held])).await.expect("it is held");
    assert_eq!(house.get("/delivery").await.ok().json(), json!({"held": true, "held_since": value}));
    assert_eq!(release().await, json!({"held": false, "released_at": at, "was_held": true}));
    assert_eq!(house.get("/delivery").await.ok().json(), json!({"held": false, "held_since": null}));
    assert_eq!(release().await["was_held"], json!(false), "the first one has let all go");
    let lines = house.get("/audit?action=delivery.release").await.ok().json();
    assert_eq!(lines["items"].as_array().map(Vec::len), Some(1), "what changes nothing leaves no line: {lines}");
}
