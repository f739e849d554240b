//! All versions of a sub-account's rule, for operators.

use countersign_domain::rules::{self, Newer, RuleState, RuleVersion};
use countersign_store::Store;
use countersign_store::contract::Cursor;

use super::merchants::find_sub_account;
use crate::app::App;
use crate::app::error::AppError;

/// Versions read at once.
const CHUNK: u32 = 500;

/// Versions newest first, with their states now. `after`: the `version_no` of the last one seen.
///
/// A version's state depends on the ones made after it, so a later page reads the earlier ones again.
pub async fn rule_versions(
    app: &App,
    sub_merchant_id: &str,
    after: Option<i64>,
    limit: u32,
) -> Result<Vec<(RuleVersion, RuleState)>, AppError> {
    let sub = find_sub_account(app, sub_merchant_id).await?;
    let mut now = app.clock.now();
    let mut newer = Newer::NONE;
    let mut found = Vec::new();
    let mut seen: Option<i64> = None;
    loop {
        let chunk = app.store.rule_versions(sub.tenant, sub.no, Cursor { after: seen, limit: CHUNK }).await?;
        for version in &chunk {
            // Another node's clock may be ahead of ours.
            now = now.max(version.created_at);
            let state = rules::state(version, newer, now);
            newer = newer.and(version);
            if after.is_none_or(|after| version.version_no < after) {
                found.push((version.clone(), state));
            }
            if found.len() >= limit as usize {
                return Ok(found);
            }
        }
        match chunk.last() {
            Some(last) if chunk.len() >= CHUNK as usize => seen = Some(last.version_no),
            Some(_) | None => return Ok(found),
        }
    }
}
