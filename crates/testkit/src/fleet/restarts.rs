//! PostgreSQL itself is restarted under load, in order and as by a crash in turns: nodes answer 503 while it is away, never 500, lose
//! nothing, and write again soon after it is back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign_store::testing::{Server, ServerOptions};

use super::Fleet;
use super::crowd::{self, Crowd, Tally};
use super::span::Spans;

const CONFIG: &str = "rate_limit_per_s = 0\ntimestamp_tolerance_ms = 600000\ndispatch_lease = \"1s\"\n";
const NODES: usize = 2;
const DATABASE: &str = "countersign";
/// Writes acknowledged after each restart.
const AFTERWARDS: usize = 100;
/// A node looks for the fate of a commit for 5 s. A server that was away for less, and was busy before, leaves nobody in the dark. What counts is when
/// the node could ask again: a server that is up may be slow to take it in.
pub(super) const FATE_WITHIN: Duration = Duration::from_secs(4);
/// From the return of the server until the first acknowledged write.
pub const RECOVERED_WITHIN: Duration = Duration::from_secs(2);

/// What all rounds have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Restarts.
    pub restarts: usize,
    /// What was acknowledged, refused and delivered.
    pub tally: Tally,
    /// How long the server was away.
    pub away: Spans,
    /// From the return of the server until the first acknowledged write.
    pub recovered: Spans,
}

/// So many restarts of one server. An error names what was lost or answered wrongly.
pub async fn run(restarts: usize) -> Result<Report> {
    let mut server = tokio::task::block_in_place(|| {
        let server = Server::start(ServerOptions { fsync: true, ..ServerOptions::default() });
        server.ask("postgres", &format!("CREATE DATABASE {DATABASE}"));
        server
    });
    let fleet = Fleet::start(NODES, &server.url(DATABASE), CONFIG).await?;
    let mut crowd = Crowd::gather(&fleet, Duration::ZERO).await?;
    let mut report = Report { restarts, ..Report::default() };
    for round in 0..restarts {
        let times = self::round(round, &mut server, &fleet, &mut crowd).await;
        let (away, recovered) = times.with_context(|| format!("restart {round}"))?;
        report.away.add(away);
        report.recovered.add(recovered);
    }
    crowd.end(&fleet, None).await?;
    report.tally = crowd.tally;
    Ok(report)
}

/// One restart: how long the server was away, and how long after its return the first write was acknowledged. The load goes to a node directly: a proxy would send nobody to a
/// node without a database.
async fn round(round: usize, server: &mut Server, fleet: &Fleet, crowd: &mut Crowd) -> Result<(Duration, Duration)> {
    let load = crowd.load_on(&fleet.nodes()[round % NODES]);
    load.until_worth_killing().await?;
    let late = crowd.late_drafts();
    let stopped = Instant::now();
    let back = tokio::task::block_in_place(|| {
        if round.is_multiple_of(2) {
            server.stop();
        } else {
            server.stop_immediately();
        }
        server.start_again();
        Instant::now()
    });
    load.until_acknowledged(1).await?;
    let (recovered, blind) = (back.elapsed(), stopped.elapsed());
    load.until_acknowledged(AFTERWARDS).await?;
    let sent = load.stop().await;
    let away = back - stopped;
    ensure!(
        sent.unknown.is_empty() || blind > FATE_WITHIN,
        "the fate of {} commits was not found out, though the server could not be asked for {blind:?} only",
        sent.unknown.len()
    );
    ensure!(sent.broken == 0, "a node broke {} connections because its database was away", sent.broken);
    crowd.settle(round, fleet, sent, &late).await?;
    Ok((away, recovered))
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("restarts of PostgreSQL under load     {}", report.restarts);
    crowd::print(&report.tally);
    println!("server away                           {}", report.away);
    println!("first acknowledged write after return {}", report.recovered);
}
