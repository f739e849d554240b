//! A deployment opened at the machine, by a command, without being served.

use anyhow::ensure;
use countersign_store::{AnyStore, PostgresStore, SchemaState, StoreError};

use super::database::schema_state;
use super::missing_deployment::{folder, key_folder};
use super::{
    Database, cannot_be_used, close_store, demand_database, demand_deployment, open_store_unserved,
    postgres_cannot_be_used, postgres_options,
};
use crate::app::error::AppError;
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
        if let Database::Postgres(url) = database {
            let looked_at = PostgresStore::refuse_shared(&postgres_options(config, url)?).await;
            looked_at.map_err(postgres_cannot_be_used)?;
            // Before the folder, which may be one that nobody has named.
            demand_deployment(config, &DataDir::named(&config.data)).await?;
            expect_schema(config).await?;
        }
        let data = match database {
            Database::Sqlite => folder(config)?,
            Database::Postgres(_) if needs_no_folder => DataDir::named(&config.data),
            Database::Postgres(_) => key_folder(config)?,
        };
        let lock = match database {
            Database::Sqlite => {
                demand_database(config, &data)?;
                let lock = data.lock()?;
                demand_deployment(config, &data).await?;
                expect_schema(config).await?;
                Some(lock)
            }
            Database::Postgres(_) => None,
        };
        let vault = keys::vault(config, &data)?;
        let store = open_store_unserved(config, &data).await?;
        Ok(Self { data, vault, store, _lock: lock })
    }

    /// Lets go of it, whatever was done with it.
    pub fn close<T>(self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let closed = close_store(&self.store);
        let path = self.data.database();
        // What the store says does not name the file.
        let outcome = outcome.map_err(|error| match (&self.store, is_of_store(&error)) {
            (AnyStore::Sqlite(_), true) => error.context(cannot_be_used(&path)),
            (AnyStore::Sqlite(_) | AnyStore::Postgres(_) | AnyStore::Model(_), _) => error,
        });
        outcome.and_then(|done| closed.map(|()| done))
    }
}

fn is_of_store(error: &anyhow::Error) -> bool {
    error.downcast_ref::<StoreError>().is_some() || matches!(error.downcast_ref(), Some(AppError::Store(_)))
}

async fn expect_schema(config: &Config) -> anyhow::Result<()> {
    let state = schema_state(config, &DataDir::named(&config.data)).await?;
    let SchemaState { applied, known } = state;
    ensure!(
        applied == known,
        "the database has {applied} schema steps and this program knows {known}: use the program that serves it, or run `countersign migrate` first"
    );
    Ok(())
}
