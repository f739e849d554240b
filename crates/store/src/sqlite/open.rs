//! Opening: the file, its schema, what is known of nonces, and the threads.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use countersign_domain::time::{UnixMillis, rfc3339};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::SqliteStore;
use super::checkpoint::{self, LogSize};
use super::fault::fault;
use super::journal::{Damaged, FILE_MODE, Journal};
use super::lost_sync::{self, LostSync};
use super::nonces::Nonces;
use super::options::SqliteOptions;
use super::presence::Presence;
use super::readers::Readers;
use super::rows::Fields;
use super::schema;
use super::writer::{self, Shared};
use crate::contract::StoreError;
use crate::panicked::Panicked;
use crate::window::{ClaimHash, Window};
use crate::work_clock::WorkClock;

/// 3.51.3: older ones may corrupt a log that is reset while it is read.
const SQLITE_MIN: i32 = 3_051_003;
/// Page cache of the writer: a group of moves changes hundreds of pages, and those that do not fit are allocated and freed for each group.
const WRITE_CACHE_KIB: i32 = 32_768;
/// How often the write-ahead log is asked for while another process turns it on.
const WRITE_AHEAD_PERIOD: Duration = Duration::from_millis(5);
/// How long the checkpointer waits for readers while it holds the writer back.
const CHECKPOINT_WAIT_MS: u64 = 20;

/// About what a page takes in the log.
const PAGE_BYTES: i64 = 4096 + 24;

/// A connection that may write, as every one of ours is set up.
pub(super) fn connect(path: &Path, busy_ms: u64) -> Result<Connection, StoreError> {
    if rusqlite::version_number() < SQLITE_MIN {
        let version = rusqlite::version();
        return Err(StoreError::Unfit(format!("SQLite {version} may corrupt its log: 3.51.3 or newer is needed")));
    }
    make_closed(path);
    let conn = Connection::open(path).map_err(fault)?;
    conn.busy_timeout(Duration::from_millis(busy_ms)).map_err(fault)?;
    let mode = write_ahead(&conn, Duration::from_millis(busy_ms)).map_err(fault)?;
    if mode != "wal" {
        return Err(StoreError::Unfit(format!("the database cannot use a write-ahead log (it says {mode})")));
    }
    stable_plans(&conn)?;
    // FULL: a commit returns after the log is on stable storage. Checkpoints are the checkpointer's.
    for (name, value) in [
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("wal_autocheckpoint", 0),
        ("cache_size", -WRITE_CACHE_KIB),
        ("mmap_size", 0),
    ] {
        conn.pragma_update(None, name, value).map_err(fault)?;
    }
    Ok(conn)
}

/// A new file is its owner's alone; SQLite gives those beside it the same mode. One that is there is not touched: to close a file ends all
/// locks that this process has on it.
fn make_closed(path: &Path) {
    // Why it cannot be made SQLite says better.
    let _ = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
}

/// Turns the write-ahead log on, and says which journal is in use. Of several processes that do so on a new file at once SQLite tells all but
/// one that it is busy, without the wait that it was told to make: it would be a wait for each other.
#[expect(clippy::disallowed_methods, reason = "another process has it, and tells nobody when it is done")]
fn write_ahead(conn: &Connection, within: Duration) -> rusqlite::Result<String> {
    let deadline = Instant::now() + within;
    loop {
        match conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                thread::sleep(WRITE_AHEAD_PERIOD);
            }
            outcome => return outcome,
        }
    }
}

/// Makes SQLite leave the write-ahead log alone when this connection closes. Else the last connection to close copies the log beside the database
/// file into the file and removes the log, also where the log is another file's or holds what the disk failed to take ([`LostSync`]). The
/// checkpointer copies the log before the checkpointer ends.
pub(super) fn leave_log(conn: &Connection) -> Result<(), StoreError> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(|_| ()).map_err(fault)
}

/// A kept statement keeps its plan. Without this SQLite, built with STAT4 as ours is, prepares it anew whenever a parameter is bound
/// to another value: 20 us for each point read.
pub(super) fn stable_plans(conn: &Connection) -> Result<(), StoreError> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ()).map_err(fault)
}

/// What the database knows of nonces.
#[derive(Debug)]
struct Replay {
    key: [u8; 16],
    horizon: i64,
    mark: i64,
    unknowable_through: i64,
}

/// Reads what is known of nonces and notes that this boot of the machine writes the journal from now on.
fn replay(conn: &mut Connection, new_key: [u8; 16], boot_now: &str) -> Result<Replay, StoreError> {
    let transaction = conn.transaction().map_err(fault)?;
    transaction
        .execute(
            "INSERT INTO replay (one, hash_key, boot_id, journal_synced, horizon, mark, unknowable_through)
             VALUES (1, ?1, ?2, 1, ?3, ?3, ?3) ON CONFLICT (one) DO NOTHING",
            params![new_key, boot_now, i64::MIN],
        )
        .map_err(fault)?;
    let read = "SELECT hash_key, boot_id, journal_synced, horizon, mark, unknowable_through FROM replay";
    let read = transaction.query_row(read, [], |row| {
        let mut f = Fields::new(row, "replay", 0, 1);
        let read = || Ok((f.bytes()?, f.text()?, f.int()?, f.int()?, f.int()?, f.int()?));
        Ok({ read }())
    });
    let Some(read) = read.optional().map_err(fault)? else {
        return Err(StoreError::Corrupt { table: "replay", row: "1".to_owned() });
    };
    let (key, boot_id, synced, horizon, mark, unknowable_through) = read?;
    let same_boot = boot_id == boot_now && !boot_id.is_empty();
    let whole = same_boot || synced == 1;
    let unknowable_through = if whole { unknowable_through } else { unknowable_through.max(mark) };
    transaction
        .execute(
            "UPDATE replay SET boot_id = ?1, journal_synced = 0, unknowable_through = ?2",
            params![boot_now, unknowable_through],
        )
        .map_err(fault)?;
    transaction.commit().map_err(fault)?;
    Ok(Replay { key, horizon, mark, unknowable_through })
}

fn nonces(conn: &Connection, dir: &Path, replay: &Replay, mends_journal: bool) -> Result<Nonces, StoreError> {
    let mut window = Window::new(replay.horizon, replay.unknowable_through);
    let journal = Journal::open(dir, replay.key, replay.horizon, |hash, stamped_at| window.recall(hash, stamped_at))
        .map_err(|error| StoreError::Unavailable(format!("the nonce journal cannot be read: {error}")))?;
    if !journal.damaged().is_empty() {
        if mends_journal {
            hold_back(conn, &journal, replay.mark)?;
        }
        window.hold_back(replay.mark);
    }
    let mut select =
        conn.prepare("SELECT nonce_no, claim, stamped_at FROM nonce WHERE stamped_at > ?1").map_err(fault)?;
    let mut rows = select.query([replay.horizon]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let mut f = Fields::new(row, "nonce", 1, 0);
        let (claim, stamped_at) = (f.bytes()?, f.int()?);
        window.recall(ClaimHash::from_bytes(claim), stamped_at);
    }
    Ok(Nonces::new(replay.key, window, journal, replay.mark))
}

/// Something that the journal held is lost, as in a crash of the machine. First that is noted, then the files are written anew.
fn hold_back(conn: &Connection, journal: &Journal, mark: i64) -> Result<(), StoreError> {
    conn.execute("UPDATE replay SET unknowable_through = max(unknowable_through, ?1)", [mark]).map_err(fault)?;
    for Damaged { path, records } in journal.damaged() {
        tracing::error!(
            "The nonce journal {} is damaged: {records} of its records cannot be read. What they held is not known, so {} 503; look at the disk",
            path.display(),
            refused_through(mark)
        );
    }
    if let Err(error) = journal.mend() {
        tracing::warn!(%error, "The damaged nonce journal cannot be written anew: {error}; the next start finds it damaged again");
    }
    Ok(())
}

fn refused_through(mark: i64) -> String {
    // It was never raised, so no nonce was ever accepted.
    if mark == i64::MIN {
        return "no request is answered".to_owned();
    }
    format!("requests that are stamped up to {} are answered", rfc3339(UnixMillis(mark)))
}

/// The folder of a database: its journal lies beside it.
pub(super) fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

fn spawn(
    name: &str,
    panicked: &Panicked,
    body: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, StoreError> {
    let alarm = panicked.alarm();
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _alarm = alarm;
        body();
    });
    spawned.map_err(|error| StoreError::Unavailable(format!("no thread for {name}: {error}")))
}

pub(super) fn open(path: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
    let SqliteOptions { group_max, queue_max, window_key, boot_id, checkpoint_pages, mends_journal, busy_ms } = options;
    lost_sync::recover(path)?;
    let mut conn = connect(path, u64::from(busy_ms))?;
    // What the log has grown by behind somebody else's long read is given back when it begins anew; beneath that its file stays as it is.
    let log_bytes_max = i64::from(checkpoint_pages.max(1)) * 2 * PAGE_BYTES;
    conn.pragma_update(None, "journal_size_limit", log_bytes_max).map_err(fault)?;
    schema::migrate(&mut conn)?;
    let replay = replay(&mut conn, window_key, &boot_id)?;
    let nonces = Arc::new(nonces(&conn, &folder(path), &replay, mends_journal)?);
    let commits = Arc::new(AtomicU64::new(0));
    let presence = Arc::new(Presence::of(path)?);
    let readers = Arc::new(Readers::new(path, Arc::clone(&commits), Arc::clone(&presence)));
    let gate = Arc::new(Mutex::new(()));
    let log = Arc::new(LogSize::new(checkpoint_pages));
    let (checkpoint, wanted) = sync_channel(1);
    let (queue, messages) = sync_channel(queue_max.max(1));
    let hook = Arc::clone(&log);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
        hook.report(pages);
        Ok(())
    }))
    .map_err(fault)?;
    let (alive, work) = (Arc::new(()), Arc::new(WorkClock::new()));
    let (watched, panicked) = (Arc::downgrade(&alive), Panicked::new());

    let copier = connect(path, CHECKPOINT_WAIT_MS)?;
    for conn in [&conn, &copier] {
        leave_log(conn)?;
    }
    let lost_sync = Arc::new(LostSync::new(path));
    let checkpointer = {
        let (readers, gate, log) = (Arc::clone(&readers), Arc::clone(&gate), Arc::clone(&log));
        let shared = checkpoint::Shared { readers, gate, log, lost_sync: Arc::clone(&lost_sync) };
        spawn("store-checkpoint", &panicked, move || checkpoint::run(&copier, &shared, &wanted))?
    };
    let chain = Arc::new(OnceLock::new());
    let shared = Shared {
        nonces: Arc::clone(&nonces),
        commits,
        gate,
        log,
        checkpoint,
        group_max: group_max.max(1),
        work: Arc::clone(&work),
        presence: Arc::clone(&presence),
        lost_sync: Arc::clone(&lost_sync),
        chain: Arc::clone(&chain),
    };
    let writer = spawn("store-writer", &panicked, move || {
        writer::run(&conn, &shared, &messages);
        drop(alive);
    })?;
    Ok(SqliteStore {
        path: path.to_owned(),
        nonces,
        presence,
        readers,
        queue,
        work,
        lost_sync,
        chain,
        writer_alive: watched,
        panicked,
        threads: Mutex::new(vec![writer, checkpointer]),
    })
}

/// Notes that the journal is on stable storage whole, and empties the log. Only after the writer has ended.
pub(super) fn note_clean_end(path: &Path) -> Result<(), StoreError> {
    let conn = connect(path, 1000)?;
    conn.execute("UPDATE replay SET journal_synced = 1", []).map_err(fault)?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(fault)
}
