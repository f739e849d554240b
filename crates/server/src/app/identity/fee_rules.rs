//! All versions of a sub-account's rule, for operators.

use countersign_domain::ids::MerchantNo;
use countersign_domain::rules::{self, Newer, RuleState, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_protocol::sentence::of_field;
use countersign_store::Store;
use countersign_store::contract::Cursor;

use super::merchants::find_sub_account;
use crate::app::App;
use crate::app::error::AppError;

/// Of a cursor.
const NOT_ITS_OWN: &str = "must be `next` of a page of the same sub_merchant_id";

/// Where a page of versions ended: the page's last version, and what the version before it must know of the versions made after it. All pages of a
/// walk are judged at one instant, so a state may rest on a version that has been invalidated since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePlace {
    /// Whose versions.
    pub of: MerchantNo,
    /// The last version of the page.
    pub version_no: i64,
    /// When it was made.
    pub made_at: UnixMillis,
    /// The earliest start of this version and the versions made after it, without those that are invalidated.
    pub starts_at: UnixMillis,
    /// When the walk began.
    pub as_of: UnixMillis,
}

/// A version and its state, and where it stands.
#[derive(Clone, Debug)]
pub struct SeenVersion {
    /// The version.
    pub version: RuleVersion,
    /// Its state when the walk began.
    pub state: RuleState,
    /// Where a page ends that ends with it.
    pub place: RulePlace,
}

/// Versions newest first, with their states when the walk over them began. `after`: where the page before ended.
pub async fn rule_versions(
    app: &App,
    sub_merchant_id: &str,
    after: Option<RulePlace>,
    limit: u32,
) -> Result<Vec<SeenVersion>, AppError> {
    let sub = find_sub_account(app, sub_merchant_id).await?;
    if after.is_some_and(|place| place.of != sub.no) {
        return Err(AppError::InvalidParameter(of_field("after", NOT_ITS_OWN)));
    }
    let page = Cursor { after: after.map(|place| place.version_no), limit };
    let versions = app.store.rule_versions(sub.tenant, sub.no, page).await?;
    let mut newer = after.map_or(Newer::NONE, |place| Newer::of_instants((place.made_at, place.starts_at)));
    // Another node's clock may be ahead of ours.
    let newest_at = versions.first().map(|version| version.created_at);
    let as_of = after.map_or_else(|| app.clock.now().max(newest_at.unwrap_or(UnixMillis(0))), |place| place.as_of);
    let seen = versions.into_iter().filter_map(|version| {
        let state = rules::state(&version, newer, as_of);
        newer = newer.and(&version);
        let (made_at, starts_at) = newer.instants()?;
        let place = RulePlace { of: sub.no, version_no: version.version_no, made_at, starts_at, as_of };
        Some(SeenVersion { version, state, place })
    });
    Ok(seen.collect())
}
