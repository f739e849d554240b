//! One `clientReqId` sent by many clients at once, and answers that are lost after the commit: one order each, and its answer for everybody.
//!
//! On PostgreSQL there are two nodes, and every second client asks the other one: within a node equal requests take turns, so only there
//! it is the guards of the batch that are tried.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign::clock::Clock;
use countersign::config::{Config, Optional, Period};
use countersign::log::LogSink;
use countersign::run::{self, Running, Surroundings};
use countersign_protocol::endpoint::{convert, convert_preview};
use countersign_store::contract::Cursor;
use countersign_store::{ConvertStore as _, Store as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::backing::{Backing, StoreKind};
use crate::operator::OperatorAccess;
use crate::patience::until;
use crate::wire::{Answer, Connection, Signer};

/// Clients that send one request at once.
const CLIENTS: usize = 64;
/// Longer than any run.
const A_DAY: Duration = Duration::from_secs(86_400);
/// How long an order may take to be there.
const SOON: Duration = Duration::from_secs(30);
/// Lines of the audit log that are read at once.
const LINES: u32 = 1_000;

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rounds.
    pub rounds: usize,
    /// Equal answers to equal requests that were sent at once.
    pub equal: usize,
    /// The same name with other content, refused.
    pub other_content: usize,
    /// Answers that were cut off after the commit, whose repeat got the order.
    pub lost_and_found: usize,
    /// Requests that were cut off at once, whose repeat got an order.
    pub cut_at_once: usize,
    /// Orders in the audit log: one for each name.
    pub orders: usize,
}

/// The servers of a deployment, and somebody who converts.
struct Market {
    nodes: Vec<Running>,
    access: OperatorAccess,
    _folder: TempDir,
    _backing: Backing,
}

impl Market {
    async fn open(kind: StoreKind) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let backing = Backing::fresh(kind).await;
        let count = if backing.database().is_some() { 2 } else { 1 };
        let mut nodes = Vec::new();
        let mut token = String::new();
        for node in 0..count {
            let mut config = Config {
                data: folder.path().join(node.to_string()),
                listen: "127.0.0.1:0".parse()?,
                operator_listen: "127.0.0.1:0".parse()?,
                // The load is one application's, and rates are put once.
                rate_limit_per_s: 0,
                rate_max_age: Period(A_DAY),
                quote_life: Period(A_DAY),
                ..Config::default()
            };
            backing.lay(&mut config);
            if node == 0 {
                run::initialise(&config).await?.operator_token.expose().clone_into(&mut token);
            } else {
                config.master_key_file = Optional(Some(folder.path().join("0/master.key")));
                run::prepare(&config).await?;
            }
            let (log, _) = LogSink::start(std::io::sink())?;
            nodes.push(run::start_in(config, Surroundings { clock: Clock::System, log }).await?);
        }
        let first = nodes.first().context("there is a node")?;
        let access = OperatorAccess::new(first.operator_listen, token);
        Ok(Self { nodes, access, _folder: folder, _backing: backing })
    }

    fn listen(&self, client: usize) -> SocketAddr {
        self.nodes[client % self.nodes.len()].listen
    }

    /// Orders that were ever made by merchants.
    async fn orders(&self) -> Result<usize> {
        let store = &self.nodes[0].app.store;
        let (mut found, mut after) = (0, None);
        loop {
            let page = store.audit(Cursor { after, limit: LINES }).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = Some(last.key());
            found += page.iter().filter(|line| line.action == "convert_order.create").count();
        }
    }
}

/// Plays so many rounds. An error says what was not one order, or not its answer.
pub async fn run(kind: StoreKind, rounds: usize) -> Result<Report> {
    let market = Market::open(kind).await?;
    let signer = market.access.institution("bank", 0, None).await?;
    market.access.provision("PUT", "/rates/GT_USDT", json!({"rate": "22.38741462"})).await?;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        clients.push(Connection::open(market.listen(client)).await?);
    }
    let mut report = Report { rounds, ..Report::default() };
    for round in 0..rounds {
        let quotes = [quote(&market, &signer).await?, quote(&market, &signer).await?, quote(&market, &signer).await?];
        let [one, two, three] = &quotes;
        clients = at_once(clients, &signer, &carry_out(&format!("all-{round}"), one), &mut report).await?;
        let refused = ask(&market, &signer, round, &carry_out(&format!("all-{round}"), two)).await?;
        ensure!(refused.code() == "400201" && refused.status == 409, "other content: {}", refused.json());
        report.other_content += 1;
        lost(&market, &signer, round, &carry_out(&format!("lost-{round}"), two)).await?;
        report.lost_and_found += 1;
        cut(&market, &signer, round, &carry_out(&format!("cut-{round}"), three)).await?;
        report.cut_at_once += 1;
    }
    report.orders = market.orders().await?;
    ensure!(report.orders == 3 * rounds, "{} orders for {} names", report.orders, 3 * rounds);
    for node in market.nodes {
        node.stop().await?;
    }
    Ok(report)
}

async fn quote(market: &Market, signer: &Signer) -> Result<Value> {
    let body = json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "1.5"}).to_string();
    let draft = signer.draft(convert_preview::METHOD, convert_preview::PATH, body.as_bytes());
    let answer = crate::wire::once(market.listen(0), &draft.bytes()).await?;
    ensure!(answer.code() == "000000", "a quote: {}", answer.json());
    Ok(answer.json()["data"].clone())
}

fn carry_out(client_req_id: &str, quote: &Value) -> String {
    json!({
        "clientReqId": client_req_id, "quoteId": quote["quoteId"], "sellCurrency": quote["sellCurrency"],
        "buyCurrency": quote["buyCurrency"], "sellAmount": quote["sellAmount"], "buyAmount": quote["buyAmount"],
    })
    .to_string()
}

fn signed(signer: &Signer, body: &str) -> Vec<u8> {
    signer.draft(convert::METHOD, convert::PATH, body.as_bytes()).bytes()
}

async fn ask(market: &Market, signer: &Signer, client: usize, body: &str) -> Result<Answer> {
    Ok(crate::wire::once(market.listen(client), &signed(signer, body)).await?)
}

/// Every client sends the same at once; all answers are one order.
async fn at_once(
    clients: Vec<Connection>,
    signer: &Signer,
    body: &str,
    report: &mut Report,
) -> Result<Vec<Connection>> {
    let mut all = JoinSet::new();
    for mut client in clients {
        let request = signed(signer, body);
        all.spawn(async move { client.send(&request).await.map(|answer| (client, answer)) });
    }
    let mut back = Vec::new();
    let mut first: Option<Value> = None;
    while let Some(ended) = all.join_next().await {
        let (client, answer) = ended??;
        let said = answer.json();
        ensure!(said["code"] == "000000", "one of {CLIENTS} equal requests: {said}");
        ensure!(first.get_or_insert_with(|| said.clone()) == &said, "two answers: {first:?} and {said}");
        report.equal += 1;
        back.push(client);
    }
    Ok(back)
}

/// The answer is lost after the commit; the repeat gets that order, from whichever node.
async fn lost(market: &Market, signer: &Signer, round: usize, body: &str) -> Result<()> {
    let name = format!("lost-{round}");
    let mut client = Connection::open(market.listen(round)).await?;
    client.write(&signed(signer, body)).await?;
    let app = &market.nodes[0].app;
    let owner = app.store.merchant("bank").await?.context("the merchant is there")?;
    let made = async || Ok(app.store.convert_request(owner.tenant, owner.no, &name).await?);
    let (order, _) = until("the order is made", SOON, made).await?;
    drop(client);
    let again = ask(market, signer, round + 1, body).await?.json();
    ensure!(again["data"]["order_id"] == order.order_id.to_string(), "the repeat of a lost answer: {again}");
    Ok(())
}

/// The connection is cut as soon as the request is out: whether it was done or not, the repeat gets its order.
async fn cut(market: &Market, signer: &Signer, round: usize, body: &str) -> Result<()> {
    let mut client = Connection::open(market.listen(round)).await?;
    client.write(&signed(signer, body)).await?;
    drop(client);
    let again = ask(market, signer, round + 1, body).await?.json();
    ensure!(again["code"] == "000000", "the repeat of a request that was cut off: {again}");
    let once_more = ask(market, signer, round, body).await?.json();
    ensure!(again == once_more, "two answers: {again} and {once_more}");
    Ok(())
}

/// What was seen, for people.
pub fn print(kind: StoreKind, report: &Report) {
    println!("{}: {} rounds of {CLIENTS} clients", kind.name(), report.rounds);
    println!("  equal answers to equal requests at once  {}", report.equal);
    println!("  the same name with other content refused {}", report.other_content);
    println!("  answers lost after the commit, found     {}", report.lost_and_found);
    println!("  cut off at once, answered when repeated  {}", report.cut_at_once);
    println!("  orders made, one for each name           {}", report.orders);
}
