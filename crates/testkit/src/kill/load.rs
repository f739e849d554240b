//! The load under which a process is killed.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{ACKNOWLEDGED_MIN, UNANSWERED_MIN};
use crate::operator::OperatorAccess;
use crate::wire::{Answer, Connection, Draft, Signer, fresh_nonce};

/// Path of the upgrade.
pub const UPGRADE: &str = "/rate/commission_rule/upgrade";
/// Tasks that query and tasks that emit events.
const READERS: usize = 4;
const EMITTERS: usize = 4;
/// Events of one bizId, one after the other.
const CHAIN: usize = 3;
/// How long enough of a load may take to happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a sender waits after 503 or a broken connection before the next request.
const PAUSE: Duration = Duration::from_millis(10);

/// Where a load goes, and whose it is.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Where merchants call.
    pub listen: SocketAddr,
    /// Where events are reported.
    pub access: OperatorAccess,
    /// Who upgrades and queries.
    pub signer: Arc<Signer>,
    /// What is queried.
    pub order: String,
    /// Whose events are reported: applications, in turns.
    pub clients: Vec<String>,
    /// How many upgrade, each one sub-account of its own, from 1 on.
    pub writers: usize,
    /// What a sender does when its connection breaks.
    pub broken: Broken,
}

/// What a sender does when its connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It ends: the only server is gone. Nobody may answer 503 before.
    End,
    /// It goes on over another connection, until it is told to stop. A 503 is no answer, whoever gives it.
    GoOn,
}

/// What was sent, sorted by what became of it.
#[derive(Debug, Default)]
pub struct Sent {
    /// Acknowledged upgrades with the config id of the answer.
    pub upgrades: Vec<(Draft, String)>,
    /// Answered queries.
    pub queries: Vec<Draft>,
    /// Acknowledged events.
    pub events: Vec<String>,
    /// Upgrades whose answer never came, or was a proxy's.
    pub unanswered: Vec<Draft>,
    /// Upgrades that a node answered with 503: nothing was done, and the nonce is open.
    pub declined: Vec<Draft>,
    /// Upgrades that were told that nobody knows: the database was away for longer than a node looks for the fate of a commit.
    pub unknown: Vec<Draft>,
    /// Connections that broke while an answer was due.
    pub broken: usize,
    /// Answers of 502, 503 and 504, from the proxy or a node.
    pub away: usize,
    /// Answers that were neither success nor away.
    pub refused: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    sent: Mutex<Sent>,
    in_flight: AtomicUsize,
    acknowledged: AtomicUsize,
    moved: Notify,
    stopped: AtomicBool,
}

/// Tasks that send until their connections break or they are told to stop.
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
    /// Starts tasks that upgrade, and some that query and emit.
    pub fn start(aim: &Aim) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for n in 1..=aim.writers {
            tasks.spawn(upgrade(Sender::new(&shared, aim, aim.listen), n));
        }
        for _ in 0..READERS {
            tasks.spawn(query(Sender::new(&shared, aim, aim.listen)));
        }
        for n in 0..EMITTERS {
            tasks.spawn(emit(Sender::new(&shared, aim, aim.access.address), n));
        }
        Self { shared, tasks }
    }

    /// Waits until enough is acknowledged and enough is in flight.
    pub async fn until_worth_killing(&self) -> Result<()> {
        self.until(ACKNOWLEDGED_MIN, UNANSWERED_MIN).await
    }

    /// Waits until `more` upgrades are acknowledged beyond those that are now.
    pub async fn until_acknowledged(&self, more: usize) -> Result<()> {
        self.until(self.shared.acknowledged.load(Ordering::SeqCst) + more, 0).await
    }

    async fn until(&self, acknowledged_min: usize, in_flight_min: usize) -> Result<()> {
        let enough = async {
            loop {
                let moved = self.shared.moved.notified();
                let acknowledged = self.shared.acknowledged.load(Ordering::SeqCst);
                if acknowledged >= acknowledged_min && self.shared.in_flight.load(Ordering::SeqCst) >= in_flight_min {
                    return;
                }
                moved.await;
            }
        };
        if tokio::time::timeout(PATIENCE, enough).await.is_err() {
            let refused = self.shared.look(|sent| sent.refused.first().cloned());
            bail!(
                "the load did not reach {acknowledged_min} acknowledged and {in_flight_min} unanswered writes; refused: {refused:?}"
            );
        }
        Ok(())
    }

    /// Upgrades acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    /// Events acknowledged so far.
    pub fn events(&self) -> HashSet<String> {
        self.shared.look(|sent| sent.events.iter().cloned().collect())
    }

    /// Tells every task to stop after the answer it waits for, and waits for all.
    pub async fn stop(self) -> Sent {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.end().await
    }

    /// Waits until every task has seen its connection break.
    pub async fn end(mut self) -> Sent {
        while self.tasks.join_next().await.is_some() {}
        self.shared.look(std::mem::take)
    }
}

impl Shared {
    fn look<T>(&self, look: impl FnOnce(&mut Sent) -> T) -> T {
        look(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How a request ended.
enum Ended {
    Done(Answer),
    /// Perhaps done: no answer, or one that does not tell.
    Open,
    /// Not done: a node's own 503.
    Declined,
    /// Perhaps done, and nobody can find out.
    Unknown,
    Refused,
}

fn is_unknown(answer: &Answer) -> bool {
    let said = answer.json();
    let words = said["errorMessage"].as_str().or_else(|| said["detail"].as_str());
    answer.status == 500 && words.is_some_and(|words| words.starts_with("outcome unknown"))
}

/// One sender and its connection.
struct Sender {
    shared: Arc<Shared>,
    aim: Aim,
    address: SocketAddr,
    connection: Option<Connection>,
    /// Whether it will send no more.
    is_over: bool,
}

impl Sender {
    fn new(shared: &Arc<Shared>, aim: &Aim, address: SocketAddr) -> Self {
        Self { shared: shared.clone(), aim: aim.clone(), address, connection: None, is_over: false }
    }

    fn goes_on(&self) -> bool {
        !self.is_over && !self.shared.stopped.load(Ordering::SeqCst)
    }

    async fn send(&mut self, draft: &Draft) -> Ended {
        let answer = match self.exchange(draft).await {
            Ok(answer) => answer,
            Err(_) if self.aim.broken == Broken::End => {
                self.is_over = true;
                return Ended::Open;
            }
            Err(_) => {
                self.shared.look(|sent| sent.broken += 1);
                sleep(PAUSE).await;
                return Ended::Open;
            }
        };
        if self.aim.broken == Broken::GoOn && matches!(answer.status, 502..=504) {
            // A proxy may close the connection behind such an answer.
            self.connection = None;
            sleep(PAUSE).await;
            self.shared.look(|sent| sent.away += 1);
            if answer.code() != "300503" {
                // A proxy's own answer has no envelope.
                return Ended::Open;
            }
            if answer.header("retry-after").is_none() {
                let what = format!("503 without Retry-After: {}", answer.json());
                self.shared.look(|sent| sent.refused.push(what));
            }
            return Ended::Declined;
        }
        if answer.code() == "000000" || answer.json()["event_id"].is_string() {
            return Ended::Done(answer);
        }
        if self.aim.broken == Broken::GoOn && is_unknown(&answer) {
            return Ended::Unknown;
        }
        let what = format!("{} {}: {} {}", draft.method, draft.target, answer.status, answer.json());
        self.shared.look(|sent| sent.refused.push(what));
        Ended::Refused
    }

    async fn exchange(&mut self, draft: &Draft) -> io::Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.address).await?,
        };
        let answer = connection.send(&draft.bytes()).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

async fn upgrade(mut sender: Sender, n: usize) {
    let shared = sender.shared.clone();
    while sender.goes_on() {
        let draft = sender.aim.signer.draft("POST", UPGRADE, &upgrade_body(n));
        shared.in_flight.fetch_add(1, Ordering::SeqCst);
        shared.moved.notify_waiters();
        let ended = sender.send(&draft).await;
        match ended {
            Ended::Open => shared.look(|sent| sent.unanswered.push(draft)),
            Ended::Declined => shared.look(|sent| sent.declined.push(draft)),
            Ended::Unknown => shared.look(|sent| sent.unknown.push(draft)),
            Ended::Done(answer) => {
                let config_id = answer.json()["data"]["config_id"].as_str().unwrap_or_default().to_owned();
                shared.look(|sent| sent.upgrades.push((draft, config_id)));
                shared.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Ended::Refused => {}
        }
        if !sender.is_over {
            shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // Whoever waits for more of it hears that there is none.
    shared.moved.notify_waiters();
}

async fn query(mut sender: Sender) {
    while sender.goes_on() {
        let draft = sender.aim.signer.draft("GET", &query_target(&sender.aim.order), b"");
        if let Ended::Done(_) = sender.send(&draft).await {
            sender.shared.look(|sent| sent.queries.push(draft));
        }
    }
}

async fn emit(mut sender: Sender, n: usize) {
    // Of this load alone, also where others were before it.
    let own = fresh_nonce();
    for count in 0.. {
        if !sender.goes_on() {
            return;
        }
        let chain = n + count / CHAIN;
        let Some(client_id) = sender.aim.clients.get(chain % sender.aim.clients.len().max(1)) else { return };
        let body = json!({
            "client_id": client_id, "bizType": "TRANSFER_ADDRESS", "bizId": format!("{n}-{chain}-{own}"), "bizStatus": "SUCCESS",
            "data": {"merchantTradeNo": format!("t-{n}-{count}")},
        });
        let draft = sender.aim.access.draft("POST", "/operator/v1/events", Some(&body));
        if let Ended::Done(answer) = sender.send(&draft).await {
            let id = answer.json()["event_id"].as_str().unwrap_or_default().to_owned();
            sender.shared.look(|sent| sent.events.push(id));
        }
    }
}
