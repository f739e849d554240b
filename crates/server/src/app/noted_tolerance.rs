//! The tolerance of timestamps, noted with the data. Whoever restores a backup must refuse what may have been accepted after it was taken, and that
//! is stamped up to a tolerance ahead: the tolerance of the deployment, whatever the settings of the command say that restores it.
//!
//! An application's own tolerance is never wider than the deployment's, so this one covers all.

use countersign_store::Store as _;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::CommitError;

use super::App;
use super::error::AppError;
use crate::config::TOLERANCE_MS_MAX;

/// The tolerance that requests may have been accepted under, in ms. A setting. A file notes the tolerance that it was served with last, since the
/// file knows what was accepted before. Nodes need not have one tolerance, and note the widest that any of them ever had.
pub const TOLERANCE_NOTED: &str = "tolerance_noted_ms";
/// How often it is tried again because other nodes note theirs, too.
const TRIES_MAX: usize = 100;

/// Notes it before the first request is accepted. Where the store takes no changes just then, housekeeping tries again.
pub async fn begin(app: &App) {
    if let Err(error) = note(app).await {
        tracing::warn!(%error, "The tolerance of timestamps could not be noted with the data; it is tried again shortly");
    }
}

/// Notes the tolerance, unless it is noted already.
pub async fn note(app: &App) -> Result<(), AppError> {
    let own_ms = app.policy.timestamp_tolerance_ms;
    for _ in 0..TRIES_MAX {
        let noted = app.store.setting(TOLERANCE_NOTED).await?;
        let is_noted = match read(noted.as_deref()) {
            Some(noted_ms) if app.store.is_shared() => noted_ms >= own_ms,
            Some(noted_ms) => noted_ms == own_ms,
            None => false,
        };
        if is_noted {
            return Ok(());
        }
        let next = Write::MoveSetting { name: TOLERANCE_NOTED.to_owned(), from: noted, to: own_ms.to_string() };
        match app.store.commit(Batch(vec![next])).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

/// What the setting says. What no deployment can be served with counts for nothing.
pub fn read(noted: Option<&str>) -> Option<i64> {
    noted.and_then(|noted| noted.parse().ok()).filter(|ms| (1..=TOLERANCE_MS_MAX).contains(ms))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::fixtures::Deployment;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_notes_the_tolerance_that_it_is_served_with_and_nodes_the_widest_of_them() {
        let mut deployment = Deployment::on_sqlite().await.in_real_time();
        for ms in [30_000, 300_000, 60_000] {
            deployment.config.timestamp_tolerance_ms = ms;
            let app = deployment.open().await;
            assert_eq!(read(app.store.setting(TOLERANCE_NOTED).await.expect("reads").as_deref()), Some(ms));
            Deployment::close(&app);
        }

        let deployment = Deployment::on_postgres().await;
        for (ms, widest) in [(30_000, 30_000), (300_000, 300_000), (60_000, 300_000)] {
            let mut app = deployment.open().await;
            Arc::get_mut(&mut app).expect("nobody else has it").policy.timestamp_tolerance_ms = ms;
            note(&app).await.expect("is noted");
            assert_eq!(read(app.store.setting(TOLERANCE_NOTED).await.expect("reads").as_deref()), Some(widest));
        }
    }
}
