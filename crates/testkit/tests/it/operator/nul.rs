//! U+0000, which PostgreSQL cannot keep: refused by name before the store is asked, on both stores alike.

use serde_json::{Value, json};

use super::listener::House;

/// A whole body and its fields that are texts, one after the other with U+0000 in it.
async fn each_text(house: &House, method: &str, path: &str, body: &Value) {
    let texts: Vec<&String> =
        body.as_object().expect("an object").iter().filter(|(_, v)| v.is_string()).map(|(k, _)| k).collect();
    assert!(!texts.is_empty(), "{path} has no text");
    for name in texts {
        let mut damaged = body.clone();
        damaged[name] = json!(format!("a\0{}", body[name].as_str().unwrap_or_default()));
        let answer = match method {
            "PATCH" => house.patch(path, damaged).await,
            "PUT" => house.send(house.request("PUT", path, Some(&damaged.to_string()), &[])).await,
            _ => house.post(path, damaged).await,
        };
        let problem = answer.json();
        assert_eq!((answer.status, &problem["label"]), (400, expected(name)), "{path} {name}: {}", answer.text);
        assert!(
            problem["detail"].as_str().is_some_and(|detail| detail.contains(name)),
            "{path} {name}: {}",
            answer.text
        );
    }
}

/// An amount that is no amount has a code of its own.
fn expected(name: &str) -> &'static Value {
    static LABELS: std::sync::LazyLock<[Value; 2]> =
        std::sync::LazyLock::new(|| [json!("INVALID_PARAMETER"), json!("INVALID_AMOUNT")]);
    &LABELS[usize::from(["sellAmount", "buyAmount"].contains(&name))]
}

/// Parameters of queries with U+0000, and which.
const QUERIES: [(&str, &str); 28] = [
    ("/events?client_id=a%00", "client_id"),
    ("/events?bizId=%00", "bizId"),
    ("/events?state=%00", "state"),
    ("/events?after=%00", "after"),
    ("/merchants?after=%00", "after"),
    ("/institutions/i/sub-accounts?after=%00", "after"),
    ("/applications?merchant_id=%00", "merchant_id"),
    ("/applications?after=%00", "after"),
    ("/fee-rules?sub_merchant_id=%00", "sub_merchant_id"),
    ("/statements?merchant_id=%00&month=2026-01", "merchant_id"),
    ("/statements?merchant_id=m&month=%00", "month"),
    ("/statements?merchant_id=m&month=2026-01&format=%00", "format"),
    ("/fee-rules/what-if?sub_merchant_id=%00&r_markup=1", "sub_merchant_id"),
    ("/fee-rules/what-if?sub_merchant_id=s&r_markup=%00", "r_markup"),
    ("/fee-rules/what-if?sub_merchant_id=s&r_markup=1&f_markup=%00", "f_markup"),
    ("/fee-rules/what-if?sub_merchant_id=s&r_markup=1&from=%00", "from"),
    ("/audit?after=%00", "after"),
    ("/audit?merchant_id=%00", "merchant_id"),
    ("/audit?actor=%00", "actor"),
    ("/audit?action=%00", "action"),
    ("/audit?subject=%00", "subject"),
    ("/audit?request_id=%00", "request_id"),
    ("/redeliveries?client_id=%00", "client_id"),
    ("/redeliveries?after=%00", "after"),
    ("/rates?after=%00", "after"),
    ("/events/dead-causes?client_id=%00", "client_id"),
    ("/events/dead-causes?from=%00", "from"),
    ("/events/dead-causes?to=%00", "to"),
];

async fn no_text_with_nul_is_taken(house: &House) {
    let client_id = house.application("m", None).await;
    each_text(house, "POST", "/institutions", &json!({"name": "I", "merchant_id": "i"})).await;
    each_text(house, "POST", "/merchants", &json!({"name": "M", "merchant_id": "n"})).await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    each_text(house, "POST", "/institutions/i/sub-accounts", &json!({"name": "S", "sub_merchant_id": "s"})).await;
    let new = json!({"name": "A", "callback_url": "https://example.com:8443/x"});
    each_text(house, "POST", "/merchants/m/applications", &new).await;
    let change = json!({"name": "A", "callback_url": "https://example.com:8443/x", "callback_encoding": "hex",
        "callback_vocabulary": "standard"});
    each_text(house, "PATCH", &format!("/applications/{client_id}"), &change).await;
    for which in ["pause", "resume"] {
        let path = format!("/applications/{client_id}/callbacks/{which}");
        each_text(house, "POST", &path, &json!({"reason": "mending"})).await;
    }
    let order = json!({"sellCurrency": "A1", "buyCurrency": "B1", "sellAmount": "1", "buyAmount": "1", "rate": "1",
        "order_id": "5"});
    each_text(house, "POST", "/merchants/m/convert-orders", &order).await;
    let limits = json!({"rate": "2", "base_min": "1", "base_max": "2", "quote_min": "1", "quote_max": "2"});
    each_text(house, "PUT", "/rates/GT_USDT", &limits).await;
    let event = json!({"client_id": client_id, "bizType": "T", "bizId": "1", "bizStatus": "S", "data": "{}"});
    each_text(house, "POST", "/events", &event).await;
    let again = json!({"client_id": client_id, "state": "dead", "bizId": "1", "from": "2026-01-01T00:00:00Z",
        "to": "2026-01-02T00:00:00Z", "outcome": "timeout"});
    each_text(house, "POST", "/events/redeliver", &again).await;
    each_text(house, "POST", "/events/redeliver", &json!({"all_applications": true, "after": "A"})).await;
    each_text(house, "POST", "/tokens", &json!({"name": "t", "role": "viewer"})).await;

    for (path, name) in QUERIES {
        house.get(path).await.refused(400, "400001", name);
    }
    for path in [
        "/merchants/%00",
        "/applications/a%00",
        "/applications/%00/callbacks",
        "/events/%00",
        "/institutions/%00/sub-accounts",
        "/rates/%00",
        "/convert-orders/%00",
        "/payment-orders/%00/evidence",
    ] {
        house.get(path).await.refused(404, "400404", "U+0000");
    }
    house.post("/merchants/%00/applications", json!({"name": "A"})).await.refused(404, "400404", "U+0000");
    house.delete("/tokens/%00").await.refused(404, "400404", "U+0000");

    // An escape inside data is no such character: it is kept, and sent, as it is.
    let escaped =
        json!({"client_id": client_id, "bizType": "T", "bizId": "1", "bizStatus": "S", "data": {"text": "a\0b"}});
    let emitted = house.post("/events", escaped).await.ok();
    let kept = house.get(&format!("/events/{}", emitted.text_of("event_id"))).await.ok();
    assert_eq!(kept.text_of("data"), r#"{"text":"a\u0000b"}"#);
}

#[tokio::test]
async fn no_text_with_the_character_zero_is_taken() {
    no_text_with_nul_is_taken(&House::open().await).await;
}
