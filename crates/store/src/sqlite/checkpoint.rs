//! Moves committed pages from the log into the database file, on a thread and connection of its own, when the log has grown.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, Error, ffi};

use super::faults::Fault;
use super::lost_sync::LostSync;
use super::readers::Readers;

/// How many pages the log holds, as the writer's commits report it.
#[derive(Debug)]
pub(super) struct LogSize {
    pages: AtomicU32,
    /// A checkpoint is wanted from here on.
    wanted_at: AtomicU32,
    /// The size that calls for a checkpoint after the log was emptied.
    pages_max: u32,
}

impl LogSize {
    pub(super) fn new(pages_max: u32) -> Self {
        let pages_max = pages_max.max(1);
        Self { pages: AtomicU32::new(0), wanted_at: AtomicU32::new(pages_max), pages_max }
    }

    pub(super) fn report(&self, pages: i32) {
        self.pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn wants_checkpoint(&self) -> bool {
        self.pages.load(Ordering::Relaxed) >= self.wanted_at.load(Ordering::Relaxed)
    }

    /// After a checkpoint: the log begins anew, or some reader held it and a later try is worth while.
    fn checked(&self, emptied: bool) {
        let wanted_at = if emptied {
            self.pages.store(0, Ordering::Relaxed);
            self.pages_max
        } else {
            self.pages.load(Ordering::Relaxed).saturating_add(self.pages_max / 4 + 1)
        };
        self.wanted_at.store(wanted_at, Ordering::Relaxed);
    }
}

/// Why the log could not be copied.
#[derive(Debug)]
enum Failure {
    /// Of what was copied some may never come to be on the disk.
    Sync(String),
    /// Nothing is lost: it can be tried again.
    Copy(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::SqliteFailure(failure, _) if failure.extended_code == ffi::SQLITE_IOERR_FSYNC => {
                Self::Sync(error.to_string())
            }
            _ => Self::Copy(error),
        }
    }
}

/// What the checkpointer shares with the rest of the store.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) readers: Arc<Readers>,
    /// Held by the writer while a transaction is open.
    pub(super) gate: Arc<Mutex<()>>,
    pub(super) log: Arc<LogSize>,
    pub(super) lost_sync: Arc<LostSync>,
}

/// Checkpoints whenever it is told to, until the writer is gone, and then once more.
pub(super) fn run(conn: &Connection, shared: &Shared, wanted: &Receiver<()>) {
    let mut held_back = false;
    let mut file = opened(conn);
    while wanted.recv().is_ok() {
        held_back = !tried(conn, file.as_ref(), shared, held_back);
        shared.log.checked(!held_back);
    }
    // No connection does it as it closes: see `leave_log`. Where the log was removed, what is in it is saved by this. It waits for no list: what
    // stays in the log is copied by whoever opens the file next.
    tried(conn, file.as_ref(), shared, false);
    // The writer is gone. Where a sync has failed the locks stay as long as the process.
    if shared.lost_sync.check().is_ok() {
        drop(file.take());
    }
}

/// Whether the log is empty afterwards. Why it is not, is told.
fn tried(conn: &Connection, file: Option<&File>, shared: &Shared, without_lists: bool) -> bool {
    if shared.lost_sync.check().is_err() {
        return false;
    }
    match once(conn, file, shared, without_lists) {
        Ok(emptied) => emptied,
        Err(Failure::Copy(error)) => {
            tracing::warn!(%error, "The database's log could not be copied into its file; it grows until it can");
            false
        }
        Err(Failure::Sync(error)) => {
            if let Err(error) = shared.lost_sync.note() {
                tracing::error!(%error, "The next start cannot be told that the disk failed to take what was copied into the database file");
            }
            tracing::error!(
                error,
                "The disk failed to take what was copied into the database file: {error}. Nothing is written any more. Nothing that was \
                 acknowledged is lost, since the log still has it, and the next start copies it once more"
            );
            false
        }
    }
}

/// The database file, to be synced beside the writer. Whoever closes any descriptor of a file ends every POSIX lock that the process has on
/// it, SQLite's own among them: it stays open until nothing is written any more, also where this thread panics. None where it cannot be
/// opened; then SQLite alone syncs it.
fn opened(conn: &Connection) -> ManuallyDrop<Option<File>> {
    ManuallyDrop::new(conn.path().and_then(|path| File::open(path).ok()))
}

/// Whether the log is empty afterwards. `without_lists`: long reads that overlap would hold the log back for ever, so they wait.
fn once(conn: &Connection, file: Option<&File>, shared: &Shared, without_lists: bool) -> Result<bool, Failure> {
    let Shared { readers, gate, lost_sync, .. } = shared;
    let _no_lists = without_lists.then(|| readers.hold_lists());
    // The bulk of it beside the writer. Old snapshots would stop it half way.
    readers.end_snapshots();
    checkpoint(conn, "PASSIVE")?;
    // SQLite syncs the file once it has caught up with the writer, which is below, with the writer held back: what is on the disk by then
    // holds nobody up.
    if let Some(file) = file {
        sync(file, lost_sync).map_err(|error| Failure::Sync(error.to_string()))?;
    }
    // The rest, and the return to the beginning of the log, between two commits. A snapshot that a reader opens after everything
    // was copied does not use the log, hence the second ending just before the last step.
    let _between_commits = gate.lock().unwrap_or_else(PoisonError::into_inner);
    readers.end_snapshots();
    checkpoint(conn, "PASSIVE")?;
    readers.end_snapshots();
    Ok(checkpoint(conn, "RESTART")?)
}

fn sync(file: &File, lost_sync: &LostSync) -> io::Result<()> {
    if lost_sync.faults.has(Fault::LostSync) {
        return Err(io::Error::other("as a test wants it"));
    }
    file.sync_data()
}

/// Whether it could do all of it.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<bool> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (busy, pages, copied): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(busy == 0 && pages == copied)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::super::open::connect;
    use super::super::presence::Presence;
    use super::*;
    use crate::asker::Asker;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn long_reads_hold_the_log_back_once_and_then_wait() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let conn = connect(&path, 5000).expect("opens");
        conn.execute_batch("CREATE TABLE t (x)").expect("is written");
        let presence = Arc::new(Presence::of(&path).expect("is there"));
        let readers = Arc::new(Readers::new(&path, Arc::new(AtomicU64::new(0)), presence));
        let (begun, has_begun) = channel();
        let (end, may_end) = channel::<()>();
        let list = tokio::spawn({
            let readers = Arc::clone(&readers);
            async move {
                let read = move |conn: &Connection| {
                    let rows: i64 = conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("reads");
                    begun.send(()).expect("somebody listens");
                    may_end.recv().expect("is told");
                    Ok(rows)
                };
                readers.away(Asker::Operator, read).await
            }
        });
        tokio::task::spawn_blocking(move || {
            has_begun.recv().expect("it begins");
            conn.execute_batch("INSERT INTO t VALUES (1)").expect("is written");
            let copier = connect(&path, 20).expect("opens");
            let shared = Shared {
                readers: Arc::clone(&readers),
                gate: Arc::default(),
                log: Arc::new(LogSize::new(1)),
                lost_sync: Arc::new(LostSync::new(&path)),
            };
            let file = opened(&copier);
            assert!(!once(&copier, file.as_ref(), &shared, false).expect("runs"), "the list holds the log");
            let checkpoint = std::thread::spawn(move || once(&copier, opened(&copier).as_ref(), &shared, true));
            let deadline = Instant::now() + Duration::from_secs(10);
            while !readers.lists_are_held() {
                assert!(Instant::now() < deadline, "the checkpointer waits for the list, and others for it");
                std::thread::yield_now();
            }
            end.send(()).expect("the list listens");
            assert!(checkpoint.join().expect("ends").expect("runs"), "the log is empty");
        })
        .await
        .expect("holds");
        assert_eq!(list.await.expect("ends").expect("reads"), 0);
    }

    #[test]
    fn of_a_failed_sync_something_may_be_lost_and_of_no_other_failure() {
        let failed = |code| Failure::from(Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(matches!(failed(ffi::SQLITE_IOERR_FSYNC), Failure::Sync(_)));
        for other in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_READ, ffi::SQLITE_BUSY] {
            assert!(matches!(failed(other), Failure::Copy(_)), "{other}");
        }
    }
}
