//! Events: written, held, released, listed, sent again.

use countersign::app::events::parse_public_id;
use countersign::app::pull::pull;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_store::contract::{Asker, AttemptRow};
use countersign_store::{Batch, Store as _, Write};
use serde_json::{Value, json};

use super::listener::{House, START, all_pages};

const URL: &str = "https://example.com/callback";

fn event(client_id: &str, biz_id: &str) -> Value {
    json!({"client_id": client_id, "bizType": "PAYMENT_ORDER", "bizId": biz_id, "bizStatus": "SUCCESS", "data": {"merchantTradeNo": "T1"}})
}

async fn emit(house: &House, client_id: &str, biz_id: &str) -> String {
    house.post("/events", event(client_id, biz_id)).await.ok().text_of("event_id")
}

async fn show(house: &House, event_id: &str) -> Value {
    house.get(&format!("/events/{event_id}")).await.ok().json()
}

async fn record(house: &House, event_id: &str, outcome: Outcome, state: DeliveryState) {
    let answered = |row| AttemptRow {
        outcome,
        http_status: Some(500),
        duration_ms: 12,
        address: Some("192.0.2.9:443".to_owned()),
        detail: "answered 500".to_owned(),
        ..row
    };
    house.record(event_id, state, None, answered).await;
}

/// Lets an event wait for an earlier one of its bizId.
async fn defer(house: &House, event_id: &str, behind: &str) {
    let mut rows = Vec::new();
    for id in [event_id, behind] {
        let id = parse_public_id(id).expect("an event id");
        rows.push(house.app.store.event(Asker::Operator, id).await.expect("a store").expect("the event").0);
    }
    let (tenant, until) = (rows[0].tenant, START.plus_ms(600_000));
    let write = Write::Defer { tenant, event: rows[0].no, behind: rows[1].no, until };
    house.app.store.commit(Batch(vec![write])).await.expect("it waits");
}

#[tokio::test]
async fn events_of_one_biz_id_are_numbered_and_the_numbers_are_answered() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let mut sequences = Vec::new();
    for biz_id in ["A", "A", "B", "A"] {
        let made = house.post("/events", event(&client_id, biz_id)).await.ok().json();
        sequences.push(made["sequence"].as_i64().expect("a number"));
    }
    assert_eq!(sequences, [1, 2, 1, 3]);
    let id = emit(&house, &client_id, "B").await;
    let shown = show(&house, &id).await;
    assert_eq!((&shown["seq"], &shown["sequence"], &shown["state"]), (&json!(5), &json!(2), &json!("pending")));
    assert_eq!(
        (&shown["attempt_count"], &shown["attempts"], &shown["data"]),
        (&json!(0), &json!([]), &json!(r#"{"merchantTradeNo":"T1"}"#))
    );
    assert_eq!(shown["next_attempt_at"], "2026-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn the_body_of_the_callback_is_fixed_when_the_event_is_written() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let text = r#"{"client_id":"CLIENT","bizType":"TRANSFER_ADDRESS","bizId":"B1","bizStatus":"TRANSFERRED_ADDRESS_DELAY","data":{"n": 0.10,"ü":"\u00fc"}}"#;
    let text = text.replace("CLIENT", &client_id);
    let id = house.send(house.request("POST", "/events", Some(&text), &[])).await.ok().text_of("event_id");
    let (row, _) = house
        .app
        .store
        .event(Asker::Operator, parse_public_id(&id).expect("an id"))
        .await
        .expect("a store")
        .expect("the event");
    assert_eq!(row.data, r#"{"n": 0.10,"ü":"\u00fc"}"#, "digit for digit");
    let body: Value = serde_json::from_slice(&row.body).expect("JSON");
    assert_eq!(
        body,
        json!({"bizType": "TRANSFER_ADDRESS", "bizId": "B1", "bizStatus": "TRANSFERRED_ADDRESS_DELAY", "client_id": client_id, "data": row.data})
    );
    let mut as_text = event(&client_id, "B2");
    as_text["data"] = json!(r#"{"merchantTradeNo":"T2"}"#);
    let id = house.post("/events", as_text).await.ok().text_of("event_id");
    assert_eq!(show(&house, &id).await["data"], r#"{"merchantTradeNo":"T2"}"#);
}

#[tokio::test]
async fn an_event_that_lacks_something_is_refused_by_name() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    for (field, value) in [
        ("client_id", Value::Null),
        ("bizType", json!("")),
        ("bizType", json!("CALLBACK_TEST")),
        ("bizType", json!("x".repeat(65))),
        ("bizId", json!("x".repeat(129))),
        ("bizId", json!(7)),
        ("bizStatus", json!("a\nb")),
        ("data", Value::Null),
        ("data", json!("no JSON")),
        ("data", json!([1])),
    ] {
        let mut body = event(&client_id, "A");
        body[field] = value;
        house.post("/events", body).await.refused(400, "400001", field);
    }
    house.post("/events", event("app_nobody", "A")).await.refused(404, "400404", "app_nobody");
    assert!(all_pages(&house, "/events", 50).await.is_empty());
}

#[tokio::test]
async fn an_event_rings_the_dispatcher_after_it_is_written() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let rung = house.app.bell.notified();
    emit(&house, &client_id, "A").await;
    rung.await;
}

#[tokio::test]
async fn without_a_url_events_are_held_until_one_is_set() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let id = emit(&house, &client_id, "A").await;
    let held = show(&house, &id).await;
    assert_eq!((&held["state"], &held["next_attempt_at"]), (&json!("held"), &Value::Null));
    house.patch(&format!("/applications/{client_id}"), json!({"name": "Other"})).await.ok();
    assert_eq!(show(&house, &id).await["state"], "held");
    house.app.clock.advance_ms(1_000);
    house.patch(&format!("/applications/{client_id}"), json!({"callback_url": URL})).await.ok();
    let released = show(&house, &id).await;
    assert_eq!(
        (&released["state"], &released["next_attempt_at"]),
        (&json!("pending"), &json!("2026-01-01T00:00:01.000Z"))
    );
}

#[tokio::test]
async fn turning_callbacks_off_holds_what_is_pending_and_turning_them_on_releases_it() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let path = format!("/applications/{client_id}");
    let before = emit(&house, &client_id, "A").await;
    house.patch(&path, json!({"callback_enabled": false})).await.ok();
    let during = emit(&house, &client_id, "A").await;
    for id in [&before, &during] {
        assert_eq!(show(&house, id).await["state"], "held");
    }
    house.patch(&path, json!({"callback_enabled": true})).await.ok();
    for id in [&before, &during] {
        assert_eq!(show(&house, id).await["state"], "pending");
    }
    house.patch(&path, json!({"callback_url": null})).await.ok();
    assert_eq!(show(&house, &before).await["state"], "held");
    house.patch(&path, json!({"callback_enabled": false})).await.ok();
    let again = house.patch(&path, json!({"callback_url": URL})).await.ok().json();
    assert_eq!(again["callback_enabled"], true, "setting a URL turns callbacks on");
    assert_eq!(show(&house, &before).await["state"], "pending");
    let off = house.patch(&path, json!({"callback_url": URL, "callback_enabled": false})).await.ok().json();
    assert_eq!(off["callback_enabled"], false, "unless the same call says otherwise");
    assert_eq!(show(&house, &before).await["state"], "held");
}

#[tokio::test]
async fn events_are_listed_newest_first_by_filter_and_page() {
    let house = House::open().await;
    let (one, two) = (house.application("m1", Some(URL)).await, house.application("m2", None).await);
    let mut ids = Vec::new();
    for (client_id, biz_id) in [(&one, "A"), (&two, "A"), (&one, "B"), (&one, "A")] {
        ids.push(emit(&house, client_id, biz_id).await);
    }
    let of =
        |items: Vec<Value>| items.iter().map(|e| e["event_id"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>();
    let pick = |indices: &[usize]| indices.iter().map(|i| ids[*i].clone()).collect::<Vec<_>>();
    for limit in [1, 3, 50] {
        assert_eq!(of(all_pages(&house, "/events", limit).await), pick(&[3, 2, 1, 0]));
        assert_eq!(of(all_pages(&house, &format!("/events?client_id={one}"), limit).await), pick(&[3, 2, 0]));
        assert_eq!(of(all_pages(&house, &format!("/events?client_id={one}&bizId=A"), limit).await), pick(&[3, 0]));
        assert_eq!(of(all_pages(&house, "/events?state=held", limit).await), pick(&[1]));
    }
    house.get("/events?state=lost").await.refused(400, "400001", "state");
    house.get("/events?after=evt_x").await.refused(400, "400001", "after");
    house.get("/events/evt_x").await.refused(404, "400404", "evt_x");
    house.get("/events/evt_01234567890123456789012345").await.refused(404, "400404", "evt_0123");
}

#[tokio::test]
async fn an_event_is_shown_with_all_its_attempts() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let id = emit(&house, &client_id, "A").await;
    record(&house, &id, Outcome::HttpStatus, DeliveryState::Pending).await;
    house.app.clock.advance_ms(5_000);
    record(&house, &id, Outcome::Timeout, DeliveryState::Dead).await;
    let shown = show(&house, &id).await;
    assert_eq!((&shown["state"], &shown["attempt_count"]), (&json!("dead"), &json!(2)));
    assert_eq!(
        shown["attempts"][0],
        json!({"attempt": 1, "at": "2026-01-01T00:00:00.000Z", "outcome": "http_status", "http_status": 500, "duration_ms": 12,
            "address": "192.0.2.9:443", "detail": "answered 500", "dns_us": null, "connect_us": null, "tls_us": null,
            "first_byte_us": null, "total_us": null, "reused": null})
    );
    assert_eq!(
        (&shown["attempts"][1]["outcome"], &shown["attempts"][1]["at"]),
        (&json!("timeout"), &json!("2026-01-01T00:00:05.000Z"))
    );
}

#[tokio::test]
async fn only_what_is_delivered_or_dead_is_sent_again() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    for end in [DeliveryState::Delivered, DeliveryState::Dead] {
        let id = emit(&house, &client_id, "A").await;
        let again = || house.send(house.request("POST", &format!("/events/{id}/redeliver"), None, &[]));
        again().await.refused(409, "400204", "pending");
        record(&house, &id, Outcome::Fail, end).await;
        let answer = again().await.ok().json();
        assert_eq!(
            (&answer["state"], &answer["attempt_count"]),
            (&json!("pending"), &json!(1)),
            "attempts go on counting"
        );
        assert_eq!(show(&house, &id).await["state"], "pending");
        again().await.refused(409, "400204", "pending");
    }
    let other = house.application("m2", None).await;
    let held = emit(&house, &other, "A").await;
    house
        .send(house.request("POST", &format!("/events/{held}/redeliver"), None, &[]))
        .await
        .refused(409, "400204", "held");
    house.post("/events/evt_x/redeliver", json!({})).await.refused(404, "400404", "evt_x");
}

#[tokio::test]
async fn an_event_that_waits_for_its_next_attempt_is_sent_at_once_and_its_schedule_goes_on() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let (first, second) = (emit(&house, &client_id, "A").await, emit(&house, &client_id, "A").await);
    record(&house, &first, Outcome::HttpStatus, DeliveryState::Pending).await;
    let due_at = show(&house, &first).await["next_attempt_at"].clone();
    house.app.clock.advance_ms(1);
    let again = |id: &str| house.send(house.request("POST", &format!("/events/{id}/redeliver"), None, &[]));
    let sent = again(&first).await.ok().json();
    let now = json!("2026-01-01T00:00:00.001Z");
    assert!(due_at.as_str() > now.as_str(), "{due_at}");
    assert_eq!((&sent["state"], &sent["next_attempt_at"]), (&json!("pending"), &now));
    let shown = show(&house, &first).await;
    assert_eq!((&shown["next_attempt_at"], &shown["attempt_count"]), (&now, &json!(1)));
    again(&first).await.refused(409, "400204", "due by now");
    let lines = house.get("/audit?action=event.redeliver").await.ok().json();
    let line = &lines["items"][0];
    assert_eq!((&line["before"]["next_attempt_at"], &line["after"]["next_attempt_at"]), (&due_at, &now));
    assert_eq!(lines["items"].as_array().map(Vec::len), Some(1), "a refusal is no change");

    defer(&house, &second, &first).await;
    again(&second).await.refused(409, "400204", "waits for an earlier one of its bizId");
    house.post(&format!("/applications/{client_id}/callbacks/pause"), json!({})).await.ok();
    again(&first).await.refused(409, "400204", "resume-callbacks");
}

/// A house, an application of the merchant `m`, and an event of it that is dead.
async fn with_a_dead_event() -> (House, String, String) {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let id = emit(&house, &client_id, "A").await;
    record(&house, &id, Outcome::Fail, DeliveryState::Dead).await;
    (house, client_id, id)
}

#[tokio::test]
async fn nothing_is_sent_again_where_nothing_goes_out_and_the_refusal_says_what_mends_it() {
    let (house, client_id, id) = with_a_dead_event().await;
    let application = format!("/applications/{client_id}");
    let again = || house.send(house.request("POST", &format!("/events/{id}/redeliver"), None, &[]));
    house.patch("/merchants/m", json!({"enabled": false})).await.ok();
    again().await.refused(409, "400204", "its merchant, or the institution of that, is disabled: enable it");
    assert_eq!(show(&house, &id).await["state"], "dead", "a refusal changes nothing");
    house.patch("/merchants/m", json!({"enabled": true})).await.ok();
    house.post(&format!("{application}/callbacks/pause"), json!({})).await.ok();
    again().await.refused(409, "400204", "resume-callbacks");
    house.post("/events/redeliver", json!({ "client_id": client_id })).await.refused(409, "400204", "resume-callbacks");
    house.patch(&application, json!({"callback_url": null})).await.ok();
    again().await.refused(409, "400204", "it has no callback_url: set one");
    house.patch(&application, json!({"callback_url": URL})).await.ok();
    house.post(&format!("{application}/callbacks/resume"), json!({})).await.ok();
    again().await.ok();
    again().await.refused(409, "400204", "the event is pending, and due by now");
    let secrets = house.get(&format!("{application}/secrets")).await.ok().json();
    let secret = secrets["items"][0]["secret_id"].as_str().expect("one is live");
    house.send(house.request("DELETE", &format!("{application}/secrets/{secret}"), None, &[])).await.ok();
    again().await.refused(409, "400204", "no live secret to sign with");
}

#[tokio::test]
async fn nothing_is_sent_again_while_callbacks_are_held_since_a_restore() {
    let (house, client_id, id) = with_a_dead_event().await;
    let one = || house.send(house.request("POST", &format!("/events/{id}/redeliver"), None, &[]));
    let many = || house.post("/events/redeliver", json!({ "client_id": client_id }));
    house.app.bell.set_paused(true);
    one().await.refused(409, "400204", "/delivery/release");
    many().await.refused(409, "400204", "/delivery/release");
    let preview = json!({"client_id": client_id, "preview": true});
    assert_eq!(house.post("/events/redeliver", preview).await.ok().json()["count"], 1, "to look is free");
    assert_eq!(show(&house, &id).await["state"], "dead", "a refusal changes nothing");
    assert_eq!(house.get("/redeliveries").await.ok().json()["items"], json!([]));
    house.app.bell.set_paused(false);
    many().await.ok();
    one().await.ok();
}

#[tokio::test]
async fn a_repeated_event_is_written_once_and_answered_with_its_sequence() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let body = event(&client_id, "A").to_string();
    emit(&house, &client_id, "A").await;
    let first = house.post_keyed("k1", "/events", &body).await.ok();
    let again = house.post_keyed("k1", "/events", &body).await.ok();
    assert_eq!(first.text, again.text);
    assert_eq!(first.json()["sequence"], 2);
    assert_eq!(all_pages(&house, "/events", 50).await.len(), 2);
}

#[tokio::test]
async fn an_application_pulls_its_own_events_in_order() {
    let house = House::open().await;
    let client_id = house.application("m", None).await;
    let other = house.application("m2", None).await;
    for client_id in [&client_id, &other, &client_id, &client_id] {
        emit(&house, client_id, "A").await;
    }
    let known = house.app.known_application(&client_id).await.expect("a store").expect("known");
    let pulled = pull(&house.app, &known.application, 0, 2).await.expect("events");
    assert_eq!((pulled.events.iter().map(|e| e.seq).collect::<Vec<_>>(), pulled.next), (vec![1, 2], 2));
    let pulled = pull(&house.app, &known.application, pulled.next, 2).await.expect("events");
    assert_eq!((pulled.events.len(), pulled.next), (1, 3));
    let pulled = pull(&house.app, &known.application, 3, 2).await.expect("events");
    assert_eq!((pulled.events.len(), pulled.next), (0, 3), "nothing new: ask again after the same number");
}
