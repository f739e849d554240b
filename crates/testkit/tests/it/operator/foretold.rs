//! Whatever an operator is refused with stands in the API's document, under the call that was made. Every answer of every test is held against it.

use std::sync::OnceLock;

use serde_json::Value;

static DOCUMENT: OnceLock<Value> = OnceLock::new();

/// The operation of the document that a path leads to, if there is one: that whose path has the fewest names in it.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let document = DOCUMENT.get_or_init(|| {
        serde_json::from_str(include_str!("../../../../../docs/openapi/operator.json")).expect("the document is JSON")
    });
    let parts: Vec<&str> = path.split('/').collect();
    let leads = |template: &str| {
        let known: Vec<&str> = template.split('/').collect();
        let fits = |(known, part): (&&str, &&str)| known == part || known.starts_with('{');
        known.len() == parts.len() && known.iter().zip(&parts).all(fits)
    };
    let all = document["paths"].as_object().expect("paths").iter();
    let meant = all.filter(|(template, _)| leads(template)).min_by_key(|(template, _)| template.matches('{').count());
    meant.and_then(|(_, item)| item.get(method.to_lowercase()))
}

/// Panics where a refusal is none of those that the call is said to meet.
pub fn check(method: &str, path: &str, status: u16, answer: &Value) {
    let (Some(code), Some(operation)) = (answer["code"].as_str().filter(|_| status >= 400), operation(method, path))
    else {
        return;
    };
    let told = operation["responses"][status.to_string()]["description"].as_str().unwrap_or("");
    let is_foretold = told.split(", ").any(|known| known.starts_with(code));
    assert!(
        is_foretold,
        "{method} {path} is answered {status} {code}, and the document knows {told:?} of it: {answer}"
    );
}

#[test]
fn a_refusal_is_looked_for_under_its_own_call() {
    let id = |method, path: &str| operation(method, path).map(|found| found["operationId"].as_str().expect("an id"));
    assert_eq!(id("POST", "/operator/v1/events/redeliver"), Some("redeliver_events"));
    assert_eq!(id("POST", "/operator/v1/events/evt_1/redeliver"), Some("redeliver_event"));
    assert_eq!(id("GET", "/operator/v1/events/evt_1"), Some("show_event"));
    assert_eq!(id("PUT", "/operator/v1/events/evt_1"), None);
    check("GET", "/operator/v1/rates/GT_USDT", 404, &serde_json::json!({"code": "400404"}));
    let strange = || check("GET", "/operator/v1/rates/GT_USDT", 404, &serde_json::json!({"code": "400202"}));
    assert!(std::panic::catch_unwind(strange).is_err());
}
