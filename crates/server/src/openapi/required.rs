//! What an answer always has.
//!
//! A field without a value is null in answers, not absent, but for a few. What is sent may leave such fields out.

use std::collections::BTreeSet;

use serde_json::Value;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::{OpenApi as Document, RefOr};

/// Properties of answers that are absent where they have no value.
const MAY_LACK: [(&str, &str); 11] = [
    ("Health", "delivery"),
    ("Merchant", "base_rate"),
    ("Merchant", "institution_id"),
    ("Redelivering", "applications"),
    ("Redelivering", "next"),
    ("Redelivering", "redelivery_id"),
    ("Redelivering", "state"),
    ("RedeliveringOf", "left_out"),
    ("RedeliveringOf", "redelivery_id"),
    ("RedeliveringOf", "unknown"),
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
            for (property, schema) in &mut object.properties {
                if MAY_LACK.contains(&(name, property.as_str())) {
                    never_null(schema);
                }
            }
        }
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter_mut().for_each(|part| require(name, part)),
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

/// What is absent where it has no value is not null then.
fn never_null(schema: &mut RefOr<Schema>) {
    let without = |kind: &SchemaType| match kind {
        SchemaType::Array(kinds) => kinds.iter().find(|kind| **kind != Type::Null).cloned().map(SchemaType::Type),
        SchemaType::Type(_) | SchemaType::AnyValue => None,
    };
    match schema {
        RefOr::T(Schema::Object(object)) => {
            object.schema_type = without(&object.schema_type).unwrap_or_else(|| object.schema_type.clone());
            object.enum_values.iter_mut().for_each(|words| words.retain(|word| !word.is_null()));
        }
        RefOr::T(Schema::Array(list)) => {
            list.schema_type = without(&list.schema_type).unwrap_or_else(|| list.schema_type.clone());
        }
        RefOr::T(Schema::OneOf(either)) => {
            if let Some(RefOr::Ref(only)) = either.items.iter().find(|kind| matches!(kind, RefOr::Ref(_))) {
                *schema = RefOr::Ref(only.clone());
            }
        }
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
