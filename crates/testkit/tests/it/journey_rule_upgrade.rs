//! `POST /rate/commission_rule/upgrade`, end to end.

use countersign::config::Config;
use countersign_domain::fees::MarkupUnit;
use countersign_testkit::wire::{Signer, once_served};
use countersign_testkit::world::World;
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub const UPGRADE: &str = "/rate/commission_rule/upgrade";

/// A world with an institution `bank`, three sub-accounts, and its application.
pub async fn bank() -> (World, Signer) {
    let world = World::start().await.expect("a world starts");
    let signer = world.access.institution("bank", 3, None).await.expect("provisioned");
    (world, signer)
}

/// `yyyy-MM-dd HH:mm:ss` so many seconds from the world's now.
pub fn date(world: &World, seconds: i64) -> String {
    countersign_domain::time::RuleZone::utc().format(world.clock.now().plus_ms(seconds * 1000))
}

/// One signed call; the whole envelope.
pub async fn call(world: &World, signer: &Signer, method: &str, target: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = world.send(&world.draft(signer, method, target, &body)).await.expect("an answer");
    answer.json()
}

/// One signed call that must succeed; its data.
pub async fn good(world: &World, signer: &Signer, method: &str, target: &str, body: &Value) -> Value {
    let envelope = call(world, signer, method, target, body).await;
    assert_eq!(envelope["code"], "000000", "{method} {target} {body}: {envelope}");
    envelope["data"].clone()
}

pub async fn in_force(world: &World, signer: &Signer, sub: &str) -> Value {
    good(world, signer, "GET", &format!("/rate/commission_rule?sub_merchant_id={sub}"), &Value::Null).await
}

#[tokio::test]
async fn an_upgrade_is_pending_until_its_exact_second_and_in_force_from_it() {
    let (world, signer) = bank().await;
    let first =
        json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "f_markup": 0.5, "effective_date": date(&world, -10)});
    let first = good(&world, &signer, "POST", UPGRADE, &first).await;
    assert_eq!(first["status"], "EFFECTIVE");
    assert_eq!(first["version_no"], 1);
    assert!(first["previous_config_id"].is_null());
    assert!(first["due_date"].is_null());
    // The clock may stand between two seconds: go to a whole one, so that "exact" is exact.
    world.clock.advance_ms(1000 - world.clock.now().0.rem_euclid(1000));
    let second = json!({"sub_merchant_id": "bank-1", "r_markup": 12.345_678_91, "effective_date": date(&world, 60), "due_date": date(&world, 120)});
    let second = good(&world, &signer, "POST", UPGRADE, &second).await;
    assert_eq!(second["status"], "PENDING_EFFECTIVE");
    assert_eq!(second["version_no"], 2);
    assert_eq!(second["previous_config_id"], first["config_id"]);
    assert_eq!(second["f_markup"], 0);
    world.clock.advance_ms(59_999);
    assert_eq!(in_force(&world, &signer, "bank-1").await["config_id"], first["config_id"]);
    world.clock.advance_ms(1);
    let now = in_force(&world, &signer, "bank-1").await;
    assert_eq!(now["config_id"], second["config_id"]);
    assert_eq!(now["r_markup"].to_string(), "12.34567891");
    world.clock.advance_ms(60_000);
    let after = in_force(&world, &signer, "bank-1").await;
    assert_eq!(after["has_markup"], false, "an older rule never comes back: {after}");
}

#[tokio::test]
async fn a_rule_that_falls_due_while_no_process_runs_is_in_force_at_the_first_request_after() {
    let (world, signer) = bank().await;
    let old = json!({"sub_merchant_id": "bank-1", "r_markup": 1, "effective_date": date(&world, -10)});
    good(&world, &signer, "POST", UPGRADE, &old).await;
    let new = json!({"sub_merchant_id": "bank-1", "r_markup": 2, "effective_date": date(&world, 3600)});
    let new = good(&world, &signer, "POST", UPGRADE, &new).await;
    world.clock.advance_ms(3_600_000);
    let world = world.restart().await.expect("it starts again");
    assert_eq!(in_force(&world, &signer, "bank-1").await["config_id"], new["config_id"]);
}

#[tokio::test]
async fn a_pending_version_is_invalidated_by_the_next_upgrade() {
    let (world, signer) = bank().await;
    let ask = |r: i64, at: i64| json!({"sub_merchant_id": "bank-1", "r_markup": r, "effective_date": date(&world, at)});
    let first = good(&world, &signer, "POST", UPGRADE, &ask(1, -10)).await;
    let pending = good(&world, &signer, "POST", UPGRADE, &ask(2, 60)).await;
    let third = good(&world, &signer, "POST", UPGRADE, &ask(3, 600)).await;
    assert_eq!(third["previous_config_id"], pending["config_id"], "the version made just before, whatever its state");
    world.clock.advance_ms(300_000);
    assert_eq!(in_force(&world, &signer, "bank-1").await["config_id"], first["config_id"]);
    world.clock.advance_ms(300_000);
    assert_eq!(in_force(&world, &signer, "bank-1").await["config_id"], third["config_id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_upgrades_at_once_are_versions_one_to_thirty_two() {
    let (world, signer) = bank().await;
    let body = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (address, draft) = (world.listen(), world.draft(&signer, "POST", UPGRADE, &body));
        // Whose turn does not come within 4 s is told to repeat, with the same nonce: 32 syncs take that long on a disk that is busy.
        tasks.spawn(async move { once_served(address, &draft.bytes()).await });
    }
    let mut versions = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        let envelope = answer.expect("no panic").expect("an answer").json();
        assert_eq!(envelope["code"], "000000", "{envelope}");
        versions.push(envelope["data"]["version_no"].as_i64().expect("a number"));
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=32).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_wrong_with_a_rule_is_said_by_name_and_leaves_nothing_behind() {
    let (world, signer) = bank().await;
    let base = || json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, 60)});
    let with = |name: &str, value: Value| {
        let mut body = base();
        body[name] = value;
        body
    };
    let without = |name: &str| {
        let mut body = base();
        body.as_object_mut().expect("an object").remove(name);
        body
    };
    let cases = [
        (without("sub_merchant_id"), "400001", "sub_merchant_id"),
        (without("r_markup"), "400001", "r_markup"),
        (without("effective_date"), "400001", "effective_date"),
        (with("r_markup", Value::Null), "400001", "r_markup"),
        (with("r_markup", json!("0.3")), "400001", "r_markup"),
        (with("r_markup", json!(-0.1)), "400001", "r_markup"),
        (with("r_markup", json!(100.000_000_01)), "400001", "r_markup"),
        (with("r_markup", json!(0.123_456_789)), "400001", "r_markup"),
        (with("f_markup", json!(5_000_000.1)), "400001", "f_markup"),
        (with("f_markup", json!(0.000_000_1)), "400001", "f_markup"),
        (with("effective_date", json!("2026-01-02")), "400001", "effective_date"),
        (with("effective_date", json!("2026-01-02 00:00")), "400001", "effective_date"),
        (with("effective_date", json!("2026-02-30 00:00:00")), "400703", "effective_date"),
        (with("effective_date", json!("2026-01-02 24:00:00")), "400703", "effective_date"),
        (with("effective_date", json!("2026-01-02 00:00:61")), "400703", "effective_date"),
        (with("due_date", json!(date(&world, 60))), "400703", "due_date"),
        (with("due_date", json!(date(&world, 59))), "400703", "due_date"),
        (with("config_id", json!("cfg_x")), "400704", "config_id"),
        (with("sub_merchant_id", json!("bank")), "400702", "sub_merchant_id"),
        (with("sub_merchant_id", json!("nobody")), "400702", "sub_merchant_id"),
    ];
    for (body, code, named) in cases {
        let envelope = call(&world, &signer, "POST", UPGRADE, &body).await;
        assert_eq!(envelope["code"], code, "{body}: {envelope}");
        assert!(envelope["errorMessage"].as_str().is_some_and(|m| m.contains(named)), "{body}: {envelope}");
    }
    let envelope = call(&world, &signer, "POST", UPGRADE, &with("due_date", json!("2026-02-30 00:00:00"))).await;
    assert_eq!(envelope["errorMessage"], "field due_date: there is no such date or time of day");
    let rules = world
        .access
        .call("GET", "/operator/v1/fee-rules?sub_merchant_id=bank-1", None)
        .await
        .expect("an answer")
        .json();
    assert_eq!(rules["items"], json!([]), "nothing is left behind");
}

#[tokio::test]
async fn a_date_that_clocks_skip_or_show_twice_is_told_which_and_in_which_zone() {
    let zone = |config: &mut Config| config.rule_timezone = "europe/berlin".to_owned();
    let world = World::start_with(zone).await.expect("a world starts");
    let signer = world.access.institution("bank", 1, None).await.expect("provisioned");
    for (at, said) in [
        ("2036-03-30 02:30:00", "is skipped by a change of clocks in Europe/Berlin; choose a time before or after it"),
        (
            "2036-10-26 02:30:00",
            "happens twice in Europe/Berlin, where clocks are set back; choose a time before or after both",
        ),
        ("2036-10-26 24:30:00", "there is no such date or time of day"),
    ] {
        let body = json!({"sub_merchant_id": "bank-1", "r_markup": 1, "effective_date": at});
        let envelope = call(&world, &signer, "POST", UPGRADE, &body).await;
        assert_eq!(
            (&envelope["code"], &envelope["errorMessage"]),
            (&json!("400703"), &json!(format!("field effective_date: {said}")))
        );
        let target = format!("/rate/commission_rule?sub_merchant_id=bank-1&query_time={}", at.replace(' ', "%20"));
        let envelope = call(&world, &signer, "GET", &target, &Value::Null).await;
        assert_eq!(
            (&envelope["code"], &envelope["errorMessage"]),
            (&json!("400703"), &json!(format!("field query_time: {said}")))
        );
    }
}

#[tokio::test]
async fn another_institution_is_told_neither_yes_nor_no() {
    let (world, signer) = bank().await;
    let other = world.access.institution("other", 1, None).await.expect("provisioned");
    let body = json!({"sub_merchant_id": "bank-1", "r_markup": 1, "effective_date": date(&world, 0)});
    let foreign = call(&world, &other, "POST", UPGRADE, &body).await;
    let absent = call(
        &world,
        &other,
        "POST",
        UPGRADE,
        &json!({"sub_merchant_id": "nobody", "r_markup": 1, "effective_date": date(&world, 0)}),
    )
    .await;
    assert_eq!(foreign["code"], "400702");
    assert_eq!(foreign, absent);
    let posing = Signer { merchant_id: Some("bank".to_owned()), ..other };
    assert_eq!(call(&world, &posing, "POST", UPGRADE, &body).await["code"], "400203");
    let silent = Signer { merchant_id: None, ..posing };
    assert_eq!(call(&world, &silent, "POST", UPGRADE, &body).await["code"], "400001");
    let sub = world.access.application("bank-1", None).await.expect("an application");
    for merchant_id in ["bank", "bank-1"] {
        let sub = Signer {
            merchant_id: Some(merchant_id.to_owned()),
            key: sub.key.clone(),
            client_id: sub.client_id.clone(),
        };
        let refused = call(&world, &sub, "POST", UPGRADE, &body).await;
        assert_eq!(refused["code"], "400203", "a sub-account is no institution");
        let said = refused["errorMessage"].as_str().expect("a text");
        assert!(said.starts_with("only a key of an institution itself may manage its fee rules"), "{said}");
    }
    let own = call(&world, &signer, "POST", UPGRADE, &body).await;
    assert_eq!(own["code"], "000000", "{own}");
}

#[tokio::test]
async fn where_markups_are_fractions_none_is_more_than_the_whole_amount() {
    let fractions = |config: &mut Config| config.markup_unit = MarkupUnit::Fraction;
    let world = World::start_with(fractions).await.expect("a world starts");
    let signer = world.access.institution("bank", 1, None).await.expect("provisioned");
    let ask = |r: f64| json!({"sub_merchant_id": "bank-1", "r_markup": r, "effective_date": date(&world, -10)});
    let refused = call(&world, &signer, "POST", UPGRADE, &ask(30.0)).await;
    assert_eq!(refused["code"], "400001", "{refused}");
    let wanted = "field r_markup: must be from 0 to 1 with at most 8 decimals: this deployment reads it as a fraction, and 0.3 is 30 %";
    assert_eq!(refused["errorMessage"], wanted);
    let made = good(&world, &signer, "POST", UPGRADE, &ask(1.0)).await;
    assert_eq!(made["version_no"], 1, "the refused one left nothing");
    let base = json!({"name": "b", "base_rate": {"r_total": 1.5}});
    let answer = world.access.call("POST", "/operator/v1/institutions", Some(base)).await.expect("an answer");
    assert_eq!(answer.json()["label"], "INVALID_PARAMETER", "{}", answer.json());
    let path = "/operator/v1/merchants/bank";
    let base = json!({"base_rate": {"r_total": 1.5}});
    let answer = world.access.call("PATCH", path, Some(base)).await.expect("an answer");
    assert_eq!(answer.status, 400, "{}", answer.json());
    let tried = "/operator/v1/fee-rules/what-if?sub_merchant_id=bank-1&r_markup=1.5";
    assert_eq!(world.access.call("GET", tried, None).await.expect("an answer").status, 400);
    // Whatever is wrong with the number, the same is said.
    let must = wanted.strip_prefix("field r_markup").expect("of this field");
    for r in [150.0, -1.0, 0.123_456_789] {
        let refused = call(&world, &signer, "POST", UPGRADE, &ask(r)).await;
        assert_eq!(refused["errorMessage"], wanted, "{r}");
        let base = json!({"name": "b", "base_rate": {"r_total": r}});
        let answer = world.access.call("POST", "/operator/v1/institutions", Some(base)).await.expect("an answer");
        assert_eq!(answer.json()["detail"], format!("field base_rate.r_total{must}"));
        let tried = format!("/operator/v1/fee-rules/what-if?sub_merchant_id=bank-1&r_markup={r}");
        let answer = world.access.call("GET", &tried, None).await.expect("an answer");
        assert_eq!(answer.json()["detail"], wanted, "{r}");
    }
}
