//! One node after the other is killed under load, again and again: what was acknowledged is there, every event is delivered, and no two
//! nodes ever had the same term of a lane.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign_store::testing::{Database, LaneLog};

use super::crowd::{self, Crowd, Tally};
use super::{Fleet, NODES_MAX};
use crate::fleet::sockets::connections;

/// Short, so that another node takes over within a round; a node that starts again takes what it had at once.
const CONFIG: &str = "rate_limit_per_s = 0\ndispatch_lease = \"1s\"\n";
/// How long the receiver takes: so that attempts are in flight at each kill.
const INBOX_DELAY: Duration = Duration::from_millis(20);
/// Writes acknowledged while a node is down, and after it came back.
const MEANWHILE: usize = 100;
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);

/// What all rounds have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills.
    pub kills: usize,
    /// What was acknowledged, refused and delivered.
    pub tally: Tally,
    /// Attempts in flight at the kills: connections that the killed node had to the receiver.
    pub in_flight: usize,
    /// Who held which lane.
    pub lanes: LaneLog,
}

/// Kills `kills` times. An error names what was lost, done twice or honoured twice.
pub async fn run(database: &Database, kills: usize) -> Result<Report> {
    let mut fleet = Fleet::start(NODES_MAX, &database.url(), CONFIG).await?;
    database.log_lanes().await;
    let mut crowd = Crowd::gather(&fleet, INBOX_DELAY).await?;
    let mut report = Report { kills, ..Report::default() };
    for round in 0..kills {
        report.in_flight +=
            self::round(round, &mut fleet, &mut crowd).await.with_context(|| format!("kill {round}"))?;
    }
    crowd.end(&fleet, Some(database)).await?;
    report.tally = crowd.tally;
    ensure!(
        report.tally.duplicates <= report.in_flight,
        "{} callbacks came more than once, but {} attempts were in flight at the kills",
        report.tally.duplicates,
        report.in_flight
    );
    for node in fleet.nodes_mut() {
        ensure!(node.terminate()?, "a node did not end with code 0 after SIGTERM");
    }
    report.lanes = database.lane_log().await;
    let faults = report.lanes.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(report)
}

/// One kill; how many attempts the killed node had in flight.
async fn round(round: usize, fleet: &mut Fleet, crowd: &mut Crowd) -> Result<usize> {
    let load = crowd.load();
    load.until_worth_killing().await?;
    let late = crowd.late_drafts();
    let victim = round % fleet.nodes().len();
    // It stands still while its connections are counted: what it has in flight is what it dies with.
    fleet.nodes()[victim].server()?.pause().await?;
    let in_flight = connections(fleet.nodes()[victim].server()?.pid(), crowd.inbox().address())?;
    fleet.nodes_mut()[victim].kill();
    load.until_acknowledged(MEANWHILE).await?;
    if round % 2 == 1 {
        // The others take over what it had.
        crowd.until_delivered(&load.events(), TAKEN_OVER_WITHIN).await?;
    }
    fleet.nodes_mut()[victim].start()?;
    fleet.until_seen().await?;
    load.until_acknowledged(MEANWHILE).await?;
    let sent = load.stop().await;
    ensure!(sent.unknown.is_empty(), "the database was there, but the fate of {} commits unknown", sent.unknown.len());
    crowd.settle(round, fleet, sent, &late).await?;
    Ok(in_flight)
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("kills, one node after the other       {}", report.kills);
    crowd::print(&report.tally);
    println!("attempts in flight at the kills       {}, at least as many as came twice", report.in_flight);
    println!("terms of lanes, each one node's       {}", report.lanes.terms.len());
    println!("lanes that went to another node       {}", report.lanes.handovers());
    println!("attempts, each by its lane's term     {}", report.lanes.attempts);
}
