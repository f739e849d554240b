//! Institutions, merchants and sub-accounts.

use serde_json::{Value, json};

use super::listener::{House, all_pages};

#[tokio::test]
async fn an_institution_is_made_with_its_base_rate_digit_for_digit() {
    let house = House::open().await;
    let body = r#"{"name":"Bank","merchant_id":"10001","base_rate":{"r_total":0.12345678,"f_total":1.50}}"#;
    let made = house.send(house.request("POST", "/institutions", Some(body), &[])).await.ok();
    assert!(made.text.contains(r#""base_rate":{"r_total":0.12345678,"f_total":1.5}"#), "{}", made.text);
    let made = made.json();
    assert_eq!(
        (&made["merchant_id"], &made["kind"], &made["name"]),
        (&json!("10001"), &json!("institution"), &json!("Bank"))
    );
    assert_eq!(made["created_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(house.get("/merchants/10001").await.ok().json(), made);
    let plain = house.post("/institutions", json!({"name": "B"})).await.ok().json();
    assert_eq!(plain["base_rate"], json!({"r_total": 0, "f_total": 0}));
    assert!(plain["merchant_id"].as_str().is_some_and(|id| id.bytes().all(|b| b.is_ascii_digit())), "{plain}");
}

#[tokio::test]
async fn a_base_rate_outside_its_limits_is_refused() {
    let house = House::open().await;
    let text = house.post("/institutions", json!({"name": "B", "base_rate": 5})).await;
    text.refused(400, "400001", "field base_rate: must be a JSON object");
    let text = house.post("/institutions", json!({"name": "B", "base_rate": {"r_total": "0.1", "f_total": 0}})).await;
    text.refused(400, "400001", "field base_rate.r_total: must be a JSON number");
    for rate in [
        json!({"r_total": 100.1, "f_total": 0}),
        json!({"r_total": 0, "f_total": 5_000_001}),
        json!({"r_total": -1}),
        json!(0.1),
        json!([]),
    ] {
        house.post("/institutions", json!({"name": "B", "base_rate": rate})).await.refused(400, "400001", "base_rate");
    }
}

#[tokio::test]
async fn a_base_rate_changes_as_far_as_it_is_given_and_of_institutions_alone() {
    let house = House::open().await;
    let bank = json!({"name": "B", "merchant_id": "i", "base_rate": {"r_total": 0.25, "f_total": 1.5}});
    house.post("/institutions", bank).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    let changed = async |rate: &str| {
        let body = format!(r#"{{"base_rate":{rate}}}"#);
        house.send(house.request("PATCH", "/merchants/i", Some(&body), &[])).await.ok().text
    };
    let has = |text: &str, rate: &str| assert!(text.contains(&format!(r#""base_rate":{rate}"#)), "{text}");
    has(&changed(r#"{"r_total":0.00000001}"#).await, r#"{"r_total":0.00000001,"f_total":1.5}"#);
    has(&changed(r#"{"f_total":0}"#).await, r#"{"r_total":0.00000001,"f_total":0}"#);
    has(&changed("null").await, r#"{"r_total":0.00000001,"f_total":0}"#);
    has(&house.get("/merchants/i").await.ok().text, r#"{"r_total":0.00000001,"f_total":0}"#);
    let line = house.get("/audit?merchant_id=i").await.ok().json()["items"][1].clone();
    assert_eq!(line["action"], "institution.update");
    assert_eq!(line["before"]["base_rate"], json!({"r_total": "0.00000001", "f_total": "1.5"}));
    assert_eq!(line["after"]["base_rate"], json!({"r_total": "0.00000001", "f_total": "0"}));

    let lines = house.audit().await.len();
    for (id, rate) in [("s", json!({"r_total": 1})), ("m", json!({"r_total": 1})), ("s", json!({}))] {
        let body = json!({"base_rate": rate});
        house.patch(&format!("/merchants/{id}"), body).await.refused(
            400,
            "400001",
            "field base_rate: is of institutions alone",
        );
    }
    for (path, name) in [("/merchants", "M"), ("/institutions/i/sub-accounts", "S")] {
        let body = json!({"name": name, "base_rate": {"r_total": 1}});
        house.post(path, body).await.refused(400, "400001", "field base_rate: is of institutions alone: leave it out");
    }
    for (rate, word) in [
        (json!({"r_total": 100.1}), "field base_rate.r_total: must be from 0 to 100"),
        (json!({"f_total": 5_000_001}), "field base_rate.f_total: must be from 0 to 5000000"),
        (json!({"r_total": "1"}), "field base_rate.r_total: must be a JSON number"),
        (json!(1), "field base_rate: must be a JSON object"),
    ] {
        house.patch("/merchants/i", json!({"name": "C", "base_rate": rate})).await.refused(400, "400001", word);
    }
    assert_eq!(house.audit().await.len(), lines, "nothing is left behind");
    assert_eq!(house.get("/merchants/i").await.ok().json()["name"], "B");
}

#[tokio::test]
async fn merchants_and_sub_accounts_share_one_namespace() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "inst"})).await.ok();
    let sub =
        house.post("/institutions/inst/sub-accounts", json!({"name": "S", "sub_merchant_id": "sub"})).await.ok().json();
    assert_eq!(
        (&sub["sub_merchant_id"], &sub["merchant_id"], &sub["name"]),
        (&json!("sub"), &json!("inst"), &json!("S"))
    );
    for (path, field, id) in [
        ("/institutions", "merchant_id", "inst"),
        ("/merchants", "merchant_id", "sub"),
        ("/institutions/inst/sub-accounts", "sub_merchant_id", "inst"),
        ("/institutions/inst/sub-accounts", "sub_merchant_id", "sub"),
    ] {
        let mut body = json!({"name": "X"});
        body[field] = json!(id);
        house.post(path, body).await.refused(409, "400803", id);
    }
}

#[tokio::test]
async fn only_institutions_have_sub_accounts() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "plain"})).await.ok();
    house.post("/institutions/plain/sub-accounts", json!({"name": "S"})).await.refused(404, "400404", "plain");
    house.post("/institutions/nobody/sub-accounts", json!({"name": "S"})).await.refused(404, "400404", "nobody");
    house.get("/institutions/plain/sub-accounts").await.refused(404, "400404", "plain");
    house.get("/merchants/nobody").await.refused(404, "400404", "nobody");
}

#[tokio::test]
async fn lists_are_whole_page_by_page_in_the_order_of_making() {
    let house = House::open().await;
    for institution in ["a", "b"] {
        house.post("/institutions", json!({"name": institution, "merchant_id": institution})).await.ok();
        for n in 0..5 {
            let body = json!({"name": "S", "sub_merchant_id": format!("{institution}{n}")});
            house.post(&format!("/institutions/{institution}/sub-accounts"), body).await.ok();
        }
    }
    let ids = |items: Vec<Value>, field: &str| {
        items.iter().map(|i| i[field].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    for limit in [1, 2, 5, 12, 50] {
        let subs = ids(all_pages(&house, "/institutions/b/sub-accounts", limit).await, "sub_merchant_id");
        assert_eq!(subs, ["b0", "b1", "b2", "b3", "b4"], "limit {limit}");
        let all = ids(all_pages(&house, "/merchants", limit).await, "merchant_id");
        assert_eq!(all, ["a", "a0", "a1", "a2", "a3", "a4", "b", "b0", "b1", "b2", "b3", "b4"], "limit {limit}");
    }
    house.get("/merchants?limit=0").await.refused(400, "400001", "limit");
    house.get("/merchants?limit=1&limit=2").await.refused(400, "400001", "limit");
    house.get("/merchants?after=nobody").await.refused(400, "400001", "after");
}

#[tokio::test]
async fn a_sub_account_says_which_institution_is_over_it_and_nobody_else_does() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    for (bank, sub) in [("i", "s"), ("j", "t")] {
        let made = house.post("/institutions", json!({"name": bank, "merchant_id": bank})).await.ok().json();
        assert_eq!(made.get("institution_id"), None);
        let path = format!("/institutions/{bank}/sub-accounts");
        house.post(&path, json!({"name": sub, "sub_merchant_id": sub})).await.ok();
    }
    let over = [("m", None), ("i", None), ("s", Some("i")), ("j", None), ("t", Some("j"))];
    let listed = house.get("/merchants").await.ok().json();
    for (n, (id, institution)) in over.into_iter().enumerate() {
        let path = format!("/merchants/{id}");
        let shown = house.get(&path).await.ok().json();
        assert_eq!(shown.get("institution_id"), institution.map(Value::from).as_ref(), "{shown}");
        assert_eq!((&listed["items"][n], &shown["merchant_id"]), (&shown, &json!(id)));
        assert_eq!(house.patch(&path, json!({"name": id})).await.ok().json()["institution_id"], json!(institution));
    }
    let only = house.get("/merchants?kind=sub_account").await.ok().json();
    assert_eq!([&only["items"][0]["institution_id"], &only["items"][1]["institution_id"]], [&json!("i"), &json!("j")]);
}

#[tokio::test]
async fn lists_are_of_every_kind_or_of_one() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    house.post("/institutions", json!({"name": "J", "merchant_id": "j"})).await.ok();
    for (path, wanted) in [
        ("/merchants", &["i", "s", "m", "j"][..]),
        ("/institutions", &["i", "j"]),
        ("/merchants?kind=institution", &["i", "j"]),
        ("/merchants?kind=merchant", &["m"]),
        ("/merchants?kind=sub_account", &["s"]),
    ] {
        for limit in [1, 50] {
            let found = all_pages(&house, path, limit).await;
            let ids: Vec<_> = found.iter().map(|m| m["merchant_id"].as_str().unwrap_or("")).collect();
            assert_eq!(ids, wanted, "{path}");
        }
    }
    house.get("/merchants?kind=bank").await.refused(400, "400001", "kind");
}

#[tokio::test]
async fn merchants_of_every_kind_are_renamed_and_disabled_and_the_audit_log_says_so() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    for (id, action) in [("i", "institution.update"), ("s", "sub_account.update"), ("m", "merchant.update")] {
        let path = format!("/merchants/{id}");
        let before = house.get(&path).await.ok().json();
        assert_eq!(before["enabled"], true);
        let renamed = house.patch(&path, json!({"name": "Other"})).await.ok().json();
        assert_eq!(
            (&renamed["name"], &renamed["enabled"], &renamed["kind"]),
            (&json!("Other"), &json!(true), &before["kind"])
        );
        let disabled = house.patch(&path, json!({"enabled": false})).await.ok().json();
        assert_eq!((&disabled["name"], &disabled["enabled"]), (&json!("Other"), &json!(false)));
        assert_eq!(house.get(&path).await.ok().json(), disabled);
        let lines = house.audit().await;
        let line = lines.iter().find(|line| line["action"] == action).expect("a line");
        assert_eq!(line["subject"], id);
        assert_eq!((&line["before"]["enabled"], &line["after"]["enabled"]), (&json!(true), &json!(false)));
    }
    let subs = house.get("/institutions/i/sub-accounts").await.ok().json();
    assert_eq!((&subs["items"][0]["name"], &subs["items"][0]["enabled"]), (&json!("Other"), &json!(false)));
    house.patch("/merchants/nobody", json!({"enabled": true})).await.refused(404, "400404", "nobody");
    for (body, word) in [(json!({"name": ""}), "name"), (json!({"enabled": "no"}), "enabled")] {
        house.patch("/merchants/m", body).await.refused(400, "400001", word);
    }
}

#[tokio::test]
async fn a_merchants_state_decides_over_its_applications_and_an_institutions_over_its_sub_accounts() {
    let house = House::open().await;
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    house.post("/institutions/i/sub-accounts", json!({"name": "S", "sub_merchant_id": "s"})).await.ok();
    let mut clients = Vec::new();
    for merchant in ["i", "s"] {
        let made = house.post(&format!("/merchants/{merchant}/applications"), json!({"name": "A"})).await.ok();
        clients.push(made.text_of("client_id"));
    }
    clients.push(house.application("m", None).await);
    let states = || async {
        let mut found = Vec::new();
        for client in &clients {
            let known = house.app.known_application(client).await.expect("a store").expect("is known");
            let told = house.get(&format!("/applications/{client}")).await.ok().json();
            assert_eq!((told["merchant_enabled"] == true, told["enabled"] == true), (known.is_enabled, true));
            found.push(known.is_enabled);
        }
        found
    };
    assert_eq!(states().await, [true, true, true]);
    for (id, enabled, wanted) in [
        ("s", false, [true, false, true]),
        ("i", false, [false, false, true]),
        ("s", true, [false, false, true]),
        ("i", true, [true, true, true]),
        ("m", false, [true, true, false]),
    ] {
        house.patch(&format!("/merchants/{id}"), json!({"enabled": enabled})).await.ok();
        assert_eq!(states().await, wanted, "{id} {enabled}");
    }
}

#[tokio::test]
async fn fifty_changes_of_a_merchant_at_once_all_happen_one_after_the_other() {
    let house = std::sync::Arc::new(House::open().await);
    house.post("/merchants", json!({"name": "M", "merchant_id": "m"})).await.ok();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..50 {
        let house = house.clone();
        tasks.spawn(async move { said_again!(house.patch("/merchants/m", json!({"enabled": n % 2 == 0}))).status });
    }
    assert!(tasks.join_all().await.into_iter().all(|status| status == 200));
    assert_eq!(house.audit().await.iter().filter(|line| line["action"] == "merchant.update").count(), 50);
}
