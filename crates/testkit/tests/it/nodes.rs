//! Two servers on one database: who delivers, what a change on one means on the other, whose clock counts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::app::callers::FRESH;
use countersign::app::events::{self, Happening};
use countersign::app::identity::{self, NewApplication, NewMerchant, Standing};
use countersign::app::{Actor, App, uses};
use countersign::clock::Clock;
use countersign::config::{Config, Optional, Period};
use countersign::dispatch::{DispatchSettings, Dispatcher};
use countersign::log::LogSink;
use countersign::run::{self, Running, Surroundings};
use countersign_domain::delivery::DeliveryState;
use countersign_domain::lanes::{Fence, Lane, LaneSet};
use countersign_protocol::signing::SigningKey;
use countersign_store::Store as _;
use countersign_store::contract::{Asker, AttemptRow, EndpointSettings, EventRow};
use countersign_store::nodes::{NodeId, Who};
use countersign_store::testing::Database;
use countersign_testkit::operator::OperatorAccess;
use countersign_testkit::patience;
use countersign_testkit::receiver::{Receiver, Reply};
use countersign_testkit::wire::{Answer, Draft, Signer, fresh_nonce, once, once_served, wall_ms};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

mod away;
mod copied;
mod endpoints;
mod leaving;
mod listed;
mod rates;
mod repeated;
mod tolerance;
mod unlisted;

/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(90);

/// A deployment of several servers in this process.
struct Fleet {
    database: Database,
    token: String,
    configs: Vec<Config>,
    _folder: TempDir,
}

impl Fleet {
    /// Initialises the database and the folders of `count` nodes.
    async fn new(count: usize, change: impl Fn(&mut Config)) -> Self {
        let database = Database::new().await;
        let folder = tempfile::tempdir().expect("a folder");
        let configs: Vec<Config> = (0..count)
            .map(|node| {
                let mut config = Config {
                    data: folder.path().join(node.to_string()),
                    listen: "127.0.0.1:0".parse().expect("an address"),
                    operator_listen: "127.0.0.1:0".parse().expect("an address"),
                    allow_private_callbacks: true,
                    database_url: Optional(Some(database.url())),
                    ..Config::default()
                };
                if node > 0 {
                    config.master_key_file = Optional(Some(folder.path().join("0/master.key")));
                }
                change(&mut config);
                config
            })
            .collect();
        let token = run::initialise(&configs[0]).await.expect("an empty database").operator_token.expose().to_owned();
        for config in &configs[1..] {
            run::prepare(config).await.expect("it joins");
        }
        Self { database, token, configs, _folder: folder }
    }

    async fn start(&self, node: usize) -> Running {
        let (log, guard) = LogSink::start(std::io::sink()).expect("a thread starts");
        drop(guard);
        let surroundings = Surroundings { clock: Clock::System, log };
        run::start_in(self.configs[node].clone(), surroundings).await.expect("it starts")
    }

    fn access(&self, node: &Running) -> OperatorAccess {
        OperatorAccess::new(node.operator_listen, self.token.clone())
    }
}

/// Asks again and again until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    patience::until(what, SOON, async || Ok(is_so().await.then_some(()))).await.expect("it becomes so");
}

async fn pull(node: &Running, signer: &Signer, now: i64) -> Answer {
    let draft = signer.draft_at("GET", "/v1/pay/events", b"", now, &fresh_nonce());
    once(node.listen, &draft.bytes()).await.expect("the server answers")
}

/// Two applications with callbacks to `url`, one in a lane of each set.
async fn one_in_each(access: &OperatorAccess, node: &Running, url: &str, sets: [LaneSet; 2]) -> [Signer; 2] {
    access.provision("POST", "/institutions", json!({"name": "bank", "merchant_id": "bank"})).await.expect("made");
    let mut found = [None, None];
    while found.iter().any(Option::is_none) {
        let signer = access.application("bank", Some(url)).await.expect("an application");
        let view = node.app.store.application(&signer.client_id).await.expect("reads").expect("there");
        let lane = Lane::of(view.application.no);
        let at = sets.iter().position(|set| set.contains(lane)).expect("every lane is somebody's");
        found[at] = Some(signer);
    }
    found.map(|signer| signer.expect("found"))
}

fn event(signer: &Signer, biz_id: &str) -> serde_json::Value {
    json!({"client_id": signer.client_id, "bizType": "PAYMENT_ORDER", "bizId": biz_id, "bizStatus": "SUCCESS", "data": {}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_the_callbacks_wake_each_other_and_hand_over_when_one_stops() {
    // Nobody looks by himself: what arrives was called out.
    let fleet = Fleet::new(2, |config| {
        config.dispatch_poll = Period(Duration::from_secs(3_600));
        config.dispatch_lease = Period(Duration::from_secs(10));
    })
    .await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let held = |node: &Running| node.app.bell.lanes();
    until("the lanes are shared", async || held(&one).len() == 32 && held(&two).len() == 32).await;
    assert_eq!(held(&one).union(held(&two)), LaneSet::ALL);
    let receiver = Receiver::start().await.expect("a loopback port");
    let access = fleet.access(&one);
    let signers = one_in_each(&access, &one, &receiver.url(), [held(&one), held(&two)]).await;
    for signer in &signers {
        access.provision("POST", "/events", event(signer, "first")).await.expect("an event");
    }
    let received = receiver.wait_for(2, SOON).await.expect("both arrive, whoever was told");
    let ids: HashSet<_> = received.iter().map(|callback| callback.need("x-service-event-id")).collect();
    assert_eq!(ids.len(), 2);

    one.stop().await.expect("it stops");
    assert_eq!(fleet.database.holders_and_nodes().await, (1, 1), "nobody waits for a lease to end");
    until("the other has taken over", async || held(&two) == LaneSet::ALL).await;
    let access = fleet.access(&two);
    for signer in &signers {
        access.provision("POST", "/events", event(signer, "second")).await.expect("an event");
    }
    let received = receiver.wait_for(4, SOON).await.expect("all arrive");
    assert!(received.iter().all(|callback| callback.need("x-service-attempt") == "1"), "none was sent twice");
    let (event, attempts) = last_event(&two, &signers[0]).await;
    assert!(attempts.iter().all(|attempt| attempt.fence.0 > 1), "under the second term of its lane: {event:?}");
    two.stop().await.expect("it stops");
}

async fn last_event(node: &Running, signer: &Signer) -> (EventRow, Vec<AttemptRow>) {
    let store = &node.app.store;
    let of = store.application(&signer.client_id).await.expect("reads").expect("there").application;
    let id = store.events_after(of.tenant, of.no, 1, 1).await.expect("reads").pop().expect("two events").event_id;
    let mut found = store.event(Asker::Operator, id).await.expect("reads").expect("there");
    until("its attempt is recorded", async || {
        found = store.event(Asker::Operator, id).await.expect("reads").expect("there");
        !found.1.is_empty()
    })
    .await;
    found
}

/// Sends until it is refused. No request that was accepted may have begun later than `FRESH` after `changed`.
async fn refused_in_time(node: &Running, signer: &Signer, changed: Instant) {
    let deadline = Instant::now() + SOON;
    loop {
        let began = Instant::now();
        let answer = pull(node, signer, wall_ms()).await;
        if answer.status == 401 {
            return;
        }
        assert_eq!(answer.code(), "000000", "{}", answer.json());
        assert!(began < changed + FRESH, "accepted {:?} after the change", began - changed);
        assert!(began < deadline);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_disabled_or_revoked_on_one_node_is_refused_by_the_other_when_that_is_answered() {
    let fleet = Fleet::new(2, |_| {}).await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let access = fleet.access(&one);
    let signer = access.institution("bank", 0, None).await.expect("an institution");
    until("the other node knows it", async || pull(&two, &signer, wall_ms()).await.code() == "000000").await;
    let change = json!({"enabled": false});
    let path = format!("/applications/{}", signer.client_id);
    access.provision("PATCH", &path, change).await.expect("disabled");
    for node in [&two, &one] {
        assert_eq!(pull(node, &signer, wall_ms()).await.status, 401);
    }
    access.provision("PATCH", &path, json!({"enabled": true})).await.expect("enabled");
    until("it is accepted again", async || pull(&two, &signer, wall_ms()).await.code() == "000000").await;
    // Its merchant counts as much.
    access.provision("PATCH", "/merchants/bank", json!({"enabled": false})).await.expect("disabled");
    for node in [&two, &one] {
        assert_eq!(pull(node, &signer, wall_ms()).await.status, 401);
    }
    access.provision("PATCH", "/merchants/bank", json!({"enabled": true})).await.expect("enabled");
    until("it is accepted again", async || pull(&two, &signer, wall_ms()).await.code() == "000000").await;

    for _ in 0..4 {
        let secrets = format!("/operator/v1/applications/{}/secrets", signer.client_id);
        let made = access.call("POST", &secrets, Some(json!({}))).await.expect("an answer").json();
        let secret = made["payment_api_secret"].as_str().expect("a secret");
        let signer = Signer { key: SigningKey::new(secret.as_bytes()), ..signer.clone() };
        until("the other node knows it", async || pull(&two, &signer, wall_ms()).await.code() == "000000").await;
        let this = format!("{secrets}/{}", made["secret_id"].as_str().expect("an id"));
        assert_eq!(access.call("DELETE", &this, None).await.expect("an answer").status, 200);
        assert_eq!(pull(&two, &signer, wall_ms()).await.status, 401, "it is revoked");
    }

    // Nobody can look at the directory any more, and nothing is called out: callers are looked up one by one.
    let mut blocking = fleet.database.client().await;
    let block = blocking.transaction().await.expect("begins");
    block.batch_execute("LOCK TABLE directory IN ACCESS EXCLUSIVE MODE").await.expect("locks");
    let disable = "UPDATE application SET enabled = false, revision = revision + 1 WHERE client_id = $1";
    fleet.database.client().await.execute(disable, &[&signer.client_id]).await.expect("disabled");
    refused_in_time(&two, &signer, Instant::now()).await;
    block.rollback().await.expect("unlocks");
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}

/// Has the secrets revoked in the database by a change that is not counted, and the node accept one by what it keeps. While the server is the same,
/// its count of changes tells; where a late look at it, or a machine that stood still, has the caller read again, all of this is done again.
async fn until_it_is_believed_against_the_database(fleet: &Fleet, node: &Running, signer: &Signer) {
    let accepted = async || pull(node, signer, wall_ms()).await.code() == "000000";
    let is_believed = async || {
        until("it is kept", accepted).await;
        assert_eq!(fleet.database.revoke_unsaid().await, 1);
        if accepted().await {
            return true;
        }
        fleet.database.restore_unsaid().await;
        let said = json!({"name": "said"});
        let path = format!("/applications/{}", signer.client_id);
        fleet.access(node).provision("PATCH", &path, said).await.expect("a change that is said");
        false
    };
    until("it is kept though the database says otherwise", is_believed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_that_lost_changes_nothing_is_believed_that_was_kept_before() {
    let fleet = Fleet::new(1, |_| {}).await;
    let node = fleet.start(0).await;
    let signer = fleet.access(&node).institution("bank", 0, None).await.expect("an institution");
    // As on a server that took over without the last change, and has revoked the secret in a change of the same number.
    until_it_is_believed_against_the_database(&fleet, &node, &signer).await;
    fleet.database.take_away().await;
    fleet.database.bring_back().await;
    until("it is refused", async || pull(&node, &signer, wall_ms()).await.status == 401).await;
    node.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_rate_that_changes_on_one_node_counts_on_the_other_within_a_second() {
    let fleet = Fleet::new(2, |_| {}).await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let access = fleet.access(&one);
    let signer = access.institution("bank", 1, None).await.expect("an institution");
    let rate_on_two = async || {
        let path = "/rate/commission_rule?sub_merchant_id=bank-1";
        let draft = signer.draft_at("GET", path, b"", wall_ms(), &fresh_nonce());
        let answer = once(two.listen, &draft.bytes()).await.expect("the server answers").json();
        answer["data"]["actual_rate"]["r_total"].to_string()
    };
    until("the other node knows it", async || rate_on_two().await == "0").await;
    for rate in ["0.25", "0.5"] {
        let change = json!({"base_rate": {"r_total": rate.parse::<f64>().expect("a number")}});
        access.provision("PATCH", "/merchants/bank", change).await.expect("changed");
        let (changed, mut began) = (Instant::now(), Instant::now());
        while rate_on_two().await != rate {
            assert!(began < changed + FRESH, "the old rate {:?} after the change", began - changed);
            began = Instant::now();
        }
    }
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uses_of_a_secret_on_every_node_add_up_and_are_told_by_each() {
    let fleet = Fleet::new(2, |_| {}).await;
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let signer = fleet.access(&one).institution("bank", 0, None).await.expect("an institution");
    for (node, times) in [(&one, 3), (&two, 2)] {
        for _ in 0..times {
            assert_eq!(pull(node, &signer, wall_ms()).await.code(), "000000");
        }
    }
    for node in [&one, &two] {
        uses::note(&node.app).await.expect("is noted");
    }
    for node in [&one, &two] {
        let path = format!("/operator/v1/applications/{}/secrets", signer.client_id);
        let page = fleet.access(node).call("GET", &path, None).await.expect("an answer").json();
        assert_eq!(page["items"][0]["uses_last_hour"], json!(5), "{page}");
        assert_eq!(page["items"][0]["safe_to_retire"], json!(false), "{page}");
    }
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uses_that_the_database_does_not_take_do_not_hold_up_those_of_others() {
    let fleet = Fleet::new(1, |_| {}).await;
    let node = fleet.start(0).await;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let signer = fleet.access(&node).institution(name, 0, None).await.expect("an institution");
        let view = node.app.store.application(&signer.client_id).await.expect("reads").expect("is there");
        ids.push((view.application.no, view.secrets[0].secret_id.clone()));
    }
    // In this order they are noted: the bad one is in the first piece.
    ids.sort_by(|a, b| a.1.cmp(&b.1));
    let [(of_bad, bad), (of_good, good)] = &ids[..] else { panic!("two") };
    let refuse = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN IF NEW.secret_id = '{bad}' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON secret_use FOR EACH ROW EXECUTE FUNCTION refuse()"
    );
    fleet.database.client().await.batch_execute(&refuse).await.expect("is made");
    let now = node.app.clock.now();
    node.app.uses.tally(bad).one_more(now);
    node.app.uses.tally(good).one_more(now);
    for number in 0..500 {
        node.app.uses.tally(&format!("{bad}_{number:03}")).one_more(now);
    }
    uses::note(&node.app).await.expect_err("one piece is refused");
    let noted = async |of| node.app.store.secret_uses(of, 0).await.expect("reads");
    assert_eq!(noted(*of_good).await, [(good.clone(), 1)]);
    fleet.database.client().await.batch_execute("DROP TRIGGER refuse ON secret_use").await.expect("is gone");
    uses::note(&node.app).await.expect("is noted");
    assert_eq!(noted(*of_bad).await, [(bad.clone(), 1)], "what was refused was kept");
    node.stop().await.expect("it stops");
}

async fn ready(node: &Running) -> Answer {
    let draft = Draft { method: "GET".into(), target: "/readyz".into(), headers: vec![], body: vec![] };
    once(node.operator_listen, &draft.bytes()).await.expect("the server answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_decides_and_a_node_whose_own_is_off_is_not_ready() {
    let fleet = Fleet::new(1, |_| {}).await;
    let client = fleet.database.client().await;
    let ahead_by = |seconds: u8| {
        format!(
            "CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE plpgsql
             AS $$ BEGIN RETURN pg_catalog.clock_timestamp() + interval '{seconds} s'; END $$"
        )
    };
    client.batch_execute(&ahead_by(3)).await.expect("is made");
    let name = fleet.database.url().rsplit('/').next().expect("a name").to_owned();
    let shadow = format!("ALTER DATABASE {name} SET search_path = public, pg_catalog");
    client.batch_execute(&shadow).await.expect("is set");
    let node = fleet.start(0).await;
    let refused = ready(&node).await;
    assert_eq!(refused.status, 503);
    assert!(String::from_utf8_lossy(&refused.body).contains("behind the database's"), "{:?}", refused.json());
    let signer = fleet.access(&node).institution("bank", 0, None).await.expect("an institution");
    // The tolerance is 30 s: by this machine's clock it is 31.5 s ahead, by the database's 28.5 s.
    assert_eq!(pull(&node, &signer, wall_ms() + 31_500).await.code(), "000000");
    assert_ne!(pull(&node, &signer, wall_ms() - 28_500).await.code(), "000000", "31.5 s old by the database's clock");
    client.batch_execute(&ahead_by(0)).await.expect("the clock is set right");
    until("the node is ready", async || ready(&node).await.status == 200).await;
    // Anew where it was under way for longer than the rest of its time.
    let is_young = async || pull(&node, &signer, wall_ms() - 28_500).await.code() == "000000";
    until("what is 28.5 s old is accepted", is_young).await;
    node.stop().await.expect("it stops");
}

/// The use cases of a node and its dispatcher, without sockets.
async fn bench(fleet: &Fleet, node: u8, lease: Duration) -> (Arc<App>, Arc<Dispatcher>) {
    let config = &fleet.configs[usize::from(node)];
    let app = Arc::new(run::open_app(config, Clock::System, None).await.expect("it opens"));
    let who = Who { node: NodeId([node; 16]), ..Who::NOBODY };
    let settings = DispatchSettings { allow_private: true, who, lease, ..DispatchSettings::default() };
    let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
    (app, dispatcher)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_comes_after_another_node_took_over_is_refused_and_the_others_counts() {
    let fleet = Fleet::new(2, |_| {}).await;
    let ((one, first), (two, second)) =
        (bench(&fleet, 0, Duration::from_secs(60)).await, bench(&fleet, 1, Duration::from_secs(60)).await);
    let receiver = Receiver::start().await.expect("a loopback port");
    receiver.answer_with(Reply::Held);
    let event = emit(&one, &receiver.url()).await;
    let late = tokio::spawn({
        let (one, first) = (one.clone(), first.clone());
        async move { first.deliver_due(one.clock.now()).await }
    });
    receiver.wait_for(1, SOON).await.expect("the first node's attempt is on its way");
    // As if the first node had been stopped for longer than its lease.
    fleet.database.end_leases().await;
    let next = tokio::spawn({
        let (two, second) = (two.clone(), second.clone());
        async move { second.deliver_due(two.clock.now()).await }
    });
    receiver.wait_for(2, SOON).await.expect("the second node's attempt is on its way too");
    receiver.release(1);
    assert_eq!(late.await.expect("it ends"), 1);
    let (row, attempts) = two.store.event(Asker::Operator, event.event_id).await.expect("reads").expect("there");
    assert_eq!((row.state, row.attempts, attempts.len()), (DeliveryState::Pending, 0, 0), "nothing of it is kept");
    receiver.release(1);
    assert_eq!(next.await.expect("it ends"), 1);
    let (row, attempts) = two.store.event(Asker::Operator, event.event_id).await.expect("reads").expect("there");
    assert_eq!((row.state, row.attempts), (DeliveryState::Delivered, 1));
    assert_eq!(attempts.iter().map(|a| (a.attempt, a.fence)).collect::<Vec<_>>(), [(1, Fence(2))]);
    assert_eq!(first.deliver_due(one.clock.now()).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_lease_that_lasts_nothing_is_begun() {
    let fleet = Fleet::new(1, |_| {}).await;
    let (app, hasty) = bench(&fleet, 0, Duration::ZERO).await;
    let receiver = Receiver::start().await.expect("a loopback port");
    emit(&app, &receiver.url()).await;
    let begun = timeout(SOON, hasty.deliver_due(app.clock.now())).await.expect("it gives up");
    assert_eq!(begun, 0, "the lease had ended before the answer came");
    assert!(receiver.received().is_empty());
    let (app, dispatcher) = bench(&fleet, 0, Duration::from_secs(60)).await;
    assert_eq!(dispatcher.deliver_due(app.clock.now()).await, 1);
}

async fn emit(app: &App, url: &str) -> EventRow {
    let actor = Actor::named("token:tok_test");
    let ask =
        NewMerchant { merchant_id: None, name: "A merchant".to_owned(), standing: Standing::Merchant, user_id: None };
    let merchant = identity::create_merchant(app, &ask, &|_| None, &actor).await.expect("a merchant");
    let ask = NewApplication {
        merchant_id: merchant.merchant_id,
        name: "An application".to_owned(),
        callback_url: Some(url.to_owned()),
        endpoint: EndpointSettings::default(),
    };
    let made = identity::create_application(app, &ask, &|_| None, &actor).await.expect("an application");
    let what = Happening {
        client_id: made.application.client_id,
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: "1".to_owned(),
        biz_status: "SUCCESS".to_owned(),
        data: "{}".to_owned(),
    };
    events::emit(app, &what, &|_| None, &actor).await.expect("an event")
}

#[tokio::test]
async fn what_two_nodes_are_asked_for_at_once_is_done_once_and_the_other_is_told_why() {
    let fleet = Fleet::new(2, |_| {}).await;
    let nodes = [fleet.start(0).await, fleet.start(1).await];
    let [one, two] = [0, 1].map(|n| fleet.access(&nodes[n]));
    one.institution("bank", 0, None).await.expect("an institution");
    for round in 0..8 {
        let order = format!("/operator/v1/convert-orders/{}", one.convert_order("bank").await.expect("an order"));
        // Whoever finds for two seconds that the other was first is told to repeat.
        let moved = async |access: &OperatorAccess, status: i64| {
            let draft = access.draft("PATCH", &order, Some(&json!({"status": status})));
            once_served(access.address, &draft.bytes()).await
        };
        let (done, failed) = tokio::join!(moved(&one, 3), moved(&two, 6));
        let mut said =
            [done, failed].map(|answer| answer.expect("an answer")).map(|answer| (answer.status, answer.code()));
        said.sort();
        assert_eq!(said[1], (409, "400204".to_owned()), "round {round}: {said:?}");
        assert_eq!(said[0].0, 200);

        let ask = json!({"name": "n", "role": "viewer", "life_days": 1});
        let made = one.provision("POST", "/tokens", ask).await.expect("a token");
        let token = format!("/operator/v1/tokens/{}", made["token_id"].as_str().expect("an id"));
        let (first, second) = tokio::join!(one.call("DELETE", &token, None), two.call("DELETE", &token, None));
        let instants = [first, second].map(|answer| answer.expect("an answer").json()["revoked_at"].clone());
        let shown = one.call("GET", &token, None).await.expect("an answer").json()["revoked_at"].clone();
        assert_eq!(instants, [shown.clone(), shown], "round {round}");
    }
    let lines = one.call("GET", "/operator/v1/audit?limit=200", None).await.expect("an answer").json();
    let lines = lines["items"].as_array().expect("lines");
    let of = |was: bool| {
        let revoked = lines.iter().filter(|line| line["action"] == "token.revoke");
        revoked.filter(|line| line["before"]["revoked_at"].is_null() != was).count()
    };
    assert_eq!((of(false), of(true)), (8, 8), "each token was revoked once, and asked for again once");
    for node in nodes {
        node.stop().await.expect("it stops");
    }
}
