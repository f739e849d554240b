//! Since when a writer has been at one piece of work: a store whose writers hang is not ready, though reads may go well. Nor is one that has no room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::any::AnyStore;
use crate::contract::StoreError;

/// One writer's.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    /// Milliseconds from `made` to the begin of the work, and one; 0: there is none.
    since: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { made: Instant::now(), since: AtomicU64::new(0) }
    }

    pub(crate) fn begin(&self) {
        let since = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since.store(since.saturating_add(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long the present work has taken so far.
    pub(crate) fn age(&self) -> Duration {
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.made.elapsed().saturating_sub(Duration::from_millis(since - 1)),
        }
    }
}

impl AnyStore {
    /// Whether a change has waited for the database for so long that no more should be sent here. It may still be made.
    pub fn is_stalled(&self) -> bool {
        match self {
            Self::Sqlite(store) => store.is_stalled(),
            Self::Postgres(store) => store.is_stalled(),
            Self::Model(_) => false,
        }
    }

    /// Whether the store's disk has room again, where a change is no proof of it:
    /// [`PostgresStore::has_room`](crate::postgres::PostgresStore::has_room).
    pub async fn has_room(&self) -> Result<(), StoreError> {
        match self {
            Self::Postgres(store) => store.has_room().await,
            Self::Sqlite(_) | Self::Model(_) => Ok(()),
        }
    }

    /// Whether nonces of signed queries can be noted beside the database: [`SqliteStore::has_journal`](crate::sqlite::SqliteStore::has_journal).
    pub fn has_journal(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.has_journal(),
            Self::Postgres(_) | Self::Model(_) => Ok(()),
        }
    }
}
