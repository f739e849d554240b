//! Settings that belong to the data, not to the process: written by `init`, compared at every start.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail, ensure};
use countersign_domain::time::{RuleZone, UnixMillis, rfc3339};
use countersign_store::{AnyStore, Store as _, StoreError, Write};

use super::missing_deployment::{no_deployment, place};
use crate::app::master_key;
use crate::config::Config;
use crate::vault::Vault;

pub use crate::app::master_key::MASTER_KEY_ID;
pub use crate::app::settings::{INITIALISED_AT, MARKUP_UNIT, RULE_TIMEZONE};

/// The writes of `init`. Of two at once the second is refused.
pub fn of(config: &Config, vault: &Vault, now: UnixMillis) -> Vec<Write> {
    let first = Write::MoveSetting { name: INITIALISED_AT.to_owned(), from: None, to: rfc3339(now) };
    let settings = [
        (MASTER_KEY_ID, vault.key_id().to_owned()),
        (RULE_TIMEZONE, zone_name(&config.rule_timezone)),
        (MARKUP_UNIT, config.markup_unit.name().to_owned()),
    ];
    let settings = settings.into_iter().map(|(name, value)| Write::PutSetting { name: name.to_owned(), value });
    std::iter::once(first).chain(settings).collect()
}

/// What the comparisons here look at.
pub const NAMES: [&str; 4] = [INITIALISED_AT, MASTER_KEY_ID, RULE_TIMEZONE, MARKUP_UNIT];

/// Where the settings of a deployment are read.
#[derive(Debug)]
pub enum Settings<'a> {
    /// In the store that is open.
    Of(&'a AnyStore),
    /// As they were read from a database that is not open.
    Read(BTreeMap<&'static str, String>),
}

impl Settings<'_> {
    /// One of them.
    pub async fn get(&self, name: &str) -> Result<Option<String>, StoreError> {
        match self {
            Self::Of(store) => store.setting(name).await,
            Self::Read(read) => Ok(read.get(name).cloned()),
        }
    }
}

/// Refuses a master key or a rule setting other than the one that the data was made with.
pub async fn compare(config: &Config, vault: &Vault, store: &AnyStore) -> anyhow::Result<()> {
    compare_key(config, vault, &Settings::Of(store)).await?;
    demand_keys(vault, master_key::missing(vault, store).await?)?;
    compare_rules(config, &Settings::Of(store)).await
}

/// Refuses to go on without one of the master keys that something is sealed under.
pub fn demand_keys(vault: &Vault, used: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    match used.into_iter().find(|key_id| !vault.knows(key_id)) {
        None => Ok(()),
        Some(missing) => bail!(
            "secrets are sealed under the master key {missing} still, which is not here: name it as master_key_previous \
             and finish with `countersign master-key rewrap`"
        ),
    }
}

/// The same by the settings alone.
pub async fn compare_kept(config: &Config, vault: &Vault, kept: &Settings<'_>) -> anyhow::Result<()> {
    compare_key(config, vault, kept).await?;
    compare_rules(config, kept).await
}

async fn compare_rules(config: &Config, kept: &Settings<'_>) -> anyhow::Result<()> {
    let zone = zone_name(&stored(kept, RULE_TIMEZONE).await?);
    as_stored(RULE_TIMEZONE, &zone_name(&config.rule_timezone), &zone)?;
    as_stored(MARKUP_UNIT, config.markup_unit.name(), &stored(kept, MARKUP_UNIT).await?)
}

fn as_stored(name: &str, here: &str, stored: &str) -> anyhow::Result<()> {
    ensure!(
        here == stored,
        "{name} is {here:?} here, but this deployment was initialised with {stored:?}, and its fee rules were made under that: \
         set {name} = {stored:?}"
    );
    Ok(())
}

/// A zone's name as IANA writes it. Deployments were initialised under names in any case, and under CLDR's `Etc/Unknown`, which was read as UTC.
fn zone_name(name: &str) -> String {
    let is_unknown = name.eq_ignore_ascii_case("Etc/Unknown");
    let zone = RuleZone::named(if is_unknown { "UTC" } else { name });
    zone.map_or_else(|| name.to_owned(), |zone| zone.name().to_owned())
}

/// Refuses a master key other than the one that the data was made with.
pub async fn compare_key(config: &Config, vault: &Vault, kept: &Settings<'_>) -> anyhow::Result<()> {
    if kept.get(INITIALISED_AT).await?.is_none() {
        bail!(no_deployment(config));
    }
    let stored = stored(kept, MASTER_KEY_ID).await?;
    let (is, keep) = match vault.previous_id() {
        None => (format!("key id {}", vault.key_id()), "the old one"),
        Some(previous) => {
            (format!("key id {}, and {previous} of master_key_previous", vault.key_id()), "that of the wanted id")
        }
    };
    ensure!(
        vault.knows(&stored),
        "this is not the master key of the deployment in {} ({is}, wanted {stored}): bring the right master.key back; \
         where secrets are to be sealed under a new one, name {keep} as master_key_previous beside it",
        place(config)
    );
    vault.seal_with(&stored);
    Ok(())
}

async fn stored(kept: &Settings<'_>, name: &str) -> anyhow::Result<String> {
    kept.get(name)
        .await?
        .ok_or_else(|| anyhow!("the database lacks its setting {name}: it was not made by `countersign init`"))
}
