//! Receivers that refuse good callbacks for a mistake of their own: `certify` says which.

use aws_lc_rs::hmac;
use countersign_protocol::signing::{Encoding, encode_signature};

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

/// What is said of the good callback, which is not taken.
async fn said_of(takes: Takes) -> (String, Value) {
    let address = listens(Router::new().route("/callback", post(receive)).with_state(takes)).await;
    let output = certify(address, &["--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("prints JSON");
    let good = &report["checks"][0];
    assert_eq!((&good["check"], &good["verdict"]), (&Value::from("good"), &Value::from("fail")), "{report}");
    let people = certify(address, &[]).await;
    (String::from_utf8_lossy(&people.stdout).into_owned(), good["mistake"].clone())
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
    for (mistake, takes) in cases {
        let (people, named) = said_of(takes).await;
        let named = named.as_str().unwrap_or_else(|| panic!("{mistake}: is not named"));
        assert!(named.contains(mistake), "{mistake}: {named}");
        assert!(people.contains(&format!("A likely cause: the receiver {named}.\n")), "{people}");
        assert!(!people.contains(SECRET), "{people}");
    }
}

/// As most libraries of one language write what they have parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_writes_the_body_with_blanks_is_told_so() {
    let (_, named) = said_of(|t, n, b, s| {
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
    let (_, named) =
        said_of(|t, n, b, s| s != hex(SECRET.as_bytes(), &joined([t.as_bytes(), n.as_bytes(), b], b"\n"))).await;
    assert!(named.as_str().is_some_and(|named| named.starts_with("does not go by the signature")), "{named}");
}

/// It is not awake yet when the first one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_refuses_the_first_alone_is_advised_and_checked() {
    let verifier = example::verifier(CLIENT_ID, Some(SECRET.to_owned()), None).expect("has a secret");
    let is_awake = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let sleepy = axum::middleware::from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
        let was_awake = is_awake.swap(true, std::sync::atomic::Ordering::SeqCst);
        async move { if was_awake { next.run(request).await } else { StatusCode::BAD_GATEWAY.into_response() } }
    });
    let (found, code) = found(shown(verifier).await.layer(sleepy)).await;
    assert_eq!((found, code), (vec![pair("good", "advice")], Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_receiver_that_takes_nothing_no_mistake_is_made_up() {
    let (people, named) = said_of(|_, _, _, _| false).await;
    assert_eq!(named, Value::Null);
    assert!(!people.contains("A likely cause"), "{people}");
}
