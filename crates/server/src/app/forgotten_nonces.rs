//! Nonces that were forgotten too early: a clock that was far ahead once leaves a horizon behind which every request is too old.

use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::AnyStore;

/// A restore leaves a horizon a tolerance ahead, and what writing takes: that passes by itself.
const RESTORE_MARGIN_MS: i64 = 30_000;

/// Up to where whatever is stamped is refused for its timestamp.
pub fn horizon(store: &AnyStore) -> Option<UnixMillis> {
    match store {
        AnyStore::Sqlite(store) => Some(store.horizon()),
        AnyStore::Postgres(store) => Some(store.horizon()),
        AnyStore::Model(_) => None,
    }
}

/// Until when every signed request is refused for its timestamp, where that is longer than a restore brings about.
pub fn refused_through(store: &AnyStore, now: UnixMillis, tolerance_ms: i64) -> Option<UnixMillis> {
    let restore_ms = tolerance_ms.saturating_add(RESTORE_MARGIN_MS);
    horizon(store).filter(|horizon| horizon.0.saturating_sub(now.0) > restore_ms)
}

/// The same in words, for the log, `/readyz` and `doctor`.
pub fn trouble(store: &AnyStore, now: UnixMillis, tolerance_ms: i64) -> Option<String> {
    let through = rfc3339(refused_through(store, now, tolerance_ms)?);
    Some(format!(
        "every signed request is refused (400003) until {through}: nonces stamped up to then are forgotten, since the clock was ahead of \
         now ({}) when they were used; see \"A clock that was ahead\" in docs/RUNBOOK.md",
        rfc3339(now)
    ))
}
