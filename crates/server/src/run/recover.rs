//! A new operator token at the machine, where every other one is lost: whoever has the data folder and the master key owns the deployment.

use anyhow::{Context as _, ensure};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::Role;
use countersign_store::{AnyStore, Batch, PostgresStore, SchemaState, SqliteStore, Store as _, Write};
use serde_json::json;

use super::{Database, fixed};
use crate::app::operators::{PlainSecret, make_token, role_name};
use crate::app::{Actor, audit_chain};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::keys;
use crate::vault::Vault;

/// Who it was, in the audit log: nobody with a token.
const ACTOR: &str = "machine";

/// A token that was just made at the machine.
#[derive(Debug)]
pub struct Recovered {
    /// Its id.
    pub token_id: String,
    /// The token, of role security. It is kept nowhere: whoever gets this shows it once.
    pub operator_token: PlainSecret,
    /// When it ends.
    pub expires_at: UnixMillis,
}

impl Recovered {
    /// When the token ends, as text.
    pub fn ends(&self) -> String {
        rfc3339(self.expires_at)
    }
}

/// Makes an operator token of role security for `life_days`. Demands the data folder and the right master key. A folder whose database is in it
/// must not be served meanwhile: one process writes to that file. A database that many nodes share may be.
pub async fn recover(config: &Config, life_days: i64) -> anyhow::Result<Recovered> {
    let database = Database::of(config)?;
    let data = DataDir::open(&config.data)?;
    let vault = keys::vault(config, &data)?;
    let _lock = match database {
        Database::Sqlite => {
            let folder = data.path().display();
            ensure!(data.database().exists(), "{folder} holds no database: run `countersign init --data {folder}`");
            Some(data.lock()?)
        }
        Database::Postgres(_) => None,
    };
    expect_schema(config, &data, database).await?;
    let store = super::open_store(config, &data).await?;
    let outcome = recover_in(config, &vault, &store, life_days).await;
    let closed = super::close_store(&store);
    outcome.and_then(|made| closed.map(|()| made))
}

/// Opening brings the schema up to date, under nodes that are running perhaps: not before the master key has been compared, so not here.
async fn expect_schema(config: &Config, data: &DataDir, database: Database<'_>) -> anyhow::Result<()> {
    let state = match database {
        Database::Sqlite => SqliteStore::schema_state(&data.database())?,
        Database::Postgres(url) => PostgresStore::schema_state(&super::postgres_options(config, url)?).await?,
    };
    let folder = data.path().display();
    ensure!(state.applied > 0, "the database of {folder} is empty: run `countersign init --data {folder}`");
    let SchemaState { applied, known } = state;
    ensure!(
        applied == known,
        "the database has {applied} schema steps and this program knows {known}: use the program that serves it, or run `countersign migrate` first"
    );
    Ok(())
}

async fn recover_in(config: &Config, vault: &Vault, store: &AnyStore, life_days: i64) -> anyhow::Result<Recovered> {
    fixed::compare(config, vault, store).await?;
    let now = store.database_time().await?.unwrap_or_else(|| Clock::System.now());
    audit_chain::begin(vault, store, &Chance::default(), now).await?;
    let expires_at = now.plus_ms(life_days.saturating_mul(86_400_000));
    let (row, operator_token) =
        make_token(&Chance::default(), now, "recovered at the machine", Role::Security, Some(expires_at));
    let token_id = row.token_id.clone();
    let actor = Actor { name: ACTOR.to_owned(), source: String::new(), request_id: String::new() };
    let after = json!({ "name": row.name, "role": role_name(row.role), "expires_at": expires_at.0 }).to_string();
    let audit = actor.did(None, now, "token.recover", &token_id, String::new(), after);
    let writes = vec![Write::InsertToken(Box::new(row)), Write::RecordAudit(Box::new(audit))];
    store.commit(Batch(writes)).await.context("the token could not be written")?;
    Ok(Recovered { token_id, operator_token, expires_at })
}
