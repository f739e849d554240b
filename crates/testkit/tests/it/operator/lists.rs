//! Every list by cursor, limit and filter: one judgement for all of them. The tables are held against the API's document, so that a new list
//! or a new filter cannot be left out.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use countersign::operator::BASE;
use countersign_store::Store as _;
use serde_json::{Value, json};

use super::listener::{Answer, House, START, all_pages};
use super::payment_orders::made;
use super::{records, repeats};

/// A list that is paged.
struct List {
    /// As the document has it, under the base.
    path: &'static str,
    /// What is asked for.
    ask: &'static str,
    /// Lists of one form cannot tell each other's cursors from their own.
    form: &'static str,
    /// A cursor of this form that names nothing, beyond everything in the list's order or before it.
    nowhere: &'static str,
    /// Whether everything comes after that, or nothing.
    is_before_all: bool,
}

const fn list(path: &'static str, form: &'static str, nowhere: &'static str, is_before_all: bool) -> List {
    List { path, ask: path, form, nowhere, is_before_all }
}

const LISTS: [List; 14] = [
    list("/institutions", "m", "m9223372036854775807", false),
    list("/merchants", "m", "m9223372036854775807", false),
    List {
        ask: "/institutions/i/sub-accounts",
        ..list("/institutions/{merchant_id}/sub-accounts", "m", "m9223372036854775807", false)
    },
    list("/applications", "a", "a9223372036854775807", false),
    list("/convert-orders", "number", "999999999999999999", true),
    list("/payment-orders", "number", "999999999999999999000000", true),
    list("/rates", "pair", "ZZZ_ZZY", false),
    list("/events", "e", "e9223372036854775807", true),
    list("/redeliveries", "redelivery", "rdl_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", true),
    List {
        ask: "/fee-rules?sub_merchant_id=s",
        ..list(
            "/fee-rules",
            "five numbers",
            "OF.9223372036854775807.9223372036854775807.9223372036854775807.1893456000000",
            true,
        )
    },
    list("/audit", "three numbers", "9999999999999.1.1", true),
    list("/audit/heads", "h", "h9223372036854775807", false),
    list("/audit/lines", "two numbers", "9223372036854775807.1", false),
    list("/tokens", "token", "tok_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", false),
];

/// Lists that come whole.
const WHOLE: [&str; 3] = ["/applications/{client_id}/secrets", "/nodes", "/retention"];

/// Bounded by `limit`, and not paged.
const BOUNDED: [&str; 2] = ["/callbacks/failing", "/events/dead-causes"];

const MALFORMED: (u16, &str) = (400, "400001");
const NO_AMOUNT: (u16, &str) = (400, "400621");
const NOT_FOUND: (u16, &str) = (404, "400404");
const NO_SUB_ACCOUNT: (u16, &str) = (404, "400702");

/// What a filter makes of a well-formed value that nothing has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// It has a fixed set of values, or an order: there is no such value.
    Never,
    /// It names somebody who is not there.
    NotFound,
    /// The same, or somebody who is no sub-account.
    NoSubAccount,
    /// It is searched for.
    Empty,
}

/// List, filter, a malformed value, and a well-formed one that nothing has.
const FILTERS: [(&str, &str, &str, &str, Unknown); 29] = [
    ("/merchants", "kind", "bank", "", Unknown::Never),
    ("/applications", "merchant_id", "a%20b", "nobody", Unknown::NotFound),
    ("/applications", "callback_enabled", "1", "", Unknown::Never),
    ("/convert-orders", "state", "2", "", Unknown::Never),
    ("/convert-orders", "status", "2", "", Unknown::Never),
    ("/convert-orders", "merchant_id", "a%20b", "nobody", Unknown::NotFound),
    ("/payment-orders", "state", "paid", "", Unknown::Never),
    ("/payment-orders", "status", "paid", "", Unknown::Never),
    ("/payment-orders", "merchant_id", "a%20b", "nobody", Unknown::NotFound),
    ("/payment-orders", "merchantTradeNo", "a%20b", "nothing", Unknown::Empty),
    ("/payment-orders", "from", "yesterday", "", Unknown::Never),
    ("/payment-orders", "to", "2026-01-01", "", Unknown::Never),
    ("/payment-orders", "amount_from", "x", "", Unknown::Never),
    ("/payment-orders", "amount_to", "1e3", "", Unknown::Never),
    ("/events", "client_id", "a%20b", "app_nobody", Unknown::Empty),
    ("/events", "bizId", "a%07", "nothing", Unknown::Empty),
    ("/events", "state", "lost", "", Unknown::Never),
    ("/events/dead-causes", "client_id", "a%20b", "app_nobody", Unknown::NotFound),
    ("/redeliveries", "client_id", "a%20b", "app_nobody", Unknown::Empty),
    ("/fee-rules", "sub_merchant_id", "a%20b", "nobody", Unknown::NoSubAccount),
    ("/events/dead-causes", "from", "yesterday", "", Unknown::Never),
    ("/events/dead-causes", "to", "yesterday", "", Unknown::Never),
    ("/audit", "merchant_id", "a%20b", "nobody", Unknown::NotFound),
    ("/audit", "actor", "a%07", "token:tok_nobody", Unknown::Empty),
    ("/audit", "action", "a%07", "nothing.done", Unknown::Empty),
    ("/audit", "subject", "a%07", "nothing", Unknown::Empty),
    ("/audit", "request_id", "a%07", "nothing", Unknown::Empty),
    ("/audit", "from", "yesterday", "", Unknown::Never),
    ("/audit", "to", "yesterday", "", Unknown::Never),
];

/// `ask` with one more parameter.
fn with(ask: &str, parameter: &str) -> String {
    format!("{ask}{}{parameter}", if ask.contains('?') { '&' } else { '?' })
}

/// Reads: path under the base, names of the parameters of its query, the name of what it answers.
async fn reads(house: &House) -> Vec<(String, BTreeSet<String>, String)> {
    let request = Request::builder()
        .uri("/openapi/operator.json")
        .header("host", "localhost")
        .body(Body::empty())
        .expect("a request");
    let document = house.send(request).await.ok().json();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let (Some(under), Some(read)) = (path.strip_prefix(BASE), item.get("get")) else { continue };
        let of_query = read["parameters"].as_array().into_iter().flatten().filter(|known| known["in"] == "query");
        let names = of_query.map(|known| known["name"].as_str().expect("a name").to_owned()).collect();
        let answer = &read["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
        found.push((under.to_owned(), names, answer.as_str().unwrap_or("").to_owned()));
    }
    found
}

/// At least three of everything.
async fn full() -> House {
    let house = House::open().await;
    for id in ["i", "j", "k"] {
        house.post("/institutions", json!({"name": "I", "merchant_id": id})).await.ok();
    }
    for id in ["s", "t", "u"] {
        house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": id})).await.ok();
    }
    house.post("/merchants/i/applications", json!({"name": "A"})).await.ok();
    for n in 1..=3 {
        records::upgrade(&house, &n.to_string(), START.0, None).await;
        house.app.clock.advance_ms(1_000);
    }
    let client_id = house.application("m", None).await;
    for n in 1..=3 {
        repeats::running(&house).await;
        made(&house, ("m", &client_id), &format!("T-{n}"), "10").await;
        let order =
            json!({"sellCurrency": "BTC", "buyCurrency": "USDT", "sellAmount": "1", "buyAmount": "1", "rate": 1});
        house.post("/merchants/m/convert-orders", order).await.ok();
        let rate = json!({"rate": "2"}).to_string();
        house.send(house.request("PUT", &format!("/rates/GT{n}_USDT"), Some(&rate), &[])).await.ok();
        house.post("/tokens", json!({"name": "t", "role": "viewer"})).await.ok();
        house.app.clock.advance_ms(1_000);
    }
    house
}

/// What is asked for is this refusal, whose sentence has `word`.
async fn refused(house: &House, path: &str, (status, code): (u16, &str), word: &str) {
    let answer = house.get(path).await;
    let problem = answer.json();
    let detail = problem["detail"].as_str().unwrap_or("");
    let found = (answer.status, problem["code"].as_str(), detail.contains(word));
    assert_eq!(found, (status, Some(code), true), "{path}: {}", answer.text);
}

fn items(answer: Answer) -> Vec<Value> {
    answer.ok().json()["items"].as_array().expect("items").clone()
}

#[tokio::test]
async fn every_list_and_every_filter_of_the_document_is_in_these_tables() {
    let house = House::open().await;
    let reads = reads(&house).await;
    let of = |wanted: &dyn Fn(&BTreeSet<String>, &str) -> bool| -> BTreeSet<String> {
        reads.iter().filter(|(_, names, answer)| wanted(names, answer)).map(|(path, ..)| path.clone()).collect()
    };
    let set = |paths: &[&str]| -> BTreeSet<String> { paths.iter().map(|path| (*path).to_owned()).collect() };
    let paged = LISTS.map(|list| list.path);
    assert_eq!(of(&|names, _| names.contains("after")), set(&paged));
    assert_eq!(of(&|_, answer| answer.contains("/Page_")), set(&[&paged[..], &WHOLE].concat()));
    assert_eq!(of(&|names, _| names.contains("limit")), set(&[&paged[..], &BOUNDED].concat()));

    let lists = reads.iter().filter(|(_, names, _)| names.contains("limit"));
    let filters: BTreeSet<(&str, &str)> = lists
        .flat_map(|(path, names, _)| names.iter().map(move |name| (path.as_str(), name.as_str())))
        .filter(|(_, name)| !["limit", "after"].contains(name))
        .collect();
    assert_eq!(filters, FILTERS.iter().map(|(path, name, ..)| (*path, *name)).collect());
}

#[tokio::test]
async fn a_cursor_that_is_no_next_of_this_list_is_refused_by_name() {
    let house = full().await;
    let long = ["9", "a"].map(|one| one.repeat(5_000));
    for list in &LISTS {
        let malformed = ["zzz", "", "-1", "+1", "%2B1", "1%20", "007", "%00", "1%00", "%ff", "%zz", "1&after=1"];
        let foreign = LISTS.iter().filter(|other| other.form != list.form).map(|other| other.nowhere);
        for after in malformed.into_iter().chain(long.each_ref().map(String::as_str)).chain(foreign) {
            refused(&house, &with(list.ask, &format!("after={after}")), MALFORMED, "field after: ").await;
        }
        refused(&house, &with(list.ask, "after"), MALFORMED, "field after: must be `next` of the page before").await;
    }
}

#[tokio::test]
async fn a_limit_is_a_number_from_1_to_500_on_every_list() {
    let house = full().await;
    for ask in LISTS.iter().map(|list| list.ask).chain(BOUNDED) {
        for limit in ["0", "501", "%2B5", "abc", "", "-1", "1.0", "%00", "%ff", "1&limit=1"] {
            refused(&house, &with(ask, &format!("limit={limit}")), MALFORMED, "field limit: ").await;
        }
        house.get(&with(ask, "limit=500")).await.ok();
    }
}

#[tokio::test]
async fn every_list_gives_every_item_once_and_in_order_whatever_the_page() {
    let house = full().await;
    for list in &LISTS {
        let whole = items(house.get(&with(list.ask, "limit=500")).await);
        assert!(whole.len() >= 3, "{}: {whole:?}", list.path);
        let distinct: BTreeSet<String> = whole.iter().map(Value::to_string).collect();
        assert_eq!(distinct.len(), whole.len(), "{}: {whole:?}", list.path);
        for limit in [1, 2] {
            assert_eq!(all_pages(&house, list.ask, limit).await, whole, "{} by {limit}", list.path);
        }
    }
}

#[tokio::test]
async fn a_list_goes_on_from_the_place_of_a_cursor_that_names_nothing() {
    let house = full().await;
    for list in &LISTS {
        let first = house.get(&with(list.ask, "limit=1")).await.ok().json()["next"].as_str().unwrap_or("").to_owned();
        // Whose versions they are stands first in the cursor.
        let nowhere = list.nowhere.replace("OF", first.split('.').next().unwrap_or(""));
        let rest = items(house.get(&with(list.ask, &format!("limit=500&after={nowhere}"))).await);
        let expected =
            if list.is_before_all { items(house.get(&with(list.ask, "limit=500")).await) } else { Vec::new() };
        assert_eq!(rest, expected, "{}", list.path);
    }
}

#[tokio::test]
async fn a_cursor_of_another_sub_accounts_versions_is_refused() {
    let house = full().await;
    let next =
        house.get("/fee-rules?sub_merchant_id=s&limit=1").await.ok().json()["next"].as_str().expect("more").to_owned();
    house.get(&format!("/fee-rules?sub_merchant_id=s&limit=1&after={next}")).await.ok();
    let other = format!("/fee-rules?sub_merchant_id=t&limit=1&after={next}");
    refused(&house, &other, MALFORMED, "field after: must be `next` of a page of the same sub_merchant_id").await;
}

#[tokio::test]
async fn a_malformed_filter_is_refused_by_name_and_one_that_names_nobody_is_not_found() {
    let house = full().await;
    for (path, name, malformed, unknown, what) in &FILTERS {
        for value in [malformed, "", "%00", "%ff", "%zz"] {
            let is_read_as_amount = name.starts_with("amount") && [malformed, ""].contains(&value);
            let wanted = if is_read_as_amount { NO_AMOUNT } else { MALFORMED };
            refused(&house, &format!("{path}?{name}={value}"), wanted, &format!("field {name}: ")).await;
        }
        match what {
            Unknown::Never => {}
            Unknown::NoSubAccount => {
                for known in [*unknown, "i", "m"] {
                    refused(&house, &format!("{path}?{name}={known}"), NO_SUB_ACCOUNT, "sub_merchant_id").await;
                }
            }
            Unknown::NotFound => refused(&house, &format!("{path}?{name}={unknown}"), NOT_FOUND, unknown).await,
            Unknown::Empty => assert!(items(house.get(&format!("{path}?{name}={unknown}")).await).is_empty(), "{path}"),
        }
    }
}

#[tokio::test]
async fn a_range_that_can_hold_nothing_is_refused_by_its_end() {
    let house = full().await;
    let (one, two) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    for path in ["/payment-orders", "/events/dead-causes"] {
        house.get(&format!("{path}?from={one}&to={two}")).await.ok();
        for (from, to) in [(one, one), (two, one)] {
            refused(&house, &format!("{path}?from={from}&to={to}"), MALFORMED, "field to: must be later").await;
        }
    }
    let found = items(house.get("/payment-orders?amount_from=10&amount_to=10.000").await);
    assert_eq!(found.len(), 3, "both ends are in");
    let nothing = "/payment-orders?amount_from=10.01&amount_to=10";
    refused(&house, nothing, MALFORMED, "field amount_to: must not be less than amount_from").await;
}

#[tokio::test]
async fn a_list_that_comes_whole_has_no_limit_and_no_cursor() {
    let house = full().await;
    let client_id = all_pages(&house, "/applications", 50).await[0]["client_id"].as_str().expect("an id").to_owned();
    for _ in 0..2 {
        house.post(&format!("/applications/{client_id}/secrets"), json!({})).await.ok();
    }
    for path in WHOLE.map(|path| path.replace("{client_id}", &client_id)) {
        let page = house.get(&path).await.ok().json();
        // A node alone, and none where they share a database and no heart beats.
        let few = match path.as_str() {
            "/nodes" => usize::from(!house.app.store.is_shared()),
            "/retention" => 4,
            _ => 3,
        };
        assert_eq!(
            (page["items"].as_array().map(Vec::len), &page["next"]),
            (Some(few), &Value::Null),
            "{path}: {page}"
        );
        assert_eq!(house.get(&format!("{path}?limit=1&after=zzz")).await.ok().json(), page);
    }
}
