//! What tests and tools ask of a dispatcher that does not run: one attempt by itself, or everything that is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign_domain::delivery::Outcome;
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::contract::EventRow;
use tokio::task::yield_now;
use tokio::time::timeout_at;

use super::trial::refused;
use super::{Dispatcher, attempt};
use crate::app::error::AppError;
use crate::app::identity::no_application;

impl Dispatcher {
    /// One attempt at an event, of which nothing is recorded: what an attempt takes by itself. For tools that measure.
    pub async fn attempt_only(&self, event: &EventRow) -> Result<Outcome, AppError> {
        let Some(known) = self.app.known_application(&event.client_id).await? else {
            return Err(no_application(&event.client_id));
        };
        let now = self.app.clock.now();
        let keys = known.callback_keys(now);
        let (Some(url), Some(signing)) = (known.application.callback_url.as_deref(), keys.signing) else {
            return Err(refused("the application has no callback_url, or no live secret to sign with"));
        };
        let letter = self.letter(event, &known, signing, keys.next, now);
        Ok(attempt::make(&self.connector, url, letter, self.settings.deadline, now).await.outcome)
    }

    /// Delivers everything that is due at `now` and waits for the end of it: the number of attempts made. For tests and
    /// tools; `run` does the same for ever, and only one of the two may be in use. A store that fails ends it early.
    pub async fn deliver_due(self: &Arc<Self>, now: UnixMillis) -> usize {
        let before = self.attempts.load(Ordering::SeqCst);
        if self.app.store.is_shared() {
            self.beat().await;
        }
        if let Err(error) = self.hold_or_release_all().await {
            tracing::warn!(%error, "What is to be held or released could not be");
        }
        if let Err(error) = self.take_up_changes().await {
            tracing::warn!(%error, "An application that has changed could not be read");
        }
        if let Err(error) = self.look_for(LaneSet::ALL).await {
            tracing::warn!(%error, "Who has something due could not be read");
        }
        loop {
            match self.pass(now, &|| false).await {
                Ok(true) => {
                    yield_now().await;
                    continue;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "What is due could not be read"),
            }
            let pass_state = self.pass_state.lock().await;
            if pass_state.lineup.flights() == 0 {
                return self.attempts.load(Ordering::SeqCst) - before;
            }
            let due_at = pass_state.records.due_at();
            drop(pass_state);
            match due_at {
                Some(due_at) => drop(timeout_at(due_at, self.landed.notified()).await),
                None => self.landed.notified().await,
            }
        }
    }
}
