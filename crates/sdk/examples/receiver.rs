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
//!
//! An institution's application gets the callbacks of the orders that it made on behalf of a sub-account, and must query them on its behalf: set
//! COUNTERSIGN_ON_BEHALF_OF to the sub-account. This program speaks for one; a real institution takes it from its own record of the sale.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use countersign_sdk::event_data::{PAYMENT_ORDER, PAYMENT_ORDER_FAMILY, TEST};
use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::order_query;
use countersign_sdk::{Callback, CallbackVerifier, Client, Exact, callback};
use tokio::time::{sleep, timeout};

/// How long one request of a query may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The server waits 15 seconds for the answer to a callback, and a query may be three requests: where the timestamp is refused, also one for the
/// server's time, and a repeat.
const QUERY_TIMEOUT: Duration = Duration::from_secs(12);
/// A clock that is set right, or wrong, while this runs is noticed as soon.
const CLOCK_EVERY: Duration = Duration::from_secs(60);
/// No callback comes near it.
const BODY_BYTES_MAX: usize = 1024 * 1024;

pub(crate) struct Receiver {
    verifier: CallbackVerifier,
    client: Client,
    pub(crate) query_timeout: Duration,
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
    let client = Client::builder(base_url, client_id, secret.unwrap_or_default()).timeout(REQUEST_TIMEOUT);
    let sub_account = environment("COUNTERSIGN_ON_BEHALF_OF").filter(|id| !id.trim().is_empty());
    let client = match sub_account {
        Some(id) => client.on_behalf_of(id).build()?,
        None => client.build()?,
    };
    // Both go by the server's clock, or a wrong one here would refuse every callback.
    let ahead_ms = client.learn_clock().await.context("the server's time is not known")?;
    println!("the server's clock is {ahead_ms} ms ahead of this machine's; more than some seconds deserve an alarm");
    // What was captured before this start is refused: this process does not know what came then.
    let verifier = verifier.refuse_sent_before(client.server_now_ms());
    tokio::spawn(follow_clock(client.clone(), CLOCK_EVERY));
    let learned = client.clone();
    let receiver = Receiver::new(verifier.clock(move || learned.server_now_ms()), client);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("waiting for callbacks at http://{}/callback", listener.local_addr()?);
    axum::serve(listener, routes(receiver)).await?;
    Ok(())
}

/// Asks for the server's time again and again: what was learned is wrong as soon as somebody sets this machine's clock, and callbacks that are refused
/// teach nothing.
pub(crate) async fn follow_clock(client: Client, every: Duration) {
    loop {
        sleep(every).await;
        if let Err(error) = client.learn_clock().await {
            eprintln!("the server's time is not known, and what was learned before is gone by: {error}");
        }
    }
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
    unbounded(receiver).layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The routes without the bound. A bound of axum's own, which is wider, goes for them.
pub(crate) fn unbounded(receiver: Receiver) -> Router {
    Router::new().route("/callback", post(receive)).with_state(Arc::new(receiver))
}

async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> (StatusCode, Vec<u8>) {
    // The raw bytes are verified, before anything reads them. Beyond the bound of the routes the answer is 413: anybody can send a body, and
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
                "{biz_type} {biz_id} says {biz_status} ({event_id}, attempt {attempt}): to be sent again: {error:#}"
            );
            (StatusCode::OK, callback::failed("not now"))
        }
    }
}

impl Receiver {
    pub(crate) fn new(verifier: CallbackVerifier, client: Client) -> Self {
        let query_timeout = QUERY_TIMEOUT;
        Self { verifier, client, query_timeout, delivered: Mutex::default(), taken: Mutex::default() }
    }

    /// Does what a genuine callback is about, and says what. Genuine means that the platform has sent it, not that an order is paid. An error: it could not
    /// be done now.
    pub(crate) async fn process(&self, event: &Callback) -> anyhow::Result<String> {
        match event.biz_type.as_str() {
            PAYMENT_ORDER | PAYMENT_ORDER_FAMILY => self.settle(&event.biz_id).await,
            // Nothing has happened: an operator looks whether this program takes callbacks.
            TEST => Ok("a test".to_owned()),
            // Of the platform's own, such as TRANSFER_ADDRESS: `event.data_as` reads it into a type of yours.
            _ => Ok(self.take(event)),
        }
    }

    /// Queries the order, whatever the callback claims and however often it comes, and delivers it once.
    async fn settle(&self, prepay_id: &str) -> anyhow::Result<String> {
        let ask = order_query::Request::prepay_id(prepay_id);
        let asked = timeout(self.query_timeout, self.client.order_query(&ask)).await;
        let found = match asked.context("the query took too long")? {
            Ok(found) => found,
            // To have it sent again would not help: there is no such order, or none of ours.
            Err(error) if error.code() == Some(Code::OrderNotFound) => {
                return Ok(format!("nothing is delivered: {error}"));
            }
            // The order may be paid, whatever keeps this program from hearing it: a secret that was revoked, a clock, a merchant that is disabled. Once
            // acknowledged, the callback does not come again.
            Err(error) => return Err(error.into()),
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
