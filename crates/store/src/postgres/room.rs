//! Whether the database's disk has room again, once a change was refused because it has none.
//!
//! A small change is no proof: it is written beside the row before it, on a page that is there, while all that grow are refused. So room is asked for, and
//! given back.

use std::sync::atomic::{AtomicBool, Ordering};

use super::PostgresStore;
use super::dial::Dial;
use super::fault::{Failure, fault};
use crate::contract::StoreError;

/// A table of one MiB that nobody else sees, and that is gone with its transaction. Its rows are too short to be compressed.
const ASK: &str = "BEGIN; SET LOCAL temp_tablespaces = '';
    CREATE TEMPORARY TABLE countersign_room ON COMMIT DROP AS SELECT repeat(md5(n::text), 47) FROM generate_series(1, 700) n;
    ROLLBACK";

/// What is known of the disk.
#[derive(Debug, Default)]
pub(super) struct Room {
    was_full: AtomicBool,
}

impl Room {
    /// Hears why a change was not made.
    pub(super) fn heed(&self, failure: &Failure) {
        if failure.is_for_want_of_room {
            self.was_full.store(true, Ordering::Relaxed);
        }
    }

    /// Asks for room, if there was none. Where a server will not say, as to a role that may make no temporary table, the small change has to do.
    async fn is_there(&self, dial: &Dial) -> Result<(), StoreError> {
        if !self.was_full.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let ask = async {
            let session = dial.session().await?;
            dial.in_time(async { session.client().batch_execute(ASK).await.map_err(fault) }).await
        };
        match ask.await {
            Err(error @ StoreError::Unavailable(_)) => {
                self.was_full.store(true, Ordering::Relaxed);
                Err(error)
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl PostgresStore {
    /// Whether the database's disk has room for more than a change that needs none: asked of it once it had none for a change.
    pub async fn has_room(&self) -> Result<(), StoreError> {
        self.dial.room().is_there(&self.dial).await
    }
}
