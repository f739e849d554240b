//! Examples of requests and answers, by the ids of their operations. Each is what its own schema says, as a test finds.

use std::collections::BTreeMap;

use countersign_protocol::code;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, OpenApi as Document, RefOr};

use super::answers::Listener;
use super::operations;

const MERCHANT: &str = include_str!("examples/merchant.json");
const OPERATOR: &str = include_str!("examples/operator.json");

/// Those of one operation, by their names. Answers of the merchant API are the `data` of the envelope.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Examples {
    #[serde(default)]
    requests: BTreeMap<String, Shown>,
    #[serde(default)]
    answers: BTreeMap<String, Shown>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    summary: String,
    value: Value,
}

impl Shown {
    fn example(&self, value: Value) -> RefOr<Example> {
        ExampleBuilder::new().summary(self.summary.as_str()).value(Some(value)).build().into()
    }
}

/// Puts them where they belong. What is an example of no operation is a fault.
pub fn put(document: &mut Document, listener: Listener) {
    let (texts, wrap): (_, fn(&Value) -> Value) = match listener {
        Listener::Merchant => (MERCHANT, success),
        Listener::Operator => (OPERATOR, Value::clone),
    };
    let mut all: BTreeMap<String, Examples> = serde_json::from_str(texts).expect("the examples are JSON of this form");
    let hooks = document.webhooks.iter_mut().flat_map(|hooks| hooks.paths.values_mut());
    let items = document.paths.paths.values_mut().map(|item| (item, wrap));
    // What a merchant's endpoint answers has no envelope.
    for (item, wrap) in items.chain(hooks.map(|item| (item, Value::clone as fn(&Value) -> Value))) {
        for (operation, _) in operations(item) {
            let found = operation.operation_id.as_ref().and_then(|id| all.remove(id));
            if let Some(found) = found {
                put_on(operation, &found, wrap);
            }
        }
    }
    assert!(all.is_empty(), "examples of operations that are not there: {:?}", all.keys());
}

fn put_on(operation: &mut Operation, found: &Examples, wrap: fn(&Value) -> Value) {
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        let shown = found.requests.iter().map(|(name, shown)| (name.clone(), shown.example(shown.value.clone())));
        content(body.content.values_mut()).examples.extend(shown);
    }
    if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
        let shown = found.answers.iter().map(|(name, shown)| (name.clone(), shown.example(wrap(&shown.value))));
        content(answer.content.values_mut()).examples.extend(shown);
    }
}

fn content<'a>(mut all: impl Iterator<Item = &'a mut RefOr<Content>>) -> &'a mut Content {
    match all.next() {
        Some(RefOr::T(content)) => content,
        Some(RefOr::Ref(_)) | None => panic!("what has examples has a content"),
    }
}

fn success(data: &Value) -> Value {
    json!({"status": "SUCCESS", "code": code::SUCCESS, "label": "", "errorMessage": "", "data": data})
}
