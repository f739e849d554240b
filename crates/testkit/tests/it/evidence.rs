//! Evidence of payment orders, end to end: by the command, through the routes, out of what retention has left, across moves and nodes.
//! `cargo xtask evidence` spoils a file in large.

use std::time::Duration;

use countersign::app::retention;
use countersign::config::Life;
use countersign::evidence::{PublicKey, Verified};
use countersign_testkit::backing::{Backing, StoreKind};
use countersign_testkit::evidence::{Plan, Shop, Way, judge, run};
use countersign_testkit::patience::until;
use countersign_testkit::receiver::{Receiver, Reply};
use countersign_testkit::wire::{Signer, once};
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_rule_upgrade::{bank, good};

/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_spoiled_is_found_with_its_place_and_who_has_no_key_forges_nothing() {
    let plan = Plan { trials: 60, seed: 20_260_104 };
    let report = run(StoreKind::of_this_run(), plan).await.expect("every trial is found");
    let found: Vec<usize> = report.found.iter().map(|(_, count)| *count).collect();
    assert_eq!((found, report.forged), (vec![60; Way::ALL.len()], 24), "{report:?}");
}

async fn key(world: &World) -> PublicKey {
    let told = world.access.call("GET", "/operator/v1/evidence/key", None).await.expect("an answer").json();
    PublicKey::parse(told["public_key"].as_str().expect("a key")).expect("a key")
}

async fn exported(world: &World, id: &str) -> Vec<u8> {
    let path = format!("/operator/v1/payment-orders/{id}/evidence");
    let answer = world.access.call("GET", &path, None).await.expect("an answer");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
    answer.body
}

async fn verified(world: &World, id: &str) -> Verified {
    let bytes = exported(world, id).await;
    let judged = judge(&bytes, key(world).await).expect("it is read");
    judged.unwrap_or_else(|fault| panic!("{fault}: {}", String::from_utf8_lossy(&bytes)))
}

async fn made(world: &World, signer: &Signer, trade_no: &str) -> String {
    let body = json!({"merchantTradeNo": trade_no, "currency": "USDT", "orderAmount": "10.50"});
    let made = good(world, signer, "POST", "/v1/pay/order", &body).await;
    made["prepayId"].as_str().expect("a number").to_owned()
}

async fn moved(world: &World, id: &str, body: Value) {
    world.access.provision("PATCH", &format!("/payment-orders/{id}"), body).await.expect("it is moved");
}

async fn audit(world: &World) -> Vec<Value> {
    let page = world.access.call("GET", "/operator/v1/audit?limit=500", None).await.expect("an answer").json();
    page["items"].as_array().expect("lines").clone()
}

#[tokio::test]
async fn a_request_is_kept_with_the_headers_that_its_right_rests_on_and_with_nobody_elses() {
    let (world, signer) = bank().await;
    let body = json!({"merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "10.50"}).to_string();
    let draft = signer.draft_at("POST", "/v1/pay/order", body.as_bytes(), world.clock.now().0, "a-nonce-of-its-own");
    let signature = draft.headers.iter().find(|(name, _)| name.ends_with("Signature")).expect("it is signed").1.clone();
    let foreign = ["X-Other-Certificate-ClientId", "X-Other-MerchantId", "On-Behalf-Of", "X-Service-X-Service-Nonce"];
    let draft = foreign.iter().fold(draft, |draft, name| draft.with(name, "somebody-else"));
    let answer = once(world.listen(), &draft.bytes()).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.json());
    let id = answer.json()["data"]["prepayId"].as_str().expect("a number").to_owned();
    let bytes = exported(&world, &id).await;
    let lines = String::from_utf8(bytes).expect("text");
    let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("an entry"));
    let request = lines.find(|line| line["entry"]["kind"] == "request").expect("the request");
    let (client_id, stamped_at) = (&signer.client_id, world.clock.now().0);
    let expected = format!(
        "POST /v1/pay/order\nx-service-certificate-clientid: {client_id}\nx-service-timestamp: {stamped_at}\n\
         x-service-nonce: a-nonce-of-its-own\nx-service-signature: {signature}\nx-service-merchantid: bank"
    );
    assert_eq!(request["entry"]["head"], expected);
}

#[tokio::test]
async fn evidence_is_good_at_every_point_of_an_orders_life_and_its_taking_is_in_the_audit_log() {
    let (world, signer) = bank().await;
    let id = made(&world, &signer, "T-1").await;
    let pending = verified(&world, &id).await;
    assert_eq!((pending.order.status.as_str(), pending.moves.len(), pending.callbacks.len()), ("PENDING", 1, 0));
    assert_eq!(pending.moves[0].actor, format!("application:{}", signer.client_id));
    moved(&world, &id, json!({"status": "PROCESS"})).await;
    assert_eq!(verified(&world, &id).await.order.status, "PROCESS");
    moved(&world, &id, json!({"status": "PAID", "actualAmount": "10.4"})).await;
    let paid = verified(&world, &id).await;
    assert_eq!((paid.order.status.as_str(), paid.order.actual_amount.as_deref()), ("PAID", Some("10.4")));
    assert_eq!((paid.sum, paid.moves.len(), paid.callbacks.len()), (None, 3, 2), "an institution has no rule");
    let late = made(&world, &signer, "T-2").await;
    world.clock.advance_ms(3_600_000);
    assert_eq!(verified(&world, &late).await.order.status, "EXPIRED", "with or without the move");
    let lines = audit(&world).await;
    let of = |action: &str| lines.iter().filter(|line| line["action"] == action).cloned().collect::<Vec<_>>();
    let taken = of("evidence.export");
    assert_eq!(taken.len(), 4);
    assert!(taken.iter().all(|line| line["actor"].as_str().is_some_and(|actor| actor.starts_with("token:"))));
    assert_eq!(taken.iter().filter(|line| line["subject"] == *id).count(), 3);
    assert_eq!(of("evidence.make_key").len(), 0, "the key was there before");
    let told = world.access.call("GET", "/operator/v1/evidence/key", None).await.expect("an answer").json();
    assert_eq!(of("deployment.init")[0]["after"]["evidence_key"], told["public_key"]);
}

#[tokio::test]
async fn a_sub_accounts_evidence_names_the_rule_its_maker_and_works_the_fee_out() {
    let (world, signer) = bank().await;
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.333_333_33, "f_markup": 0.5,
        "effective_date": crate::journey_rule_upgrade::date(&world, -10)});
    let rule = good(&world, &signer, "POST", crate::journey_rule_upgrade::UPGRADE, &rule).await;
    let sub = world.access.application("bank-1", None).await.expect("made");
    let id = made(&world, &sub, "T-1").await;
    let before = verified(&world, &id).await;
    assert!(before.rule.is_none() && before.sum.is_none());
    moved(&world, &id, json!({"status": "PAID"})).await;
    let paid = verified(&world, &id).await;
    let (version, sum) = (paid.rule.expect("a rule"), paid.sum.expect("a sum"));
    assert_eq!((json!(version.config_id), version.version_no), (rule["config_id"].clone(), 1));
    assert_eq!(version.made_by, Some(format!("application:{}", signer.client_id)));
    assert_eq!(
        (sum.product.as_str(), sum.rounding.as_str(), sum.r_fee.as_str()),
        ("0.03499999965", "half_up_to_6_decimals", "0.035")
    );
}

#[tokio::test]
async fn a_key_that_is_made_by_many_at_once_is_one_and_a_restart_keeps_it() {
    let world = World::start().await.expect("a world starts");
    let asked = (0..8).map(|_| {
        let access = world.access.clone();
        tokio::spawn(
            async move { access.call("GET", "/operator/v1/evidence/key", None).await.expect("an answer").json() },
        )
    });
    let mut keys = Vec::new();
    for one in asked.collect::<Vec<_>>() {
        keys.push(one.await.expect("it ends"));
    }
    assert!(keys.iter().all(|told| *told == keys[0] && told["algorithm"] == "Ed25519"), "{keys:?}");
    let world = world.restart().await.expect("it starts again");
    let again = world.access.call("GET", "/operator/v1/evidence/key", None).await.expect("an answer").json();
    assert_eq!(again, keys[0]);
}

#[tokio::test]
async fn an_order_that_is_not_there_has_no_evidence_and_leaves_no_line() {
    let world = World::start().await.expect("a world starts");
    for id in ["1234567", "x", "0"] {
        let path = format!("/operator/v1/payment-orders/{id}/evidence");
        let answer = world.access.call("GET", &path, None).await.expect("an answer");
        assert_eq!((answer.status, answer.json()["code"].clone()), (404, json!("400202")), "{id}");
    }
    assert!(
        audit(&world).await.iter().all(|line| !line["action"].as_str().unwrap_or_default().starts_with("evidence."))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_leaves_no_half_file_and_checks_without_a_server() {
    let shop = Shop::open(StoreKind::of_this_run(), "").await.expect("it opens");
    let out = shop.command(&["1234567", "-o", shop.folder().join("none").to_str().expect("a path")]).expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("404") && said.lines().count() == 1, "{said}");
    let left = |shop: &Shop| {
        let names = std::fs::read_dir(shop.folder()).expect("a folder");
        names.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect::<Vec<_>>()
    };
    assert_eq!(left(&shop), ["data"], "nothing is left behind");
    let file = shop.export(&shop.prepay_id).expect("it is exported");
    let whole = std::fs::read(&file).expect("it is read");
    let again = shop.export(&shop.prepay_id).expect_err("it is there").to_string();
    assert!(again.contains("is never replaced"), "{again}");
    assert_eq!(std::fs::read(&file).expect("it is read"), whole);
    assert_eq!(left(&shop).len(), 2, "the data and the one file");
    let printed = shop.command(&[&shop.prepay_id]).expect("it runs");
    assert!(printed.status.success() && judge(&printed.stdout, shop.key().expect("a key")).expect("read").is_ok());
    let key_file = shop.folder().join("key");
    std::fs::write(&key_file, format!("{}\n", shop.key().expect("a key").to_hex())).expect("written");
    let words = |key: &str| {
        let file = file.to_str().expect("a path");
        shop.command(&["verify", file, "--key", key]).expect("it runs")
    };
    let by_file = words(key_file.to_str().expect("a path"));
    for flags in [&["key"][..], &["key", "--json"]] {
        let printed = shop.command(flags).expect("it runs").stdout;
        let file = shop.folder().join("printed");
        std::fs::write(&file, printed).expect("written");
        assert!(words(file.to_str().expect("a path")).status.success(), "{flags:?}");
    }
    let told = String::from_utf8_lossy(&by_file.stdout).into_owned();
    assert!(by_file.status.success(), "{}", String::from_utf8_lossy(&by_file.stderr));
    for part in ["rounded half up to 6 decimals: 0.035 USDT", "PROCESS", "attempts: 2", "signed by the key"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let other = words(&"00".repeat(32));
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("signed by another key"));
    assert_eq!(words("no key at all").status.code(), Some(2), "wrong usage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_deployment_tells_the_same_story_under_the_same_key() {
    let shop = Shop::open(StoreKind::of_this_run(), "").await.expect("it opens");
    let key = shop.key().expect("a key");
    let before = std::fs::read(shop.export(&shop.prepay_id).expect("it is exported")).expect("it is read");
    let before = judge(&before, key).expect("it is read").expect("it is good");
    let backup = shop.folder().join("backup");
    shop.deployment.backup(&backup).expect("a backup");
    let elsewhere = Backing::fresh(StoreKind::of_this_run()).await;
    let data = shop.folder().join("restored");
    let restored = shop.deployment.restore(&backup, &data, elsewhere.url()).expect("it is restored");
    let server = restored.serve().expect("it starts");
    let path = format!("/operator/v1/payment-orders/{}/evidence", shop.prepay_id);
    let after = server.access.call("GET", &path, None).await.expect("an answer").body;
    let after = judge(&after, key).expect("it is read").expect("the key is the same");
    assert_eq!(
        (after.order, after.moves, after.callbacks, after.sum),
        (before.order, before.moves, before.callbacks, before.sum)
    );
    assert!(server.terminate().expect("it is told"));
}

/// Events have numbers from before their commit, by which they are listed. A process after a restart, or another node, may draw a smaller one for
/// what comes later.
#[tokio::test]
async fn callbacks_stand_in_the_order_of_their_sequence_whatever_number_their_event_has() {
    let (world, signer) = bank().await;
    let id = made(&world, &signer, "T-1").await;
    moved(&world, &id, json!({"status": "PROCESS"})).await;
    let world = world.restart().await.expect("it starts again");
    world.clock.advance_ms(-4_000);
    moved(&world, &id, json!({"status": "PAID"})).await;
    let list =
        world.access.call("GET", &format!("/operator/v1/events?bizId={id}"), None).await.expect("an answer").json();
    let listed: Vec<_> =
        list["items"].as_array().expect("a list").iter().map(|event| event["sequence"].clone()).collect();
    assert_eq!(listed, [1, 2], "newest first, by number: they are the other way round");
    let file = exported(&world, &id).await;
    assert!(!String::from_utf8_lossy(&file).contains("callbacks_freed"), "nothing was freed");
    let told: Vec<i64> = verified(&world, &id).await.callbacks.iter().map(|callback| callback.sequence).collect();
    assert_eq!(told, [1, 2]);
}

const DAY_MS: i64 = 86_400_000;

/// The attempts of a file, each with what it says of its bytes and whether it has them.
fn wires(file: &[u8]) -> Vec<(Value, bool)> {
    let lines = file.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let entries = lines.map(|line| line["entry"].clone()).filter(|entry| entry["kind"] == "attempt");
    entries.map(|entry| (entry["wire"].clone(), entry["answer_body"].is_object())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_has_freed_is_told_of_and_the_file_stays_good() {
    let days = |days: u64| Life(Some(Duration::from_secs(days * 86_400)));
    let shorter = |config: &mut countersign::config::Config| {
        (config.retention.attempt_bytes, config.retention.events) = (days(2), days(10));
    };
    let world = World::start_with(shorter).await.expect("a world starts");
    let receiver = Receiver::start().await.expect("a loopback port");
    // The connection of the first attempt ends before an answer, so the request may have come.
    receiver.script([Reply::Reset]);
    let signer = world.access.institution("bank", 0, Some(&receiver.url())).await.expect("provisioned");
    let id = made(&world, &signer, "T-1").await;
    for to in ["PROCESS", "PAID"] {
        moved(&world, &id, json!({"status": to})).await;
    }
    let tried = async || Ok((verified(&world, &id).await.callbacks[0].attempts == 1).then_some(()));
    until("an attempt is made", SOON, tried).await.expect("it is");
    world.clock.advance_ms(7_000);
    let delivered = async || {
        let told = verified(&world, &id).await.callbacks;
        Ok((told.len() == 2 && told.iter().all(|told| told.state == "delivered")).then_some(()))
    };
    until("both callbacks are delivered", SOON, delivered).await.expect("they are");
    let kept = json!("kept");
    assert_eq!(wires(&exported(&world, &id).await), [(kept.clone(), false), (kept.clone(), true), (kept, true)]);

    world.clock.advance_ms(3 * DAY_MS);
    retention::free(&world.running.app, world.clock.now()).await.expect("frees");
    let gone = json!("not_kept");
    assert_eq!(wires(&exported(&world, &id).await), [(gone.clone(), false), (gone.clone(), false), (gone, false)]);
    assert_eq!(verified(&world, &id).await.callbacks.len(), 2);

    // The last event of an application stays, so another one has to come behind these.
    let other = made(&world, &signer, "T-2").await;
    moved(&world, &other, json!({"status": "CLOSED"})).await;
    world.clock.advance_ms(8 * DAY_MS);
    retention::free(&world.running.app, world.clock.now()).await.expect("frees");
    let left = verified(&world, &id).await;
    assert_eq!((left.callbacks_freed, left.callbacks_freed_is_at_least, left.callbacks.len()), (2, true, 0));
    assert_eq!((left.order.status.as_str(), left.moves.len()), ("PAID", 3), "the order and its life stay for ever");
}
