//! The same journeys for one, two and three nodes. Merchants and operators call the proxy and need not know how many there are; where a
//! journey looks at every node, it calls each directly.

use std::time::{Duration, Instant};

use countersign_domain::time::{RuleZone, UnixMillis};
use countersign_protocol::callback;
use countersign_protocol::signing::SigningKey;
use countersign_store::testing::Database;
use countersign_testkit::fleet::{Fleet, UnderWay};
use countersign_testkit::patience::until;
use countersign_testkit::receiver::{Receiver, Reply};
use countersign_testkit::wire::{Answer, Draft, Signer, fresh_nonce, once, once_served, wall_ms};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const UPGRADE: &str = "/rate/commission_rule/upgrade";
/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(20);
/// How soon a change of who may call is heard of by every node.
const COHERENT: Duration = Duration::from_secs(1);
/// How far the clock of the database, as a node knows it, may lie from this process's.
const CLOCK_MS: i64 = 100;

macro_rules! journeys {
    ($($name:ident),* $(,)?) => {
        journeys!(one_node 1 $($name)*);
        journeys!(two_nodes 2 $($name)*);
        journeys!(three_nodes 3 $($name)*);
    };
    ($of:ident $nodes:literal $($name:ident)*) => {
        mod $of {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(&super::Town::with($nodes).await).await;
                }
            )*
        }
    };
}

journeys![
    an_upgrade_is_in_force_on_every_node_at_its_second,
    a_convert_order_is_seen_to_move_on_every_node,
    an_event_is_retried_until_success_and_verified_each_time,
    a_request_that_was_accepted_is_refused_through_every_door,
    each_kind_of_refusal_comes_through_the_proxy_as_it_is,
    a_call_with_an_idempotency_key_is_done_once_whichever_nodes_get_it,
    a_disabled_application_is_refused_by_every_node_within_a_second,
    a_revoked_secret_is_refused_by_every_node_within_a_second,
    thirty_two_upgrades_at_once_are_versions_one_to_thirty_two,
];

/// A fleet with an institution `bank`, three sub-accounts, and its application.
struct Town {
    fleet: Fleet,
    signer: Signer,
    // Behind the fleet: fields are dropped in this order.
    _database: Database,
}

impl Town {
    async fn with(nodes: usize) -> Self {
        let database = Database::new().await;
        let config = "rate_limit_per_s = 0\ncallback_schedule = [\"50ms\", \"50ms\", \"50ms\"]\n";
        // No node hangs or goes: none is to be left because it, or the proxy, was late once.
        let fleet = Fleet::start_with(nodes, &database.url(), config, UnderWay::End).await;
        let fleet = fleet.expect("the nodes and the proxy start");
        let signer = fleet.access().institution("bank", 3, None).await.expect("provisioned");
        Self { fleet, signer, _database: database }
    }

    /// Through the proxy.
    async fn send(&self, draft: &Draft) -> Answer {
        once(self.fleet.listen(), &draft.bytes()).await.expect("an answer")
    }

    /// The same bytes to each node directly.
    async fn send_to_each(&self, draft: &Draft) -> Vec<Answer> {
        let mut answers = Vec::new();
        for node in self.fleet.nodes() {
            answers.push(once(node.listen(), &draft.bytes()).await.expect("an answer"));
        }
        answers
    }

    /// One signed call through the proxy that must succeed; its data.
    async fn good(&self, method: &str, target: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let envelope = self.send(&self.signer.draft(method, target, body.as_bytes())).await.json();
        assert_eq!(envelope["code"], "000000", "{method} {target} {body}: {envelope}");
        envelope["data"].clone()
    }

    fn upgrade(&self, sub: &str, at: i64) -> Draft {
        let body = json!({"sub_merchant_id": sub, "r_markup": 0.3, "effective_date": date(at)});
        self.signer.draft("POST", UPGRADE, body.to_string().as_bytes())
    }

    fn order_query(&self, order: &str) -> Draft {
        self.signer.draft("GET", &format!("/v1/pay/convert/order?orderId={order}"), b"")
    }
}

/// `yyyy-MM-dd HH:mm:ss` of an instant.
fn date(at: i64) -> String {
    RuleZone::utc().format(UnixMillis(at))
}

async fn an_upgrade_is_in_force_on_every_node_at_its_second(town: &Town) {
    let first = town.send(&town.upgrade("bank-1", wall_ms() - 10_000)).await.json();
    assert_eq!((&first["code"], &first["data"]["status"]), (&json!("000000"), &json!("EFFECTIVE")), "{first}");
    let mut old = first["data"]["config_id"].clone();
    // Where somebody was so late that nobody saw it from before its second, there is another version of later.
    let is_seen = async || {
        let (new, was_seen) = becomes_effective(town, &old).await;
        old = new;
        Ok(was_seen.then_some(()))
    };
    until("a version is seen from before its second", 6 * SOON, is_seen).await.expect("one is");
}

/// Upgrades behind `old`, which is in force, for a second that is to come, and waits until that is in force on every node. Its id, and whether the
/// first node was still asked before.
async fn becomes_effective(town: &Town, old: &Value) -> (Value, bool) {
    let due = (wall_ms() / 1_000 + 3) * 1_000;
    let second = town.send(&town.upgrade("bank-1", due)).await.json();
    assert_eq!(&second["data"]["previous_config_id"], old, "{second}");
    let new = second["data"]["config_id"].clone();
    if second["data"]["status"] != "PENDING_EFFECTIVE" {
        assert!(wall_ms() >= due - CLOCK_MS, "it has to wait for its second: {second}");
        return (new, false);
    }
    let mut was_seen = false;
    for (number, node) in town.fleet.nodes().iter().enumerate() {
        let query = async || {
            let asked = wall_ms();
            let draft = town.signer.draft("GET", "/rate/commission_rule?sub_merchant_id=bank-1", b"");
            let told = once(node.listen(), &draft.bytes()).await?.json();
            let answered = wall_ms();
            if told["data"]["config_id"] == new {
                assert!(answered >= due - CLOCK_MS, "{} ms too early", due - answered);
                return Ok(Some(()));
            }
            assert_eq!(told["data"]["config_id"], *old, "{told}");
            assert!(asked < due + CLOCK_MS, "{} ms too late", asked - due);
            was_seen |= number == 0;
            Ok(None)
        };
        until("the second version is in force", SOON, query).await.expect("it comes into force");
    }
    (new, was_seen)
}

async fn a_convert_order_is_seen_to_move_on_every_node(town: &Town) {
    let order = town.fleet.access().convert_order("bank").await.expect("an order");
    for (status, path) in [(1, None), (3, Some(format!("/convert-orders/{order}")))] {
        if let Some(path) = path {
            town.fleet.access().provision("PATCH", &path, json!({"status": status})).await.expect("moved");
        }
        for node in town.fleet.nodes() {
            let told = once(node.listen(), &town.order_query(&order).bytes()).await.expect("an answer").json();
            assert_eq!(told["data"]["status"], status, "a change that was acknowledged is seen everywhere: {told}");
        }
    }
    let path = format!("/operator/v1/convert-orders/{order}");
    for node in town.fleet.nodes() {
        let refused = node.access().call("PATCH", &path, Some(json!({"status": 6}))).await.expect("an answer");
        assert_eq!((refused.status, refused.code().as_str()), (409, "400204"), "3 is final");
    }
}

async fn an_event_is_retried_until_success_and_verified_each_time(town: &Town) {
    let receiver = Receiver::start().await.expect("a loopback port");
    receiver.script([Reply::Fail, Reply::Status(500)]);
    let owner = town.fleet.access().application("bank", Some(&receiver.url())).await.expect("an application");
    let body = json!({"client_id": owner.client_id, "bizType": "PAYMENT_ORDER", "bizId": "b-1", "bizStatus": "SUCCESS", "data": {"n": 1}});
    let event = town.fleet.access().provision("POST", "/events", body).await.expect("an event");
    let id = event["event_id"].as_str().expect("an id");
    let received = receiver.wait_for(3, SOON).await.expect("two failures and a success");
    for (number, callback) in received.iter().enumerate() {
        assert_eq!(callback.need("x-service-event-id"), id);
        assert_eq!(callback.need("x-service-attempt"), (number + 1).to_string());
        let (timestamp, nonce) = (callback.need("x-service-timestamp"), callback.need("x-service-nonce"));
        let signature = callback.need("x-service-signature");
        callback::verify(&owner.key, timestamp, nonce, &callback.body, signature, wall_ms(), 30_000)
            .expect("it is ours");
    }
    for node in town.fleet.nodes() {
        let path = format!("/operator/v1/events/{id}");
        let delivered = async || {
            let told = node.access().call("GET", &path, None).await?.json();
            Ok((told["state"] == "delivered").then_some(told))
        };
        let (told, _) = until("the event is delivered", SOON, delivered).await.expect("the attempt is recorded");
        let outcomes: Vec<_> =
            told["attempts"].as_array().expect("attempts").iter().map(|a| a["outcome"].clone()).collect();
        assert_eq!(outcomes, ["fail", "http_status", "delivered"]);
    }
    assert_eq!(receiver.received().len(), 3, "nobody else sends it");
}

async fn a_request_that_was_accepted_is_refused_through_every_door(town: &Town) {
    let order = town.fleet.access().convert_order("bank").await.expect("an order");
    for draft in [town.order_query(&order), town.upgrade("bank-1", wall_ms() - 10_000)] {
        assert_eq!(town.send(&draft).await.code(), "000000");
        let mut again = town.send_to_each(&draft).await;
        for _ in 0..4 {
            again.push(town.send(&draft).await);
        }
        for answer in again {
            assert_eq!((answer.status, answer.code().as_str()), (401, "400021"), "{}", answer.json());
        }
    }
}

async fn each_kind_of_refusal_comes_through_the_proxy_as_it_is(town: &Town) {
    let other = town.fleet.access().institution("other", 1, None).await.expect("provisioned");
    let order = town.fleet.access().convert_order("other").await.expect("an order");
    let stranger =
        Signer { key: SigningKey::new(b"another secret"), client_id: town.signer.client_id.clone(), merchant_id: None };
    let unknown = Signer { client_id: "app_nobody".to_owned(), key: SigningKey::new(b"x"), merchant_id: None };
    let query = || town.order_query(&order);
    let rule = |body: Value| town.signer.draft("POST", UPGRADE, body.to_string().as_bytes());
    let stale = town.signer.draft_at("GET", &query().target, b"", wall_ms() - 40_000, &fresh_nonce());
    let posing = query().with("X-Service-MerchantId", "other");
    let empty_period = json!({"sub_merchant_id": "bank-1", "r_markup": 1, "effective_date": date(wall_ms()), "due_date": date(wall_ms() - 9_000)});
    let foreign = json!({"sub_merchant_id": "other-1", "r_markup": 1, "effective_date": date(wall_ms())});
    let mut large = rule(json!({}));
    large.body = vec![b' '; 64 * 1024 + 1];
    let mut deleted = query();
    "DELETE".clone_into(&mut deleted.method);
    let cases = [
        ("unsigned", query().without("X-Service-Signature"), 400, "400001"),
        ("other key", stranger.draft("GET", &query().target, b""), 401, "400002"),
        ("unknown client", unknown.draft("GET", &query().target, b""), 401, "400002"),
        ("stale", stale, 401, "400003"),
        ("bad nonce", query().with("X-Service-Nonce", "a b"), 400, "400020"),
        ("another's name", posing, 403, "400203"),
        ("another's order", query(), 404, "400202"),
        ("another's sub-account", rule(foreign), 404, "400702"),
        ("no rule", rule(json!({})), 400, "400001"),
        ("empty period", rule(empty_period), 400, "400703"),
        ("no such path", town.signer.draft("GET", "/v1/nowhere", b""), 404, "400404"),
        ("method", deleted, 405, "400405"),
        ("type", rule(json!({})).with("Content-Type", "text/plain"), 415, "400007"),
        ("large", large, 413, "400413"),
    ];
    for (case, draft, status, code) in cases {
        let through = town.send(&draft).await;
        assert_eq!((through.status, through.code().as_str()), (status, code), "{case}: {}", through.json());
        assert!(through.header("x-service-request-id").is_some(), "{case}: {}", through.head);
    }
    assert_eq!(
        once(town.fleet.listen(), &other.draft("GET", &query().target, b"").bytes()).await.expect("an answer").code(),
        "000000"
    );
}

async fn a_call_with_an_idempotency_key_is_done_once_whichever_nodes_get_it(town: &Town) {
    let draft = |name: &str| {
        let body = json!({"name": name, "merchant_id": "once"});
        town.fleet.access().draft("POST", "/operator/v1/merchants", Some(&body)).with("Idempotency-Key", "key-1")
    };
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let nodes = town.fleet.nodes();
        let (address, bytes) = (nodes[number % nodes.len()].access().address, draft("Once").bytes());
        tasks.spawn(async move { once_served(address, &bytes).await });
    }
    let mut answers: Vec<Value> = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        let answer = answer.expect("no panic").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.json());
        answers.push(answer.json());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "one call has one answer: {answers:?}");
    for node in town.fleet.nodes() {
        let other = once(node.access().address, &draft("Another body").bytes()).await.expect("an answer");
        assert_eq!(other.status, 409, "a key belongs to one body: {}", other.json());
    }
    let listed =
        town.fleet.access().call("GET", "/operator/v1/merchants?limit=100", None).await.expect("an answer").json();
    let made = listed["items"].as_array().expect("items").iter().filter(|item| item["merchant_id"] == "once").count();
    assert_eq!(made, 1, "{listed}");
}

/// Warms every node for an application, changes it by the first node, and waits until each refuses it.
async fn is_refused_everywhere_soon(town: &Town, owner: &Signer, method: &str, path: &str, body: Value) {
    let query = || owner.draft("GET", "/v1/pay/events", b"");
    for node in town.fleet.nodes() {
        let answer = once(node.listen(), &query().bytes()).await.expect("an answer");
        assert_eq!(answer.code(), "000000", "every node knows it: {}", answer.json());
    }
    town.fleet.nodes()[0].access().provision(method, path, body).await.expect("changed");
    let changed = Instant::now();
    for node in town.fleet.nodes() {
        let refused = async || {
            let asked = changed.elapsed();
            let answer = once(node.listen(), &query().bytes()).await?;
            match answer.code().as_str() {
                "000000" if asked < COHERENT => Ok(None),
                "000000" => anyhow::bail!("it was accepted though asked for {asked:?} after the change"),
                "400002" => Ok(Some(())),
                _ => anyhow::bail!("{}", answer.json()),
            }
        };
        until("it is refused", SOON, refused).await.expect("every node hears of it");
    }
}

async fn a_disabled_application_is_refused_by_every_node_within_a_second(town: &Town) {
    let owner = town.fleet.access().application("bank", None).await.expect("an application");
    let path = format!("/applications/{}", owner.client_id);
    is_refused_everywhere_soon(town, &owner, "PATCH", &path, json!({"enabled": false})).await;
    assert_eq!(town.send(&town.signer.draft("GET", "/v1/pay/events", b"")).await.code(), "000000", "others are served");
}

async fn a_revoked_secret_is_refused_by_every_node_within_a_second(town: &Town) {
    let owner = town.fleet.access().application("bank", None).await.expect("an application");
    let path = format!("/applications/{}/secrets", owner.client_id);
    let told = town.fleet.access().call("GET", &format!("/operator/v1{path}"), None).await.expect("an answer").json();
    let first = told["items"][0]["secret_id"].as_str().unwrap_or_else(|| panic!("a secret: {told}")).to_owned();
    let rotated = town.fleet.access().provision("POST", &path, json!({})).await.expect("a second secret");
    is_refused_everywhere_soon(town, &owner, "DELETE", &format!("{path}/{first}"), json!({})).await;
    let secret = rotated["payment_api_secret"].as_str().expect("shown once");
    let renewed = Signer { key: SigningKey::new(secret.as_bytes()), ..owner };
    for node in town.fleet.nodes() {
        let answer =
            once(node.listen(), &renewed.draft("GET", "/v1/pay/events", b"").bytes()).await.expect("an answer");
        assert_eq!(answer.code(), "000000", "the other secret lives: {}", answer.json());
    }
}

async fn thirty_two_upgrades_at_once_are_versions_one_to_thirty_two(town: &Town) {
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (address, bytes) = (town.fleet.listen(), town.upgrade("bank-2", wall_ms() - 10_000).bytes());
        tasks.spawn(async move { once_served(address, &bytes).await });
    }
    let mut versions = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        let envelope = answer.expect("no panic").expect("an answer").json();
        assert_eq!(envelope["code"], "000000", "{envelope}");
        versions.push(envelope["data"]["version_no"].as_i64().expect("a number"));
    }
    versions.sort_unstable();
    assert_eq!(versions, (1..=32).collect::<Vec<_>>());
    let rules = town.good("GET", "/rate/commission_rule?sub_merchant_id=bank-2", &Value::Null).await;
    assert_eq!(rules["version_no"], 32, "{rules}");
}
