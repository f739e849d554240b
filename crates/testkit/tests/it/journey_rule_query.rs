//! `GET /rate/commission_rule`, `POST /rate/commission_rule` and `POST /rate/commission_rule/list`, end to end:
//! the endpoints rule_query, rule_create and rule_list.

use serde_json::{Value, json};

use crate::journey_rule_upgrade::{UPGRADE, bank, call, date, good, in_force};

const CREATE: &str = "/rate/commission_rule";
const LIST: &str = "/rate/commission_rule/list";

#[tokio::test]
async fn a_query_tells_the_rate_that_applies_with_and_without_a_rule() {
    let (world, signer) = bank().await;
    world
        .access
        .provision(
            "POST",
            "/institutions",
            json!({"name": "b", "merchant_id": "base", "base_rate": {"r_total": 0.25, "f_total": 1.5}}),
        )
        .await
        .expect("provisioned");
    world
        .access
        .provision("POST", "/institutions/base/sub-accounts", json!({"name": "s", "sub_merchant_id": "base-1"}))
        .await
        .expect("provisioned");
    let base = world.access.application("base", None).await.expect("an application");
    let none = in_force(&world, &base, "base-1").await;
    assert_eq!(none["has_markup"], false);
    assert_eq!(none["actual_rate"].to_string(), r#"{"f_total":1.5,"r_total":0.25}"#);
    assert!(none["config_id"].is_null());
    let rule = json!({"sub_merchant_id": "base-1", "r_markup": 0.1, "f_markup": 2, "effective_date": date(&world, -1)});
    let made = good(&world, &base, "POST", CREATE, &rule).await;
    let some = in_force(&world, &base, "base-1").await;
    assert_eq!(some["config_id"], made["config_id"]);
    assert_eq!(some["actual_rate"].to_string(), r#"{"f_total":3.5,"r_total":0.35}"#);
    assert_eq!(some["status"], "EFFECTIVE");
    assert_eq!(some["expired_date"], some["due_date"]);
    let dearer = json!({"base_rate": {"r_total": 0.5}});
    world.access.provision("PATCH", "/merchants/base", dearer).await.expect("a change");
    let then = in_force(&world, &base, "base-1").await;
    assert_eq!(then["actual_rate"].to_string(), r#"{"f_total":3.5,"r_total":0.6}"#, "from then on");
    let listed = good(&world, &base, "POST", LIST, &json!({})).await;
    assert_eq!(listed["records"][0]["actual_rate"], then["actual_rate"]);
    let foreign = call(&world, &signer, "GET", "/rate/commission_rule?sub_merchant_id=base-1", &Value::Null).await;
    assert_eq!(foreign["code"], "400702");
}

#[tokio::test]
async fn a_query_of_the_past_shows_what_was_in_force_then_and_nothing_made_later() {
    let (world, signer) = bank().await;
    let before = date(&world, 0).replace(' ', "%20");
    world.clock.advance_ms(10_000);
    let ask = |r: i64, at: i64| json!({"sub_merchant_id": "bank-1", "r_markup": r, "effective_date": date(&world, at)});
    let first = good(&world, &signer, "POST", UPGRADE, &ask(1, -3600)).await;
    let between = date(&world, 5).replace(' ', "%20");
    let later = date(&world, 100).replace(' ', "%20");
    world.clock.advance_ms(10_000);
    let second = good(
        &world,
        &signer,
        "POST",
        UPGRADE,
        &json!({"sub_merchant_id": "bank-1", "r_markup": 2, "effective_date": date(&world, 60)}),
    )
    .await;
    let at = async |time: &str| {
        good(
            &world,
            &signer,
            "GET",
            &format!("/rate/commission_rule?sub_merchant_id=bank-1&query_time={time}"),
            &Value::Null,
        )
        .await
    };
    assert_eq!(at(&before).await["has_markup"], false, "back-dated, but made later");
    assert_eq!(at(&between).await["config_id"], first["config_id"]);
    assert_eq!(at(&later).await["config_id"], second["config_id"], "what is known now of a time to come");
    let bad = call(
        &world,
        &signer,
        "GET",
        "/rate/commission_rule?sub_merchant_id=bank-1&query_time=2026-13-01%2000:00:00",
        &Value::Null,
    )
    .await;
    assert_eq!(bad["code"], "400703");
    let missing = call(&world, &signer, "GET", "/rate/commission_rule", &Value::Null).await;
    assert_eq!(missing["code"], "400001");
}

#[tokio::test]
async fn a_query_about_the_second_in_which_a_version_was_made_shows_it() {
    let (world, signer) = bank().await;
    let rule =
        |r: i64, at: i64| json!({"sub_merchant_id": "bank-1", "r_markup": r, "effective_date": date(&world, at)});
    let into_a_second = 1000 - world.clock.now().0.rem_euclid(1000);
    world.clock.advance_ms(into_a_second + 300);
    let due = json!({"sub_merchant_id": "bank-1", "r_markup": 1, "effective_date": date(&world, 0), "due_date": date(&world, 60)});
    let first = good(&world, &signer, "POST", CREATE, &due).await;
    let in_force_at = async |second: i64| {
        let time = date(&world, second).replace(' ', "%20");
        let path = format!("/rate/commission_rule?sub_merchant_id=bank-1&query_time={time}");
        good(&world, &signer, "GET", &path, &Value::Null).await["config_id"].clone()
    };
    assert_eq!(in_force_at(-1).await, Value::Null, "the second before");
    assert_eq!(in_force_at(0).await, first["config_id"]);
    assert_eq!(in_force_at(59).await, first["config_id"]);
    assert_eq!(in_force_at(60).await, Value::Null, "due_date is exclusive");
    world.clock.advance_ms(600);
    let second = good(&world, &signer, "POST", UPGRADE, &rule(2, 0)).await;
    assert_eq!(in_force_at(0).await, second["config_id"], "as the second ended");
    let third = good(&world, &signer, "POST", UPGRADE, &rule(3, 30)).await;
    assert_eq!(in_force_at(29).await, second["config_id"]);
    assert_eq!(in_force_at(30).await, third["config_id"], "from its second on");
}

#[tokio::test]
async fn a_creation_is_refused_where_a_rule_is_effective_or_pending_and_allowed_after_it_ended() {
    let (world, signer) = bank().await;
    let rule = |at: i64, due: i64| json!({"sub_merchant_id": "bank-1", "r_markup": 1, "effective_date": date(&world, at), "due_date": date(&world, due)});
    let first = good(&world, &signer, "POST", CREATE, &rule(30, 60)).await;
    assert_eq!(first["status"], "PENDING_EFFECTIVE");
    assert_eq!(call(&world, &signer, "POST", CREATE, &rule(0, 60)).await["code"], "400701");
    world.clock.advance_ms(45_000);
    assert_eq!(call(&world, &signer, "POST", CREATE, &rule(0, 60)).await["code"], "400701");
    world.clock.advance_ms(45_000);
    let again = good(&world, &signer, "POST", CREATE, &rule(0, 60)).await;
    assert_eq!(again["version_no"], 2);
    assert_eq!(again["previous_config_id"], first["config_id"]);
}

#[tokio::test]
async fn a_list_has_a_record_for_each_live_version_and_one_for_each_sub_account_without() {
    let (world, signer) = bank().await;
    let ask =
        |sub: &str, r: i64, at: i64| json!({"sub_merchant_id": sub, "r_markup": r, "effective_date": date(&world, at)});
    good(&world, &signer, "POST", UPGRADE, &ask("bank-1", 1, -10)).await;
    good(&world, &signer, "POST", UPGRADE, &ask("bank-1", 2, 600)).await;
    good(&world, &signer, "POST", UPGRADE, &ask("bank-3", 3, 600)).await;
    let list = async |body: Value| good(&world, &signer, "POST", LIST, &body).await;
    let rows = |page: &Value| -> Vec<(String, Value, Value)> {
        let records = page["records"].as_array().expect("records");
        records
            .iter()
            .map(|r| {
                (r["sub_merchant_id"].as_str().expect("an id").to_owned(), r["version_no"].clone(), r["status"].clone())
            })
            .collect()
    };
    let all = list(json!({})).await;
    assert_eq!(
        rows(&all),
        [
            ("bank-1".to_owned(), json!(1), json!("EFFECTIVE")),
            ("bank-1".to_owned(), json!(2), json!("PENDING_EFFECTIVE")),
            ("bank-2".to_owned(), Value::Null, Value::Null),
            ("bank-3".to_owned(), json!(1), json!("PENDING_EFFECTIVE")),
        ]
    );
    assert_eq!(
        (&all["total"], &all["size"], &all["current"], &all["pages"]),
        (&json!(4), &json!(20), &json!(1), &json!(1))
    );
    let rates = |page: &Value| -> Vec<f64> {
        let records = page["records"].as_array().expect("records");
        records.iter().map(|r| r["actual_rate"]["r_total"].as_f64().expect("a number")).collect()
    };
    assert_eq!(rates(&all), [1.0, 1.0, 0.0, 0.0], "a pending version changes nothing that is charged now");
    assert_eq!(rates(&list(json!({"status": "PENDING_EFFECTIVE"})).await), [1.0, 0.0], "also without the one in force");
    let second = list(json!({"pageNum": 2, "pageSize": 3})).await;
    assert_eq!(rows(&second).len(), 1);
    assert_eq!((&second["total"], &second["pages"], &second["current"]), (&json!(4), &json!(2), &json!(2)));
    assert_eq!(rows(&list(json!({"page": 2, "page_size": 3})).await), rows(&second), "the aliases");
    assert_eq!(rows(&list(json!({"has_markup": false})).await).len(), 1);
    assert_eq!(rows(&list(json!({"status": "PENDING_EFFECTIVE"})).await).len(), 2);
    assert_eq!(rows(&list(json!({"sub_merchant_id": "bank-1"})).await).len(), 2);
    for bad in [
        json!({"pageNum": 0}),
        json!({"pageSize": 101}),
        json!({"pageSize": "1"}),
        json!({"status": "INVALIDATED"}),
        json!([]),
    ] {
        assert_eq!(call(&world, &signer, "POST", LIST, &bad).await["code"], "400001", "{bad}");
    }
}
