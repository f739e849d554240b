//! `docs/DATA.md` against the schema.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use crate::fixtures::open;

/// The names in backticks in the first cell of each line of each section's first table, by the section's title.
fn documented() -> BTreeMap<String, Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/DATA.md");
    let text = std::fs::read_to_string(page).expect("docs/DATA.md is there");
    let mut sections = BTreeMap::new();
    for section in text.split("\n### ").skip(1) {
        let (title, body) = section.split_once('\n').expect("a title and a body");
        let table =
            body.lines().skip_while(|l| !l.starts_with("| column |")).skip(2).take_while(|l| l.starts_with('|'));
        let cells = table.filter_map(|line| line.split('|').nth(1));
        let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
        sections.insert(title.trim().to_owned(), names.collect());
    }
    sections
}

fn schema() -> BTreeMap<String, Vec<String>> {
    let dir = tempfile::tempdir().expect("a folder");
    drop(open(dir.path()));
    let conn = Connection::open(dir.path().join("countersign.db")).expect("opens");
    let mut select = conn
        .prepare(
            "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.schema = 'main' AND t.name NOT LIKE 'sqlite%'",
        )
        .expect("prepares");
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows = select.query([]).expect("reads");
    while let Some(row) = rows.next().expect("reads") {
        tables.entry(row.get(0).expect("a name")).or_default().push(row.get(1).expect("a name"));
    }
    tables
}

#[test]
fn the_page_about_data_names_every_column_and_no_other() {
    let (mut documented, schema) = (documented(), schema());
    // The one section about a file.
    documented.remove("The journal").expect("the journal is described");
    let sorted = |tables: BTreeMap<String, Vec<String>>| {
        let each = tables.into_iter().map(|(name, mut columns)| {
            columns.sort();
            (name, columns)
        });
        each.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(sorted(documented), sorted(schema));
}

/// The words in backticks of the text between two marks of the page.
fn named_between(from: &str, to: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/DATA.md");
    let text = std::fs::read_to_string(page).expect("docs/DATA.md is there");
    let part = text.split(from).nth(1).and_then(|rest| rest.split(to).next()).expect("the page has both");
    part.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(path).expect("a source is there")
}

#[test]
fn the_page_about_data_names_each_table_whose_rows_are_deleted() {
    let named = named_between("**Rows that are deleted:**", "\n- **");
    for path in
        ["store/src/sqlite/statements.rs", "store/src/postgres/statements.rs", "store/src/postgres/convert_texts.rs"]
    {
        let text = source(path);
        for statement in text.split("DELETE FROM ").skip(1) {
            let table: String = statement.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            assert!(named.contains(&table), "{path} deletes from {table}");
        }
    }
}

#[test]
fn the_page_about_data_names_each_file_in_the_folder() {
    let named = named_between("Files in the data folder:", "\n## ");
    let code = source("server/src/datadir.rs");
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut count = 0;
    let said = |before: &'static str| code.split(before).skip(1).filter_map(|rest| rest.split('"').next());
    for name in said("self.path.join(\"").chain(said(": &str = \"")) {
        assert!(named.iter().any(|file| file == name), "{name}");
        count += 1;
    }
    assert!(count > 3, "the places of files are found");
}
