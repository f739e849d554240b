//! Convert orders: made and moved.

use serde_json::{Value, json};

use super::listener::{House, all_pages};

fn order() -> Value {
    json!({
        "sellCurrency": "USDT", "buyCurrency": "EUR", "sellAmount": "100", "buyAmount": "91.5", "rate": "0.915",
        "order_id": "900000000000000001", "quoteId": "PAY-0a1b2c3d", "createTime": 1_767_225_600_001_i64, "userId": 42
    })
}

async fn house() -> House {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "m", "user_id": 77})).await.ok();
    house
}

#[tokio::test]
async fn an_order_is_kept_and_answered_with_the_fields_of_the_merchant_api() {
    let house = house().await;
    let made = house.post("/merchants/m/convert-orders", order()).await.ok();
    assert_eq!(
        made.text,
        r#"{"order_id":"900000000000000001","userId":42,"sellCurrency":"USDT","buyCurrency":"EUR","sellAmount":"100","buyAmount":"91.5","status":1,"rate":0.915,"quoteId":"PAY-0a1b2c3d","createTime":1767225600001}"#
    );
    assert_eq!(
        house.audit().await[0]["after"],
        json!({"sell_currency": "USDT", "buy_currency": "EUR", "sell_amount": "100", "buy_amount": "91.5", "rate": "0.915",
            "quote_id": "PAY-0a1b2c3d", "status": 1, "revision": 1,
            "merchant_id": "m", "user_id": 42, "created_at": "2026-01-01T00:00:00.001Z"}),
        "all that never changes"
    );
    house.post("/merchants/m/convert-orders", order()).await.refused(409, "400803", "900000000000000001");
}

#[tokio::test]
async fn every_state_of_an_order_is_shown_with_its_instant() {
    let house = house().await;
    house.post("/merchants/m/convert-orders", order()).await.ok();
    house.app.clock.advance_ms(5_000);
    house.patch("/convert-orders/900000000000000001", json!({"status": 6})).await.ok();
    let shown = house.get("/convert-orders/900000000000000001").await.ok().json();
    assert_eq!((&shown["merchant_id"], &shown["status"], &shown["rate"]), (&json!("m"), &json!(6), &json!(0.915)));
    let moves = json!([
        {"status": 1, "at": "2026-01-01T00:00:00.001Z"}, {"status": 6, "at": "2026-01-01T00:00:05.000Z"}
    ]);
    assert_eq!(shown["moves"], moves);
    house.get("/convert-orders/7").await.refused(404, "400202", "no order has this number");
}

#[tokio::test]
async fn orders_are_listed_with_whose_they_are_by_state_and_merchant() {
    let house = house().await;
    house.post("/merchants", json!({"name": "N", "merchant_id": "n"})).await.ok();
    for (id, of, state) in
        [("11", "m", 1), ("12", "n", 1), ("13", "m", 3), ("14", "n", 6), ("900", "m", 6), ("15", "m", 1)]
    {
        let mut body = order();
        (body["order_id"], body["quoteId"]) = (json!(id), json!(format!("Q-{id}")));
        house.post(&format!("/merchants/{of}/convert-orders"), body).await.ok();
        if state != 1 {
            house.patch(&format!("/convert-orders/{id}"), json!({"status": state})).await.ok();
        }
    }
    let list = async |query: &str| {
        let found = all_pages(&house, &format!("/convert-orders{query}"), 2).await;
        found
            .iter()
            .map(|o| (o["order_id"].as_str().unwrap_or_default().to_owned(), o["merchant_id"].clone()))
            .collect::<Vec<_>>()
    };
    let of = |found: &[(&str, &str)]| found.iter().map(|(id, of)| ((*id).to_owned(), json!(of))).collect::<Vec<_>>();
    assert_eq!(list("").await, of(&[("900", "m"), ("15", "m"), ("14", "n"), ("13", "m"), ("12", "n"), ("11", "m")]));
    assert_eq!(list("?state=1").await, of(&[("15", "m"), ("12", "n"), ("11", "m")]));
    assert_eq!(list("?status=1").await, list("?state=1").await, "the member's own name");
    assert_eq!(list("?merchant_id=n").await, of(&[("14", "n"), ("12", "n")]));
    assert_eq!(list("?merchant_id=m&state=6").await, of(&[("900", "m")]));
    let first = house.get("/convert-orders?limit=1").await.ok();
    assert_eq!(
        first.text,
        r#"{"items":[{"order_id":"900","userId":42,"sellCurrency":"USDT","buyCurrency":"EUR","sellAmount":"100","buyAmount":"91.5","status":6,"rate":0.915,"quoteId":"Q-900","createTime":1767225600001,"merchant_id":"m"}],"next":"900"}"#
    );
    house.patch("/convert-orders/12", json!({"status": 3})).await.ok();
    assert_eq!(list("?state=1").await, of(&[("15", "m"), ("11", "m")]), "carried out");
    for (query, word) in [
        ("state=2", "state"),
        ("state=created", "state"),
        ("after=x", "after"),
        ("limit=501", "limit"),
        ("merchant_id=%00", "merchant_id"),
    ] {
        house.get(&format!("/convert-orders?{query}")).await.refused(400, "400001", word);
    }
    house.get("/convert-orders?merchant_id=nobody").await.refused(404, "400404", "nobody");
}

#[tokio::test]
async fn what_is_absent_is_made_by_the_server() {
    let house = house().await;
    let body = json!({"sellCurrency": "BTC", "buyCurrency": "USDT", "sellAmount": "0.0001", "buyAmount": "5000000", "rate": 1});
    let made = house.post("/merchants/m/convert-orders", body).await.ok().json();
    let id = made["order_id"].as_str().expect("an id");
    assert!((1..=18).contains(&id.len()) && !id.starts_with('0') && id.bytes().all(|b| b.is_ascii_digit()), "{id}");
    let quote = made["quoteId"].as_str().expect("a quote id");
    assert!(
        quote.strip_prefix("PAY-").is_some_and(|hex| hex.len() == 8 && hex.bytes().all(|b| b.is_ascii_hexdigit())),
        "{quote}"
    );
    assert_eq!(
        (&made["userId"], &made["createTime"], &made["status"]),
        (&json!(77), &json!(1_767_225_600_000_i64), &json!(1))
    );
}

#[tokio::test]
async fn a_rate_keeps_every_digit_as_text_and_as_number() {
    let house = house().await;
    for rate in [r#""123456789.12345678901""#, "123456789.12345678901"] {
        let body =
            format!(r#"{{"sellCurrency":"BTC","buyCurrency":"USDT","sellAmount":"1","buyAmount":"1","rate":{rate}}}"#);
        let made = house.send(house.request("POST", "/merchants/m/convert-orders", Some(&body), &[])).await.ok();
        assert!(made.text.contains(r#""rate":123456789.12345678901,"#), "{}", made.text);
    }
    for rate in ["0", "-1", "1e3", r#""1e3""#, r#""""#, r#""+1""#, "null", "true", "123456789012345678901"] {
        let body =
            format!(r#"{{"sellCurrency":"BTC","buyCurrency":"USDT","sellAmount":"1","buyAmount":"1","rate":{rate}}}"#);
        house
            .send(house.request("POST", "/merchants/m/convert-orders", Some(&body), &[]))
            .await
            .refused(400, "400001", "rate");
    }
}

#[tokio::test]
async fn each_field_that_is_wrong_is_refused_with_its_code() {
    let house = house().await;
    for (field, value, code) in [
        ("sellAmount", json!("0.00009"), "400621"),
        ("sellAmount", json!("5000000.000001"), "400621"),
        ("buyAmount", json!("1.0000001"), "400621"),
        ("buyAmount", json!("1e2"), "400621"),
        ("buyAmount", json!(1), "400621"),
        ("buyAmount", Value::Null, "400001"),
        ("sellCurrency", json!("usdt"), "400205"),
        ("sellCurrency", json!("EUR"), "400205"),
        ("buyCurrency", json!("E"), "400205"),
        ("order_id", json!("01"), "400001"),
        ("order_id", json!("1234567890123456789"), "400001"),
        ("quoteId", json!(""), "400001"),
        ("createTime", json!(-1), "400001"),
        ("userId", json!("7"), "400001"),
        ("status", json!(2), "400001"),
    ] {
        let mut body = order();
        body[field] = value;
        let word = if code == "400205" { "Currency" } else { field };
        house.post("/merchants/m/convert-orders", body).await.refused(400, code, word);
    }
    house.post("/merchants/nobody/convert-orders", order()).await.refused(404, "400404", "nobody");
}

#[tokio::test]
async fn an_order_moves_once_and_its_end_is_final() {
    let house = house().await;
    for (id, end, other) in [("11", 3, 6), ("12", 6, 3)] {
        let mut body = order();
        body["order_id"] = json!(id);
        house.post("/merchants/m/convert-orders", body).await.ok();
        let path = format!("/convert-orders/{id}");
        house.patch(&path, json!({"status": 1})).await.refused(409, "400204", "1");
        assert_eq!(house.patch(&path, json!({"status": end})).await.ok().json()["status"], end);
        house.patch(&path, json!({"status": end})).await.refused(409, "400204", "status");
        house.patch(&path, json!({"status": other})).await.refused(409, "400204", "status");
    }
    house.patch("/convert-orders/13", json!({"status": 3})).await.refused(404, "400202", "order");
    house.patch("/convert-orders/x", json!({"status": 3})).await.refused(404, "400202", "order");
    let rule = "must be 3 (success) or 6 (failed)";
    house.patch("/convert-orders/11", json!({})).await.refused(400, "400001", rule);
    house.patch("/convert-orders/11", json!({"status": 9})).await.refused(400, "400001", rule);
}

#[tokio::test]
async fn a_move_repeated_under_its_key_is_answered_and_without_it_refused() {
    let house = house().await;
    house.post("/merchants/m/convert-orders", order()).await.ok();
    let ask = || {
        house.request(
            "PATCH",
            "/convert-orders/900000000000000001",
            Some(r#"{"status":3}"#),
            &[("idempotency-key", "move")],
        )
    };
    let first = house.send(ask()).await.ok();
    let again = house.send(ask()).await.ok();
    assert_eq!(first.text, again.text);
    house.patch("/convert-orders/900000000000000001", json!({"status": 3})).await.refused(409, "400204", "status");
}
