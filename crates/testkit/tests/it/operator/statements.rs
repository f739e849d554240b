//! Statements: a month's orders with their fees and sums, in both forms, to their last record or not at all.

use std::time::Instant;

use countersign::app::Actor;
use countersign::app::rules::{Making, RuleChange, change};
use countersign_domain::ids::ApplicationNo;
use countersign_domain::rules::{Markup, RuleAsk};
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::contract::ClaimKey;
use http_body_util::BodyExt as _;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::listener::{DAY_MS, House, START};
use super::payment_orders::made_in;

/// Makes a rule of a sub-account, in force at once.
pub async fn rule(house: &House, institution: &str, sub: &str, (r, f): (&str, &str)) {
    let owner = house.app.store.merchant(institution).await.expect("reads").expect("is there");
    let exact = |text| Decimal::from_str_exact(text).expect("a number");
    let now = house.app.clock.now();
    let markup = Markup::new(exact(r), exact(f)).expect("within bounds");
    let wanted = RuleChange {
        making: Making::Upgrade,
        sub_merchant_id: sub.to_owned(),
        ask: RuleAsk { markup, effective_at: now, due_at: None },
    };
    let nonce = format!("{sub}.{r}.{f}");
    let claim = ClaimKey { tenant: owner.tenant, application: ApplicationNo(1), nonce, stamped_at: now };
    let actor = Actor {
        name: "application:app_1".to_owned(),
        source: String::new(),
        request_id: "req".to_owned(),
        right: None,
    };
    change(&house.app, &owner, &wanted, &claim, &actor).await.expect("it is made");
}

/// Makes an order and pays it; its number.
pub async fn paid(house: &House, by: (&str, &str), trade_no: &str, of: (&str, &str)) -> String {
    let id = made_in(house, by, trade_no, of).await;
    house.patch(&format!("/payment-orders/{id}"), json!({"status": "PAID"})).await.ok();
    id
}

/// An institution with two sub-accounts that each have an application; their ClientIds, the institution's first.
pub async fn bank(house: &House) -> [String; 3] {
    house.post("/institutions", json!({"name": "B", "merchant_id": "bank"})).await.ok();
    let mut clients = Vec::new();
    for id in ["bank", "s1", "s2"] {
        if id != "bank" {
            let body = json!({"name": "S", "sub_merchant_id": id});
            house.post("/institutions/bank/sub-accounts", body).await.ok();
        }
        let made = house.post(&format!("/merchants/{id}/applications"), json!({"name": "A"})).await.ok();
        clients.push(made.text_of("client_id"));
    }
    clients.try_into().expect("three")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

const JANUARY: &str = "month=2026-01";
const HEAD: &str = "record,prepayId,merchantTradeNo,merchant_id,paid_at,currency,amount,actualAmount,r_fee,f_fee,f_fee_currency,\
    config_id,version_no,r_markup,f_markup,worked_sum,orders";

/// Four orders of January, one of February, and one that is not paid. Their numbers.
async fn busy(house: &House) -> Vec<String> {
    let [of_bank, s1, s2] = bank(house).await;
    rule(house, "bank", "s1", ("0.3", "1")).await;
    let mut ids = Vec::new();
    ids.push(paid(house, ("s1", &s1), "-1", ("10.5", "GT")).await);
    house.app.clock.advance_ms(1_000);
    ids.push(paid(house, ("s2", &s2), "T-2", ("2", "USDT")).await);
    ids.push(paid(house, ("bank", &of_bank), "T-3", ("7", "USDT")).await);
    house.app.clock.advance_ms(30 * DAY_MS + DAY_MS - 1_001);
    ids.push(paid(house, ("s1", &s1), "T-4", ("0.0005", "GT")).await);
    house.app.clock.advance_ms(1);
    ids.push(paid(house, ("s1", &s1), "T-5", ("100", "GT")).await);
    made_in(house, ("s1", &s1), "T-6", ("100", "GT")).await;
    ids
}

#[tokio::test]
async fn a_statement_lists_a_month_by_number_and_adds_it_up() {
    let house = House::open().await;
    let ids = busy(&house).await;
    house.app.clock.advance_ms(60_000);
    house.app.settled.believe(Instant::now(), house.app.clock.now());
    let answer = house.get(&format!("/statements?merchant_id=bank&{JANUARY}&format=jsonl")).await.ok();
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    assert_eq!(answer.headers["content-disposition"], "attachment; filename=\"statement-bank-2026-01.jsonl\"");
    let found = lines(&answer.text);
    let config_id = found[0]["order"]["config_id"].clone();
    assert!(config_id.as_str().is_some_and(|id| id.starts_with("cfg_")), "{}", found[0]);
    let first = json!({"order": {"prepayId": ids[0], "merchantTradeNo": "-1", "merchant_id": "s1",
        "paid_at": "2026-01-01T00:00:00.000Z", "currency": "GT", "amount": "10.5", "actualAmount": "10.5", "r_fee": "0.0315",
        "f_fee": "1", "f_fee_currency": "USDT", "config_id": config_id, "version_no": 1, "r_markup": 0.3, "f_markup": 1,
        "worked_sum": "10.5 GT x 0.3 / 100 = 0.0315 GT; plus 1 USDT fixed"}});
    assert_eq!(found[0], first);
    let without_rule = &found[1]["order"];
    assert_eq!((&without_rule["r_fee"], &without_rule["config_id"]), (&json!("0"), &Value::Null));
    let without_fees = &found[2]["order"];
    assert_eq!((&without_fees["merchant_id"], &without_fees["r_fee"]), (&json!("bank"), &Value::Null));
    assert_eq!(found[3]["order"]["prepayId"], ids[3].as_str());
    let sums = |merchant_id: Option<&str>, currency, orders, amount, r_fee, f_fee| {
        let mut sums = json!({"currency": currency, "orders": orders, "amount": amount, "actualAmount": amount, "r_fee": r_fee, "f_fee": f_fee});
        if let Some(merchant_id) = merchant_id {
            sums["merchant_id"] = json!(merchant_id);
        }
        sums
    };
    assert_eq!(found[4], json!({"account": sums(Some("bank"), "USDT", 1, "7", "0", "0")}));
    assert_eq!(found[5], json!({"account": sums(Some("s1"), "GT", 2, "10.5005", "0.031502", "2")}));
    assert_eq!(found[6], json!({"account": sums(Some("s2"), "USDT", 1, "2", "0", "0")}));
    let totals = json!({"totals": {"merchant_id": "bank", "month": "2026-01", "time_zone": "UTC", "from": "2026-01-01T00:00:00.000Z",
        "until": "2026-02-01T00:00:00.000Z", "complete": true, "orders": 4, "f_fee": "2",
        "currencies": [sums(None, "GT", 2, "10.5005", "0.031502", "2"), sums(None, "USDT", 2, "9", "0", "0")]}});
    assert_eq!((&found[7], found.len()), (&totals, 8));
}

#[tokio::test]
async fn what_was_paid_long_after_it_was_made_is_in_the_month_of_its_payment() {
    let house = House::open().await;
    let [_, s1, _] = bank(&house).await;
    let slow = made_in(&house, ("s1", &s1), "T-1", ("1", "USDT")).await;
    house.patch(&format!("/payment-orders/{slow}"), json!({"status": "PROCESS"})).await.ok();
    let quick = paid(&house, ("s1", &s1), "T-2", ("2", "USDT")).await;
    house.app.clock.advance_ms(40 * DAY_MS);
    let last = paid(&house, ("s1", &s1), "T-3", ("4", "USDT")).await;
    house.patch(&format!("/payment-orders/{slow}"), json!({"status": "PAID"})).await.ok();
    house.app.clock.advance_ms(1);
    for merchant in ["s1", "bank"] {
        let january = house.get(&format!("/statements?merchant_id={merchant}&{JANUARY}&format=jsonl")).await.ok();
        let february = house.get(&format!("/statements?merchant_id={merchant}&month=2026-02&format=jsonl")).await.ok();
        let orders = |text: &str| -> Vec<Value> {
            lines(text).into_iter().filter_map(|line| line["order"].get("prepayId").cloned()).collect()
        };
        assert_eq!(orders(&january.text), [json!(quick)], "{}", january.text);
        assert_eq!(orders(&february.text), [json!(slow), json!(last)], "{}", february.text);
    }
}

#[tokio::test]
async fn the_same_statement_is_a_table_for_spreadsheets() {
    let house = House::open().await;
    let ids = busy(&house).await;
    let answer = house.get(&format!("/statements?merchant_id=s1&{JANUARY}")).await.ok();
    assert_eq!(answer.headers["content-type"], "text/csv; charset=utf-8; header=present");
    let config_id = answer.text.split(',').find(|field| field.starts_with("cfg_")).expect("a rule");
    let sum = |of: &str, rest: &str| format!("{of} GT x 0.3 / 100 = {rest}; plus 1 USDT fixed");
    let expected = [
        HEAD.to_owned(),
        format!(
            "order,{},'-1,s1,2026-01-01T00:00:00.000Z,GT,10.5,10.5,0.0315,1,USDT,{config_id},1,0.3,1,{},1",
            ids[0],
            sum("10.5", "0.0315 GT")
        ),
        format!(
            "order,{},T-4,s1,2026-01-31T23:59:59.999Z,GT,0.0005,0.0005,0.000002,1,USDT,{config_id},1,0.3,1,\"{}\",1",
            ids[3],
            sum("0.0005", "0.0000015 GT, rounded half up to 6 decimals: 0.000002 GT")
        ),
        "account,,,s1,,GT,10.5005,10.5005,0.031502,2,USDT,,,,,,2".to_owned(),
        "currency,,,,,GT,10.5005,10.5005,0.031502,2,USDT,,,,,,2".to_owned(),
        // The month ended this very instant: what was paid in it may still be on its way to the store.
        "incomplete,,,s1,2026-02-01T00:00:00.000Z,,,,,2,USDT,,,,,,2".to_owned(),
        String::new(),
    ];
    assert_eq!(answer.text, expected.join("\r\n"));
    let february = house.get("/statements?merchant_id=s1&month=2026-02&format=csv").await.ok().text;
    assert!(february.ends_with("incomplete,,,s1,2026-02-01T00:00:00.000Z,,,,,0,USDT,,,,,,0\r\n"), "{february}");
    house.app.clock.advance_ms(1);
    let february = house.get("/statements?merchant_id=s1&month=2026-02&format=csv").await.ok().text;
    assert!(february.contains(&format!("order,{},T-5,", ids[4])) && !february.contains("T-6"), "{february}");
    let december = house.get("/statements?merchant_id=s1&month=2025-12").await.ok().text;
    assert_eq!(december, format!("{HEAD}\r\ncomplete,,,s1,2026-01-01T00:00:00.000Z,,,,,0,USDT,,,,,,0\r\n"));
}

#[tokio::test]
async fn what_is_no_statement_is_refused_before_anything_is_sent() {
    let house = House::open().await;
    bank(&house).await;
    for (query, status, code, word) in [
        ("", 400, "400001", "merchant_id"),
        ("?merchant_id=bank", 400, "400001", "month"),
        ("?merchant_id=bank&month=2026-13", 400, "400001", "month"),
        ("?merchant_id=bank&month=January", 400, "400001", "month"),
        ("?merchant_id=bank&month=1969-12", 400, "400001", "from 1970-01 to 9998-12"),
        ("?merchant_id=bank&month=9999-12", 400, "400001", "from 1970-01 to 9998-12"),
        ("?merchant_id=bank&month=2026-02", 400, "400001", "has not begun"),
        ("?merchant_id=bank&month=2026-01&format=xls", 400, "400001", "format"),
        ("?merchant_id=nobody&month=2026-01", 404, "400404", "nobody"),
    ] {
        house.get(&format!("/statements{query}")).await.refused(status, code, word);
    }
    assert_eq!(house.app.clock.now(), UnixMillis(START.0));
}

#[tokio::test]
async fn a_statement_that_breaks_off_has_no_last_record() {
    let house = House::open().await;
    busy(&house).await;
    let ask = || house.request("GET", &format!("/statements?merchant_id=bank&{JANUARY}&format=jsonl"), None, &[]);
    let mut body = house.router.clone().oneshot(ask()).await.expect("answers").into_body();
    let first = body.frame().await.expect("a part").expect("it is whole").into_data().expect("data");
    assert_eq!(lines(&String::from_utf8_lossy(&first)).len(), 4, "the orders");
    house.take_store_away().await;
    assert!(body.frame().await.expect("something comes").is_err(), "the rest does not come");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn statements_have_so_many_places_and_give_them_back() {
    let house = House::open().await;
    bank(&house).await;
    let path = format!("/statements?merchant_id=bank&{JANUARY}");
    let begin = async || {
        let answer = house.router.clone().oneshot(house.request("GET", &path, None, &[])).await.expect("answers");
        assert_eq!(answer.status().as_u16(), 200);
        answer
    };
    let mut under_way = Vec::new();
    for _ in 0..4 {
        under_way.push(begin().await);
    }
    house.get(&path).await.refused(503, "300503", "4 statements");
    under_way.pop();
    house.get(&path).await.ok();
    house.get(&path).await.ok();
    under_way.push(begin().await);
    house.get(&path).await.refused(503, "300503", "4 statements");
}
