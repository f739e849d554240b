//! What the document says of the fields of bodies is what the server takes: at each bound, and beyond it.

use std::collections::BTreeMap;

use countersign::operator::BASE;
use serde_json::{Map, Value, json};

use super::listener::House;

/// A call that takes a body: method and path as in the document, the path that is called, and a body that is taken.
struct Call {
    method: &'static str,
    path: &'static str,
    called: String,
    body: Value,
}

fn call(method: &'static str, path: &'static str, called: &str, body: Value) -> Call {
    Call { method, path, called: called.to_owned(), body }
}

/// Every call whose body has fields.
fn calls(client_id: &str) -> Vec<Call> {
    let of_application = |rest: &str| format!("/applications/{client_id}{rest}");
    let order = json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "1", "buyAmount": "2", "rate": "2"});
    let event = json!({"client_id": client_id, "bizType": "T", "bizId": "1", "bizStatus": "S", "data": "{}"});
    vec![
        call("post", "/institutions", "/institutions", json!({"name": "I"})),
        call("post", "/merchants", "/merchants", json!({"name": "M"})),
        call("patch", "/merchants/{merchant_id}", "/merchants/m", json!({})),
        call("post", "/institutions/{merchant_id}/sub-accounts", "/institutions/i/sub-accounts", json!({"name": "S"})),
        call("post", "/merchants/{merchant_id}/applications", "/merchants/m/applications", json!({"name": "A"})),
        call("patch", "/applications/{client_id}", &of_application(""), json!({})),
        call("post", "/applications/{client_id}/callbacks/pause", &of_application("/callbacks/pause"), json!({})),
        call("post", "/applications/{client_id}/callbacks/resume", &of_application("/callbacks/resume"), json!({})),
        call("post", "/applications/{client_id}/secrets", &of_application("/secrets"), json!({})),
        call("post", "/merchants/{merchant_id}/convert-orders", "/merchants/m/convert-orders", order),
        call("patch", "/convert-orders/{order_id}", "/convert-orders/1", json!({"status": 3})),
        call("put", "/rates/{pair}", "/rates/GT_USDT", json!({"rate": 2})),
        call("patch", "/payment-orders/{prepayId}", "/payment-orders/1000000000", json!({"status": "PAID"})),
        call("post", "/events", "/events", event),
        call("post", "/events/redeliver", "/events/redeliver", json!({"client_id": client_id, "preview": true})),
        call("post", "/audit/verify", "/audit/verify", json!({})),
        call("post", "/tokens", "/tokens", json!({"name": "T", "role": "viewer"})),
    ]
}

/// A text of so many characters that is fine but for its length.
fn text(name: &str, length: usize) -> Value {
    let head = if name == "callback_url" { "https://a.example/" } else { "" };
    json!(format!("{head}{}", "a".repeat(length.saturating_sub(head.len()))))
}

/// Values that the schema of a field takes at its bounds, and such as are just beyond.
fn values(name: &str, schema: &Value) -> (Vec<Value>, Vec<Value>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    let whole = |bound: &str| schema[bound].as_i64();
    if let Some(least) = whole("minimum") {
        taken.push(json!(least));
        refused.push(json!(least - 1));
    }
    if let Some(most) = whole("maximum") {
        taken.push(json!(most));
        refused.push(json!(most + 1));
    }
    let length = |bound: &str| schema[bound].as_u64().and_then(|length| usize::try_from(length).ok());
    if let Some(least) = length("minLength") {
        taken.push(text(name, least));
        refused.push(text(name, least - 1));
    }
    if let Some(most) = length("maxLength") {
        taken.push(text(name, most));
        refused.push(text(name, most + 1));
    }
    if let (Some(least), Some(most)) = (length("minItems"), length("maxItems")) {
        taken.extend([json!(vec!["1ms"; least]), json!(vec!["7d"; most])]);
        refused.extend([json!(vec!["1s"; least - 1]), json!(vec!["1s"; most + 1]), json!(["0s"]), json!(["8d"])]);
    }
    if let Some(words) = schema["enum"].as_array() {
        taken.extend(words.clone());
        refused.push(if words[0].is_string() { json!("nonsense") } else { json!(2) });
    }
    match schema["pattern"].as_str() {
        Some(pattern) if pattern.starts_with("^[0-9]+") => {
            taken.extend(["5000000", "0.0001", "1.000000"].map(Value::from));
            refused.extend(["", "1e3", "-1", "1.", "1.0000001"].map(Value::from));
        }
        Some(pattern) if pattern.starts_with("^[A-Z0-9]{2,10}") => {
            refused.extend(["A", "ABCDEFGHIJK", "ab"].map(Value::from));
        }
        Some(pattern) if pattern.starts_with("^[1-9]") => {
            taken.extend(["1", "999999999999999999"].map(Value::from));
            refused.extend(["", "0", "01", "1000000000000000000"].map(Value::from));
        }
        Some(_) => {
            taken.push(text(name, 64));
            refused.extend([json!(""), json!("a b"), text(name, 65)]);
        }
        None => {}
    }
    if schema["format"] == "date-time" {
        taken.push(json!("2026-01-31T08:00:00Z"));
        refused.extend(["", "2026-01-31", "2026-01-31T08:00:00"].map(Value::from));
    }
    (taken, refused)
}

fn with(body: &Value, name: &str, value: &Value) -> String {
    let mut fields: Map<String, Value> = body.as_object().cloned().unwrap_or_default();
    fields.insert(name.to_owned(), value.clone());
    Value::Object(fields).to_string()
}

/// What a refusal of this field says; none where the call was not refused for it.
async fn refusal(house: &House, call: &Call, name: &str, value: &Value) -> Option<String> {
    let body = with(&call.body, name, value);
    let answer = house.send(house.request(&call.method.to_uppercase(), &call.called, Some(&body), &[])).await;
    let told = answer.json()["detail"].as_str().unwrap_or("").to_owned();
    (answer.status == 400 && told.starts_with(&format!("field {name}"))).then_some(told)
}

/// The fields of a call's body, as the document has them.
fn fields<'a>(document: &'a Value, call: &Call) -> &'a Map<String, Value> {
    let operation = &document["paths"][format!("{BASE}{}", call.path)][call.method];
    let schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str();
    let schema = schema.unwrap_or_else(|| panic!("{} {} has no body", call.method, call.path));
    let schema = document.pointer(schema.trim_start_matches('#')).expect("it is there");
    schema["properties"].as_object().expect("fields")
}

#[tokio::test]
async fn every_bound_that_is_documented_is_the_servers() {
    let house = House::open().await;
    let document = serde_json::to_value(countersign::openapi::operator()).expect("a document serializes");
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    let client_id = house.application("m", Some("https://a.example/")).await;
    let calls = calls(&client_id);
    let mut held: BTreeMap<String, usize> = BTreeMap::new();
    for call in &calls {
        for (name, schema) in fields(&document, call) {
            let (taken, refused) = values(name, schema);
            let which = format!("{} {} {name}", call.method, call.path);
            for value in &taken {
                assert_eq!(refusal(&house, call, name, value).await, None, "{which} {value}");
            }
            for value in &refused {
                assert!(refusal(&house, call, name, value).await.is_some(), "{which} takes {value}");
            }
            if !taken.is_empty() || !refused.is_empty() {
                held.insert(which, taken.len() + refused.len());
            }
        }
    }
    let with_body = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .flat_map(|item| item.as_object().expect("an item").values());
    let with_body = with_body.filter(|operation| operation.get("requestBody").is_some()).count();
    assert_eq!(with_body, calls.len(), "a call whose body nobody looks at");
    assert!(held.len() >= 40, "{held:?}");
}
