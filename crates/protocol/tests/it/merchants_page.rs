//! `docs/PROTOCOL.md` says what the code does: its tables, names and worked example are compared with the crate.

use std::collections::{BTreeMap, BTreeSet};

use countersign_protocol::callback::CallbackBody;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::{
    Endpoint, RuleStatus, convert, convert_currency, convert_order, convert_order_list, convert_pair, convert_preview,
    events, order_create, order_list, order_native, order_query, rule_list, rule_query, rule_upgrade,
};
use countersign_protocol::exact::Exact;
use countersign_protocol::headers::{Header, Prefixes};
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature, signed_text};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/PROTOCOL.md");

/// The cells of every table row of the page.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    PAGE.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|row| row.split(" | ").map(str::trim).collect())
}

#[test]
fn the_table_of_codes_is_the_table_in_the_code() {
    let mut written = BTreeMap::new();
    for row in rows() {
        if let [http, code, label, when] = row[..]
            && code.len() == 6
            && code.bytes().all(|b| b.is_ascii_digit())
        {
            assert!(!when.is_empty(), "{code} says when");
            let row = (http.to_owned(), label.to_owned());
            assert_eq!(written.insert(code.to_owned(), row), None, "{code} is there once");
        }
    }
    let known: BTreeMap<_, _> = Code::ALL
        .iter()
        .map(|code| (code.code().to_owned(), (code.http_status().to_string(), code.label().to_owned())))
        .collect();
    assert_eq!(written, known);
}

#[test]
fn every_endpoint_has_a_row_and_a_section() {
    for endpoint in Endpoint::ALL {
        assert!(PAGE.contains(&format!("\n### {endpoint}\n")), "{endpoint} has a section");
        let signed = if endpoint.is_signed() { "yes" } else { "no" };
        let found = rows().any(|row| row.get(1) == Some(&format!("`{endpoint}`").as_str()) && row[2] == signed);
        assert!(found, "{endpoint} has its row in the table of operations");
    }
}

#[test]
fn every_header_has_its_place() {
    let prefixes = Prefixes::new(&["X-Service-".to_owned()]).expect("a good prefix");
    for header in [
        Header::ClientId,
        Header::ClientIdAlias,
        Header::Timestamp,
        Header::Nonce,
        Header::Signature,
        Header::SignatureNext,
        Header::MerchantId,
        Header::OnBehalfOf,
        Header::RequestId,
        Header::EventId,
        Header::Attempt,
        Header::Sequence,
    ] {
        let name = prefixes.first().display(header);
        assert!(PAGE.contains(&format!("`{name}`")), "{name} is explained");
    }
}

/// The JSON examples of one section.
fn examples(section: &str) -> Vec<Value> {
    let from = PAGE.find(&format!("\n### {section}\n")).expect("the section is there") + 1;
    let section = PAGE[from..].split("\n### ").next().expect("a section has a text");
    let blocks = section.split("```json\n").skip(1);
    blocks
        .map(|block| block.split("```").next().expect("a block ends"))
        .map(|text| serde_json::from_str(text).expect("examples are JSON"))
        .collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_examples_are_answers_of_the_types_in_the_code() {
    let upgrade: rule_upgrade::Response = example(Endpoint::RuleUpgrade);
    assert_eq!((upgrade.status, upgrade.version_no), (RuleStatus::PendingEffective, 2));
    let query: rule_query::Response = example(Endpoint::RuleQuery);
    assert!(query.has_markup);
    let order: convert_order::Response = example(Endpoint::ConvertOrder);
    assert_eq!(order.rate, Exact::parse("4.6").expect("a number"));
    let list = convert_order_list::Response { orders: vec![order], next: None };
    let list = serde_json::to_value(&list).expect("answers serialize");
    let shown = &examples(&Endpoint::ConvertOrderList.to_string())[0];
    assert_eq!((keys(shown), &shown["next"]), (keys(&list), &Value::Null));
    let [listed] = &shown["orders"].as_array().expect("orders")[..] else { panic!("one order: {shown}") };
    assert_eq!(
        (&listed["order_id"], &listed["status"]),
        (&list["orders"][0]["order_id"], &list["orders"][0]["status"])
    );
    let price: convert_preview::Response = example(Endpoint::ConvertPreview);
    assert_eq!((price.sell_amount.as_str(), price.buy_amount.as_str()), ("0.044667", "0.999978"));
    let made: convert::Response = example(Endpoint::Convert);
    assert_eq!((made.status, made.rate), (1, price.rate));
    let pairs: convert_pair::Response = read(Endpoint::ConvertPair);
    assert_eq!(pairs[0].pair, "GT_USDT");
    let currencies: convert_currency::Response = read(Endpoint::ConvertCurrency);
    assert!(currencies.is_sorted());
    let made: order_create::Response = example(Endpoint::OrderCreate);
    let native: order_native::Response = example(Endpoint::OrderNative);
    assert_eq!((made.0.order_amount, native.order.terminal_type), ("10.5".to_owned(), None));
    let found: order_query::Response = example(Endpoint::OrderQuery);
    assert_eq!(found.fee.as_ref().expect("it is paid").r_fee, "0.0315");
    let list = order_list::Response { orders: vec![found], next: None };
    let list = serde_json::to_value(&list).expect("answers serialize");
    let shown = &examples(&Endpoint::OrderList.to_string())[0];
    assert_eq!((keys(shown), &shown["next"]), (keys(&list), &Value::Null));
    let [listed] = &shown["orders"].as_array().expect("orders")[..] else { panic!("one order: {shown}") };
    assert_eq!(
        (&listed["prepayId"], &listed["merchantTradeNo"]),
        (&list["orders"][0]["prepayId"], &list["orders"][0]["merchantTradeNo"])
    );
    let events: events::Response = example(Endpoint::Events);
    assert_eq!(events.next, events.events[0].seq);
    let list = rule_list::Response { records: vec![query], total: 41, size: 20, current: 1, pages: 3 };
    let list = serde_json::to_value(&list).expect("answers serialize");
    assert_eq!(keys(&examples(&Endpoint::RuleList.to_string())[0]), keys(&list));
}

/// The first example of an endpoint's section, which is a list.
fn read<T: serde::de::DeserializeOwned>(endpoint: Endpoint) -> T {
    serde_json::from_value(examples(&endpoint.to_string()).swap_remove(0)).expect("a list of answers")
}

/// The first example of an endpoint's section, read as its answer, which must have the same fields and no more.
fn example<T: serde::de::DeserializeOwned + serde::Serialize>(endpoint: Endpoint) -> T {
    let value = examples(&endpoint.to_string()).swap_remove(0);
    let read: T = serde_json::from_value(value.clone()).expect("the example has the fields of the answer");
    assert_eq!(keys(&serde_json::to_value(&read).expect("answers serialize")), keys(&value), "{endpoint}");
    read
}

#[test]
fn the_callback_in_the_example_is_one() {
    let line = PAGE.lines().find(|line| line.starts_with(r#"{"bizType""#)).expect("the callback is there");
    let body: CallbackBody = serde_json::from_str(line).expect("a callback");
    assert_eq!(String::from_utf8_lossy(&body.to_bytes()), line, "the bytes are in the order of sending");
    for key in keys(&serde_json::from_str(line).expect("JSON")) {
        assert!(rows().any(|row| row[0] == format!("`{key}`")), "{key} is explained");
    }
}

#[test]
fn the_callback_in_the_example_tells_of_a_payment_and_its_signatures_can_be_recomputed() {
    let line = PAGE.lines().find(|line| line.starts_with(r#"{"bizType""#)).expect("the callback is there");
    let body: CallbackBody = serde_json::from_str(line).expect("a callback");
    let pulled: events::Response = example(Endpoint::Events);
    let event = &pulled.events[0];
    let told = [&event.biz_type, &event.biz_id, &event.biz_status, &event.client_id, &event.data];
    assert_eq!(told, [&body.biz_type, &body.biz_id, &body.biz_status, &body.client_id, &body.data], "the same event");
    let order: order_query::Response = example(Endpoint::OrderQuery);
    let order = serde_json::to_value(&order).expect("answers serialize");
    let data: Value = serde_json::from_str(&body.data).expect("JSON as text");
    let names = "`merchantTradeNo`, `prepayId`, `currency`, `orderAmount`, `actualAmount`, `status`, `createTime`, `transactTime`";
    assert!(PAGE.contains(&format!("its `data` holds {names}")));
    let wanted: serde_json::Map<String, Value> = names
        .split(", ")
        .map(|name| name.trim_matches('`'))
        .map(|name| (name.to_owned(), order[name].clone()))
        .collect();
    assert_eq!((data, body.biz_id.as_str()), (Value::Object(wanted), order["prepayId"].as_str().expect("a number")));

    let sent = |name: &str| {
        let callback = PAGE.split("POST /your/path").nth(1).expect("the callback is there");
        let header = callback.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        header.expect("it has the header").to_owned()
    };
    let (timestamp, nonce) = (sent("X-Service-Timestamp"), sent("X-Service-Nonce"));
    let signed = |secret: &str| {
        let key = SigningKey::new(secret.as_bytes());
        encode_signature(&key.sign(&timestamp, &nonce, line.as_bytes()), Encoding::Hex)
    };
    let second = PAGE.split("With the second secret\n`").nth(1).and_then(|rest| rest.split('`').next());
    for secret in ["demo-secret-not-for-production-0123456789ABCDEFabcdef", second.expect("it is there")] {
        assert!(PAGE.contains(&format!("\n`{}`.", signed(secret))), "{}", signed(secret));
    }
    assert!(PAGE.contains(&format!("body has {} bytes and no line feed", line.len())));
}

#[test]
fn the_worked_example_can_be_recomputed() {
    let cell = |name: &str| {
        let row = rows().find(|row| row[0] == name && row.len() == 2).expect("the row is there");
        row[1].trim_matches('`').to_owned()
    };
    let (secret, timestamp, nonce, body) = (cell("secret"), cell("timestamp"), cell("nonce"), cell("body"));
    let key = SigningKey::new(secret.as_bytes());
    let signature = key.sign(&timestamp, &nonce, body.as_bytes());
    assert_eq!(encode_signature(&signature, Encoding::Hex), cell("signature, hex"));
    assert_eq!(encode_signature(&signature, Encoding::Base64), cell("signature, Base64"));
    let empty = key.sign(&timestamp, &nonce, b"");
    assert_eq!(encode_signature(&empty, Encoding::Hex), cell("with an empty body, hex"));
    let text = signed_text(&timestamp, &nonce, body.as_bytes());
    let hex = text.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let (first, last) = (&hex[..52], &hex[hex.len() - 6..]);
    let length = text.len();
    assert_eq!(cell("signed text"), format!("{length} bytes; as hex it begins `{first}` and ends `{last}"));
    assert!(PAGE.contains(&format!("BODY='{body}'")), "the first call sends the same body");
}

#[test]
fn links_inside_the_page_lead_somewhere() {
    let anchors: BTreeSet<String> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")))
        .map(|title| title.to_lowercase().replace(' ', "-").replace('/', ""))
        .collect();
    for link in PAGE.split("](#").skip(1).map(|rest| rest.split(')').next().expect("a link ends")) {
        assert!(anchors.contains(link), "#{link}");
    }
}
