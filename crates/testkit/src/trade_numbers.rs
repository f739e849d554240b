//! One trade number sent by many clients at once, and answers that never arrive: in the end there is one order, and everybody knows it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::patience::until;
use crate::wire::{Connection, Signer, once};
use crate::world::World;

const CREATE: &str = "/v1/pay/order";
const QUERY: &str = "/v1/pay/order/query";
/// How long an order may take to be there.
const MADE_WITHIN: Duration = Duration::from_secs(10);
/// A client that is cut off at any moment is cut off by then, in microseconds.
const CUT_US_MAX: i64 = 3_000;

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of each kind.
    pub rounds: usize,
    /// Clients that send one trade number at once.
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

fn body(trade_no: &str, amount: &str) -> String {
    json!({"merchantTradeNo": trade_no, "currency": "USDT", "orderAmount": amount}).to_string()
}

/// The run's server and who signs.
struct Shop {
    world: World,
    signer: Signer,
}

impl Shop {
    async fn send(&self, target: &str, body: &str) -> Result<Value> {
        Ok(self.world.send(&self.world.draft(&self.signer, "POST", target, body)).await?.json())
    }

    /// The order under a trade number, if it is there.
    async fn found(&self, trade_no: &str) -> Result<Option<String>> {
        let answer = self.send(QUERY, &json!({"merchantTradeNo": trade_no}).to_string()).await?;
        Ok(answer["data"]["prepayId"].as_str().map(str::to_owned))
    }

    /// Makes an order, which must succeed: its number.
    async fn made(&self, trade_no: &str) -> Result<String> {
        let answer = self.send(CREATE, &body(trade_no, "10.5")).await?;
        let id = answer["data"]["prepayId"].as_str();
        Ok(id.with_context(|| format!("{trade_no}: {answer}"))?.to_owned())
    }

    /// Many clients, each on a connection of its own, send the same at once.
    async fn crowd(&self, trade_no: &str, connections: &mut Vec<Connection>) -> Result<usize> {
        let mut under_way = JoinSet::new();
        for mut connection in connections.drain(..) {
            let request = self.world.draft(&self.signer, "POST", CREATE, &body(trade_no, "10.5")).bytes();
            under_way.spawn(async move { connection.send(&request).await.map(|answer| (connection, answer.json())) });
        }
        let mut answers = Vec::new();
        while let Some(ended) = under_way.join_next().await {
            let (connection, answer) = ended??;
            connections.push(connection);
            answers.push(answer);
        }
        let first = answers.first().context("there are clients")?;
        ensure!(first["code"] == "000000", "{trade_no}: {first}");
        ensure!(answers.iter().all(|answer| answer == first), "{trade_no} has two answers: {answers:?}");
        let other = self.send(CREATE, &body(trade_no, "10.500001")).await?;
        ensure!(other["code"] == "400201", "{trade_no} with other content: {other}");
        Ok(answers.len())
    }

    /// A client that is gone before it reads its answer, which was on the way: the repeat gets the order that was made.
    async fn lose(&self, trade_no: &str) -> Result<()> {
        let mut connection = Connection::open(self.world.listen()).await?;
        connection.write(&self.world.draft(&self.signer, "POST", CREATE, &body(trade_no, "10.5")).bytes()).await?;
        let (there, _) = until("the order is there", MADE_WITHIN, async || self.found(trade_no).await).await?;
        drop(connection);
        let again = self.made(trade_no).await?;
        ensure!(again == there, "{trade_no}: {there} was made, and the repeat got {again}");
        Ok(())
    }

    /// A client that is cut off at any moment after it began to send, and repeats at once: whether its order was there by then.
    async fn cut(&self, trade_no: &str, after: Duration) -> Result<bool> {
        let request = self.world.draft(&self.signer, "POST", CREATE, &body(trade_no, "10.5")).bytes();
        let sent = tokio::time::timeout(after, once(self.world.listen(), &request)).await;
        let there = self.found(trade_no).await?;
        let (one, other) = tokio::try_join!(self.made(trade_no), self.made(trade_no))?;
        ensure!(one == other, "{trade_no} is {one} and {other}");
        ensure!(there.as_ref().is_none_or(|there| *there == one), "{trade_no}: {there:?} was there, then {one}");
        if let Ok(Ok(answer)) = sent {
            ensure!(answer.json()["data"]["prepayId"] == one, "{trade_no}: the first answer named another order");
        }
        Ok(there.is_some())
    }

    /// All orders of the deployment.
    async fn orders(&self) -> Result<usize> {
        let (mut count, mut after) = (0, String::new());
        loop {
            let path = format!("/operator/v1/payment-orders?limit=500{after}");
            let page = self.world.access.call("GET", &path, None).await?.json();
            count += page["items"].as_array().context("items")?.len();
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(count),
            }
        }
    }
}

/// Runs the plan on a store of this kind; an error says what was not so.
pub async fn run(kind: StoreKind, plan: Plan) -> Result<Counts> {
    let world = World::start_on(kind, |config| config.rate_limit_per_s = 0).await?;
    let signer = world.access.institution("bank", 0, None).await?;
    let shop = Shop { world, signer };
    let (mut counts, mut dice) = (Counts::default(), Dice::new(plan.seed));
    let mut connections = Vec::new();
    for _ in 0..plan.clients {
        connections.push(Connection::open(shop.world.listen()).await?);
    }
    for round in 0..plan.rounds {
        counts.equal += shop.crowd(&format!("crowd-{round}"), &mut connections).await?;
        counts.duplicates += 1;
        shop.lose(&format!("lost-{round}")).await?;
        counts.lost += 1;
        let after = Duration::from_micros(dice.between(0, CUT_US_MAX).unsigned_abs());
        counts.cut_made += usize::from(shop.cut(&format!("cut-{round}"), after).await?);
        counts.cut += 1;
    }
    counts.orders = shop.orders().await?;
    ensure!(counts.orders == 3 * plan.rounds, "{} orders of {} trade numbers", counts.orders, 3 * plan.rounds);
    Ok(counts)
}

/// Runs and prints what was seen.
pub async fn report(kind: StoreKind, plan: Plan) -> Result<()> {
    let Plan { rounds, clients, seed } = plan;
    println!("{rounds} rounds of {clients} clients with one trade number on {}, seed {seed}\n", kind.name());
    let started = Instant::now();
    let Counts { equal, duplicates, lost, cut, cut_made, orders } = run(kind, plan).await?;
    println!("equal answers of {clients} at once            {equal}");
    println!("other content, refused                  {duplicates}");
    println!("answers lost after the commit, repeated {lost}");
    println!("cut off at any moment, repeated         {cut}, of which {cut_made} were there by then");
    println!("orders in the end, one a trade number   {orders}");
    println!("in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
