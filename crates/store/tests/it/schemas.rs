//! Both dialects have the same tables, columns and keys, but for what is named here.

use std::collections::{BTreeMap, BTreeSet};

use countersign_store::SqliteStore;
use rusqlite::Connection;
use tokio_postgres::Client;

use crate::fixtures::open_postgres;
use countersign_store::testing::Database;

/// What only SQLite has, and why.
const ONLY_SQLITE: [(&str, &str); 11] = [
    (
        "nonce.nonce_no",
        "rows are found by age there; PostgreSQL has the claim itself as key, since nodes must not both insert it",
    ),
    (
        "audit.line_no",
        "rows in the order of writing share pages there; PostgreSQL finds a line by its tenant and number",
    ),
    ("replay.boot_id", "the journal beside the file may lose its end in a reboot; a database's commits do not"),
    ("replay.journal_synced", "as boot_id"),
    ("replay.mark", "as boot_id"),
    ("replay.unknowable_through", "as boot_id"),
    ("fee_rule.rule_no", "rows in the order of time share pages there; PostgreSQL finds a version by its number"),
    ("fee_rule.previous_no", "as rule_no"),
    ("fee_rule.base_no", "as rule_no"),
    ("fee_rule_head.last_no", "as rule_no"),
    ("fee_rule_head.base_no", "as rule_no"),
];
/// What only PostgreSQL has, and why.
const ONLY_POSTGRES: [(&str, &str); 34] = [
    ("nonce.tenant_no", "rows are spread by it"),
    (
        "order_directory.order_id",
        "the key of convert_order begins with the tenant, but its number is new in the deployment",
    ),
    ("order_directory.tenant_no", "as order_id"),
    ("fee_rule_head.config_id", "a node may decide on the head that it remembers; a file has one node"),
    ("commit_mark.tenant_no", "rows are spread by it"),
    ("commit_mark.lane", "a connection can break in a commit; a file cannot"),
    ("commit_mark.mark", "as lane"),
    ("commit_mark.marked_at", "as lane"),
    ("commit_mark.done", "as lane"),
    ("nonce.settled_by", "as lane: a claim that was not answered is told from another node's by it"),
    ("move_record.one", "a move goes from a file into a database"),
    ("move_record.move_id", "as one"),
    ("move_record.began_at", "as one"),
    ("move_record.completed_at", "as one"),
    ("move_progress.table_name", "as one"),
    ("move_progress.row_count", "as one"),
    ("delivery_lane.lane", "nodes share out the deliveries; a file has one node"),
    ("delivery_lane.node", "as lane"),
    ("delivery_lane.fence", "as lane"),
    ("delivery_lane.expires_at", "as lane"),
    ("node.node_id", "as lane"),
    ("node.name", "as lane"),
    ("node.started_at", "as lane"),
    ("node.seen_at", "as lane"),
    ("node.clock_ahead_ms", "as lane"),
    ("node_program.node_id", "as lane"),
    ("node_program.version", "as lane"),
    ("node_program.key_id", "as lane"),
    ("node_program.settings", "as lane"),
    ("node_program.leaves", "as lane"),
    ("directory.one", "other nodes must hear of changed applications"),
    ("directory.revision", "as one"),
    ("application.directory_revision", "as directory.one"),
    (
        "audit_head.link_before",
        "links are made by the statement that appends the lines; a file's one writer makes them before",
    ),
];
/// Tables whose keys differ with those columns; orders, which SQLite keeps by number and PostgreSQL by their merchant and number; and counters
/// of businesses, which lie together in SQLite by their business.
const OTHER_KEYS: [&str; 5] = ["nonce", "fee_rule", "audit", "payment_order", "biz_counter"];
/// What belongs to a tenant: on PostgreSQL its keys, and what refers to it, begin with the tenant. On SQLite they do without it.
const BY_TENANT: [&str; 17] = [
    "fee_rule",
    "fee_rule_head",
    "convert_order",
    "convert_order_move",
    "convert_quote",
    "convert_request",
    "event",
    "delivery",
    "attempt",
    "event_counter",
    "biz_counter",
    "audit",
    "redelivery",
    "payment_order",
    "payment_order_move",
    "payment_order_request",
    "last_paid",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    /// What may be in each column, and whether it may be missing.
    columns: BTreeMap<String, (&'static str, bool)>,
    primary: Vec<String>,
    unique: BTreeSet<Vec<String>>,
    /// Columns, and the table and columns they refer to.
    foreign: BTreeSet<(String, String, String)>,
}

type Tables = BTreeMap<String, Table>;

fn of_sqlite(conn: &Connection) -> Tables {
    let texts = |sql: &str| -> Vec<Vec<String>> {
        let mut select = conn.prepare(sql).expect("prepares");
        let count = select.column_count();
        let rows = select.query_map([], |row| (0..count).map(|at| row.get(at)).collect()).expect("reads");
        rows.map(|row| row.expect("reads")).collect()
    };
    let mut tables = Tables::new();
    let ours =
        "FROM pragma_table_list t, {} WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite%'";
    let select = |what: &str, from: &str| texts(&format!("SELECT {what} {}", ours.replace("{}", from)));
    let columns = select(
        "t.name, c.name, c.type, CAST(c.\"notnull\" OR c.pk > 0 AS TEXT), CAST(c.pk AS TEXT)",
        "pragma_table_info(t.name) c",
    );
    let mut primary: BTreeMap<(String, String), String> = BTreeMap::new();
    for row in columns {
        let kind = match row[2].as_str() {
            "INTEGER" => "integer",
            "TEXT" => "text",
            "BLOB" => "bytes",
            other => panic!("{other}"),
        };
        tables.entry(row[0].clone()).or_default().columns.insert(row[1].clone(), (kind, row[3] == "0"));
        if row[4] != "0" {
            primary.insert((row[0].clone(), row[4].clone()), row[1].clone());
        }
    }
    for ((table, _), column) in primary {
        tables.get_mut(&table).expect("has columns").primary.push(column);
    }
    let unique = "pragma_index_list(t.name) i, pragma_index_info(i.name) c";
    let mut keys: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for row in texts(&format!(
        "SELECT t.name, i.name, c.name {} AND i.origin = 'u' ORDER BY t.name, i.name, c.seqno",
        ours.replace("{}", unique)
    )) {
        keys.entry((row[0].clone(), row[1].clone())).or_default().push(row[2].clone());
    }
    for ((table, _), columns) in keys {
        tables.get_mut(&table).expect("has columns").unique.insert(columns);
    }
    for row in select("t.name, f.\"from\", f.\"table\", f.\"to\"", "pragma_foreign_key_list(t.name) f") {
        let key = (row[1].clone(), row[2].clone(), row[3].clone());
        tables.get_mut(&row[0]).expect("has columns").foreign.insert(key);
    }
    tables
}

async fn of_postgres(client: &Client) -> Tables {
    let mut tables = Tables::new();
    let columns = "SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES'
                   FROM information_schema.columns WHERE table_schema = 'public'";
    for row in client.query(columns, &[]).await.expect("reads") {
        let kind = match row.get(2) {
            "bigint" | "boolean" => "integer",
            "text" => "text",
            "bytea" => "bytes",
            other => panic!("{other}"),
        };
        tables.entry(row.get(0)).or_default().columns.insert(row.get(1), (kind, row.get(3)));
    }
    let keys = "SELECT t.relname::text, k.contype::text, ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u (no, at)
                  JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.no ORDER BY u.at),
                f.relname::text, ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u (no, at)
                  JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.no ORDER BY u.at)
                FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid LEFT JOIN pg_class f ON f.oid = k.confrelid
                WHERE k.connamespace = 'public'::regnamespace";
    for row in client.query(keys, &[]).await.expect("reads") {
        let table = tables.get_mut(row.get::<_, &str>(0)).expect("has columns");
        let columns: Vec<String> = row.get(2);
        match row.get(1) {
            "p" => table.primary = columns,
            "u" => drop(table.unique.insert(columns)),
            "f" => drop(table.foreign.insert((columns.join(","), row.get(3), row.get::<_, Vec<String>>(4).join(",")))),
            _ => {}
        }
    }
    tables
}

/// PostgreSQL's keys as SQLite would say them: without the tenant, which they must begin with (an id leads its own key).
fn without_tenant(mut tables: Tables) -> Tables {
    let strip = |key: &[String]| key.iter().filter(|column| *column != "tenant_no").cloned().collect::<Vec<_>>();
    let bare = |columns: &str| columns.strip_prefix("tenant_no,").unwrap_or(columns).to_owned();
    for (name, table) in &mut tables {
        if BY_TENANT.contains(&name.as_str()) {
            assert_eq!(table.primary[0], "tenant_no", "the key of {name}");
            for key in &table.unique {
                assert!(key.contains(&"tenant_no".to_owned()), "{key:?} of {name}");
            }
            table.primary = strip(&table.primary);
            table.unique = table.unique.iter().map(|key| strip(key)).collect();
        } else {
            // What refers to a row by its tenant and number needs both to be a key; the number alone is one already.
            table.unique.retain(|key| key[0] != "tenant_no");
        }
        table.foreign = table.foreign.iter().map(|(from, of, to)| (bare(from), of.clone(), bare(to))).collect();
    }
    tables
}

/// Takes out what is named; complains about what is named and not there.
fn without(mut tables: Tables, named: &[(&str, &str)]) -> Tables {
    for (name, _) in named {
        let (table, column) = name.split_once('.').expect("table and column");
        let columns = &mut tables.get_mut(table).unwrap_or_else(|| panic!("no table {table}")).columns;
        assert!(columns.remove(column).is_some(), "{name} is an exception that is not needed");
    }
    for table in OTHER_KEYS {
        if let Some(table) = tables.get_mut(table) {
            table.primary.clear();
        }
    }
    tables.retain(|_, table| !table.columns.is_empty());
    tables
}

#[tokio::test]
async fn both_dialects_have_the_same_tables_columns_and_keys() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("db");
    SqliteStore::migrate(&file).expect("migrates");
    let sqlite = of_sqlite(&Connection::open(&file).expect("opens"));
    let database = Database::new().await;
    drop(open_postgres(&database, 1).await);
    let postgres = of_postgres(&database.client().await).await;
    assert!(sqlite["event"].unique.len() == 2 && sqlite["event"].foreign.len() == 1, "keys are read");
    let postgres = without_tenant(postgres);
    let (sqlite, postgres) = (without(sqlite, &ONLY_SQLITE), without(postgres, &ONLY_POSTGRES));
    assert!(sqlite.keys().eq(postgres.keys()), "{:?} and {:?}", sqlite.keys(), postgres.keys());
    for (name, table) in &sqlite {
        assert_eq!(table, &postgres[name], "{name}");
    }
}
