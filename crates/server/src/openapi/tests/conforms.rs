//! Whether a value is what its schema says. Knows the words of JSON Schema that the documents use, and no others.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::pattern::matches;

/// What a schema may say that forbids nothing.
const SAYS_ONLY: [&str; 7] = ["description", "default", "deprecated", "example", "examples", "discriminator", "title"];

/// What is wrong with a value, each with its place in it.
pub fn complaints(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Checker { document }.check(schema, value, "", &mut found);
    found
}

struct Checker<'a> {
    document: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        self.hold(schema, value, at, found);
        // Fields that no part of the schema knows are misspelt, or forgotten in it.
        let (Some(fields), Some(known)) = (value.as_object(), self.names(schema)) else { return };
        found.extend(fields.keys().filter(|name| !known.contains(*name)).map(|name| format!("{at}/{name} is unknown")));
    }

    /// The names of all properties of a schema; none: it is open.
    fn names(&self, schema: &Value) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        if schema.get("additionalProperties").is_some() {
            return None;
        }
        if let Some(properties) = schema["properties"].as_object() {
            names.extend(properties.keys().cloned());
        }
        let parts = ["allOf", "oneOf", "anyOf"].iter().flat_map(|word| schema[*word].as_array().into_iter().flatten());
        let parts = parts.chain(schema["$ref"].as_str().map(|to| self.at(to)));
        for part in parts {
            names.extend(self.names(part).unwrap_or_default());
        }
        (!names.is_empty()).then_some(names)
    }

    fn at(&self, target: &str) -> &Value {
        self.document.pointer(target.trim_start_matches('#')).unwrap_or_else(|| panic!("{target} is not there"))
    }

    fn hold(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        for (word, says) in schema.as_object().expect("a schema") {
            let fits = match (word.as_str(), says) {
                ("$ref", Value::String(to)) => {
                    self.hold(self.at(to), value, at, found);
                    true
                }
                ("allOf", Value::Array(parts)) => {
                    for part in parts {
                        self.hold(part, value, at, found);
                    }
                    true
                }
                ("oneOf", Value::Array(parts)) => self.count(parts, value) == 1,
                ("anyOf", Value::Array(parts)) => self.count(parts, value) > 0,
                ("properties", Value::Object(properties)) => {
                    self.each_field(properties, value, at, found);
                    true
                }
                ("additionalProperties", Value::Object(_)) => {
                    let fields = value.as_object().into_iter().flatten();
                    fields.for_each(|(name, field)| self.check(says, field, &format!("{at}/{name}"), found));
                    true
                }
                ("items", _) => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    items.for_each(|(no, item)| self.check(says, item, &format!("{at}/{no}"), found));
                    true
                }
                _ => holds(word, says, value),
            };
            if !fits {
                found.push(format!("{at} {value}: {word} is {says}"));
            }
        }
    }

    fn count(&self, parts: &[Value], value: &Value) -> usize {
        let fits = |part: &&Value| {
            let mut found = Vec::new();
            self.check(part, value, "", &mut found);
            found.is_empty()
        };
        parts.iter().filter(fits).count()
    }

    fn each_field(&self, properties: &Map<String, Value>, value: &Value, at: &str, found: &mut Vec<String>) {
        for (name, field) in value.as_object().into_iter().flatten() {
            if let Some(schema) = properties.get(name) {
                self.check(schema, field, &format!("{at}/{name}"), found);
            }
        }
    }
}

/// Whether a value fits one word that needs no other schema.
fn holds(word: &str, says: &Value, value: &Value) -> bool {
    let chars = value.as_str().map(|text| text.chars().count() as u64);
    let items = value.as_array().map(|items| items.len() as u64);
    let (number, bound) = (value.as_f64(), says.as_f64().unwrap_or_default());
    let length = says.as_u64().unwrap_or_default();
    match word {
        "type" => match says {
            Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
            kind => is_of(kind, value),
        },
        "const" => says == value,
        "enum" => says.as_array().expect("a list").contains(value),
        "required" => value.as_object().is_none_or(|fields| {
            says.as_array().expect("a list").iter().all(|name| fields.contains_key(name.as_str().expect("a name")))
        }),
        "minimum" => number.is_none_or(|number| number >= bound),
        "maximum" => number.is_none_or(|number| number <= bound),
        "exclusiveMinimum" => number.is_none_or(|number| number > bound),
        "minLength" => chars.is_none_or(|chars| chars >= length),
        "maxLength" => chars.is_none_or(|chars| chars <= length),
        "minItems" => items.is_none_or(|items| items >= length),
        "maxItems" => items.is_none_or(|items| items <= length),
        "pattern" => value.as_str().is_none_or(|text| matches(says.as_str().expect("a pattern"), text)),
        "format" => has_format(says.as_str().expect("a name"), value),
        // Any text is the name of a property.
        "propertyNames" => says["type"] == "string",
        word => SAYS_ONLY.contains(&word) || panic!("this checker does not know {word}"),
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("the name of a kind") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        kind => panic!("there is no {kind}"),
    }
}

fn has_format(format: &str, value: &Value) -> bool {
    let Some(text) = value.as_str() else { return true };
    match format {
        "date-time" => countersign_domain::time::parse_rfc3339(text).is_some(),
        "uri" => text.contains("://"),
        // Of numbers: what a text in their place lacks is said by its type.
        "int32" | "int64" | "decimal" | "double" => true,
        format => panic!("there is no text of the format {format}"),
    }
}
