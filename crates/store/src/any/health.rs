//! What is asked of a store beside its work: how far away it is, and whether it is stalled, full or broken.

use super::AnyStore;
use crate::contract::StoreError;

/// What has broken where nothing is written any more.
const WRITER: &str = "writer of the store";

impl AnyStore {
    /// Whether a read is a message there and back, so that one that can be saved should be. Elsewhere it takes some microseconds.
    pub const fn reads_cost_a_round_trip(&self) -> bool {
        match self {
            Self::Postgres(_) => true,
            Self::Sqlite(_) | Self::Model(_) => false,
        }
    }

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

    /// Waits for what only a new start can mend, and says what: [`SqliteStore::sync_lost`], [`PostgresStore::replaced`], and a writer that has ended
    /// by a panic.
    pub async fn broken(&self) -> &'static str {
        match self {
            Self::Sqlite(store) => {
                tokio::select! {
                    () = store.sync_lost() => "database file",
                    () = store.panicked() => WRITER,
                }
            }
            Self::Postgres(store) => {
                tokio::select! {
                    () = store.replaced() => "database, which was replaced",
                    () = store.panicked() => WRITER,
                }
            }
            Self::Model(_) => std::future::pending().await,
        }
    }
}
