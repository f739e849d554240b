//! The steps that make the schema, and the runner that applies each once.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::fault::fault;
use crate::contract::StoreError;
use crate::steps::{Applied, SchemaState, Step, pending, sha256};

/// Marks the file as ours: "CSGN".
const APPLICATION_ID: i32 = 0x4353_474e;

const STEPS: &[Step] =
    &[Step { number: 1, name: "begin", sql: include_str!("../../migrations/sqlite/0001_begin.sql") }];

fn applied(conn: &Connection) -> Result<Vec<Applied>, StoreError> {
    let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_step'";
    if conn.query_row(there, [], |_| Ok(())).optional().map_err(fault)?.is_none() {
        return Ok(Vec::new());
    }
    let mut rows = conn.prepare("SELECT number, name, digest FROM schema_step ORDER BY number").map_err(fault)?;
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(fault)?;
    rows.collect::<Result<_, _>>().map_err(fault)
}

/// Refuses a file that is another program's.
fn ours(conn: &Connection) -> Result<(), StoreError> {
    let id: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(fault)?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fault)?;
    if id == APPLICATION_ID || (id == 0 && tables == 0) {
        return Ok(());
    }
    Err(StoreError::Unfit(format!("the file is another program's database (application id {id:#x})")))
}

fn known() -> i32 {
    i32::try_from(STEPS.len()).unwrap_or(i32::MAX)
}

/// Applies what is pending, in one exclusive transaction.
pub(super) fn migrate(conn: &mut Connection) -> Result<SchemaState, StoreError> {
    ours(conn)?;
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(fault)?;
    let done = applied(&transaction)?;
    let steps = pending(&done, STEPS)?;
    if !steps.is_empty() {
        transaction
            .execute_batch(&format!(
                "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};
                 CREATE TABLE IF NOT EXISTS schema_step (
                     number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL) STRICT;",
                known()
            ))
            .map_err(fault)?;
        for step in steps {
            transaction.execute_batch(step.sql).map_err(fault)?;
            transaction
                .execute(
                    "INSERT INTO schema_step VALUES (?1, ?2, ?3)",
                    params![step.number, step.name, sha256(step.sql)],
                )
                .map_err(fault)?;
        }
    }
    transaction.commit().map_err(fault)?;
    Ok(SchemaState { applied: known(), known: known() })
}

/// Where a file stands, without changing it.
pub(super) fn state(path: &Path) -> Result<SchemaState, StoreError> {
    if !path.exists() {
        return Ok(SchemaState { applied: 0, known: known() });
    }
    let conn = look(path)?;
    ours(&conn)?;
    let done = applied(&conn)?;
    pending(&done, STEPS)?;
    Ok(SchemaState { applied: i32::try_from(done.len()).unwrap_or(i32::MAX), known: known() })
}

/// What fee rules promise beyond what a constraint can say.
const CHAINS: [(&str, &str); 2] = [
    (
        "SELECT count(*) FROM fee_rule_head h LEFT JOIN fee_rule l ON l.rule_no = h.last_no
         WHERE l.merchant_no IS NOT h.merchant_no OR l.version_no IS NOT h.version_no",
        "heads of fee rules do not point to their newest version",
    ),
    (
        "SELECT count(*) FROM fee_rule f LEFT JOIN fee_rule p ON p.rule_no = f.previous_no
         WHERE f.version_no > 1 AND (p.merchant_no IS NOT f.merchant_no OR p.version_no IS NOT f.version_no - 1)",
        "fee rules do not point to the version before them",
    ),
];

/// What is wrong with a file: pages, indexes, constraints, references. Empty if nothing is.
pub(super) fn faults(path: &Path) -> Result<Vec<String>, StoreError> {
    let conn = look(path)?;
    let mut found = Vec::new();
    let mut check = conn.prepare("PRAGMA integrity_check(100)").map_err(fault)?;
    let mut rows = check.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let line: String = row.get(0).map_err(fault)?;
        if line != "ok" {
            found.push(line);
        }
    }
    let mut check = conn.prepare("PRAGMA foreign_key_check").map_err(fault)?;
    let mut rows = check.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let (table, of): (String, String) = (row.get(0).map_err(fault)?, row.get(2).map_err(fault)?);
        found.push(format!("a row of {table} refers to a row of {of} that is not there"));
    }
    for (sql, what) in CHAINS {
        let broken: i64 = conn.query_row(sql, [], |row| row.get(0)).map_err(fault)?;
        if broken > 0 {
            found.push(format!("{broken} {what}"));
        }
    }
    Ok(found)
}

/// A connection that changes nothing.
fn look(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(fault)?;
    conn.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
    conn.pragma_update(None, "query_only", true).map_err(fault)?;
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_from_one_without_gap() {
        assert!(STEPS.iter().map(|s| s.number).eq(1..=known()));
    }
}
