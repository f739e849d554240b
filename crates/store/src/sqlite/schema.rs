//! The steps that make the schema, and the runner that applies each once.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::fault::fault;
use super::open::leave_log;
use crate::contract::StoreError;
use crate::steps::{self, Applied, SchemaState, Step, pending, sha256};

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
    Step { number: 14, name: "order_request", sql: include_str!("../../migrations/sqlite/0014_order_request.sql") },
    Step { number: 15, name: "conditions", sql: include_str!("../../migrations/sqlite/0015_conditions.sql") },
    Step { number: 16, name: "paid_by_number", sql: include_str!("../../migrations/sqlite/0016_paid_by_number.sql") },
    Step { number: 17, name: "convert_lists", sql: include_str!("../../migrations/sqlite/0017_convert_lists.sql") },
    Step { number: 18, name: "last_paid", sql: include_str!("../../migrations/sqlite/0018_last_paid.sql") },
    Step { number: 19, name: "answers", sql: include_str!("../../migrations/sqlite/0019_answers.sql") },
    Step { number: 20, name: "nodes_and_lists", sql: include_str!("../../migrations/sqlite/0020_nodes_and_lists.sql") },
    Step {
        number: 21,
        name: "redelivery_outcomes",
        sql: include_str!("../../migrations/sqlite/0021_redelivery_outcomes.sql"),
    },
    Step { number: 22, name: "big_stores", sql: include_str!("../../migrations/sqlite/0022_big_stores.sql") },
    Step { number: 23, name: "gone", sql: include_str!("../../migrations/sqlite/0023_gone.sql") },
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

/// All tables that are ours, as a JSON array.
static TABLES: LazyLock<String> = LazyLock::new(|| format!(r#"["{}"]"#, steps::tables(STEPS).join(r#"",""#)));

/// What is wrong with the schema that was right at the start, in words; none: our tables are there.
pub(super) fn wrong(conn: &Connection) -> Result<Option<String>, StoreError> {
    let select =
        "SELECT value FROM json_each(?1) WHERE value NOT IN (SELECT name FROM sqlite_schema WHERE type = 'table')";
    let mut select = conn.prepare_cached(select).map_err(fault)?;
    let gone = select.query_map([&*TABLES], |row| row.get(0)).map_err(fault)?;
    // Nothing here is said of a role or a search path, also where all are gone.
    Ok(steps::gone(&gone.collect::<Result<Vec<_>, _>>().map_err(fault)?, usize::MAX))
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

/// What rows promise beyond what a constraint can say.
const CHAINS: [(&str, &str); 8] = [
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
    (
        "SELECT count(*) FROM payment_order p LEFT JOIN payment_order_request r ON r.order_no = p.order_no
         WHERE r.tenant_no IS NOT p.tenant_no",
        "payment orders are without the request that made them",
    ),
    (
        "SELECT count(*) FROM payment_order p
         WHERE p.revision <> 1 + (SELECT count(*) FROM payment_order_move m WHERE m.order_no = p.order_no)
             OR p.status <> coalesce((SELECT m.status FROM payment_order_move m WHERE m.order_no = p.order_no ORDER BY m.revision DESC LIMIT 1),
                                     'PENDING')",
        "payment orders do not stand where their moves put them",
    ),
    (
        "SELECT count(*) FROM payment_order_move m LEFT JOIN payment_order p ON p.order_no = m.order_no
         LEFT JOIN payment_order_move b ON b.order_no = m.order_no AND b.revision = m.revision - 1
         WHERE p.tenant_no IS NOT m.tenant_no OR m.was IS NOT iif(m.revision = 2, 'PENDING', b.status)",
        "moves of payment orders do not begin where the move before them ended",
    ),
    (
        "SELECT count(*) FROM convert_order o
         WHERE o.revision <> (SELECT count(*) FROM convert_order_move m WHERE m.order_id = o.order_id)
             OR o.status IS NOT (SELECT m.status FROM convert_order_move m WHERE m.order_id = o.order_id ORDER BY m.revision DESC LIMIT 1)",
        "convert orders do not stand where their moves put them",
    ),
    (
        "SELECT count(*) FROM convert_order_move m LEFT JOIN convert_order_move b ON b.order_id = m.order_id AND b.revision = m.revision - 1
         WHERE m.revision > 1 AND b.order_id IS NULL",
        "moves of convert orders are without the move before them",
    ),
    (
        "SELECT count(*) FROM (SELECT merchant_no, max(paid_at) AS paid_at FROM payment_order WHERE fee_r_markup IS NOT NULL
         GROUP BY merchant_no) p LEFT JOIN last_paid l ON l.merchant_no = p.merchant_no WHERE l.paid_at >= p.paid_at IS NOT TRUE",
        PAID_LATER,
    ),
];
/// What nodes of several versions that ran side by side may leave. A copy is made good of it.
pub(super) const PAID_LATER: &str = "sub-accounts were paid later than is noted";

/// What is wrong with pages, indexes, constraints and references, at whatever step the schema is. References are summed up by their tables, since
/// one row that is lost may leave a million.
pub(super) fn damage(conn: &Connection) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    let mut check = conn.prepare("PRAGMA integrity_check(100)").map_err(fault)?;
    let mut rows = check.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let line: String = row.get(0).map_err(fault)?;
        if line != "ok" {
            found.push(line);
        }
    }
    let dangling = "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2 ORDER BY 1, 2";
    let mut check = conn.prepare(dangling).map_err(fault)?;
    let mut rows = check.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let (table, of): (String, String) = (row.get(0).map_err(fault)?, row.get(1).map_err(fault)?);
        let count: i64 = row.get(2).map_err(fault)?;
        found.push(match count {
            1 => format!("a row of {table} refers to a row of {of} that is not there"),
            _ => format!("{count} rows of {table} refer to rows of {of} that are not there"),
        });
    }
    Ok(found)
}

/// Which of [`CHAINS`] do not hold. The schema must be of the last step.
pub(super) fn unchained(conn: &Connection) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
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
    leave_log(&conn)?;
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

    /// A file whose last step has this number.
    fn through(last: usize) -> Connection {
        let conn = first_release();
        for step in &STEPS[1..last] {
            conn.execute_batch(step.sql).expect("makes the step");
            let row = params![step.number, step.name, sha256(step.sql)];
            conn.execute("INSERT INTO schema_step VALUES (?1, ?2, ?3)", row).expect("notes it");
        }
        conn
    }

    /// Every value of a table but those of some columns, as SQL would write it.
    fn quoted(conn: &Connection, table: &str, but: &[&str], order: &str) -> Vec<String> {
        let names = format!("SELECT name FROM pragma_table_info('{table}')");
        let mut names = conn.prepare(&names).expect("prepares");
        let names = names.query_map([], |row| row.get::<_, String>(0)).expect("reads").map(|name| name.expect("reads"));
        let names = names.filter(|name| !but.contains(&name.as_str()));
        let values: Vec<String> = names.map(|name| format!("'{name} ' || quote(\"{name}\")")).collect();
        let rows = format!("SELECT {} FROM {table} ORDER BY {order}", values.join(" || ', ' || "));
        let mut rows = conn.prepare(&rows).expect("prepares");
        rows.query_map([], |row| row.get(0)).expect("reads").map(|row| row.expect("reads")).collect()
    }

    #[test]
    fn a_payment_order_of_a_file_from_before_keeps_its_request_byte_for_byte_and_every_other_value() {
        let mut conn = through(13);
        conn.execute_batch(
            "INSERT INTO merchant (tenant_no, merchant_no, merchant_id, kind, name, base_r, base_f, user_id, created_at)
               VALUES (1, 1, 'm', 'merchant', 'm', '0', 0, 1, 1);
             INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled, callback_enabled,
               callback_encoding, callback_vocabulary, revision, created_at)
               VALUES (1, 5, 'app', 1, 'a', 1, 1, 'hex', 'standard', 1, 1);
             INSERT INTO payment_order VALUES (1, 900, 77, 1, 5, 'app', 'T-1', 'order', 'USDT', 1000001, 'u', 'c', 'g', 'd', 'APP',
               'https://r', 'https://c', 'PAID', 3, 4, 1000002, 5, 6, zeroblob(16), 2, '0.30', 7, 8, 9, 'worked', 2, 'who', 'req',
               'POST /v1/pay/order' || char(10) || 'x-service-nonce: \u{e9}', x'7b00ff0a7d20'),
               (1, 800, 78, 1, 5, 'app', 'T-2', 'native', 'BTC', 5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'PENDING', 3, 4, NULL,
               NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, 'who', 'req', '', x'');
             INSERT INTO biz_counter VALUES (1, 5, 'b', 3), (1, 5, 'a', 2);
             INSERT INTO event VALUES (1, 10, 5, 'app', zeroblob(16), 1, 1, 't', 'a', 's', '{}', x'7b7d', 1);
             INSERT INTO delivery (tenant_no, event_no, application_no, state, attempts) VALUES (1, 10, 5, 'held', 0);",
        )
        .expect("is written");
        let gone = ["request_head", "request_body"];
        let orders = quoted(&conn, "payment_order", &gone, "order_no");
        let requests = "SELECT tenant_no, order_no, request_head, request_body FROM {} ORDER BY order_no";
        let read = |conn: &Connection, table: &str| -> Vec<(i64, i64, String, Vec<u8>)> {
            let mut select = conn.prepare(&requests.replace("{}", table)).expect("prepares");
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
            rows.expect("reads").map(|row| row.expect("reads")).collect()
        };
        let before = read(&conn, "payment_order");
        assert_eq!(before[1].3, [0x7b, 0x00, 0xff, 0x0a, 0x7d, 0x20]);
        let counters = quoted(&conn, "biz_counter", &[], "biz_id");
        migrate(&mut conn).expect("migrates");
        assert_eq!(read(&conn, "payment_order_request"), before);
        assert_eq!(quoted(&conn, "payment_order", &[], "order_no"), orders);
        assert_eq!(quoted(&conn, "biz_counter", &[], "biz_id"), counters);
        let of = |kind: &str| {
            let named = format!(
                "SELECT name FROM sqlite_schema WHERE tbl_name = 'payment_order' AND type = '{kind}' ORDER BY name"
            );
            let mut select = conn.prepare(&named).expect("prepares");
            let names = select.query_map([], |row| row.get(0)).expect("reads");
            names.map(|name| name.expect("reads")).collect::<Vec<String>>()
        };
        let indexes = [
            "payment_order_by_merchant",
            "payment_order_expiring",
            "payment_order_late",
            "payment_order_late_of_tenant",
            "payment_order_paid_of_tenant",
            "sqlite_autoindex_payment_order_1",
        ];
        assert_eq!(of("index"), indexes);
        let faults: i64 =
            conn.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).expect("reads");
        assert_eq!(faults, 0);
    }

    #[test]
    fn a_file_from_before_keeps_its_conditions_though_they_are_said_otherwise() {
        let mut conn = through(14);
        conn.execute_batch("INSERT INTO payment_order_move VALUES (1, 1, 2, 'PENDING', 'PAID', 1, 'a', 'r')")
            .expect("fits");
        let values = quoted(&conn, "payment_order_move", &[], "order_no");
        migrate(&mut conn).expect("migrates");
        assert_eq!(quoted(&conn, "payment_order_move", &[], "order_no"), values);
        let text = "SELECT group_concat(sql) FROM sqlite_schema WHERE type = 'table'";
        let text: String = conn.query_row(text, [], |row| row.get(0)).expect("reads");
        let lists = text.split(" IN (").skip(1).map(|rest| rest.split_once(')').expect("is closed").0);
        let long: Vec<&str> = lists.filter(|list| list.matches(',').count() > 1).collect();
        assert!(long.is_empty(), "{long:?}");
        let sound: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("reads");
        assert_eq!(sound, "ok");
        for (refused, why) in [
            ("UPDATE payment_order_move SET was = 'PAYED'", "was = 'PENDING' OR "),
            ("UPDATE payment_order_move SET status = 'pending'", "status = 'PENDING' OR "),
            ("INSERT INTO convert_order_move VALUES (1, 1, 1, 2, 1)", "status = 1 OR "),
            ("INSERT INTO delivery VALUES (1, 1, 1, 'gone', 0, NULL, NULL, 0, NULL)", "state = 'pending' OR "),
            ("INSERT INTO merchant VALUES (1, 1, 'm', 'bank', 'm', '0', 0, 1, 1, 1, 1)", "kind = 'institution' OR "),
            (
                "INSERT INTO operator_token VALUES ('t', 'n', zeroblob(32), 'root', 1, NULL, NULL, NULL)",
                "role = 'viewer' OR ",
            ),
        ] {
            let told = conn.execute(refused, []).expect_err("is refused").to_string();
            assert!(told.starts_with(&format!("CHECK constraint failed: {why}")), "{refused}: {told}");
        }
    }

    #[test]
    fn answers_of_a_file_from_before_are_found_without_their_period() {
        let mut conn = through(18);
        for (scope, key, at) in
            [("t\nPOST /events\n1", "k", 1), ("t\nPOST /events\n2", "k", 2), ("t\nPOST /o/9\n12", "k", 3)]
        {
            let row = params![scope, key, [0_u8; 32], at];
            conn.execute("INSERT INTO idempotency VALUES (?1, ?2, ?3, 200, '', ?4)", row).expect("fits");
        }
        migrate(&mut conn).expect("migrates");
        let mut rows =
            conn.prepare("SELECT scope, key, created_at FROM idempotency ORDER BY created_at").expect("prepares");
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("reads");
        let rows: Vec<(String, String, i64)> = rows.map(|row| row.expect("reads")).collect();
        let wanted = [("t\nPOST /events", "k", 2), ("t\nPOST /o/9", "k", 3)];
        assert_eq!(rows, wanted.map(|(scope, key, at)| (scope.to_owned(), key.to_owned(), at)));
    }

    #[test]
    fn steps_are_numbered_from_one_without_gap() {
        assert!(STEPS.iter().map(|s| s.number).eq(1..=known()));
    }
}
