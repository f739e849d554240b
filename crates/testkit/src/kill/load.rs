//! The load under which a process is killed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{ACKNOWLEDGED_MIN, UNANSWERED_MIN};
use crate::operator::OperatorAccess;
use crate::process::Server;
use crate::wire::{Connection, Draft, Signer};

/// Path of the upgrade.
pub const UPGRADE: &str = "/rate/commission_rule/upgrade";
/// Tasks that query and tasks that emit events.
const READERS: usize = 4;
const EMITTERS: usize = 4;

/// What was sent to one process, sorted by what became of it.
#[derive(Debug, Default)]
pub struct Sent {
    /// Acknowledged upgrades with the config id of the answer.
    pub upgrades: Vec<(Draft, String)>,
    /// Answered queries.
    pub queries: Vec<Draft>,
    /// Acknowledged events.
    pub events: Vec<String>,
    /// Upgrades whose answer never came.
    pub unanswered: Vec<Draft>,
    /// Answers that were no success.
    pub refused: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    sent: Mutex<Sent>,
    in_flight: AtomicUsize,
    acknowledged: AtomicUsize,
    moved: Notify,
}

/// Tasks that send until their connections break.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// The body of an upgrade of sub-account `n`.
pub fn upgrade_body(n: usize) -> Vec<u8> {
    json!({"sub_merchant_id": format!("bank-{n}"), "r_markup": 0.3, "effective_date": "2020-01-01 00:00:00"})
        .to_string()
        .into_bytes()
}

/// The path and query of the convert order query.
pub fn query_target(order: &str) -> String {
    format!("/v1/pay/convert/order?orderId={order}")
}

impl Load {
    /// Starts `writers` tasks that upgrade, and some that query and emit.
    pub fn start(server: &Server, signer: &Arc<Signer>, order: &str, writers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for n in 1..=writers {
            tasks.spawn(upgrade(shared.clone(), server.listen, signer.clone(), n));
        }
        for _ in 0..READERS {
            tasks.spawn(query(shared.clone(), server.listen, signer.clone(), order.to_owned()));
        }
        for n in 0..EMITTERS {
            tasks.spawn(emit(shared.clone(), server.access.clone(), signer.client_id.clone(), n));
        }
        Self { shared, tasks }
    }

    /// Waits until enough is acknowledged and enough is in flight.
    pub async fn until_worth_killing(&self) -> Result<()> {
        let worth = async {
            loop {
                let moved = self.shared.moved.notified();
                let acknowledged = self.shared.acknowledged.load(Ordering::SeqCst);
                if acknowledged >= ACKNOWLEDGED_MIN && self.shared.in_flight.load(Ordering::SeqCst) >= UNANSWERED_MIN {
                    return;
                }
                moved.await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), worth).await.is_err() {
            bail!("the load did not reach {ACKNOWLEDGED_MIN} acknowledged and {UNANSWERED_MIN} unanswered writes");
        }
        Ok(())
    }

    /// Waits until every task has seen its connection break.
    pub async fn end(mut self) -> Sent {
        while self.tasks.join_next().await.is_some() {}
        std::mem::take(&mut *self.shared.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn note(&self, note: impl FnOnce(&mut Sent)) {
        note(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

async fn upgrade(shared: Arc<Shared>, address: SocketAddr, signer: Arc<Signer>, n: usize) {
    let Ok(mut connection) = Connection::open(address).await else { return };
    loop {
        let draft = signer.draft("POST", UPGRADE, &upgrade_body(n));
        shared.in_flight.fetch_add(1, Ordering::SeqCst);
        shared.moved.notify_waiters();
        let answer = connection.send(&draft.bytes()).await;
        match answer {
            Err(_) => return shared.note(|sent| sent.unanswered.push(draft)),
            Ok(answer) if answer.code() == "000000" => {
                let config_id = answer.json()["data"]["config_id"].as_str().unwrap_or_default().to_owned();
                shared.note(|sent| sent.upgrades.push((draft, config_id)));
                shared.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Ok(answer) => shared.note(|sent| sent.refused.push(format!("{} {}", answer.status, answer.json()))),
        }
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn query(shared: Arc<Shared>, address: SocketAddr, signer: Arc<Signer>, order: String) {
    let Ok(mut connection) = Connection::open(address).await else { return };
    loop {
        let draft = signer.draft("GET", &query_target(&order), b"");
        let Ok(answer) = connection.send(&draft.bytes()).await else { return };
        if answer.code() == "000000" {
            shared.note(|sent| sent.queries.push(draft));
        } else {
            shared.note(|sent| sent.refused.push(format!("{} {}", answer.status, answer.json())));
        }
    }
}

async fn emit(shared: Arc<Shared>, access: OperatorAccess, client_id: String, n: usize) {
    let Ok(mut connection) = Connection::open(access.address).await else { return };
    for count in 0.. {
        let body = json!({
            "client_id": client_id, "bizType": "TRANSFER_ADDRESS", "bizId": format!("{n}-{count}"), "bizStatus": "SUCCESS",
            "data": {"merchantTradeNo": format!("t-{n}-{count}")},
        });
        let Ok(answer) = connection.send(&access.draft("POST", "/operator/v1/events", Some(&body)).bytes()).await
        else {
            return;
        };
        match answer.json()["event_id"].as_str() {
            Some(id) => shared.note(|sent| sent.events.push(id.to_owned())),
            None => shared.note(|sent| sent.refused.push(format!("{} {}", answer.status, answer.json()))),
        }
    }
}
