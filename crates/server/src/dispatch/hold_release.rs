//! Holds and releases, in portions, the open deliveries of applications whose callbacks have ceased or begun to go out.
//!
//! Whoever makes such a change leaves a note in the same batch (`Write::Turn`, `Write::Reassess`). The node that holds the application's
//! lane turns one portion after the other, until the store takes the note away. Whoever dies in between leaves the note, and the next
//! holder of the lane goes on from there.
//! Which way to turn is decided anew for each portion, by the application as it is, and guarded by its revision: a change back in between
//! turns back what was turned. Nothing is sent too much meanwhile, since every attempt looks at the application first.

use std::time::Duration;

use countersign_domain::lanes::Lane;
use countersign_store::batch::{Conflict, Guard};
use countersign_store::contract::{Cursor, TurningRow};
use countersign_store::{Batch, CommitError, Store, StoreError, Write};
use tokio::time::{Instant, sleep, timeout};

use super::{Dispatcher, LOOK_EVERY, SAID_EVERY, STORE_PAUSE};
use crate::app::events::as_read;
use crate::repeated_warning::RepeatedWarning;

/// Applications that are read at once.
const PAGE: u32 = 64;
/// Between two rounds, so that others who write have their turn.
const ROUND_PAUSE: Duration = Duration::from_millis(5);
/// Between two looks for notes, however often somebody rings.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// What came of a round.
#[derive(Debug, Default)]
struct Round {
    /// Whether another one is worth while at once.
    goes_on: bool,
    /// Why the first application could not be held or released.
    first_error: Option<StoreError>,
}

impl Dispatcher {
    /// Holds and releases what is to be until it is cut off.
    pub(super) async fn hold_or_release_always(&self) {
        let mut warning = RepeatedWarning::default();
        loop {
            let pause = match self.hold_or_release_all().await {
                Ok(()) => LOOK_PAUSE,
                Err(error) => {
                    if let Some(failed) = warning.due(SAID_EVERY, Instant::now().into_std()) {
                        tracing::warn!(%error, failed, "What is to be held or released could not be; it is tried again shortly");
                    }
                    self.hold_notes.notify_one();
                    STORE_PAUSE
                }
            };
            sleep(pause).await;
            // A note of another node, or of a lane that was taken, may have come without a ring.
            let _rang = timeout(LOOK_EVERY, self.hold_notes.notified()).await;
        }
    }

    /// The same until there is nothing left in the lanes of this node, but for what fails. An error: the first of those.
    pub(super) async fn hold_or_release_all(&self) -> Result<(), StoreError> {
        let mut first_error = None;
        loop {
            let round = self.hold_or_release_round().await?;
            first_error = first_error.or(round.first_error);
            if !round.goes_on {
                return first_error.map_or(Ok(()), Err);
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    /// One portion for each application with a note. One that fails keeps none of the others waiting.
    async fn hold_or_release_round(&self) -> Result<Round, StoreError> {
        let (mut after, mut round) = (None, Round::default());
        loop {
            let lanes = self.leases.open(Instant::now());
            if lanes.is_empty() {
                return Ok(Round { goes_on: false, ..round });
            }
            let page = self.app.store.turning(lanes, Cursor { after, limit: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(round) };
            after = Some(last.place());
            for row in &page {
                match self.hold_or_release(row).await {
                    Ok(is_worth_it) => round.goes_on |= is_worth_it,
                    Err(error) => _ = round.first_error.get_or_insert(error),
                }
            }
        }
    }

    /// One portion of an application: whether it is worth coming back.
    async fn hold_or_release(&self, row: &TurningRow) -> Result<bool, StoreError> {
        let (tenant, application, lane) = (row.tenant, row.application, Lane::of(row.application));
        let Some((fence, _held)) = self.leases.hold(lane, Instant::now()) else { return Ok(false) };
        let Some(view) = self.app.store.application(&row.client_id).await? else { return Ok(false) };
        let goes_out = view.goes_out();
        let portion = if goes_out {
            Write::ReleaseHeld { tenant, application, due_at: row.due_at }
        } else {
            Write::HoldPending { tenant, application }
        };
        let writes =
            vec![Write::Guard(Guard::Lane { application, fence }), Write::Guard(as_read(&view.application)), portion];
        match self.app.store.commit(Batch(writes)).await {
            Ok(_) => {
                if goes_out {
                    self.app.bell.ring(tenant, application);
                }
                Ok(true)
            }
            Err(CommitError::Conflict(Conflict::Fenced(lane))) => {
                self.leases.lose(lane, fence);
                Ok(false)
            }
            // It has changed meanwhile: the note says whether there is more to do.
            Err(CommitError::Conflict(_)) => Ok(true),
            // The note says so then, too, but a store that answers in this way is not asked without a pause.
            Err(CommitError::Unknown) => Err(StoreError::Unavailable("whether it was done is not known".to_owned())),
            Err(CommitError::Store(error)) => Err(error),
        }
    }
}
