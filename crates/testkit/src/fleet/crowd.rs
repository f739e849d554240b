//! Who uses a fleet in the long runs: an institution that upgrades and queries, and many applications that get callbacks; and the checks
//! that every such run makes.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use countersign_store::testing::Database;

use super::{Fleet, Node};
use crate::books::{check_versions, config_ids, read};
use crate::kill::Inbox;
use crate::kill::load::{Aim, Broken, Load, Sent, UPGRADE, query_target, upgrade_body};
use crate::wire::{Answer, Connection, Draft, wall_ms};

/// Sub-accounts that upgrades are spread over; each has one upgrade in flight.
pub const SUB_ACCOUNTS: usize = 48;
/// Applications whose callbacks are delivered: so many that every one of three nodes has lanes of some. Lanes go by chance: that one has none of
/// them all happens once in a hundred million times.
pub const APPLICATIONS: usize = 48;
/// Requests older than this may be refused for their age instead of their nonce. Nodes of these runs have ten minutes as their bound: what was
/// signed before the trouble is sent behind it, however long that takes.
const FRESH_MS: i64 = 590_000;
/// How long the last callback may take, after leases and retries.
const DELIVERED_WITHIN: Duration = Duration::from_secs(90);
/// How long a request may be answered 503 after the trouble is over, and how often it is sent again.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const REPEAT_PERIOD: Duration = Duration::from_millis(20);

/// What the checks of all rounds have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Upgrades that were acknowledged.
    pub upgrades: usize,
    /// Queries that were answered.
    pub queries: usize,
    /// Writes without an answer.
    pub unanswered: usize,
    /// Of these, how many had been done.
    pub unanswered_done: usize,
    /// Answers of 502, 503 and 504 under load.
    pub away: usize,
    /// Writes that a node answered with 503, sent again and done.
    pub declined: usize,
    /// Writes of which nobody knew whether they were done.
    pub unknown: usize,
    /// Accepted requests that were sent again and refused.
    pub replays_refused: usize,
    /// Requests signed before the trouble, first sent after it, and accepted.
    pub honest_late: usize,
    /// Events that were acknowledged.
    pub events: usize,
    /// Callbacks that came more than once.
    pub duplicates: usize,
}

impl Tally {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.upgrades += other.upgrades;
        self.queries += other.queries;
        self.unanswered += other.unanswered;
        self.unanswered_done += other.unanswered_done;
        self.away += other.away;
        self.declined += other.declined;
        self.unknown += other.unknown;
        self.replays_refused += other.replays_refused;
        self.honest_late += other.honest_late;
        self.events += other.events;
        self.duplicates += other.duplicates;
    }
}

/// The users and what they were told.
#[derive(Debug)]
pub struct Crowd {
    aim: Aim,
    inbox: Inbox,
    /// Versions that were acknowledged, with the round.
    told: HashMap<String, usize>,
    owed: HashSet<String>,
    /// What was counted so far.
    pub tally: Tally,
}

impl Crowd {
    /// Provisions a fresh fleet. `inbox_delay`: how long the receiver takes for each answer.
    pub async fn gather(fleet: &Fleet, inbox_delay: Duration) -> Result<Self> {
        let inbox = Inbox::start_slow(inbox_delay).await?;
        // Not through the proxy, which leaves a node that is late.
        let access = fleet.nodes()[0].access();
        let signer = Arc::new(access.institution("bank", SUB_ACCOUNTS, None).await?);
        let order = access.convert_order("bank").await?;
        let mut clients = Vec::new();
        for _ in 0..APPLICATIONS {
            clients.push(access.application("bank", Some(&inbox.url())).await?.client_id);
        }
        let aim = Aim {
            listen: fleet.listen(),
            access: fleet.access().clone(),
            signer,
            order,
            clients,
            writers: SUB_ACCOUNTS,
            broken: Broken::GoOn,
        };
        Ok(Self { aim, inbox, told: HashMap::new(), owed: HashSet::new(), tally: Tally::default() })
    }

    /// Begins a round's load through the proxy.
    pub fn load(&self) -> Load {
        Load::start(&self.aim)
    }

    /// Begins a round's load on one node directly.
    pub fn load_on(&self, node: &Node) -> Load {
        Load::start(&Aim { listen: node.listen(), access: node.access().clone(), ..self.aim.clone() })
    }

    /// Where callbacks go.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Waits until these events and all of earlier rounds have been delivered.
    pub async fn until_delivered(&self, events: &HashSet<String>, within: Duration) -> Result<()> {
        self.inbox.wait_for_all(&self.owed.union(events).cloned().collect(), within).await?;
        Ok(())
    }

    /// Requests of each kind, signed now, sent by nobody yet.
    pub fn late_drafts(&self) -> Vec<Draft> {
        let read = || self.aim.signer.draft("GET", &query_target(&self.aim.order), b"");
        let write = |n: usize| self.aim.signer.draft("POST", UPGRADE, &upgrade_body(n));
        vec![read(), write(1), read(), write(2)]
    }

    /// Checks what a round's load was told, and what was signed before the trouble, with every node in turns.
    pub async fn settle(&mut self, round: usize, fleet: &Fleet, sent: Sent, late: &[Draft]) -> Result<()> {
        ensure!(sent.refused.is_empty(), "an honest request was refused under load: {:?}", sent.refused.first());
        let mut doors = Doors::open(fleet).await?;
        for draft in late {
            let answer = doors.send_until_served(draft).await?;
            ensure!(answer.code() == "000000", "an honest nonce was refused: {} {}", answer.status, answer.json());
            self.tally.honest_late += 1;
        }
        for draft in sent.upgrades.iter().map(|(draft, _)| draft).chain(&sent.queries) {
            let answer = doors.send_until_served(draft).await?;
            ensure!(is_replay(&answer, draft), "accepted again: {} {}", answer.status, answer.json());
            self.tally.replays_refused += 1;
        }
        for draft in &sent.unanswered {
            // Done and not told, or not done: either way it can be done once in all.
            let answer = doors.send_until_served(draft).await?;
            match answer.code().as_str() {
                "000000" => {}
                _ if is_replay(&answer, draft) => self.tally.unanswered_done += 1,
                _ => bail!("an unanswered write came to {} {}", answer.status, answer.json()),
            }
            let again = doors.send_until_served(draft).await?;
            // At the edge of the tolerance one node's clock may call it too old a moment before another's does.
            let was_too_old = answer.code() == "400003" && again.code() == "000000";
            ensure!(
                was_too_old || is_replay(&again, draft),
                "a write without an answer, sent again to two nodes, was answered {} and {}",
                answer.json(),
                again.json()
            );
        }
        for draft in &sent.declined {
            let answer = doors.send_until_served(draft).await?;
            let open = answer.code() == "000000" || answer.code() == "400003" && is_replay(&answer, draft);
            ensure!(open, "503 said that nothing was done, but sent again it was {} {}", answer.status, answer.json());
            self.tally.declined += 1;
        }
        for draft in &sent.unknown {
            doors.once_at_most(draft).await?;
        }
        self.note(round, sent);
        Ok(())
    }

    /// Notes what a round's load was told.
    pub fn note(&mut self, round: usize, sent: Sent) {
        self.tally.upgrades += sent.upgrades.len();
        self.tally.queries += sent.queries.len();
        self.tally.unanswered += sent.unanswered.len();
        self.tally.away += sent.away;
        self.tally.unknown += sent.unknown.len();
        self.told.extend(sent.upgrades.into_iter().map(|(_, config_id)| (config_id, round)));
        self.owed.extend(sent.events);
    }

    /// Checks what is there at the end: every acknowledged version and event, versions without a gap, every event delivered, and
    /// attempts without a gap in the books.
    pub async fn end(&mut self, fleet: &Fleet, database: Option<&Database>) -> Result<()> {
        self.tally.events = self.owed.len();
        self.tally.duplicates = self.inbox.wait_for_all(&self.owed, DELIVERED_WITHIN).await?;
        let lost = self.lost(fleet).await?;
        ensure!(lost.is_empty(), "{} acknowledged writes are lost, such as {:?}", lost.len(), lost.first());
        check_versions(fleet.access(), SUB_ACCOUNTS).await?;
        if let Some(database) = database {
            let sound = async || Ok(database.unsound_deliveries().await.is_empty().then_some(()));
            let settled = crate::patience::until("every delivery is recorded", DELIVERED_WITHIN, sound).await;
            settled.with_context(|| "a delivery is not as it should be")?;
        }
        Ok(())
    }

    /// What was acknowledged and is not there: versions with their round, and events.
    pub async fn lost(&self, fleet: &Fleet) -> Result<Vec<String>> {
        let there = config_ids(fleet.access(), SUB_ACCOUNTS).await?;
        let versions = self.told.iter().filter(|(id, _)| !there.contains(*id));
        let mut lost: Vec<String> = versions.map(|(id, round)| format!("version {id} of round {round}")).collect();
        let mut connection = Connection::open(fleet.access().address).await?;
        for id in &self.owed {
            let answer = read(fleet.access(), &mut connection, &format!("/operator/v1/events/{id}")).await?;
            if answer.status != 200 {
                lost.push(format!("event {id}: {}", answer.status));
            }
        }
        Ok(lost)
    }
}

/// Whether an answer says that a request was used before, or, where it is old by now, that it is too old.
fn is_replay(answer: &Answer, draft: &Draft) -> bool {
    let stamped = draft.headers.iter().find(|(name, _)| name == "X-Service-Timestamp");
    let stamped: i64 = stamped.and_then(|(_, value)| value.parse().ok()).unwrap_or_default();
    match answer.code().as_str() {
        "400021" => true,
        "400003" => wall_ms() - stamped > FRESH_MS,
        _ => false,
    }
}

/// A connection to each node that is up, used in turns.
struct Doors {
    lines: Vec<(SocketAddr, Connection)>,
    next: usize,
}

impl Doors {
    async fn open(fleet: &Fleet) -> Result<Self> {
        let mut lines = Vec::new();
        for node in fleet.nodes().iter().filter(|node| node.is_up()) {
            lines.push((node.listen(), Connection::open(node.listen()).await?));
        }
        ensure!(!lines.is_empty(), "no node is up");
        Ok(Self { lines, next: 0 })
    }

    /// Sends a request to every node: whatever became of it before, one of them may do it, and once.
    async fn once_at_most(&mut self, draft: &Draft) -> Result<()> {
        let mut done = 0;
        for _ in 0..self.lines.len() {
            let answer = self.send_until_served(draft).await?;
            done += usize::from(answer.code() == "000000");
            ensure!(answer.code() == "000000" || is_replay(&answer, draft), "{} {}", answer.status, answer.json());
        }
        ensure!(done <= 1, "{done} nodes did the same request");
        Ok(())
    }

    /// Sends a request as an honest client does: a 503 says to repeat it.
    async fn send_until_served(&mut self, draft: &Draft) -> Result<Answer> {
        let deadline = Instant::now() + SERVED_WITHIN;
        loop {
            let answer = self.send(draft).await?;
            if answer.status != 503 || Instant::now() > deadline {
                return Ok(answer);
            }
            tokio::time::sleep(REPEAT_PERIOD).await;
        }
    }

    async fn send(&mut self, draft: &Draft) -> Result<Answer> {
        self.next = (self.next + 1) % self.lines.len();
        let (address, connection) = &mut self.lines[self.next];
        connection.send(&draft.bytes()).await.with_context(|| format!("the node at {address} broke its connection"))
    }
}

/// Prints what the checks have counted.
pub fn print(tally: &Tally) {
    println!("upgrades acknowledged, all found      {}", tally.upgrades);
    println!("queries answered                      {}", tally.queries);
    println!(
        "events acknowledged, all delivered    {} ({} callbacks came more than once)",
        tally.events, tally.duplicates
    );
    println!(
        "writes without an answer              {} ({} of them had been done)",
        tally.unanswered, tally.unanswered_done
    );
    println!("answers of 502, 503, 504              {}", tally.away);
    println!("writes told 503, sent again, done     {}", tally.declined);
    if tally.unknown > 0 {
        println!("answers of \"outcome unknown\"          {}", tally.unknown);
    }
    println!("replays of all accepted, refused      {}", tally.replays_refused);
    println!("signed before, sent after, accepted   {}", tally.honest_late);
}
