//! The end of a server: first it says that it goes, then it goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;

use super::{Running, STOP_MARGIN, close_store};
use crate::app::uses;

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
        let _ = self.shutdown.send(true);
        let deadline = tokio::time::Instant::now() + self.drain + STOP_MARGIN;
        let mut outcome = Ok(());
        for mut task in self.tasks.into_handles() {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(ended) => outcome = outcome.and(ended.context("a task of the server broke")),
                Err(_) => task.abort(),
            }
        }
        let app = self.app;
        // Of the last requests; a store that is away must not hold up the stop.
        let until = deadline.max(tokio::time::Instant::now() + STOP_MARGIN);
        let noted = tokio::time::timeout_at(until, uses::note(&app)).await;
        if !matches!(noted, Ok(Ok(()))) {
            let secrets = app.uses.waiting();
            tracing::warn!(
                secrets,
                "The last uses of {secrets} secrets, and of operators' tokens, could not be noted: they are not counted"
            );
        }
        let closed =
            tokio::task::spawn_blocking(move || close_store(&app.store)).await.context("the store broke at its end");
        drop(self.log_guard);
        outcome.and(closed?)
    }
}
