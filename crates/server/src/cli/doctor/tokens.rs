//! Operator tokens that are in use and about to end.

use countersign_domain::time::UnixMillis;
use countersign_store::AnyStore;

use super::{Findings, Verdict};
use crate::app::token_ends;

/// A line for each that people are to be told of. No failure: a server starts with it, and serves whoever has another one.
pub(super) async fn examine(store: &AnyStore, now: UnixMillis, findings: &mut Findings) {
    match token_ends::in_use(store, now, |row| row.last_used_at).await {
        Ok(seen) => {
            if let Some(cut_off) = seen.cut_off() {
                findings.note(Verdict::Warn, "tokens", format!("not all operator tokens were looked at: {cut_off}"));
            }
            for ending in seen.soon(now) {
                findings.note(Verdict::Warn, "tokens", format!("the operator token {}", ending.told(now)));
            }
        }
        Err(error) => findings.note(Verdict::Fail, "tokens", error.to_string()),
    }
}
