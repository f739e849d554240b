//! The least that an outbox on SQLite can do for a callback, as a yardstick for the one that there is: what is queued is read, marked, and its
//! attempt appended, many in a commit. Two tables without an index, nobody who asks, no guard, no tenant.

use std::path::Path;

use rusqlite::{Connection, Result, params};

/// Pages in the write-ahead log before it is copied: 32 MB, as the store has it.
const LOG_PAGES: i32 = 8_192;
/// The same for the page cache, in KiB.
const CACHE_KIB: i32 = 32_768;

/// The yardstick.
#[derive(Debug)]
pub struct LeastOutbox {
    conn: Connection,
    /// The last one that was taken.
    taken: i64,
}

impl LeastOutbox {
    /// Makes the file. A commit returns after the log is on stable storage, as the store's do.
    pub fn make(path: &Path) -> Result<Self> {
        let conn = Connection::open(path)?;
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        for (name, value) in [("synchronous", 2), ("wal_autocheckpoint", LOG_PAGES), ("cache_size", -CACHE_KIB)] {
            conn.pragma_update(None, name, value)?;
        }
        conn.execute_batch(
            "CREATE TABLE queued (no INTEGER PRIMARY KEY, at INTEGER NOT NULL, is_done INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
             CREATE TABLE attempt (no INTEGER PRIMARY KEY, at INTEGER NOT NULL, sent BLOB NOT NULL, heard BLOB NOT NULL) STRICT;",
        )?;
        Ok(Self { conn, taken: 0 })
    }

    /// Queues so many of this body.
    pub fn queue(&mut self, count: usize, body: &[u8]) -> Result<()> {
        let transaction = self.conn.transaction()?;
        let mut insert = transaction.prepare_cached("INSERT INTO queued (at, is_done, body) VALUES (?1, 0, ?2)")?;
        for _ in 0..count {
            insert.execute(params![1_i64, body])?;
        }
        drop(insert);
        transaction.commit()
    }

    /// Takes the next ones, so many in a commit, until there are no more: each is read, marked, and its attempt appended. How many there were.
    pub fn take_all(&mut self, together: usize, sent: &[u8], heard: &[u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let transaction = self.conn.transaction()?;
            let mut select = transaction
                .prepare_cached("SELECT no, at, body FROM queued WHERE no > ?1 AND is_done = 0 ORDER BY no LIMIT ?2")?;
            let read =
                |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?));
            let most = i64::try_from(together).unwrap_or(i64::MAX);
            let rows = select.query_map([self.taken, most], read)?.collect::<Result<Vec<_>>>()?;
            drop(select);
            let mut mark = transaction.prepare_cached("UPDATE queued SET is_done = 1 WHERE no = ?1")?;
            let mut append =
                transaction.prepare_cached("INSERT INTO attempt (no, at, sent, heard) VALUES (?1, ?2, ?3, ?4)")?;
            for (no, at, _) in &rows {
                mark.execute([no])?;
                append.execute(params![no, at, sent, heard])?;
            }
            drop((mark, append));
            transaction.commit()?;
            done += rows.len();
            match rows.last() {
                Some((no, ..)) => self.taken = *no,
                None => return Ok(done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once_and_leaves_its_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut outbox = LeastOutbox::make(&folder.path().join("least")).expect("made");
        for _ in 0..2 {
            outbox.queue(50, b"{}").expect("queued");
            assert_eq!(outbox.take_all(32, b"POST", b"200").expect("taken"), 50);
        }
        assert_eq!(outbox.take_all(32, b"POST", b"200").expect("nothing is left"), 0);
        let count = |sql: &str| outbox.conn.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("counts");
        assert_eq!(count("SELECT count(*) FROM queued WHERE is_done = 1"), 100);
        assert_eq!(count("SELECT count(*) FROM attempt WHERE sent = x'504F5354'"), 100);
    }
}
