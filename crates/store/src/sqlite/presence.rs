//! Whether the files of an open database are still where they were opened.
//!
//! A file that is removed lives on for whoever has it open, and is gone with him: what is committed to it is acknowledged and lost. SQLite
//! notices it as little as the file system.

use std::ffi::OsString;
use std::fs::{Metadata, canonicalize, metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::contract::StoreError;

/// The database file and its log, by what the file system calls them.
#[derive(Debug)]
pub(super) struct Presence {
    database: Opened,
    log: Opened,
}

/// Where SQLite keeps the log of a database: it follows links, and takes the folder of the file that it finds.
fn log_of(path: &Path) -> io::Result<PathBuf> {
    let mut log = OsString::from(canonicalize(path)?);
    log.push("-wal");
    Ok(PathBuf::from(log))
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    /// Device and number.
    id: (u64, u64),
    /// Whether a file of no bytes is none.
    has_bytes: bool,
}

impl Presence {
    /// Of the files as they are now: the database is open, and something was written to it.
    pub(super) fn of(path: &Path) -> Result<Self, StoreError> {
        let unseen = |error| StoreError::Unavailable(format!("{} cannot be looked at: {error}", path.display()));
        Ok(Self { database: Opened::of(path, true)?, log: Opened::of(&log_of(path).map_err(unseen)?, false)? })
    }

    /// `Unavailable` where one of them was removed, moved or replaced since, or nothing is left of the database.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.check_database()?;
        self.log.check().or_else(|gone| {
            // The folder may be known by another name by now.
            let is_there = log_of(&self.database.path).and_then(metadata).is_ok_and(|found| id(&found) == self.log.id);
            if is_there { Ok(()) } else { Err(gone) }
        })
    }

    /// The same for the database file alone: a log that is gone leaves nothing behind once everybody has closed.
    pub(super) fn check_database(&self) -> Result<(), StoreError> {
        self.database.check()
    }
}

fn id(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

impl Opened {
    fn of(path: &Path, has_bytes: bool) -> Result<Self, StoreError> {
        let found = metadata(path)
            .map_err(|error| StoreError::Unavailable(format!("{} cannot be looked at: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), id: id(&found), has_bytes })
    }

    fn check(&self) -> Result<(), StoreError> {
        let what = match metadata(&self.path) {
            // Anybody may empty the log who has it moved to the database before.
            Ok(found) if id(&found) == self.id && (found.len() > 0 || !self.has_bytes) => return Ok(()),
            Ok(found) if id(&found) == self.id => "was emptied",
            Ok(_) => "was replaced",
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                "was removed or moved"
            }
            // It says nothing of the file, and whoever uses it will see.
            Err(_) => return Ok(()),
        };
        Err(StoreError::Unavailable(format!(
            "{} {what} while it is in use, so nothing that is written now would last; docs/RUNBOOK.md says what to do",
            self.path.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{copy, remove_file, rename};
    use std::sync::Arc;

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
        for moved in [path.clone(), dir.path().join("db-wal")] {
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
    async fn to_close_saves_what_was_in_a_log_that_was_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let store = open(&path);
        set(&store, "acknowledged").await.expect("all is well");
        assert!(store.setting("name").await.expect("reads").is_some());
        remove_file(dir.path().join("db-wal")).expect("removes");
        says(set(&store, "refused").await, "was removed or moved");
        store.close().expect("closes");
        drop(store);
        assert_eq!(open(&path).setting("name").await.expect("reads").as_deref(), Some("acknowledged"));
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

    #[tokio::test]
    async fn a_database_behind_a_link_is_used_as_any_other_and_an_emptied_one_is_not() {
        let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let (path, real) = (dir.path().join("db"), other.path().join("real"));
        std::os::unix::fs::symlink(&real, &path).expect("links");
        let store = open(&path);
        set(&store, "one").await.expect("all is well");
        rename(&real, other.path().join("away")).expect("moves");
        says(set(&store, "gone").await, "was removed or moved");
        rename(other.path().join("away"), &real).expect("moves back");
        set(&store, "two").await.expect("all is well again");
        rename(other.path(), other.path().with_extension("renamed")).expect("moves the folder");
        remove_file(&path).expect("removes the link");
        let real = other.path().with_extension("renamed").join("real");
        std::os::unix::fs::symlink(&real, &path).expect("links");
        set(&store, "three").await.expect("the same files, by another name");
        std::fs::OpenOptions::new().write(true).truncate(true).open(&path).expect("opens");
        says(set(&store, "lost").await, "was emptied");
        drop(store);
        std::fs::remove_dir_all(other.path().with_extension("renamed")).expect("removes");
    }

    #[tokio::test]
    async fn nobody_begins_to_read_a_file_that_has_come_in_its_place() {
        let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let (path, away) = (dir.path().join("db"), dir.path().join("away"));
        let foreign = open(&other.path().join("db"));
        set(&foreign, "foreign").await.expect("is written");
        foreign.close().expect("closes");
        let store = Arc::new(open(&path));
        set(&store, "ours").await.expect("is written");
        rename(&path, &away).expect("moves");
        copy(other.path().join("db"), &path).expect("copies");
        // Each on a thread that has not read yet.
        let reads = |store: &Arc<SqliteStore>| {
            let store = Arc::clone(store);
            let read = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(store.setting("name"))
            };
            std::thread::spawn(read).join().expect("no panic")
        };
        assert!(matches!(reads(&store), Err(StoreError::Unavailable(why)) if why.contains("was replaced")));
        rename(&away, &path).expect("moves back");
        assert_eq!(reads(&store).expect("reads").as_deref(), Some("ours"));
        assert_eq!(store.setting("name").await.expect("reads").as_deref(), Some("ours"));
        set(&store, "more").await.expect("all is well again");
    }
}
