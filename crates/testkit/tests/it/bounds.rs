//! What strangers and merchants may cost: failed authentications, requests beyond a rate, lines of the log; and that a refusal tells nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use countersign::app::callers::{Ask, Authenticated, Cost, HMACS_PER_REFUSAL, LIVE_SECRETS_MAX};
use countersign::app::identity::{self, NewApplication, NewMerchant, Standing};
use countersign::app::turns::TurnKey;
use countersign::app::{Actor, App};
use countersign::edges::IntakeLimits;
use countersign::log::LogSink;
use countersign::merchant::{Answer, Budget, Edge, EdgeSettings};
use countersign::source::Sources;
use countersign_domain::time::UnixMillis;
use countersign_protocol::headers::Prefixes;
use countersign_protocol::signing::SigningKey;
use countersign_store::contract::EndpointSettings;
use countersign_store::{AnyStore, Store as _};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::in_process::InProcess;
use countersign_testkit::patience::until;
use countersign_testkit::wire::{Draft, Signer, fresh_nonce, once};
use countersign_testkit::world::{Heard, World};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use serde_json::json;
use tokio::time::timeout;

const QUERY: &str = "/v1/pay/events";
const PATIENCE: Duration = Duration::from_secs(20);

fn prefixes() -> Prefixes {
    Prefixes::new(&["X-Service-".to_owned()]).expect("a prefix")
}

/// What the refusal of this request costs.
async fn cost(app: &App, draft: &Draft) -> Cost {
    match authenticated(app, draft).await {
        Authenticated::No(_, cost) => cost,
        other => panic!("not refused: {other:?}"),
    }
}

async fn authenticated(app: &App, draft: &Draft) -> Authenticated {
    let fields: Vec<_> = draft.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let prefixes = prefixes();
    let headers =
        prefixes.parse(fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))).expect("good headers");
    let is_unproved = AtomicBool::default();
    app.authenticate(&headers, b"", app.clock.now(), Ask::TheStore, &is_unproved).await.expect("the store answers")
}

#[tokio::test]
async fn a_refusal_costs_the_same_whoever_is_named_and_whatever_is_kept_of_them() {
    let world = World::start().await.expect("a world starts");
    let known = world.access.institution("bank", 0, None).await.expect("provisioned");
    let full = world.access.application("bank", None).await.expect("provisioned");
    for (signer, live) in [(&known, LIVE_SECRETS_MAX - 1), (&full, LIVE_SECRETS_MAX)] {
        for _ in 1..live {
            let path = format!("/applications/{}/secrets", signer.client_id);
            world.access.provision("POST", &path, json!({"overlap_s": 3600})).await.expect("rotated");
        }
    }
    let disabled = world.access.application("bank", None).await.expect("provisioned");
    let path = format!("/applications/{}", disabled.client_id);
    world.access.provision("PATCH", &path, json!({"enabled": false})).await.expect("disabled");
    let draft = |signer| world.draft(signer, "GET", QUERY, "");
    let wrong = draft(&known).with("X-Service-Signature", &"0".repeat(128));
    let unknown = wrong.clone().with("X-Service-Certificate-ClientId", "app_nobody");
    let all_live = wrong.clone().with("X-Service-Certificate-ClientId", &full.client_id);
    let kinds = [("unknown", unknown), ("wrong", wrong), ("all live", all_live), ("disabled", draft(&disabled))];
    let same = Cost { look_ups: 1, opened: LIVE_SECRETS_MAX, hmacs: HMACS_PER_REFUSAL };
    for kept in [false, true] {
        for (kind, draft) in &kinds {
            if !kept {
                world.running.app.callers.forget_all();
            }
            assert_eq!(cost(&world.running.app, draft).await, same, "{kind}, kept: {kept}");
        }
    }
}

#[tokio::test]
async fn a_refusal_asks_the_store_once_and_a_caller_who_is_kept_not_at_all() {
    let at = UnixMillis(1_767_225_600_000);
    let process = InProcess::start(StoreKind::Model, at).await.expect("it starts");
    let app = process.app();
    let AnyStore::Model(store) = &app.store else { panic!("this one counts") };
    let actor = Actor::named("token:tok_test");
    let (merchant_id, name) = (Some("bank".to_owned()), "Bank".to_owned());
    let ask = NewMerchant { merchant_id, name: name.clone(), standing: Standing::Merchant, user_id: None };
    identity::create_merchant(app, &ask, &|_| None, &actor).await.expect("a merchant");
    let (merchant_id, endpoint) = ("bank".to_owned(), EndpointSettings::default());
    let ask = NewApplication { merchant_id, name, callback_url: None, endpoint };
    let made = identity::create_application(app, &ask, &|_| None, &actor).await.expect("an application");
    let (client_id, key) = (made.application.client_id, SigningKey::new(made.plain.expose().as_bytes()));
    let signer = Signer { client_id, key, merchant_id: None };
    let right = || signer.draft_at("GET", QUERY, b"", at.0, &fresh_nonce());
    let wrong = right().with("X-Service-Signature", &"0".repeat(128));
    let unknown = wrong.clone().with("X-Service-Certificate-ClientId", "app_nobody");
    for kept in [false, true] {
        for (kind, draft) in [("unknown", &unknown), ("wrong", &wrong)] {
            if !kept {
                app.callers.forget_all();
            }
            let before = store.application_reads();
            assert_eq!(cost(app, draft).await.look_ups, 1, "{kind}, kept: {kept}");
            assert_eq!(store.application_reads() - before, 1, "{kind}, kept: {kept}");
        }
    }
    let before = store.application_reads();
    assert!(matches!(authenticated(app, &right()).await, Authenticated::Yes(_)));
    assert_eq!(store.application_reads(), before);
}

/// An edge of its own beside the world's server, with this budget; its lines.
fn edge(world: &World, budget: Budget) -> (Edge, Heard, countersign::log::LogGuard) {
    let heard = Heard::default();
    let (log, guard) = LogSink::start(heard.clone()).expect("a log");
    let settings = EdgeSettings {
        prefixes: prefixes(),
        limits: IntakeLimits::default(),
        sources: Sources::default(),
        budget,
        request_limit: Arc::default(),
    };
    (Edge::new(world.running.app.clone(), settings, log).expect("a prefix"), heard, guard)
}

/// The answer to a request from this address.
async fn answered(edge: &Edge, draft: &Draft, from: &str) -> hyper::Response<Answer> {
    edge.serve(request(draft), from.parse::<IpAddr>().expect("an address")).await
}

fn request(draft: &Draft) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(draft.method.as_str()).uri(&draft.target).header("host", "localhost");
    for (name, value) in &draft.headers {
        request = request.header(name, value);
    }
    request.body(Full::new(Bytes::from(draft.body.clone()))).expect("a request")
}

async fn ask(edge: &Edge, draft: &Draft, from: &str) -> u16 {
    answered(edge, draft, from).await.status().as_u16()
}

/// The most of these times, of 100, that lie within one third of the way from a point of this grid to the next.
fn in_one_third(times: &[Duration], grid: Duration) -> usize {
    const BINS: usize = 30;
    let mut bins = [0; BINS];
    for took in times {
        let part = took.as_nanos() % grid.as_nanos() * BINS as u128 / grid.as_nanos();
        bins[usize::try_from(part).expect("less than all of them")] += 1;
    }
    let third = |first| (first..first + BINS / 3).map(|bin| bins[bin % BINS]).sum::<usize>();
    (0..BINS).map(third).max().unwrap_or_default() * 100 / times.len()
}

/// A forged upgrade whose body is so long: HMACs over it take their time.
fn forged(world: &World, client_id: &str, body_bytes: usize) -> Draft {
    let name = Signer { client_id: client_id.to_owned(), key: SigningKey::new(b"none"), merchant_id: None };
    world.draft(&name, "POST", "/rate/commission_rule/upgrade", &"x".repeat(body_bytes))
}

#[tokio::test]
async fn refused_signatures_are_answered_at_points_of_a_grid() {
    const GRID: Duration = Duration::from_micros(100);
    const TRIES: usize = 400;
    const ROUNDS_MAX: usize = 10;
    let world = World::start().await.expect("a world starts");
    let known = world.access.institution("bank", 0, None).await.expect("provisioned");
    let (edge, _, _guard) = edge(&world, Budget::default());
    let from = "192.0.2.1".parse().expect("an address");
    let mut shares = Vec::new();
    // A busy machine blurs what is measured. Times that know nothing of a grid are anywhere: some 40 of 100 are the most, however often it is tried.
    while shares.iter().all(|share| *share < 60) {
        assert!(shares.len() < ROUNDS_MAX, "of 100 in one third of the grid: {shares:?}");
        let mut times = Vec::new();
        for n in 0..TRIES {
            let client_id = if n % 2 == 0 { "app_nobody" } else { known.client_id.as_str() };
            // Each takes another time, up to some points of the grid.
            let request = request(&forged(&world, client_id, n * 64_000 / TRIES));
            let began = Instant::now();
            let answer = edge.serve(request, from).await;
            times.push(began.elapsed());
            assert_eq!(answer.status(), 401);
        }
        shares.push(in_one_third(&times, GRID));
    }
}

#[tokio::test]
async fn an_address_over_budget_costs_no_look_ups_and_its_right_signatures_are_accepted_all_the_same() {
    const BURST: u32 = 50;
    const TRIES: usize = 2_000;
    let world = World::start().await.expect("a world starts");
    let known = world.access.institution("bank", 0, None).await.expect("provisioned");
    let quiet = world.access.institution("quiet", 0, None).await.expect("provisioned");
    let (edge, heard, guard) = edge(&world, Budget { per_s: 1, burst: BURST, limit_loopback: false });
    let wrong = |client_id: &str| {
        let draft = world.draft(&known, "GET", QUERY, "").with("X-Service-Signature", &"0".repeat(128));
        draft.with("X-Service-Certificate-ClientId", client_id).with("X-Service-Nonce", &fresh_nonce())
    };
    let right = || world.draft(&known, "GET", QUERY, "");
    assert_eq!(ask(&edge, &right(), "192.0.2.1").await, 200);
    let mut said = [0, 0];
    for n in 0..TRIES {
        let draft = if n % 2 == 0 { wrong("app_nobody") } else { wrong(&known.client_id) };
        match ask(&edge, &draft, "192.0.2.1").await {
            401 => said[0] += 1,
            429 => said[1] += 1,
            other => panic!("{other}"),
        }
        if n % 100 == 99 {
            assert_eq!(ask(&edge, &right(), "192.0.2.1").await, 200, "after {n} wrong ones");
        }
    }
    let after_many_wrong_ones = async |signer: &Signer| {
        // Else the budget would have room again, and it would be looked up as for anybody.
        while ask(&edge, &wrong("app_nobody"), "192.0.2.1").await != 429 {}
        ask(&edge, &world.draft(signer, "GET", QUERY, ""), "192.0.2.1").await
    };
    // Where everything was forgotten: answered 429 at first, and looked up beside.
    for signer in [&quiet, &known] {
        let unknown = async || {
            world.running.app.callers.forget_all();
            match after_many_wrong_ones(signer).await {
                429 => Ok(Some(())),
                // In between the budget had room again.
                200 => Ok(None),
                other => anyhow::bail!("{other}"),
            }
        };
        until("no answer tells that it is there", PATIENCE, unknown).await.expect("none does");
        let accepted = async || Ok((after_many_wrong_ones(signer).await == 200).then_some(()));
        until("whoever signs right is heard", PATIENCE, accepted).await.expect("it is");
    }
    // One that has changed and one that was just made are looked up without being asked for.
    let path = format!("/applications/{}", known.client_id);
    world.access.provision("PATCH", &path, json!({"name": "changed"})).await.expect("changed");
    let made = world.access.institution("made", 0, None).await.expect("provisioned");
    for signer in [&known, &made] {
        let app = &world.running.app;
        let is_kept = async || Ok(app.callers.keeps(&signer.client_id).then_some(()));
        until("it is read beside", PATIENCE, is_kept).await.expect("it is");
        assert_eq!(after_many_wrong_ones(signer).await, 200);
    }
    assert_eq!(ask(&edge, &wrong("app_nobody"), "192.0.2.2").await, 401, "another address has its own budget");
    drop((edge, guard));
    assert!(said[0] >= 50 && said[1] > TRIES / 2, "{said:?}");
    let lines = heard.lines();
    let unread = lines.iter().filter(|line| line["reason"] == "over_budget").count();
    assert!(unread > TRIES - 400, "of {TRIES} wrong ones {unread} were refused without a look-up");
    assert!(lines.len() > TRIES);
}

#[tokio::test]
async fn who_takes_requests_back_while_they_are_looked_up_is_over_budget_like_anybody() {
    const BURST: u32 = 50;
    let world = World::start_on(StoreKind::Postgres, |_| {}).await.expect("a world starts");
    let known = world.access.institution("bank", 0, None).await.expect("provisioned");
    let (edge, _, _guard) = edge(&world, Budget { per_s: 1, burst: BURST, limit_loopback: false });
    let unknown = || {
        let draft = world.draft(&known, "GET", QUERY, "").with("X-Service-Nonce", &fresh_nonce());
        draft.with("X-Service-Certificate-ClientId", "app_nobody")
    };
    let began = Instant::now();
    let mut taken_back = 0;
    loop {
        let (draft, mut waker) = (unknown(), Context::from_waker(Waker::noop()));
        let mut asked = Box::pin(ask(&edge, &draft, "192.0.2.1"));
        match asked.as_mut().poll(&mut waker) {
            // The database has not answered yet.
            Poll::Pending => taken_back += 1,
            Poll::Ready(status) => {
                assert_eq!(status, 429);
                break;
            }
        }
        // One more for each second that has begun.
        let room = u64::from(BURST) + 2 + began.elapsed().as_secs();
        assert!(taken_back <= room, "{taken_back} were looked up, and there was room for {room}");
    }
    assert!(taken_back >= u64::from(BURST), "{taken_back}");
    assert_eq!(ask(&edge, &unknown(), "192.0.2.2").await, 401);
}

#[tokio::test]
async fn long_pages_of_one_tenant_stay_in_memory_up_to_a_bound_and_beyond_it_are_short() {
    const EACH: usize = 16;
    let world = World::start().await.expect("a world starts");
    let eager = world.access.institution("eager", 0, None).await.expect("provisioned");
    let other = world.access.institution("other", 0, None).await.expect("provisioned");
    for signer in [&eager, &other] {
        for n in 0..4 {
            let (client_id, data) = (&signer.client_id, json!({"text": "x".repeat(20_000)}));
            let event = json!({"client_id": client_id, "bizType": "T", "bizId": format!("B-{n}"), "bizStatus": "S", "data": data});
            world.access.provision("POST", "/events", event).await.expect("emitted");
        }
    }
    let (edge, _, _guard) = edge(&world, Budget::default());
    let pull = async |signer, target| answered(&edge, &world.draft(signer, "GET", target, ""), "192.0.2.1").await;
    let count = async |answer: hyper::Response<Answer>| {
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.expect("is whole").to_bytes();
        let page: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let events = page["data"]["events"].as_array().expect("events").len();
        (events, page["data"]["next"].as_u64().expect("a number"))
    };
    let mut unread = Vec::new();
    for _ in 0..EACH {
        unread.push(pull(&eager, QUERY).await);
    }
    let short = count(pull(&eager, QUERY).await).await;
    assert_eq!(short, (1, 1), "as many as need no place");
    assert_eq!(count(pull(&eager, "/v1/pay/events?after=3").await).await, (1, 4), "and the next page goes on");
    assert_eq!(count(pull(&other, QUERY).await).await, (4, 4), "nobody waits for another");
    assert_eq!(count(unread.pop().expect("one")).await, (4, 4));
    assert_eq!(count(pull(&eager, QUERY).await).await, (4, 4), "one is read");
}

#[tokio::test]
async fn long_bodies_of_orders_are_bounded_for_each_application_and_what_is_refused_leaves_nothing() {
    let world = World::start().await.expect("a world starts");
    let [eager, other] = ["eager", "other"];
    let eager = world.access.institution(eager, 0, None).await.expect("provisioned");
    let other = world.access.institution(other, 0, None).await.expect("provisioned");
    let (edge, _, _guard) = edge(&world, Budget::default());
    let order = |signer, trade_no: usize, bytes| {
        let pad = " ".repeat(bytes);
        let body = format!(r#"{{"merchantTradeNo":"T-{trade_no}","currency":"USDT","orderAmount":"1"{pad}}}"#);
        world.draft(signer, "POST", "/v1/pay/order", &body)
    };
    let mut taken = 0;
    // Until hardly anything is left.
    for bytes in [60_000, 8_000] {
        while ask(&edge, &order(&eager, taken, bytes), "192.0.2.1").await == 200 {
            taken += 1;
            assert!(taken < 200, "there is no bound");
        }
        assert!(taken >= 70, "{taken}");
    }
    let refused = answered(&edge, &order(&eager, 1_000, 60_000), "192.0.2.1").await;
    assert_eq!(refused.status(), 429);
    let wait = refused.headers()["retry-after"].to_str().expect("digits").parse::<u64>().expect("a number");
    assert!((1..=14).contains(&wait), "not yet, and as soon as 56000 bytes are there again: {wait}");
    let named = r#"{"merchantTradeNo":"T-1000"}"#;
    let query = world.draft(&eager, "POST", "/v1/pay/order/query", named);
    assert_eq!(ask(&edge, &query, "192.0.2.1").await, 404, "it was not made");
    assert_eq!(ask(&edge, &order(&eager, 1_000, 3_000), "192.0.2.1").await, 200, "an ordinary one");
    assert_eq!(ask(&edge, &order(&other, 1, 60_000), "192.0.2.1").await, 200, "nobody pays for another");
}

#[tokio::test]
async fn requests_outside_an_applications_own_tolerance_count_in_its_rate() {
    let world = World::start().await.expect("a world starts");
    let signer = world.access.institution("bank", 0, None).await.expect("provisioned");
    let path = format!("/applications/{}", signer.client_id);
    let limits = json!({"timestamp_tolerance_ms": 1000, "rate_limit_per_s": 1});
    world.access.provision("PATCH", &path, limits).await.expect("limited");
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    let late = world.clock.now().0 - 5_000;
    let claimed = loop {
        let draft = signer.draft_at("GET", QUERY, b"", late, &fresh_nonce());
        let code = world.send(&draft).await.expect("an answer").code();
        let is_limited = code == "400429";
        *codes.entry(code).or_default() += 1;
        if is_limited {
            break draft;
        }
        assert!(codes.values().sum::<usize>() < 10_000, "no rate limits them: {codes:?}");
    };
    assert!(codes["400003"] >= 2 && codes.len() == 2, "{codes:?}");
    world.access.provision("PATCH", &path, json!({"rate_limit_per_s": 1000})).await.expect("raised");
    assert_eq!(world.send(&claimed).await.expect("an answer").code(), "400003", "429 leaves the nonce open");
    assert_eq!(world.send(&claimed).await.expect("an answer").code(), "400003");
}

#[tokio::test]
async fn made_up_tokens_are_budgeted_and_a_good_one_of_the_same_address_is_not_locked_out() {
    let world = World::start_with(|config| {
        config.limit_loopback = true;
        config.failed_auth_per_s = 1;
        config.failed_auth_burst = 20;
    })
    .await
    .expect("a world starts");
    let good = || world.access.call("GET", "/operator/v1/merchants", None);
    assert_eq!(good().await.expect("an answer").status, 200);
    let mut said = [0, 0];
    for n in 0.. {
        if said[1] == 10 {
            break;
        }
        assert!(n < 10_000, "no budget ends: {said:?}");
        let draft = world.access.draft("GET", "/operator/v1/merchants", None);
        let draft = draft.with("Authorization", &format!("Bearer cso_made_up_{n}"));
        let answer = once(world.access.address, &draft.bytes()).await.expect("an answer");
        match (answer.status, answer.json()["code"].as_str()) {
            (401, Some("400801")) => said[0] += 1,
            (429, Some("400429")) => {
                assert!(answer.header("retry-after").is_some());
                said[1] += 1;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(good().await.expect("an answer").status, 200, "after {n}");
    }
    assert!(said[0] >= 20, "{said:?}");
}

#[tokio::test]
async fn a_method_of_any_length_makes_a_short_line() {
    let world = World::start().await.expect("a world starts");
    for address in [world.listen(), world.access.address] {
        let request = format!("{} /v1/time HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "G".repeat(40_000));
        let answer = once(address, request.as_bytes()).await.expect("an answer");
        assert!((400..500).contains(&answer.status), "{}", answer.head);
    }
    let lines = until("both are in the log", PATIENCE, async || {
        let lines = world.heard.lines();
        let of_them: Vec<_> =
            lines.into_iter().filter(|line| line["method"].as_str().is_some_and(|m| m.starts_with("GGG"))).collect();
        Ok((of_them.len() == 2).then_some(of_them))
    });
    let (lines, _) = lines.await.expect("they are written");
    assert!(lines.iter().all(|line| line.to_string().len() < 1_024), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_institution_has_one_of_its_lists_read_at_a_time_and_keeps_nobody_else_waiting() {
    let world = World::start().await.expect("a world starts");
    let (bank, house) = (
        world.access.institution("bank", 1, None).await.expect("provisioned"),
        world.access.institution("house", 1, None).await.expect("provisioned"),
    );
    let app = &world.running.app;
    let row = app.store.merchant("bank").await.expect("a store").expect("is there");
    let list = async |signer: &Signer| {
        let draft = world.draft(signer, "POST", "/rate/commission_rule/list", "{}");
        world.send(&draft).await.expect("an answer").code()
    };
    // As one of its lists that takes long.
    let turn = app.turns.take(TurnKey::RuleList(row.no)).await;
    assert_eq!(list(&house).await, "000000");
    let mut waits = std::pin::pin!(list(&bank));
    assert!(timeout(Duration::from_millis(300), &mut waits).await.is_err(), "it waits for its turn");
    assert_eq!(list(&house).await, "000000");
    drop(turn);
    assert_eq!(waits.await, "000000");
}
