//! What an answer always has.
//!
//! A field without a value is null in answers, not absent, but for a few. What is sent may leave such fields out.

use std::collections::BTreeSet;

use serde_json::Value;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{OpenApi as Document, RefOr};

/// Properties of answers that are absent where they have no value.
const MAY_LACK: [(&str, &str); 12] = [
    ("Health", "delivery"),
    ("Merchant", "base_rate"),
    ("Redelivering", "applications"),
    ("Redelivering", "next"),
    ("Redelivering", "redelivery_id"),
    ("Redelivering", "state"),
    ("RedeliveringOf", "left_out"),
    ("RedeliveringOf", "redelivery_id"),
    ("RedeliveringOf", "unknown"),
    // In answers that a program of before had kept for their keys.
    ("ReleasedAnswer", "was_held"),
    ("RewrapAnswer", "previous_key_id"),
    ("StatementSums", "merchant_id"),
];
const SCHEMAS: &str = "#/components/schemas/";

/// Requires every property of what is only answered, but for [`MAY_LACK`].
pub fn put(document: &mut Document) {
    let sent = sent(&super::json(document));
    let components = document.components.get_or_insert_default();
    for (name, schema) in components.schemas.iter_mut().filter(|(name, _)| !sent.contains(*name)) {
        require(name, schema);
    }
}

/// Of a schema that is made of several, the parts that stand in it; those that it refers to have their turn by their own names.
fn require(name: &str, schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => {
            let is_there = |property: &&String| !MAY_LACK.contains(&(name, property.as_str()));
            object.required = object.properties.keys().filter(is_there).cloned().collect();
        }
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter_mut().for_each(|part| require(name, part)),
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

/// The names of the schemas that bodies of requests and callbacks are made of.
fn sent(document: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let operations = |part: &'static str| document[part].as_object().into_iter().flat_map(|paths| paths.values());
    for operation in operations("paths").filter_map(Value::as_object).flat_map(|item| item.values()) {
        gather(&operation["requestBody"], document, &mut names);
    }
    operations("webhooks").for_each(|hook| gather(hook, document, &mut names));
    names
}

/// Adds what a part refers to, and what that refers to.
fn gather(part: &Value, document: &Value, names: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            let named = fields.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix(SCHEMAS));
            if let Some(name) = named.filter(|name| names.insert((*name).to_owned())) {
                gather(&document["components"]["schemas"][name], document, names);
            }
            fields.values().for_each(|field| gather(field, document, names));
        }
        Value::Array(parts) => parts.iter().for_each(|part| gather(part, document, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
