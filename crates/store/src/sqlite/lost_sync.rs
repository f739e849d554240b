//! Whether a sync of the database file has failed since it was opened.
//!
//! The kernel tells of a write that it could not do once, to the sync that follows, and counts it as done from then on. A checkpoint goes on
//! behind what the one before has copied, so its sync would succeed although pages are missing, and the log, which has them, would be
//! written over. So after such a sync nothing is copied any more, nor when connections close, and nothing is written: the next process that
//! opens the file finds the log whole, and copies all of it once more.

use tokio::sync::watch;

use super::SqliteStore;
use crate::contract::StoreError;

/// Noted by the checkpointer, looked at by the writer before each transaction.
#[derive(Debug)]
pub(super) struct LostSync {
    is_lost: watch::Sender<bool>,
    #[cfg(test)]
    pub(super) syncs_fail: std::sync::atomic::AtomicBool,
}

impl LostSync {
    pub(super) fn new() -> Self {
        Self {
            is_lost: watch::Sender::new(false),
            #[cfg(test)]
            syncs_fail: std::sync::atomic::AtomicBool::new(false),
        }
    }

    pub(super) fn note(&self) {
        self.is_lost.send_replace(true);
    }

    /// `Unavailable` once it has.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if *self.is_lost.borrow() {
            return Err(StoreError::Unavailable(
                "the disk failed to take what was copied into the database file, so nothing is written before the server has been started \
                 again, which copies it once more from the log; docs/RUNBOOK.md says what to do"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Waits until it has.
    pub(super) async fn noted(&self) {
        let mut is_lost = self.is_lost.subscribe();
        // Fails only without a sender, which is here.
        let _noted = is_lost.wait_for(|is_lost| *is_lost).await;
    }
}

impl SqliteStore {
    /// Waits until the disk has failed to take what was copied into the file. From then on nothing is written. Nothing that was acknowledged is
    /// lost once another process has opened the file.
    pub async fn sync_lost(&self) {
        self.lost_sync.noted().await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::batch::{Batch, Write};
    use crate::contract::{CommitError, Store as _};
    use crate::sqlite::SqliteOptions;

    fn open(path: &Path) -> SqliteStore {
        let mut options = SqliteOptions::new([1; 16], "boot");
        options.checkpoint_pages = 1;
        SqliteStore::open(path, options).expect("opens")
    }

    async fn set(store: &SqliteStore, name: usize) -> Result<(), CommitError> {
        let write = Write::PutSetting { name: name.to_string(), value: "value".to_owned() };
        store.commit(Batch(vec![write])).await.map(|_| ())
    }

    #[tokio::test]
    async fn after_a_sync_that_failed_nothing_is_written_and_the_log_stays_for_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let store = open(&path);
        store.lost_sync.syncs_fail.store(true, Ordering::Relaxed);
        let mut acknowledged = 0;
        let why = loop {
            match set(&store, acknowledged).await {
                Ok(()) if acknowledged < 100_000 => acknowledged += 1,
                Ok(()) => panic!("nobody has noticed"),
                Err(CommitError::Store(StoreError::Unavailable(why))) => break why,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert!(acknowledged > 0 && why.contains("has been started again"), "{acknowledged}: {why}");
        timeout(Duration::from_secs(10), store.sync_lost()).await.expect("whoever waits for it is told");
        // The disk seems to be well again: the kernel has told what it had to tell.
        store.lost_sync.syncs_fail.store(false, Ordering::Relaxed);
        assert!(set(&store, acknowledged).await.is_err() && store.ping().await.is_err());
        store.close().expect_err("it is not closed in order");
        drop(store);
        let log = std::fs::metadata(dir.path().join("db-wal")).expect("the log is there");
        assert!(log.len() > 0, "with what may not be in the file");

        let store = open(&path);
        for name in 0..acknowledged {
            assert!(store.setting(&name.to_string()).await.expect("reads").is_some(), "{name}");
        }
        set(&store, acknowledged).await.expect("it is written again");
        store.close().expect("it closes");
        assert!(!dir.path().join("db-wal").exists(), "all of it is in the file");
    }
}
