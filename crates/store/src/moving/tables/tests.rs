//! No table and no column is forgotten.

use std::collections::BTreeSet;

use super::*;
use crate::testing::Database;
use crate::{PostgresOptions, PostgresStore, SqliteStore};

/// Tables and their columns, as `table.column`.
type Columns = BTreeSet<String>;

fn of_sqlite() -> Columns {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("db");
    SqliteStore::migrate(&file).expect("migrates");
    let conn = rusqlite::Connection::open(&file).expect("opens");
    let mut select = conn
        .prepare(
            "SELECT t.name || '.' || c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.schema = 'main' AND t.name NOT LIKE 'sqlite%'",
        )
        .expect("prepares");
    let rows = select.query_map([], |row| row.get(0)).expect("reads");
    rows.collect::<Result<_, _>>().expect("reads")
}

async fn of_postgres() -> Columns {
    let database = Database::new().await;
    PostgresStore::migrate(&PostgresOptions::new(database.url(), [1; 16], [1; 16])).await.expect("migrates");
    let select =
        "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'";
    let rows = database.client().await.query(select, &[]).await.expect("reads");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Columns that a move neither copies nor names, and what it names that is not there.
fn forgotten(schema: &Columns, copied: &Columns) -> Vec<String> {
    let table = |column: &str| column.split('.').next().expect("a table").to_owned();
    let named = |column: &String| NOT_MOVED.iter().any(|(name, _)| name == column || *name == table(column));
    let missed = schema.difference(copied).filter(|column| !named(column)).cloned();
    let gone = copied.difference(schema).map(|column| format!("{column} is copied and not there"));
    missed.chain(gone).collect()
}

#[tokio::test]
async fn every_table_and_column_of_both_schemas_is_moved_or_named_with_the_reason() {
    let (sqlite, postgres) = (of_sqlite(), of_postgres().await);
    let column = |table: &Table, column: &str| format!("{}.{column}", table.name);
    let to: Columns = TABLES.iter().flat_map(|table| table.columns.iter().map(|c| column(table, c.name))).collect();
    // A value that is made, or a table whose rows are, comes from no column of the same name.
    let made = |table: &&Table| table.source.split(' ').next() == Some(table.name);
    let own =
        |table: &'static Table| table.columns.iter().filter(|c| c.source == c.name).map(|c| column(table, c.name));
    let from = TABLES.iter().filter(made).flat_map(own);
    assert_eq!(forgotten(&postgres, &to), [] as [String; 0]);
    assert_eq!(forgotten(&sqlite, &from.collect()), [] as [String; 0]);
    for (name, _) in NOT_MOVED {
        let there = |schema: &Columns| schema.iter().any(|c| c == name || c.split('.').next() == Some(name));
        assert!(there(&sqlite) || there(&postgres), "{name} is named and not there");
        assert!(!to.contains(*name), "{name} is both");
    }
}

#[test]
fn a_column_that_no_list_names_is_noticed() {
    let copied = Columns::from(["audit.at".to_owned()]);
    let schema = Columns::from(["audit.at".to_owned(), "audit.why".to_owned(), "nonce.claim".to_owned()]);
    assert_eq!(forgotten(&schema, &copied), ["audit.why"]);
    assert_eq!(forgotten(&Columns::new(), &copied), ["audit.at is copied and not there"]);
}

#[test]
fn few_rows_are_asked_for_at_a_time_where_callers_say_how_large_they_are() {
    let rows = |name: &str| TABLES.iter().find(|table| table.name == name).expect("it is a table").rows_per_fetch();
    assert!(LARGE.iter().all(|name| rows(name) == LARGE_ROWS_PER_FETCH));
    assert_eq!(rows("fee_rule"), ROWS_PER_FETCH);
}
