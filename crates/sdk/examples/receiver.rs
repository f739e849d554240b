//! A merchant's receiver of callbacks: verifies each one, takes once what it says, acknowledges.
//!
//! It delivers nothing, and neither may you for a callback alone. It prints what each one claims: query the order (`order_query`, as the example
//! `till` does), since only the `PAID` of that answer counts, and compare the amounts there.
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
use countersign_sdk::{Callback, CallbackVerifier, EventData, PaymentOrderData, callback};

pub(crate) struct Receiver {
    verifier: CallbackVerifier,
    /// What was processed: bizType, bizId and bizStatus, which are signed. The event id is not, so it says nothing of what was done before. A real
    /// receiver keeps them in its database, in a table where the three together are unique, and writes them in the transaction that
    /// does what the event is about: the server sends an event again until it hears SUCCESS, also after this program was started anew.
    /// Where there are several processes the database keeps each `event.nonce`, too, and refuses the second of it.
    ///
    /// Of a payment order this is too early for a receiver that delivers. It queries first, and keeps the three of a `SUCCESS` only once the query
    /// says `PAID`: an event that the platform emitted by hand says the same three, and would take the effect of the real one, which comes later.
    processed: Mutex<HashSet<[String; 3]>>,
}

impl Receiver {
    pub(crate) fn new(verifier: CallbackVerifier) -> Self {
        Self { verifier, processed: Mutex::default() }
    }

    /// Whether what the event says comes for the first time. From then on it does not.
    pub(crate) fn is_first(&self, event: &Callback) -> bool {
        let said = [event.biz_type.clone(), event.biz_id.clone(), event.biz_status.clone()];
        self.processed.lock().unwrap_or_else(PoisonError::into_inner).insert(said)
    }
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
    Router::new().route("/callback", post(receive)).with_state(Arc::new(Receiver::new(verifier)))
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    // The raw bytes are verified, before anything reads them. axum takes 2 MB at most and answers 413 beyond: anybody can send a body, and
    // whoever reads without a bound lets them fill the memory.
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match receiver.verifier.verify_now(header, &body) {
        Ok(event) => (StatusCode::OK, process(&receiver, &event)),
        Err(refused) => {
            eprintln!("refused: {refused}");
            // 503 where more have come than can be remembered, and the server slows down; else 401.
            let status = StatusCode::from_u16(refused.http_status()).unwrap_or(StatusCode::UNAUTHORIZED);
            (status, callback::failed(&refused.to_string()))
        }
    }
}

/// The answer to a genuine callback.
fn process(receiver: &Receiver, event: &Callback) -> Vec<u8> {
    let Callback { event_id, attempt, biz_type, biz_id, biz_status, .. } = event;
    if receiver.is_first(event) {
        println!("{biz_type} {biz_id} says {biz_status}: {} ({event_id})", told(event));
    } else {
        println!("{biz_type} {biz_id} says {biz_status}, again ({event_id}, attempt {attempt}): it was taken before");
    }
    callback::processed()
}

/// What the event tells beyond that. Genuine means that the platform has sent it, not that the order is paid.
fn told(event: &Callback) -> String {
    match event.event_data() {
        Ok(EventData::PaymentOrder(order)) => {
            let paid = order.actual_amount.map_or_else(|| "nothing".to_owned(), |amount| amount.to_string());
            let PaymentOrderData { merchant_trade_no, order_amount, currency, .. } = order;
            format!(
                "it claims that {paid} of {order_amount} {currency} was paid for {merchant_trade_no}; query the order: only its PAID counts"
            )
        }
        // Nothing has happened: an operator looks whether this program takes callbacks.
        Ok(EventData::Test) => "a test".to_owned(),
        // Of the platform's own, such as TRANSFER_ADDRESS: `event.data_as` reads it into a type of yours.
        Ok(_) => event.data.clone(),
        // The platform has emitted it by hand, with data of its own: a real receiver asks for the order. To answer FAIL would only bring
        // the same bytes again.
        Err(error) => format!("{} ({error})", event.data),
    }
}

#[expect(clippy::disallowed_methods, reason = "a script is configured by its environment: a secret is no argument")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
