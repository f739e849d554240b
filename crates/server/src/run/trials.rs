//! Finds out whether the store takes changes, once it has refused one or leaves one waiting: until it does, this node is not ready.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::LaneSet;
use countersign_store::{CommitError, Store as _, StoreError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::app::trouble::NoChanges;
use crate::app::{App, trouble};

/// Between two trials, and between two looks whether a change waits.
const PERIOD: Duration = Duration::from_secs(1);
/// So many trials that fail one after the other are no hiccup.
const FAILED_MIN: u32 = 3;
/// Between those.
const SHORT_PERIOD: Duration = Duration::from_millis(200);

/// Until the end.
pub(super) async fn watch(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = app.trouble.rung() => {}
            () = a_change_waits(&app) => {}
        }
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = until_changes_are_taken(&app) => {}
        }
    }
}

/// Waits until a change has waited for the store for too long: nobody is refused, and so nobody rings.
async fn a_change_waits(app: &App) {
    while !app.store.is_stalled() {
        sleep(PERIOD).await;
    }
}

/// How a trial ended. It waits behind all other changes, and says so where that takes too long.
async fn trial(app: &App) -> Result<(), (NoChanges, CommitError)> {
    let mut trial = pin!(trouble::try_a_change(app));
    loop {
        // A store that refuses after a while, as one that another program holds, has said more than that it does not answer yet.
        let is_refused = app.trouble.why_not_ready() == Some(NoChanges::Refused);
        if app.store.is_stalled() && !is_refused && app.trouble.found(Some(NoChanges::Unanswered)) {
            let look = trouble::where_to_look(app.store.is_shared());
            tracing::warn!("The store does not answer changes, so this node is not ready: {look}");
        }
        if let Ok(outcome) = timeout(PERIOD, trial.as_mut()).await {
            return outcome;
        }
    }
}

async fn until_changes_are_taken(app: &App) {
    let mut failed = 0;
    loop {
        match trial(app).await {
            // It says nothing of what stands still: another writer took it, or the queue was full and turned it away.
            Ok(()) | Err(_) if app.store.is_stalled() => {}
            Ok(()) => {
                if app.trouble.found(None) {
                    // Callbacks have rested meanwhile.
                    app.bell.ring_lanes(LaneSet::ALL);
                    tracing::info!("The store takes changes again: this node is ready");
                }
                // A burst of refusals asks for one trial a second at the most.
                return sleep(PERIOD).await;
            }
            Err((why, error)) => {
                failed += 1;
                let cause = match &error {
                    CommitError::Store(StoreError::Unavailable(cause)) => cause as &dyn Display,
                    other => other,
                };
                let is_hiccup = failed < FAILED_MIN && app.trouble.why_not_ready().is_none();
                if !is_hiccup && app.trouble.found_failing(why, cause) {
                    match why {
                        NoChanges::NoJournal => {
                            tracing::error!("The nonce journal takes no records, so this node is not ready: {error}");
                        }
                        NoChanges::Refused | NoChanges::Unanswered => {
                            tracing::error!("The store takes no changes, so this node is not ready: {error}");
                        }
                    }
                }
            }
        }
        sleep(if failed < FAILED_MIN && app.trouble.why_not_ready().is_none() { SHORT_PERIOD } else { PERIOD }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::Deployment;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn callbacks_are_rung_for_when_the_store_takes_changes_again() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        app.bell.take();
        until_changes_are_taken(&app).await;
        assert_eq!(app.bell.take().lanes, LaneSet::NONE, "nothing was wrong");
        app.trouble.found(Some(NoChanges::Refused));
        until_changes_are_taken(&app).await;
        assert_eq!(app.bell.take().lanes, LaneSet::ALL);
        assert!(app.trouble.takes_changes());
        Deployment::close(&app);
    }
}
