//! All versions of a sub-account's rule, for operators.

use countersign_domain::rules::{self, Newer, RuleState, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_store::Store;
use countersign_store::contract::Cursor;

use super::merchants::find_sub_account;
use crate::app::App;
use crate::app::error::AppError;

/// Where a page of versions ended: its last one, and what the one before that must know of those made after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePlace {
    /// The last version of the page.
    pub version_no: i64,
    /// When it was made.
    pub made_at: UnixMillis,
    /// When the first version starts, of it and those after it, that is not invalidated.
    pub starts_at: UnixMillis,
    /// When the newest version of all was made. Another node's clock may be ahead of ours, and states are not asked for before it.
    pub newest_at: UnixMillis,
}

/// A version and its state, and where it stands.
#[derive(Clone, Debug)]
pub struct SeenVersion {
    /// The version.
    pub version: RuleVersion,
    /// Its state now.
    pub state: RuleState,
    /// Where a page ends that ends with it.
    pub place: RulePlace,
}

/// Versions newest first, with their states now. `after`: where the page before ended.
pub async fn rule_versions(
    app: &App,
    sub_merchant_id: &str,
    after: Option<RulePlace>,
    limit: u32,
) -> Result<Vec<SeenVersion>, AppError> {
    let sub = find_sub_account(app, sub_merchant_id).await?;
    let page = Cursor { after: after.map(|place| place.version_no), limit };
    let versions = app.store.rule_versions(sub.tenant, sub.no, page).await?;
    let mut newer = after.map_or(Newer::NONE, |place| Newer::of_instants((place.made_at, place.starts_at)));
    let newest_at = after.map(|place| place.newest_at).or(versions.first().map(|version| version.created_at));
    let Some(newest_at) = newest_at else { return Ok(Vec::new()) };
    let now = app.clock.now().max(newest_at);
    let seen = versions.into_iter().filter_map(|version| {
        let state = rules::state(&version, newer, now);
        newer = newer.and(&version);
        let (made_at, starts_at) = newer.instants()?;
        let place = RulePlace { version_no: version.version_no, made_at, starts_at, newest_at };
        Some(SeenVersion { version, state, place })
    });
    Ok(seen.collect())
}
