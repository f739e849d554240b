//! Which nodes there are, and what each of them runs.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use countersign_domain::lanes::LANES;
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::nodes::{NodeId, NodeRow, Who};

use tokio::time::sleep;

use super::App;
use super::callers::FRESH;
use super::error::AppError;

/// Whether this process is the node of its id. Another one may have begun under that id since and be alive, as where a data folder was copied: then
/// others do not see this one, and it does not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenure {
    /// It is.
    #[default]
    Ours,
    /// Another one is, for no longer than a node may take itself for another.
    Replaced,
    /// Another one is, and has been for longer. This one is not ready.
    Lost,
}

/// What this node is to others.
#[derive(Debug, Default)]
pub struct ThisNode {
    id: OnceLock<NodeId>,
    tenure: Mutex<Tenure>,
}

impl ThisNode {
    /// This process serves under that id.
    pub fn serves(&self, id: NodeId) {
        self.id.get_or_init(|| id);
    }

    /// Its id, once it serves; not known in a process that does not.
    pub fn id(&self) -> Option<&NodeId> {
        self.id.get()
    }

    /// How it stands with its id.
    pub fn tenure(&self) -> Tenure {
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that; how it stood before.
    pub fn note_tenure(&self, now: Tenure) -> Tenure {
        std::mem::replace(&mut self.tenure.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// Nodes that are listed, at the most.
pub const NODES_MAX: u32 = 500;

/// Nodes that share the database, those alive first, then by their start; where it is not shared, this one alone. `lease`: a node that was not seen
/// for so long is not alive.
pub async fn list(app: &App, own: &Who, started_at: UnixMillis, lease: Duration) -> Result<Vec<NodeRow>, AppError> {
    if app.store.is_shared() {
        return sharing(app, lease).await;
    }
    Ok(vec![NodeRow {
        who: own.clone(),
        started_at,
        seen_at: app.clock.now(),
        is_alive: true,
        clock_ahead_ms: None,
        lanes: i64::from(LANES),
    }])
}

async fn sharing(app: &App, lease: Duration) -> Result<Vec<NodeRow>, AppError> {
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    Ok(app.store.nodes(lease_ms, NODES_MAX).await?)
}

/// A node that is alive and was started with another master key than this one.
pub async fn with_another_key(app: &App, lease: Duration) -> Result<Option<Who>, AppError> {
    if !app.store.is_shared() {
        return Ok(None);
    }
    // A program from before nodes said which key they have does not say.
    let own = app.vault.key_id();
    let has_another = |row: &NodeRow| row.is_alive && !row.who.key_id.is_empty() && row.who.key_id != own;
    Ok(sharing(app, lease).await?.into_iter().find(has_another).map(|row| row.who))
}

/// Waits until no node believes any more what it kept of applications before this call: what was taken away by then is gone on every one of them. They
/// hear of changes at once and forget; for what one of them may have missed it waits as long as any believes what it has not compared.
pub async fn until_all_know(app: &App) {
    if !app.store.is_shared() {
        return;
    }
    // Nodes that are not alive by now count as well: one that was held up may go on. Which of them is this one is known by its id: its own row may
    // be missing, and that of another one not.
    let own = app.node.id().filter(|_| app.node.tenure() == Tenure::Ours);
    let is_alone = app.store.nodes(0, 2).await.is_ok_and(|nodes| nodes.iter().all(|row| Some(&row.who.node) == own));
    if !is_alone {
        sleep(FRESH).await;
    }
}
