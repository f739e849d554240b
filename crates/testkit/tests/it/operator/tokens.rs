//! Operators' tokens: listed, shown, with their end and their last use.

use countersign::app::uses;
use countersign_store::Store as _;
use countersign_store::contract::Role;
use serde_json::{Value, json};

use super::listener::{DAY_MS, House, all_pages, request_by};

#[tokio::test]
async fn tokens_are_listed_page_by_page_without_the_token_and_with_their_state() {
    let house = House::open().await;
    let mut shown = Vec::new();
    for (name, days) in [("a", 1), ("b", 2), ("c", 3)] {
        let made = house.post("/tokens", json!({"name": name, "role": "viewer", "life_days": days})).await.ok();
        shown.push((made.text_of("token"), made.text_of("token_id")));
        house.app.clock.advance_ms(1);
    }
    house.delete(&format!("/tokens/{}", shown[2].1)).await.ok();
    house.app.clock.advance_ms(DAY_MS);
    for limit in [1, 2, 50] {
        let all = all_pages(&house, "/tokens", limit).await;
        let named: Vec<&Value> = all.iter().filter(|t| t["name"] != "test").collect();
        let found: Vec<(&str, bool)> =
            named.iter().map(|t| (t["name"].as_str().unwrap_or(""), t["live"] == true)).collect();
        assert_eq!(found, [("a", false), ("b", true), ("c", false)], "limit {limit}");
        let text = json!(all).to_string();
        assert!(shown.iter().all(|(token, _)| !text.contains(token.as_str())));
    }
    let revoked = house.get(&format!("/tokens/{}", shown[2].1)).await.ok().json();
    assert_eq!(
        (&revoked["role"], &revoked["revoked_at"], &revoked["expires_at"], &revoked["last_used_at"]),
        (&json!("viewer"), &json!("2026-01-01T00:00:00.003Z"), &json!("2026-01-04T00:00:00.002Z"), &Value::Null)
    );
    let again = house.delete(&format!("/tokens/{}", shown[2].1)).await.ok().json();
    assert_eq!(again["revoked_at"], "2026-01-01T00:00:00.003Z", "it stays revoked as it was first");
    house.get("/tokens/tok_nobody").await.refused(404, "400404", "tok_nobody");
}

#[tokio::test]
async fn a_tokens_last_use_is_told_at_once_and_kept() {
    let house = House::open().await;
    let token = house.token(Role::Viewer, None).await;
    let digest = countersign::digest::sha256(token.as_bytes());
    let row = async || house.app.store.token(&digest).await.expect("reads").expect("is there");
    let token_id = row().await.token_id;
    let told = |house: &House| house.request("GET", &format!("/tokens/{token_id}"), None, &[]);
    assert_eq!(house.send(told(&house)).await.ok().json()["last_used_at"], Value::Null);
    house.app.clock.advance_ms(5_000);
    house.send(request_by(&token, "GET", "/merchants", None, &[])).await.ok();
    // A call that is refused for its role was made with the token all the same.
    house.app.clock.advance_ms(1_000);
    house.send(request_by(&token, "POST", "/tokens", Some("{}"), &[])).await.refused(403, "400802", "role");
    assert_eq!(house.send(told(&house)).await.ok().json()["last_used_at"], "2026-01-01T00:00:06.000Z");
    assert_eq!(row().await.last_used_at, None, "nothing is written on the way of an answer");
    uses::note(&house.app).await.expect("is noted");
    assert_eq!(row().await.last_used_at.map(|at| at.0 - super::listener::START.0), Some(6_000));
    house.app.clock.advance_ms(1_000);
    house.send(request_by(&token, "GET", "/merchants", None, &[])).await.ok();
    uses::note(&house.app).await.expect("is noted");
    let noted = row().await.last_used_at;
    assert_eq!(noted.map(|at| at.0 - super::listener::START.0), Some(6_000), "at most once a minute");
    house.app.clock.advance_ms(60_000);
    uses::note(&house.app).await.expect("is noted");
    assert_eq!(row().await.last_used_at.map(|at| at.0 - super::listener::START.0), Some(7_000));
}
