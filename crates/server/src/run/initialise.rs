//! What `init` does: data folder, master key, schema, the deployment's fixed settings, the first operator token.
//!
//! Invariant: settings and token are one batch, written last, and guarded by [`deployment_settings::INITIALISED_AT`]. So an `init` that was cut off can be
//! repeated, one that was finished cannot, and of two at once one is done.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail, ensure};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::{CommitError, Role};
use countersign_store::{AnyStore, Batch, PostgresStore, SqliteStore, Store as _, Write};
use serde_json::json;

use super::deployment_settings::{self, Settings};
use super::missing_deployment::{Presence, presence, quoted, refuse_half_restored, refuse_what_was_lost};
use super::{Database, before_upgrade, cannot_be_used};
use crate::app::operators::{make_token, role_name};
use crate::app::plain_secret::PlainSecret;
use crate::app::sealed::EVIDENCE;
use crate::app::{Actor, Deed, audit_chain, evidence, uses};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::{self, DataDir, DataRefused, MasterKey};
use crate::keys;
use crate::vault::Vault;

const FIRST_TOKEN_LIFE_MS: i64 = 365 * 86_400_000;

/// What came of it.
#[derive(Debug)]
pub struct Initialised {
    /// The data folder.
    pub data: PathBuf,
    /// The first operator token, of role security. It is kept nowhere: whoever gets this shows it once.
    pub operator_token: PlainSecret,
    /// When that token ends.
    pub token_expires_at: UnixMillis,
    /// Why the database could not be closed in order; none: it was. What was made is in it all the same.
    pub unclosed: Option<anyhow::Error>,
}

/// What `init` came to.
#[derive(Debug)]
pub enum Prepared {
    /// A new deployment was made.
    First(Initialised),
    /// The database holds a deployment, and this data folder is ready to serve it as a further node. No token was made.
    Joined(PathBuf),
}

/// Makes a data folder ready for `serve`, and the deployment in its database. Refused where there is one already.
pub async fn initialise(config: &Config) -> anyhow::Result<Initialised> {
    match prepare(config).await? {
        Prepared::First(Initialised { unclosed: Some(error), .. }) => Err(error),
        Prepared::First(made) => Ok(made),
        Prepared::Joined(_) => bail!("the database is initialised already"),
    }
}

/// Makes a data folder ready for `serve`. A database that many nodes share is initialised by the first of them; the others bring
/// the deployment's master key.
pub async fn prepare(config: &Config) -> anyhow::Result<Prepared> {
    DataDir::make_for(&config.data, async |data| Box::pin(prepare_folder(config, data)).await).await
}

async fn prepare_folder(config: &Config, data: &DataDir) -> anyhow::Result<Prepared> {
    let chance = Chance::default();
    let database = Database::of(config)?;
    // Before there is a database: one without a deployment would stand in the way of the next `init`.
    may_make(config, data, database)?;
    if database == Database::Sqlite {
        // What is made in its place would look as if there had been nothing.
        refuse_what_was_lost(data)?;
    }
    // A file that has its name is whole, and is said to be initialised already. A database of nodes says nothing of this folder.
    if database != Database::Sqlite || presence(config, data).await? != Presence::Deployment {
        refuse_half_restored(data)?;
    }
    // A move or a restore that finds the database empty, and one that `init` finds empty, would both fill it.
    let _no_moves = match database {
        Database::Sqlite => None,
        Database::Postgres(url) => {
            let kept_out = PostgresStore::keep_moves_out(&super::postgres_options(config, url)?).await;
            Some(kept_out.map_err(super::postgres_cannot_be_used)?)
        }
    };
    if let Some(kept) = before_upgrade::settings(config, data).await?
        && database != Database::Sqlite
    {
        let since = kept.get(deployment_settings::INITIALISED_AT).await?.unwrap_or_default();
        refuse_unnamed(config, data, &since, &kept).await?;
        deployment_settings::compare_kept(config, &keys_of_node(config, data, &format!("on {since}"))?, &kept).await?;
    }
    let store = super::open_store(config, data).await?;
    let outcome = prepare_in(config, database, data, &store, &chance).await;
    let closed = super::close_store(&store);
    match outcome? {
        // Its token is shown this once, so it is not given away for that.
        Prepared::First(made) => Ok(Prepared::First(Initialised { unclosed: closed.err(), ..made })),
        joined @ Prepared::Joined(_) => closed.map(|()| joined),
    }
}

/// Refuses a key that cannot be read, and a deployment whose key is not there.
fn may_make(config: &Config, data: &DataDir, database: Database<'_>) -> anyhow::Result<()> {
    if keys::is_named(config) {
        return match keys::master_key(config, data) {
            Err(DataRefused::NoKey(file)) => bail!(
                "the master key file {0} is not there: make one with `(umask 077; openssl rand -hex 32 > {0})`, or name none and `init` makes it; \
                 as a further node of a deployment bring the key of that",
                quoted(&file.display().to_string())
            ),
            key => Ok(key.map(drop)?),
        };
    }
    let file = data.database();
    let is_initialised = database == Database::Sqlite
        && file.exists()
        && SqliteStore::peek(&file, deployment_settings::INITIALISED_AT)
            .with_context(|| cannot_be_used(&file))?
            .is_some();
    let has_key = data.master_key().exists();
    ensure!(
        has_key || !is_initialised,
        "{} holds a database but no master key: bring its master.key back, or choose an empty folder",
        data.path().display()
    );
    // A deployment that is there is refused later, with how to start it. One that an `init` had begun and that was never initialised needs no
    // key: this `init` goes on with it.
    if has_key && !is_initialised {
        keys::master_key(config, data)?;
    }
    Ok(())
}

async fn prepare_in(
    config: &Config,
    database: Database<'_>,
    data: &DataDir,
    store: &AnyStore,
    chance: &Chance,
) -> anyhow::Result<Prepared> {
    let Some(before) = store.setting(deployment_settings::INITIALISED_AT).await? else {
        let had_key = data.master_key().exists();
        let master = make_or_take_key(config, data, chance)?;
        if let Some(made) = first_batch(config, data, store, &Vault::new(&master), chance).await? {
            return Ok(Prepared::First(made));
        }
        // Another `init` was first. A key that was made here opens nothing.
        if !had_key && !keys::is_named(config) {
            std::fs::remove_file(data.master_key())
                .with_context(|| format!("{} cannot be removed", data.master_key().display()))?;
        }
        return joined(config, data, store, "by another `init` at the same moment").await;
    };
    ensure!(database != Database::Sqlite, initialised_already(config, data, &before));
    refuse_unnamed(config, data, &before, &Settings::Of(store)).await?;
    joined(config, data, store, &format!("on {before}")).await
}

fn initialised_already(config: &Config, data: &DataDir, before: &str) -> String {
    format!(
        "{} is initialised already (on {before}): start it with `{}`; if no token is at hand, `{}` makes one",
        data.path().display(),
        super::command("serve", config),
        super::command("token recover", config)
    )
}

/// Refuses a folder of a database of nodes whose key lies in it, and is not named: there is nothing to make ready, or it is another deployment's.
async fn refuse_unnamed(config: &Config, data: &DataDir, before: &str, kept: &Settings<'_>) -> anyhow::Result<()> {
    if keys::is_named(config) || !data.master_key().exists() {
        return Ok(());
    }
    let wanted = kept.get(deployment_settings::MASTER_KEY_ID).await?;
    let vault = keys::vault(config, data)?;
    ensure!(
        wanted.is_none_or(|wanted| vault.knows(&wanted)),
        "the database is initialised already (on {before}), and not with the master key in {}: to add this machine as a node, name the deployment's \
         master key with --master-key FILE",
        data.master_key().display()
    );
    bail!(initialised_already(config, data, before))
}

/// This folder as a further node of what was initialised before.
async fn joined(config: &Config, data: &DataDir, store: &AnyStore, before: &str) -> anyhow::Result<Prepared> {
    deployment_settings::compare(config, &keys_of_node(config, data, before)?, store).await?;
    data.forget_chain_key()?;
    Ok(Prepared::Joined(data.path().to_path_buf()))
}

/// The master keys that a further node brings.
fn keys_of_node(config: &Config, data: &DataDir, before: &str) -> anyhow::Result<Vault> {
    ensure!(
        keys::is_named(config),
        "the database is initialised already ({before}): name an empty one; or, to add this machine as a node, give the deployment's master key with --master-key FILE"
    );
    Ok(keys::vault(config, data)?)
}

fn make_or_take_key(config: &Config, data: &DataDir, chance: &Chance) -> anyhow::Result<MasterKey> {
    let key = if keys::is_named(config) || data.master_key().exists() {
        keys::master_key(config, data)
    } else {
        datadir::make_key(&data.master_key(), chance)
    };
    Ok(key?)
}

/// None: another `init` was first, and nothing was written.
async fn first_batch(
    config: &Config,
    data: &DataDir,
    store: &AnyStore,
    vault: &Vault,
    chance: &Chance,
) -> anyhow::Result<Option<Initialised>> {
    // On a database it shares nodes decide by that one's time, whatever this machine's clock shows.
    let now = store.database_time().await?.unwrap_or_else(|| Clock::System.now());
    let token_expires_at = UnixMillis(now.0 + FIRST_TOKEN_LIFE_MS);
    let (token, operator_token) =
        make_token(chance, now, "first operator token", Role::Security, Some(token_expires_at));
    let (token_id, actor) = (token.token_id.clone(), Actor::system());
    let (evidence_key, sealed_evidence_key) = evidence::new_key(vault, chance);
    let made = json!({
        "evidence_key": evidence_key.public().to_hex(),
        "name": token.name,
        "role": role_name(token.role),
        "expires_at": rfc3339(token_expires_at),
    })
    .to_string();
    let audit = actor.records(Deed {
        tenant: None,
        at: now,
        action: "deployment.init",
        subject: &token.token_id,
        before: String::new(),
        after: made,
    });
    // Of a deployment that was in this folder before.
    data.forget_chain_key()?;
    let (chain, chain_key) = audit_chain::new_key(vault, chance);
    store.chain_audit(chain);
    let mut writes = deployment_settings::of(config, vault, now);
    writes.push(Write::PutSetting { name: audit_chain::CHAIN_KEY.to_owned(), value: chain_key });
    writes.push(Write::PutSetting { name: EVIDENCE.setting.to_owned(), value: sealed_evidence_key });
    writes.push(Write::PutSetting { name: uses::COUNTED_SINCE.to_owned(), value: now.0.to_string() });
    writes.push(Write::InsertToken(Box::new(token)));
    writes.push(audit);
    match store.commit(Batch(writes)).await {
        Ok(_) => {
            Ok(Some(Initialised { data: data.path().to_path_buf(), operator_token, token_expires_at, unclosed: None }))
        }
        Err(CommitError::Conflict(_)) => Ok(None),
        Err(error) => Err(unmade(error, &token_id, config)),
    }
}

/// Why there is no token to show. Where the deployment may have been made nobody has its token, and whoever asked is told which it is.
fn unmade(error: CommitError, token_id: &str, config: &Config) -> anyhow::Error {
    if !matches!(error, CommitError::Unknown) {
        return anyhow::Error::from(error).context("the first settings could not be written");
    }
    anyhow!(
        "it is not known whether the deployment was made, since the connection to the database was lost in the commit: run `{}` again; where that \
         says that it is initialised already, nobody has its first token {token_id}: `{}` makes another, and `countersign token revoke {token_id}` \
         ends that one",
        super::command("init", config),
        super::command("token recover", config)
    )
}

impl Initialised {
    /// When the token ends, as text.
    pub fn token_ends(&self) -> String {
        rfc3339(self.token_expires_at)
    }
}

#[cfg(test)]
mod tests {
    use countersign_store::StoreError;

    use super::*;

    #[test]
    fn a_first_token_that_may_have_been_made_is_named_and_one_that_was_not_is_not() {
        let said = |error| format!("{:#}", unmade(error, "tok_1", &Config::default()));
        let unknown = said(CommitError::Unknown);
        assert!(unknown.starts_with("it is not known whether the deployment was made"), "{unknown}");
        assert!(unknown.contains("`countersign token revoke tok_1`"), "{unknown}");
        let unwritten = said(CommitError::Store(StoreError::Unavailable("away".to_owned())));
        assert!(
            unwritten.starts_with("the first settings could not be written: ") && !unwritten.contains("tok_1"),
            "{unwritten}"
        );
    }
}
