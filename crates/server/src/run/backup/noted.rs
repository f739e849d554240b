//! When the last good backup was begun, noted in the data folder: for `/metrics` and its alert, and for `doctor`.

use std::time::Duration;

use countersign_domain::time::{UnixMillis, parse_rfc3339};
use metrics::gauge;
use tokio::sync::watch;

use super::Trailer;
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::{DataDir, DataRefused};
use crate::meters::LAST_BACKUP;

/// How often a server looks for a newer one: an alert counts hours.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(60);

/// Notes a backup that a restore takes. Nothing is noted of one that it would refuse, nor where there is no data folder, as on a machine that is no node of
/// a shared database.
pub fn note(config: &Config, trailer: &Trailer) -> Result<(), DataRefused> {
    let data = DataDir::named(&config.data);
    let taken_at = parse_rfc3339(&trailer.taken_at).filter(|_| trailer.broken.is_none() && data.path().is_dir());
    let Some(taken_at) = taken_at else { return Ok(()) };
    // One that was begun later may have ended sooner. An instant to come was noted by a clock that was ahead.
    let is_newest = |noted: UnixMillis| noted <= taken_at || noted > Clock::System.now();
    match data.backup_noted() {
        Ok(Some(noted)) if !is_newest(noted) => Ok(()),
        Ok(_) | Err(_) => data.note_backup(taken_at),
    }
}

/// Keeps the gauge, until the end.
pub(in crate::run) async fn watch(data: DataDir, mut ended: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(LOOKED_AT_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            _ = ticks.tick() => {}
        }
        let data = data.clone();
        // The folder may be on a disk that hangs.
        if let Ok(Ok(noted)) = tokio::task::spawn_blocking(move || data.backup_noted()).await {
            gauge!(LAST_BACKUP).set(noted.map_or(0.0, seconds));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of seconds is exact for longer than anybody keeps backups")]
fn seconds(at: UnixMillis) -> f64 {
    (at.0 / 1_000) as f64
}
