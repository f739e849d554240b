//! Who may do what, end to end: merchants that are disabled, secrets and their use, delegation in the log, a rate that no change refills.

use std::time::{Duration, Instant};

use anyhow::Result;
use countersign::app::uses;
use countersign_testkit::patience::until;
use countersign_testkit::receiver::Receiver;
use countersign_testkit::wire::{Answer, Draft, Signer};
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_rule_upgrade::{bank, call, good};

const SOON: Duration = Duration::from_secs(20);
const EVENTS: &str = "/v1/pay/events";

async fn patch(world: &World, path: &str, body: Value) -> Value {
    world.access.provision("PATCH", path, body).await.expect("is changed")
}

async fn set_enabled(world: &World, merchant_id: &str, enabled: bool) {
    patch(world, &format!("/merchants/{merchant_id}"), json!({ "enabled": enabled })).await;
}

/// An answer without what differs from one request to the next: its id and the time.
fn told(answer: &Answer) -> (String, Vec<u8>) {
    let own = ["x-service-request-id:", "date:"];
    let head = answer.head.lines().filter(|line| !own.iter().any(|name| line.to_ascii_lowercase().starts_with(name)));
    (head.collect::<Vec<_>>().join("\n"), answer.body.clone())
}

async fn sends(world: &World, draft: &Draft) -> Answer {
    world.send(draft).await.expect("an answer")
}

async fn secrets(world: &World, signer: &Signer) -> Vec<Value> {
    // What is just being noted by itself may be told twice.
    uses::note(&world.running.app).await.expect("is noted");
    let path = format!("/operator/v1/applications/{}/secrets", signer.client_id);
    let page = world.access.call("GET", &path, None).await.expect("an answer").json();
    page["items"].as_array().expect("items").clone()
}

#[tokio::test]
async fn a_body_of_the_operators_has_64_kib_and_no_more() {
    let (world, _) = bank().await;
    for (more, status) in [(0, 200), (1, 413)] {
        let mut body = json!({"name": "M", "x": ""});
        body["x"] = json!("y".repeat(64 * 1024 - body.to_string().len() + more));
        let answer = world.access.call("POST", "/operator/v1/merchants", Some(body)).await.expect("an answer");
        assert_eq!(answer.status, status, "{}", answer.json());
    }
}

#[tokio::test]
async fn a_disabled_merchants_applications_are_refused_like_one_that_nobody_knows() {
    let (world, institution) = bank().await;
    let sub = world.access.application("bank-1", None).await.expect("an application");
    let nobody = Signer {
        client_id: "app_nobody".to_owned(),
        ..world.access.application("bank", None).await.expect("an application")
    };
    let stranger = |signer: &Signer| Signer {
        client_id: signer.client_id.clone(),
        key: countersign_protocol::signing::SigningKey::new(b"wrong"),
        merchant_id: None,
    };
    let get = |signer: &Signer| world.draft(signer, "GET", EVENTS, "");
    let unknown = told(&sends(&world, &get(&Signer { merchant_id: None, ..nobody })).await);
    assert!(String::from_utf8_lossy(&unknown.1).contains("400002"));
    assert_eq!(told(&sends(&world, &get(&stranger(&sub))).await), unknown);
    good(&world, &sub, "GET", EVENTS, &Value::Null).await;

    set_enabled(&world, "bank-1", false).await;
    let refused = get(&sub).without("X-Service-MerchantId");
    assert_eq!(told(&sends(&world, &refused).await), unknown, "the next request already");
    good(&world, &institution, "GET", EVENTS, &Value::Null).await;
    // Nor does its institution act for it.
    let order = world.access.convert_order("bank-1").await.expect("the back end still can");
    let target = format!("/v1/pay/convert/order?orderId={order}");
    let acting = |sub: &str| world.draft(&institution, "GET", &target, "").with("X-Service-On-Behalf-Of", sub);
    assert_eq!(sends(&world, &acting("bank-1")).await.code(), "400203");
    set_enabled(&world, "bank-1", true).await;
    assert_eq!(sends(&world, &acting("bank-1")).await.code(), "000000", "its orders are as they were");

    set_enabled(&world, "bank", false).await;
    for signer in [&institution, &sub] {
        let refused = get(signer).without("X-Service-MerchantId");
        assert_eq!(told(&sends(&world, &refused).await), unknown, "an institution's state counts for its sub-accounts");
    }
    let world = world.restart().await.expect("comes back");
    assert_eq!(call(&world, &sub, "GET", EVENTS, &Value::Null).await["code"], "400002", "that lasts");
    set_enabled(&world, "bank", true).await;
    good(&world, &sub, "GET", EVENTS, &Value::Null).await;
    good(&world, &institution, "GET", EVENTS, &Value::Null).await;
}

#[tokio::test]
async fn a_disabled_merchants_events_are_held_and_go_out_when_it_is_enabled() -> Result<()> {
    let (world, _) = bank().await;
    let endpoint = Receiver::start().await?;
    let sub = world.access.application("bank-1", Some(&endpoint.url())).await?;
    let emit = async |biz_id: &str| {
        let event = json!({"client_id": sub.client_id, "bizType": "T", "bizId": biz_id, "bizStatus": "S", "data": {}});
        let made = world.access.provision("POST", "/events", event).await.expect("an event");
        made["event_id"].as_str().expect("an id").to_owned()
    };
    let state = async |id: &str| {
        let shown = world.access.call("GET", &format!("/operator/v1/events/{id}"), None).await.expect("an answer");
        shown.json()["state"].as_str().unwrap_or("").to_owned()
    };
    emit("before").await;
    endpoint.wait_for(1, SOON).await?;
    set_enabled(&world, "bank", false).await;
    let held = emit("while").await;
    assert_eq!(state(&held).await, "held");
    // Setting what releases events elsewhere does not release these.
    let path = format!("/applications/{}", sub.client_id);
    patch(&world, &path, json!({"callback_url": endpoint.url(), "callback_enabled": true})).await;
    assert_eq!(state(&held).await, "held");
    set_enabled(&world, "bank-1", false).await;
    set_enabled(&world, "bank", true).await;
    assert_eq!(state(&held).await, "held", "the sub-account itself is disabled by now");
    assert_eq!(endpoint.received().len(), 1);
    set_enabled(&world, "bank-1", true).await;
    let received = endpoint.wait_for(2, SOON).await?;
    assert_eq!(received.len(), 2);
    Ok(())
}

#[tokio::test]
async fn uses_of_a_secret_are_counted_by_what_was_signed_and_outlive_a_restart() {
    let (world, signer) = bank().await;
    for _ in 0..3 {
        good(&world, &signer, "GET", EVENTS, &Value::Null).await;
    }
    let wrong = Signer {
        client_id: signer.client_id.clone(),
        key: countersign_protocol::signing::SigningKey::new(b"wrong"),
        merchant_id: None,
    };
    assert_eq!(call(&world, &wrong, "GET", EVENTS, &Value::Null).await["code"], "400002");
    let seen = |all: &[Value]| all.iter().map(|s| s["uses_last_hour"].as_i64()).collect::<Vec<_>>();
    let at = world.clock.now();
    assert_eq!(seen(&secrets(&world, &signer).await), [Some(3)], "a wrong signature is no use");
    let path = format!("/applications/{}/secrets", signer.client_id);
    let made = world.access.provision("POST", &path, json!({})).await.expect("a rotation");
    let key = countersign_protocol::signing::SigningKey::new(
        made["payment_api_secret"].as_str().expect("it is shown").as_bytes(),
    );
    let newer = Signer { client_id: signer.client_id.clone(), key, merchant_id: None };
    world.clock.advance_ms(1_000);
    good(&world, &newer, "GET", EVENTS, &Value::Null).await;
    good(&world, &signer, "GET", EVENTS, &Value::Null).await;
    assert_eq!(seen(&secrets(&world, &signer).await), [Some(1), Some(4)]);
    let world = world.restart().await.expect("comes back");
    let all = secrets(&world, &signer).await;
    assert_eq!(seen(&all), [Some(1), Some(4)], "a restart forgets nothing");
    let later = countersign_domain::time::rfc3339(at.plus_ms(1_000));
    assert!(all.iter().all(|s| s["last_used_at"] == json!(later)), "{all:?}");
}

#[tokio::test]
async fn the_log_names_both_parties_of_a_delegated_request() -> Result<()> {
    let (world, signer) = bank().await;
    let order = world.access.convert_order("bank-2").await?;
    let target = format!("/v1/pay/convert/order?orderId={order}");
    for (sub, code) in [("bank-2", "000000"), ("bank-9", "400203")] {
        let draft = world.draft(&signer, "GET", &target, "").with("X-Service-On-Behalf-Of", sub);
        let answer = world.send(&draft).await?;
        assert_eq!(answer.code(), code);
        let id = answer.header("x-service-request-id").expect("an id").to_owned();
        let find = async || Ok(world.heard.lines().into_iter().find(|line| line["request_id"] == id.as_str()));
        let (line, _) = until("the line of the request", SOON, find).await?;
        assert_eq!(
            (&line["client_id"], &line["merchant_id"], &line["on_behalf_of"], &line["code"]),
            (&json!(signer.client_id), &json!("bank"), &json!(sub), &json!(code))
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_change_of_an_application_or_its_merchant_does_not_refill_its_rate() {
    let (world, signer) = bank().await;
    let path = format!("/applications/{}", signer.client_id);
    patch(&world, &path, json!({"rate_limit_per_s": 1})).await;
    let code =
        async || call(&world, &signer, "GET", EVENTS, &Value::Null).await["code"].as_str().unwrap_or("").to_owned();
    let mut codes = Vec::new();
    while codes.last().is_none_or(|last| last == "000000") && codes.len() < 100 {
        codes.push(code().await);
    }
    assert_eq!(codes.last().map(String::as_str), Some("400429"), "{codes:?}");
    // Each change would give two more at once; time gives one a second.
    let (began, mut passed) = (Instant::now(), 0);
    for n in 0..10 {
        patch(&world, &path, json!({"name": format!("n{n}")})).await;
        patch(&world, "/merchants/bank", json!({"enabled": false})).await;
        patch(&world, "/merchants/bank", json!({"enabled": true})).await;
        for _ in 0..2 {
            passed += u64::from(code().await == "000000");
        }
    }
    let room = 2 + began.elapsed().as_secs();
    assert!(passed <= room, "{passed} of 20 passed, and time gave {room} at the most");
}
