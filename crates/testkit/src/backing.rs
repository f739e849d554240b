//! What a server or an application of a test keeps its rows in: SQLite in its folder, or a PostgreSQL database of its own.

use std::path::Path;

use anyhow::{Context, Result};
use countersign::config::{Config, Optional};
use countersign_store::testing::{Chosen, Damage, Database};
use countersign_store::{AnyStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore};

/// Which store is under the use cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In memory. Each commit copies everything: for small worlds.
    Model,
    /// SQLite in a folder of its own.
    Sqlite,
    /// A database of the run's PostgreSQL.
    Postgres,
}

impl StoreKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Model, Self::Sqlite, Self::Postgres];

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// What `TESTKIT_STORE` says.
    pub fn of_this_run() -> Self {
        match Chosen::of_this_run() {
            Chosen::Sqlite => Self::Sqlite,
            Chosen::Postgres => Self::Postgres,
        }
    }

    /// The kind that a person names on the command line of a run: `model`, `sqlite` or `postgres`.
    pub fn named(word: &str) -> Option<Self> {
        if word == "model" { Some(Self::Model) } else { Self::lasting(word).ok() }
    }

    /// The same of those whose rows last: `sqlite` or `postgres`.
    pub fn lasting(word: &str) -> Result<Self> {
        match Chosen::named(word).with_context(|| format!("{word:?} is no store: sqlite and postgres are"))? {
            Chosen::Sqlite => Ok(Self::Sqlite),
            Chosen::Postgres => Ok(Self::Postgres),
        }
    }
}

/// Where the rows are. A database of its own goes with it.
#[derive(Debug)]
pub struct Backing {
    database: Option<Database>,
}

impl Backing {
    /// A file in the data folder.
    pub const fn sqlite() -> Self {
        Self { database: None }
    }

    /// Without a row, of this kind; in memory there is nothing to prepare.
    pub async fn fresh(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Model | StoreKind::Sqlite => Self::sqlite(),
            StoreKind::Postgres => Self { database: Some(Database::with_schema().await) },
        }
    }

    /// The same, of the kind that this run is about.
    pub async fn of_this_run() -> Self {
        Self::fresh(StoreKind::of_this_run()).await
    }

    /// The database, where it is PostgreSQL.
    pub const fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    /// Its address, where it is PostgreSQL.
    pub fn url(&self) -> Option<String> {
        self.database.as_ref().map(Database::url)
    }

    /// Settings that lead here.
    pub fn lay(&self, config: &mut Config) {
        config.database_url = Optional(self.url());
    }

    /// Makes rows unreadable, or readable again, here or in the file in `folder`. A store that has the file open sees it with its next change.
    pub async fn damage(&self, what: &Damage, folder: &Path) {
        match self.database() {
            Some(database) => database.damage(what).await,
            None => what.file(&folder.join("countersign.db")),
        }
    }

    /// A bare store: in `folder`, or in the database.
    pub async fn open_store(&self, folder: &Path) -> Result<AnyStore> {
        match self.url() {
            None => {
                let file = folder.join("countersign.db");
                SqliteStore::migrate(&file)?;
                Ok(AnyStore::Sqlite(SqliteStore::open(&file, SqliteOptions::new([3; 16], "boot"))?))
            }
            Some(url) => {
                Ok(AnyStore::Postgres(PostgresStore::open(PostgresOptions::new(url, [3; 16], [4; 16])).await?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StoreKind;

    #[test]
    fn each_kind_has_one_word_and_other_words_have_none() {
        for (word, kind) in
            [("model", StoreKind::Model), ("sqlite", StoreKind::Sqlite), ("postgres", StoreKind::Postgres)]
        {
            assert_eq!(StoreKind::named(word), Some(kind));
            // What is in memory only does not last.
            assert_eq!(StoreKind::lasting(word).ok(), Some(kind).filter(|kind| *kind != StoreKind::Model), "{word}");
        }
        for word in ["", "Model", "SQLite", "postgresql", "postgres "] {
            assert_eq!(StoreKind::named(word), None, "{word:?}");
            let refused = StoreKind::lasting(word).expect_err("is none").to_string();
            assert_eq!(refused, format!("{word:?} is no store: sqlite and postgres are"));
        }
    }
}
