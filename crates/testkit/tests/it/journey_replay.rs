//! One request, once: at once, again, after a restart, and what leaves a nonce open.

use std::sync::Arc;

use countersign_protocol::endpoint::Endpoint;
use countersign_testkit::wire::{Connection, Draft, Signer, fresh_nonce};
use countersign_testkit::world::World;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::journey_convert::{carry_out, put_rate};
use crate::journey_rule_upgrade::{UPGRADE, bank, date};

/// Rounds of 64 equal requests at once.
const ROUNDS: usize = 200;
const AT_ONCE: usize = 64;

/// Sends the same bytes over each of these connections; how many succeeded, how many were replays.
async fn at_once(connections: &mut Vec<Connection>, draft: &Draft) -> (usize, usize) {
    let bytes = Arc::new(draft.bytes());
    let mut tasks = JoinSet::new();
    for mut connection in connections.drain(..) {
        let bytes = bytes.clone();
        tasks.spawn(async move { (connection.send(&bytes).await, connection) });
    }
    let mut seen = (0, 0);
    while let Some(ended) = tasks.join_next().await {
        let (answer, connection) = ended.expect("no panic");
        match answer.expect("an answer").code().as_str() {
            "000000" => seen.0 += 1,
            "400021" => seen.1 += 1,
            other => panic!("{other}"),
        }
        connections.push(connection);
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixty_four_equal_requests_at_once_exactly_one_succeeds() {
    let (world, signer) = unlimited().await;
    let order = world.access.convert_order("bank").await.expect("an order");
    let mut connections = Vec::new();
    for _ in 0..AT_ONCE {
        connections.push(Connection::open(world.listen()).await.expect("connects"));
    }
    for round in 0..ROUNDS {
        let draft = if round % 2 == 0 {
            let body =
                json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
            world.draft(&signer, "POST", UPGRADE, &body)
        } else {
            world.draft(&signer, "GET", &format!("/v1/pay/convert/order?orderId={order}"), "")
        };
        assert_eq!(at_once(&mut connections, &draft).await, (1, AT_ONCE - 1), "round {round}");
    }
}

async fn unlimited() -> (World, Signer) {
    let world = World::start_with(|config| config.rate_limit_per_s = 0).await.expect("a world starts");
    let signer = world.access.institution("bank", 1, None).await.expect("provisioned");
    (world, signer)
}

#[tokio::test]
async fn a_used_nonce_stays_used_through_a_restart_and_an_unused_one_stays_good() {
    let (world, signer) = bank().await;
    let order = world.access.convert_order("bank").await.expect("an order");
    let target = format!("/v1/pay/convert/order?orderId={order}");
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
    let read = world.draft(&signer, "GET", &target, "");
    let write = world.draft(&signer, "POST", UPGRADE, &rule);
    let refused = world.draft(&signer, "POST", UPGRADE, "{}");
    let kept = world.draft(&signer, "GET", &target, "");
    assert_eq!(world.send(&read).await.expect("an answer").code(), "000000");
    assert_eq!(world.send(&write).await.expect("an answer").code(), "000000");
    assert_eq!(world.send(&refused).await.expect("an answer").code(), "400001");
    let world = world.restart().await.expect("it starts again");
    for draft in [&read, &write, &refused] {
        assert_eq!(world.send(draft).await.expect("an answer").code(), "400021");
    }
    assert_eq!(
        world.send(&kept).await.expect("an answer").code(),
        "000000",
        "signed before the restart, sent after it"
    );
}

#[tokio::test]
async fn whatever_changes_something_uses_its_nonce_up_for_good_also_where_it_was_done_before() {
    let (world, signer) = bank().await;
    put_rate(&world, "GT_USDT", json!({"rate": "22.4"})).await;
    let mut sent = Vec::new();
    let mut post = async |path: &'static str, body: &Value| {
        let draft = world.draft(&signer, "POST", path, &body.to_string());
        let answer = world.send(&draft).await.expect("an answer");
        assert_eq!(answer.code(), "000000", "{path} {body}");
        sent.push((path, draft));
        answer.json()["data"].clone()
    };
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)});
    post("/rate/commission_rule", &rule).await;
    post(UPGRADE, &rule).await;
    let selling = json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "2"});
    let quote = post("/v1/pay/convert/preview", &selling).await;
    let order = |trade_no: &str| json!({"merchantTradeNo": trade_no, "currency": "USDT", "orderAmount": "10.50"});
    for _once_more in 0..2 {
        post("/v1/pay/convert", &carry_out("r-1", &quote)).await;
        post("/v1/pay/order", &order("t-1")).await;
        post("/v1/pay/transactions/native", &order("t-2")).await;
    }
    for _once_more in 0..2 {
        post("/v1/pay/order/close", &json!({"merchantTradeNo": "t-1"})).await;
    }
    for endpoint in Endpoint::ALL.iter().filter(|endpoint| endpoint.changes()) {
        assert!(sent.iter().any(|(path, _)| *path == endpoint.path()), "{} is not among them", endpoint.path());
    }
    let world = world.restart().await.expect("it starts again");
    for (at, (path, draft)) in sent.iter().enumerate() {
        assert_eq!(world.send(draft).await.expect("an answer").code(), "400021", "request {at}, {path}");
    }
}

#[tokio::test]
async fn one_nonce_is_good_once_whatever_timestamp_it_comes_with() {
    let (world, signer) = bank().await;
    let other = world.access.application("bank", None).await.expect("an application");
    let nonce = fresh_nonce();
    let send = async |signer: &Signer, after_ms: i64| {
        let draft = signer.draft_at("GET", "/v1/pay/events", b"", world.clock.now().0 + after_ms, &nonce);
        world.send(&draft).await.expect("an answer").code()
    };
    assert_eq!(send(&signer, 0).await, "000000");
    assert_eq!(send(&signer, 1).await, "400021");
    assert_eq!(send(&signer, -29_000).await, "400021");
    assert_eq!(send(&other, 0).await, "000000", "another application's nonce is another nonce");
}

#[tokio::test]
async fn a_request_over_the_rate_leaves_its_nonce_open() {
    let (world, signer) = bank().await;
    let path = format!("/applications/{}", signer.client_id);
    world.access.provision("PATCH", &path, json!({"rate_limit_per_s": 1})).await.expect("limited");
    let mut limited = None;
    for _ in 0..100 {
        let draft = world.draft(&signer, "GET", "/v1/pay/events", "");
        let answer = world.send(&draft).await.expect("an answer");
        if answer.status == 429 {
            assert_eq!(answer.code(), "400429");
            assert!(answer.header("retry-after").is_some());
            limited = Some(draft);
            break;
        }
    }
    let draft = limited.expect("a hundred are more than two and one for each second");
    world.access.provision("PATCH", &path, json!({"rate_limit_per_s": 0})).await.expect("unlimited");
    assert_eq!(world.send(&draft).await.expect("an answer").code(), "000000");
}

#[tokio::test]
async fn an_applications_own_lower_limit_is_checked_after_the_signature_and_uses_the_nonce_up() {
    let (world, signer) = bank().await;
    let path = format!("/applications/{}", signer.client_id);
    world.access.provision("PATCH", &path, json!({"timestamp_tolerance_ms": 5000})).await.expect("lowered");
    let at = world.clock.now().0 - 5_001;
    let late = signer.draft_at("GET", "/v1/pay/events", b"", at, &fresh_nonce());
    let forged = late.clone().with("X-Service-Signature", &"0".repeat(128));
    assert_eq!(
        world.send(&forged).await.expect("an answer").code(),
        "400002",
        "a stranger learns nothing of the limit"
    );
    assert_eq!(world.send(&late).await.expect("an answer").code(), "400003");
    let open = signer.draft_at("GET", "/v1/pay/events", b"", at, &fresh_nonce());
    world.access.provision("PATCH", &path, json!({"timestamp_tolerance_ms": 30000})).await.expect("raised");
    assert_eq!(
        world.send(&open).await.expect("an answer").code(),
        "400003",
        "a raised limit is for what is stamped after"
    );
    world.clock.advance_ms(10_000);
    let after = signer.draft_at("GET", "/v1/pay/events", b"", world.clock.now().0 - 9_000, &fresh_nonce());
    assert_eq!(world.send(&after).await.expect("an answer").code(), "000000");
}
