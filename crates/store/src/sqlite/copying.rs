//! Copies of a deployment in a file: made while it runs, filled from another database, and turned into a deployment of their own.

use std::collections::HashMap;
use std::path::Path;

use countersign_domain::time::UnixMillis;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, Transaction, params, params_from_iter};

use super::SqliteStore;
use super::fault::fault;
use super::open::{connect, leave_log};
use super::schema::{self, look, migrate, state};
use crate::contract::StoreError;
use crate::moving::{Cell, Table};

/// How long to wait for a lock that another program holds on the file.
const BUSY_MS: u64 = 10_000;

/// So many `seq` at least are left out of each application's, for what the original gave after a copy of it was made; its next event has a multiple
/// of it and one. More events than an application has in a day. The chains of moves know it, too.
const SEQ_LEFT_OUT: i64 = 10_000_000;
/// One restore leaves out what another one has given that was made of the same copy, or of an older one, so long before: each such time has a
/// multiple of [`SEQ_LEFT_OUT`] of its own.
const SEQ_OF_MS: i64 = 10_000;
/// The first of these times, 2025-01-01T00:00:00Z. In 2167 they reach 2^52, which every language with doubles still counts through.
const SEQ_BEGINS_MS: i64 = 1_735_689_600_000;

/// What was paid last of each sub-account, by its orders, where that is later than what is noted.
const LAST_PAID: &str = "INSERT INTO last_paid (tenant_no, merchant_no, paid_at)
    SELECT p.tenant_no, p.merchant_no, max(p.paid_at) FROM payment_order p JOIN merchant m ON m.merchant_no = p.merchant_no
    WHERE m.kind = 'sub_account' AND p.paid_at IS NOT NULL GROUP BY p.tenant_no, p.merchant_no
    ON CONFLICT (merchant_no) DO UPDATE SET paid_at = excluded.paid_at WHERE excluded.paid_at > paid_at";

/// What replaces what in a copy that becomes a deployment.
#[derive(Clone, Debug)]
pub struct Revival<'a> {
    /// Settings that it gets.
    pub settings: &'a [(&'a str, &'a str)],
    /// What is stamped by then is refused, and whatever the copy knows to have been accepted.
    pub horizon: UnixMillis,
    /// When it is made: a copy that is revived later goes on at later `seq`.
    pub at: UnixMillis,
}

/// Files that nobody serves, but for [`SqliteStore::copy`].
impl SqliteStore {
    /// What is wrong inside a file of this program's schema: damage, and chains of rows that do not hold together. Empty if nothing is. Reads
    /// everything.
    pub fn faults(path: &Path) -> Result<Vec<String>, StoreError> {
        let mut found = Self::damage(path)?;
        found.extend(Self::unchained(path)?);
        Ok(found)
    }

    /// What a restore of a file would refuse: all of the above but what [`Self::bring_up_to_date`] makes good.
    pub fn lasting_faults(path: &Path) -> Result<Vec<String>, StoreError> {
        let mut found = Self::faults(path)?;
        found.retain(|fault| !fault.ends_with(schema::PAID_LATER));
        Ok(found)
    }

    /// What is wrong with pages, indexes, constraints and references, at whatever schema step the file is.
    pub fn damage(path: &Path) -> Result<Vec<String>, StoreError> {
        schema::damage(&look(path)?)
    }

    /// What rows promise beyond what a constraint can say, and do not keep. The schema must be this program's.
    pub fn unchained(path: &Path) -> Result<Vec<String>, StoreError> {
        schema::unchained(&look(path)?)
    }

    /// Copies a file, served or not, into an empty one, as it was at one moment. Whoever writes goes on: the copy is made from a snapshot, which
    /// only keeps the log from being emptied for as long as it takes.
    pub fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
        let at = state(from)?;
        if !at.is_current() {
            return Err(at.not_to_be_copied());
        }
        let to = to.to_str().ok_or_else(|| StoreError::Unfit(format!("{} is not UTF-8", to.display())))?;
        let conn = connect(from, BUSY_MS)?;
        leave_log(&conn)?;
        conn.execute("VACUUM INTO ?1", [to]).map(|_| ()).map_err(|error| match error.sqlite_error_code() {
            // Nothing is written but the copy.
            Some(ErrorCode::DiskFull) => StoreError::Unavailable(format!("no room for {to}: the disk is full")),
            Some(_) | None => fault(error),
        })
    }

    /// Brings the schema of a copy up to date, and makes good what nodes of several versions that ran side by side may have left: a node from
    /// before [`LAST_PAID`] was kept notes nothing there.
    pub fn bring_up_to_date(path: &Path) -> Result<(), StoreError> {
        let mut conn = connect(path, BUSY_MS)?;
        migrate(&mut conn)?;
        conn.execute(LAST_PAID, []).map_err(fault)?;
        into_file(conn)
    }

    /// Turns a copy of this program's schema into a deployment: used nonces go, since nothing stamped by the horizon is accepted, the `seq` of
    /// events go on at a multiple of [`SEQ_LEFT_OUT`], and what the file says of a move of its own goes, too. Everything is in the file itself
    /// when this returns.
    ///
    /// The horizon is not before the mark, nor before any nonce that goes: a clock that was ahead, the deployment's or a caller's, may have
    /// stamped them later than the present of whoever revives the copy.
    pub fn revive(path: &Path, revival: &Revival<'_>) -> Result<(), StoreError> {
        let mut conn = connect(path, BUSY_MS)?;
        let transaction = conn.transaction().map_err(fault)?;
        for (name, value) in revival.settings {
            let put = "INSERT INTO setting (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
            transaction.execute(put, params![name, value]).map_err(fault)?;
        }
        transaction
            .execute("DELETE FROM setting WHERE name IN ('move_id', 'moving_to', 'move_ends', 'moved_to')", [])
            .map_err(fault)?;
        let raise = "UPDATE replay SET horizon = max(horizon, mark, unknowable_through, ?1,
                     coalesce((SELECT max(stamped_at) FROM nonce), horizon)), boot_id = '', journal_synced = 1";
        transaction.execute(raise, [revival.horizon.0]).map_err(fault)?;
        transaction.execute("UPDATE replay SET mark = max(mark, horizon)", []).map_err(fault)?;
        transaction.execute("DELETE FROM nonce", []).map_err(fault)?;
        leave_seq_out(&transaction, revival.at)?;
        transaction.commit().map_err(fault)?;
        into_file(conn)
    }

    /// The ids of the master keys that secrets of a file are sealed under. A revoked one is never opened again.
    pub fn secrets_under(path: &Path) -> Result<Vec<String>, StoreError> {
        let conn = look(path)?;
        let select = "SELECT DISTINCT key_id FROM secret WHERE revoked_at IS NULL ORDER BY key_id";
        let mut select = conn.prepare(select).map_err(fault)?;
        let rows = select.query_map([], |row| row.get(0)).map_err(fault)?;
        rows.collect::<Result<_, _>>().map_err(fault)
    }

    /// Raises the horizon of a revived copy to this at the least: what is stamped by the one that this gives is refused. In the file itself when
    /// this returns.
    pub fn refuse_through(path: &Path, horizon: UnixMillis) -> Result<UnixMillis, StoreError> {
        let conn = connect(path, BUSY_MS)?;
        // Not by one statement that also returns what it has written: such a statement commits when it is dropped, where nobody hears that the commit
        // failed.
        let raise = "UPDATE replay SET horizon = max(horizon, ?1), mark = max(mark, ?1)";
        conn.execute(raise, [horizon.0]).map_err(fault)?;
        let horizon = conn.query_row("SELECT horizon FROM replay", [], |row| row.get(0)).map_err(fault)?;
        into_file(conn)?;
        Ok(UnixMillis(horizon))
    }
}

/// Nothing is beside the file after this.
fn into_file(conn: Connection) -> Result<(), StoreError> {
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(fault)?;
    conn.close().map_err(|(_, error)| fault(error))
}

/// A `seq` that the original gave after the copy was made, or a deployment that was revived of it before, is given to no other event: a merchant who
/// has pulled as far would never ask for the new one.
fn leave_seq_out(transaction: &Transaction<'_>, at: UnixMillis) -> Result<(), StoreError> {
    let uncounted = "INSERT INTO event_counter (tenant_no, application_no, seq) SELECT tenant_no, application_no, 1 FROM application a
                     WHERE NOT EXISTS (SELECT 1 FROM event_counter c WHERE c.application_no = a.application_no)";
    transaction.execute(uncounted, []).map_err(fault)?;
    let count = "UPDATE event_counter SET seq = max(seq / ?1 + 2, ?2) * ?1";
    transaction.execute(count, [SEQ_LEFT_OUT, (at.0 - SEQ_BEGINS_MS) / SEQ_OF_MS]).map_err(fault)?;
    Ok(())
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(Some(value)) => ToSqlOutput::Owned(Value::Integer(*value)),
            Self::Text(Some(text)) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Blob(Some(bytes)) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::Flag(Some(value)) => ToSqlOutput::Owned(Value::Integer(i64::from(*value))),
            Self::Int(None) | Self::Text(None) | Self::Blob(None) | Self::Flag(None) => ToSqlOutput::Owned(Value::Null),
        })
    }
}

/// What a database knows of nonces. A copy of it leaves them out.
#[derive(Debug)]
pub(crate) struct KnownNonces {
    pub(crate) hash_key: [u8; 16],
    /// Nothing stamped by then was ever to be accepted again.
    pub(crate) horizon: i64,
    /// No nonce with a later timestamp was ever given out.
    pub(crate) newest: i64,
}

fn int(row: &[Cell], table: &Table, name: &str) -> Option<i64> {
    let at = table.columns.iter().position(|column| column.name == name)?;
    if let Cell::Int(value) = row.get(at)? { *value } else { None }
}

/// A file that is filled with the rows of another database, in the order of [`crate::moving::TABLES`].
pub(crate) struct Image {
    conn: Connection,
    /// Where the first version of each sub-account's rule stands; the others follow without gap.
    first_rules: HashMap<i64, i64>,
    next_rule: i64,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("next_rule", &self.next_rule).finish_non_exhaustive()
    }
}

impl Image {
    /// Makes the schema in an empty file.
    pub(crate) fn create(path: &Path) -> Result<Self, StoreError> {
        let mut conn = connect(path, BUSY_MS)?;
        migrate(&mut conn)?;
        // Nobody reads the file before it is whole, and whoever made it puts it on stable storage.
        conn.execute_batch("PRAGMA foreign_keys = 0; PRAGMA synchronous = 0; BEGIN").map_err(fault)?;
        Ok(Self { conn, first_rules: HashMap::new(), next_rule: 1 })
    }

    /// Whether the file has this table, and it is to be filled.
    pub(crate) fn has(table: &Table) -> bool {
        // Made from the orders, where there is need of it.
        table.name != "order_directory"
    }

    /// Adds rows to a table.
    pub(crate) fn add(&mut self, table: &Table, rows: &[Vec<Cell>]) -> Result<(), StoreError> {
        for row in rows {
            let made = self.made(table, row);
            let own = table.columns.iter().zip(row).filter(|(column, _)| column.source == column.name);
            let (mut names, mut values): (Vec<&str>, Vec<&dyn ToSql>) = (Vec::new(), Vec::new());
            for (column, cell) in own {
                names.push(column.name);
                values.push(cell);
            }
            for (name, value) in &made {
                names.push(name);
                values.push(value);
            }
            let places = vec!["?"; names.len()].join(", ");
            let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            let insert = format!("INSERT INTO {} ({}) VALUES ({places})", table.name, quoted.join(", "));
            let mut insert = self.conn.prepare_cached(&insert).map_err(fault)?;
            insert.execute(params_from_iter(values)).map_err(fault)?;
        }
        Ok(())
    }

    /// The columns that only a file has: the places of rules in it.
    fn made(&mut self, table: &Table, row: &[Cell]) -> Vec<(&'static str, Option<i64>)> {
        let of = |name: &str| int(row, table, name);
        let merchant = of("merchant_no").unwrap_or_default();
        match table.name {
            "fee_rule" => {
                let no = self.next_rule;
                self.next_rule += 1;
                let first = *self.first_rules.entry(merchant).or_insert(no);
                let previous = of("version_no").filter(|version| *version > 1).map(|_| no - 1);
                let base = of("base_version_no").map(|base| first + base - 1);
                vec![("rule_no", Some(no)), ("previous_no", previous), ("base_no", base)]
            }
            "fee_rule_head" => {
                let first = self.first_rules.get(&merchant).copied();
                let place = |version: Option<i64>| Some(first? + version? - 1);
                vec![("last_no", place(of("version_no"))), ("base_no", place(of("base_version_no")))]
            }
            _ => Vec::new(),
        }
    }

    /// The last row, and the end.
    pub(crate) fn finish(self, known: &KnownNonces) -> Result<(), StoreError> {
        let KnownNonces { hash_key, horizon, newest } = known;
        let insert = "INSERT INTO replay (one, hash_key, boot_id, journal_synced, horizon, mark, unknowable_through)
                      VALUES (1, ?1, '', 1, ?2, ?3, ?4)";
        self.conn.execute(insert, params![hash_key, horizon, newest, i64::MIN]).map_err(fault)?;
        self.conn.execute_batch("COMMIT").map_err(fault)?;
        // One file, without a log beside it.
        self.conn.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).map_err(fault)?;
        self.conn.close().map_err(|(_, error)| fault(error))
    }
}
