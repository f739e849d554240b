//! What nodes must know of each other: who is alive, who delivers for which lanes, the database's time, which applications have changed.
//!
//! Invariant: a lane and its fence are given to one taker: the row is locked while it is taken, and each taking raises the fence.
//! Invariant: a commit that is guarded by a fence and the taking of that lane follow each other: the one locks the row FOR KEY SHARE,
//! the other changes its key.

use std::sync::Arc;

use countersign_domain::lanes::{Fence, Lane, LaneSet};
use countersign_domain::time::UnixMillis;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::dial::Dial;
use super::fault::{Failure, fault};
use super::pipeline::in_order;
use super::queries::{Found, many};
use super::readers::Readers;
use super::rows::Fields;
use super::session::{Params, Session};
use super::statements::Sql;
use super::writer_connections::WriterConnections;
use crate::contract::StoreError;
use crate::nodes::{DIRECTORY_CHANGES_MAX, DirectoryChanges, NodeId, NodeRow, Other, Seen, Stage, Tend, Tended, Who};

/// Statements of a heartbeat.
const TENDING: &[Sql] = &[
    Sql::LanesForget,
    Sql::NodesForget,
    Sql::NodeSeen,
    Sql::NodeSays,
    Sql::NodeGone,
    Sql::LanesRenew,
    Sql::LanesGiveBack,
    Sql::NodesAlive,
    Sql::LanesTake,
];

/// The numbers of lanes, as a parameter.
pub(super) fn numbers(lanes: LaneSet) -> Vec<i64> {
    lanes.lanes().map(|lane| i64::from(lane.get())).collect()
}

fn columns(lanes: &[(Lane, Fence)]) -> (Vec<i64>, Vec<i64>) {
    lanes.iter().map(|(lane, fence)| (i64::from(lane.get()), fence.0)).unzip()
}

fn read(row: &Row) -> Result<(Lane, Fence), StoreError> {
    let mut f = Fields::new(row, "delivery_lane", 0, 0);
    let lane = u8::try_from(f.int()?).ok().and_then(Lane::new).ok_or_else(|| f.corrupt())?;
    Ok((lane, Fence(f.int()?)))
}

/// What a call does on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Commits: it may wait for a standby, and its answer shows that commits do not.
    Commits,
    /// Reads, where others commit: it is answered also where they wait, and says nothing of them.
    ReadsBeside,
    /// Reads, where nobody commits: what is not answered in time may be broken off, since the server ends it by itself.
    Reads,
}

/// A connection of its own, for what must neither wait behind requests nor hold them up when it hangs.
#[derive(Debug)]
pub(super) struct Aside {
    connections: Mutex<WriterConnections>,
    dial: Arc<Dial>,
}

impl Aside {
    pub(super) fn new(dial: Arc<Dial>) -> Self {
        Self { connections: Mutex::new(WriterConnections::new(Arc::clone(&dial), &[])), dial }
    }

    async fn with<T>(
        &self,
        call: Call,
        ask: impl AsyncFnOnce(&Session, u64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connections = self.connections.lock().await;
        // Taken out: whoever gives up in the middle, or fails, leaves nothing half done behind.
        let session = connections.open().await.map_err(|failure| failure.refusal())?;
        match timeout(connections.limits().call(), ask(&session, connections.made())).await {
            // What it took may be on this server alone: after a failover another node could take it under the same number.
            Ok(_) if session.was_warned() => Err(Failure::warned().refusal()),
            Ok(answer) => {
                match (&answer, call) {
                    (Ok(_), Call::Commits) => connections.proved(session),
                    (Ok(_), Call::ReadsBeside | Call::Reads) => connections.keep(session),
                    (Err(_), _) => {}
                }
                answer
            }
            Err(_) if call == Call::Reads => {
                session.abort();
                Err(Failure::silent().refusal())
            }
            Err(_) => {
                // Its commit may wait for a standby that is away, and the next one would wait as well.
                connections.give_up(session);
                Err(Failure::silent().refusal())
            }
        }
    }

    /// One heartbeat, in one transaction of one round trip.
    pub(super) async fn tend(&self, tend: &Tend) -> Result<Tended, StoreError> {
        self.with(Call::Commits, async |session, _| {
            session.prepare(TENDING).await.map_err(fault)?;
            once(session, tend).await
        })
        .await
    }

    /// The database's time.
    pub(super) async fn database_time(&self) -> Result<Option<UnixMillis>, StoreError> {
        self.with(Call::ReadsBeside, async |session, _| {
            let rows = session.run(Sql::DatabaseTime, &[]).await.map_err(fault)?;
            rows.first().map(|row| Fields::new(row, "the clock", 0, 0).int().map(UnixMillis)).transpose()
        })
        .await
    }

    /// What has changed in the directory.
    pub(super) async fn directory_changes(&self, after: i64, node: NodeId) -> Result<DirectoryChanges, StoreError> {
        self.with(Call::Reads, async |session, connection| {
            self.dial.still_served(session).await?;
            let most = i64::try_from(DIRECTORY_CHANGES_MAX).unwrap_or(i64::MAX).saturating_add(1);
            let of: Params<'_> = &[&after, &node.0.as_slice(), &most];
            let found = session.run(Sql::DirectoryChanges, of).await.map_err(fault)?;
            let Some(first) = found.first() else {
                return Err(StoreError::Corrupt { table: "directory", row: "1".to_owned() });
            };
            let mut fields = Fields::new(first, "directory", 1, 0);
            let (revision, is_listed) = (fields.int()?, fields.flag()?);
            let (mut client_ids, are_too_many) = (Vec::new(), found.len() > DIRECTORY_CHANGES_MAX);
            for row in found.iter().filter(|_| !are_too_many) {
                client_ids.extend(Fields::new(row, "application", 3, 0).opt_text()?);
            }
            Ok(DirectoryChanges { connection, revision, client_ids, are_too_many, is_listed })
        })
        .await
    }
}

async fn once(session: &Session, tend: &Tend) -> Result<Tended, StoreError> {
    let who = &tend.who;
    let node = who.node.0.as_slice();
    let (held, held_at) = columns(&tend.held);
    let (back, back_at) = columns(&tend.give_back);
    let (begins, leaves, ends) = (tend.stage == Stage::Begins, tend.stage == Stage::Leaves, tend.stage == Stage::Ends);
    let before = tend.seen.filter(|_| !begins);
    let (wants, begun_at) = (i64::from(tend.wants), before.map(|seen| seen.begun_at.0));
    // Whoever begins takes nothing from other nodes yet.
    let (takes_from, takes_by) = match before {
        None if begins => (Some(0), Some(0)),
        before => (before.map(|seen| seen.takes_from.0), before.map(|seen| seen.takes_by(tend.lease_ms).0)),
    };
    // The node's own row comes first: processes under one id wait for each other there, and see what the one before them has taken.
    let mut steps = vec![session.word("BEGIN")];
    let seen = steps.len();
    if ends {
        steps.push(session.step(Sql::NodeGone, vec![&node, &begun_at]));
        steps.push(session.step(Sql::LanesGiveBack, vec![&node, &held, &held_at]));
    } else {
        let clock = &tend.clock_ahead_ms;
        steps.push(session.step(Sql::NodeSeen, vec![&node, &who.name, clock, &begins, &begun_at, &tend.lease_ms]));
        steps.push(
            session.step(Sql::NodeSays, vec![&node, &who.version, &who.key_id, &who.settings, &leaves, &begun_at]),
        );
    }
    if begins {
        steps.push(session.step(Sql::LanesForget, vec![&node]));
        steps.push(session.step(Sql::NodesForget, Vec::new()));
    }
    steps.push(session.step(Sql::LanesGiveBack, vec![&node, &back, &back_at]));
    let alive = steps.len();
    steps.push(session.step(Sql::NodesAlive, vec![&tend.lease_ms, &node]));
    if !ends {
        steps.push(session.step(Sql::LanesRenew, vec![&node, &held, &held_at, &tend.lease_ms, &begun_at]));
    }
    if !ends && !leaves {
        steps
            .push(session.step(Sql::LanesTake, vec![&node, &tend.lease_ms, &wants, &begun_at, &takes_from, &takes_by]));
    }
    steps.push(session.word("COMMIT"));
    let rows = in_order(steps).await.map_err(|(_, error)| fault(error))?;
    let mut held = rows[alive + 1..].iter().flatten().map(read).collect::<Result<Vec<_>, _>>()?;
    held.sort_unstable();
    // A node that ends is not seen any more, and asks for nothing either.
    let seen = if ends {
        tend.seen
    } else {
        rows[seen].first().map(|row| read_seen(row, before, tend.lease_ms)).transpose()?
    };
    let others = rows[alive].iter().filter_map(|row| other(row).transpose()).collect::<Result<_, _>>()?;
    Ok(Tended { held, nodes_alive: u32::try_from(rows[alive].len()).unwrap_or(u32::MAX), others, seen })
}

/// How a process was seen that had been seen so before.
fn read_seen(row: &Row, before: Option<Seen>, lease_ms: i64) -> Result<Seen, StoreError> {
    let mut f = Fields::new(row, "node", 0, 0);
    let (begun_at, at) = (UnixMillis(f.int()?), UnixMillis(f.int()?));
    Ok(Seen::after(before, begun_at, at, lease_ms))
}

/// A node that is alive, if it has noted other settings.
fn other(row: &Row) -> Result<Option<Other>, StoreError> {
    let mut f = Fields::new(row, "node", 0, 0);
    let (node, name) = (NodeId(f.bytes()?), f.text()?);
    Ok(f.opt_text()?.map(|settings| Other { node, name, settings }))
}

/// Every node but those that stopped in order, and those that had not been seen for a day when a node started.
pub(super) async fn list(from: &Readers, lease_ms: i64, most: u32) -> Found<Vec<NodeRow>> {
    many(from, Sql::Nodes, &[&lease_ms, &i64::from(most)], |row| {
        let mut f = Fields::new(row, "node", 0, 0);
        Ok(NodeRow {
            who: Who {
                node: NodeId(f.bytes()?),
                name: f.text()?,
                version: f.text()?,
                key_id: f.text()?,
                settings: f.text()?,
            },
            started_at: UnixMillis(f.int()?),
            seen_at: UnixMillis(f.int()?),
            clock_ahead_ms: f.opt_int()?,
            is_alive: f.flag()?,
            lanes: f.int()?,
        })
    })
    .await
}
