//! The same signed request to two nodes at once, over and over: one of them says yes, the other that it was used. Also when one of
//! them is killed in between.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::Fleet;
use crate::books::versions;
use crate::dice::Dice;
use crate::wire::{Answer, Connection, Draft, Signer, once};

/// A node that starts again may take its time: what was signed before is to be refused for its nonce, not for its age.
const CONFIG: &str = "rate_limit_per_s = 0\ntimestamp_tolerance_ms = 600000\n";
const SUCCESS: &str = "000000";
const REUSED: &str = "400021";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Writes of the rounds without and with a kill go to a sub-account each.
const CALM: &str = "bank-1";
const KILLED: &str = "bank-2";

/// What the rounds have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rounds in which both nodes lived.
    pub rounds: usize,
    /// Of these, with a write.
    pub writes: usize,
    /// How often each node was the one that said yes.
    pub won: [usize; 2],
    /// Rounds with a kill in between.
    pub kills: usize,
    /// Of these, answered by the killed node before its end.
    pub killed_answered: usize,
    /// Of these, acknowledged by nobody at first, and found done.
    pub done_untold: usize,
    /// Of these, acknowledged by nobody at first, and done when it was sent again.
    pub done_later: usize,
}

/// Two nodes and who calls them.
struct Twins {
    fleet: Fleet,
    signer: Signer,
    order: String,
    dice: Dice,
    report: Report,
}

/// Plays `rounds` with both nodes alive and `kills` with one of them killed. An error names the round and what was said twice or lost.
pub async fn run(database_url: &str, rounds: usize, kills: usize, seed: u64) -> Result<Report> {
    let fleet = Fleet::start(2, database_url, CONFIG).await?;
    // Not through the proxy, which leaves a node that is late.
    let access = fleet.nodes()[0].access();
    let signer = access.institution("bank", 2, None).await?;
    let order = access.convert_order("bank").await?;
    let mut twins = Twins { fleet, signer, order, dice: Dice::new(seed), report: Report::default() };
    let mut connections = twins.connect().await?;
    for round in 0..rounds {
        twins.calm(round, &mut connections).await.with_context(|| format!("round {round}, seed {seed}"))?;
    }
    let made = versions(twins.fleet.access(), CALM).await?.len();
    ensure!(
        made == twins.report.writes,
        "{} writes were acknowledged, but {made} versions are there",
        twins.report.writes
    );
    for kill in 0..kills {
        twins.killed(kill).await.with_context(|| format!("kill {kill}, seed {seed}"))?;
    }
    Ok(twins.report)
}

/// Prints a report.
pub fn print(report: &Report) {
    let Report { rounds, writes, won, kills, .. } = report;
    println!("same request to two nodes at once     {rounds} ({writes} writes)");
    println!("exactly one success, other REUSED     {rounds} (first node {}, second {})", won[0], won[1]);
    println!("with one of the two killed between    {kills}, never two successes");
    println!("  the killed one had answered         {}", report.killed_answered);
    println!("  acknowledged by nobody, found done  {}", report.done_untold);
    println!("  acknowledged by nobody, done later  {}", report.done_later);
}

impl Twins {
    fn addresses(&self) -> [SocketAddr; 2] {
        [self.fleet.nodes()[0].listen(), self.fleet.nodes()[1].listen()]
    }

    /// Warm connections: each has carried a request.
    async fn connect(&self) -> Result<[Connection; 2]> {
        let [first, second] = self.addresses();
        let mut connections = [Connection::open(first).await?, Connection::open(second).await?];
        for connection in &mut connections {
            let answer = connection.send(&self.draft(false, CALM).bytes()).await?;
            ensure!(answer.code() == SUCCESS, "{}", answer.json());
        }
        Ok(connections)
    }

    fn draft(&self, is_write: bool, sub: &str) -> Draft {
        if is_write {
            let body = json!({"sub_merchant_id": sub, "r_markup": 0.3, "effective_date": "2020-01-01 00:00:00"});
            self.signer.draft("POST", "/rate/commission_rule/upgrade", body.to_string().as_bytes())
        } else {
            self.signer.draft("GET", &format!("/v1/pay/convert/order?orderId={}", self.order), b"")
        }
    }

    async fn calm(&mut self, round: usize, connections: &mut [Connection; 2]) -> Result<()> {
        let is_write = round % 2 == 1;
        let draft = self.draft(is_write, CALM);
        // Either node is the first to get the last byte as often.
        release(&draft, connections, round / 2 % 2).await?;
        let [first, second] = connections;
        let both = timeout(PATIENCE, async { tokio::try_join!(first.read(), second.read()) });
        let (first, second) = both.await.context("an answer is missing")??;
        let codes = [first.code(), second.code()];
        let winner = match [codes[0].as_str(), codes[1].as_str()] {
            [SUCCESS, REUSED] => 0,
            [REUSED, SUCCESS] => 1,
            _ => bail!("the nodes answered {} and {}", first.json(), second.json()),
        };
        self.report.won[winner] += 1;
        self.report.rounds += 1;
        self.report.writes += usize::from(is_write);
        Ok(())
    }

    async fn killed(&mut self, kill: usize) -> Result<()> {
        let is_write = kill.is_multiple_of(2);
        let victim = kill / 2 % 2;
        let before = versions(self.fleet.access(), KILLED).await?.len();
        let draft = self.draft(is_write, KILLED);
        let mut connections = self.connect().await?;
        release(&draft, &mut connections, victim).await?;
        // From before the request is read until after it is answered.
        sleep(Duration::from_micros(u64::try_from(self.dice.below(8))? * 500)).await;
        self.fleet.nodes_mut()[victim].kill();
        let [first, second] = connections.each_mut();
        let (first, second) = tokio::join!(timeout(PATIENCE, first.read()), timeout(PATIENCE, second.read()));
        let answers = [first.context("no end")?.ok(), second.context("no end")?.ok()];
        self.report.kills += 1;
        self.report.killed_answered += usize::from(answers[victim].is_some());
        ensure!(answers[1 - victim].is_some(), "the node that lived broke its connection");
        let told = successes(answers.iter().flatten())?;
        ensure!(told <= 1, "both nodes said yes");
        let survivor = self.addresses()[1 - victim];
        let again = once(survivor, &draft.bytes()).await?;
        let later = successes([&again].into_iter())?;
        ensure!(told + later <= 1, "it was accepted twice: at first and when it was sent again");
        self.report.done_later += later;
        self.report.done_untold += usize::from(told + later == 0);
        self.fleet.nodes_mut()[victim].start()?;
        for address in self.addresses() {
            let answer = once(address, &draft.bytes()).await?;
            ensure!(answer.code() == REUSED, "after the restart it was answered {}", answer.json());
        }
        let made = versions(self.fleet.nodes()[1 - victim].access(), KILLED).await?.len() - before;
        ensure!(made == usize::from(is_write), "one write made {made} versions");
        self.fleet.until_seen().await
    }
}

/// Sends all but the last byte to both, and then the last byte to both, to `first` a moment before.
async fn release(draft: &Draft, connections: &mut [Connection; 2], first: usize) -> Result<()> {
    let bytes = draft.bytes();
    let (last, most) = bytes.split_last().context("a request has bytes")?;
    for connection in connections.iter_mut() {
        connection.write(most).await?;
    }
    for number in [first, 1 - first] {
        connections[number].write(&[*last]).await?;
    }
    Ok(())
}

/// How many said yes. Whoever did not must have said that it was used, or that he cannot say.
fn successes<'a>(answers: impl Iterator<Item = &'a Answer>) -> Result<usize> {
    let mut count = 0;
    for answer in answers {
        match (answer.code().as_str(), answer.status) {
            (SUCCESS, _) => count += 1,
            (REUSED, _) | (_, 503) => {}
            _ => bail!("answered {} {}", answer.status, answer.json()),
        }
    }
    Ok(count)
}
