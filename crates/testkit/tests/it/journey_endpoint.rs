//! An endpoint that fails and recovers, as an operator sees it; and events that are no longer kept, as a merchant's client is told.

use std::path::PathBuf;
use std::time::Duration;

use countersign::app::retention;
use countersign_sdk::protocol::endpoint::events::Event;
use countersign_sdk::{Client, EventWalk, PullError};
use countersign_testkit::backing::Backing;
use countersign_testkit::patience::until;
use countersign_testkit::process::{Deployment, Server};
use countersign_testkit::receiver::{Receiver, Reply};
use countersign_testkit::world::World;
use serde_json::{Value, json};
use tempfile::TempDir;

/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(60);
const DAY_MS: i64 = 86_400_000;
/// What the log says of a breaker.
const FAILS: &str = "fails: its callbacks wait";
const RECOVERS: &str = "answers again";

/// The real program with an application, and its receiver.
struct Shop {
    server: Server,
    receiver: Receiver,
    client_id: String,
    log: PathBuf,
    _folder: TempDir,
    _backing: Backing,
}

impl Shop {
    async fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let backing = Backing::of_this_run().await;
        let data = folder.path().join("data");
        let mut deployment = Deployment::init_on(&data, &backing).expect("init");
        deployment.config = format!("callback_schedule = [{}]\n", ["\"2s\""; 20].join(", "));
        let server = deployment.serve().expect("serve");
        let receiver = Receiver::start().await.expect("a loopback port");
        server
            .access
            .provision("POST", "/merchants", json!({"name": "M", "merchant_id": "m"}))
            .await
            .expect("a merchant");
        let client_id = server.access.application("m", Some(&receiver.url())).await.expect("an application").client_id;
        Self { server, receiver, client_id, log: data.join("serve.log"), _folder: folder, _backing: backing }
    }

    async fn switch(&self, which: &str) {
        let path = format!("/applications/{}/callbacks/{which}", self.client_id);
        self.server.access.provision("POST", &path, json!({})).await.expect("switched");
    }

    /// Events that are all there before the first one goes.
    async fn happen(&self, count: usize) {
        self.switch("pause").await;
        for n in 0..count {
            self.server.access.provision("POST", "/events", event(&self.client_id, n)).await.expect("an event");
        }
        self.switch("resume").await;
    }

    /// How the endpoint fares, as soon as `is_so` says.
    async fn sees(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/operator/v1/applications/{}/callbacks", self.client_id);
        let ask =
            async || Ok(Some(self.server.access.call("GET", &path, None).await?.json()).filter(|seen| is_so(seen)));
        until(what, SOON, ask).await.expect("it is seen").0
    }

    /// Endpoints that fail, as the node says.
    async fn failing(&self) -> Value {
        self.server.access.call("GET", "/operator/v1/callbacks/failing", None).await.expect("an answer").json()
    }

    /// Lines of the log that say so.
    fn said(&self, words: &str) -> usize {
        let log = std::fs::read_to_string(&self.log).expect("there is a log");
        log.lines().filter(|line| line.contains(words) && line.contains(&self.client_id)).count()
    }
}

fn event(client_id: &str, n: usize) -> Value {
    json!({"client_id": client_id, "bizType": "T", "bizId": format!("b{n}"), "bizStatus": "S", "data": {}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_is_seen_to_open_to_try_and_to_close_and_the_log_says_each_turn_once() {
    let shop = Shop::open().await;
    shop.receiver.answer_with(Reply::Status(503));
    shop.happen(16).await;
    let open = shop.sees("the breaker opens", |seen| seen["breaker"] == "open").await;
    assert_eq!(
        (&open["state"], &open["pending"], &open["attempts_at_once"]),
        (&json!("enabled"), &json!(16), &json!(0))
    );
    assert_eq!((&open["attempts_at_once_max"], &open["last_outcome"]), (&json!(8), &json!("http_status")));
    assert!(open["breaker_until"].is_string() && open["last_attempt_at"].is_string(), "{open}");

    let failing = shop.failing().await;
    let brief = (&failing["items"][0]["client_id"], &failing["items"][0]["last_outcome"], &failing["items_left_off"]);
    assert_eq!(brief, (&json!(shop.client_id), &json!("http_status"), &json!(0)), "{failing}");

    // One tries it, and fails: that is no turn.
    shop.receiver.answer_with(Reply::HeldStatus(503));
    let tried = shop.sees("it is tried", |seen| seen["breaker"] == "half_open" && seen["in_flight"] == 1).await;
    assert_eq!((&tried["attempts_at_once"], &tried["breaker_until"]), (&json!(1), &json!(null)));
    shop.receiver.release(1);
    shop.sees("it is open again", |seen| seen["breaker"] == "open").await;
    shop.receiver.answer_with(Reply::Success);
    shop.receiver.release(1_000);
    let closed = shop.sees("all is delivered", |seen| seen["breaker"] == "closed" && seen["pending"] == 0).await;
    assert_eq!((&closed["last_outcome"], &closed["dead"]), (&json!("delivered"), &json!(0)));
    assert_eq!(shop.failing().await, json!({"items": [], "items_left_off": 0}));
    let is_said = async || Ok((shop.said(RECOVERS) == 1).then_some(()));
    until("the log says that it recovers", SOON, is_said).await.expect("it does");
    assert_eq!((shop.said(FAILS), shop.said(RECOVERS)), (1, 1), "once for each turn, not for each attempt");
    assert!(shop.receiver.received().len() > 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_the_numbers_of_events_that_are_no_longer_kept_and_goes_on_behind_them() {
    let world = World::start().await.expect("starts");
    let receiver = Receiver::start().await.expect("a loopback port");
    let access = &world.access;
    access.provision("POST", "/merchants", json!({"name": "M", "merchant_id": "m"})).await.expect("a merchant");
    let ask = json!({"name": "A", "callback_url": receiver.url()});
    let made = access.provision("POST", "/merchants/m/applications", ask).await.expect("an application");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    let client_id = text("client_id");
    let happens = async |n| access.provision("POST", "/events", event(&client_id, n)).await.expect("an event");
    for n in 0..3 {
        happens(n).await;
    }
    let clock = world.clock.clone();
    let client = Client::builder(format!("http://{}", world.listen()), &client_id, text("payment_api_secret"));
    let client = client.clock(move || clock.now().0).build().expect("a client");
    let seqs = async |walk: &mut EventWalk| {
        let events = walk.pull().await?;
        let done = |event: &Event| walk.done(event).map(|()| event.seq).expect("in order");
        Ok::<Vec<i64>, PullError>(events.iter().map(done).collect())
    };
    let mut walk = EventWalk::new(client.clone(), 0).limit(2);
    assert_eq!(seqs(&mut walk).await.expect("events"), [1, 2]);
    assert_eq!((seqs(&mut walk).await.expect("events"), walk.after()), (vec![3], 3));
    assert_eq!(seqs(&mut walk).await.expect("nothing new"), [] as [i64; 0]);
    let path = format!("/operator/v1/events?client_id={client_id}&state=delivered");
    let are_delivered = async || {
        let page = access.call("GET", &path, None).await?.json();
        Ok((page["items"].as_array().map(Vec::len) == Some(3)).then_some(()))
    };
    until("all are delivered", SOON, are_delivered).await.expect("they are");

    world.clock.advance_ms(200 * DAY_MS);
    for n in 3..5 {
        happens(n).await;
    }
    // The first three are too old by then, the others are not.
    world.clock.advance_ms(201 * DAY_MS);
    retention::free(&world.running.app, world.clock.now()).await.expect("frees");
    assert_eq!(seqs(&mut walk).await.expect("who is up to date misses nothing"), [4, 5]);
    let mut late = EventWalk::new(client, 1);
    let Err(PullError::Missing(gap)) = late.pull().await else { panic!("events are gone") };
    assert_eq!((gap.first, gap.last, gap.is_forgotten), (2, Some(3), true));
    let said =
        "events of seq 2 to 3 are not there: the server no longer keeps them, or a restore left their numbers out";
    assert_eq!(gap.to_string(), said);
    assert_eq!(late.after(), 1, "it does not step over a gap by itself");
    late.step_over(&gap).expect("its end is known");
    assert_eq!(seqs(&mut late).await.expect("events"), [4, 5]);
}
