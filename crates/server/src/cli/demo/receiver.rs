//! A merchant's receiver: a small web server that verifies each callback with the SDK before it believes a word of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use countersign_sdk::CallbackVerifier;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};

const PATIENCE: Duration = Duration::from_secs(20);

/// A callback as it came in, and what the receiver made of it.
#[derive(Clone, Debug)]
pub struct Received {
    /// `Timestamp` header.
    pub timestamp: String,
    /// `Nonce` header.
    pub nonce: String,
    /// `Signature` header.
    pub signature: String,
    /// `Event-Id` header.
    pub event_id: String,
    /// `Attempt` header.
    pub attempt: String,
    /// `Sequence` header.
    pub sequence: String,
    /// The raw body.
    pub body: String,
    /// What the SDK's verifier said: nothing, or why not.
    pub refused: Option<String>,
    /// The status of the receiver's answer.
    pub answered: u16,
    /// The body of the receiver's answer.
    pub answer: &'static str,
}

#[derive(Debug)]
struct Shared {
    verifier: Mutex<Option<CallbackVerifier>>,
    failures_left: AtomicU32,
    told: mpsc::UnboundedSender<Received>,
}

/// The receiver, running.
#[derive(Debug)]
pub struct Receiver {
    /// Where callbacks are to be sent.
    pub url: String,
    shared: Arc<Shared>,
    heard: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    /// Starts on a free loopback port. It refuses everything until it has a secret to verify with.
    pub async fn start() -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("no free port for the receiver")?;
        let url = format!("http://{}/callbacks", listener.local_addr()?);
        let (told, heard) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { verifier: Mutex::new(None), failures_left: AtomicU32::new(0), told });
        let router = Router::new().route("/callbacks", post(take)).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, shared, heard })
    }

    /// The application whose callbacks are taken from now on, and its secret.
    pub async fn trust(&self, client_id: &str, secret: &str) -> anyhow::Result<()> {
        *self.shared.verifier.lock().await = Some(CallbackVerifier::new(client_id, secret)?);
        Ok(())
    }

    /// Answers the next `times` callbacks with HTTP 500, as a receiver in trouble would.
    pub fn fail_next(&self, times: u32) {
        self.shared.failures_left.store(times, Ordering::SeqCst);
    }

    /// The next callback.
    pub async fn next(&mut self) -> anyhow::Result<Received> {
        let received = tokio::time::timeout(PATIENCE, self.heard.recv()).await;
        received.map_err(|_| anyhow!("no callback came within {} s", PATIENCE.as_secs()))?.context("the receiver ended")
    }
}

/// One callback: verify the raw bytes first, then act, then acknowledge.
async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let verdict = match shared.verifier.lock().await.as_ref() {
        Some(verifier) => verifier
            .verify_now(|name| headers.get(name)?.to_str().ok(), &body)
            .map(|_| ())
            .map_err(|refused| refused.to_string()),
        None => Err("the receiver has no secret yet".to_owned()),
    };
    let in_trouble =
        shared.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    let (status, answer) = match (&verdict, in_trouble) {
        (Err(_), _) => (StatusCode::UNAUTHORIZED, r#"{"returnCode":"FAIL","returnMessage":"signature refused"}"#),
        (Ok(()), true) => {
            (StatusCode::INTERNAL_SERVER_ERROR, r#"{"returnCode":"FAIL","returnMessage":"database is down"}"#)
        }
        (Ok(()), false) => (StatusCode::OK, r#"{"returnCode":"SUCCESS","returnMessage":""}"#),
    };
    let received = Received {
        timestamp: text("x-service-timestamp"),
        nonce: text("x-service-nonce"),
        signature: text("x-service-signature"),
        event_id: text("x-service-event-id"),
        attempt: text("x-service-attempt"),
        sequence: text("x-service-sequence"),
        body: String::from_utf8_lossy(&body).into_owned(),
        refused: verdict.err(),
        answered: status.as_u16(),
        answer,
    };
    // Nobody listens any more once the walk is over.
    let _ = shared.told.send(received);
    (status, answer)
}
