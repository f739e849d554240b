//! A server on a free loopback port that notes what it is asked and answers what it was told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::envelope;
use countersign_sdk::protocol::headers::Prefixes;
use countersign_sdk::protocol::signing::{SigningKey, decode_signature};
use countersign_sdk::{Client, ClientBuilder};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub const SECRET: &str = "demo-secret-not-for-production-0123456789ABCDEFabcdef";
pub const CLIENT_ID: &str = "app_01";
pub const NOW_MS: i64 = 1_767_225_600_000;

/// What it was asked.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.get_all(name).iter();
        let first = all.next().map(|value| value.to_str().expect("ASCII"));
        assert!(all.next().is_none(), "{name} is given once");
        first
    }

    /// Whether the strict reader of the protocol takes its headers and its signature is right.
    pub fn is_signed_with(&self, secret: &str, prefix: &str) -> bool {
        let prefixes = Prefixes::new(&[prefix.to_owned()]).expect("a good prefix");
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let signed = prefixes.parse(headers).expect("well-formed headers");
        let signature = decode_signature(signed.signature).expect("a signature's form");
        SigningKey::new(secret.as_bytes()).verify(signed.timestamp, signed.nonce, &self.body, &signature)
    }
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct Canned {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

pub fn success(data: &Value) -> Canned {
    Canned { status: 200, headers: Vec::new(), body: envelope::success(data).expect("JSON") }
}

pub fn failure(code: Code, message: &str) -> Canned {
    Canned { status: code.http_status(), headers: Vec::new(), body: envelope::failure(code, message) }
}

impl Canned {
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

struct Script {
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<VecDeque<Canned>>,
    /// Whether it answers at all.
    answering: watch::Sender<bool>,
}

/// The server. It ends with the test's runtime.
pub struct Stub {
    pub address: SocketAddr,
    script: Arc<Script>,
}

impl Stub {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let script =
            Arc::new(Script { seen: Mutex::default(), answers: Mutex::default(), answering: watch::Sender::new(true) });
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, script }
    }

    /// Answers the next requests so, one after the other.
    pub fn answers(&self, answers: impl IntoIterator<Item = Canned>) {
        self.script.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
    }

    /// Whether it answers; what is asked meanwhile is answered as soon as it does again.
    pub fn answer_at_all(&self, answering: bool) {
        self.script.answering.send_replace(answering);
    }

    /// What it was asked since the last time this was called.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.script.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A client of this server, with a clock that stands and chance that counts.
    pub fn client(&self) -> ClientBuilder {
        let drawn = AtomicU64::new(0);
        Client::builder(format!("http://{}", self.address), CLIENT_ID, SECRET)
            .clock(|| NOW_MS)
            .chance(move || u128::from(drawn.fetch_add(1, Ordering::Relaxed)) + 0xabc0)
    }
}

async fn answer(
    State(script): State<Arc<Script>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    script.seen.lock().unwrap_or_else(PoisonError::into_inner).push(Seen { method, uri, headers, body });
    script.answering.subscribe().wait_for(|answering| *answering).await.expect("the script stays");
    let canned = script.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let canned = canned.unwrap_or_else(|| failure(Code::InternalError, "the test told no answer"));
    let mut response = Response::builder().status(canned.status);
    for (name, value) in canned.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(canned.body)).expect("good headers")
}
