//! What operators read: fee rules with every state, the audit log by pages.

use countersign::app::Actor;
use countersign::app::rules::{Making, RuleChange, change};
use countersign_domain::rules::{Markup, RuleAsk};
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::contract::ClaimKey;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::listener::{House, START, all_pages};

/// An upgrade as an institution's application would make it.
pub async fn upgrade(house: &House, nonce: &str, effective_at: i64, due_at: Option<i64>) {
    let institution = house.app.store.merchant("i").await.expect("a store").expect("the institution");
    let client_id = all_pages(house, "/applications", 50).await[0]["client_id"].as_str().expect("an id").to_owned();
    let known = house.app.known_application(&client_id).await.expect("a store").expect("known");
    let ask = RuleAsk {
        markup: Markup::new(Decimal::new(3, 1), Decimal::ZERO).expect("a markup"),
        effective_at: UnixMillis(effective_at),
        due_at: due_at.map(UnixMillis),
    };
    let now = house.app.clock.now();
    let (tenant, application) = (known.application.tenant, known.application.no);
    let claim = ClaimKey { tenant, application, nonce: nonce.to_owned(), stamped_at: now };
    house.app.store.reserve(&claim).await.expect("a nonce");
    let asked = RuleChange { making: Making::Upgrade, sub_merchant_id: "s".to_owned(), ask };
    let actor =
        Actor { name: "application:test".to_owned(), source: String::new(), request_id: nonce.to_owned(), right: None };
    change(&house.app, &institution, &asked, &claim, &actor).await.expect("an upgrade");
}

#[tokio::test]
async fn every_version_of_a_rule_is_listed_with_its_state_now() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.post("/merchants/i/applications", json!({"name": "A"})).await.ok();
    upgrade(&house, "1", START.0, Some(START.0 + 10_000)).await;
    house.app.clock.advance_ms(20_000);
    upgrade(&house, "2", START.0, None).await;
    house.app.clock.advance_ms(1_000);
    upgrade(&house, "3", START.0, None).await;
    upgrade(&house, "4", START.0 + 90_000, None).await;
    upgrade(&house, "5", START.0 + 60_000, None).await;
    let states =
        |items: &[Value]| items.iter().map(|v| v["status"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>();
    for limit in [1, 2, 50] {
        let items = all_pages(&house, "/fee-rules?sub_merchant_id=s", limit).await;
        assert_eq!(
            states(&items),
            ["PENDING_EFFECTIVE", "INVALIDATED", "EFFECTIVE", "SUPERSEDED", "EXPIRED"],
            "limit {limit}"
        );
        assert_eq!(items.iter().map(|v| v["version_no"].as_i64().unwrap_or(0)).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
        assert_eq!(items[0]["previous_config_id"], items[1]["config_id"]);
        assert_eq!(
            (&items[4]["previous_config_id"], &items[4]["due_date"]),
            (&Value::Null, &json!("2026-01-01 00:00:10"))
        );
        assert_eq!((&items[0]["r_markup"], &items[0]["effective_date"]), (&json!(0.3), &json!("2026-01-01 00:01:00")));
    }
    house.app.clock.advance_ms(60_000);
    let items = all_pages(&house, "/fee-rules?sub_merchant_id=s", 50).await;
    assert_eq!(states(&items)[..3], ["EFFECTIVE", "INVALIDATED", "SUPERSEDED"]);
    house.get("/fee-rules").await.refused(400, "400001", "sub_merchant_id");
    house.get("/fee-rules?sub_merchant_id=nobody").await.refused(404, "400702", "no sub-account has this");
    house.get("/fee-rules?sub_merchant_id=i").await.refused(404, "400702", "no sub-account has this");
    house.get("/fee-rules?sub_merchant_id=s&after=x").await.refused(400, "400001", "after");
}

#[tokio::test]
async fn all_pages_of_versions_are_of_the_moment_at_which_the_walk_began() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.post("/merchants/i/applications", json!({"name": "A"})).await.ok();
    upgrade(&house, "1", START.0, None).await;
    upgrade(&house, "2", START.0 + 3_600_000, None).await;
    let page = async |after: &str| house.get(&format!("/fee-rules?sub_merchant_id=s&limit=1{after}")).await.ok().json();
    let first = page("").await;
    assert_eq!(
        (&first["items"][0]["version_no"], &first["items"][0]["status"]),
        (&json!(2), &json!("PENDING_EFFECTIVE"))
    );
    // It invalidates the second, on which the state of the first rests.
    house.app.clock.advance_ms(60_000);
    upgrade(&house, "3", START.0, None).await;
    house.app.clock.advance_ms(60_000);
    let second = page(&format!("&after={}", first["next"].as_str().expect("more"))).await;
    assert_eq!((&second["items"][0]["version_no"], &second["items"][0]["status"]), (&json!(1), &json!("EFFECTIVE")));
    // Nor when its instant has come, which it has not in that moment.
    house.app.clock.advance_ms(3_600_000);
    assert_eq!(page(&format!("&after={}", first["next"].as_str().expect("more"))).await, second);
    let anew = all_pages(&house, "/fee-rules?sub_merchant_id=s", 1).await;
    let states = anew.iter().map(|version| version["status"].as_str().unwrap_or("")).collect::<Vec<_>>();
    assert_eq!(states, ["EFFECTIVE", "INVALIDATED", "SUPERSEDED"]);
}

#[tokio::test]
async fn the_audit_log_is_listed_newest_first_page_by_page() {
    let house = House::open().await;
    for n in 0..7 {
        house.post("/merchants", json!({"name": "M", "merchant_id": format!("m{n}")})).await.ok();
    }
    for limit in [1, 3, 7, 50] {
        let subjects: Vec<String> = all_pages(&house, "/audit", limit)
            .await
            .iter()
            .map(|l| l["subject"].as_str().unwrap_or("").to_owned())
            .collect();
        assert_eq!(subjects, ["m6", "m5", "m4", "m3", "m2", "m1", "m0"], "limit {limit}");
    }
    house.get("/audit?after=x").await.refused(400, "400001", "after");
}

#[tokio::test]
async fn of_the_audit_log_the_lines_are_listed_that_are_meant() {
    let house = House::open().await;
    let made = |path: &'static str, body: Value| house.post(path, body);
    made("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    made("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.app.clock.advance_ms(1_000);
    made("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    made("/merchants/m/applications", json!({"name": "till"})).await.ok();
    house.app.clock.advance_ms(1_000);
    made("/tokens", json!({"name": "T", "role": "viewer"})).await.ok();
    let listed = async |query: &str| -> Vec<String> {
        let lines = all_pages(&house, &format!("/audit{query}"), 1).await;
        lines.iter().map(|line| line["action"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let all = ["token.create", "application.create", "merchant.create", "sub_account.create", "institution.create"];
    assert_eq!(listed("").await, all);
    assert_eq!(listed("?merchant_id=i").await, ["sub_account.create", "institution.create"]);
    assert_eq!(listed("?merchant_id=m").await, ["application.create", "merchant.create"]);
    assert_eq!(listed("?action=merchant.").await, ["merchant.create"]);
    assert_eq!(listed("?action=merchant.create&merchant_id=i").await, [""; 0]);
    assert_eq!(listed("?subject=s").await, ["sub_account.create"]);
    assert_eq!(listed("?actor=system").await, [""; 0]);
    let first = &all_pages(&house, "/audit?subject=m", 5).await[0];
    let said = |name: &str| first[name].as_str().expect("a text").to_owned();
    assert_eq!(listed(&format!("?actor={}", said("actor"))).await, all);
    assert_eq!(listed(&format!("?request_id={}", said("request_id"))).await, ["merchant.create"]);
    let at = said("at");
    assert_eq!(listed(&format!("?to={at}")).await, ["sub_account.create", "institution.create"]);
    assert_eq!(listed(&format!("?from={at}&action=application.create")).await, ["application.create"]);

    house.get("/audit?merchant_id=nobody").await.refused(404, "400404", "nobody");
    house.get("/audit?merchant_id=s").await.refused(400, "400001", "field merchant_id: is a sub-account");
    house.get("/audit?merchant_id=nobody&actor=").await.refused(400, "400001", "field actor");
    house.get("/audit?merchant_id=nobody&after=x").await.refused(400, "400001", "field after");
    house.get("/audit?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z").await.refused(400, "400001", "field to");
}
