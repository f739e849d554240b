//! Receivers that refuse good callbacks for a mistake of their own: `certify` says which.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::hmac;
use countersign_protocol::signing::{Encoding, encode_signature};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

/// Whether what came is the signature that this receiver computes.
type Takes = fn(&str, &str, &[u8], &str) -> bool;

fn hex(secret: &[u8], text: &[u8]) -> String {
    encode_signature(&SigningKey::new(secret).hmac(text), Encoding::Hex)
}

/// The parts with an end behind each.
fn joined(parts: [&[u8]; 3], end: &[u8]) -> Vec<u8> {
    parts.map(|part| [part, end].concat()).concat()
}

/// Whether a callback was stamped so long from now, or so much off that.
fn is_within(timestamp: &str, from_now_ms: i64, most_ms: i64) -> bool {
    let ahead_ms = timestamp.parse::<i64>().expect("a number") - countersign::clock::Clock::System.now().0;
    (ahead_ms - from_now_ms).abs() <= most_ms
}

async fn receive(State(takes): State<Takes>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (timestamp, nonce) = (text("x-service-timestamp"), text("x-service-nonce"));
    if takes(timestamp, nonce, &body, text("x-service-signature")) {
        (StatusCode::OK, callback::processed()).into_response()
    } else {
        (StatusCode::UNAUTHORIZED, callback::failed("signature")).into_response()
    }
}

async fn listens_by(takes: Takes) -> SocketAddr {
    listens(Router::new().route("/callback", post(receive)).with_state(takes)).await
}

/// What is said to have caused it that the good callback is not taken.
async fn named_of(takes: Takes) -> Value {
    let output = certify(listens_by(takes).await, &["--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("prints JSON");
    let good = &report["checks"][0];
    assert_eq!((&good["check"], &good["verdict"]), (&Value::from("good"), &Value::from("fail")), "{report}");
    good["mistake"].clone()
}

/// The same for people.
async fn told_of(takes: Takes) -> String {
    let output = certify(listens_by(takes).await, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_signs_otherwise_is_told_what_it_does() {
    let secret = SECRET.as_bytes();
    assert!(secret.starts_with(b"sk_"));
    let cases: [(&str, Takes); 14] = [
        ("leaves out the LF behind the body", |t, n, b, s| {
            s == hex(
                SECRET.as_bytes(),
                joined([t.as_bytes(), n.as_bytes(), b], b"\n").strip_suffix(b"\n").expect("an end"),
            )
        }),
        ("joins timestamp, nonce and body", |t, n, b, s| {
            s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b""))
        }),
        ("ends each part with CR and LF", |t, n, b, s| {
            s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\r\n"))
        }),
        ("of the body alone", |_, _, b, s| s == hex(SECRET.as_bytes(), b)),
        ("leaves out the nonce", |t, _, b, s| s == hex(SECRET.as_bytes(), &[t.as_bytes(), b"\n", b, b"\n"].concat())),
        ("puts the nonce before the timestamp", |t, n, b, s| {
            s == hex(SECRET.as_bytes(), &joined([n.as_bytes(), t.as_bytes(), b], b"\n"))
        }),
        ("takes the timestamp for seconds", |t, n, b, s| {
            t.len() == 10 && s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\n"))
        }),
        ("wants the signature in Base64", |t, n, b, s| {
            s == encode_signature(&SigningKey::new(SECRET.as_bytes()).sign(t, n, b), Encoding::Base64)
        }),
        ("in capitals", |t, n, b, s| {
            s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\n")).to_uppercase()
        }),
        ("leaves sk_ out of the secret", |t, n, b, s| {
            s == hex(&SECRET.as_bytes()[3..], &joined([t.as_bytes(), n.as_bytes(), b], b"\n"))
        }),
        ("computes an HMAC-SHA256", |t, n, b, s| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
            let tag = hmac::sign(&key, &joined([t.as_bytes(), n.as_bytes(), b], b"\n"));
            s == countersign::chance::hex(tag.as_ref())
        }),
        ("whole or half hours from now", |t, n, b, s| {
            is_within(t, 330 * 60_000, 300_000)
                && s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\n"))
        }),
        ("some minutes from now", |t, n, b, s| {
            is_within(t, -200_000, 30_000)
                && s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\n"))
        }),
        ("its fields by name", |t, n, b, s| {
            let body: Value = serde_json::from_slice(b).expect("JSON");
            s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), body.to_string().as_bytes()], b"\n"))
        }),
    ];
    // Each waits before its second callback: all at once.
    let mut all = JoinSet::new();
    for (mistake, takes) in cases {
        all.spawn(async move { (mistake, named_of(takes).await) });
    }
    let people = told_of(cases[0].1).await;
    let mut named = all.join_all().await;
    named.sort_by_key(|(mistake, _)| cases.iter().position(|(case, _)| case == mistake));
    for (mistake, named) in &named {
        let named = named.as_str().unwrap_or_else(|| panic!("{mistake}: is not named"));
        assert!(named.contains(mistake), "{mistake}: {named}");
    }
    let first = named[0].1.as_str().expect("a text");
    assert!(people.contains(&format!("A likely cause: the receiver {first}.\n")), "{people}");
    assert!(!people.contains(SECRET), "{people}");
}

/// As most libraries of one language write what they have parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_writes_the_body_with_blanks_is_told_so() {
    let named = named_of(|t, n, b, s| {
        let text = String::from_utf8_lossy(b);
        // Of the callback itself; its data is a text.
        let spaced = ["bizId", "bizStatus", "client_id", "clientId", "data"]
            .iter()
            .fold(text.into_owned(), |text, field| text.replace(&format!(",\"{field}\":"), &format!(", \"{field}\":")));
        let spaced = ["bizType", "bizId", "bizStatus", "client_id", "clientId", "data"]
            .iter()
            .fold(spaced, |text, field| text.replace(&format!("\"{field}\":"), &format!("\"{field}\": ")));
        s == hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), spaced.as_bytes()], b"\n"))
    })
    .await;
    assert!(named.as_str().is_some_and(|named| named.contains("with blanks")), "{named}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_takes_what_a_stranger_signs_is_blamed_for_that_alone() {
    let named =
        named_of(|t, n, b, s| s != hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\n"))).await;
    assert!(named.as_str().is_some_and(|named| named.starts_with("does not go by the signature")), "{named}");
}

/// The SDK's receiver once it is awake, behind a proxy that says 502 until then.
async fn woken(wakes: impl Fn(&HeaderMap) -> bool + Clone + Send + Sync + 'static) -> SocketAddr {
    let verifier = example::verifier(CLIENT_ID, Some(SECRET.to_owned()), None).expect("has a secret");
    let is_awake = Arc::new(AtomicBool::new(false));
    let sleepy = axum::middleware::from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
        let wakes = wakes(request.headers());
        let is_awake = is_awake.fetch_or(wakes, Ordering::SeqCst) || wakes;
        async move { if is_awake { next.run(request).await } else { StatusCode::BAD_GATEWAY.into_response() } }
    });
    listens(shown(verifier).await.layer(sleepy)).await
}

/// The server's own pause comes between the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_needs_some_seconds_to_wake_is_advised_and_checked() {
    const TO_WAKE: Duration = Duration::from_millis(4_500);
    let first = Arc::new(OnceLock::new());
    let (found, code) = found_at(woken(move |_| first.get_or_init(Instant::now).elapsed() >= TO_WAKE).await).await;
    assert_eq!((found, code), (vec![pair("good", "advice")], Some(0)));
}

/// It wakes while mistakes are tried, and takes one that is stamped some minutes from now, as it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_takes_good_ones_by_now_is_told_of_no_mistake() {
    let is_stamped_otherwise = |headers: &HeaderMap| {
        let stamp = headers.get("x-service-timestamp").and_then(|value| value.to_str().ok());
        stamp.is_some_and(|stamp| !is_within(stamp, 0, 30_000))
    };
    let output = certify(woken(is_stamped_otherwise).await, &["--json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).expect("prints JSON");
    let (good, rest) = report["checks"].as_array().expect("a list").split_first().expect("not empty");
    assert_eq!((&good["verdict"], good.get("mistake")), (&Value::from("advice"), None), "{good}");
    let came = good["came"].as_str().expect("a text");
    assert!(came.starts_with("the first not taken: status 502; the second not taken: status 502; "), "{came}");
    assert!(came.contains("; a later one taken: SUCCESS after "), "{came}");
    assert!(rest.len() == 26 && rest.iter().all(|check| check["verdict"] == "pass"), "{report}");
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_receiver_that_takes_nothing_no_mistake_is_made_up() {
    let (named, people) = tokio::join!(named_of(|_, _, _, _| false), told_of(|_, _, _, _| false));
    assert_eq!(named, Value::Null);
    assert!(!people.contains("A likely cause"), "{people}");
}
