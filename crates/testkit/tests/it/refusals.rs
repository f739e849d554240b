//! Every door is tested shut: each endpoint against each kind of spoiled request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use countersign_protocol::endpoint::Endpoint;
use countersign_protocol::signing::SigningKey;
use countersign_testkit::wire::{Answer, Connection, Draft, Signer};
use countersign_testkit::world::World;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::journey_convert::{PREVIEW, carry_out, put_rate};
use crate::journey_rule_upgrade::good;

/// A server with somebody who may call everything.
struct Doors {
    world: World,
    signer: Signer,
    order: String,
    /// A request that carries a quote out.
    conversion: String,
}

impl Doors {
    async fn open() -> Self {
        let world = World::start().await.expect("a world starts");
        let signer = world.access.institution("bank", 2, None).await.expect("provisioned");
        let order = world.access.convert_order("bank").await.expect("an order");
        let pay = r#"{"merchantTradeNo":"T-0","currency":"USDT","orderAmount":"1"}"#;
        let made = world.send(&world.draft(&signer, "POST", "/v1/pay/order", pay)).await.expect("an answer");
        assert_eq!(made.status, 200, "{}", made.json());
        put_rate(&world, "GT_USDT", json!({"rate": 2})).await;
        let ask = json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "1"});
        let quote = good(&world, &signer, "POST", PREVIEW, &ask).await;
        let conversion = carry_out("r-1", &quote).to_string();
        Self { world, signer, order, conversion }
    }

    /// A good request of every endpoint: an endpoint that is added does not compile until it has one.
    fn good(&self, endpoint: Endpoint) -> Draft {
        let upgrade = r#"{"sub_merchant_id":"bank-1","r_markup":0.3,"effective_date":"2026-01-02 00:00:00"}"#;
        let create = r#"{"sub_merchant_id":"bank-2","r_markup":0.3,"effective_date":"2026-01-02 00:00:00"}"#;
        let preview = r#"{"sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"1"}"#;
        let pay = r#"{"merchantTradeNo":"T-1","currency":"USDT","orderAmount":"1"}"#;
        let native = r#"{"merchantTradeNo":"T-2","currency":"USDT","orderAmount":"1"}"#;
        let (target, body) = match endpoint {
            Endpoint::Time => ("/v1/time".to_owned(), ""),
            Endpoint::RuleUpgrade => ("/rate/commission_rule/upgrade".to_owned(), upgrade),
            Endpoint::RuleCreate => ("/rate/commission_rule".to_owned(), create),
            Endpoint::RuleQuery => ("/rate/commission_rule?sub_merchant_id=bank-1".to_owned(), ""),
            Endpoint::RuleList => ("/rate/commission_rule/list".to_owned(), "{}"),
            Endpoint::ConvertOrder => (format!("/v1/pay/convert/order?orderId={}", self.order), ""),
            Endpoint::ConvertCurrency => ("/v1/pay/convert/currency".to_owned(), ""),
            Endpoint::ConvertPair => ("/v1/pay/convert/pair?currency=USDT".to_owned(), ""),
            Endpoint::ConvertPreview => ("/v1/pay/convert/preview".to_owned(), preview),
            Endpoint::Convert => ("/v1/pay/convert".to_owned(), self.conversion.as_str()),
            Endpoint::OrderCreate => ("/v1/pay/order".to_owned(), pay),
            Endpoint::OrderNative => ("/v1/pay/transactions/native".to_owned(), native),
            Endpoint::OrderQuery => ("/v1/pay/order/query".to_owned(), r#"{"merchantTradeNo":"T-0"}"#),
            Endpoint::ConvertOrderList => ("/v1/pay/convert/order/list".to_owned(), "{}"),
            Endpoint::OrderList => ("/v1/pay/order/list".to_owned(), "{}"),
            Endpoint::OrderClose => ("/v1/pay/order/close".to_owned(), r#"{"merchantTradeNo":"T-0"}"#),
            Endpoint::Events => ("/v1/pay/events".to_owned(), ""),
        };
        self.world.draft(&self.signer, endpoint.method(), &target, body)
    }

    async fn refused(&self, endpoint: Endpoint, attack: &str, draft: &Draft, status: u16, code: &str) -> Answer {
        let answer = self.world.send(draft).await.expect("an answer");
        assert_refusal(&answer, status, code, &format!("{endpoint:?} {attack}"));
        answer
    }
}

/// All five keys, the code, the status, a request id and a date.
fn assert_refusal(answer: &Answer, status: u16, code: &str, case: &str) {
    let json = answer.json();
    let object = json
        .as_object()
        .unwrap_or_else(|| panic!("{case}: no envelope: {} {}", answer.head, String::from_utf8_lossy(&answer.body)));
    assert_eq!((answer.status, json["code"].as_str()), (status, Some(code)), "{case}: {json}");
    assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Signature"), "{case}: {}", answer.head);
    let mut keys: Vec<_> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "data", "errorMessage", "label", "status"], "{case}");
    assert_eq!(json["status"], "FAIL", "{case}");
    assert!(json["data"].is_null(), "{case}");
    assert!(json["label"].as_str().is_some_and(|l| !l.is_empty()), "{case}");
    assert!(json["errorMessage"].as_str().is_some_and(|m| m.len() > 10), "{case}");
    assert!(answer.header("x-service-request-id").is_some_and(|id| !id.is_empty()), "{case}");
    assert!(answer.header("date").is_some(), "{case}");
}

const STALE_MS: i64 = 30_001;
const SIGNED_HEADERS: [&str; 4] =
    ["X-Service-Certificate-ClientId", "X-Service-Timestamp", "X-Service-Nonce", "X-Service-Signature"];

#[tokio::test]
async fn every_endpoint_accepts_a_good_request_and_refuses_every_spoiled_one() {
    let doors = Doors::open().await;
    for endpoint in Endpoint::ALL.iter().copied() {
        let good = doors.good(endpoint);
        let answer = doors.world.send(&good).await.expect("an answer");
        assert_eq!((answer.status, answer.code().as_str()), (200, "000000"), "{endpoint:?}: {}", answer.json());
        if endpoint.is_signed() {
            doors.refused(endpoint, "replayed", &good, 401, "400021").await;
            spoiled_headers(&doors, endpoint).await;
            spoiled_proof(&doors, endpoint).await;
        }
        spoiled_transport(&doors, endpoint).await;
    }
}

/// Headers that are missing, twice, empty or malformed.
async fn spoiled_headers(doors: &Doors, endpoint: Endpoint) {
    let unsigned = SIGNED_HEADERS.iter().fold(doors.good(endpoint), |draft, name| draft.without(name));
    doors.refused(endpoint, "unsigned", &unsigned, 400, "400001").await;
    for name in SIGNED_HEADERS {
        let missing = doors.refused(endpoint, "missing", &doors.good(endpoint).without(name), 400, "400001").await;
        let twice = doors.refused(endpoint, "twice", &doors.good(endpoint).twice(name), 400, "400001").await;
        for answer in [missing, twice] {
            let sentence = answer.json()["errorMessage"].as_str().unwrap_or_default().to_ascii_lowercase();
            assert!(sentence.contains(&name.to_ascii_lowercase()), "{endpoint:?} names {name}: {sentence}");
        }
    }
    for timestamp in ["1700000000", "01700000000000", "+700000000000", "170000000000x"] {
        let draft = doors.good(endpoint).with("X-Service-Timestamp", timestamp);
        doors.refused(endpoint, timestamp, &draft, 400, "400001").await;
    }
    for nonce in ["a b", "näh", &"x".repeat(65), "callback0123456789abcdef01234567"] {
        doors.refused(endpoint, nonce, &doors.good(endpoint).with("X-Service-Nonce", nonce), 400, "400020").await;
    }
    let other_prefix = doors.good(endpoint).without("X-Service-Nonce").with("X-Other-Nonce", "abc");
    doors.refused(endpoint, "other prefix", &other_prefix, 400, "400001").await;
}

/// Signatures that are not right, and times that are not now.
async fn spoiled_proof(doors: &Doors, endpoint: Endpoint) {
    let stranger = Signer { key: SigningKey::new(b"another secret"), ..clone(&doors.signer) };
    let good = doors.good(endpoint);
    let body = String::from_utf8(good.body.clone()).expect("JSON is text");
    let forged = doors.world.draft(&stranger, &good.method, &good.target, &body);
    doors.refused(endpoint, "other key", &forged, 401, "400002").await;
    let mut changed = doors.good(endpoint);
    changed.body.push(b' ');
    doors.refused(endpoint, "body changed", &changed.with("Content-Type", "application/json"), 401, "400002").await;
    for signature in ["00", "", "zz", &"0".repeat(128), &"A".repeat(88)] {
        let draft = doors.good(endpoint).with("X-Service-Signature", signature);
        doors.refused(endpoint, "signature", &draft, 401, "400002").await;
    }
    for stamped in [-STALE_MS, STALE_MS] {
        let at = doors.world.clock.now().0 + stamped;
        let nonce = countersign_testkit::wire::fresh_nonce();
        let stale = doors.signer.draft_at(&good.method, &good.target, &good.body, at, &nonce);
        doors.refused(endpoint, "stale", &stale, 401, "400003").await;
    }
}

/// Wrong method, type, packing, size.
async fn spoiled_transport(doors: &Doors, endpoint: Endpoint) {
    let mut deleted = doors.good(endpoint);
    "DELETE".clone_into(&mut deleted.method);
    let answer = doors.refused(endpoint, "method", &deleted, 405, "400405").await;
    assert!(
        answer.header("allow").is_some_and(|allow| allow.contains(endpoint.method())),
        "{endpoint:?}: {}",
        answer.head
    );
    if !doors.good(endpoint).body.is_empty() {
        for media in ["text/plain", "application/jsonx", "multipart/form-data"] {
            let draft = doors.good(endpoint).with("Content-Type", media);
            doors.refused(endpoint, media, &draft, 415, "400007").await;
        }
        doors.refused(endpoint, "no type", &doors.good(endpoint).without("Content-Type"), 415, "400007").await;
        doors.refused(endpoint, "packed", &doors.good(endpoint).with("Content-Encoding", "gzip"), 415, "400007").await;
    } else if endpoint.method() == "GET" {
        let mut packed = doors.good(endpoint).with("Content-Encoding", "gzip");
        packed.body = b"{}".to_vec();
        doors.refused(endpoint, "packed, without a type", &packed, 415, "400007").await;
    }
    let mut large = doors.good(endpoint).with("Content-Type", "application/json");
    large.body = vec![b' '; 64 * 1024 + 1];
    doors.refused(endpoint, "large", &large, 413, "400413").await;
    let heads = doors.good(endpoint).with("X-Filler", &"x".repeat(33 * 1024));
    doors.refused(endpoint, "large head", &heads, 431, "400431").await;
    let many = (0..101).fold(doors.good(endpoint), |draft, n| draft.with(&format!("X-Filler-{n}"), "x"));
    doors.refused(endpoint, "many headers", &many, 431, "400431").await;
}

fn clone(signer: &Signer) -> Signer {
    Signer { client_id: signer.client_id.clone(), key: SigningKey::new(b""), merchant_id: signer.merchant_id.clone() }
}

#[tokio::test]
async fn a_path_that_is_not_there_is_an_envelope_too() {
    let doors = Doors::open().await;
    for target in ["/", "/v1", "/v1/time/", "/V1/TIME", "/rate/commission_rule/upgrade/x", "//v1/time"] {
        let draft = doors.world.draft(&doors.signer, "GET", target, "");
        let answer = doors.world.send(&draft).await.expect("an answer");
        assert_refusal(&answer, 404, "400404", target);
    }
}

#[tokio::test]
async fn unknown_disabled_and_wrong_signature_are_one_answer() {
    let doors = Doors::open().await;
    let disabled = doors.world.access.application("bank", None).await.expect("an application");
    let path = format!("/applications/{}", disabled.client_id);
    doors.world.access.provision("PATCH", &path, serde_json::json!({"enabled": false})).await.expect("disabled");
    let target = format!("/v1/pay/convert/order?orderId={}", doors.order);
    let unknown = Signer { client_id: "app_nobody".to_owned(), ..clone(&doors.signer) };
    let wrong = clone(&doors.signer);
    let mut seen = Vec::new();
    for signer in [&unknown, &disabled, &wrong] {
        let answer = doors.world.send(&doors.world.draft(signer, "GET", &target, "")).await.expect("an answer");
        assert_refusal(&answer, 401, "400002", &signer.client_id);
        let id = answer.header("x-service-request-id").expect("a request id").to_owned();
        let date = answer.header("date").expect("a date").to_owned();
        seen.push((answer.head.replace(&id, "ID").replace(&date, "DATE"), answer.body));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[tokio::test]
async fn a_missing_header_is_named_with_the_prefix_of_its_request() {
    let prefixes = vec!["X-Service-".to_owned(), "X-Other-".to_owned()];
    let world = World::start_with(|config| config.header_prefixes = prefixes).await.expect("a world starts");
    let signer = world.access.institution("bank", 1, None).await.expect("provisioned");
    let mut draft = world.draft(&signer, "POST", "/rate/commission_rule/list", "{}").without("X-Service-MerchantId");
    for (name, _) in &mut draft.headers {
        *name = name.replace("X-Service-", "X-Other-");
    }
    let answer = world.send(&draft).await.expect("an answer");
    assert_refusal(&answer, 400, "400001", "no MerchantId");
    assert!(answer.json()["errorMessage"].as_str().is_some_and(|m| m.contains("X-Other-MerchantId")));
}

#[tokio::test]
async fn a_deployment_may_have_a_prefix_of_its_own_and_its_documents_say_so() {
    let world =
        World::start_with(|config| config.header_prefixes = vec!["X-Acme-".to_owned()]).await.expect("a world starts");
    let signer = world.access.institution("bank", 1, None).await.expect("provisioned");
    let mut draft = world.draft(&signer, "POST", "/rate/commission_rule/list", "{}");
    let shipped = world.send(&draft).await.expect("an answer");
    assert_eq!((shipped.status, shipped.code().as_str()), (400, "400001"), "{}", shipped.head);
    for (name, _) in &mut draft.headers {
        *name = name.replace("X-Service-", "X-Acme-");
    }
    let answer = world.send(&draft).await.expect("an answer");
    assert_eq!((answer.status, answer.header("x-acme-request-id").is_some()), (200, true), "{}", answer.head);
    for (document, names) in [("merchant", "X-Acme-Signature"), ("operator", "X-Acme-Request-Id")] {
        let answer = world.access.call("GET", &format!("/openapi/{document}.json"), None).await.expect("an answer");
        let text = answer.json().to_string();
        assert!(answer.status == 200 && text.contains(names) && !text.contains("X-Service-"), "{document}");
    }
}

#[tokio::test]
async fn a_secret_is_revoked_at_once_also_where_the_operator_hangs_up() {
    let world = World::start().await.expect("a world starts");
    world.access.institution("bank", 0, None).await.expect("provisioned");
    // Where hanging up cuts the call off, it does so nearly every time; ten in a row leave no doubt.
    for _ in 0..10 {
        let signer = world.access.application("bank", None).await.expect("provisioned");
        let pull = || world.draft(&signer, "GET", "/v1/pay/events", "");
        assert_eq!(world.send(&pull()).await.expect("an answer").status, 200);
        let path = format!("/operator/v1/applications/{}/secrets", signer.client_id);
        let live = || async { world.access.call("GET", &path, None).await.expect("an answer").json()["items"].clone() };
        let secret_id = live().await[0]["secret_id"].as_str().expect("an id").to_owned();
        let revoke = world.access.draft("DELETE", &format!("{path}/{secret_id}"), None);
        let mut hasty = Connection::open(world.access.address).await.expect("connects");
        hasty.write(&revoke.bytes()).await.expect("is sent");
        drop(hasty);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut status = 200;
        while status == 200 && Instant::now() < deadline {
            if live().await.as_array().is_some_and(Vec::is_empty) {
                status = world.send(&pull()).await.expect("an answer").status;
            }
        }
        assert_eq!(status, 401, "a revoked secret is accepted");
    }
}

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    endpoint: String,
    input: String,
    refused: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    code: String,
    field: String,
}

/// The protocol's own tests know forms. What a well-formed request is refused for is told by a server.
#[tokio::test]
async fn every_request_vector_that_is_refused_is_refused_by_a_server_in_the_same_words() {
    let doors = Doors::open().await;
    let document: Value = serde_json::from_str(include_str!("../../../../docs/openapi/merchant.json")).expect("JSON");
    let operations: BTreeMap<String, (String, String)> = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            let named = |(method, operation): (&String, &Value)| {
                let id = operation["operationId"].as_str().expect("an operation has its id").to_owned();
                (id, (method.to_ascii_uppercase(), path.clone()))
            };
            methods.as_object().expect("methods").iter().map(named)
        })
        .collect();
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../../protocol/vectors/requests.json")).expect("vectors");
    let mut sent = 0;
    for Vector { name, endpoint, input, refused } in vectors.cases {
        let (Some(Refused { code, field }), (method, path)) = (refused, &operations[&endpoint]) else { continue };
        let (target, body) =
            if method == "GET" { (format!("{path}?{input}"), "") } else { (path.clone(), input.as_str()) };
        let answer =
            doors.world.send(&doors.world.draft(&doors.signer, method, &target, body)).await.expect("an answer");
        let envelope = answer.json();
        let said = envelope["errorMessage"].as_str().expect("a sentence");
        assert_eq!(envelope["code"], code, "{name}: {said}");
        let named = said.starts_with(&format!("field {field}: ")) || field == "body" && said.starts_with("body: ");
        assert!(named, "{name}: {said}");
        sent += 1;
    }
    assert!(sent > 100, "{sent}");
}
