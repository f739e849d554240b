//! Finds out whether the store takes changes, once it has refused one: until it does, this node is not ready.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::LaneSet;
use tokio::sync::watch;

use crate::app::{App, trouble};

/// Between two trials.
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
        }
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = until_changes_are_taken(&app) => {}
        }
    }
}

async fn until_changes_are_taken(app: &App) {
    let mut failed = 0;
    loop {
        match trouble::try_a_change(app).await {
            Ok(()) => {
                if app.trouble.found(None) {
                    // Callbacks have rested meanwhile.
                    app.due.ring_lanes(LaneSet::ALL);
                    tracing::info!("The store takes changes again: this node is ready");
                }
                // A burst of refusals asks for one trial a second at the most.
                return tokio::time::sleep(PERIOD).await;
            }
            Err(error) => {
                failed += 1;
                if failed >= FAILED_MIN && app.trouble.found(Some("the store takes no changes".to_owned())) {
                    tracing::error!("The store takes no changes, so this node is not ready: {error}");
                }
            }
        }
        tokio::time::sleep(if failed < FAILED_MIN { SHORT_PERIOD } else { PERIOD }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::run::{close_store, initialise, open_app};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn callbacks_are_rung_for_when_the_store_takes_changes_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        initialise(&config).await.expect("a deployment");
        let app = open_app(&config, Clock::System, None).await.expect("it opens");
        app.due.take();
        until_changes_are_taken(&app).await;
        assert_eq!(app.due.take().lanes, LaneSet::NONE, "nothing was wrong");
        app.trouble.found(Some("it takes none".to_owned()));
        until_changes_are_taken(&app).await;
        assert_eq!(app.due.take().lanes, LaneSet::ALL);
        assert!(app.trouble.takes_changes());
        close_store(&app.store).expect("it closes");
    }
}
