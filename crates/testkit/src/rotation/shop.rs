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
use tokio::time::sleep;

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
    signs: RwLock<Arc<Signer>>,
    verifies: RwLock<Arc<CallbackVerifier>>,
    /// Whose signature may stand in the first header now: strict, whoever falls back on the second one would not see a switch that came too soon.
    first_by: RwLock<Arc<Vec<CallbackVerifier>>>,
    secret: RwLock<String>,
    answered: AtomicUsize,
    emitted: AtomicUsize,
    verified: AtomicUsize,
    refused: Mutex<Vec<String>>,
    failed: Mutex<Vec<String>>,
    stopped: AtomicBool,
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
            signs: RwLock::new(Arc::new(signer(&client_id, &secret))),
            first_by: RwLock::new(Arc::new(vec![verifier(&client_id, &secret)])),
            verifies: RwLock::new(Arc::new(verifier(&client_id, &secret))),
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
        self.signs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signs with this secret from now on.
    pub fn sign_with(&self, secret: &str) {
        *self.signs.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(signer(&self.client_id, secret));
    }

    /// Verifies callbacks with this secret, and no other, from now on.
    pub fn verify_with(&self, secret: &str) {
        *self.verifies.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(verifier(&self.client_id, secret));
    }

    /// From now on callbacks must be signed first by one of these.
    pub fn signed_first_by(&self, secrets: &[&str]) {
        let verifiers = secrets.iter().map(|secret| verifier(&self.client_id, secret)).collect();
        *self.first_by.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(verifiers);
    }

    /// The secret before the rotation that begins now; the next one's is `new`.
    pub fn replace(&self, new: &str) -> String {
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
            let draft = self.signer().draft("GET", TARGET, b"");
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

    /// A callback has come: whether it is genuine, by the one secret that is known now.
    fn received(&self, headers: &HeaderMap, body: &Bytes) -> Vec<u8> {
        let verifier = self.verifies.read().unwrap_or_else(PoisonError::into_inner).clone();
        let first_by = self.first_by.read().unwrap_or_else(PoisonError::into_inner).clone();
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
