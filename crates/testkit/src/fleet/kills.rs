//! One node after the other is killed under load, again and again: what was acknowledged is there, every event is delivered, those of a
//! bizId in order, a callback comes again only for a kill or a lease that ran out between, and no two nodes ever had the same term of a lane.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign_store::testing::{Database, LaneLog};

use super::crowd::{self, Crowd, Tally};
use super::{Fleet, NODES_MAX};
use crate::fleet::sockets::connections;
use crate::kill::{ATTEMPTS_EACH, Causes, Repeats};
use crate::patience::until;
use crate::process::Server;
use crate::wire::wall_ms;

/// The lease as it is shipped: longer than most machines keep a heartbeat waiting. One that runs out may be a callback that comes twice. A node that
/// starts again takes what it had at once.
const CONFIG: &str = "rate_limit_per_s = 0\ntimestamp_tolerance_ms = 600000\n";
/// How long the receiver takes: so that attempts are in flight at each kill.
const INBOX_DELAY: Duration = Duration::from_millis(20);
/// Writes acknowledged while a node is down, and after it came back.
const MEANWHILE: usize = 100;
const UNDER_WAY_WITHIN: Duration = Duration::from_secs(90);
/// Far more than clocks of one machine differ, and far less than it takes until another node may send.
const CLOCKS_APART_MS: i64 = 100;
/// The same between the clock by which a node signs, which it knows by its quickest question, and the database's own.
const TAKEN_APART_MS: i64 = 50;
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(90);

/// What all rounds have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills.
    pub kills: usize,
    /// What was acknowledged, refused and delivered.
    pub tally: Tally,
    /// Connections that the killed nodes had to the receiver. An attempt is in flight until it is recorded, so some may be without one.
    pub connections: usize,
    /// Callbacks that came again after a kill.
    pub repeats: Repeats,
    /// Who held which lane.
    pub lanes: LaneLog,
}

/// Kills `kills` times. An error names what was lost, done twice or honoured twice.
pub async fn run(database: &Database, kills: usize) -> Result<Report> {
    let mut fleet = Fleet::start(NODES_MAX, &database.url(), CONFIG).await?;
    database.log_lanes().await;
    let mut crowd = Crowd::gather(&fleet, INBOX_DELAY).await?;
    let mut report = Report { kills, ..Report::default() };
    let mut killed_at = Vec::new();
    for round in 0..kills {
        let deed = self::round(round, &mut fleet, &mut crowd).await.with_context(|| format!("kill {round}"))?;
        report.connections += deed.connections;
        killed_at.push(deed.stood_still_at);
    }
    crowd.end(&fleet, Some(database)).await?;
    report.tally = crowd.tally;
    report.lanes = database.lane_log().await;
    // What came again was signed by two holders of a lane, one after the other; by nobody twice.
    let lanes = database.lanes().await;
    let of_each = |instants: HashMap<i64, Vec<i64>>| {
        lanes.iter().filter_map(|(client_id, lane)| Some((client_id.clone(), instants.get(lane)?.clone()))).collect()
    };
    let (taken, began) = (of_each(report.lanes.run_out()), Some(of_each(report.lanes.began())));
    let causes = Causes { kills: killed_at, taken, began, apart_ms: TAKEN_APART_MS };
    report.repeats = crowd.inbox().repeats(&causes)?;
    let most = crowd::APPLICATIONS * ATTEMPTS_EACH;
    ensure!(
        report.repeats.most() <= most,
        "a kill led to {} callbacks that came again; {most} could be in flight",
        report.repeats.most()
    );
    for node in fleet.nodes_mut() {
        ensure!(node.terminate()?, "a node did not end with code 0 after SIGTERM");
    }
    report.lanes = database.lane_log().await;
    let faults = report.lanes.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    // What was recorded was not sent again: an attempt that came to nothing is one that was never recorded.
    let (attempts, deliveries) = (report.lanes.attempts, database.deliveries().await);
    ensure!(
        attempts == deliveries,
        "{deliveries} events have {attempts} recorded attempts; the receiver took each at once"
    );
    Ok(report)
}

/// One kill.
struct Deed {
    /// Connections that the node had to the receiver.
    connections: usize,
    /// When the node had signed its last, in ms since 1970: it was killed as it stood still.
    stood_still_at: i64,
}

async fn round(round: usize, fleet: &mut Fleet, crowd: &mut Crowd) -> Result<Deed> {
    let load = crowd.load();
    load.until_worth_killing().await?;
    let late = crowd.late_drafts();
    let victim = round % fleet.nodes().len();
    let (node, receiver) = (fleet.nodes()[victim].server()?, crowd.inbox().address());
    let (deed, _) =
        until("callbacks are under way", UNDER_WAY_WITHIN, async || stand_still(node, receiver).await).await?;
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
    Ok(deed)
}

/// Stops a node where it stands if it has callbacks under way there: what it dies with. The others take its lanes when its lease is over,
/// which is later by far.
async fn stand_still(node: &Server, receiver: SocketAddr) -> Result<Option<Deed>> {
    // Looked at as it runs first: one that is stopped again and again on a busy machine hardly runs at all, and loses its lanes.
    if connections(node.pid(), receiver)? == 0 {
        return Ok(None);
    }
    node.pause().await?;
    // By our clock. The node stamps by the database's as it knows it, which may be some milliseconds ahead.
    let stood_still_at = wall_ms() + CLOCKS_APART_MS;
    let connections = connections(node.pid(), receiver)?;
    if connections == 0 {
        node.resume()?;
    }
    Ok((connections > 0).then_some(Deed { connections, stood_still_at }))
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("kills, one node after the other       {}", report.kills);
    crowd::print(&report.tally);
    println!("callbacks that came again, of a kill  {} at the most", report.repeats.most());
    println!("the same, of a lease that ran out     {}", report.repeats.of_leases);
    println!("bizIds, callbacks of each in order    {}", report.repeats.chains);
    println!("connections that died with a node     {}", report.connections);
    println!("terms of lanes, each one node's       {}", report.lanes.terms.len());
    println!("lanes that went to another node       {}", report.lanes.handovers());
    println!("attempts, each by its lane's term     {}", report.lanes.attempts);
}
