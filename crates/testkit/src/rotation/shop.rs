//! A merchant in a rotation: it signs with one secret, its receiver verifies with one, and the two change at moments of their own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use countersign_protocol::signing::SigningKey;
use countersign_sdk::callback::{CallbackVerifier, failed, processed};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::operator::OperatorAccess;
use crate::wire::{Connection, Signer};

/// What is asked for.
pub const TARGET: &str = "/v1/pay/events?limit=1";
/// Between two requests of one sender, and between two events.
const PAUSE: Duration = Duration::from_millis(5);
const EVENT_PAUSE: Duration = Duration::from_millis(40);

/// One application with its load and what came of it.
#[derive(Debug)]
pub struct Shop {
    pub client_id: String,
    number: usize,
    signs: RwLock<Signing>,
    verifies: Schedule<CallbackVerifier>,
    /// Whose signature may stand in the first header: strict, whoever falls back on the second one would not see a switch that came too soon.
    first_by: Schedule<Vec<CallbackVerifier>>,
    secret: RwLock<String>,
    answered: AtomicUsize,
    emitted: AtomicUsize,
    verified: AtomicUsize,
    refused: Mutex<Vec<String>>,
    failed: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

/// What a merchant signs with.
#[derive(Clone, Debug)]
struct Signing {
    by: Arc<Signer>,
    /// From then on it may be refused: its secret was rotated.
    ends: Option<Instant>,
}

/// What holds for a callback, by the server's stamp of it: a receiver that stands still for a while hears of it late.
#[derive(Debug)]
struct Schedule<T>(RwLock<Vec<(i64, Arc<T>)>>);

impl<T> Schedule<T> {
    fn always(what: T) -> Self {
        Self(RwLock::new(vec![(i64::MIN, Arc::new(what))]))
    }

    /// From this moment on, in Unix ms; later than all that was planned before.
    fn plan(&self, from_ms: i64, what: T) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push((from_ms, Arc::new(what)));
    }

    fn at(&self, stamp_ms: i64) -> Option<Arc<T>> {
        let planned = self.0.read().unwrap_or_else(PoisonError::into_inner);
        planned.iter().rev().find(|(from_ms, _)| *from_ms <= stamp_ms).map(|(_, what)| what.clone())
    }
}

impl Shop {
    /// A merchant with an application whose callbacks come to `front`.
    pub async fn furnish(access: &OperatorAccess, number: usize, front: &Front) -> Result<Self> {
        let id = format!("shop-{number}");
        access.provision("POST", "/merchants", json!({"name": id, "merchant_id": id})).await?;
        let body = json!({"name": "rotated", "callback_url": front.url(number)});
        let made = access.provision("POST", &format!("/merchants/{id}/applications"), body).await?;
        let text = |name: &str| made[name].as_str().map(str::to_owned).with_context(|| format!("{name} is shown"));
        let (client_id, secret) = (text("client_id")?, text("payment_api_secret")?);
        Ok(Self {
            number,
            signs: RwLock::new(Signing { by: Arc::new(signer(&client_id, &secret)), ends: None }),
            first_by: Schedule::always(vec![verifier(&client_id, &secret)]),
            verifies: Schedule::always(verifier(&client_id, &secret)),
            secret: RwLock::new(secret),
            client_id,
            answered: AtomicUsize::default(),
            emitted: AtomicUsize::default(),
            verified: AtomicUsize::default(),
            refused: Mutex::default(),
            failed: Mutex::default(),
            stopped: AtomicBool::default(),
        })
    }

    /// Who signs now.
    pub fn signer(&self) -> Arc<Signer> {
        self.signing().by
    }

    fn signing(&self) -> Signing {
        self.signs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signs with this secret from now on.
    pub fn sign_with(&self, secret: &str) {
        let by = Arc::new(signer(&self.client_id, secret));
        *self.signs.write().unwrap_or_else(PoisonError::into_inner) = Signing { by, ends: None };
    }

    /// Verifies with this secret, and no other, what is sent from then on.
    pub fn verify_with(&self, secret: &str, from_ms: i64) {
        self.verifies.plan(from_ms, verifier(&self.client_id, secret));
    }

    /// What is sent from then on must be signed first by one of these.
    pub fn signed_first_by(&self, secrets: &[&str], from_ms: i64) {
        self.first_by.plan(from_ms, secrets.iter().map(|secret| verifier(&self.client_id, secret)).collect());
    }

    /// The secret before the rotation that begins now, which is good at least until `ends`; the next one's is `new`.
    pub fn replace(&self, new: &str, ends: Instant) -> String {
        self.signs.write().unwrap_or_else(PoisonError::into_inner).ends = Some(ends);
        std::mem::replace(&mut *self.secret.write().unwrap_or_else(PoisonError::into_inner), new.to_owned())
    }

    /// Its senders end after the answer that they wait for.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst)
    }

    /// Signed requests that were answered with success.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Events that were acknowledged.
    pub fn emitted(&self) -> usize {
        self.emitted.load(Ordering::SeqCst)
    }

    /// Callbacks that were verified at their first attempt.
    pub fn verified(&self) -> usize {
        self.verified.load(Ordering::SeqCst)
    }

    /// What was refused to it.
    pub fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Callbacks that it could not verify, or that came again.
    pub fn failed(&self) -> Vec<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn was_refused(&self, what: String) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Sends signed requests, one after the other, until it is told to stop.
    pub async fn send(self: Arc<Self>, listen: SocketAddr) {
        let mut connection = None;
        while self.goes_on() {
            let Signing { by, ends } = self.signing();
            let draft = by.draft("GET", TARGET, b"");
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(listen).await,
            };
            let sent = match open {
                Ok(mut open) => open.send(&draft.bytes()).await.map(|answer| (open, answer)),
                Err(error) => Err(error),
            };
            match sent {
                Ok((open, answer)) if answer.code() == "000000" => {
                    self.answered.fetch_add(1, Ordering::SeqCst);
                    connection = Some(open);
                }
                // It came too late: sent again, with the secret of then.
                Ok((_, answer)) if answer.code() == "400002" && ends.is_some_and(|ends| ends <= Instant::now()) => {}
                Ok((_, answer)) => self.was_refused(format!("{} {}", answer.status, answer.json())),
                Err(error) => self.was_refused(error.to_string()),
            }
            sleep(PAUSE).await;
        }
    }

    /// Has events written for it until it is told to stop.
    pub async fn emit(self: Arc<Self>, access: OperatorAccess) {
        for count in 0_u64.. {
            if !self.goes_on() {
                return;
            }
            let event = json!({
                "client_id": self.client_id, "bizType": "TRANSFER_ADDRESS", "bizId": format!("{}-{count}", self.number),
                "bizStatus": "SUCCESS", "data": {"merchantTradeNo": format!("t-{count}")},
            });
            match access.provision("POST", "/events", event).await {
                Ok(_) => drop(self.emitted.fetch_add(1, Ordering::SeqCst)),
                Err(error) => self.was_refused(format!("an event: {error}")),
            }
            sleep(EVENT_PAUSE).await;
        }
    }

    /// A callback has come: whether it is genuine, by the one secret that was known when it was sent.
    fn received(&self, headers: &HeaderMap, body: &Bytes) -> Vec<u8> {
        let stamp = headers.get("x-service-timestamp").and_then(|value| value.to_str().ok()?.parse().ok());
        let planned = |stamp| Some((self.verifies.at(stamp)?, self.first_by.at(stamp)?));
        let Some((verifier, first_by)) = stamp.and_then(planned) else {
            return self.is_bad("no stamp says when it was sent".to_owned());
        };
        let first = |name: &str| if name.ends_with("-next") { None } else { headers.get(name)?.to_str().ok() };
        if !first_by.iter().any(|verifier| verifier.verify_now(first, body).is_ok()) {
            return self.is_bad("the first signature is by another secret than the one that was chosen".to_owned());
        }
        match verifier.verify_now(|name| headers.get(name).and_then(|value| value.to_str().ok()), body) {
            Ok(callback) if callback.attempt == 1 => {
                self.verified.fetch_add(1, Ordering::SeqCst);
                processed()
            }
            Ok(callback) => self.is_bad(format!("attempt {} of {}", callback.attempt, callback.event_id)),
            Err(refused) => self.is_bad(refused.to_string()),
        }
    }

    fn is_bad(&self, why: String) -> Vec<u8> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(why);
        failed("not genuine")
    }
}

/// The server makes no empty secret.
fn verifier(client_id: &str, secret: &str) -> CallbackVerifier {
    CallbackVerifier::new(client_id, secret).expect("a secret")
}

fn signer(client_id: &str, secret: &str) -> Signer {
    Signer { client_id: client_id.to_owned(), key: SigningKey::new(secret.as_bytes()), merchant_id: None }
}

type Shops = Arc<RwLock<Vec<Arc<Shop>>>>;

/// Where callbacks of all shops come in.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    shops: Shops,
}

impl Front {
    /// Listens on a free loopback port until the run ends.
    pub async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shops = Shops::default();
        let router = axum::Router::new().route("/callback/{number}", post(receive)).with_state(shops.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, shops })
    }

    fn url(&self, number: usize) -> String {
        format!("http://{}/callback/{number}", self.address)
    }

    /// Hands callbacks to this shop, too.
    pub fn take_in(&self, shop: &Arc<Shop>) {
        self.shops.write().unwrap_or_else(PoisonError::into_inner).push(shop.clone());
    }
}

async fn receive(State(shops): State<Shops>, Path(number): Path<usize>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    let shop = shops.read().unwrap_or_else(PoisonError::into_inner).get(number).cloned();
    shop.map_or_else(|| failed("nobody"), |shop| shop.received(&headers, &body))
}
