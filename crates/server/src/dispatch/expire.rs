//! Notes which payment orders have expired, and so tells their merchants, once each.
//!
//! No answer waits for it: every answer computes from the expire time whether an order has expired. What is noted here is that the callback is
//! written, in the same batch, guarded by the order's revision and by the lane of the application. So whoever dies in between leaves both
//! undone, the next look finds the order again, and of two nodes one writes.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::Lane;
use countersign_store::batch::{Conflict, Guard};
use countersign_store::payment_order::PaymentOrderRow;
use countersign_store::{CommitError, StoreError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::turn::Portion;
use super::{Dispatcher, STORE_PAUSE};
use crate::app::payment_orders;

/// Orders are looked for this often; their callbacks are written within 2 s.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Orders of one look, of each lane.
const PAGE: u32 = 256;
/// Orders that are noted at once, so that they share commits.
const AT_ONCE: usize = 64;
/// Between two rounds, so that others who write have their turn.
const ROUND_PAUSE: Duration = Duration::from_millis(5);

impl Dispatcher {
    /// Notes what has expired until it is cut off.
    pub(super) async fn expire_always(self: Arc<Self>) {
        loop {
            let pause = match self.clone().expire_round().await {
                Ok(true) => ROUND_PAUSE,
                Ok(false) => LOOK_EVERY,
                Err(error) => {
                    tracing::warn!(%error, "Payment orders that have expired could not be told of; it is tried again shortly");
                    STORE_PAUSE
                }
            };
            sleep(pause).await;
        }
    }

    /// What has expired by now in the lanes of this node: whether there may be more.
    pub(super) async fn expire_round(self: Arc<Self>) -> Result<bool, StoreError> {
        let lanes = self.leases.open(Instant::now());
        if lanes.is_empty() {
            return Ok(false);
        }
        let rows = payment_orders::expired(&self.app, lanes, PAGE).await?;
        let may_be_more = rows.len() >= PAGE as usize;
        let (mut noted, mut first_error) = (false, None);
        // One that cannot be read back keeps none of the others waiting.
        let readable = rows.into_iter().filter_map(|row| row.map_err(|error| first_error = Some(error)).ok());
        let mut waiting = readable.collect::<Vec<_>>().into_iter();
        let mut under_way = JoinSet::new();
        loop {
            for row in waiting.by_ref().take(AT_ONCE.saturating_sub(under_way.len())) {
                under_way.spawn(self.clone().expire(row));
            }
            // One that fails does not cut the others off.
            match under_way.join_next().await.map(|ended| ended.expect("noting an order does not panic")) {
                Some(Ok(done)) => noted |= done,
                Some(Err(error)) => first_error = first_error.or(Some(error)),
                None => break,
            }
        }
        first_error.map_or(Ok(may_be_more && noted), Err)
    }

    /// Notes one order: whether that was done, or need not be done any more.
    async fn expire(self: Arc<Self>, row: PaymentOrderRow) -> Result<bool, StoreError> {
        let (application, lane) = (row.application, Lane::of(row.application));
        let Some(fence) = self.leases.begin(lane, Instant::now()) else { return Ok(false) };
        let _portion = Portion { leases: &self.leases, lane };
        match payment_orders::expire(&self.app, &row, Guard::Lane { application, fence }).await {
            Ok(()) => Ok(true),
            Err(CommitError::Conflict(Conflict::Fenced(lane))) => {
                self.leases.lose(lane, fence);
                Ok(false)
            }
            // Somebody changed something meanwhile, or nobody knows: the next look says whether there is more to do.
            Err(CommitError::Conflict(_) | CommitError::Unknown) => Ok(false),
            Err(CommitError::Store(error)) => Err(error),
        }
    }
}
