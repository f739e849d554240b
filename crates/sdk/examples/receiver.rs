//! A merchant's receiver of callbacks: verifies each one; of a payment order queries, and delivers once what was paid as it was asked for; acknowledges.
//!
//! It delivers nothing for a callback alone, and neither may you: only the `PAID` of the query counts, with the right amount.
//!
//! ```text
//! COUNTERSIGN_CLIENT_ID=app_... COUNTERSIGN_SECRET=... \
//!   cargo run -p countersign-sdk --example receiver -- 127.0.0.1:9000 http://127.0.0.1:8080
//! ```
//!
//! While a secret is being rotated, set COUNTERSIGN_SECRET_OLD to the one that is going out. A variable that is set to nothing counts as
//! not set: an empty secret is one that everybody knows.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use countersign_sdk::event_data::{PAYMENT_ORDER, PAYMENT_ORDER_FAMILY, TEST};
use countersign_sdk::protocol::endpoint::order_query;
use countersign_sdk::{Callback, CallbackVerifier, Client, Error, Exact, callback};

/// The server waits 15 seconds for the answer to a callback: what a query needs must end before.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Receiver {
    verifier: CallbackVerifier,
    client: Client,
    /// The orders that were delivered, by `prepayId`. A real receiver has a column in its table of sales, and marks the sale in the transaction that delivers,
    /// only where it is not marked: this program forgets when it ends.
    delivered: Mutex<HashSet<String>>,
    /// What was taken of other kinds: bizType, bizId and bizStatus, which are signed, and the data. The event id is not signed, so it says nothing of what
    /// was done before. A real receiver keeps them in a table where the three are unique together, and writes them in the transaction that does what the
    /// event is about. Where there are several processes the database keeps each `event.nonce`, too, and refuses the second of it.
    taken: Mutex<HashMap<[String; 3], String>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, base_url] = args.as_slice() else {
        anyhow::bail!("arguments: the address to listen on, such as 127.0.0.1:9000, and BASE_URL");
    };
    let client_id = environment("COUNTERSIGN_CLIENT_ID").context("COUNTERSIGN_CLIENT_ID is not set")?;
    let (secret, old) = (environment("COUNTERSIGN_SECRET"), environment("COUNTERSIGN_SECRET_OLD"));
    let verifier = verifier(&client_id, secret.clone(), old)?;
    let client = Client::builder(base_url, client_id, secret.unwrap_or_default()).timeout(QUERY_TIMEOUT).build()?;
    // Both go by the server's clock, or a wrong one here would refuse every callback.
    let ahead_ms = client.learn_clock().await.context("the server's time is not known")?;
    println!("the server's clock is {ahead_ms} ms ahead of this machine's; more than some seconds deserve an alarm");
    // What was captured before this start is refused: this process does not know what came then.
    let verifier = verifier.refuse_sent_before(client.server_now_ms());
    let learned = client.clone();
    let receiver = Receiver::new(verifier.clock(move || learned.server_now_ms()), client);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("waiting for callbacks at http://{}/callback", listener.local_addr()?);
    axum::serve(listener, routes(receiver)).await?;
    Ok(())
}

/// Verifies with the secret, and while it is rotated with the old one, too.
pub(crate) fn verifier(
    client_id: &str,
    secret: Option<String>,
    old: Option<String>,
) -> anyhow::Result<CallbackVerifier> {
    let is_set = |value: &String| !value.trim().is_empty();
    let secret = secret.filter(is_set).context("COUNTERSIGN_SECRET is not set")?;
    let verifier = CallbackVerifier::new(client_id, &secret)?;
    if let Some(old) = old.filter(is_set) {
        verifier.set_secrets(client_id, [secret, old])?;
    }
    Ok(verifier)
}

pub(crate) fn routes(receiver: Receiver) -> Router {
    Router::new().route("/callback", post(receive)).with_state(Arc::new(receiver))
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> (StatusCode, Vec<u8>) {
    // The raw bytes are verified, before anything reads them. axum takes 2 MB at most and answers 413 beyond: anybody can send a body, and
    // whoever reads without a bound lets them fill the memory.
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let event = match receiver.verifier.verify_now(header, &body) {
        Ok(event) => event,
        Err(refused) => {
            eprintln!("refused: {refused}");
            // 503 where more have come than can be remembered, and the server slows down; else 401.
            let status = StatusCode::from_u16(refused.http_status()).unwrap_or(StatusCode::UNAUTHORIZED);
            return (status, callback::failed(&refused.to_string()));
        }
    };
    let Callback { event_id, attempt, biz_type, biz_id, biz_status, .. } = &event;
    match receiver.process(&event).await {
        Ok(done) => {
            println!("{biz_type} {biz_id} says {biz_status} ({event_id}, attempt {attempt}): {done}");
            (StatusCode::OK, callback::processed())
        }
        // FAIL: the server sends it again later. What failed is told here, and not to whoever sends.
        Err(error) => {
            eprintln!(
                "{biz_type} {biz_id} says {biz_status} ({event_id}, attempt {attempt}): to be sent again: {error}"
            );
            (StatusCode::OK, callback::failed("not now"))
        }
    }
}

impl Receiver {
    pub(crate) fn new(verifier: CallbackVerifier, client: Client) -> Self {
        Self { verifier, client, delivered: Mutex::default(), taken: Mutex::default() }
    }

    /// Does what a genuine callback is about, and says what. Genuine means that the platform has sent it, not that an order is paid. An error: it could not
    /// be done now.
    pub(crate) async fn process(&self, event: &Callback) -> Result<String, Error> {
        match event.biz_type.as_str() {
            PAYMENT_ORDER | PAYMENT_ORDER_FAMILY => self.settle(&event.biz_id).await,
            // Nothing has happened: an operator looks whether this program takes callbacks.
            TEST => Ok("a test".to_owned()),
            // Of the platform's own, such as TRANSFER_ADDRESS: `event.data_as` reads it into a type of yours.
            _ => Ok(self.take(event)),
        }
    }

    /// Queries the order, whatever the callback claims and however often it comes, and delivers it once.
    async fn settle(&self, prepay_id: &str) -> Result<String, Error> {
        let found = match self.client.order_query(&order_query::Request::prepay_id(prepay_id)).await {
            Ok(found) => found,
            Err(error) if error.is_temporary() => return Err(error),
            // To have it sent again would not help: there is no such order, or none of ours.
            Err(error) => return Ok(format!("nothing is delivered: {error}")),
        };
        let order_query::Response { order, actual_amount, .. } = &found;
        let paid = actual_amount.as_deref().unwrap_or("an unknown amount");
        // A real receiver finds its own record of the sale by `order.merchant_trade_no`, and compares with what that says.
        let is_right =
            Exact::parse(&order.order_amount).is_ok_and(|asked| found.is_paid_exactly(&order.currency, asked.0));
        let what = format!("{}, {paid} of {} {}", order.status, order.order_amount, order.currency);
        if !is_right {
            return Ok(format!("{what}: nothing is delivered"));
        }
        let is_first = self.delivered.lock().unwrap_or_else(PoisonError::into_inner).insert(order.prepay_id.clone());
        Ok(if is_first {
            format!("{what}: DELIVER {}", order.merchant_trade_no)
        } else {
            format!("{what}: delivered before")
        })
    }

    /// Takes an event of another kind once.
    fn take(&self, event: &Callback) -> String {
        let said = [event.biz_type.clone(), event.biz_id.clone(), event.biz_status.clone()];
        match self.taken.lock().unwrap_or_else(PoisonError::into_inner).entry(said) {
            Entry::Vacant(free) => {
                free.insert(event.data.clone());
                format!("taken: {}", event.data)
            }
            Entry::Occupied(known) if *known.get() == event.data => "taken before".to_owned(),
            Entry::Occupied(known) => {
                format!("taken before with other data, a person has to look: {} and before {}", event.data, known.get())
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a script is configured by its environment: a secret is no argument")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
