//! Whether the files of an open database are still where they were opened.
//!
//! A file that is removed lives on for whoever has it open, and is gone with him: what is committed to it is acknowledged and lost. SQLite
//! notices it as little as the file system.

use std::ffi::OsString;
use std::fs::{Metadata, metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::contract::StoreError;

/// The database file and its log, by what the file system calls them.
#[derive(Debug)]
pub(super) struct Presence([(PathBuf, Option<Id>); 2]);

/// Device and number of a file.
type Id = (u64, u64);

fn id(of: &Metadata) -> Id {
    (of.dev(), of.ino())
}

/// The file that SQLite keeps the log of a database in.
fn log(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-wal");
    PathBuf::from(name)
}

impl Presence {
    /// Of the files as they are now: the database is open, and something was written to it.
    pub(super) fn of(path: &Path) -> Self {
        Self([path.to_owned(), log(path)].map(|path| {
            let id = metadata(&path).ok().map(|found| id(&found));
            (path, id)
        }))
    }

    /// `Unavailable` where one of them was removed, moved or replaced since.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.0.iter().try_for_each(still_there)
    }

    /// The same for the database file alone: a log that is gone leaves nothing behind once everybody has closed.
    pub(super) fn check_database(&self) -> Result<(), StoreError> {
        still_there(&self.0[0])
    }
}

fn still_there((path, opened): &(PathBuf, Option<Id>)) -> Result<(), StoreError> {
    let what = match metadata(path) {
        Ok(found) if opened.is_none_or(|opened| opened == id(&found)) => return Ok(()),
        Ok(_) => "was replaced",
        Err(error) if error.kind() == ErrorKind::NotFound => "was removed or moved",
        // It says nothing of the file, and whoever uses it will see.
        Err(_) => return Ok(()),
    };
    Err(StoreError::Unavailable(format!(
        "{} {what} while it is in use, so nothing that is written now would last: bring it back",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::fs::{copy, remove_file, rename};

    use super::*;
    use crate::batch::{Batch, Write};
    use crate::contract::{CommitError, Store as _};
    use crate::sqlite::{SqliteOptions, SqliteStore};

    async fn set(store: &SqliteStore, value: &str) -> Result<(), CommitError> {
        let write = Write::PutSetting { name: "name".to_owned(), value: value.to_owned() };
        store.commit(Batch(vec![write])).await.map(|_| ())
    }

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::open(path, SqliteOptions::new([1; 16], "boot")).expect("opens")
    }

    fn says(outcome: Result<(), CommitError>, words: &str) {
        match outcome {
            Err(CommitError::Store(StoreError::Unavailable(why))) => assert!(why.contains(words), "{why}"),
            other => panic!("{words}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn nothing_is_acknowledged_while_a_file_is_not_where_it_was_opened() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, away) = (dir.path().join("db"), dir.path().join("away"));
        let store = open(&path);
        for moved in [path.clone(), log(&path)] {
            set(&store, "before").await.expect("all is well");
            rename(&moved, &away).expect("moves");
            says(set(&store, "gone").await, "was removed or moved while it is in use");
            copy(&away, &moved).expect("copies");
            says(set(&store, "another").await, "was replaced while it is in use");
            rename(&away, &moved).expect("moves back");
            set(&store, "after").await.expect("all is well again");
            assert_eq!(store.setting("name").await.expect("reads").as_deref(), Some("after"));
        }
        store.close().expect("closes");
        drop(store);
        let store = open(&path);
        assert_eq!(store.setting("name").await.expect("reads").as_deref(), Some("after"));
    }

    #[tokio::test]
    async fn to_close_makes_no_file_in_the_place_of_one_that_was_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let store = open(&path);
        remove_file(&path).expect("removes");
        let refused = store.close().expect_err("nothing is left to be closed");
        assert!(matches!(&refused, StoreError::Unavailable(why) if why.contains("was removed")), "{refused}");
        assert!(!path.exists());
    }
}
