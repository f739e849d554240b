//! Kill and restart under load: what was acknowledged must be there, what was used must stay used, what is honest must pass.
//!
//! Each round loads a real process with signed upgrades, signed queries and events, kills it with SIGKILL while at least
//! [`UNANSWERED_MIN`] writes are unanswered and [`ACKNOWLEDGED_MIN`] were acknowledged since its start, starts it again on the same
//! folder, and asks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::backing::{Backing, StoreKind};
use crate::books::{check_acknowledged, check_versions};
use crate::process::{Deployment, Server};
use crate::wire::{Answer, Connection, Draft, Signer, wall_ms};

mod inbox;
pub mod load;

pub use inbox::{Causes, Held, Inbox, Repeats};
use load::{Aim, Broken, Load, Sent};

/// Writes without an answer at each kill, at least.
pub const UNANSWERED_MIN: usize = 32;
/// Writes acknowledged since the start at each kill, at least.
pub const ACKNOWLEDGED_MIN: usize = 100;
/// Sub-accounts that upgrades are spread over; each has one upgrade in flight.
const SUB_ACCOUNTS: usize = 64;
/// Applications that events are for.
const APPLICATIONS: usize = 4;
/// Attempts at once that one application may have by default.
pub const ATTEMPTS_EACH: usize = 8;
/// Callbacks that the receiver has in its hand just before each kill, at least, and how long it has each in between.
pub const IN_HAND_MIN: usize = 4;
const IN_HAND_FOR: Duration = Duration::from_millis(5);
/// On PostgreSQL the server stamps by the database's clock as it knows it, which may be some milliseconds off the one that kills are noted by.
const CLOCKS_APART_MS: i64 = 50;
/// Less than the server waits for an answer: what it gave up would come again without a kill.
const BUSY_WITHIN: Duration = Duration::from_secs(50);

/// What all rounds together have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills.
    pub rounds: usize,
    /// Upgrades that were acknowledged.
    pub upgrades: usize,
    /// Queries that were answered.
    pub queries: usize,
    /// Events that were acknowledged.
    pub events: usize,
    /// Writes that had no answer when the process was killed.
    pub unanswered: usize,
    /// Of these, how many had been done.
    pub unanswered_done: usize,
    /// Requests sent again after a restart, and refused as replays.
    pub replays_refused: usize,
    /// Requests signed before a kill, first sent after the restart, and accepted.
    pub honest_late: usize,
    /// Callbacks that the receiver had in its hand at the kills.
    pub in_hand: usize,
    /// Callbacks that came more than once.
    pub duplicates: usize,
    /// Of these, the most that one kill has led to.
    pub duplicates_of_a_kill: usize,
    /// bizIds whose callbacks came, each in its order.
    pub chains: usize,
    /// From the start of a process to its first line, in ms: the slowest.
    pub ready_ms_max: u128,
    /// The same, the median.
    pub ready_ms_median: u128,
}

/// Every second life of the server has one thread, the others as many as there are processors.
fn serve(deployment: &mut Deployment, life: usize) -> Result<Server> {
    // The load is one application's; its limit is not what is tested here, nor is how old a request may be: a start may take its time.
    let threads = (life + 1) % 2;
    deployment.config = format!(
        "rate_limit_per_s = 0\ntimestamp_tolerance_ms = 600000\nworker_threads = {threads}\ncallback_deadline = \"1m\"\n"
    );
    deployment.serve()
}

/// Runs `rounds` kills in a folder and on a store of its own. An error names what was lost or accepted twice.
pub async fn run(kind: StoreKind, rounds: usize) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(kind).await;
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
    let inbox = Inbox::start_slow(IN_HAND_FOR).await?;
    let mut server = serve(&mut deployment, 0)?;
    let signer = Arc::new(server.access.institution("bank", SUB_ACCOUNTS, Some(&inbox.url())).await?);
    let mut clients = vec![signer.client_id.clone()];
    for _ in 1..APPLICATIONS {
        clients.push(server.access.application("bank", Some(&inbox.url())).await?.client_id);
    }
    let order = server.access.convert_order("bank").await?;
    let mut report = Report { rounds, ..Report::default() };
    let mut ready = Vec::new();
    let (mut owed, mut kills) = (HashSet::new(), Vec::new());
    for round in 1..=rounds {
        let load = Load::start(&Aim {
            listen: server.listen,
            access: server.access.clone(),
            signer: signer.clone(),
            order: order.clone(),
            clients: clients.clone(),
            writers: SUB_ACCOUNTS,
            broken: Broken::End,
        });
        load.until_worth_killing().await?;
        let late = late_drafts(&signer, &order);
        let held = inbox.hold(IN_HAND_MIN, BUSY_WITHIN).await?;
        report.in_hand += held.count();
        let held = if round % 2 == 0 {
            // Right behind the answers, when most are not marked yet; the other kills come before the answers.
            held.release(BUSY_WITHIN).await?;
            None
        } else {
            Some(held)
        };
        server.kill();
        kills.push(wall_ms());
        drop(held);
        let sent = load.end().await;
        server = serve(&mut deployment, round)?;
        ready.push(server.ready_in.as_millis());
        check_round(&server, &sent, &late, &mut report).await?;
        owed.extend(sent.events);
    }
    report.events = owed.len();
    report.duplicates = inbox.wait_for_all(&owed, Duration::from_secs(60)).await?;
    let apart_ms = if kind == StoreKind::Postgres { CLOCKS_APART_MS } else { 0 };
    let repeats = inbox.repeats(&Causes { kills, apart_ms, ..Causes::default() })?;
    report.chains = repeats.chains;
    report.duplicates_of_a_kill = repeats.most();
    let most = APPLICATIONS * ATTEMPTS_EACH;
    ensure!(
        report.duplicates_of_a_kill <= most,
        "a kill led to {} callbacks that came twice; {most} could be in flight",
        report.duplicates_of_a_kill
    );
    check_versions(&server.access, SUB_ACCOUNTS).await?;
    ready.sort_unstable();
    report.ready_ms_max = ready.last().copied().unwrap_or(0);
    report.ready_ms_median = ready.get(ready.len() / 2).copied().unwrap_or(0);
    ensure!(server.terminate()?, "the last process did not end with code 0 after SIGTERM");
    Ok(report)
}

/// Requests of each kind, signed now, sent by nobody yet.
fn late_drafts(signer: &Signer, order: &str) -> Vec<Draft> {
    let read = || signer.draft("GET", &load::query_target(order), b"");
    let write = |n: usize| signer.draft("POST", load::UPGRADE, &load::upgrade_body(n));
    vec![read(), write(1), read(), write(2)]
}

/// Everything that one round has to show.
async fn check_round(server: &Server, sent: &Sent, late: &[Draft], report: &mut Report) -> Result<()> {
    ensure!(sent.refused.is_empty(), "an honest request was refused under load: {:?}", sent.refused.first());
    let mut line = Connection::open(server.listen).await?;
    for draft in late {
        let answer = line.send(&draft.bytes()).await?;
        ensure!(
            answer.code() == "000000",
            "an honest nonce was refused after a restart: {} {}",
            answer.status,
            answer.json()
        );
        report.honest_late += 1;
    }
    for draft in sent.upgrades.iter().map(|(draft, _)| draft).chain(&sent.queries) {
        let answer = line.send(&draft.bytes()).await?;
        ensure!(is_refused(&answer), "an accepted request was accepted again: {} {}", answer.status, answer.json());
        report.replays_refused += 1;
    }
    let config_ids = sent.upgrades.iter().map(|(_, config_id)| config_id);
    drop(line);
    check_acknowledged(&server.access, SUB_ACCOUNTS, config_ids, sent.events.iter()).await?;
    let mut line = Connection::open(server.listen).await?;
    for draft in &sent.unanswered {
        // Done and not told, or not done: either way it can be done once in all.
        let answer = line.send(&draft.bytes()).await?;
        match answer.code().as_str() {
            "000000" | TOO_OLD => {}
            "400021" => report.unanswered_done += 1,
            _ => anyhow::bail!("an unanswered write came to {} {}", answer.status, answer.json()),
        }
        let again = line.send(&draft.bytes()).await?;
        ensure!(is_refused(&again), "an unanswered write was accepted twice: {}", again.json());
    }
    report.upgrades += sent.upgrades.len();
    report.queries += sent.queries.len();
    report.unanswered += sent.unanswered.len();
    Ok(())
}

/// The code of a request whose timestamp is too far away: on a machine that is busy with other things a round may take that long.
const TOO_OLD: &str = "400003";

/// As a replay, or as too old for one.
fn is_refused(answer: &Answer) -> bool {
    matches!(answer.code().as_str(), "400021" | TOO_OLD)
}

/// Prints a report, times included.
pub fn print(report: &Report) {
    println!("kills                                 {}", report.rounds);
    println!("upgrades acknowledged, all found      {}", report.upgrades);
    println!("queries answered                      {}", report.queries);
    println!(
        "events acknowledged, all delivered    {} ({} callbacks came again after a kill, {} of one kill at the most)",
        report.events, report.duplicates, report.duplicates_of_a_kill
    );
    println!("callbacks in hand before the kills    {}", report.in_hand);
    println!("bizIds, callbacks of each in order    {}", report.chains);
    println!(
        "writes unanswered at the kills        {} ({} of them had been done)",
        report.unanswered, report.unanswered_done
    );
    println!("replays sent after restarts, refused  {}", report.replays_refused);
    println!("signed before, sent after, accepted   {}", report.honest_late);
    println!(
        "ready again                           median {} ms, slowest {} ms",
        report.ready_ms_median, report.ready_ms_max
    );
    println!("finished at                           {}", wall_ms());
}
