//! A new operator token at the machine, where every other one is lost: whoever has the data folder and the master key owns the deployment.

use anyhow::anyhow;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::{CommitError, Role};
use countersign_store::{Batch, Store as _, Write};
use serde_json::json;

use super::machine::Machine;
use super::{chain, command, deployment_settings};
use crate::app::operators::{make_token, role_name};
use crate::app::plain_secret::PlainSecret;
use crate::app::{Actor, Deed};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;

/// A token that was just made at the machine.
#[derive(Debug)]
pub struct Recovered {
    /// Its id.
    pub token_id: String,
    /// The token, of role security. It is kept nowhere: whoever gets this shows it once.
    pub operator_token: PlainSecret,
    /// When it ends.
    pub expires_at: UnixMillis,
    /// Why the database could not be closed in order; none: it was. The token is in it all the same.
    pub unclosed: Option<anyhow::Error>,
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
    let machine = Machine::open_as_node(config).await?;
    match recover_in(config, &machine, life_days).await {
        // It is shown this once, so it is not given away for that.
        Ok(made) => Ok(Recovered { unclosed: machine.close(Ok(())).err(), ..made }),
        refused @ Err(_) => machine.close(refused),
    }
}

async fn recover_in(config: &Config, machine: &Machine, life_days: i64) -> anyhow::Result<Recovered> {
    let Machine { data, vault, store, .. } = machine;
    deployment_settings::compare(config, vault, store).await?;
    let now = store.database_time().await?.unwrap_or_else(|| Clock::System.now());
    chain::take_up(data, vault, store).await?;
    let expires_at = now.plus_ms(life_days.saturating_mul(86_400_000));
    let (row, operator_token) =
        make_token(&Chance::default(), now, "recovered at the machine", Role::Security, Some(expires_at));
    let token_id = row.token_id.clone();
    let actor = Actor::machine();
    let after = json!({ "name": row.name, "role": role_name(row.role), "expires_at": rfc3339(expires_at) }).to_string();
    let audit = actor.records(Deed {
        tenant: None,
        at: now,
        action: "token.recover",
        subject: &token_id,
        before: String::new(),
        after,
    });
    let writes = vec![Write::InsertToken(Box::new(row)), audit];
    store.commit(Batch(writes)).await.map_err(|error| unmade(error, &token_id, config))?;
    Ok(Recovered { token_id, operator_token, expires_at, unclosed: None })
}

/// Why there is no token to show. Where it may have been made nobody has it, and whoever asked is told which it is.
fn unmade(error: CommitError, token_id: &str, config: &Config) -> anyhow::Error {
    if !matches!(error, CommitError::Unknown) {
        return anyhow::Error::from(error).context("the token could not be written");
    }
    anyhow!(
        "it is not known whether the token {token_id} was made, since the connection to the database was lost in the commit, and nobody has it: \
         `{}` makes another; with that see `countersign token list`, and where {token_id} is there end it with `countersign token revoke {token_id}`",
        command("token recover", config)
    )
}

#[cfg(test)]
mod tests {
    use countersign_store::StoreError;

    use super::*;

    #[test]
    fn a_token_that_may_have_been_made_is_named_and_one_that_was_not_is_not() {
        let said = |error| format!("{:#}", unmade(error, "tok_1", &Config::default()));
        let unknown = said(CommitError::Unknown);
        assert!(unknown.starts_with("it is not known whether the token tok_1 was made"), "{unknown}");
        assert!(unknown.contains("`countersign token revoke tok_1`"), "{unknown}");
        let unwritten = said(CommitError::Store(StoreError::Unavailable("away".to_owned())));
        assert!(
            unwritten.starts_with("the token could not be written: ") && !unwritten.contains("tok_1"),
            "{unwritten}"
        );
    }
}
