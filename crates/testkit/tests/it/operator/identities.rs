//! Institutions, merchants and sub-accounts.

use serde_json::{Value, json};

use super::house::{House, all_pages};

#[tokio::test]
async fn an_institution_is_made_with_its_base_rate_digit_for_digit() {
    let house = House::open().await;
    let body = r#"{"name":"Bank","merchant_id":"10001","base_rate":{"r_total":0.12345678,"f_total":1.50}}"#;
    let made = house.send(house.request("POST", "/institutions", Some(body), &[])).await.ok();
    assert!(made.text.contains(r#""base_rate":{"r_total":0.12345678,"f_total":1.5}"#), "{}", made.text);
    let made = made.json();
    assert_eq!(
        (&made["merchant_id"], &made["kind"], &made["name"]),
        (&json!("10001"), &json!("institution"), &json!("Bank"))
    );
    assert_eq!(made["created_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(house.get("/merchants/10001").await.ok().json(), made);
    let plain = house.post("/institutions", json!({"name": "B"})).await.ok().json();
    assert_eq!(plain["base_rate"], json!({"r_total": 0, "f_total": 0}));
    assert!(plain["merchant_id"].as_str().is_some_and(|id| id.bytes().all(|b| b.is_ascii_digit())), "{plain}");
}

#[tokio::test]
async fn a_base_rate_outside_its_limits_is_refused() {
    let house = House::open().await;
    for rate in [
        json!({"r_total": 100.1, "f_total": 0}),
        json!({"r_total": 0, "f_total": 5_000_001}),
        json!({"r_total": "0.1", "f_total": 0}),
        json!({"r_total": -1}),
        json!(0.1),
        json!([]),
    ] {
        house.post("/institutions", json!({"name": "B", "base_rate": rate})).await.refused(400, "400001", "base_rate");
    }
}

#[tokio::test]
async fn merchants_and_sub_accounts_share_one_namespace() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "inst"})).await.ok();
    let sub =
        house.post("/institutions/inst/sub-accounts", json!({"name": "S", "sub_merchant_id": "sub"})).await.ok().json();
    assert_eq!(
        (&sub["sub_merchant_id"], &sub["merchant_id"], &sub["name"]),
        (&json!("sub"), &json!("inst"), &json!("S"))
    );
    for (path, field, id) in [
        ("/institutions", "merchant_id", "inst"),
        ("/merchants", "merchant_id", "sub"),
        ("/institutions/inst/sub-accounts", "sub_merchant_id", "inst"),
        ("/institutions/inst/sub-accounts", "sub_merchant_id", "sub"),
    ] {
        let mut body = json!({"name": "X"});
        body[field] = json!(id);
        house.post(path, body).await.refused(409, "400803", id);
    }
}

#[tokio::test]
async fn only_institutions_have_sub_accounts() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "plain"})).await.ok();
    house.post("/institutions/plain/sub-accounts", json!({"name": "S"})).await.refused(404, "400404", "plain");
    house.post("/institutions/nobody/sub-accounts", json!({"name": "S"})).await.refused(404, "400404", "nobody");
    house.get("/institutions/plain/sub-accounts").await.refused(404, "400404", "plain");
    house.get("/merchants/nobody").await.refused(404, "400404", "nobody");
}

#[tokio::test]
async fn lists_are_whole_page_by_page_in_the_order_of_making() {
    let house = House::open().await;
    for institution in ["a", "b"] {
        house.post("/institutions", json!({"name": institution, "merchant_id": institution})).await.ok();
        for n in 0..5 {
            let body = json!({"name": "S", "sub_merchant_id": format!("{institution}{n}")});
            house.post(&format!("/institutions/{institution}/sub-accounts"), body).await.ok();
        }
    }
    let ids = |items: Vec<Value>, field: &str| {
        items.iter().map(|i| i[field].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    for limit in [1, 2, 5, 12, 50] {
        let subs = ids(all_pages(&house, "/institutions/b/sub-accounts", limit).await, "sub_merchant_id");
        assert_eq!(subs, ["b0", "b1", "b2", "b3", "b4"], "limit {limit}");
        let all = ids(all_pages(&house, "/merchants", limit).await, "merchant_id");
        assert_eq!(all, ["a", "a0", "a1", "a2", "a3", "a4", "b", "b0", "b1", "b2", "b3", "b4"], "limit {limit}");
    }
    house.get("/merchants?limit=0").await.refused(400, "400001", "limit");
    house.get("/merchants?limit=1&limit=2").await.refused(400, "400001", "limit");
    house.get("/merchants?after=nobody").await.refused(404, "400404", "nobody");
}
