//! Steps of a schema: numbered, each applied once, never changed once released. The same for every dialect.

use aws_lc_rs::digest;

use crate::contract::StoreError;
use crate::read::hex;

/// One step of the schema. Never changed once released: its digest is checked.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) number: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Where the schema of a database stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaState {
    /// Steps that it has; 0 where there is none.
    pub applied: i32,
    /// Steps that this program knows.
    pub known: i32,
}

impl SchemaState {
    /// Whether there is a schema, and an older one than this program's.
    pub fn is_behind(&self) -> bool {
        (1..self.known).contains(&self.applied)
    }

    /// Whether it is this program's.
    pub(crate) const fn is_current(&self) -> bool {
        self.applied == self.known
    }

    /// Why a backup of it is not taken. Whoever is about to upgrade wants one from before the schema is brought up to date.
    pub(crate) fn not_to_be_copied(&self) -> StoreError {
        StoreError::Unfit(format!(
            "the database is at schema step {}, this program's is {}: the program that it has served with can take a backup of it as it is, and \
             this one can after `countersign migrate`",
            self.applied, self.known
        ))
    }
}

/// A step that was applied: number, name, digest.
pub(crate) type Applied = (i32, String, String);

pub(crate) fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

/// What is still to be applied. A database that is ahead of this program, or was made by other steps, is refused.
pub(crate) fn pending<'a>(done: &[Applied], all: &'a [Step]) -> Result<&'a [Step], StoreError> {
    if done.len() > all.len() {
        let (at, known) = (done.len(), all.len());
        return Err(StoreError::Unfit(format!(
            "the database is at schema step {at}, this program knows {known}: use a newer program"
        )));
    }
    for ((number, name, digest), step) in done.iter().zip(all) {
        if (*number, name.as_str(), digest.as_str()) != (step.number, step.name, sha256(step.sql).as_str()) {
            return Err(StoreError::Unfit(format!("schema step {number} {name} is not the one this program knows")));
        }
    }
    Ok(&all[done.len()..])
}

/// The words of steps, without comments.
pub(crate) fn words(steps: &[Step]) -> Vec<&'static str> {
    let lines = steps.iter().flat_map(|step| step.sql.lines()).filter(|line| !line.trim_start().starts_with("--"));
    lines.flat_map(str::split_whitespace).collect()
}

/// The tables that are there once all of these steps are applied, `schema_step` among them.
pub(crate) fn tables(steps: &[Step]) -> Vec<&'static str> {
    let words = words(steps);
    let mut tables = vec!["schema_step"];
    for at in 0..words.len() {
        match words[at..] {
            ["CREATE", "TABLE", name, ..] => tables.push(name),
            ["DROP", "TABLE", name, ..] => tables.retain(|table| *table != name.trim_end_matches(';')),
            ["ALTER", "TABLE", before, "RENAME", "TO", name, ..] => {
                tables.retain(|table| *table != before);
                tables.push(name.trim_end_matches(';'));
            }
            _ => {}
        }
    }
    tables
}

/// What is wrong where some of our tables are gone, in words; none: they are there. `all`: how many there should be; where none is left the cause
/// is more likely the way to them.
pub(crate) fn gone(tables: &[String], all: usize) -> Option<String> {
    if tables.len() == all {
        return Some(
            "none of the tables of this deployment can be found: the role of this node may have lost USAGE on their schema, the search_path may lead \
             elsewhere, or another database has taken the name of this one"
                .to_owned(),
        );
    }
    let tables = named(tables)?;
    Some(format!(
        "{tables} of this deployment can no longer be found: somebody has renamed or removed it, or another database has taken the name of this one"
    ))
}

/// What is wrong where some of them may no longer be used; none: all may.
pub(crate) fn locked(tables: &[String]) -> Option<String> {
    let tables = named(tables)?;
    Some(format!("this node may no longer read and write {tables}: `countersign doctor` says what to run"))
}

fn named(tables: &[String]) -> Option<String> {
    let (first, more) = (tables.first()?, tables.len() - 1);
    Some(if more == 0 { format!("the table {first}") } else { format!("the table {first} and {more} more") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_renamed_has_its_new_name_and_what_is_removed_is_no_table() {
        let of = |sql| Step { number: 1, name: "a", sql };
        let steps = [
            of("CREATE TABLE a (x);\n-- CREATE TABLE no\nCREATE TABLE b (x);"),
            of("DROP TABLE b; ALTER TABLE a RENAME TO c;"),
        ];
        assert_eq!(tables(&steps), ["schema_step", "c"]);
    }

    #[test]
    fn one_table_is_named_and_the_others_are_counted() {
        let table = |name: &str| name.to_owned();
        assert_eq!((gone(&[], 9), locked(&[])), (None, None));
        assert!(gone(&[table("a"), table("b")], 2).expect("is told").contains("USAGE"));
        assert!(gone(&[table("a")], 9).expect("is told").starts_with("the table a of this deployment can"));
        assert!(locked(&[table("a"), table("b"), table("c")]).expect("is told").contains("the table a and 2 more:"));
    }

    #[test]
    fn a_database_that_is_ahead_and_one_of_other_steps_are_refused() {
        let all = [Step { number: 1, name: "a", sql: "A" }, Step { number: 2, name: "b", sql: "B" }];
        let row = |step: &Step| (step.number, step.name.to_owned(), sha256(step.sql));
        assert_eq!(pending(&[], &all).expect("all").len(), 2);
        assert_eq!(pending(&[row(&all[0])], &all).expect("one").len(), 1);
        assert!(pending(&[row(&all[0]), row(&all[1])], &all[..1]).is_err());
        assert!(pending(&[(1, "a".to_owned(), sha256("changed"))], &all).is_err());
    }
}
