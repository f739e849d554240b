//! Dead events of all applications sent again: one redelivery for each that has some.

use serde_json::{Value, json};

use super::listener::House;
use super::repeats::make_dead;

const URL: &str = "https://example.com/callback";

/// An event of an application that is dead.
async fn dead(house: &House, client_id: &str, biz_id: &str) -> String {
    let event = json!({"client_id": client_id, "bizType": "T", "bizId": biz_id, "bizStatus": "S", "data": {}});
    let id = house.post("/events", event).await.ok().text_of("event_id");
    make_dead(house, &id).await;
    id
}

/// So many applications of as many merchants, in the order of their making, each with a dead event.
async fn with_dead_events(house: &House, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0..count {
        let client_id = house.application(&format!("m{n}"), Some(URL)).await;
        dead(house, &client_id, "A").await;
        all.push(client_id);
    }
    all
}

async fn redeliver(house: &House, body: Value) -> Value {
    house.post("/events/redeliver", body).await.ok().json()
}

/// Of each application what becomes of it.
fn fates(answer: &Value) -> Vec<(&str, i64, Option<&str>, Option<&str>)> {
    answer["applications"].as_array().expect("a list").iter().map(fate).collect()
}

fn fate(item: &Value) -> (&str, i64, Option<&str>, Option<&str>) {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let count = item["count"].as_i64().expect("how many");
    (text("client_id").expect("whose"), count, text("redelivery_id"), text("left_out"))
}

async fn running(house: &House) -> Vec<(String, i64)> {
    let rows = house.get("/redeliveries?limit=500").await.ok().json();
    let of =
        |row: &Value| (row["client_id"].as_str().expect("whose").to_owned(), row["count"].as_i64().expect("count"));
    let mut all: Vec<_> = rows["items"].as_array().expect("a list").iter().map(of).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_preview_counts_what_is_dead_of_all_applications_and_writes_nothing() {
    let house = House::open().await;
    let all = with_dead_events(&house, 3).await;
    dead(&house, &all[1], "B").await;
    house.application("quiet", Some(URL)).await;
    let lines = house.audit().await.len();
    for body in [json!({"preview": true}), json!({"preview": true, "all_applications": true})] {
        let preview = redeliver(&house, body).await;
        assert_eq!((&preview["count"], &preview["takes_s"], &preview["preview"]), (&json!(4), &json!(1), &json!(true)));
        assert_eq!((&preview["count_is_at_least"], preview.get("next")), (&json!(false), None));
        assert!(preview["oldest_at"].is_string() && preview.get("state").is_none());
        let counts = [1, 2, 1].into_iter().zip(&all);
        assert_eq!(fates(&preview), counts.map(|(n, id)| (id.as_str(), n, None, None)).collect::<Vec<_>>());
    }
    let of_b = redeliver(&house, json!({"preview": true, "bizId": "B", "rate_per_s": 1})).await;
    assert_eq!(fates(&of_b), [(all[1].as_str(), 1, None, None)]);
    house.post("/events/redeliver", json!({"preview": true, "after": "app_nobody"})).await.refused(
        404,
        "400404",
        "app_nobody",
    );
    let later = redeliver(&house, json!({"preview": true, "from": "2027-01-01T00:00:00Z"})).await;
    assert_eq!((&later["count"], &later["oldest_at"], fates(&later).len()), (&json!(0), &json!(null), 0));
    assert_eq!(running(&house).await, []);
    assert_eq!(house.audit().await.len(), lines);
}

#[tokio::test]
async fn one_redelivery_begins_for_each_application_and_what_is_left_out_says_why() {
    let house = House::open().await;
    let all = with_dead_events(&house, 5).await;
    let [fine, paused, silent, runs, other] = [0, 1, 2, 3, 4].map(|n| all[n].as_str());
    house.post(&format!("/applications/{paused}/callbacks/pause"), json!({})).await.ok();
    let secrets = house.get(&format!("/applications/{silent}/secrets")).await.ok().json();
    let secret = secrets["items"][0]["secret_id"].as_str().expect("a secret");
    house.delete(&format!("/applications/{silent}/secrets/{secret}")).await.ok();
    let before = redeliver(&house, json!({"client_id": runs})).await;
    let id = before["redelivery_id"].as_str().expect("an id");

    let preview = redeliver(&house, json!({"preview": true})).await;
    let begun = redeliver(&house, json!({"all_applications": true, "rate_per_s": 7})).await;
    for (answer, begins) in [(&preview, false), (&begun, true)] {
        let fates = fates(answer);
        assert_eq!(fates.iter().map(|fate| fate.0).collect::<Vec<_>>(), all);
        for (client_id, word) in [(paused, "resume-callbacks"), (silent, "no live secret"), (runs, id)] {
            let (_, count, redelivery, why) = fates.iter().find(|fate| fate.0 == client_id).expect("it is there");
            assert_eq!((*count, *redelivery), (1, None), "{client_id}");
            assert!(why.is_some_and(|why| why.contains(word)), "{why:?}");
        }
        for client_id in [fine, other] {
            let (_, _, redelivery, why) = fates.iter().find(|fate| fate.0 == client_id).expect("it is there");
            assert_eq!((redelivery.is_some(), *why), (begins, None), "{client_id}");
        }
        assert_eq!(answer["count"], 2, "those that are left out are not counted");
    }
    assert_eq!((&begun["state"], &begun["rate_per_s"]), (&json!("running"), &json!(7)));
    let mut expected = [fine, runs, other].map(|of| (of.to_owned(), 1)).to_vec();
    expected.sort();
    assert_eq!(running(&house).await, expected);
    let noted: Vec<String> = house
        .audit()
        .await
        .iter()
        .filter(|line| line["action"] == "events.redeliver" && line["after"]["rate_per_s"] == 7)
        .map(|line| line["subject"].as_str().expect("a subject").to_owned())
        .collect();
    assert_eq!(noted.len(), 2, "{noted:?}");
    assert!([fine, other].iter().all(|of| noted.iter().any(|noted| noted == of)), "{noted:?}");

    let again = redeliver(&house, json!({"all_applications": true})).await;
    assert_eq!((&again["count"], &again["state"]), (&json!(0), &json!("done")), "each runs by now, or is left out");
}

#[tokio::test]
async fn only_what_died_of_the_cause_that_is_named_is_sent_again() {
    let house = House::open().await;
    let all = with_dead_events(&house, 2).await;
    // All of them were answered FAIL, with 200.
    for (body, count) in [
        (json!({"outcome": "fail"}), 2),
        (json!({"outcome": "fail", "http_status": 200}), 2),
        (json!({"http_status": 503}), 0),
        (json!({"outcome": "timeout"}), 0),
    ] {
        let mut of_all = body.clone();
        of_all["preview"] = json!(true);
        assert_eq!(redeliver(&house, of_all.clone()).await["count"], count, "{body}");
        of_all["client_id"] = json!(all[0]);
        assert_eq!(redeliver(&house, of_all).await["count"], count / 2, "{body}");
    }
    let begun = redeliver(&house, json!({"client_id": all[0], "outcome": "fail", "http_status": 200})).await;
    let path = format!("/redeliveries/{}", begun["redelivery_id"].as_str().expect("an id"));
    let shown = house.get(&path).await.ok().json();
    assert_eq!((&shown["outcome"], &shown["http_status"]), (&json!("fail"), &json!(200)));
    let line = house.audit().await.into_iter().find(|line| line["action"] == "events.redeliver").expect("a line");
    assert_eq!((&line["after"]["outcome"], &line["after"]["http_status"]), (&json!("fail"), &json!(200)));
    for (body, field, word) in [
        (json!({"outcome": "delivered"}), "outcome", "refused_address, dns_failed"),
        (json!({"outcome": "FAIL"}), "outcome", "unreadable, fail"),
        (json!({"http_status": 99}), "http_status", "100"),
        (json!({"outcome": "fail", "state": "delivered"}), "outcome", "dead events only"),
        (json!({"http_status": 200, "state": "delivered"}), "http_status", "dead events only"),
    ] {
        let mut body = body;
        body["client_id"] = json!(all[1]);
        let answer = house.post("/events/redeliver", body).await;
        answer.refused(400, "400001", field);
        answer.refused(400, "400001", word);
    }
    assert_eq!(running(&house).await, [(all[0].clone(), 1)]);
}

#[tokio::test]
async fn whoever_names_no_application_says_that_all_are_meant() {
    let house = House::open().await;
    let all = with_dead_events(&house, 1).await;
    let refused = async |body: Value, field: &str, word: &str| {
        let answer = house.post("/events/redeliver", body).await;
        answer.refused(400, "400001", field);
        answer.refused(400, "400001", word);
    };
    refused(json!({}), "client_id", "all_applications").await;
    refused(json!({"clientId": all[0]}), "client_id", "all_applications").await;
    refused(json!({"all_applications": false}), "client_id", "all_applications").await;
    refused(json!({"all_applications": true, "client_id": all[0]}), "client_id", "one of them").await;
    refused(json!({"all_applications": true, "state": "delivered"}), "client_id", "one application").await;
    refused(json!({"preview": true, "state": "delivered"}), "client_id", "one application").await;
    refused(json!({"client_id": all[0], "after": all[0]}), "after", "all_applications").await;
    refused(json!({"all_applications": "yes"}), "all_applications", "true").await;
    refused(json!({"all_applications": true, "form": "2026-01-01T00:00:00Z"}), "form", "misspelt").await;
    refused(json!({"preview": true, "form": "2026-01-01T00:00:00Z"}), "form", "misspelt").await;
    assert_eq!(running(&house).await, []);
    house.app.bell.set_paused(true);
    let held = house.post("/events/redeliver", json!({"all_applications": true})).await;
    held.refused(409, "400204", "/delivery/release");
    assert_eq!(running(&house).await, []);
}

#[tokio::test]
async fn two_hundred_applications_are_begun_by_one_call_and_the_rest_by_the_next() {
    let house = House::open().await;
    let all = with_dead_events(&house, 202).await;
    let body = json!({"all_applications": true}).to_string();
    let first = house.post_keyed("k", "/events/redeliver", &body).await.ok();
    assert_eq!(house.post_keyed("k", "/events/redeliver", &body).await.ok().text, first.text, "kept for its key");
    let first = first.json();
    assert_eq!((fates(&first).len(), &first["count"], &first["next"]), (200, &json!(200), &json!(all[199])));
    let rest = redeliver(&house, json!({"all_applications": true, "after": first["next"]})).await;
    assert_eq!(fates(&rest).iter().map(|fate| fate.0).collect::<Vec<_>>(), all[200..]);
    assert_eq!((&rest["count"], rest.get("next")), (&json!(2), None));
    assert_eq!(running(&house).await.len(), 202);
}
