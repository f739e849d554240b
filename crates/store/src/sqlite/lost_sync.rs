//! Whether a sync of the database file has failed since it was opened.
//!
//! The kernel tells of a write that it could not do once, to the sync that follows, and counts it as done from then on. A checkpoint goes on
//! behind what the one before has copied, so its sync would succeed although pages are missing, and the log, which has them, would be
//! written over. So after such a sync nothing is copied any more, nor when connections close, and nothing is written. A file beside the
//! database says so to the next start, which copies the whole log once more, with nobody else at the file: how far it was copied is known to
//! all who have it open, and forgotten once nobody has.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tokio::sync::watch;

use super::SqliteStore;
use super::fault::fault;
use super::faults::Faults;
use super::open::leave_log;
use crate::contract::StoreError;

/// Noted by the checkpointer, looked at by the writer before each transaction.
#[derive(Debug)]
pub(super) struct LostSync {
    mark: PathBuf,
    is_lost: watch::Sender<bool>,
    pub(super) faults: Faults,
}

/// The file beside a database whose log is to be copied once more.
fn mark_of(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push("-unsynced");
    PathBuf::from(name)
}

/// Copies the whole log of a file whose sync failed, if it did. `Unavailable` while another program has it open.
pub(super) fn recover(database: &Path) -> Result<(), StoreError> {
    let mark = mark_of(database);
    let unusable = |error: io::Error| StoreError::Unavailable(format!("{}: {error}", mark.display()));
    if !mark.try_exists().map_err(unusable)? {
        return Ok(());
    }
    let conn = Connection::open(database).map_err(fault)?;
    leave_log(&conn)?;
    let copied = copy_alone(&conn).map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => StoreError::Unavailable(format!(
            "the disk failed to take what was copied into {0}, and another program has that file open: end it, a backup or doctor perhaps, \
             and start again",
            database.display()
        )),
        Some(_) | None => fault(error),
    })?;
    if !copied {
        return Err(StoreError::Unavailable(format!("the log of {} cannot be copied into it", database.display())));
    }
    drop(conn);
    fs::remove_file(&mark).map_err(unusable)
}

/// Whether all of the log is in the file, and on the disk.
fn copy_alone(conn: &Connection) -> rusqlite::Result<bool> {
    // Set before the file is read, it leaves what others know of the log aside.
    conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
}

impl LostSync {
    pub(super) fn new(database: &Path) -> Self {
        Self { mark: mark_of(database), is_lost: watch::Sender::new(false), faults: Faults::default() }
    }

    /// An error: the next start is not told.
    pub(super) fn note(&self) -> io::Result<()> {
        // First: whoever waits for the other may end the process.
        let marked =
            fs::write(&self.mark, "the disk failed to take what was copied into the database; see docs/RUNBOOK.md\n");
        self.is_lost.send_replace(true);
        marked
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
    async fn noted(&self) {
        let mut is_lost = self.is_lost.subscribe();
        // Fails only without a sender, which is here.
        let _noted = is_lost.wait_for(|is_lost| *is_lost).await;
    }
}

impl SqliteStore {
    /// Waits until the disk has failed to take what was copied into the file. From then on nothing is written. Nothing that was acknowledged is
    /// lost: the log has it, and the next [`SqliteStore::open`] copies it once more.
    pub async fn sync_lost(&self) {
        self.lost_sync.noted().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::super::faults::Fault;
    use super::super::schema;
    use super::*;
    use crate::batch::{Batch, Write};
    use crate::contract::{CommitError, Store as _};
    use crate::sqlite::SqliteOptions;

    /// More pages than a start writes, so that nothing is copied before the test lets the sync fail.
    fn options() -> SqliteOptions {
        SqliteOptions { checkpoint_pages: 64, ..SqliteOptions::new([1; 16], "boot") }
    }

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::open(path, options()).expect("opens")
    }

    async fn set(store: &SqliteStore, name: usize) -> Result<(), CommitError> {
        let write = Write::PutSetting { name: name.to_string(), value: "value".to_owned() };
        store.commit(Batch(vec![write])).await.map(|_| ())
    }

    /// Writes until nothing is written any more: how often it was acknowledged, and what was said then.
    async fn until_refused(store: &SqliteStore) -> (usize, String) {
        for acknowledged in 0..100_000 {
            match set(store, acknowledged).await {
                Ok(()) => {}
                Err(CommitError::Store(StoreError::Unavailable(why))) => return (acknowledged, why),
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("nobody has noticed");
    }

    /// A page that the disk did not take is as it was before, whoever reads it later.
    #[tokio::test]
    async fn after_a_sync_that_failed_nothing_is_written_and_the_next_start_copies_the_log_once_more() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        open(&path).close().expect("all of it is in the file");
        let before = fs::read(&path).expect("is read");
        let store = open(&path);
        store.lost_sync.faults.begin(Fault::LostSync);
        let (acknowledged, why) = until_refused(&store).await;
        assert!(acknowledged > 0 && why.contains("has been started again"), "{acknowledged}: {why}");
        timeout(Duration::from_secs(10), store.sync_lost()).await.expect("whoever waits for it is told");
        // The disk seems to be well again: the kernel has told what it had to tell.
        store.lost_sync.faults.end();
        assert!(set(&store, acknowledged).await.is_err() && store.ping().await.is_err());
        let another = schema::look(&path).expect("opens");
        let look = || another.query_row("SELECT count(*) FROM setting", [], |row| row.get::<_, i64>(0));
        assert!(look().expect("reads") > 0);
        store.close().expect_err("it is not closed in order");
        drop(store);
        fs::write(&path, before).expect("is as it was");

        // As long as somebody has the file open, it is remembered how much of the log was copied.
        let refused = SqliteStore::open(&path, options()).expect_err("somebody has it");
        assert!(refused.to_string().contains("another program has that file open"), "{refused}");
        drop(another);
        let store = open(&path);
        for name in 0..acknowledged {
            assert!(store.setting(&name.to_string()).await.expect("reads").is_some(), "{name}");
        }
        set(&store, acknowledged).await.expect("it is written again");
        store.close().expect("it closes");
        assert!(!dir.path().join("db-wal").exists() && !mark_of(&path).exists(), "all of it is in the file");
        drop(store);
        open(&path).close().expect("nothing is remembered");
    }
}
