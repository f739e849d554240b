//! Before a start brings an older schema up to date: the comparison of settings and keys that may refuse the start.
//!
//! Invariant: a start that the settings of the deployment, or a key that is not here, refuse leaves the schema as it was, and so the database to the program that it had.

use anyhow::{Context as _, bail};
use countersign_store::{PostgresStore, SqliteStore};

use super::chain;
use super::database::{Database, cannot_be_used, postgres_cannot_be_used, postgres_options, schema_state};
use super::deployment_settings::{self, Settings};
use super::missing_deployment::{no_deployment, nothing_there};
use crate::app::sealed;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::vault::Vault;

/// The settings of a deployment whose schema is older than this program's; none where there is no such deployment.
pub async fn settings(config: &Config, data: &DataDir) -> anyhow::Result<Option<Settings<'static>>> {
    if schema_state(config, data).await?.is_behind() { kept(config, data).await } else { Ok(None) }
}

/// Settings of the data, read without opening the database, which has a schema; as many as names.
pub(super) async fn peek(config: &Config, data: &DataDir, names: &[&str]) -> anyhow::Result<Vec<Option<String>>> {
    match Database::of(config)? {
        Database::Sqlite => {
            let path = data.database();
            names.iter().map(|name| SqliteStore::peek(&path, name).with_context(|| cannot_be_used(&path))).collect()
        }
        Database::Postgres(url) => {
            PostgresStore::peek(&postgres_options(config, url)?, names).await.map_err(postgres_cannot_be_used)
        }
    }
}

async fn secrets_under(config: &Config, data: &DataDir) -> anyhow::Result<Vec<String>> {
    match Database::of(config)? {
        Database::Sqlite => {
            let path = data.database();
            SqliteStore::secrets_under(&path).with_context(|| cannot_be_used(&path))
        }
        Database::Postgres(url) => {
            PostgresStore::secrets_under(&postgres_options(config, url)?).await.map_err(postgres_cannot_be_used)
        }
    }
}

async fn kept(config: &Config, data: &DataDir) -> anyhow::Result<Option<Settings<'static>>> {
    let own = sealed::ALL.map(|own| own.setting);
    let names: Vec<&str> = deployment_settings::NAMES.into_iter().chain(own).collect();
    let kept = peek(config, data, &names).await?;
    let kept = names.into_iter().zip(kept).filter_map(|(name, value)| Some((name, value?)));
    let kept = Settings::Read(kept.collect());
    Ok(kept.get(deployment_settings::INITIALISED_AT).await?.is_some().then_some(kept))
}

/// Refuses what a start refuses by the settings of the deployment, where it would bring the schema up to date first; and a database without one, before
/// anything is made in it.
pub async fn compare(config: &Config, data: &DataDir, vault: &Vault) -> anyhow::Result<()> {
    let state = schema_state(config, data).await?;
    if state.applied == 0 {
        bail!(nothing_there(config).await);
    }
    if !state.is_behind() {
        return Ok(());
    }
    let Some(kept) = kept(config, data).await? else { bail!(no_deployment(config)) };
    deployment_settings::compare_kept(config, vault, &kept).await?;
    let mut used = secrets_under(config, data).await?;
    for own in sealed::ALL {
        if let Some(stored) = kept.get(own.setting).await? {
            used.push(own.key_id(&stored)?.to_owned());
        }
    }
    deployment_settings::demand_keys(vault, used)?;
    chain::examine(data, vault, &kept).await.map(drop)
}
