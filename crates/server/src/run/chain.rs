//! The chain of the audit log, as a start and a command take it up.
//!
//! Invariant: each node notes in its data folder which key the chain has. Who can write to the database, and to no node's disk, can take key and
//! links away, but the next start knows that there were any.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use countersign_domain::time::UnixMillis;
use countersign_store::{AnyStore, Store as _};

use super::deployment_settings::{self, Settings};
use super::machine::Machine;
use crate::app::audit_chain::{self, Begun, Opened};
use crate::app::error::AppError;
use crate::app::nodes::NODES_MAX;
use crate::app::{Actor, audit_chain::VerifiedFault};
use crate::chance::{Chance, hex};
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::vault::Vault;

/// From here on lines of the audit log are linked. Refused where the key of the chain is not there, or is not the one that this node knows, and where
/// the system's chain is gone: the next line would begin it anew.
pub async fn take_up(data: &DataDir, vault: &Vault, store: &AnyStore) -> anyhow::Result<()> {
    let known = data.chain_key_seen()?;
    let Some(key) = audit_chain::link(vault, store).await? else { bail!(missing(known.as_deref())) };
    let fingerprint = hex(&key.fingerprint());
    if let Some(known) = &known {
        same(data, known, &fingerprint)?;
    }
    demand_begun(store).await?;
    if known.is_none() {
        data.note_chain_key(&fingerprint)?;
    }
    Ok(())
}

/// Refuses a chain whose key is not the one that this node knows; without changing anything.
pub async fn compare(data: &DataDir, vault: &Vault, store: &AnyStore) -> anyhow::Result<()> {
    let (Some(known), Some(key)) = (data.chain_key_seen()?, audit_chain::key(vault, store).await?) else {
        return Ok(());
    };
    same(data, &known, &hex(&key.fingerprint()))
}

/// What a start would say of the chain, without changing anything. The fingerprint of its key.
pub async fn examine(data: &DataDir, vault: &Vault, kept: &Settings<'_>) -> anyhow::Result<Examined> {
    let known = data.chain_key_seen()?;
    let Some(sealed) = kept.get(audit_chain::CHAIN_KEY).await? else { bail!(missing(known.as_deref())) };
    let fingerprint = hex(&audit_chain::opened(vault, &sealed)?.fingerprint());
    if let Some(known) = &known {
        same(data, known, &fingerprint)?;
    }
    if let Settings::Of(store) = kept {
        demand_begun(store).await?;
    }
    Ok(Examined { fingerprint, was_seen: known.is_some() })
}

/// A chain's key that is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// What tells it from others.
    pub fingerprint: String,
    /// Whether the folder has noted it before. A replaced one is found only then.
    pub was_seen: bool,
}

fn same(data: &DataDir, known: &str, fingerprint: &str) -> anyhow::Result<()> {
    ensure!(
        known == fingerprint,
        "the chain of the audit log has another key ({fingerprint}) than this node has seen ({known}): somebody began it anew, and what was there \
         before it may have been changed; compare with heads that were kept, and where it was you, remove {}",
        data.chain_key_file().display()
    );
    Ok(())
}

async fn demand_begun(store: &AnyStore) -> anyhow::Result<()> {
    ensure!(
        audit_chain::is_begun(store).await?,
        "the system's chain of the audit log was taken out of the database, which every deployment begins with, so that nobody can tell any more what \
         was done: restore a backup, or begin it anew over what is there with `countersign audit begin --accept`"
    );
    Ok(())
}

fn missing(known: Option<&str>) -> String {
    match known {
        Some(known) => format!(
            "the key of the audit log's chain ({known}) was taken out of the database, so that nobody can tell any more whether lines were \
             changed: restore a backup, or begin another chain over what is there with `countersign audit begin --accept`"
        ),
        None => "the database has no key for a chain of the audit log: if a program from before the chain made this deployment, stop every node and \
                 run `countersign audit begin`; if not, somebody has taken the key away, and what the log says cannot be trusted"
            .to_owned(),
    }
}

/// A chain that was just begun at the machine.
#[derive(Debug)]
pub struct BegunHere {
    /// The chain.
    pub begun: Begun,
    /// What could not be done behind it: to note its key in the data folder, or to close the database in order; none: it was. It is begun all the same.
    pub unfinished: Option<anyhow::Error>,
}

/// Begins the chain of a deployment that a program from before the chain made, or with `accept` another one over whatever is there, or under the same
/// key the system's where that is gone. Refused while nodes are alive: their lines would not be in it.
pub async fn begin(config: &Config, accept: bool) -> anyhow::Result<BegunHere> {
    let machine = Machine::open_as_node(config).await?;
    match Box::pin(begin_in(config, &machine, accept)).await {
        // Its key is shown, and a second run begins nothing: so it is not given away for that.
        Ok(begun) => {
            let noted = note_anew(&machine.data, &begun);
            Ok(BegunHere { begun, unfinished: machine.close(noted).err() })
        }
        Err(refused) => machine.close(Err(refused)),
    }
}

/// Notes the key of another chain than the one that the folder has seen.
fn note_anew(data: &DataDir, begun: &Begun) -> anyhow::Result<()> {
    let noted = data.forget_chain_key().and_then(|()| data.note_chain_key(&hex(&begun.key.fingerprint())));
    let then = || {
        let file = data.chain_key_file();
        format!(
            "its key could not be noted: where {} is there remove it, and the next start notes the key",
            file.display()
        )
    };
    noted.with_context(then)
}

async fn begin_in(config: &Config, machine: &Machine, accept: bool) -> anyhow::Result<Begun> {
    let Machine { data, vault, store, .. } = machine;
    deployment_settings::compare(config, vault, store).await?;
    if let Some(key) = audit_chain::key(vault, store).await? {
        ensure!(
            !audit_chain::is_begun(store).await?,
            "the audit log has a chain already (key {}): there is nothing to begin",
            hex(&key.fingerprint())
        );
        compare(data, vault, store).await?;
        if !accept {
            demand_begun(store).await?;
        }
    }
    let chance = Chance::default();
    let alive = nodes_alive(store, config.dispatch_lease.0).await?;
    ensure!(
        alive == 0,
        "{alive} other nodes were seen within the last {:?}: stop all of them first, their lines would not be in the chain",
        config.dispatch_lease.0
    );
    if let Some(known) = data.chain_key_seen()?.filter(|_| !accept) {
        bail!(missing(Some(&known)));
    }
    let now = store.database_time().await?.unwrap_or_else(|| Clock::System.now());
    begin_now(vault, store, &chance, now, accept).await
}

async fn begin_now(
    vault: &Vault,
    store: &AnyStore,
    chance: &Chance,
    now: UnixMillis,
    accept: bool,
) -> anyhow::Result<Begun> {
    let actor = Actor::machine();
    let begun = audit_chain::begin(&Opened { vault, store, chance }, &actor, now, accept).await;
    let begun = begun.map_err(|error| match error {
        AppError::OutcomeUnknown => anyhow!(
            "it is not known whether the chain was begun, since the connection to the database was lost in the commit: run this again, which begins \
             it, or says that there is nothing to begin"
        ),
        error => error.into(),
    })?;
    if begun.is_begun {
        return Ok(begun);
    }
    let why = match begun.faults.first() {
        _ if begun.linked > 0 => {
            format!("{} lines have links of a chain whose key was taken away", begun.linked)
        }
        Some(VerifiedFault { merchant_id, no, what }) => {
            let of = merchant_id.as_deref().unwrap_or("the system");
            format!("it is broken at line {no} of {of}: {what}")
        }
        None => "it cannot be read".to_owned(),
    };
    bail!(
        "the audit log is not what an older program left, {why}; restore a backup, or begin a chain over what is there with --accept: \
         `audit verify` goes on naming what is wrong"
    )
}

/// Nodes that were seen within a lease. A node that was killed counts until its lease ends.
async fn nodes_alive(store: &AnyStore, lease: Duration) -> anyhow::Result<usize> {
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let nodes = store.nodes(lease_ms, NODES_MAX).await?;
    Ok(nodes.iter().filter(|node| node.is_alive).count())
}
