//! A merchant's receiver of callbacks: verifies each one, processes each event once, acknowledges.
//!
//! ```text
//! COUNTERSIGN_SECRET=... cargo run -p countersign-sdk --example receiver -- 127.0.0.1:9000
//! ```
//!
//! While a secret is being rotated, set COUNTERSIGN_SECRET_OLD to the one that is going out. A variable that is set to nothing counts as
//! not set: an empty secret is one that everybody knows.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use countersign_sdk::protocol::replay::WindowRefused;
use countersign_sdk::{Callback, CallbackRefused, CallbackVerifier, callback};

struct Receiver {
    verifier: CallbackVerifier,
    /// Events that were processed. A real receiver keeps them in its database, in the transaction that processes the event:
    /// the server sends an event again until it hears SUCCESS, also after this program was started anew. They recognise the server's
    /// repeats only, since an event id is not signed: where there are several processes the database keeps each `event.nonce`, too,
    /// and refuses the second of it; and what is done for an order goes by what the body says.
    processed: Mutex<HashSet<String>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).context("argument: the address to listen on, such as 127.0.0.1:9000")?;
    let verifier = verifier(environment("COUNTERSIGN_SECRET"), environment("COUNTERSIGN_SECRET_OLD"))?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("waiting for callbacks at http://{}/callback", listener.local_addr()?);
    axum::serve(listener, routes(verifier)).await?;
    Ok(())
}

/// Verifies with the secret, and while it is rotated with the old one, too.
pub(crate) fn verifier(secret: Option<String>, old: Option<String>) -> anyhow::Result<CallbackVerifier> {
    let is_set = |value: &String| !value.trim().is_empty();
    let verifier = CallbackVerifier::new(secret.filter(is_set).context("COUNTERSIGN_SECRET is not set")?)?;
    Ok(match old.filter(is_set) {
        Some(old) => verifier.also(old)?,
        None => verifier,
    })
}

pub(crate) fn routes(verifier: CallbackVerifier) -> Router {
    let receiver = Arc::new(Receiver { verifier, processed: Mutex::default() });
    Router::new().route("/callback", post(receive)).with_state(receiver)
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    // The raw bytes are verified, before anything reads them. axum takes 2 MB at most and answers 413 beyond: anybody can send a body, and
    // whoever reads without a bound lets them fill the memory.
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match receiver.verifier.verify_now(header, &body) {
        Ok(event) => (StatusCode::OK, process(&receiver, &event)),
        Err(refused) => {
            eprintln!("refused: {refused}");
            (status_of(&refused), callback::failed(&refused.to_string()))
        }
    }
}

fn status_of(refused: &CallbackRefused) -> StatusCode {
    match refused {
        // A genuine one, and the fault is ours: more have come than can be remembered. On 503 the server slows down and sends it
        // again; on 401 it would send it again, and go on as fast.
        CallbackRefused::NotNew(WindowRefused::Full) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNAUTHORIZED,
    }
}

/// The answer to a genuine callback.
fn process(receiver: &Receiver, event: &Callback) -> Vec<u8> {
    let mut processed = receiver.processed.lock().unwrap_or_else(PoisonError::into_inner);
    if processed.insert(event.event_id.clone()) {
        println!(
            "event {}: {} {} is {}: {}",
            event.event_id, event.biz_type, event.biz_id, event.biz_status, event.data
        );
    } else {
        println!("event {} again (attempt {}): it was processed before", event.event_id, event.attempt);
    }
    callback::processed()
}

#[expect(clippy::disallowed_methods, reason = "a script is configured by its environment: a secret is no argument")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
