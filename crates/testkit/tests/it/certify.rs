//! `countersign certify` against receivers that leave something out, and against the one that the SDK shows.

use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::post;
use countersign_protocol::code::Code;
use countersign_protocol::envelope;
use countersign_protocol::signing::SigningKey;
use countersign_sdk::{CallbackVerifier, Client, callback};
use countersign_testkit::process::bare;
use countersign_testkit::refusing::Refusing;
use serde_json::Value;
use tokio::net::TcpListener;

mod bounds;
mod busy;
#[expect(dead_code, reason = "the example's own main reads the command line")]
#[path = "../../../sdk/examples/receiver.rs"]
mod example;
mod faults;
mod heads;
mod mistakes;
mod silence;
mod subjects;

const CLIENT_ID: &str = "app_of_the_receiver";
const SECRET: &str = "sk_of_the_receiver_that_is_certified";

fn verifier() -> CallbackVerifier {
    CallbackVerifier::new(CLIENT_ID, SECRET).expect("a secret")
}

/// The receiver that the SDK shows, beside a service that knows no order of those that certify tells of.
async fn shown(verifier: CallbackVerifier) -> Router {
    example::routes(receiver(verifier).await)
}

async fn receiver(verifier: CallbackVerifier) -> example::Receiver {
    let not_found = || async { (StatusCode::NOT_FOUND, envelope::failure(Code::OrderNotFound, "there is none")) };
    let service = listens(Router::new().fallback(not_found)).await;
    let client = Client::builder(format!("http://{service}"), CLIENT_ID, SECRET).build().expect("a client");
    example::Receiver::new(verifier, client)
}

async fn listens(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("has one");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

async fn certify(address: SocketAddr, arguments: &[&str]) -> Output {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let run = move || {
        bare()
            .args(["certify", &format!("http://{address}/callback")])
            .args(arguments)
            .env("COUNTERSIGN_CLIENT_ID", CLIENT_ID)
            .env("COUNTERSIGN_SECRET", SECRET)
            .output()
            .expect("runs")
    };
    tokio::task::spawn_blocking(run).await.expect("ends")
}

/// The checks that did not pass, and the exit code.
async fn found(routes: Router) -> (Vec<(String, String)>, Option<i32>) {
    found_at(listens(routes).await).await
}

async fn found_at(address: SocketAddr) -> (Vec<(String, String)>, Option<i32>) {
    found_with(address, &["--json"]).await
}

async fn found_with(address: SocketAddr, arguments: &[&str]) -> (Vec<(String, String)>, Option<i32>) {
    let output = certify(address, arguments).await;
    let report: Value = serde_json::from_slice(&output.stdout).expect("prints JSON");
    let checks = report["checks"].as_array().expect("a list");
    assert!(checks.len() > 15, "{report}");
    let text = |check: &Value, name: &str| check[name].as_str().expect("a text").to_owned();
    let found = checks
        .iter()
        .filter(|check| check["verdict"] != "pass")
        .map(|check| (text(check, "check"), text(check, "verdict")))
        .collect();
    (found, output.status.code())
}

fn pair(check: &str, verdict: &str) -> (String, String) {
    (check.to_owned(), verdict.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_that_the_sdk_shows_passes() {
    // A variable of the old secret that is set to nothing is no secret.
    let verifier = example::verifier(CLIENT_ID, Some(SECRET.to_owned()), Some(String::new())).expect("has a secret");
    let address = listens(shown(verifier).await).await;
    let output = certify(address, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("27 of 27 checks passed.\n"), "{said}");
    assert_eq!(output.status.code(), Some(0));
    assert!(!said.contains(SECRET) && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_receiver_that_the_sdk_shows_does_not_start_without_a_secret() {
    for nothing in [None, Some(""), Some(" "), Some("\n")] {
        let refused =
            example::verifier(CLIENT_ID, nothing.map(str::to_owned), Some(SECRET.to_owned())).expect_err("no secret");
        assert_eq!(refused.to_string(), "COUNTERSIGN_SECRET is not set", "{nothing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_skips_the_timestamp_is_named() {
    // As old as anything can be.
    let verifier = verifier().tolerance(Duration::MAX);
    let (found, code) = found(shown(verifier).await).await;
    assert_eq!(found, [pair("stale", "fail"), pair("future", "fail")]);
    assert_eq!(code, Some(1));
    // Half an hour is a bound, if a wide one.
    let verifier = self::verifier().tolerance(Duration::from_secs(1_800));
    let (found, code) = self::found(shown(verifier).await).await;
    assert_eq!(found, [pair("stale", "advice"), pair("future", "advice")]);
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_answers_with_a_page_is_named() {
    let routes = Router::new().route("/callback", post(|| async { Html("<html><body>Thank you</body></html>") }));
    let address = listens(routes).await;
    let output = certify(address, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find(|line| line.trim_start().starts_with("FAIL  good")).expect("is named");
    assert!(line.contains("status 200, and an HTML page instead of a JSON object"), "{said}");
    assert!(said.ends_with("0 of 27 checks passed, 1 failed, 26 could not be told.\n"), "{said}");
    let sentence = format!("countersign: the receiver at http://{address}/callback does not pass: good\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), sentence);
    assert_eq!(output.status.code(), Some(1));
}

/// What a careless receiver does between the bytes that came and the check of their signature.
type Treat = fn(&Bytes) -> Vec<u8>;

struct Careless {
    verifier: CallbackVerifier,
    treat: Treat,
}

async fn receive(State(receiver): State<Arc<Careless>>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match receiver.verifier.verify_now(header, &(receiver.treat)(&body)) {
        Ok(_) => (StatusCode::OK, callback::processed()).into_response(),
        Err(refused) => (StatusCode::UNAUTHORIZED, callback::failed(&refused.to_string())).into_response(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_writes_the_body_anew_is_named() {
    let treat = |body: &Bytes| {
        // Fields in their order, as most libraries do.
        let parsed: Result<countersign_protocol::callback::CallbackBody, _> = serde_json::from_slice(body);
        parsed.map_or_else(|_| body.to_vec(), |parsed| parsed.to_bytes())
    };
    let state = Arc::new(Careless { verifier: verifier(), treat });
    let (found, code) = found(Router::new().route("/callback", post(receive)).with_state(state)).await;
    assert_eq!(found, [pair("respaced-body", "fail"), pair("raw-bytes", "fail")]);
    assert_eq!(code, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_believes_everybody_is_named() {
    let routes = Router::new().route("/callback", post(|_: Bytes| async { callback::processed() }));
    let (found, code) = found(routes).await;
    let failed: Vec<&str> = found.iter().map(|(check, _)| check.as_str()).collect();
    let forged = [
        "no-signature",
        "wrong-secret",
        "unset-secret",
        "part-signature",
        "short-signature",
        "wrong-next",
        "tampered-body",
        "respaced-body",
        "tampered-timestamp",
        "stale",
        "future",
        "replayed",
        "replayed-at-once",
        "reflected",
    ];
    assert_eq!(failed, forged);
    assert!(found.iter().all(|(_, verdict)| verdict == "fail"));
    assert_eq!(code, Some(1));
}

/// Verifies by hand: the signature alone, nothing remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_remembers_nothing_is_named() {
    async fn receive(headers: HeaderMap, body: Bytes) -> Response {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (timestamp, nonce) = (text("x-service-timestamp"), text("x-service-nonce"));
        let verdict = countersign_protocol::callback::verify(
            &SigningKey::new(SECRET.as_bytes()),
            timestamp,
            nonce,
            &body,
            text("x-service-signature"),
            countersign_testkit::wire::wall_ms(),
            300_000,
        );
        match verdict {
            Ok(()) => (StatusCode::OK, callback::processed()).into_response(),
            Err(refused) => (StatusCode::UNAUTHORIZED, callback::failed(&refused.to_string())).into_response(),
        }
    }
    let (found, code) = found(Router::new().route("/callback", post(receive))).await;
    assert_eq!(found, [pair("rotation", "advice"), pair("replayed", "fail"), pair("replayed-at-once", "fail")]);
    assert_eq!(code, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_not_there_is_one_sentence() {
    let port = Refusing::take().expect("a free port");
    let address = port.address().expect("has one");
    let output = certify(address, &[]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("countersign: the receiver gave no answer to a good callback, and the other 26 checks"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    // A program gets what it reads all the same.
    let (found, code) = found_at(address).await;
    assert_eq!((&found[0], found.len(), code), (&pair("good", "untold"), 27, Some(1)));
    assert!(found[1..].iter().all(|(_, verdict)| verdict == "untold"), "{found:?}");
}

/// It takes whatever is signed, some times, and then nobody listens there any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_goes_away_passes_nothing_that_did_not_reach_it() {
    const ANSWERS: usize = 3;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("has one");
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for answered in 0..ANSWERS {
            let (mut stream, _) = listener.accept().await.expect("comes");
            let mut request = vec![0; 4_096];
            let _ = stream.read(&mut request).await;
            let (status, body) = if answered == 0 { ("200 OK", r#"{"returnCode":"SUCCESS"}"#) } else { ("401 No", "") };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        drop(listener);
        let _refuses = Refusing::after(address).expect("is free");
        std::future::pending::<()>().await;
    });
    let output = certify(address, &["--json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).expect("prints JSON");
    let verdict = |name: &str| {
        let checks = report["checks"].as_array().expect("a list");
        checks.iter().find(|check| check["check"] == name).expect("is there")["verdict"].clone()
    };
    assert_eq!(
        (verdict("good"), verdict("no-signature"), verdict("wrong-secret")),
        ("pass".into(), "pass".into(), "pass".into())
    );
    for unreached in [
        "unset-secret",
        "part-signature",
        "stale",
        "future",
        "tampered-body",
        "replayed",
        "replayed-at-once",
        "rotation",
        // What it must take it has not refused either.
        "raw-bytes",
        "lower-case",
        "rotation-begins",
        "duplicate",
        "out-of-order",
        "first-missing",
        "slow",
        "large",
        "huge",
    ] {
        assert_eq!(verdict(unreached), "untold", "{unreached}: {report}");
    }
    assert_eq!((&report["certified"], output.status.code()), (&Value::from(false), Some(1)));
}
