//! Whoever writes: the lanes, and who settles claims, each a task of its own.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use countersign_domain::ids::TenantNo;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::PostgresOptions;
use super::commit_lane::{Answer, CommitLane, Job};
use super::dial::Dial;
use super::nonces::{Nonces, Settling};
use super::settler::Settler;
use super::signals::Herald;
use crate::batch::{Batch, Write};
use crate::chain::ChainKey;
use crate::check::well_formed;
use crate::contract::{CommitError, StoreError};
use crate::panicked::Panicked;
use crate::work_clock::WorkClock;

/// What leads to them.
#[derive(Debug)]
pub(super) struct Writers {
    lanes: Vec<mpsc::Sender<Job>>,
    clocks: Vec<Arc<WorkClock>>,
    pub(super) settling: mpsc::Sender<Settling>,
    panicked: Panicked,
}

impl Writers {
    /// Starts them on the current runtime.
    pub(super) fn start(
        options: &PostgresOptions,
        dial: &Arc<Dial>,
        nonces: &Arc<Nonces>,
        herald: &Arc<Herald>,
        chain: &Arc<OnceLock<ChainKey>>,
    ) -> Self {
        let (node, by_tenant, queue_max) = (options.node, options.group_by_tenant, options.queue_max.max(1));
        let panicked = Panicked::new();
        let clocks: Vec<Arc<WorkClock>> = (0..options.lanes.max(1)).map(|_| Arc::new(WorkClock::new())).collect();
        let lane = |(number, clock): (usize, &Arc<WorkClock>)| {
            let mut id = node.to_vec();
            id.extend(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
            let (sender, queue) = mpsc::channel(queue_max);
            let (dial, nonces, herald) = (Arc::clone(dial), Arc::clone(nonces), Arc::clone(herald));
            let lane = CommitLane::new(dial, nonces, herald, by_tenant, id, Arc::clone(clock), Arc::clone(chain));
            tokio::spawn(panicked.watched(lane.run(queue, options.group_max.max(1))));
            sender
        };
        let lanes = clocks.iter().enumerate().map(lane).collect();
        let (settling, queue) = mpsc::channel(queue_max);
        let settler = Settler::new(Arc::clone(dial), Arc::clone(nonces), by_tenant, node);
        tokio::spawn(panicked.watched(settler.run(queue)));
        Self { lanes, clocks, settling, panicked }
    }

    /// For how long the one that has been at its work longest has been at it.
    pub(super) fn longest_work(&self) -> Duration {
        self.clocks.iter().map(|clock| clock.age()).max().unwrap_or_default()
    }

    /// An error: one has ended, and what it is to do is never done.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.panicked.is_so() || self.settling.is_closed() || self.lanes.iter().any(mpsc::Sender::is_closed) {
            return Err(StoreError::Unavailable("a writer of the store has ended".to_owned()));
        }
        Ok(())
    }

    /// Waits until one has panicked.
    pub(super) async fn panicked(&self) {
        self.panicked.told().await;
    }

    /// The lane of a batch: those of one tenant, and those that guard the same row, meet in one group instead of waiting for each
    /// other's locks.
    fn lane(&self, tenant: Option<TenantNo>, batch: &Batch) -> &mpsc::Sender<Job> {
        let key = tenant.map(|tenant| tenant.0).or_else(|| batch.0.iter().find_map(Write::row_of));
        // Numbers of one kind may follow a step that the count of lanes divides.
        let spread = key.unwrap_or(0).unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.lanes[usize::try_from(spread).unwrap_or(0) % self.lanes.len()]
    }

    /// Hands a batch to its lane.
    pub(super) fn send(&self, batch: Batch) -> Result<oneshot::Receiver<Answer>, CommitError> {
        let tenant = well_formed(&batch)?;
        let (answer, waiting) = oneshot::channel();
        let lane = self.lane(tenant, &batch);
        lane.try_send(Job { batch, tenant, since: Instant::now(), answer })
            .map_err(|_| StoreError::Unavailable("too many changes are waiting".to_owned()))?;
        Ok(waiting)
    }
}

/// The lane answers each job; it can only be gone with the runtime.
pub(super) async fn answered(waiting: oneshot::Receiver<Answer>) -> Answer {
    waiting.await.unwrap_or(Err(CommitError::Unknown))
}
