//! The primary server dies under load and its standby takes its place. With a synchronous standby nothing that was acknowledged is lost and
//! nothing that was accepted is accepted again. The control run, with a standby that lags, must lose some: the checks can see it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign_store::testing::{Server, ServerOptions};

use super::Fleet;
use super::crowd::{self, Crowd, SUB_ACCOUNTS, Tally};
use super::restarts::FATE_WITHIN;
use super::span::Spans;

const CONFIG: &str = "rate_limit_per_s = 0\ntimestamp_tolerance_ms = 600000\n";
const NODES: usize = 2;
const DATABASE: &str = "countersign";
/// Writes acknowledged after the failover.
const AFTERWARDS: usize = 100;
/// Writes acknowledged that a standby which lags has not got. Each sender may wait for an answer to what was done before it lagged.
const LOST_MIN: usize = 20;
const ACKNOWLEDGED_LAGGING: usize = SUB_ACCOUNTS + LOST_MIN;
/// From the death of the primary until the first acknowledged write.
pub const READY_WITHIN: Duration = Duration::from_secs(10);

/// Which standby the primary has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standby {
    /// Each commit waits for it.
    Synchronous,
    /// No commit waits for it, and it lags when the primary dies.
    Lagging,
}

/// What all rounds have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Failovers.
    pub failovers: usize,
    /// What was acknowledged, refused and delivered.
    pub tally: Tally,
    /// Acknowledged writes that are not there: versions and events.
    pub lost: usize,
    /// From the death of the primary until the first acknowledged write.
    pub ready: Spans,
}

/// So many failovers, each of clusters of its own. With a synchronous standby an error names what was lost; with a lagging one it says
/// that nothing was.
pub async fn run(standby: Standby, failovers: usize) -> Result<Report> {
    let mut report = Report { failovers, ..Report::default() };
    for round in 0..failovers {
        self::round(round, standby, &mut report).await.with_context(|| format!("failover {round}"))?;
    }
    Ok(report)
}

async fn round(round: usize, kind: Standby, report: &mut Report) -> Result<()> {
    let (mut primary, standby) = tokio::task::block_in_place(|| clusters(kind));
    let url = Server::url_of(&[&primary, &standby], DATABASE);
    let fleet = Fleet::start(NODES, &url, CONFIG).await?;
    let mut crowd = Crowd::gather(&fleet, Duration::ZERO).await?;
    let load = crowd.load();
    load.until_worth_killing().await?;
    if kind == Standby::Lagging {
        tokio::task::block_in_place(|| primary.hold_back());
        load.until_acknowledged(ACKNOWLEDGED_LAGGING).await?;
    }
    let late = crowd.late_drafts();
    let died = Instant::now();
    tokio::task::block_in_place(|| {
        primary.stop_immediately();
        standby.promote();
    });
    load.until_acknowledged(1).await?;
    let blind = died.elapsed();
    report.ready.add(blind);
    load.until_acknowledged(AFTERWARDS).await?;
    let sent = load.stop().await;
    match kind {
        Standby::Synchronous => {
            ensure!(
                sent.unknown.is_empty() || blind > FATE_WITHIN,
                "the fate of {} commits was not found out, though nobody could be asked for {blind:?} only",
                sent.unknown.len()
            );
            crowd.settle(round, &fleet, sent, &late).await?;
            crowd.end(&fleet, None).await?;
        }
        Standby::Lagging => {
            crowd.note(round, sent);
            let lost = crowd.lost(&fleet).await?;
            ensure!(lost.len() >= LOST_MIN, "a standby that lagged has lost {} writes only", lost.len());
            report.lost += lost.len();
        }
    }
    report.tally.add(&crowd.tally);
    Ok(())
}

/// A primary with an empty database and its standby.
fn clusters(kind: Standby) -> (Server, Server) {
    let primary = Server::start(ServerOptions { fsync: true, tcp: true, ..ServerOptions::default() });
    primary.ask("postgres", &format!("CREATE DATABASE {DATABASE}"));
    let standby = primary.standby("standby");
    match kind {
        Standby::Synchronous => primary.set_synchronous("*"),
        Standby::Lagging => {}
    }
    (primary, standby)
}

/// Prints a report.
pub fn print(standby: Standby, report: &Report) {
    match standby {
        Standby::Synchronous => {
            println!("failovers to a synchronous standby    {}", report.failovers);
            crowd::print(&report.tally);
        }
        Standby::Lagging => {
            println!("failovers to a standby that lagged    {}", report.failovers);
            println!("upgrades acknowledged                 {}", report.tally.upgrades);
            println!(
                "acknowledged writes lost              {}: the checks see what an asynchronous standby loses",
                report.lost
            );
        }
    }
    println!("first acknowledged write after death  {}", report.ready);
}
