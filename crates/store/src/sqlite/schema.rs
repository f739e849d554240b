//! The steps that make the schema, and the runner that applies each once.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::fault::fault;
use crate::contract::StoreError;
use crate::steps::{Applied, SchemaState, Step, pending, sha256};

/// Marks the file as ours: "CSGN".
const APPLICATION_ID: i32 = 0x4353_474e;

const STEPS: &[Step] = &[
    Step { number: 1, name: "begin", sql: include_str!("../../migrations/sqlite/0001_begin.sql") },
    Step { number: 2, name: "audit_by_tenant", sql: include_str!("../../migrations/sqlite/0002_audit_by_tenant.sql") },
    Step { number: 3, name: "lanes", sql: include_str!("../../migrations/sqlite/0003_lanes.sql") },
    Step { number: 4, name: "identities", sql: include_str!("../../migrations/sqlite/0004_identities.sql") },
    Step { number: 5, name: "audit_chain", sql: include_str!("../../migrations/sqlite/0005_audit_chain.sql") },
    Step { number: 6, name: "delivery_turn", sql: include_str!("../../migrations/sqlite/0006_delivery_turn.sql") },
    Step { number: 7, name: "delivery_order", sql: include_str!("../../migrations/sqlite/0007_delivery_order.sql") },
    Step { number: 8, name: "attempt_log", sql: include_str!("../../migrations/sqlite/0008_attempt_log.sql") },
    Step { number: 9, name: "redelivery", sql: include_str!("../../migrations/sqlite/0009_redelivery.sql") },
    Step {
        number: 10,
        name: "endpoint_settings",
        sql: include_str!("../../migrations/sqlite/0010_endpoint_settings.sql"),
    },
    Step { number: 11, name: "convert", sql: include_str!("../../migrations/sqlite/0011_convert.sql") },
    Step { number: 12, name: "payment_orders", sql: include_str!("../../migrations/sqlite/0012_payment_orders.sql") },
    Step { number: 13, name: "paid_orders", sql: include_str!("../../migrations/sqlite/0013_paid_orders.sql") },
];

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
pub(super) fn look(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(fault)?;
    conn.busy_timeout(Duration::from_secs(5)).map_err(fault)?;
    conn.pragma_update(None, "query_only", true).map_err(fault)?;
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as the first release left it.
    fn first_release() -> Connection {
        let conn = Connection::open_in_memory().expect("opens");
        let head = format!(
            "PRAGMA application_id = {APPLICATION_ID};
             CREATE TABLE schema_step (number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL) STRICT;
             INSERT INTO schema_step VALUES (1, 'begin', '{}');",
            sha256(STEPS[0].sql)
        );
        conn.execute_batch(STEPS[0].sql).expect("makes the tables");
        conn.execute_batch(&head).expect("marks them");
        conn
    }

    #[test]
    fn audit_lines_of_a_file_of_the_first_release_are_numbered_by_tenant_in_their_order() {
        let mut conn = first_release();
        for (no, tenant) in [(1, "NULL"), (2, "7"), (3, "8"), (4, "7"), (5, "NULL")] {
            let line = format!("INSERT INTO audit VALUES ({tenant}, {no}, {no}0, 'a', 's', 'c', 'o', '', '', 'r')");
            conn.execute(&line, []).expect("is written");
        }
        migrate(&mut conn).expect("migrates");
        let read = |sql: &str| -> Vec<(i64, i64, i64)> {
            let mut select = conn.prepare(sql).expect("prepares");
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("reads");
            rows.map(|row| row.expect("reads")).collect()
        };
        let lines = read("SELECT tenant_no, audit_no, line_no FROM audit WHERE at = 10 * line_no ORDER BY line_no");
        assert_eq!(lines, [(0, 1, 1), (7, 1, 2), (8, 1, 3), (7, 2, 4), (0, 2, 5)]);
        let heads = read("SELECT tenant_no, audit_no, 0 FROM audit_head ORDER BY tenant_no");
        assert_eq!(heads, [(0, 2, 0), (7, 2, 0), (8, 1, 0)]);
    }

    #[test]
    fn steps_are_numbered_from_one_without_gap() {
        assert!(STEPS.iter().map(|s| s.number).eq(1..=known()));
    }
}
