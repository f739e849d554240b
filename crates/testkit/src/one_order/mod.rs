//! One name sent by many clients at once, and answers that never arrive: in the end there is one order, and everybody knows it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign::clock::Clock;
use countersign_store::Store as _;
use countersign_store::contract::MerchantRow;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::patience::until;
use crate::wire::{Connection, Signer, once, once_served};

pub(crate) mod nodes;
mod subject;

use nodes::Nodes;
pub use subject::Subject;

/// How long an order may take to be there.
const MADE_WITHIN: Duration = Duration::from_secs(60);
/// A client that is cut off at any moment is cut off by then, in microseconds.
const CUT_US_MAX: i64 = 3_000;

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of each kind.
    pub rounds: usize,
    /// Clients that send one name at once.
    pub clients: usize,
    /// What chance is made of.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Equal answers of rounds with many clients.
    pub equal: usize,
    /// Requests with other content, each refused.
    pub duplicates: usize,
    /// Answers that were lost after the order was there; each repeat got that order.
    pub lost: usize,
    /// Clients that were cut off at any moment; each repeat got the one order there is.
    pub cut: usize,
    /// Of these, orders that were there before the repeat.
    pub cut_made: usize,
    /// Orders in the end.
    pub orders: usize,
}

/// The run's servers and who signs.
struct Run {
    subject: Subject,
    nodes: Nodes,
    signer: Signer,
    owner: MerchantRow,
}

impl Run {
    async fn open(subject: Subject, kind: StoreKind) -> Result<Self> {
        let nodes = Nodes::open(kind, |_| Clock::System).await?;
        let signer = nodes.access.institution("bank", 0, None).await?;
        nodes.access.provision("PUT", "/rates/GT_USDT", json!({"rate": "22.38741462"})).await?;
        let owner = nodes.app().store.merchant("bank").await?.context("the merchant is there")?;
        Ok(Self { subject, nodes, signer, owner })
    }

    fn signed(&self, name: &str, content: &Value) -> Vec<u8> {
        self.signer.draft("POST", self.subject.path(), self.subject.body(name, content).as_bytes()).bytes()
    }

    async fn ask(&self, client: usize, name: &str, content: &Value) -> Result<Value> {
        // A 503 says that nothing was done: its turn did not come soon.
        Ok(once_served(self.nodes.listen(client), &self.signed(name, content)).await?.json())
    }

    /// Makes an order, which must succeed: its number.
    async fn made(&self, client: usize, name: &str, content: &Value) -> Result<String> {
        let answer = self.ask(client, name, content).await?;
        self.subject.id(&answer).with_context(|| format!("{name}: {answer}"))
    }

    /// The order under a name, if it is there.
    async fn found(&self, name: &str) -> Result<Option<String>> {
        self.subject.found(self.nodes.app(), &self.owner, name).await
    }

    /// Many clients, each on a connection of its own, send the same at once; then one sends the name with other content.
    async fn crowd(&self, name: &str, connections: &mut Vec<Connection>) -> Result<usize> {
        let [content, other] = self.subject.contents(&self.nodes, &self.signer).await?;
        let mut under_way = JoinSet::new();
        for mut connection in connections.drain(..) {
            let request = self.signed(name, &content);
            under_way.spawn(async move {
                loop {
                    let answer = connection.send(&request).await?;
                    // Its turn did not come soon, and nothing was done.
                    if answer.status != 503 {
                        return anyhow::Ok((connection, answer.json()));
                    }
                }
            });
        }
        let mut answers = Vec::new();
        while let Some(ended) = under_way.join_next().await {
            let (connection, answer) = ended??;
            connections.push(connection);
            answers.push(answer);
        }
        let first = answers.first().context("there are clients")?;
        ensure!(first["code"] == "000000", "{name}: {first}");
        ensure!(answers.iter().all(|answer| answer == first), "{name} has two answers: {answers:?}");
        for client in 0..2 {
            let refused = self.ask(client, name, &other).await?;
            ensure!(refused["code"] == "400201", "{name} with other content: {refused}");
        }
        Ok(answers.len())
    }

    /// A client that is gone before it reads its answer, which was on the way: the repeat gets the order that was made, from whichever node.
    async fn lose(&self, round: usize, name: &str) -> Result<()> {
        let [content, _] = self.subject.contents(&self.nodes, &self.signer).await?;
        let mut connection = Connection::open(self.nodes.listen(round)).await?;
        connection.write(&self.signed(name, &content)).await?;
        let (there, _) = until("the order is there", MADE_WITHIN, async || self.found(name).await).await?;
        drop(connection);
        let again = self.made(round + 1, name, &content).await?;
        ensure!(again == there, "{name}: {there} was made, and the repeat got {again}");
        Ok(())
    }

    /// A client that is cut off at any moment after it began to send, and repeats at once: whether its order was there by then.
    async fn cut(&self, round: usize, name: &str, after: Duration) -> Result<bool> {
        let [content, _] = self.subject.contents(&self.nodes, &self.signer).await?;
        let sent = timeout(after, once(self.nodes.listen(round), &self.signed(name, &content))).await;
        let there = self.found(name).await?;
        let (one, other) = tokio::try_join!(self.made(round, name, &content), self.made(round + 1, name, &content))?;
        ensure!(one == other, "{name} is {one} and {other}");
        ensure!(there.as_ref().is_none_or(|there| *there == one), "{name}: {there:?} was there, then {one}");
        if let Ok(Ok(answer)) = sent {
            let first = self.subject.id(&answer.json());
            ensure!(first.as_ref() == Some(&one), "{name}: the first answer named {first:?}, the repeats {one}");
        }
        Ok(there.is_some())
    }
}

/// Runs the plan on a store of this kind; an error says what was not so.
pub async fn run(subject: Subject, kind: StoreKind, plan: Plan) -> Result<Counts> {
    let run = Run::open(subject, kind).await?;
    let (mut counts, mut dice) = (Counts::default(), Dice::new(plan.seed));
    let mut connections = Vec::new();
    for client in 0..plan.clients {
        connections.push(Connection::open(run.nodes.listen(client)).await?);
    }
    for round in 0..plan.rounds {
        counts.equal += run.crowd(&format!("crowd-{round}"), &mut connections).await?;
        counts.duplicates += 2;
        run.lose(round, &format!("lost-{round}")).await?;
        counts.lost += 1;
        let after = Duration::from_micros(dice.between(0, CUT_US_MAX).unsigned_abs());
        counts.cut_made += usize::from(run.cut(round, &format!("cut-{round}"), after).await?);
        counts.cut += 1;
    }
    counts.orders = subject.made(run.nodes.app()).await?;
    ensure!(counts.orders == 3 * plan.rounds, "{} orders of {} names", counts.orders, 3 * plan.rounds);
    drop(connections);
    run.nodes.stop().await?;
    Ok(counts)
}

/// Runs and prints what was seen.
pub async fn report(subject: Subject, kind: StoreKind, plan: Plan) -> Result<()> {
    let Plan { rounds, clients, seed } = plan;
    println!("{rounds} rounds of {clients} clients with one {} on {}, seed {seed}", subject.name(), kind.name());
    let started = Instant::now();
    let Counts { equal, duplicates, lost, cut, cut_made, orders } = run(subject, kind, plan).await?;
    println!("  equal answers of {clients} at once            {equal}");
    println!("  other content, refused                  {duplicates}");
    println!("  answers lost after the commit, repeated {lost}");
    println!("  cut off at any moment, repeated         {cut}, of which {cut_made} were there by then");
    println!("  orders in the end, one a name           {orders}");
    println!("  in {:.1} s\n", started.elapsed().as_secs_f64());
    Ok(())
}
