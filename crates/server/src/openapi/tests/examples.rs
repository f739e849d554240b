//! Examples are what their own schemas say, and those of the documentation are among them.

use countersign_protocol::code::Code;
use countersign_protocol::endpoint::Endpoint;
use serde_json::Value;

use super::conforms::complaints;
use super::{merchant, operator, read};

const PROTOCOL: &str = include_str!("../../../../../docs/PROTOCOL.md");

/// Every content of a document that has a schema: where it is, and the content. Those of one callback are among them.
fn contents(document: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for part in ["paths", "webhooks"] {
        for (path, item) in document[part].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().expect("operations") {
                let answers = operation["responses"].as_object().expect("answers");
                let bodies = answers.iter().map(|(status, answer)| (status.as_str(), answer));
                for (which, body) in bodies.chain([("request", &operation["requestBody"])]) {
                    for (kind, content) in body["content"].as_object().into_iter().flatten() {
                        found.push((format!("{method} {path} {which} {kind}"), content));
                    }
                }
            }
        }
    }
    found
}

/// The values of the examples of a content, by their names.
fn shown<'a>(document: &'a Value, content: &'a Value) -> Vec<(&'a str, &'a Value)> {
    let examples = content["examples"].as_object().into_iter().flatten();
    let value = |example: &'a Value| match example["$ref"].as_str() {
        Some(at) => &document.pointer(at.trim_start_matches('#')).expect("it is there")["value"],
        None => &example["value"],
    };
    examples.map(|(name, example)| (name.as_str(), value(example))).collect()
}

#[test]
fn every_example_is_what_its_schema_says() {
    for (document, least) in [(read(&merchant()), 200), (read(&operator()), 500)] {
        let (mut seen, mut wrong) = (0, Vec::new());
        for (which, content) in contents(&document) {
            for (name, value) in shown(&document, content) {
                seen += 1;
                let found = complaints(&document, &content["schema"], value);
                wrong.extend(found.iter().map(|complaint| format!("{which} {name}: {complaint}")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(seen > least, "{seen}");
    }
}

#[test]
fn the_merchant_document_shows_each_request_each_answer_and_each_refusal() {
    let document = read(&merchant());
    for (which, content) in contents(&document) {
        assert!(!shown(&document, content).is_empty(), "{which}");
    }
    let operation = &document["paths"]["/v1/pay/order"]["post"];
    let refusals = operation["responses"].as_object().expect("answers");
    for (status, answer) in refusals.iter().filter(|(status, _)| *status != "200") {
        let examples = answer["content"]["application/json"]["examples"].as_object().expect("examples");
        let told = answer["description"].as_str().expect("a text");
        assert_eq!(examples.len(), told.split(", ").count(), "{status}: {told}");
        for label in examples.keys() {
            let code = Code::ALL.iter().find(|code| code.label() == label).expect("a code");
            assert_eq!(code.http_status().to_string(), *status, "{label}");
        }
    }
}

#[test]
fn an_example_that_is_wrong_is_found() {
    let document = read(&merchant());
    let content = &document["paths"]["/v1/pay/order/query"]["post"]["responses"]["200"]["content"]["application/json"];
    let good = shown(&document, content).swap_remove(0).1.clone();
    assert_eq!(complaints(&document, &content["schema"], &good), Vec::<String>::new());
    let spoil = |at: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(at).expect("it is there") = value;
        complaints(&document, &content["schema"], &bad)
    };
    for (at, value) in [
        ("/code", "000001".into()),
        ("/label", "OK".into()),
        ("/data/status", "DONE".into()),
        ("/data/createTime", "1767225600000".into()),
        ("/data/expireTime", 1.5.into()),
        ("/data/fee", Value::Bool(true)),
        ("/data", Value::Null),
    ] {
        assert!(!spoil(at, value).is_empty(), "{at}");
    }
    let mut more = good.clone();
    more["data"]["goodName"] = "Tea".into();
    assert!(complaints(&document, &content["schema"], &more).iter().any(|found| found.contains("goodName")));
    more["data"].as_object_mut().expect("an object").retain(|name, _| name != "merchantId" && name != "goodName");
    assert!(complaints(&document, &content["schema"], &more).iter().any(|found| found.contains("required")));
}

/// The JSON blocks of a section of the protocol's page.
fn blocks(section: &str) -> impl Iterator<Item = Value> {
    let from = PROTOCOL.find(&format!("\n### {section}\n")).expect("the section is there") + 1;
    let section = PROTOCOL[from..].split("\n### ").next().expect("a section has a text");
    let texts = section.split("```json\n").skip(1).filter_map(|block| block.split("```").next());
    texts.map(|text| serde_json::from_str(text).expect("examples are JSON"))
}

#[test]
fn what_the_page_of_the_protocol_shows_is_shown_here_too() {
    let document = read(&merchant());
    let mut compared = 0;
    for endpoint in Endpoint::ALL {
        let operation = &document["paths"][endpoint.path()][endpoint.method().to_lowercase()];
        let content = &operation["responses"]["200"]["content"]["application/json"];
        let here: Vec<&Value> = shown(&document, content).into_iter().map(|(_, value)| &value["data"]).collect();
        // A page of rules or of orders is shown there with its only record left out.
        let is_whole = |block: &Value| block.get("records").or(block.get("orders")).is_none();
        for block in blocks(&endpoint.to_string()).filter(is_whole) {
            assert!(here.contains(&&block), "{endpoint}: {block}");
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
    let callback = PROTOCOL.lines().find(|line| line.starts_with(r#"{"bizType""#)).expect("the callback is there");
    let hook = &document["webhooks"]["callback"]["post"]["requestBody"]["content"]["application/json"];
    let sent: Value = serde_json::from_str(callback).expect("JSON");
    assert!(shown(&document, hook).iter().any(|(_, value)| **value == sent));
}
