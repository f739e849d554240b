//! What a node does because others share its database: it measures the database's time, and follows what others change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use countersign_store::nodes::{DirectoryChanges, NodeId, Signal, Who};
use countersign_store::{AnyStore, Store as _};
use metrics::gauge;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::app::nodes::Tenure;
use crate::clock::{Clock, SharedTime};
use crate::config::Config;

/// How often the database's time is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How long one measurement may take.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a start waits for the first measurement, and how often it tries.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_EVERY: Duration = Duration::from_millis(50);
/// Measurements before a node serves.
const FIRST_SAMPLES: usize = 3;
/// How often the directory of changes is looked at even if nobody says that something has changed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Who this node is to others.
pub(super) fn who(app: &App, node: NodeId, listen: SocketAddr, config: &Config) -> Who {
    let (name, version) = (listen.to_string(), env!("CARGO_PKG_VERSION").to_owned());
    let (key_id, settings) = (app.vault.key_id().to_owned(), config.of_all_nodes());
    Who { node, name, version, key_id, settings }
}

/// Measures the database's time before anything is decided by it.
pub(super) async fn first_time(store: &AnyStore, clock: &Clock) -> anyhow::Result<()> {
    let Clock::Shared(time) = clock else { return Ok(()) };
    let measured = timeout(FIRST_TIMEOUT, async {
        let mut samples = 0;
        while samples < FIRST_SAMPLES || clock.ahead_ms().is_none() {
            match measure(store, time).await {
                Ok(()) => samples += 1,
                Err(_) => sleep(FIRST_EVERY).await,
            }
        }
    });
    if measured.await.is_err() {
        bail!("the database does not answer in time, so that its clock cannot be read; try again when it does");
    }
    Ok(())
}

/// How far this machine's clock is ahead of that of a shared database, in ms; none where nobody shares it.
pub async fn clock_ahead_ms(store: &AnyStore) -> anyhow::Result<Option<i64>> {
    if !store.is_shared() {
        return Ok(None);
    }
    let clock = Clock::shared();
    first_time(store, &clock).await?;
    Ok(clock.ahead_ms())
}

/// Measures until the end.
pub(super) async fn keep_time(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    let Clock::Shared(time) = &app.clock else { return };
    metrics::describe_gauge!(
        "countersign_clock_offset_seconds",
        "How far the machine's clock is ahead of the database's; beyond 1 s the node is not ready"
    );
    let mut said = None;
    loop {
        tell(&app, &mut said);
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = sleep(MEASURE_EVERY) => {}
        }
        if let Err(why) = measure(&app.store, time).await {
            tracing::debug!(why, "The database's time could not be measured");
        }
    }
}

async fn measure(store: &AnyStore, time: &SharedTime) -> Result<(), String> {
    let asked = Instant::now();
    match timeout(MEASURE_TIMEOUT, store.database_time()).await {
        Ok(Ok(Some(said))) => {
            time.measured(asked, said, asked.elapsed());
            Ok(())
        }
        Ok(Ok(None)) => Err("the store has no clock".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// Shows how the clocks stand; says in the log when they begin or cease to be apart.
fn tell(app: &App, said: &mut Option<bool>) {
    let Some(ahead_ms) = app.clock.ahead_ms() else { return };
    let ahead = i32::try_from(ahead_ms).unwrap_or(if ahead_ms > 0 { i32::MAX } else { i32::MIN });
    gauge!("countersign_clock_offset_seconds").set(f64::from(ahead) / 1_000.0);
    let trouble = app.clock.trouble();
    match (&trouble, said.replace(trouble.is_some())) {
        (Some(why), None | Some(false)) => tracing::warn!("This node is not ready: {why}"),
        (None, Some(true)) => tracing::info!("The clock of this machine agrees with the database's again"),
        (Some(_), Some(true)) | (None, None | Some(false)) => {}
    }
}

/// Forgets callers that other nodes have changed, until the end. What is kept is believed only after a look at which the others saw this `node`, and no
/// other process in its place: whoever takes a right away does not wait for one that he does not see.
pub(super) async fn watch_directory(app: Arc<App>, node: NodeId, mut ended: watch::Receiver<bool>) {
    let mut signals = app.store.signals();
    let mut last: Option<(u64, i64)> = None;
    loop {
        let began = Instant::now();
        let after = last.map_or(i64::MAX, |(_, revision)| revision);
        // However long one takes: what was looked at before is believed for a time of its own, and then each caller is looked up in the database.
        let looked = tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            looked = app.store.directory_changes(after, node) => looked,
        };
        match looked {
            Ok(changes) => {
                if forgets_all(last, &changes) {
                    app.callers.forget_all();
                    app.bell.change_all();
                }
                for client_id in &changes.client_ids {
                    app.callers.forget(client_id);
                    app.bell.change(client_id);
                }
                last = Some((changes.connection, changes.revision));
                if changes.is_listed && app.node.tenure() == Tenure::Ours {
                    app.callers.checked(began);
                }
            }
            Err(error) => tracing::debug!(%error, "Changes of applications could not be read"),
        }
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = sleep(LOOK_EVERY.saturating_sub(began.elapsed())) => {}
            () = changed(&mut signals) => {}
        }
    }
}

/// At the first look nobody knows what was read before it; a directory that went back has lost commits in a failover. So may one behind another
/// connection: since then others may have been counted under the same numbers. And of too many changes none is named.
fn forgets_all(last: Option<(u64, i64)>, changes: &DirectoryChanges) -> bool {
    let is_another = |(connection, revision)| connection != changes.connection || changes.revision < revision;
    changes.are_too_many || last.is_none_or(is_another)
}

/// Waits until another node says that an application has changed.
async fn changed(signals: &mut Option<broadcast::Receiver<Signal>>) {
    let Some(heard) = signals else { return std::future::pending().await };
    loop {
        match heard.recv().await {
            Ok(Signal::Directory) | Err(RecvError::Lagged(_)) => return,
            Ok(Signal::Due(_)) => {}
            Err(RecvError::Closed) => {
                *signals = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_forgotten_where_nobody_can_say_what_has_changed() {
        let changes = |connection, revision, are_too_many| DirectoryChanges {
            connection,
            revision,
            client_ids: Vec::new(),
            are_too_many,
            is_listed: true,
        };
        for (last, changes, wanted) in [
            (None, changes(1, 7, false), true),
            (Some((1, 7)), changes(1, 7, false), false),
            (Some((1, 7)), changes(1, 9, false), false),
            (Some((1, 7)), changes(1, 6, false), true),
            (Some((1, 7)), changes(2, 9, false), true),
            (Some((1, 7)), changes(1, 90_000, true), true),
        ] {
            assert_eq!(forgets_all(last, &changes), wanted, "{last:?} {changes:?}");
        }
    }
}
