//! What is freed by age: the bytes that went over the wire in attempts, and events that are over, from an application's first one on.
//!
//! Every node looks by itself, in small portions that others' changes go between. What one has freed the others do not find any more, so it
//! costs them one look for each tenant and application. Payment evidence is never freed: the audit log, orders and their moves, fee rules.

mod kinds;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{BYTES_FORGOTTEN_MAX, EVENTS_FORGOTTEN_MAX};
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{Asker, CommitError, Cursor};
use countersign_store::{Store as _, StoreError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use self::kinds::{AttemptBytes, Events, Kind};
pub use self::report::{Freeable, report};
use super::App;
use super::settled_time::STOOD_FOR;

/// How often a node looks.
const LOOK_EVERY: Duration = Duration::from_secs(600);
const _: () = assert!(LOOK_EVERY.as_secs() >= STOOD_FOR.as_secs(), "by its first look a node knows what time to go by");
/// Between two portions, so that other writers get their turn.
const PAUSE: Duration = Duration::from_millis(20);
/// Rounds of one look, each of a portion for every tenant and application that has more; the next look goes on.
const ROUNDS_MAX: u32 = 100_000;
/// So many that have more than a portion are remembered for the next round; the next look finds the others.
const LEFT_MAX: usize = 100_000;

/// So many owners in a row for whom the store did not answer: it is not they, and what is left of the round waits for the next look.
const FAILED_IN_A_ROW_MAX: u32 = 32;

/// How long things are kept; none: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// What went over the wire in an attempt, from the attempt on.
    pub attempt_bytes: Option<Duration>,
    /// An event that is over, with its delivery and attempts, from its making on.
    pub events: Option<Duration>,
}

/// Portions that were freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Of bytes of attempts.
    pub attempt_bytes: u64,
    /// Of events.
    pub events: u64,
}

fn before(now: UnixMillis, life: Option<Duration>) -> Option<UnixMillis> {
    let life = i64::try_from(life?.as_millis()).unwrap_or(i64::MAX);
    Some(UnixMillis(now.0.saturating_sub(life)))
}

/// Until the end: frees what is too old.
pub async fn keep(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    while timeout(LOOK_EVERY, ended.wait_for(|ended| *ended)).await.is_err() {
        let freed = tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            freed = look(&app, Instant::now()) => freed,
        };
        match freed {
            Ok(freed) if freed == Freed::default() => {}
            Ok(Freed { attempt_bytes, events }) => {
                tracing::info!(
                    attempt_bytes,
                    events,
                    "What was kept long enough is freed: {attempt_bytes} portions of up to {BYTES_FORGOTTEN_MAX} attempts' bytes, {events} of up to {EVENTS_FORGOTTEN_MAX} events"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "What is too old could not be freed: {error}; this is tried again");
            }
        }
    }
}

/// One look: frees all that is too old by a time that the clock has kept to for some minutes.
pub async fn look(app: &App, at: Instant) -> Result<Freed, StoreError> {
    match app.settled.look(at, app.clock.now()) {
        Some(now) => free(app, now).await,
        None => Ok(Freed::default()),
    }
}

/// Whom a round visits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Round<P> {
    /// All: the first round.
    All,
    /// Those that had more than a portion in the round before.
    Of(Vec<P>),
}

impl<P> Round<P> {
    const fn is_over(&self) -> bool {
        matches!(self, Self::Of(left) if left.is_empty())
    }
}

/// What could not be freed: the first error, for whoever is told at the end. An owner that fails does not keep the owners behind it from being freed,
/// nor does one kind keep the other.
#[derive(Debug, Default)]
struct Failed {
    first: Option<StoreError>,
    in_a_row: u32,
}

impl Failed {
    /// What came of it, if anything did.
    fn note<T>(&mut self, done: Result<T, StoreError>) -> Option<T> {
        match done {
            Ok(done) => {
                self.in_a_row = 0;
                Some(done)
            }
            Err(error) => {
                match error {
                    StoreError::Unavailable(_) => self.in_a_row += 1,
                    StoreError::Corrupt { .. } | StoreError::Unfit(_) => self.in_a_row = 0,
                }
                self.first.get_or_insert(error);
                None
            }
        }
    }
}

/// Frees all that is too old at `now`, portion by portion. Whoever has more has another portion once everybody has had one; of whom nothing could be freed has
/// none before the next look.
pub async fn free(app: &App, now: UnixMillis) -> Result<Freed, StoreError> {
    let Lives { attempt_bytes, events } = app.policy.retention;
    let (mut freed, mut of_bytes, mut of_events) = (Freed::default(), Round::All, Round::All);
    let mut failed = Failed::default();
    for _ in 0..ROUNDS_MAX {
        if let Some(before) = before(now, attempt_bytes) {
            freed.attempt_bytes += round::<AttemptBytes>(app, before, &mut of_bytes, &mut failed).await;
        }
        if let Some(before) = before(now, events) {
            freed.events += round::<Events>(app, before, &mut of_events, &mut failed).await;
        }
        if (attempt_bytes.is_none() || of_bytes.is_over()) && (events.is_none() || of_events.is_over()) {
            break;
        }
    }
    failed.first.map_or(Ok(freed), Err)
}

/// A portion for each owner of the round: how many there were. What is left is the next round.
async fn round<K: Kind>(app: &App, before: UnixMillis, next: &mut Round<K::Owner>, failed: &mut Failed) -> u64 {
    let (mut left, mut portions) = (Vec::new(), 0);
    let mut asked = std::mem::replace(next, Round::Of(Vec::new()));
    let mut after = None;
    failed.in_a_row = 0;
    loop {
        let (of, is_last) = match &mut asked {
            Round::Of(these) => (std::mem::take(these), true),
            Round::All => {
                let page = Cursor { after, limit: K::LOOKED_AT };
                // Without a page nobody knows who comes behind it.
                let page = failed.note(K::owners(&app.store, Asker::Server, before, 1, page).await).unwrap_or_default();
                after = page.last().map(|last| last.owner);
                (page.iter().filter(|old| old.rows > 0).map(|old| old.owner).collect(), page.is_empty())
            }
        };
        for owner in of {
            let has_more = visit::<K>(app, owner, before, &mut portions).await;
            if failed.note(has_more) == Some(true) && left.len() < LEFT_MAX {
                left.push(owner);
            }
            if failed.in_a_row >= FAILED_IN_A_ROW_MAX {
                return portions;
            }
        }
        if is_last {
            *next = Round::Of(left);
            return portions;
        }
    }
}

/// A portion for one owner: whether there is more.
async fn visit<K: Kind>(
    app: &App,
    owner: K::Owner,
    before: UnixMillis,
    portions: &mut u64,
) -> Result<bool, StoreError> {
    *portions += u64::from(portion(app, K::forget(owner, before)).await?);
    let more = K::stretch(&app.store, Asker::Server, owner, before, Cursor { after: None, limit: 1 }).await?;
    Ok(more.rows > 0)
}

/// Whether it was freed. Whatever became of it, the next look finds what is left.
async fn portion(app: &App, write: Write) -> Result<bool, StoreError> {
    let done = app.store.commit(Batch(vec![write])).await;
    sleep(PAUSE).await;
    match done {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict(_)) => Ok(false),
        Err(CommitError::Unknown) => Err(StoreError::Unavailable("whether it was done is not known".to_owned())),
        Err(CommitError::Store(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{self, Deployment};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_later_round_visits_only_those_that_had_more_than_a_portion() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let mut many = None;
        for (name, dead) in [("many", EVENTS_FORGOTTEN_MAX + 9), ("few", 3), ("one", 1)] {
            let client_id = fixtures::application(&app, name, Some("https://till.example/callback")).await;
            fixtures::dead_many(&app, &client_id, dead).await;
            let known = app.known_application(&client_id).await.expect("reads").expect("is there");
            many.get_or_insert((known.application.tenant, known.application.no));
        }
        let (before, mut next, mut failed) = (app.clock.now().plus_ms(86_400_000), Round::All, Failed::default());
        assert_eq!(
            round::<Events>(&app, before, &mut next, &mut failed).await,
            2,
            "the last one of an application stays"
        );
        assert_eq!(next, Round::Of(vec![many.expect("was made")]));
        assert_eq!(round::<Events>(&app, before, &mut next, &mut failed).await, 1);
        assert!(next.is_over() && failed.first.is_none());
        Deployment::close(&app);
    }
}
