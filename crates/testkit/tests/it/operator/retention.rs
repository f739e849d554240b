//! What an attempt left behind on the wire, shown to operators; and what age frees.

use countersign::app::error::AppError;
use countersign::app::pull::pull;
use countersign::app::retention::{self, Freed};
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_store::attempt_log::{AttemptBytes, Phases};
use countersign_store::contract::AttemptRow;
use countersign_store::testing::Damage;
use serde_json::{Value, json};

use super::listener::{DAY_MS, House};

const URL: &str = "https://shop.example/callbacks";

async fn emit(house: &House, client_id: &str) -> String {
    let what = json!({"client_id": client_id, "bizType": "PAYMENT_ORDER", "bizId": "A", "bizStatus": "SUCCESS", "data": {"n": 1}});
    house.post("/events", what).await.ok().text_of("event_id")
}

async fn record(house: &House, event_id: &str, bytes: Option<AttemptBytes>, state: DeliveryState) {
    let phases = Phases { dns_us: Some(7), total_us: Some(1_234), reused: Some(false), ..Phases::default() };
    let answered = |row| AttemptRow { outcome: Outcome::HttpStatus, http_status: Some(502), phases, ..row };
    house.record(event_id, state, bytes, answered).await;
}

fn wire(answer_head: &[u8], answer_body: &[u8], is_cut: bool) -> AttemptBytes {
    AttemptBytes {
        sent_head: b"POST /callbacks HTTP/1.1\r\nHost: shop.example\r\n\r\n".to_vec(),
        answer_head: answer_head.to_vec(),
        answer_body: answer_body.to_vec(),
        answer_length: 70_000,
        is_cut,
    }
}

async fn attempt(house: &House, event_id: &str, number: u32) -> Value {
    house.get(&format!("/events/{event_id}/attempts/{number}")).await.ok().json()
}

fn text(content: &str) -> Value {
    json!({"encoding": "text", "content": content})
}

#[tokio::test]
async fn an_attempt_is_shown_with_its_phases_and_what_went_over_the_wire() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let id = emit(&house, &client_id).await;
    record(&house, &id, Some(wire(b"HTTP/1.1 502 B\r\n\r\n", &[0xff, 0], true)), DeliveryState::Pending).await;
    record(&house, &id, Some(wire(b"", b"", false)), DeliveryState::Pending).await;
    record(&house, &id, None, DeliveryState::Dead).await;

    let shown = attempt(&house, &id, 1).await;
    assert_eq!((&shown["attempt"], &shown["http_status"], &shown["dns_us"]), (&json!(1), &json!(502), &json!(7)));
    assert_eq!((&shown["tls_us"], &shown["total_us"], &shown["reused"]), (&json!(null), &json!(1234), &json!(false)));
    assert_eq!(shown["sent_head"], text("POST /callbacks HTTP/1.1\r\nHost: shop.example\r\n\r\n"));
    let body = format!(
        r#"{{"bizType":"PAYMENT_ORDER","bizId":"A","bizStatus":"SUCCESS","client_id":"{client_id}","data":"{{\"n\":1}}"}}"#
    );
    assert_eq!(shown["sent_body"]["content"].as_str().map(str::len), Some(body.len()), "{}", shown["sent_body"]);
    assert_eq!(shown["answer_head"], text("HTTP/1.1 502 B\r\n\r\n"));
    assert_eq!(shown["answer_body"], json!({"encoding": "base64", "content": "/wA="}));
    assert_eq!((&shown["answer_body_bytes"], &shown["answer_body_is_cut"]), (&json!(70_000), &json!(true)));

    let silent = attempt(&house, &id, 2).await;
    assert_eq!((&silent["answer_head"], &silent["answer_body_bytes"]), (&json!(null), &json!(null)));
    assert_eq!(silent["sent_head"], shown["sent_head"]);
    let nothing = attempt(&house, &id, 3).await;
    assert_eq!(
        (&nothing["sent_head"], &nothing["sent_body"], &nothing["answer_head"]),
        (&json!(null), &json!(null), &json!(null))
    );

    for number in ["0", "4", "-1", "x", "99999999999999999999"] {
        let path = format!("/events/{id}/attempts/{number}");
        house.get(&path).await.refused(404, "400404", &format!("has no attempt {number}"));
    }
    for number in ["1", "x"] {
        house.get(&format!("/events/evt_x/attempts/{number}")).await.refused(
            404,
            "400404",
            "no event has the id evt_x",
        );
    }
}

/// Rows of each kind that would be freed.
async fn freeable(house: &House) -> [i64; 3] {
    let items = house.get("/retention").await.ok().json();
    assert_eq!(items["next"], json!(null));
    let rows = |kind: &str| {
        let items = items["items"].as_array().expect("a list");
        let of = items.iter().find(|item| item["kind"] == kind).expect("the kind is there");
        of["rows"].as_i64().expect("a number")
    };
    [rows("attempt_bytes"), rows("events"), rows("attempts")]
}

#[tokio::test]
async fn what_is_old_is_told_and_then_freed_and_whoever_pulls_is_told_the_oldest() {
    let house = House::open().await;
    let client_id = house.application("m", Some(URL)).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let id = emit(&house, &client_id).await;
        record(&house, &id, Some(wire(b"HTTP/1.1 502 B\r\n\r\n", b"", false)), DeliveryState::Dead).await;
        ids.push(id);
    }
    assert_eq!(freeable(&house).await, [0, 0, 0]);
    assert_eq!(retention::free(&house.app, house.app.clock.now()).await.expect("looks"), Freed::default());
    house.app.clock.advance_ms(30 * DAY_MS);
    assert_eq!(freeable(&house).await, [0, 0, 0], "kept for 30 days");
    house.app.clock.advance_ms(1);
    assert_eq!(freeable(&house).await, [4, 0, 0]);
    let items = house.get("/retention").await.ok().json();
    assert_eq!(items["items"][0]["kept_for_s"], json!(30 * 86_400));
    assert!(items["items"][0]["bytes"].as_i64().is_some_and(|bytes| bytes > 4 * 48), "{items}");
    assert_eq!(freeable(&house).await, [4, 0, 0], "asking frees nothing");
    assert_eq!(
        retention::free(&house.app, house.app.clock.now()).await.expect("frees"),
        Freed { attempt_bytes: 1, ..Freed::default() }
    );
    assert_eq!(freeable(&house).await, [0, 0, 0]);
    let shown = attempt(&house, &ids[0], 1).await;
    assert_eq!((&shown["sent_head"], &shown["total_us"]), (&json!(null), &json!(1234)), "the attempt itself stays");

    house.app.clock.advance_ms(370 * DAY_MS - 1);
    assert_eq!(
        retention::free(&house.app, house.app.clock.now()).await.expect("looks"),
        Freed::default(),
        "kept for 400 days"
    );
    house.app.clock.advance_ms(1);
    assert_eq!(freeable(&house).await, [0, 3, 3], "the last event stays");
    assert_eq!(
        retention::free(&house.app, house.app.clock.now()).await.expect("frees"),
        Freed { events: 1, ..Freed::default() }
    );
    house.get(&format!("/events/{}", ids[2])).await.refused(404, "400404", &ids[2]);
    house.get(&format!("/events/{}", ids[3])).await.ok();
    let known = house.app.known_application(&client_id).await.expect("a store").expect("known");
    for after in [0, 2] {
        let gone = pull(&house.app, &known.application, after, 10).await;
        assert!(matches!(gone, Err(AppError::EventsGone { oldest: 4 })), "{gone:?}");
    }
    let pulled = pull(&house.app, &known.application, 3, 10).await.expect("events");
    assert_eq!((pulled.events.len(), pulled.next), (1, 4));
}

#[tokio::test]
async fn what_is_held_is_told_apart_and_freed_in_the_end() {
    let house = House::open().await;
    let puller = house.application("puller", None).await;
    for _ in 0..3 {
        emit(&house, &puller).await;
    }
    let told = async || {
        let items = house.get("/retention").await.ok().json()["items"].clone();
        let of = |kind: &str| items.as_array().and_then(|all| all.iter().find(|of| of["kind"] == kind)).cloned();
        let [events, held] = ["events", "held_events"].map(|kind| of(kind).expect("the kind is there"));
        assert_eq!((&held["kept_for_s"], &held["bytes"]), (&json!(400 * 86_400), &json!(null)), "{held}");
        [events["rows"].clone(), held["rows"].clone()]
    };
    house.app.clock.advance_ms(400 * DAY_MS);
    assert_eq!(told().await, [json!(0), json!(0)], "kept for 400 days");
    assert_eq!(retention::free(&house.app, house.app.clock.now()).await.expect("looks"), Freed::default());
    house.app.clock.advance_ms(1);
    assert_eq!(told().await, [json!(2), json!(2)], "the last event stays");
    let freed = retention::free(&house.app, house.app.clock.now()).await.expect("frees");
    assert_eq!(freed, Freed { events: 1, held: 2, ..Freed::default() });
    let known = house.app.known_application(&puller).await.expect("a store").expect("known");
    let gone = pull(&house.app, &known.application, 0, 10).await;
    assert!(matches!(gone, Err(AppError::EventsGone { oldest: 3 })), "{gone:?}");
}

#[tokio::test]
async fn one_owner_that_cannot_be_freed_stops_neither_those_behind_it_nor_the_other_kind() {
    let house = House::open().await;
    let mut tenants = Vec::new();
    for name in ["first", "second", "third"] {
        let client_id = house.application(name, Some(URL)).await;
        for _ in 0..2 {
            let id = emit(&house, &client_id).await;
            record(&house, &id, Some(wire(b"HTTP/1.1 502 B\r\n\r\n", b"", false)), DeliveryState::Dead).await;
        }
        let known = house.app.known_application(&client_id).await.expect("a store").expect("known");
        tenants.push(known.application.tenant);
    }
    house.damage(&Damage::Bytes(tenants[0])).await;
    house.app.clock.advance_ms(400 * DAY_MS + 1);
    assert_eq!(freeable(&house).await, [6, 3, 3]);
    retention::free(&house.app, house.app.clock.now()).await.expect_err("the first one's stay, and that is told");
    // Its event keeps its bytes, which cannot go.
    assert_eq!(freeable(&house).await, [2, 1, 1]);
}
