//! A deployment opened at the machine, by a command, without being served.

use anyhow::{Context as _, ensure};
use countersign_store::{AnyStore, PostgresStore, SchemaState, SqliteStore};

use super::absent::{folder, key_folder, no_deployment};
use super::{Database, close_store, demand_database, open_store, postgres_options};
use crate::config::Config;
use crate::datadir::{DataDir, DataLock};
use crate::keys;
use crate::vault::Vault;

/// What a command works on. A folder whose database is in it is its alone meanwhile; a database that many nodes share may be served.
#[derive(Debug)]
pub struct Machine {
    /// The data folder. Where the database and the master key are elsewhere it need not be there.
    pub data: DataDir,
    /// The master keys.
    pub vault: Vault,
    /// The data.
    pub store: AnyStore,
    _lock: Option<DataLock>,
}

impl Machine {
    /// Opens it. It is not looked yet whether the master key is the deployment's. The schema must be this program's: opening brings an older
    /// one up to date, under nodes that are running perhaps.
    pub async fn open(config: &Config) -> anyhow::Result<Self> {
        Self::open_with(config, keys::is_named(config)).await
    }

    /// The same for a command that acts as a node, and so needs the data folder of one.
    pub async fn open_as_node(config: &Config) -> anyhow::Result<Self> {
        Self::open_with(config, false).await
    }

    async fn open_with(config: &Config, needs_no_folder: bool) -> anyhow::Result<Self> {
        let database = Database::of(config)?;
        if database != Database::Sqlite {
            // Before the folder, which may be one that nobody has named.
            expect_schema(config, database).await?;
        }
        let data = match database {
            Database::Sqlite => folder(config)?,
            Database::Postgres(_) if needs_no_folder => DataDir::named(&config.data),
            Database::Postgres(_) => key_folder(config)?,
        };
        let vault = keys::vault(config, &data)?;
        let lock = match database {
            Database::Sqlite => {
                demand_database(config, &data)?;
                let lock = data.lock()?;
                expect_schema(config, database).await?;
                Some(lock)
            }
            Database::Postgres(_) => None,
        };
        let store = open_store(config, &data).await?;
        Ok(Self { data, vault, store, _lock: lock })
    }

    /// Lets go of it, whatever was done with it.
    pub fn close<T>(self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let closed = close_store(&self.store);
        outcome.and_then(|done| closed.map(|()| done))
    }
}

async fn expect_schema(config: &Config, database: Database<'_>) -> anyhow::Result<()> {
    let state = match database {
        Database::Sqlite => SqliteStore::schema_state(&DataDir::named(&config.data).database())?,
        Database::Postgres(url) => {
            let state = PostgresStore::schema_state(&postgres_options(config, url)?).await;
            state.context("the PostgreSQL database cannot be used")?
        }
    };
    ensure!(state.applied > 0, no_deployment(config));
    let SchemaState { applied, known } = state;
    ensure!(
        applied == known,
        "the database has {applied} schema steps and this program knows {known}: use the program that serves it, or run `countersign migrate` first"
    );
    Ok(())
}
