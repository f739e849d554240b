//! Reading connections: one for each thread that reads, with its read snapshot kept open between reads.
//!
//! A snapshot is renewed when the writer has committed since, so a caller always sees what was acknowledged to it. Opening one costs
//! three system calls, keeping it none.
//!
//! Invariant: every kept snapshot can be ended by the checkpointer ([`Readers::end_snapshots`]), so none holds the log back.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::fault::fault;
use super::open::{leave_log, stable_plans};
use super::presence::Presence;
use crate::asker::Asker;
use crate::contract::StoreError;

/// Page cache of one reading connection.
const READ_CACHE_KIB: i32 = 2048;
/// Statements kept by one reading connection: more than there are.
const STATEMENTS_MAX: usize = 64;
/// Long reads at once, of each kind.
const LISTS_MAX: usize = 4;
/// How long somebody waits for one of those places.
const PLACE_WITHIN: Duration = Duration::from_secs(5);

static NEXT_STORE: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's reader of each store that is open.
    static MINE: RefCell<Vec<(u64, Arc<Slot>)>> = const { RefCell::new(Vec::new()) };
}

/// A connection and, while one is kept, the count of commits at which its snapshot was opened.
#[derive(Debug)]
struct Reader {
    conn: Connection,
    snapshot: Option<u64>,
}

#[derive(Debug)]
enum Place {
    NotYet,
    Open(Reader),
    Closed,
}

/// One thread's reader. Its owner locks it for each read, uncontended but for the checkpointer.
#[derive(Debug)]
struct Slot(Mutex<Place>);

/// The reading connections of one store.
#[derive(Debug)]
pub(super) struct Readers {
    store: u64,
    path: PathBuf,
    commits: Arc<AtomicU64>,
    presence: Arc<Presence>,
    slots: Mutex<Vec<Weak<Slot>>>,
    /// For long reads: connections without a snapshot, lent to whoever has a permit.
    spare: Mutex<Vec<Connection>>,
    /// By [`Asker`].
    permits: [Arc<Semaphore>; Asker::COUNT],
    /// Long reads share this lock. The checkpointer takes the lock alone when long reads overlap so that one of them always holds the log.
    lists: RwLock<()>,
    closed: Mutex<bool>,
}

fn crowded() -> StoreError {
    StoreError::Unavailable("too many lists are asked for at once".to_owned())
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(fault)?;
    conn.busy_timeout(Duration::from_secs(1)).map_err(fault)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    stable_plans(&conn)?;
    for (name, value) in [("query_only", 1), ("cache_size", -READ_CACHE_KIB), ("mmap_size", 0)] {
        conn.pragma_update(None, name, value).map_err(fault)?;
    }
    Ok(conn)
}

fn run(conn: &Connection, sql: &str) -> Result<(), StoreError> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(|_| ()).map_err(fault)
}

impl Reader {
    /// Reads in a snapshot that is not older than `commits`.
    fn read<T>(
        &mut self,
        commits: u64,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.snapshot != Some(commits) {
            self.end_snapshot();
            run(&self.conn, "BEGIN")?;
            self.snapshot = Some(commits);
        }
        let found = read(&self.conn);
        if matches!(found, Err(StoreError::Unavailable(_) | StoreError::Unfit(_))) {
            self.end_snapshot();
        }
        found
    }

    fn end_snapshot(&mut self) {
        if self.snapshot.take().is_some() && !self.conn.is_autocommit() {
            // A read transaction has nothing to lose: if it cannot be ended it is over already.
            if let Err(error) = run(&self.conn, "ROLLBACK") {
                tracing::warn!(%error, "A read snapshot could not be ended");
            }
        }
    }
}

impl Readers {
    pub(super) fn new(path: &Path, commits: Arc<AtomicU64>, presence: Arc<Presence>) -> Self {
        Self {
            store: NEXT_STORE.fetch_add(1, Ordering::Relaxed),
            path: path.to_owned(),
            commits,
            presence,
            slots: Mutex::default(),
            spare: Mutex::default(),
            permits: std::array::from_fn(|_| Arc::new(Semaphore::new(LISTS_MAX))),
            lists: RwLock::default(),
            closed: Mutex::new(false),
        }
    }

    /// Reads on the calling thread: for reads of few rows.
    pub(super) fn here<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        MINE.with(|mine| {
            let mut mine = mine.borrow_mut();
            let at = match mine.iter().position(|(store, _)| *store == self.store) {
                Some(at) => at,
                None => self.join(&mut mine)?,
            };
            let mut slot = lock(&mine[at].1.0);
            if matches!(*slot, Place::NotYet) {
                *slot = Place::Open(Reader { conn: self.open()?, snapshot: None });
            }
            match &mut *slot {
                // The count is read before the snapshot is opened: at worst the snapshot is newer than it says.
                Place::Open(reader) => reader.read(self.commits.load(Ordering::Acquire), read),
                Place::NotYet | Place::Closed => Err(closed()),
            }
        })
    }

    /// A connection to the file that the store was opened with, and to none that has come in its place.
    fn open(&self) -> Result<Connection, StoreError> {
        self.presence.check()?;
        let conn = open(&self.path)?;
        leave_log(&conn)?;
        self.presence.check()?;
        Ok(conn)
    }

    /// Makes a slot for this thread, and drops those of stores that are closed.
    fn join(&self, mine: &mut Vec<(u64, Arc<Slot>)>) -> Result<usize, StoreError> {
        mine.retain(|(_, slot)| !matches!(*lock(&slot.0), Place::Closed));
        let closed_now = lock(&self.closed);
        if *closed_now {
            return Err(closed());
        }
        let slot = Arc::new(Slot(Mutex::new(Place::NotYet)));
        let mut slots = lock(&self.slots);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        mine.push((self.store, slot));
        Ok(mine.len() - 1)
    }

    /// Reads on a thread that may block: for reads of many rows.
    pub(super) async fn away<T: Send + 'static>(
        self: &Arc<Self>,
        asker: Asker,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits[asker as usize]).acquire_owned();
        let permit = match asker {
            // Whoever it is that has too much to read, the server can wait.
            Asker::Server => permit.await,
            Asker::Merchant | Asker::Operator => timeout(PLACE_WITHIN, permit).await.map_err(|_| crowded())?,
        };
        let permit = permit.map_err(|_| closed())?;
        let readers = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let spare = lock(&readers.spare).pop();
            let conn = match spare {
                Some(conn) => conn,
                None => readers.open()?,
            };
            let list = readers.lists.read().unwrap_or_else(PoisonError::into_inner);
            run(&conn, "BEGIN")?;
            let found = read(&conn)?;
            run(&conn, "ROLLBACK")?;
            drop(list);
            // Held over the push: whoever closes comes before or after both.
            let closed_now = lock(&readers.closed);
            if !*closed_now {
                lock(&readers.spare).push(conn);
            }
            Ok(found)
        });
        task.await.map_err(|error| StoreError::Unavailable(format!("a read was broken off: {error}")))?
    }

    /// Ends every kept snapshot, so that the log can be emptied. Owners open a new one with their next read.
    pub(super) fn end_snapshots(&self) {
        let slots: Vec<_> = lock(&self.slots).iter().filter_map(Weak::upgrade).collect();
        for slot in slots {
            if let Place::Open(reader) = &mut *lock(&slot.0) {
                reader.end_snapshot();
            }
        }
    }

    /// Waits until no long read is under way; none begins while what this gives is held.
    pub(super) fn hold_lists(&self) -> RwLockWriteGuard<'_, ()> {
        self.lists.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn lists_are_held(&self) -> bool {
        self.lists.try_read().is_err()
    }

    /// Closes every connection. Reads from now on are `Unavailable`.
    pub(super) fn close(&self) {
        self.permits.iter().for_each(|permits| permits.close());
        *lock(&self.closed) = true;
        for slot in lock(&self.slots).drain(..).filter_map(|slot| slot.upgrade()) {
            *lock(&slot.0) = Place::Closed;
        }
        lock(&self.spare).clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rusqlite::StatementStatus;
    use tokio::time::timeout;

    use super::super::{open::connect, queries, schema};
    use super::*;

    #[test]
    fn a_kept_statement_is_not_prepared_again_for_another_value() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        schema::migrate(&mut connect(&path, 1000).expect("opens")).expect("migrates");
        let conn = open(&path).expect("opens");
        let mut kept = conn.prepare(queries::NEWEST_RULE).expect("prepares");
        for merchant_no in 1..=5 {
            assert!(!kept.exists([merchant_no, 1]).expect("reads"));
        }
        assert_eq!(kept.get_status(StatementStatus::RePrepare), 0);
    }

    /// Operators have taken every place that they have, and more of them wait for one.
    #[tokio::test]
    async fn lists_of_operators_keep_nobody_else_waiting() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let conn = connect(&path, 1000).expect("opens");
        conn.execute_batch("CREATE TABLE t (x)").expect("is written");
        let presence = Arc::new(Presence::of(&path).expect("is there"));
        let readers = Arc::new(Readers::new(&path, Arc::new(AtomicU64::new(0)), presence));
        let under_way = Arc::new(Semaphore::new(0));
        let lists: Vec<_> = (0..LISTS_MAX + 2)
            .map(|_| {
                let (end, may_end) = channel::<()>();
                let (readers, under_way) = (Arc::clone(&readers), Arc::clone(&under_way));
                let list = tokio::spawn(async move {
                    let read = move |_: &Connection| {
                        under_way.add_permits(1);
                        may_end.recv().map_err(|_| closed())
                    };
                    readers.away(Asker::Operator, read).await
                });
                (end, list)
            })
            .collect();
        let begun = under_way.acquire_many(u32::try_from(LISTS_MAX).expect("is small")).await.expect("lists begin");
        for asker in [Asker::Server, Asker::Merchant] {
            let read = readers.away(asker, |_| Ok(()));
            timeout(Duration::from_secs(10), read).await.expect("has a place").expect("reads");
        }
        assert_eq!(under_way.available_permits(), 0, "two lists wait for a place");
        drop(begun);
        let (ends, lists): (Vec<_>, Vec<_>) = lists.into_iter().unzip();
        for end in ends {
            end.send(()).expect("the list will listen");
        }
        for list in lists {
            list.await.expect("ends").expect("reads");
        }
    }
}
