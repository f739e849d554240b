//! The documents are files, complete, and nothing in them points nowhere.

use std::collections::BTreeSet;
use std::path::PathBuf;

use countersign_protocol::endpoint::Endpoint;
use serde_json::Value;

use super::{Document, merchant, operator};
use crate::operator::{BASE, doors};

/// Paths of the operator listener beside its doors.
const BESIDE: [&str; 3] = ["GET /healthz", "GET /metrics", "GET /readyz"];

#[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
fn is_blessing() -> bool {
    std::env::var("COUNTERSIGN_BLESS").is_ok_and(|value| value == "1")
}

fn compare(document: &Document, name: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi").join(name);
    let text = document.to_pretty_json().expect("a document serializes") + "\n";
    if is_blessing() {
        std::fs::write(&file, &text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "{} is not what the code says: run with COUNTERSIGN_BLESS=1 and look at the difference",
        file.display()
    );
}

fn json(document: &Document) -> Value {
    serde_json::to_value(document).expect("a document serializes")
}

/// `GET /path` of every operation.
fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = ["get", "post", "put", "patch", "delete"];
    let of_path = |(path, item): (&String, &Value)| -> Vec<String> {
        methods.iter().filter(|m| item.get(**m).is_some()).map(|m| format!("{} {path}", m.to_uppercase())).collect()
    };
    paths.iter().flat_map(of_path).collect()
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get("$ref") {
                found.insert(target.clone());
            }
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_merchant_document_is_the_committed_one() {
    compare(&merchant(), "merchant.json");
}

#[test]
fn the_operator_document_is_the_committed_one() {
    compare(&operator(), "operator.json");
}

#[test]
fn every_door_of_the_operator_api_is_in_its_document_and_nothing_else_is() {
    let doors = doors().into_iter().map(|door| format!("{} {}", door.method, door.path()));
    let expected: BTreeSet<String> = doors.chain(BESIDE.map(str::to_owned)).collect();
    assert_eq!(operations(&json(&operator())), expected);
}

#[test]
fn every_endpoint_of_the_merchant_api_is_in_its_document_and_nothing_else_is() {
    let expected: BTreeSet<String> =
        Endpoint::ALL.iter().map(|endpoint| format!("{} {}", endpoint.method(), endpoint.path())).collect();
    assert_eq!(operations(&json(&merchant())), expected);
}

#[test]
fn no_reference_points_nowhere_and_both_documents_are_openapi_3_1() {
    for document in [merchant(), operator()] {
        let document = json(&document);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{target} is not there");
        }
        assert!(
            document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")),
            "{}",
            document["openapi"]
        );
    }
}

#[test]
fn every_write_call_takes_an_idempotency_key_and_every_call_names_its_refusals() {
    let document = json(&operator());
    for door in doors() {
        let operation = &document["paths"][door.path()][door.method.as_str().to_lowercase()];
        let takes_key =
            operation["parameters"].as_array().is_some_and(|all| all.iter().any(|p| p["name"] == "Idempotency-Key"));
        assert_eq!(takes_key, door.method != "GET", "{} {}", door.method, door.path());
        for status in ["200", "400", "401", "403", "429", "431", "500", "503"] {
            assert!(operation["responses"].get(status).is_some(), "{} {} lacks {status}", door.method, door.path());
        }
        assert!(door.path().starts_with(BASE));
    }
}

#[test]
fn a_body_is_required_where_something_in_it_is() {
    let document = json(&operator());
    let mut may_be_absent = BTreeSet::new();
    for door in doors() {
        let body = &document["paths"][door.path()][door.method.as_str().to_lowercase()]["requestBody"];
        let Some(schema) = body["content"]["application/json"]["schema"]["$ref"].as_str() else { continue };
        let schema = document.pointer(schema.trim_start_matches('#')).expect("it is there");
        assert_eq!(body["required"] == true, schema.get("required").is_some(), "{} {}", door.method, door.path());
        if body["required"] == false {
            may_be_absent.insert(format!("{} {}", door.method, door.path().strip_prefix(BASE).unwrap_or_default()));
        }
    }
    for call in [
        "POST /applications/{client_id}/secrets",
        "POST /applications/{client_id}/callbacks/pause",
        "POST /applications/{client_id}/callbacks/resume",
        "POST /audit/verify",
    ] {
        assert!(may_be_absent.contains(call), "{call}: {may_be_absent:?}");
    }
}
