//! The documents are files, complete, and nothing in them points nowhere.

use std::collections::BTreeSet;
use std::path::PathBuf;

use countersign_protocol::endpoint::{
    Endpoint, RequestRefused, convert, convert_order_list, order_list, payment_order, rule_list,
};
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use countersign_store::contract::Role;
use serde_json::{Value, json};

use super::{Document, EITHER, json as read, merchant, merchant_under, operator, operator_under};
use crate::app::operators::role_name;
use crate::operator::{BASE, doors};

mod conforms;
mod examples;
mod pattern;

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
    assert_eq!(operations(&read(&operator())), expected);
}

#[test]
fn every_endpoint_of_the_merchant_api_is_in_its_document_and_nothing_else_is() {
    let expected: BTreeSet<String> =
        Endpoint::ALL.iter().map(|endpoint| format!("{} {}", endpoint.method(), endpoint.path())).collect();
    assert_eq!(operations(&read(&merchant())), expected);
}

#[test]
fn no_reference_points_nowhere_and_both_documents_are_openapi_3_1() {
    for document in [merchant(), operator()] {
        let document = read(&document);
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
fn every_write_call_that_writes_takes_an_idempotency_key_and_every_call_names_its_refusals() {
    let document = read(&operator());
    let mut keyless = BTreeSet::new();
    for door in doors() {
        let operation = &document["paths"][door.path()][door.method.as_str().to_lowercase()];
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let takes_key = parameters.iter().any(|known| known["name"] == "Idempotency-Key");
        if takes_key != (door.method != "GET") {
            keyless.insert(format!("{} {}", door.method, door.under));
        }
        assert!(parameters.iter().all(|known| known["name"] != "Accept"), "OpenAPI ignores it: {}", door.under);
        for status in ["200", "400", "401", "429", "431", "500", "503"] {
            assert!(operation["responses"].get(status).is_some(), "{} {} lacks {status}", door.method, door.path());
        }
        let refuses_viewers = operation["responses"].get("403").is_some();
        assert_eq!(refuses_viewers, door.role != Role::Viewer, "{} {}", door.method, door.path());
        let names_something = door.under.contains('{');
        assert!(!names_something || operation["responses"].get("404").is_some(), "{} {}", door.method, door.under);
        assert!(door.path().starts_with(BASE));
    }
    assert_eq!(keyless, BTreeSet::from(["POST /audit/verify".to_owned()]));
    for path in BESIDE {
        let path = path.trim_start_matches("GET ");
        let answers = document["paths"][path]["get"]["responses"].as_object().expect("answers");
        let statuses: Vec<&str> = answers.keys().map(String::as_str).collect();
        assert_eq!(statuses, ["200", "400", "431", "500", "503"], "{path}");
    }
}

/// Every answer of a document but those to callbacks: which one, and what is said of it.
fn answers(document: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let answers = operation["responses"].as_object().expect("answers");
            found.extend(answers.iter().map(|(status, answer)| (format!("{method} {path} {status}"), answer)));
        }
    }
    found
}

#[test]
fn every_answer_tells_the_headers_that_it_has() {
    for (document, is_operator) in [(merchant(), false), (operator(), true)] {
        let document = read(&document);
        let scheme = document["components"]["headers"]["Authenticate"]["description"].as_str().expect("a text");
        assert!(scheme.starts_with(if is_operator { "`Bearer`" } else { "`Signature`" }), "{scheme}");
        for (which, answer) in answers(&document) {
            let has = |name: &str| answer["headers"].get(name).is_some();
            let is = |status: &str| which.ends_with(status);
            assert!(has("X-Service-Request-Id"), "{which}");
            assert_eq!(has("Retry-After"), is("429") || is("503"), "{which}");
            assert_eq!(has("WWW-Authenticate"), is("401"), "{which}");
        }
    }
}

#[test]
fn every_operation_says_who_is_let_in_and_where_it_is_called() {
    for document in [merchant(), operator()] {
        let document = read(&document);
        assert_eq!(document["servers"], json!([{"url": "/"}]));
        let schemes = document["components"]["securitySchemes"].as_object().expect("schemes");
        let hooks = document["webhooks"].as_object().into_iter().flatten();
        for (path, item) in document["paths"].as_object().expect("paths").iter().chain(hooks) {
            for (method, operation) in item.as_object().expect("operations") {
                let own = operation.get("security").or(document.get("security"));
                let ways = own.and_then(Value::as_array).unwrap_or_else(|| panic!("{method} {path}"));
                for name in ways.iter().filter_map(Value::as_object).flat_map(|way| way.keys()) {
                    assert!(schemes.contains_key(name), "{method} {path}: {name}");
                }
            }
        }
    }
    let document = read(&merchant());
    let ways = json!([{"clientId": [], "signature": []}, {"sn": [], "signature": []}]);
    for endpoint in Endpoint::ALL {
        let operation = &document["paths"][endpoint.path()][endpoint.method().to_lowercase()];
        let expected = if endpoint.is_signed() { ways.clone() } else { json!([]) };
        assert_eq!(operation["security"], expected, "{endpoint}");
    }
}

#[test]
fn every_operation_has_a_short_name_and_a_group_that_is_described() {
    for document in [merchant(), operator()] {
        let document = read(&document);
        let listed = document["tags"].as_array().expect("groups").iter();
        let groups: Vec<&str> =
            listed.filter_map(|group| group["description"].as_str().and(group["name"].as_str())).collect();
        let mut used = BTreeSet::new();
        let hooks = document["webhooks"].as_object().into_iter().flatten();
        for (path, item) in document["paths"].as_object().expect("paths").iter().chain(hooks) {
            for (method, operation) in item.as_object().expect("operations") {
                let summary = operation["summary"].as_str().unwrap_or_else(|| panic!("{method} {path}"));
                let is_short = (1..=80).contains(&summary.chars().count()) && !summary.ends_with('.');
                assert!(is_short, "{method} {path}: {summary}");
                let tags: Vec<&str> =
                    operation["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                assert!(matches!(tags[..], [tag] if groups.contains(&tag)), "{method} {path}: {tags:?}");
                used.extend(tags.into_iter().map(str::to_owned));
            }
        }
        assert_eq!(used, groups.into_iter().map(str::to_owned).collect(), "a group of nothing");
    }
}

#[test]
fn a_call_says_which_role_it_needs() {
    let document = read(&operator());
    for door in doors() {
        let operation = &document["paths"][door.path()][door.method.as_str().to_lowercase()];
        let needs = format!("Needs the role `{}`", role_name(door.role));
        assert!(operation["description"].as_str().is_some_and(|about| about.contains(&needs)), "{}", door.under);
    }
}

#[test]
fn the_known_answer_is_that_of_the_protocol_and_of_the_code() {
    let about = merchant().info.description.expect("it explains itself");
    let cell = |name: &str| {
        let row = about.lines().find_map(|line| line.strip_prefix(&format!("| {name} | `"))).expect(name);
        row.trim_end_matches("` |").to_owned()
    };
    let signature = SigningKey::new(cell("secret").as_bytes()).sign(&cell("timestamp"), &cell("nonce"), b"");
    assert_eq!(cell("signature"), encode_signature(&signature, Encoding::Hex));
    assert!(include_str!("../../../../docs/PROTOCOL.md").contains(&cell("signature")));
}

#[test]
fn under_another_prefix_a_document_says_that_one_and_is_the_same_otherwise() {
    for prefix in ["X-Bank-", "Acme-", "X-"] {
        for (document, under) in [(merchant(), merchant_under(prefix)), (operator(), operator_under(prefix))] {
            let (shown, changed) = (read(&document).to_string(), under.to_string());
            assert!(changed.contains(&format!("{prefix}Request-Id")) && !changed.contains("X-Service-"), "{prefix}");
            let renamed = shown.matches("X-Service-").count();
            assert_eq!(changed.len() + renamed * "X-Service-".len(), shown.len() + renamed * prefix.len(), "{prefix}");
        }
    }
}

#[test]
fn a_body_is_required_where_something_in_it_is() {
    let document = read(&operator());
    let mut may_be_absent = BTreeSet::new();
    for door in doors() {
        let body = &document["paths"][door.path()][door.method.as_str().to_lowercase()]["requestBody"];
        let Some(schema) = body["content"]["application/json"]["schema"]["$ref"].as_str() else { continue };
        let is_either = EITHER.iter().any(|name| schema.ends_with(&format!("/{name}")));
        let schema = document.pointer(schema.trim_start_matches('#')).expect("it is there");
        let has_to_be = is_either || schema.get("required").is_some();
        assert_eq!(body["required"] == true, has_to_be, "{} {}", door.method, door.path());
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

type Reads = fn(&[u8]) -> Result<(), RequestRefused>;

/// A schema of a body, how it is read, and one that is taken. The last member names the object that the fields stand in.
const BODIES: [(&str, Reads, &str, &str); 8] = [
    ("RuleListRequest", |body| rule_list::Request::parse(body).map(drop), "{}", ""),
    ("ConvertOrderListRequest", |body| convert_order_list::Request::parse(body).map(drop), "{}", ""),
    ("PaymentOrderListRequest", |body| order_list::Request::parse(body).map(drop), "{}", ""),
    ("ConvertRequest", |body| convert::Request::parse(body).map(drop), CONVERT, ""),
    ("PaymentOrderRequest", |body| payment_order::Request::parse(body).map(drop), ORDER, ""),
    ("PaymentOrderEnv", |body| payment_order::Request::parse(body).map(drop), ORDER, "env"),
    ("PaymentOrderGoods", |body| payment_order::Request::parse(body).map(drop), ORDER, "goods"),
    ("PaymentOrderName", |body| payment_order::Name::parse(body).map(drop), r#"{"prepayId":"1"}"#, ""),
];
const ORDER: &str = r#"{"merchantTradeNo":"T-1","currency":"USDT","orderAmount":"1"}"#;
const CONVERT: &str =
    r#"{"clientReqId":"C-1","quoteId":"Q","sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"1","buyAmount":"2"}"#;

/// Values at the bounds of a schema, and beyond them. Of texts of a form the longest are tried.
fn at_and_beyond(schema: &Value) -> [Vec<Value>; 2] {
    let whole = |bound: &str| schema[bound].as_i64();
    let text = |length: i64| json!("a".repeat(usize::try_from(length).expect("a length")));
    let (mut at, mut beyond) = (Vec::new(), Vec::new());
    at.extend(whole("minimum").into_iter().chain(whole("maximum")).map(Value::from));
    beyond.extend(whole("minimum").map(|least| json!(least - 1)));
    beyond.extend(whole("maximum").map(|most| json!(most + 1)));
    let pattern = schema["pattern"].as_str().filter(|form| form.starts_with("^[A-Za-z0-9_-]"));
    let longest = pattern.and_then(|form| form.trim_end_matches("}$").rsplit(',').next()?.parse().ok());
    for most in whole("maxLength").into_iter().chain(longest) {
        at.push(text(most));
        beyond.push(text(most + 1));
    }
    [at, beyond]
}

#[test]
fn every_bound_of_a_body_that_merchants_send_is_the_one_that_is_checked() {
    let document = read(&merchant());
    let mut held = BTreeSet::new();
    for (schema, parse, body, inside) in BODIES {
        let of_body = &document["components"]["schemas"][schema];
        let of_body = of_body.pointer("/anyOf/0").unwrap_or(of_body);
        for (name, of) in of_body["properties"].as_object().expect("fields") {
            let taken = |value: &Value| {
                let mut body: Value = serde_json::from_str(body).expect("JSON");
                let place = if inside.is_empty() { &mut body } else { &mut body[inside] };
                place[name] = value.clone();
                parse(body.to_string().as_bytes())
            };
            let of = if name == "merchantUserId" {
                &document["components"]["schemas"]["MerchantUserId"]["oneOf"][0]
            } else {
                of
            };
            let [at, beyond] = at_and_beyond(of);
            for value in &at {
                assert_eq!(taken(value), Ok(()), "{schema} {name}");
                held.insert(name.clone());
            }
            for value in beyond {
                let told = taken(&value).expect_err(name).sentence;
                assert!(told.contains(name), "{schema} {name}: {told}");
            }
        }
    }
    let all = [
        "cancelUrl",
        "channelId",
        "clientReqId",
        "createTimeFrom",
        "createTimeTo",
        "goodsDetail",
        "goodsName",
        "limit",
        "merchantTradeNo",
        "merchantUserId",
        "orderExpireTime",
        "pageNum",
        "pageSize",
        "returnUrl",
        "sub_merchant_id",
        "terminalType",
    ];
    assert_eq!(held, all.map(str::to_owned).into());
}

#[test]
fn every_property_of_an_answer_is_required_unless_it_may_be_absent() {
    for (document, which, may_lack) in [
        (merchant(), "PaymentOrder", &[][..]),
        (merchant(), "RuleRecord", &[]),
        (operator(), "Event", &[]),
        (operator(), "Merchant", &["base_rate", "institution_id"]),
    ] {
        let document = read(&document);
        let schema = &document["components"]["schemas"][which];
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().expect("properties").keys().map(String::as_str);
        assert_eq!(required, properties.filter(|name| !may_lack.contains(name)).collect(), "{which}");
    }
    // What is sent may leave fields out.
    let document = read(&merchant());
    let asked = &document["components"]["schemas"]["RuleRequest"];
    assert_eq!(asked["required"], json!(["sub_merchant_id", "r_markup", "effective_date"]));
    assert_eq!(asked["properties"]["f_markup"]["type"], json!(["number", "null"]));
}
