//! The master key: which one seals, and sealing every secret again under another one while everything runs.
//!
//! The database says which key new secrets are sealed under ([`MASTER_KEY_ID`]). A re-wrap first moves that to the new key, then goes over
//! what is sealed under others. A new secret rests on the setting, so none is added behind its back. Each row is moved by itself, guarded by
//! the key it was under: a re-wrap that is killed is taken up by the next one, and two at once only share the work. None begins while a node
//! is alive that was started with another key: it could not open what is sealed from then on.

use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Conflict, Write};
use countersign_store::contract::{CommitError, SealedSecret};
use countersign_store::nodes::Who;
use countersign_store::{AnyStore, Store as _, StoreError};
use serde_json::json;

use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::sealed::{self, SealedKey};
use super::{Actor, App, Deed, nodes};
use crate::vault::{Vault, VaultError, secret_row};

/// The setting that says which master key seals.
pub const MASTER_KEY_ID: &str = "master_key_id";

/// Secrets of one batch.
const PORTION: u32 = 20;
/// Secrets looked at together where nothing is written.
const LOOK: u32 = 1000;
/// How long one call goes on; what is left is for the next one.
const CALL_TIME_MAX: Duration = Duration::from_secs(15);
/// Secrets that do not open, named in one answer.
const NAMED_MAX: usize = 100;
/// How often a setting is moved again after another node was first.
const TRIES_MAX: usize = 10;

/// How a re-wrap stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrapped {
    /// The key that new secrets are sealed under.
    pub key_id: String,
    /// Secrets that this call sealed again.
    pub rewrapped: u64,
    /// Secrets that do not open: changed behind our back. They are left as they are.
    pub unreadable: Vec<String>,
    /// Whether all that opens is under the new key.
    pub is_done: bool,
    /// The id of the other key that this node has.
    pub previous_key_id: Option<String>,
}

/// Reads which key new secrets are sealed under.
pub async fn look(app: &App) -> Result<(), AppError> {
    let stored = known(app).await?;
    app.vault.seal_with(&stored);
    Ok(())
}

/// The key that new secrets are sealed under. An error: this node was not given it.
pub async fn known(app: &App) -> Result<String, AppError> {
    let stored = stored(&app.store).await?;
    if app.vault.knows(&stored) { Ok(stored) } else { Err(AppError::LacksMasterKey(stored)) }
}

async fn stored(store: &AnyStore) -> Result<String, StoreError> {
    let stored = store.setting(MASTER_KEY_ID).await?;
    stored.ok_or_else(|| StoreError::Unfit(format!("the database lacks its setting {MASTER_KEY_ID}")))
}

/// A master key that secrets, or keys of the deployment's own, are sealed under and that is not here.
pub async fn missing(vault: &Vault, store: &AnyStore) -> Result<Option<String>, StoreError> {
    for own in sealed::ALL {
        if let Some(key_id) = own.sealed_under(store).await?.filter(|key_id| !vault.knows(key_id)) {
            return Ok(Some(key_id));
        }
    }
    let mut after = None;
    loop {
        let page = store.secrets_not_under(vault.key_id(), after, LOOK).await?;
        let Some(last) = page.last() else { return Ok(None) };
        after = Some(last.row.secret_id.clone());
        if let Some(missing) = page.iter().find(|secret| is_in_use(secret) && !vault.knows(&secret.row.key_id)) {
            return Ok(Some(missing.row.key_id.clone()));
        }
    }
}

/// Secrets in force at `now` that do not open although their key is here: their rows were changed, or are damaged. So many at the most.
pub async fn unreadable(
    vault: &Vault,
    store: &AnyStore,
    now: UnixMillis,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    // Under no key of this name: all of them.
    while let page = store.secrets_not_under("", after, LOOK).await?
        && let Some(last) = page.last()
        && found.len() < limit
    {
        after = Some(last.row.secret_id.clone());
        let does_not_open = |secret: &SealedSecret| {
            let row = secret_row(&secret.client_id, &secret.row.secret_id);
            matches!(vault.open(&secret.row.key_id, &row, &secret.row.sealed), Err(VaultError::DoesNotOpen))
        };
        let is_in_force = |secret: &SealedSecret| is_in_use(secret) && secret.row.not_after.is_none_or(|end| now < end);
        let wrong = page.iter().filter(|secret| is_in_force(secret) && does_not_open(secret));
        found.extend(wrong.map(|secret| secret.row.secret_id.clone()));
    }
    found.truncate(limit);
    Ok(found)
}

/// A revoked secret is never opened again: no key need be kept for its sake.
const fn is_in_use(secret: &SealedSecret) -> bool {
    secret.row.revoked_at.is_none()
}

/// Whether a secret, or a key of the deployment's own, is sealed under another key than the current one, or the next one will be.
pub async fn is_left(app: &App) -> Result<bool, AppError> {
    // A re-wrap that died after its first write has moved what seals, and nothing else. Whoever goes back from there needs a re-wrap, too.
    if known(app).await? != app.vault.key_id() {
        return Ok(true);
    }
    for own in sealed::ALL {
        if own.sealed_under(&app.store).await?.is_some_and(|key_id| key_id != app.vault.key_id()) {
            return Ok(true);
        }
    }
    let mut after = None;
    loop {
        let page = app.store.secrets_not_under(app.vault.key_id(), after, LOOK).await?;
        let Some(last) = page.last() else { return Ok(false) };
        after = Some(last.row.secret_id.clone());
        if page.iter().any(is_in_use) {
            return Ok(true);
        }
    }
}

/// Seals what is under other keys again under the current one, for some seconds at the most. `lease`: a node that was not seen for so long is
/// not alive.
pub async fn rewrap(
    app: &App,
    lease: Duration,
    keep: &Keep<'_, Rewrapped>,
    actor: &Actor,
) -> Result<Rewrapped, AppError> {
    let began = Instant::now();
    take_current(app, lease, actor).await?;
    for own in sealed::ALL {
        rewrap_own(app, own, actor).await?;
    }
    let mut done = Rewrapped {
        key_id: app.vault.key_id().to_owned(),
        rewrapped: 0,
        unreadable: Vec::new(),
        is_done: false,
        previous_key_id: app.vault.previous_id().map(str::to_owned),
    };
    let mut after = None;
    while began.elapsed() < CALL_TIME_MAX {
        let page = app.store.secrets_not_under(app.vault.key_id(), after.clone(), PORTION).await?;
        let Some(last) = page.last() else {
            done.is_done = true;
            break;
        };
        let last = last.row.secret_id.clone();
        let mut writes: Vec<Write> = page.iter().filter_map(|secret| again(app, secret, &mut done)).collect();
        let count = writes.len() as u64;
        if count > 0 {
            // With the rows that it tells of: a call that is cut off leaves none untold.
            writes.push(portion(app, &writes, actor));
        }
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => {
                done.rewrapped += count;
                after = Some(last);
            }
            // Another call was first with one of them: the page is read again. A page only gets smaller.
            Err(CommitError::Conflict(Conflict::Moved(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    tell(app, &done, keep, actor).await?;
    Ok(done)
}

/// The line of one batch.
fn portion(app: &App, writes: &[Write], actor: &Actor) -> Write {
    let ids: Vec<&str> = writes
        .iter()
        .filter_map(
            |write| if let Write::RewrapSecret { secret_id, .. } = write { Some(secret_id.as_str()) } else { None },
        )
        .collect();
    let after = json!({ "rewrapped": ids.len(), "first": ids.first(), "last": ids.last() }).to_string();
    actor.records(Deed {
        tenant: None,
        at: app.clock.now(),
        action: "master_key.rewrap_secrets",
        subject: app.vault.key_id(),
        before: String::new(),
        after,
    })
}

/// The line of the audit log of the whole call, and the answer that is kept.
async fn tell(app: &App, done: &Rewrapped, keep: &Keep<'_, Rewrapped>, actor: &Actor) -> Result<(), AppError> {
    let after = json!({ "rewrapped": done.rewrapped, "unreadable": done.unreadable, "done": done.is_done }).to_string();
    let line = actor.records(Deed {
        tenant: None,
        at: app.clock.now(),
        action: "master_key.rewrap",
        subject: &done.key_id,
        before: String::new(),
        after,
    });
    let mut writes = vec![line];
    writes.extend(kept(keep, done));
    app.store.commit(actor.batch(writes)).await?;
    Ok(())
}

/// The secret sealed again; none where it does not open.
fn again(app: &App, secret: &SealedSecret, done: &mut Rewrapped) -> Option<Write> {
    let row = secret_row(&secret.client_id, &secret.row.secret_id);
    let Ok(plain) = app.vault.open(&secret.row.key_id, &row, &secret.row.sealed) else {
        if !is_in_use(secret) {
            return None;
        }
        let name = &secret.row.secret_id;
        tracing::error!(secret_id = %name, key_id = %secret.row.key_id, "The secret {name} does not open; it is left as it is");
        if done.unreadable.len() < NAMED_MAX && !done.unreadable.contains(name) {
            done.unreadable.push(name.clone());
        }
        return None;
    };
    Some(Write::RewrapSecret {
        secret_id: secret.row.secret_id.clone(),
        from: secret.row.key_id.clone(),
        key_id: app.vault.key_id().to_owned(),
        sealed: app.vault.seal_under_current(&app.chance, &row, &plain),
    })
}

/// From here on new secrets are sealed under the current key, on every node.
async fn take_current(app: &App, lease: Duration, actor: &Actor) -> Result<(), AppError> {
    let current = app.vault.key_id();
    for _ in 0..TRIES_MAX {
        let stored = known(app).await?;
        if stored == current {
            app.vault.seal_with(current);
            return Ok(());
        }
        if let Some(who) = nodes::with_another_key(app, lease).await? {
            return Err(AppError::SecretInUse(has_another_key(&who, current, lease)));
        }
        let line = actor.records(Deed {
            tenant: None,
            at: app.clock.now(),
            action: "master_key.use",
            subject: current,
            before: json!({ "key_id": stored }).to_string(),
            after: json!({ "key_id": current }).to_string(),
        });
        let to = current.to_owned();
        let writes = vec![Write::MoveSetting { name: MASTER_KEY_ID.to_owned(), from: Some(stored), to }, line];
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) | Err(CommitError::Conflict(Conflict::Moved(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

fn has_another_key(who: &Who, current: &str, lease: Duration) -> String {
    let Who { node, name, key_id, .. } = who;
    format!(
        "the node {node} at {name} was started with the master key {key_id} and may be unable to open what is sealed under {current}: start it \
         again with {current} as its key and {key_id} as master_key_previous, then repeat this; if it has ended, repeat this in {} seconds",
        lease.as_secs().max(1)
    )
}

/// Seals a key of the deployment's own again.
async fn rewrap_own(app: &App, own: SealedKey, actor: &Actor) -> Result<(), AppError> {
    for _ in 0..TRIES_MAX {
        let Some(stored) = app.store.setting(own.setting).await? else { return Ok(()) };
        let Some(to) = own.again(&app.vault, &app.chance, &stored)? else { return Ok(()) };
        let line = actor.records(Deed {
            tenant: None,
            at: app.clock.now(),
            action: own.rewrapped,
            subject: app.vault.key_id(),
            before: String::new(),
            after: String::new(),
        });
        let writes = vec![Write::MoveSetting { name: own.setting.to_owned(), from: Some(stored), to }, line];
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) | Err(CommitError::Conflict(Conflict::Moved(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}
