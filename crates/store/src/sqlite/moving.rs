//! The file as the source of a move: what it says of a move, what it ever accepted, and its rows in order.

use std::path::{Path, PathBuf};

use countersign_domain::time::UnixMillis;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::mpsc;

use super::fault::fault;
use super::journal::Journal;
use super::open::{connect, folder};
use super::rows::Fields;
use super::schema::look;
use super::{SqliteOptions, SqliteStore};
use crate::contract::StoreError;
use crate::moving::{Cell, Table, read};

/// Names this file among all that were ever moved; another one after each return.
const MOVE_ID: &str = "move_id";
/// Where a move was begun to. In the way of `serve`, so that nothing is acknowledged here that is not copied.
const MOVING_TO: &str = "moving_to";
/// Where a move is about to be finished to: that database may be complete by now.
const MOVE_ENDS: &str = "move_ends";
/// Where a move was finished to.
const MOVED_TO: &str = "moved_to";

/// How long to wait for a lock that another program holds on the file.
const BUSY_MS: u64 = 5000;
/// Rows read ahead, in portions.
const PORTIONS_AHEAD: usize = 2;

/// What a file says of its own move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveMark {
    /// A move was begun, to there, and is not finished.
    Begun(String),
    /// A move to there was cut off at its end: the copy may be complete, and served.
    Ending(String),
    /// The deployment lives there now.
    Done(String),
}

/// A portion of rows, as many as one transaction takes.
pub(crate) type Portion = Vec<Vec<Cell>>;

/// A file that nobody serves while it is moved.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    conn: Connection,
}

/// Where the deployment of a file was moved to, without changing the file.
pub(super) fn mark(path: &Path) -> Result<Option<MoveMark>, StoreError> {
    with_settings(path, mark_in)
}

/// A deployment setting of a file, without changing the file.
pub(super) fn peek(path: &Path, name: &str) -> Result<Option<String>, StoreError> {
    with_settings(path, |conn| setting(conn, name))
}

fn with_settings<T>(
    path: &Path,
    ask: impl FnOnce(&Connection) -> Result<Option<T>, StoreError>,
) -> Result<Option<T>, StoreError> {
    if !path.exists() {
        return Ok(None);
    }
    let conn = look(path)?;
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'setting'";
    match conn.query_row(there, [], |_| Ok(())).optional().map_err(fault)? {
        Some(()) => ask(&conn),
        None => Ok(None),
    }
}

fn mark_in(conn: &Connection) -> Result<Option<MoveMark>, StoreError> {
    if let Some(place) = setting(conn, MOVED_TO)? {
        return Ok(Some(MoveMark::Done(place)));
    }
    if let Some(place) = setting(conn, MOVE_ENDS)? {
        return Ok(Some(MoveMark::Ending(place)));
    }
    Ok(setting(conn, MOVING_TO)?.map(MoveMark::Begun))
}

fn setting(conn: &Connection, name: &str) -> Result<Option<String>, StoreError> {
    let select = "SELECT value FROM setting WHERE name = ?1";
    conn.query_row(select, [name], |row| row.get(0)).optional().map_err(fault)
}

/// Takes a deployment back: from here on no database is its copy, and no move is finished or taken up.
pub(super) fn take_back(path: &Path) -> Result<(), StoreError> {
    let conn = connect(path, BUSY_MS)?;
    let forget = "DELETE FROM setting WHERE name IN (?1, ?2, ?3)";
    conn.execute(forget, [MOVE_ID, MOVING_TO, MOVE_ENDS]).map(|_| ()).map_err(fault)
}

impl Source {
    /// Brings the schema up to date, empties the log, and puts the journal on stable storage, as a server's start and stop do.
    pub(crate) fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        // The folder may be served again, if the move is not finished.
        SqliteStore::open(path, SqliteOptions { mends_journal: false, ..options })?.close()?;
        Ok(Self { path: path.to_owned(), conn: connect(path, BUSY_MS)? })
    }

    /// The name of its move, if one was ever begun and not taken back.
    pub(crate) fn move_id(&self) -> Result<Option<String>, StoreError> {
        setting(&self.conn, MOVE_ID)
    }

    pub(crate) fn mark(&self) -> Result<Option<MoveMark>, StoreError> {
        mark_in(&self.conn)
    }

    /// Notes, durably, that a move of this name begins.
    pub(crate) fn begin(&mut self, id: &str, place: &str) -> Result<(), StoreError> {
        self.put(&[(MOVE_ID, id), (MOVING_TO, place)])
    }

    /// Notes, durably, that the copy is about to be complete.
    pub(crate) fn end(&mut self, place: &str) -> Result<(), StoreError> {
        self.put(&[(MOVE_ENDS, place)])
    }

    /// Notes, durably, that the deployment lives elsewhere.
    pub(crate) fn finish(&mut self, place: &str) -> Result<(), StoreError> {
        self.put(&[(MOVED_TO, place)])
    }

    fn put(&mut self, settings: &[(&str, &str)]) -> Result<(), StoreError> {
        let transaction = self.conn.transaction().map_err(fault)?;
        for (name, value) in settings {
            let put = "INSERT INTO setting (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
            transaction.execute(put, params![name, value]).map_err(fault)?;
        }
        transaction.commit().map_err(fault)
    }

    /// No request with a later timestamp was ever accepted here. What a crash of the machine made unknowable counts as accepted.
    pub(crate) fn newest_accepted(&self) -> Result<UnixMillis, StoreError> {
        let select = "SELECT hash_key, horizon, unknowable_through, mark,
                      (SELECT coalesce(max(stamped_at), horizon) FROM nonce) FROM replay";
        let found = self.conn.query_row(select, [], |row| {
            let mut f = Fields::new(row, "replay", 0, 1);
            let read = || Ok((f.bytes()?, f.int()?, f.int()?, f.int()?, f.int()?));
            Ok({ read }())
        });
        let Some(found) = found.optional().map_err(fault)? else {
            return Err(StoreError::Corrupt { table: "replay", row: "1".to_owned() });
        };
        let (key, horizon, unknowable_through, mark, in_table) = found?;
        let mut newest = horizon.max(unknowable_through).max(in_table);
        let journal = Journal::open(&folder(&self.path), key, horizon, |_, stamped_at| newest = newest.max(stamped_at))
            .map_err(|error| StoreError::Unavailable(format!("the nonce journal cannot be read: {error}")))?;
        // What is lost of a damaged one was stamped no later than the mark.
        Ok(UnixMillis(if journal.damaged().is_empty() { newest } else { newest.max(mark) }))
    }

    /// How many rows of a table are to be moved.
    pub(crate) fn count(&self, table: &Table) -> Result<u64, StoreError> {
        let count = format!("SELECT count(*) FROM {}", table.source);
        let count: i64 = self.conn.query_row(&count, [], |row| row.get(0)).map_err(fault)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The rows of a table in its order, from the one after the first `skipped`, in portions of at most `rows` rows and `bytes` bytes.
    pub(crate) fn rows(&self, table: &'static Table, skipped: u64, rows: usize, bytes: usize) -> Rows {
        let (sender, portions) = mpsc::channel(PORTIONS_AHEAD);
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || {
            let sent = connect(&path, BUSY_MS).and_then(|conn| send(&conn, table, skipped, rows, bytes, &sender));
            if let Err(error) = sent {
                drop(sender.blocking_send(Err(error)));
            }
        });
        Rows(portions)
    }
}

/// Rows on their way.
#[derive(Debug)]
pub(crate) struct Rows(mpsc::Receiver<Result<Portion, StoreError>>);

impl Rows {
    /// The next portion, never empty; none is the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Portion>, StoreError> {
        self.0.recv().await.transpose()
    }
}

fn send(
    conn: &Connection,
    table: &'static Table,
    skipped: u64,
    rows_max: usize,
    bytes_max: usize,
    to: &mpsc::Sender<Result<Portion, StoreError>>,
) -> Result<(), StoreError> {
    let columns: Vec<String> = table.columns.iter().map(|c| format!("{} AS \"{}\"", c.source, c.name)).collect();
    // Nobody writes to the file, so the rows before are the same ones each time.
    let select = format!(
        "SELECT {} FROM {} ORDER BY {} LIMIT -1 OFFSET {skipped}",
        columns.join(", "),
        table.source,
        table.order
    );
    let mut select = conn.prepare(&select).map_err(fault)?;
    let mut rows = select.query([]).map_err(fault)?;
    let (mut portion, mut bytes) = (Portion::new(), 0);
    while let Some(row) = rows.next().map_err(fault)? {
        let cells = read(row, table.columns).map_err(|at| StoreError::Corrupt {
            table: table.name,
            row: format!("with a {} that cannot be read", table.columns[at].name),
        })?;
        bytes += cells.iter().map(Cell::weight).sum::<usize>();
        portion.push(cells);
        if portion.len() == rows_max || bytes >= bytes_max {
            bytes = 0;
            if to.blocking_send(Ok(std::mem::take(&mut portion))).is_err() {
                return Ok(());
            }
        }
    }
    if !portion.is_empty() {
        drop(to.blocking_send(Ok(portion)));
    }
    Ok(())
}
