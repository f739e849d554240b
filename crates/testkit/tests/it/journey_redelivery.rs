//! Many dead events sent again by a filter: the real binary, a real receiver, stopped and killed in the middle.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_domain::time::parse_rfc3339;
use countersign_testkit::backing::Backing;
use countersign_testkit::patience::until;
use countersign_testkit::process::{Deployment, Server};
use countersign_testkit::receiver::{Receiver, Reply};
use countersign_testkit::wire::once;
use serde_json::{Value, json};
use tempfile::TempDir;

/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(60);
const DEAD: usize = 30;

/// A deployment with an application whose thirty events are dead, and its receiver.
struct Shop {
    server: Server,
    deployment: Deployment,
    receiver: Receiver,
    client_id: String,
    _folder: TempDir,
    _backing: Backing,
}

impl Shop {
    async fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let backing = Backing::of_this_run().await;
        let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing).expect("init");
        "callback_schedule = [\"20ms\"]\n".clone_into(&mut deployment.config);
        let server = deployment.serve().expect("serve");
        let receiver = Receiver::start().await.expect("a loopback port");
        // An honest FAIL says nothing against the endpoint.
        receiver.answer_with(Reply::Fail);
        let access = &server.access;
        access.provision("POST", "/merchants", json!({"name": "M", "merchant_id": "m"})).await.expect("a merchant");
        let made = access.application("m", Some(&receiver.url())).await.expect("an application");
        let client_id = made.client_id;
        let shop = Self { server, deployment, receiver, client_id, _folder: folder, _backing: backing };
        for n in 0..DEAD {
            let event = json!({"client_id": shop.client_id, "bizType": "T", "bizId": format!("b{n}"), "bizStatus": "S", "data": {}});
            shop.server.access.provision("POST", "/events", event).await.expect("an event");
        }
        shop.wait_for(DEAD, "dead").await;
        shop
    }

    async fn get(&self, path: &str) -> Value {
        self.server.access.call("GET", &format!("/operator/v1{path}"), None).await.expect("an answer").json()
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let answer = self.server.access.call("POST", &format!("/operator/v1{path}"), Some(body)).await;
        let answer = answer.expect("an answer");
        (answer.status, answer.json())
    }

    async fn redeliver(&self, more: &Value) -> (u16, Value) {
        let mut body = json!({"client_id": self.client_id});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        self.post("/events/redeliver", body).await
    }

    /// How many events stand so.
    async fn count(&self, state: &str) -> usize {
        let events = self.get(&format!("/events?client_id={}&state={state}&limit=100", self.client_id)).await;
        events["items"].as_array().expect("a list").len()
    }

    async fn wait_for(&self, count: usize, state: &str) {
        let there = async || Ok((self.count(state).await == count).then_some(()));
        until(&format!("{count} events are {state}"), SOON, there).await.expect("they are");
    }

    /// The redelivery, as soon as `is_so` says.
    async fn see(&self, id: &Value, is_so: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/redeliveries/{}", id.as_str().expect("an id"));
        let ask = async || Ok(Some(self.get(&path).await).filter(|seen| is_so(seen)));
        until("the redelivery goes on", SOON, ask).await.expect("it does").0
    }

    async fn see_done(&self, id: &Value) -> Value {
        self.see(id, |seen| seen["state"] == "done").await
    }

    /// Ids of the events that came behind the first so many callbacks.
    fn came_behind(&self, before: usize) -> Vec<String> {
        self.receiver.received()[before..].iter().map(|r| r.need("x-service-event-id").to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_are_counted_first_and_then_sent_once_more_at_the_rate_that_was_asked_for() {
    let shop = Shop::open().await;
    let before = shop.receiver.received().len();
    let (status, preview) = shop.redeliver(&json!({"preview": true, "rate_per_s": 10})).await;
    assert_eq!((status, &preview["count"], &preview["takes_s"]), (200, &json!(DEAD), &json!(3)));
    assert!(preview["preview"] == true && preview["oldest_at"].is_string() && preview.get("redelivery_id").is_none());
    assert_eq!((shop.count("dead").await, shop.get("/redeliveries").await["items"].clone()), (DEAD, json!([])));

    shop.receiver.answer_with(Reply::Success);
    // Slow enough that it is still under way when it is asked for once more.
    let (status, begun) = shop.redeliver(&json!({"rate_per_s": 4})).await;
    assert_eq!((status, &begun["state"], &begun["count"]), (200, &json!("running"), &json!(DEAD)), "{begun}");
    let id = &begun["redelivery_id"];
    let (status, refused) = shop.redeliver(&json!({})).await;
    assert_eq!(status, 409, "one at a time");
    assert!(refused["detail"].as_str().is_some_and(|why| why.contains(id.as_str().expect("an id"))), "{refused}");
    let done = shop.see_done(id).await;
    assert!(done["done"] == DEAD && done["ended_at"].is_string(), "{done}");
    shop.wait_for(DEAD, "delivered").await;
    let came = shop.came_behind(before);
    assert_eq!((came.len(), came.iter().collect::<BTreeSet<_>>().len()), (DEAD, DEAD), "each once");
    let fared = shop.get(&format!("/redeliveries/{}/outcomes", id.as_str().expect("an id"))).await;
    assert_eq!(
        fared,
        json!({"redelivery_id": id, "state": "done", "done": DEAD, "delivered": DEAD, "dead": 0, "waiting": 0, "elsewhere": 0,
            "count_is_at_least": false})
    );
    let at = |name: &str| done[name].as_str().and_then(parse_rfc3339).expect("a time").0;
    let took_ms = at("ended_at") - at("created_at");
    // One in each quarter of a second: twenty-nine pauses.
    assert!(took_ms >= 7_000, "{took_ms} ms for thirty at four in a second");
    let mut listed = done;
    let waits_for = listed.as_object_mut().expect("an object").remove("waits_for");
    assert_eq!(waits_for, Some(Value::Null), "what it waits for is told of one alone");
    assert_eq!(shop.get("/redeliveries").await["items"], json!([listed]));

    let (status, nothing) = shop.redeliver(&json!({})).await;
    assert_eq!((status, &nothing["count"], &nothing["state"]), (200, &json!(0), &json!("done")));
    assert_eq!(shop.get("/redeliveries").await["items"], json!([listed]), "nothing was begun");
    // What is delivered is sent again by the same call, of one business only.
    let (_, one) = shop.redeliver(&json!({"state": "delivered", "bizId": "b7"})).await;
    assert_eq!(one["count"], 1, "{one}");
    shop.see_done(&one["redelivery_id"]).await;
    shop.receiver.wait_for(before + DEAD + 1, SOON).await.expect("it comes once more");
    let fared = shop.get(&format!("/redeliveries/{}/outcomes", id.as_str().expect("an id"))).await;
    assert_eq!((&fared["delivered"], &fared["elsewhere"]), (&json!(DEAD - 1), &json!(1)), "a later one has taken it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redelivery_that_is_stopped_makes_nothing_more_pending() {
    let shop = Shop::open().await;
    let before = shop.receiver.received().len();
    shop.receiver.answer_with(Reply::Success);
    let (_, begun) = shop.redeliver(&json!({"rate_per_s": 4})).await;
    let id = &begun["redelivery_id"];
    shop.see(id, |seen| seen["done"].as_i64() >= Some(2)).await;
    let path = format!("/redeliveries/{}/stop", id.as_str().expect("an id"));
    let (status, stopped) = shop.post(&path, json!({})).await;
    assert_eq!((status, &stopped["state"]), (200, &json!("stopped")), "{stopped}");
    let (status, again) = shop.post(&path, json!({})).await;
    assert!(status == 409 && again["detail"].as_str().is_some_and(|why| why.contains("stopped before")), "{again}");
    shop.wait_for(0, "pending").await;
    let seen = shop.get(&format!("/redeliveries/{}", id.as_str().expect("an id"))).await;
    let done = usize::try_from(seen["done"].as_i64().expect("a count")).expect("small");
    assert!((2..DEAD).contains(&done), "{seen}");
    assert_eq!((shop.came_behind(before).len(), shop.count("dead").await), (done, DEAD - done));
    // What is left may be asked for anew.
    let (status, rest) = shop.redeliver(&json!({"rate_per_s": 1_000})).await;
    assert_eq!((status, &rest["count"]), (200, &json!(DEAD - done)));
    shop.wait_for(DEAD, "delivered").await;
    assert_eq!(shop.came_behind(before).len(), DEAD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redelivery_goes_on_behind_a_kill_where_it_was() {
    let mut shop = Shop::open().await;
    let before = shop.receiver.received().len();
    shop.receiver.answer_with(Reply::Success);
    let (_, begun) = shop.redeliver(&json!({"rate_per_s": 4})).await;
    let id = begun["redelivery_id"].clone();
    let seen = shop.see(&id, |seen| seen["done"].as_i64() >= Some(6)).await;
    assert_eq!(seen["state"], "running", "it is in the middle: {seen}");
    let next = {
        let Shop { server, deployment, .. } = shop;
        server.kill();
        let server = deployment.serve().expect("serve again");
        Shop { server, deployment, ..shop }
    };
    shop = next;
    let done = shop.see_done(&id).await;
    assert_eq!(done["done"], DEAD, "each was made pending once: {done}");
    shop.wait_for(DEAD, "delivered").await;
    assert_eq!(shop.came_behind(before).into_iter().collect::<BTreeSet<_>>().len(), DEAD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redelivered_events_that_die_again_do_not_open_the_breaker() {
    let shop = Shop::open().await;
    let before = shop.receiver.received().len();
    shop.receiver.answer_with(Reply::Status(500));
    let (_, begun) = shop.redeliver(&json!({"rate_per_s": 1_000})).await;
    shop.see_done(&begun["redelivery_id"]).await;
    shop.wait_for(DEAD, "dead").await;
    assert_eq!(shop.came_behind(before).len(), DEAD, "their schedule is used up: one attempt each");
    let draft = shop.server.access.draft("GET", "/metrics", None);
    let metrics = once(shop.server.access.address, &draft.bytes()).await.expect("metrics");
    let open = String::from_utf8_lossy(&metrics.body)
        .lines()
        .find(|line| line.starts_with("countersign_callback_endpoints_open "))
        .map(str::to_owned);
    assert!(open.as_deref().is_none_or(|line| line.ends_with(" 0")), "{open:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_next_attempt_is_an_hour_away_is_sent_at_once_where_an_operator_asks() {
    let shop = Shop::open().await;
    let patch = json!({"callback_schedule": ["1h", "1h"]});
    let application = format!("/applications/{}", shop.client_id);
    shop.server.access.provision("PATCH", &application, patch).await.expect("its own schedule");
    let event = json!({"client_id": shop.client_id, "bizType": "T", "bizId": "late", "bizStatus": "S", "data": {}});
    let made = shop.server.access.provision("POST", "/events", event).await.expect("an event");
    let path = format!("/events/{}", made["event_id"].as_str().expect("an id"));
    let failed = async |times: usize| {
        let ask = async || Ok(Some(shop.get(&path).await).filter(|seen| seen["attempt_count"] == times));
        until("an attempt has failed", SOON, ask).await.expect("it has").0
    };
    assert_eq!(failed(1).await["state"], "pending");
    let (status, sent) = shop.post(&format!("{path}/redeliver"), json!({})).await;
    assert_eq!((status, &sent["state"]), (200, &json!("pending")), "{sent}");
    assert_eq!(failed(2).await["state"], "pending", "its schedule goes on");
    shop.receiver.answer_with(Reply::Success);
    assert_eq!(shop.post(&format!("{path}/redeliver"), json!({})).await.0, 200);
    assert_eq!(failed(3).await["state"], "delivered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_died_of_all_merchants_is_sent_again_by_one_call() {
    let shop = Shop::open().await;
    let access = &shop.server.access;
    access.provision("POST", "/merchants", json!({"name": "N", "merchant_id": "n"})).await.expect("a merchant");
    let other = access.application("n", Some(&shop.receiver.url())).await.expect("an application").client_id;
    let event = json!({"client_id": other, "bizType": "T", "bizId": "other", "bizStatus": "S", "data": {}});
    let path = format!(
        "/events/{}",
        access.provision("POST", "/events", event).await.expect("an event")["event_id"].as_str().expect("an id")
    );
    let stands = async |state: &str| {
        let ask = async || Ok(Some(shop.get(&path).await).filter(|seen| seen["state"] == state));
        until(&format!("the other merchant's event is {state}"), SOON, ask).await.expect("it is")
    };
    stands("dead").await;
    shop.receiver.answer_with(Reply::Success);
    let (status, preview) = shop.post("/events/redeliver", json!({"preview": true})).await;
    assert_eq!((status, &preview["count"]), (200, &json!(DEAD + 1)), "{preview}");
    let (status, begun) = shop.post("/events/redeliver", json!({"all_applications": true, "rate_per_s": 100})).await;
    assert_eq!((status, &begun["count"], &begun["state"]), (200, &json!(DEAD + 1), &json!("running")), "{begun}");
    stands("delivered").await;
    shop.wait_for(DEAD, "delivered").await;
}
