//! What a node does for itself every few seconds: it forgets what is too old, and sees whether changes can be made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;
use countersign_store::{AnyStore, CommitError, Store as _};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{HOUSEKEEPING_PERIOD, housekeeping_is_due};
use crate::app::{App, forgotten_nonces, idempotency, noted_tolerance, number_slots, trouble};
use crate::merchant::Edge;
use crate::operator::Gate;

/// Nonces are kept this much longer than a request with them could be accepted, against clocks that are set back.
const NONCE_MARGIN_MS: i64 = 5_000;
/// Between two looks for those who are not kept: their number has a bound, and so has what a flood of their names costs the store.
const LOOK_UP_PAUSE: Duration = Duration::from_millis(50);
/// How soon it is tried again to learn which applications there are.
const LEARN_AGAIN: Duration = Duration::from_secs(1);
/// A process that did nothing for so long says so.
const STAND_TOLD: Duration = Duration::from_secs(3);
/// How often the log says that every request is refused.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Until the end: forgets nonces that no request can carry any more, and old answers.
pub(super) async fn forget_what_is_old(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    let mut said = warn_if_all_are_refused(&app, None);
    let mut is_noted = false;
    while housekeeping_is_due(&mut ended).await {
        is_noted = is_noted || noted_tolerance::note(&app).await.is_ok();
        said = warn_if_all_are_refused(&app, said);
        forget_nonces(&app).await;
        if let Err(error) = number_slots::renew(&app).await {
            tracing::debug!(%error, "A slot of numbers could not be taken, or it could not be read whether that is due");
        }
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = forget_answers(&app, Instant::now()) => {}
        }
    }
}

/// Until the end: keeps meters and budgets small, and says when the process stood still. Beside the others, since a store that hangs must not let strangers fill
/// the memory.
pub(super) async fn keep_small(
    edge: Arc<Edge>,
    gate: Arc<Gate>,
    meters: PrometheusHandle,
    mut ended: watch::Receiver<bool>,
) {
    let mut began = Instant::now();
    while housekeeping_is_due(&mut ended).await {
        tell_of_stand(began.elapsed().saturating_sub(HOUSEKEEPING_PERIOD));
        began = Instant::now();
        edge.tidy();
        gate.tidy();
        meters.run_upkeep();
    }
}

/// Says that for so long nothing went on in this process.
fn tell_of_stand(stood: Duration) {
    if stood >= STAND_TOLD {
        let stood_s = stood.as_secs();
        tracing::warn!(
            stood_s,
            "This process stood still for {stood_s} s: it was stopped, or had no processor. Whoever called waited, and on a shared database other nodes may have its lanes"
        );
    }
}

async fn forget_answers(app: &App, at: Instant) {
    let Some(now) = app.settled.look(at, app.clock.now()) else { return };
    if let Err(error) = idempotency::forget_answers(app, now).await {
        app.trouble.met(&format!("old answers to idempotency keys could not be forgotten: {error}"));
    }
}

/// Until the end: learns which applications there are, and now and then looks up those who sign from an address that is over its budget.
pub(super) async fn look_up_callers(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    loop {
        let done = tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            done = app.look_up_beside() => done,
        };
        if let Err(error) = &done {
            tracing::debug!(%error, "Which applications there are could not be read");
        }
        sleep(if done.is_ok() { LOOK_UP_PAUSE } else { LEARN_AGAIN }).await;
    }
}

/// Says now and then that every request is refused. When it was said last.
fn warn_if_all_are_refused(app: &App, said: Option<Instant>) -> Option<Instant> {
    if said.is_some_and(|at| at.elapsed() < SAID_EVERY) {
        return said;
    }
    let why = forgotten_nonces::trouble(&app.store, app.clock.now(), app.policy.timestamp_tolerance_ms)?;
    tracing::error!("This node is not ready: {why}");
    Some(Instant::now())
}

/// The horizon moves no farther than to the newest nonce that is forgotten: a clock that is ahead for a while, without a request at that time,
/// must not make the requests of the time after it too old.
async fn forget_nonces(app: &App) {
    let through = UnixMillis(app.clock.now().0 - app.policy.timestamp_tolerance_ms - NONCE_MARGIN_MS);
    if let Err(error) = forget_through(app, through).await {
        app.trouble.met(&format!("old nonces could not be forgotten: {error}"));
    }
}

async fn forget_through(app: &App, through: UnixMillis) -> Result<(), CommitError> {
    let horizon = match &app.store {
        AnyStore::Sqlite(store) => store.newest_nonce_through(through).await?,
        AnyStore::Postgres(store) => store.newest_nonce_through(through).await?,
        AnyStore::Model(_) => Some(through),
    };
    if horizon.is_none() {
        // A disk that is full is found out while nobody asks for anything.
        trouble::try_a_change(app).await.map_err(|(_, error)| error)?;
    }
    // What else a shared store forgets then is forgotten in any case.
    let horizon = horizon.or(app.store.is_shared().then_some(UnixMillis(i64::MIN)));
    let Some(horizon) = horizon else { return Ok(()) };
    Ok(app.store.purge_nonces(horizon).await?)
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::{ApplicationNo, TenantNo};
    use countersign_store::contract::{Asker, ClaimKey};
    use countersign_store::{Batch, Write};

    use super::*;
    use crate::app::fixtures::{self, Deployment};
    use crate::app::idempotency::Keyed;
    use crate::app::retention;

    const WEEK_MS: i64 = 7 * 86_400_000;
    const TOLERANCE_MS: i64 = 30_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_clock_that_was_ahead_for_a_while_harms_only_where_something_was_signed_then() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let now = app.clock.now();
        let use_one = async |nonce: &str, stamped_at: UnixMillis| {
            let claim =
                ClaimKey { tenant: TenantNo(1), application: ApplicationNo(1), nonce: nonce.to_owned(), stamped_at };
            app.store.reserve(&claim).await.expect("answers");
            app.store.settle(claim).await.expect("answers")
        };
        use_one("a", now).await;
        // Nobody calls meanwhile.
        app.clock.advance_ms(WEEK_MS);
        forget_nonces(&app).await;
        app.clock.advance_ms(-WEEK_MS);
        assert_eq!(forgotten_nonces::trouble(&app.store, now, TOLERANCE_MS), None);
        let AnyStore::Sqlite(store) = &app.store else { panic!("it is in a file") };
        assert_eq!(store.horizon(), now, "what was used is forgotten, and refused for its timestamp");

        app.clock.advance_ms(WEEK_MS);
        use_one("b", app.clock.now()).await;
        app.clock.advance_ms(60_000);
        // Too new to be forgotten: it must not take the horizon along.
        use_one("c", app.clock.now()).await;
        forget_nonces(&app).await;
        app.clock.advance_ms(-WEEK_MS - 60_000);
        let told = forgotten_nonces::trouble(&app.store, now, TOLERANCE_MS).expect("every request is too old");
        assert!(told.contains("every signed request is refused") && told.contains("docs/RUNBOOK.md"), "{told}");
        assert_eq!(forgotten_nonces::refused_through(&app.store, now, TOLERANCE_MS), Some(now.plus_ms(WEEK_MS)));
        assert!(warn_if_all_are_refused(&app, None).is_some(), "the log says so");
        assert_eq!(
            forgotten_nonces::trouble(&app.store, now.plus_ms(WEEK_MS - 60_000), TOLERANCE_MS),
            None,
            "it passes soon"
        );
        let hour = forgotten_nonces::trouble(&app.store, now.plus_ms(WEEK_MS - 3_600_000), 3_600_000);
        assert_eq!(hour, None, "so it is after a restore with such a tolerance");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_clock_that_is_ahead_for_a_while_forgets_no_answer_and_frees_no_event() {
        const YEARS_MS: i64 = 1_000 * 86_400_000;
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let client_id = fixtures::application(&app, "shop", None).await;
        // The last event of an application stays.
        let event = fixtures::dead(&app, &client_id).await;
        fixtures::dead(&app, &client_id).await;
        let (scope, key, at) = ("s".to_owned(), "k".to_owned(), app.clock.now());
        let answer = Keyed { scope, key, body_digest: [1; 32], at }.answered(&app, String::new());
        app.store.commit(Batch(vec![Write::RememberAnswer(Box::new(answer))])).await.expect("is kept");
        let began = Instant::now();
        let is_kept = async |second: u64| {
            let at = began + Duration::from_secs(second);
            forget_answers(&app, at).await;
            retention::look(&app, at).await.expect("looks");
            let answer = app.store.remembered("s", "k").await.expect("reads").is_some();
            let event = app.store.event(Asker::Operator, event.event_id).await.expect("reads").is_some();
            assert_eq!(answer, event, "both or none");
            answer
        };
        assert!(is_kept(600).await);
        app.clock.advance_ms(YEARS_MS);
        assert!(is_kept(605).await && is_kept(1_200).await, "it is ahead");
        app.clock.advance_ms(-YEARS_MS);
        assert!(is_kept(1_205).await);
        app.clock.advance_ms(YEARS_MS);
        assert!(is_kept(1_210).await && !is_kept(1_810).await, "now it has stood for ten minutes");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn so_it_is_in_a_database_that_nodes_share() {
        let deployment = Deployment::on_postgres().await;
        let app = deployment.open().await;
        let AnyStore::Postgres(store) = &app.store else { panic!("it is in a database") };
        let before = store.horizon();
        forget_nonces(&app).await;
        assert_eq!(store.horizon(), before, "nothing was used");

        let stamped_at = app.clock.now().plus_ms(-90_000);
        let claim = ClaimKey { tenant: TenantNo(1), application: ApplicationNo(1), nonce: "a".to_owned(), stamped_at };
        app.store.reserve(&claim).await.expect("answers");
        app.store.settle(claim).await.expect("answers");
        forget_nonces(&app).await;
        assert_eq!(store.horizon(), stamped_at, "and no farther than what was");
        assert_eq!(forgotten_nonces::trouble(&app.store, app.clock.now(), TOLERANCE_MS), None);
        // The clock goes back by an hour.
        let told = forgotten_nonces::trouble(&app.store, stamped_at.plus_ms(-3_600_000), TOLERANCE_MS)
            .expect("every request is too old");
        assert!(told.contains("every signed request is refused"), "{told}");
    }
}
