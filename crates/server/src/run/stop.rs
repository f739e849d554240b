//! The end of a server: first it says that it goes, then it goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use countersign_store::Store as _;
use tokio::time::{Instant, timeout_at};

use super::{Running, STOP_MARGIN, close_store};
use crate::app::trouble::NoChanges;
use crate::app::{App, uses};

/// What closing the store has at the least: a drain may have taken all of the time.
const CLOSE_MIN: Duration = Duration::from_secs(4);
/// The same of a store that took no changes, or did not answer them, when everything else had ended.
const CLOSE_STUCK_MIN: Duration = Duration::from_millis(100);
/// What giving up the place among other nodes has at the least.
const LEAVE_MIN: Duration = Duration::from_millis(1_500);

impl Running {
    /// Goes on as before, but for `/readyz`, until a load balancer should have noticed.
    pub async fn leave(&self) {
        if self.stop_delay > Duration::ZERO {
            self.app.leaving.store(true, Ordering::Relaxed);
            tracing::info!(stop_delay = ?self.stop_delay, "Told to stop: not ready any more, and all goes on for {:?}", self.stop_delay);
            tokio::time::sleep(self.stop_delay).await;
        }
    }

    /// Takes no new connections, lets requests under way end within the drain time, and stops everything.
    pub async fn stop(self) -> anyhow::Result<()> {
        // The listeners answer for a moment yet: whoever asks whether the node is ready is told.
        self.app.leaving.store(true, Ordering::Relaxed);
        let _ = self.shutdown.send(true);
        let mut silent = self.silent;
        let mut deadline = Instant::now() + self.drain + STOP_MARGIN;
        let is_silent = timeout_at(deadline, silent.wait_for(|silent| *silent)).await.is_ok();
        if is_silent && self.app.store.is_shared() && !is_stuck(&self.app) {
            // Its place among the nodes is given up when it answers nobody any more.
            deadline = deadline.max(Instant::now() + LEAVE_MIN);
        }
        let mut outcome = Ok(());
        for mut task in self.tasks.into_handles() {
            match timeout_at(deadline, &mut task).await {
                Ok(ended) => outcome = outcome.and(ended.context("a task of the server broke")),
                Err(_) => task.abort(),
            }
        }
        let app = self.app;
        note_last_uses(&app, deadline).await;
        let closed = close_in_time(app, deadline).await;
        drop(self.log_guard);
        outcome.and(closed)
    }
}

/// Whether waiting for a change would be in vain: one waits too long already, or the last one was refused. Whether it has been answered meanwhile nobody
/// looks any more, so that one went unanswered says nothing.
fn is_stuck(app: &App) -> bool {
    app.store.is_stalled() || app.trouble.why_not_ready() == Some(NoChanges::Refused)
}

/// Of the last requests; a store that is away must not hold up the stop.
async fn note_last_uses(app: &App, deadline: Instant) {
    let until = deadline.max(Instant::now() + STOP_MARGIN);
    let is_noted = !is_stuck(app) && matches!(timeout_at(until, uses::note(app)).await, Ok(Ok(())));
    if !is_noted {
        let secrets = app.uses.waiting();
        tracing::warn!(
            secrets,
            "The last uses of {secrets} secrets, and of operators' tokens, could not be noted: they are not counted"
        );
    }
}

/// Closes the store, or leaves it as a kill would: what was acknowledged is on the disk, and a commit that hangs is not acknowledged.
async fn close_in_time(app: Arc<App>, deadline: Instant) -> anyhow::Result<()> {
    let least = if is_stuck(&app) { CLOSE_STUCK_MIN } else { CLOSE_MIN };
    let until = deadline.max(Instant::now() + least);
    let closing = tokio::task::spawn_blocking(move || close_store(&app.store));
    if let Ok(closed) = timeout_at(until, closing).await {
        return closed.context("the store broke at its end")?;
    }
    tracing::error!(
        "The database was left open, since it did not answer in time: changes that waited for it are not acknowledged, and may be done or \
         not. Nothing that was acknowledged is lost"
    );
    bail!("the database could not be closed in order: it did not answer in time")
}
