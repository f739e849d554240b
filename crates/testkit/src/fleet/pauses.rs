//! A node is stopped where it stands until its lease is over, with attempts in flight, and then goes on: what it brings is refused, and
//! the books show each event delivered by whoever had its lane then.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign_store::testing::{Database, LaneLog};
use serde_json::json;

use super::{Fleet, Node};
use crate::patience::until;
use crate::receiver::{Receiver, Reply};

const CONFIG: &str = "rate_limit_per_s = 0\ndispatch_lease = \"3s\"\n";
const NODES: usize = 2;
/// One event of each is in flight in a round: enough that each node has some.
const APPLICATIONS: usize = 12;
/// Lanes of each node.
const SHARE: usize = 64 / NODES;
const SOON: Duration = Duration::from_secs(90);
const FENCED: &str = "countersign_callback_results_fenced_total";

/// What all rounds have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Pauses.
    pub pauses: usize,
    /// Events, all delivered.
    pub events: usize,
    /// Results that a node brought after its lease was over: all refused.
    pub fenced: usize,
    /// Who held which lane.
    pub lanes: LaneLog,
}

/// A fleet whose events go to one receiver.
struct Stage {
    fleet: Fleet,
    receiver: Receiver,
    clients: Vec<String>,
    report: Report,
}

/// Pauses `pauses` times, the nodes in turns. An error names a wrong state or a late result that was believed.
pub async fn run(database: &Database, pauses: usize) -> Result<Report> {
    let fleet = Fleet::start(NODES, &database.url(), CONFIG).await?;
    database.log_lanes().await;
    let receiver = Receiver::start().await?;
    // Not through the proxy, which leaves a node that is late.
    let access = fleet.nodes()[0].access();
    access.institution("bank", 1, None).await?;
    let mut clients = Vec::new();
    for _ in 0..APPLICATIONS {
        clients.push(access.application("bank", Some(&receiver.url())).await?.client_id);
    }
    let mut stage = Stage { fleet, receiver, clients, report: Report { pauses, ..Report::default() } };
    for round in 0..pauses {
        stage.round(round).await.with_context(|| format!("pause {round}"))?;
    }
    let unsound = database.unsound_deliveries().await;
    ensure!(unsound.is_empty(), "{}", unsound.join("; "));
    stage.report.lanes = database.lane_log().await;
    let faults = stage.report.lanes.faults();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    let (attempts, events) = (stage.report.lanes.attempts, i64::try_from(stage.report.events)?);
    ensure!(
        attempts == events,
        "{events} events were each delivered once by a term, but {attempts} attempts are recorded"
    );
    Ok(stage.report)
}

impl Stage {
    async fn round(&mut self, round: usize) -> Result<()> {
        let (paused, awake) = (&self.fleet.nodes()[round % NODES], &self.fleet.nodes()[(round + 1) % NODES]);
        // Both hold lanes again: a node that was stopped is given its share back.
        until("both nodes hold their share of lanes", SOON, async || {
            Ok((lanes_held(paused).await? == SHARE && lanes_held(awake).await? == SHARE).then_some(()))
        })
        .await?;
        let before = (fenced(paused).await?, fenced(awake).await?);
        let already = self.receiver.received().len();
        self.receiver.script(vec![Reply::Held; APPLICATIONS]);
        let mut events = Vec::new();
        for (n, client_id) in self.clients.iter().enumerate() {
            let body = json!({
                "client_id": client_id, "bizType": "PAYMENT_ORDER", "bizId": format!("{round}-{n}"), "bizStatus": "SUCCESS", "data": {"n": n},
            });
            let made = awake.access().provision("POST", "/events", body).await?;
            events.push(made["event_id"].as_str().context("an event id")?.to_owned());
        }
        self.receiver.wait_for(already + APPLICATIONS, SOON).await?;
        paused.server()?.pause().await?;
        // The answers reach the node that stands still, too: it finds them when it goes on.
        self.receiver.release(APPLICATIONS);
        for event in &events {
            let path = format!("/operator/v1/events/{event}");
            let delivered = async || {
                let told = awake.access().call("GET", &path, None).await?.json();
                Ok((told["state"] == "delivered").then_some(()))
            };
            until("the node that is awake takes over and delivers", SOON, delivered).await?;
        }
        paused.server()?.resume()?;
        // Of the node that is awake, too: on a busy machine it may have been late with its own lease, and have sent again.
        let refused = async || {
            let late = self.receiver.received().len() - already - APPLICATIONS;
            let of_paused = fenced(paused).await? - before.0;
            Ok((of_paused + fenced(awake).await? - before.1 == late).then_some((late, of_paused)))
        };
        let ((late, of_paused), _) = until("every late result is refused", SOON, refused).await?;
        ensure!(of_paused > 0, "the node that was stopped had no attempt in flight");
        self.report.fenced += late;
        self.report.events += APPLICATIONS;
        Ok(())
    }
}

/// Results of this node that were refused.
async fn fenced(node: &Node) -> Result<usize> {
    metric(node, FENCED).await
}

async fn lanes_held(node: &Node) -> Result<usize> {
    metric(node, "countersign_dispatch_lanes").await
}

/// The value of a metric without labels; 0 where it is not there yet.
async fn metric(node: &Node, name: &str) -> Result<usize> {
    let answer = node.access().call("GET", "/metrics", None).await?;
    ensure!(answer.status == 200, "metrics are answered {}", answer.status);
    let text = String::from_utf8(answer.body)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(Ok(0), |value| value.trim().parse().with_context(|| format!("{name} {value}")))
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("pauses beyond the lease               {}", report.pauses);
    println!("events, all delivered and recorded    {}", report.events);
    println!("late results, all refused             {}", report.fenced);
    println!("terms of lanes, each one node's       {}", report.lanes.terms.len());
    println!("attempts, each by its lane's term     {}", report.lanes.attempts);
}
