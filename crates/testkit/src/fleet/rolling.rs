//! One node after the other is told to stop, ends and is started again, as for an upgrade, under load: whoever calls through the proxy does not
//! notice. No request fails, none is cut off, and no callback comes twice.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign_store::testing::Database;

use super::crowd::{self, Crowd, Tally};
use super::span::Spans;
use super::{Fleet, UnderWay};

/// A node lingers until the proxy has noticed, when it is told a second time; for as long as that may take. No lease runs out on a busy machine.
const CONFIG: &str =
    "rate_limit_per_s = 0\ntimestamp_tolerance_ms = 600000\ndispatch_lease = \"10s\"\n[limits]\nstop_delay = \"2m\"\n";
const NODES: usize = 2;
/// How long the receiver takes: so that attempts are in flight when a node is told to stop.
const INBOX_DELAY: Duration = Duration::from_millis(20);
/// Writes acknowledged before a node is told to stop, and after it is back.
const EACH: usize = 100;

/// What all rounds have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Nodes that were stopped and started.
    pub replaced: usize,
    /// What was acknowledged and delivered.
    pub tally: Tally,
    /// From the word to stop to the end of the process.
    pub ended: Spans,
}

/// Replaces so many nodes. An error names what somebody noticed of it.
pub async fn run(database: &Database, replaced: usize) -> Result<Report> {
    let mut fleet = Fleet::start_with(NODES, &database.url(), CONFIG, UnderWay::End).await?;
    let mut crowd = Crowd::gather(&fleet, INBOX_DELAY).await?;
    let mut report = Report { replaced, ..Report::default() };
    for round in 0..replaced {
        let ended = self::round(round, &mut fleet, &mut crowd).await.with_context(|| format!("node {round}"))?;
        report.ended.add(ended);
    }
    crowd.end(&fleet, Some(database)).await?;
    report.tally = crowd.tally;
    ensure!(report.tally.duplicates == 0, "{} callbacks came more than once", report.tally.duplicates);
    Ok(report)
}

/// One node goes and comes back; how long it took to go.
async fn round(round: usize, fleet: &mut Fleet, crowd: &mut Crowd) -> Result<Duration> {
    let load = crowd.load();
    load.until_acknowledged(EACH).await?;
    let late = crowd.late_drafts();
    let told = Instant::now();
    let leaves = round % NODES;
    fleet.nodes()[leaves].server()?.tell_to_stop()?;
    fleet.until_without(leaves).await?;
    let node = &mut fleet.nodes_mut()[leaves];
    ensure!(node.leave().await?, "it did not end with code 0 after SIGTERM");
    let ended = told.elapsed();
    node.start()?;
    fleet.until_seen().await?;
    load.until_acknowledged(EACH).await?;
    let sent = load.stop().await;
    ensure!(sent.away == 0, "{} requests were answered 502, 503 or 504", sent.away);
    ensure!(sent.broken == 0, "{} connections broke", sent.broken);
    ensure!(sent.unanswered.is_empty(), "{} writes got no answer", sent.unanswered.len());
    ensure!(sent.unknown.is_empty(), "the fate of {} writes is unknown", sent.unknown.len());
    crowd.settle(round, fleet, sent, &late).await?;
    Ok(ended)
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("nodes replaced under load, in turns   {}, and no request failed", report.replaced);
    crowd::print(&report.tally);
    println!("from SIGTERM to the node's end        {}", report.ended);
}
