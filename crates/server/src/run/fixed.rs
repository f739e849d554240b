//! Settings that belong to the data, not to the process: written by `init`, compared at every start.

use anyhow::{anyhow, bail, ensure};
use countersign_domain::time::{RuleZone, UnixMillis, rfc3339};
use countersign_store::{AnyStore, Store as _, Write};

use super::absent::{no_deployment, place};
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

/// Refuses a master key or a rule setting other than the one that the data was made with.
pub async fn compare(config: &Config, vault: &Vault, store: &AnyStore) -> anyhow::Result<()> {
    compare_key(config, vault, store).await?;
    if let Some(missing) = master_key::missing(vault, store).await? {
        bail!(
            "secrets are sealed under the master key {missing} still, which is not here: name it as master_key_previous \
             and finish with `countersign master-key rewrap`"
        );
    }
    let zone = zone_name(&stored(store, RULE_TIMEZONE).await?);
    as_stored(RULE_TIMEZONE, &zone_name(&config.rule_timezone), &zone)?;
    as_stored(MARKUP_UNIT, config.markup_unit.name(), &stored(store, MARKUP_UNIT).await?)
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
pub async fn compare_key(config: &Config, vault: &Vault, store: &AnyStore) -> anyhow::Result<()> {
    if store.setting(INITIALISED_AT).await?.is_none() {
        bail!(no_deployment(config));
    }
    let stored = stored(store, MASTER_KEY_ID).await?;
    ensure!(
        vault.knows(&stored),
        "this is not the master key of the deployment in {} (key id {}, wanted {stored}): bring the right master.key back; \
         where secrets are to be sealed under a new one, name the old one as master_key_previous beside it",
        place(config),
        vault.key_id()
    );
    vault.seal_with(&stored);
    Ok(())
}

async fn stored(store: &AnyStore, name: &str) -> anyhow::Result<String> {
    store
        .setting(name)
        .await?
        .ok_or_else(|| anyhow!("the database lacks its setting {name}: it was not made by `countersign init`"))
}
