//! Rates: put, looked at, told of when nobody keeps them up.

use countersign::app::rates;
use countersign_store::Lost;
use serde_json::{Value, json};

use super::listener::{Answer, House};

async fn put(house: &House, pair: &str, body: Value) -> Answer {
    house.send(house.request("PUT", &format!("/rates/{pair}"), Some(&body.to_string()), &[])).await
}

async fn lines(house: &House, action: &str) -> Vec<Value> {
    house.audit().await.into_iter().filter(|line| line["action"] == action).collect()
}

#[tokio::test]
async fn a_rate_is_kept_digit_for_digit_and_put_whole() {
    let house = House::open().await;
    let made =
        put(&house, "GT_USDT", json!({"rate": "22.38741462", "base_min": "0.010", "quote_max": 1_980_000})).await;
    assert_eq!(
        made.ok().text,
        r#"{"pair":"GT_USDT","rate":22.38741462,"base_min":"0.01","base_max":null,"quote_min":null,"quote_max":"1980000","revision":1,"updated_at":"2026-01-01T00:00:00.000Z","stale":false}"#
    );
    house.app.clock.advance_ms(59_999);
    assert_eq!(house.get("/rates/GT_USDT").await.ok().json()["stale"], false);
    house.app.clock.advance_ms(1);
    assert_eq!(house.get("/rates/GT_USDT").await.ok().json()["stale"], true);
    put(&house, "GT_USDT", json!({"rate": 0.000_000_1})).await.refused(400, "400001", "exponent");
    let text =
        house.send(house.request("PUT", "/rates/GT_USDT", Some(r#"{"rate":0.0000000000000000001}"#), &[])).await.ok();
    assert!(text.text.contains(r#""rate":0.0000000000000000001,"base_min":null"#), "{}", text.text);
    let said = lines(&house, "rate.put").await;
    assert_eq!((said.len(), &said[0]["subject"]), (2, &json!("GT_USDT")));
    let (before, after) = (said[0]["before"].to_string(), said[0]["after"].to_string());
    assert!(before.contains("22.38741462") && after.contains("0.0000000000000000001"), "{before} {after}");
}

#[tokio::test]
async fn a_rate_that_is_not_right_is_refused_by_name_and_leaves_nothing() {
    let house = House::open().await;
    for pair in ["GT", "GT_GT", "gt_usdt", "GT-USDT", "G_USDT", "GT_USDT_BTC", "ABCDEFGHIJK_USDT"] {
        put(&house, pair, json!({"rate": 1})).await.refused(400, "400001", "GT_USDT");
    }
    for (body, word) in [
        (json!({}), "rate"),
        (json!({"rate": 0}), "rate"),
        (json!({"rate": "-1"}), "rate"),
        (json!({"rate": "1e3"}), "rate"),
        (json!({"rate": "123456789012345678901"}), "rate"),
        (json!({"rate": 1, "base_min": "x"}), "base_min"),
        (json!({"rate": 1, "base_max": "0.0000001"}), "base_max"),
        (
            json!({"rate": 1, "base_max": "10000000000000"}),
            "field base_max: must be at most 9223372036854.775807, and no conversion is of more than 5000000",
        ),
        (json!({"rate": 1, "quote_min": -1}), "quote_min"),
        (json!({"rate": 1, "base_min": "2", "base_max": "1"}), "field base_max"),
        (json!({"rate": 1, "quote_max": "0.00001"}), "field quote_max"),
        (json!({"rate": 1, "base_min": "5000001"}), "field base_min"),
        (json!({"rate": 1, "quote_min": "5000001", "quote_max": "5000002"}), "field quote_max"),
    ] {
        put(&house, "GT_USDT", body).await.refused(400, "400001", word);
    }
    assert_eq!(house.get("/rates").await.ok().json()["items"], json!([]));
    house.get("/rates/GT_USDT").await.refused(404, "400404", "GT_USDT");
    house.get("/rates/nonsense").await.refused(404, "400404", "nonsense");
}

#[tokio::test]
async fn rates_are_listed_by_pair_in_pages() {
    let house = House::open().await;
    for pair in ["GT_USDT", "BTC_USDT", "GT_BTC"] {
        put(&house, pair, json!({"rate": 2})).await.ok();
    }
    let listed = super::listener::all_pages(&house, "/rates", 2).await;
    let pairs: Vec<&Value> = listed.iter().map(|rate| &rate["pair"]).collect();
    assert_eq!(pairs, ["BTC_USDT", "GT_BTC", "GT_USDT"]);
}

#[tokio::test]
async fn that_a_rate_goes_stale_is_told_once_for_each_turn() {
    let house = House::open().await;
    put(&house, "GT_USDT", json!({"rate": 2})).await.ok();
    put(&house, "BTC_USDT", json!({"rate": 60_000})).await.ok();
    let told = async || rates::tell_stale(&house.app).await.expect("looks");
    house.app.clock.advance_ms(59_999);
    assert_eq!(told().await, 0, "as old as it may be");
    put(&house, "BTC_USDT", json!({"rate": 60_001})).await.ok();
    house.app.clock.advance_ms(1);
    assert_eq!((told().await, told().await), (1, 0), "once");
    let line = lines(&house, "rate.stale").await.pop().expect("a line");
    assert_eq!((&line["subject"], &line["actor"]), (&json!("GT_USDT"), &json!("system")));
    put(&house, "GT_USDT", json!({"rate": 2})).await.ok();
    assert_eq!(told().await, 0);
    house.app.clock.advance_ms(60_000);
    assert_eq!((told().await, told().await), (2, 0), "each turn, each pair");
    assert_eq!(lines(&house, "rate.stale").await.len(), 3);
}

#[tokio::test]
async fn a_rate_of_a_clock_that_was_ahead_is_stale_until_it_is_put_again() {
    let house = House::open().await;
    put(&house, "GT_USDT", json!({"rate": 2})).await.ok();
    let is_stale = async || house.get("/rates/GT_USDT").await.ok().json()["stale"].clone();
    // As far as clocks of one deployment may be apart.
    house.app.clock.advance_ms(-1_000);
    assert_eq!(is_stale().await, false);
    house.app.clock.advance_ms(-1);
    assert_eq!(is_stale().await, true);
    assert_eq!(rates::tell_stale(&house.app).await.expect("looks"), 1);
    let line = lines(&house, "rate.stale").await.pop().expect("a line");
    assert_eq!(line["after"]["why"], "it was put by a clock that was ahead", "{line}");
    house.app.clock.advance_ms(2_000);
    assert_eq!(is_stale().await, true, "an hour later it is an hour old, whatever it says");
    put(&house, "GT_USDT", json!({"rate": 2})).await.ok();
    assert_eq!(is_stale().await, false);
}

#[tokio::test]
async fn of_rates_put_at_once_each_has_its_revision_and_its_line() {
    let house = std::sync::Arc::new(House::open().await);
    let mut all = tokio::task::JoinSet::new();
    for n in 1..=32 {
        let house = std::sync::Arc::clone(&house);
        all.spawn(
            async move { said_again!(put(&house, "GT_USDT", json!({"rate": n}))).ok().json()["revision"].as_i64() },
        );
    }
    let mut revisions = all.join_all().await;
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=32).map(Some).collect::<Vec<_>>());
    assert_eq!(lines(&house, "rate.put").await.len(), 32);
}

#[tokio::test]
async fn a_rate_that_is_stale_is_told_of_also_where_the_answer_of_its_commit_is_lost() {
    for (lost, again) in [(Lost::Answer, 0), (Lost::Both, 1)] {
        let house = House::open_in_memory().await;
        for pair in ["GT_USDT", "BTC_USDT"] {
            put(&house, pair, json!({"rate": 2})).await.ok();
        }
        house.app.clock.advance_ms(60_000);
        house.model().lose(0, lost);
        assert_eq!(rates::tell_stale(&house.app).await.expect("looks"), 2, "{lost:?}: nor is the other left out");
        assert_eq!(rates::tell_stale(&house.app).await.expect("looks"), again, "{lost:?}");
        assert_eq!(lines(&house, "rate.stale").await.len(), 2);
    }
}
