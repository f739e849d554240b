//! What an answer says beside itself: nothing of the program, and to a browser that it may do nothing.

use countersign_testkit::wire::{Answer, Draft, once};
use countersign_testkit::world::World;

/// The one shown value of each header that every answer of the operator listener has.
const SHIELDS: [(&str, &str); 6] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("content-security-policy", "default-src 'none'"),
];

fn tells_nothing(answer: &Answer) {
    for name in ["server", "x-powered-by", "via", "x-aspnet-version"] {
        assert_eq!(answer.header(name), None, "{}", answer.head);
    }
    assert!(!answer.head.contains(env!("CARGO_PKG_VERSION")), "{}", answer.head);
    assert!(answer.header("date").is_some() && answer.header("x-service-request-id").is_some(), "{}", answer.head);
}

#[tokio::test]
async fn every_answer_of_the_operators_listener_shields_a_browser_and_none_names_the_program() {
    let world = World::start().await.expect("a world starts");
    for path in
        ["/healthz", "/readyz", "/metrics", "/nowhere", "/operator/v1/merchants", "/docs/", "/openapi/merchant.json"]
    {
        let answer = world.access.call("GET", path, None).await.expect("an answer");
        tells_nothing(&answer);
        for (name, value) in SHIELDS {
            assert!(answer.header(name).is_some_and(|said| said.starts_with(value)), "{path} {name}: {}", answer.head);
        }
        assert_eq!(answer.header("strict-transport-security"), None, "that is for TLS");
        let runs_scripts = answer.header("content-security-policy").is_some_and(|said| said.contains("script-src"));
        assert_eq!(runs_scripts, path == "/docs/", "{path}");
    }
    let secret = world.access.call("GET", "/operator/v1/tokens", None).await.expect("an answer");
    assert_eq!(secret.header("cache-control"), Some("no-store"), "{}", secret.head);
}

#[tokio::test]
async fn no_answer_of_the_merchants_listener_names_the_program() {
    let world = World::start().await.expect("a world starts");
    for request in ["GET /v1/time", "GET /nowhere", "POST /v1/time", "GET /v1/pay/events"] {
        let bytes = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        tells_nothing(&once(world.listen(), bytes.as_bytes()).await.expect("an answer"));
    }
}

#[tokio::test]
async fn no_answer_to_a_merchant_is_kept_on_the_way() {
    let world = World::start().await.expect("a world starts");
    let signer = world.access.institution("bank", 0, None).await.expect("an institution");
    let right = world.draft(&signer, "GET", "/v1/pay/events", "");
    let unknown = world.draft(&signer, "GET", "/v1/pay/convert/order?orderId=1", "");
    let wrong = right.clone().with("X-Service-Signature", "x");
    let time = Draft { target: "/v1/time".to_owned(), headers: Vec::new(), ..right.clone() };
    let nowhere = Draft { target: "/nowhere".to_owned(), ..time.clone() };
    for (draft, status) in [(right, 200), (unknown, 404), (wrong, 401), (time, 200), (nowhere, 404)] {
        let answer = world.send(&draft).await.expect("an answer");
        assert_eq!((answer.status, answer.header("cache-control")), (status, Some("no-store")), "{}", draft.target);
    }
}
