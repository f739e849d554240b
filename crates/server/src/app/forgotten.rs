//! Nonces that were forgotten too early: a clock that was far ahead once leaves a horizon behind which every request is too old.

use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::AnyStore;

/// A restore leaves a horizon about a tolerance ahead, and that passes by itself.
const AHEAD_MS_MIN: i64 = 60_000;

/// Until when every signed request is refused for its timestamp, where that is no matter of seconds.
pub fn refused_through(store: &AnyStore, now: UnixMillis) -> Option<UnixMillis> {
    let horizon = match store {
        AnyStore::Sqlite(store) => store.horizon(),
        AnyStore::Postgres(store) => store.horizon(),
        AnyStore::Model(_) => return None,
    };
    (horizon.0.saturating_sub(now.0) > AHEAD_MS_MIN).then_some(horizon)
}

/// The same in words, for the log, `/readyz` and `doctor`.
pub fn trouble(store: &AnyStore, now: UnixMillis) -> Option<String> {
    let through = rfc3339(refused_through(store, now)?);
    Some(format!(
        "every signed request is refused (400003) until {through}: nonces stamped up to then are forgotten, since the clock was ahead of \
         now ({}) when they were used; see \"A clock that was ahead\" in docs/OPERATING.md",
        rfc3339(now)
    ))
}
