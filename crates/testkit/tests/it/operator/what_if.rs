//! What-ifs: a rule that is not made yet, tried on what was paid; nothing is written.

use countersign_store::Store as _;
use countersign_store::contract::Cursor;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::listener::{Answer, DAY_MS, House};
use super::statements::{bank, paid, rule};

const NDJSON: (&str, &str) = ("accept", "application/x-ndjson");

async fn ask(house: &House, query: &str) -> Answer {
    house.get(&format!("/fee-rules/what-if?{query}")).await
}

/// Five orders on three days, under no rule, 0.3 + 1 and 100 + 0.
async fn five(house: &House) -> Vec<String> {
    let [_, s1, s2] = bank(house).await;
    let mut ids = Vec::new();
    ids.push(paid(house, ("s1", &s1), "T-1", ("10", "GT")).await);
    rule(house, "bank", "s1", ("0.3", "1")).await;
    ids.push(paid(house, ("s1", &s1), "T-2", ("200", "GT")).await);
    house.app.clock.advance_ms(DAY_MS);
    ids.push(paid(house, ("s1", &s1), "T-3", ("5", "USDT")).await);
    house.app.clock.advance_ms(1_000);
    rule(house, "bank", "s1", ("100", "0")).await;
    house.app.clock.advance_ms(DAY_MS);
    ids.push(paid(house, ("s1", &s1), "T-4", ("0.5", "USDT")).await);
    paid(house, ("s2", &s2), "T-1", ("99", "GT")).await;
    house.app.clock.advance_ms(1);
    ids
}

#[tokio::test]
async fn orders_are_shown_as_they_were_and_as_they_would_have_been() {
    let house = House::open().await;
    let ids = five(&house).await;
    let lines = house.audit().await.len();
    let report = ask(&house, "sub_merchant_id=s1&r_markup=1&f_markup=0.5").await.ok().json();
    let change = |old, new, difference| json!({"old": old, "new": new, "difference": difference});
    assert_eq!(
        (&report["orders"], &report["from"], &report["to"]),
        (&json!(4), &Value::Null, &json!("2026-01-03T00:00:01.001Z"))
    );
    assert_eq!(
        (&report["r_markup"], &report["f_markup"], &report["time_zone"]),
        (&json!(1), &json!(0.5), &json!("UTC"))
    );
    assert_eq!(report["f_fee"], change("2", "2", "0"));
    let [gt, usdt] = &report["currencies"].as_array().expect("currencies")[..] else { panic!("two: {report}") };
    assert_eq!((&gt["r_fee"], &gt["f_fee"]), (&change("0.6", "2.1", "1.5"), &change("1", "1", "0")));
    assert_eq!(
        (&gt["orders"], &gt["amount"], &gt["more"], &gt["mixed"]),
        (&json!(2), &json!("210"), &json!(1), &json!(1))
    );
    assert_eq!(usdt["r_fee"], change("0.515", "0.055", "-0.46"));
    assert_eq!((&usdt["more"], &usdt["less"]), (&json!(1), &json!(1)));
    let up = &gt["movers"]["r_up"];
    assert_eq!((&up[0]["prepayId"], &up[0]["by"], &up[1]["prepayId"]), (&json!(ids[1]), &json!("1.4"), &json!(ids[0])));
    assert_eq!(up[0]["worked_sum"], "200 GT x 1 / 100 = 2 GT; plus 0.5 USDT fixed");
    assert_eq!(
        (&up[0]["old"], &up[0]["new"]),
        (&json!({"r_fee": "0.6", "f_fee": "1"}), &json!({"r_fee": "2", "f_fee": "0.5"}))
    );
    assert_eq!(
        (&gt["movers"]["f_down"][0]["by"], &usdt["movers"]["r_down"][0]["by"]),
        (&json!("-0.5"), &json!("-0.495"))
    );
    let losses = &usdt["at_loss"];
    assert_eq!((&losses["orders"], &losses["before"], &losses["not_comparable"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!((&losses["worst"][0]["prepayId"], &losses["worst"][0]["by"]), (&json!(ids[3]), &json!("0.005")));
    assert_eq!((&gt["at_loss"]["orders"], &gt["at_loss"]["not_comparable"]), (&json!(0), &json!(2)));
    let days: Vec<String> = report["days"]
        .as_array()
        .expect("days")
        .iter()
        .map(|d| {
            format!("{} {} {} {} {}", d["day"], d["currency"], d["orders"], d["old"]["r_fee"], d["new"]["r_fee"])
                .replace('"', "")
        })
        .collect();
    assert_eq!(days, ["2026-01-01 GT 2 0.6 2.1", "2026-01-02 USDT 1 0.015 0.05", "2026-01-03 USDT 1 0.5 0.005"]);
    assert_eq!(house.audit().await.len(), lines, "nothing was written");
    let sub = house.app.store.merchant("s1").await.expect("reads").expect("is there");
    let versions =
        house.app.store.rule_versions(sub.tenant, sub.no, Cursor { after: None, limit: 9 }).await.expect("reads");
    assert_eq!(versions.len(), 2);
}

#[tokio::test]
async fn only_what_was_paid_in_the_time_is_tried_and_without_orders_there_is_nothing() {
    let house = House::open().await;
    five(&house).await;
    let between = "sub_merchant_id=s1&r_markup=1&from=2026-01-02T00:00:00Z&to=2026-01-03T00:00:00%2B00:00";
    let report = ask(&house, between).await.ok().json();
    assert_eq!(
        (&report["orders"], &report["from"], &report["f_markup"]),
        (&json!(1), &json!("2026-01-02T00:00:00.000Z"), &json!(0))
    );
    // What is still to be paid is not waited for.
    let ahead = ask(&house, "sub_merchant_id=s1&r_markup=1&to=2027-01-01T00:00:00Z").await.ok().json();
    assert_eq!((&ahead["orders"], &ahead["to"]), (&json!(4), &json!("2026-01-03T00:00:01.001Z")));
    let none = ask(&house, "sub_merchant_id=s1&r_markup=1&to=2026-01-01T00:00:00Z").await.ok().json();
    assert_eq!((&none["orders"], &none["currencies"], &none["days"]), (&json!(0), &json!([]), &json!([])));
}

#[tokio::test]
async fn a_streamed_what_if_says_how_far_it_is_and_ends_with_the_same_report() {
    let house = House::open().await;
    five(&house).await;
    let path = "/fee-rules/what-if?sub_merchant_id=s1&r_markup=1";
    let answer = house.send(house.request("GET", path, None, &[NDJSON])).await.ok();
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [progress, report] = &lines[..] else { panic!("two lines: {}", answer.text) };
    assert_eq!(progress, &json!({"progress": {"orders": 4, "per_mille": 999}}));
    assert_eq!(report["report"], house.get(path).await.ok().json());
}

#[tokio::test]
async fn what_cannot_be_tried_is_refused_in_the_words_of_rules_that_are_made() {
    let house = House::open().await;
    bank(&house).await;
    house.application("m", None).await;
    for (query, status, code, word) in [
        ("", 400, "400001", "sub_merchant_id"),
        ("sub_merchant_id=s1", 400, "400001", "r_markup"),
        ("sub_merchant_id=s1&r_markup=x", 400, "400001", "r_markup"),
        ("sub_merchant_id=s1&r_markup=1e1", 400, "400001", "exponent"),
        (
            "sub_merchant_id=s1&r_markup=100.00000001",
            400,
            "400001",
            "field r_markup: must be from 0 to 100 with at most 8 decimals",
        ),
        ("sub_merchant_id=s1&r_markup=-1", 400, "400001", "field r_markup: must be from 0 to 100"),
        ("sub_merchant_id=s1&r_markup=0.000000001", 400, "400001", "at most 8 decimals"),
        (
            "sub_merchant_id=s1&r_markup=1&f_markup=5000001",
            400,
            "400001",
            "field f_markup: must be from 0 to 5000000 with at most 6 decimals",
        ),
        ("sub_merchant_id=s1&r_markup=1&r_markup=2", 400, "400001", "once"),
        ("sub_merchant_id=s1&r_markup=1&from=yesterday", 400, "400001", "from"),
        (
            "sub_merchant_id=s1&r_markup=1&from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z",
            400,
            "400001",
            "later than from",
        ),
        ("sub_merchant_id=s1&r_markup=1&from=9000-01-01T00:00:00Z", 400, "400001", "field from: must be before now"),
        ("sub_merchant_id=nobody&r_markup=1", 404, "400702", "no sub-account has this sub_merchant_id"),
        ("sub_merchant_id=bank&r_markup=1", 404, "400702", "no sub-account has this sub_merchant_id"),
        ("sub_merchant_id=m&r_markup=1", 404, "400702", "no sub-account has this sub_merchant_id"),
    ] {
        ask(&house, query).await.refused(status, code, word);
    }
}

#[tokio::test]
async fn two_what_ifs_are_under_way_at_once_and_a_caller_who_is_gone_frees_a_place() {
    let house = House::open().await;
    bank(&house).await;
    let path = "/fee-rules/what-if?sub_merchant_id=s1&r_markup=1";
    let begin =
        async || house.router.clone().oneshot(house.request("GET", path, None, &[NDJSON])).await.expect("answers");
    let (first, second) = (begin().await, begin().await);
    house.get(path).await.refused(503, "300503", "2 what-ifs");
    drop(first);
    house.get(path).await.ok();
    second.into_body().collect().await.expect("the rest comes");
    let (third, fourth) = (begin().await, begin().await);
    assert_eq!((third.status().as_u16(), fourth.status().as_u16()), (200, 200));
}
