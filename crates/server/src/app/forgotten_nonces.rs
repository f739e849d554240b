//! Nonces that nothing can be told of: a clock that was far ahead once leaves a horizon behind which every request is too old and, where the
//! machine crashed after it, a time up to which no request can be told from a replay.

use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::AnyStore;

use super::App;

/// A restore leaves a horizon a tolerance ahead, and what writing takes: that passes by itself. Where the deployment had a wider one, it is told.
const RESTORE_MARGIN_MS: i64 = 30_000;
/// After any crash of the machine nothing can be told from a replay that is stamped by some seconds after the latest timestamp that was accepted, which
/// may be a tolerance ahead: that passes by itself.
const CRASH_MARGIN_MS: i64 = 5_000;

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

/// Until when every signed request is answered 503 since a crash, where that is longer than any crash brings about.
pub fn unknowable_through(store: &AnyStore, now: UnixMillis, tolerance_ms: i64) -> Option<UnixMillis> {
    let through = match store {
        AnyStore::Sqlite(store) => Some(store.unknowable_through()),
        AnyStore::Postgres(_) | AnyStore::Model(_) => None,
    };
    let crash_ms = tolerance_ms.saturating_add(CRASH_MARGIN_MS);
    through.filter(|through| through.0.saturating_sub(now.0) > crash_ms)
}

/// Until when every signed request is refused, for the one reason or the other.
pub fn all_refused_through(app: &App, now: UnixMillis) -> Option<UnixMillis> {
    let forgotten = refused_through(&app.store, now, app.policy.timestamp_tolerance_ms);
    forgotten.max(unknowable_through(&app.store, now, app.policy.timestamp_tolerance_ms))
}

/// Why every signed request is refused, in words, for the log, `/readyz` and `doctor`; none: they are not.
pub fn trouble(store: &AnyStore, now: UnixMillis, tolerance_ms: i64) -> Option<String> {
    let why = match (refused_through(store, now, tolerance_ms), unknowable_through(store, now, tolerance_ms)) {
        (Some(through), _) => format!(
            "every signed request is refused (400003) until {}: nonces stamped up to then are not known, since the clock was ahead of now ({}) \
             when they were used, or since a restore goes by the tolerance before it",
            rfc3339(through),
            rfc3339(now)
        ),
        (None, Some(through)) => format!(
            "every signed request is answered 503 until {}: after a crash of the machine, or with a damaged nonce journal, nobody knows which \
             nonces stamped up to then are used, and some were, since the clock was ahead of now ({})",
            rfc3339(through),
            rfc3339(now)
        ),
        (None, None) => return None,
    };
    Some(format!("{why}; see \"A clock that was ahead\" in docs/RUNBOOK.md"))
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::{ApplicationNo, TenantNo};
    use countersign_store::Store as _;
    use countersign_store::contract::{ClaimKey, Claimed};
    use countersign_store::testing::Tampering;

    use super::*;
    use crate::app::fixtures::Deployment;

    const WEEK_MS: i64 = 7 * 86_400_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_crash_after_the_clock_was_ahead_is_told_until_that_time_has_come() {
        let now = UnixMillis(1_767_225_600_000);
        let deployment = Deployment::on_sqlite().await.at(now);
        let stamped_at = now.plus_ms(WEEK_MS);
        let claim = ClaimKey { tenant: TenantNo(1), application: ApplicationNo(1), nonce: "a".to_owned(), stamped_at };
        let app = deployment.open().await;
        assert_eq!(app.store.settle(claim).await.expect("answers"), Claimed::Fresh);
        assert_eq!(all_refused_through(&app, now), None, "nothing has crashed");
        drop(app);
        Tampering::Crash(UnixMillis(0)).of_file(&deployment.file());

        let app = deployment.open().await;
        let through = all_refused_through(&app, now).expect("every request is refused");
        assert!(through >= stamped_at, "{}", through.0);
        let told = trouble(&app.store, now, 30_000).expect("is told");
        for part in ["answered 503 until", &rfc3339(through), "A clock that was ahead"] {
            assert!(told.contains(part), "{told}");
        }
        // A caller whose clock is a tolerance ahead is none of ours.
        let soon = through.plus_ms(-30_000 - CRASH_MARGIN_MS);
        assert_eq!(trouble(&app.store, soon, 30_000), None, "it passes soon, as after any crash");
        assert!(trouble(&app.store, soon.plus_ms(-1), 30_000).is_some());
    }
}
