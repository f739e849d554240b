//! What is freed by age: the bytes that went over the wire in attempts, and events that are over or held, from an application's first one on.
//!
//! Every node looks by itself, in small portions that others' changes go between. What one has freed the others do not find any more, so it
//! costs them one look for each tenant and application. Payment evidence is never freed: the audit log, orders and their moves, fee rules.

mod kinds;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{BYTES_FORGOTTEN_MAX, EVENTS_FORGOTTEN_MAX, Forgotten, TooOld};
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
    /// An event that is held, from its making on, or from the last attempt at it; for ever where events are, and never for a shorter time.
    pub held_events: Option<Duration>,
}

impl Lives {
    /// Which bytes of attempts are too old; none: none ever is.
    fn of_bytes(&self, now: UnixMillis) -> Option<UnixMillis> {
        before(now, self.attempt_bytes)
    }

    /// Which events are too old; none: none ever is.
    fn of_events(&self, now: UnixMillis) -> Option<TooOld> {
        let made_before = before(now, self.events)?;
        let held_before = before(now, self.held_events).unwrap_or(UnixMillis(i64::MIN));
        Some(TooOld { made_before, held_before })
    }
}

/// What was freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Portions of bytes of attempts.
    pub attempt_bytes: u64,
    /// Portions of events.
    pub events: u64,
    /// Events among these that were held.
    pub held: u64,
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
            Ok(Freed { attempt_bytes, events, held }) => {
                tracing::info!(
                    attempt_bytes,
                    events,
                    held,
                    "What was kept long enough is freed: {attempt_bytes} portions of up to {BYTES_FORGOTTEN_MAX} attempts' bytes, {events} of up to {EVENTS_FORGOTTEN_MAX} events, {held} events of these held till now"
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
    let lives = app.policy.retention;
    let (bytes, events) = (lives.of_bytes(now), lives.of_events(now));
    let (mut freed, mut of_bytes, mut of_events) = (Freed::default(), Round::All, Round::All);
    let mut failed = Failed::default();
    for _ in 0..ROUNDS_MAX {
        if let Some(before) = bytes {
            freed.attempt_bytes += round::<AttemptBytes>(app, before, &mut of_bytes, &mut failed).await.portions;
        }
        if let Some(old) = events {
            let Portions { portions, held } = round::<Events>(app, old, &mut of_events, &mut failed).await;
            (freed.events, freed.held) = (freed.events + portions, freed.held + held);
        }
        if (bytes.is_none() || of_bytes.is_over()) && (events.is_none() || of_events.is_over()) {
            break;
        }
    }
    failed.first.map_or(Ok(freed), Err)
}

/// What a round freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Portions {
    portions: u64,
    /// Events among them that were held.
    held: u64,
}

/// A portion for each owner of the round. What is left is the next round.
async fn round<K: Kind>(app: &App, age: K::Age, next: &mut Round<K::Owner>, failed: &mut Failed) -> Portions {
    let (mut left, mut freed) = (Vec::new(), Portions::default());
    let mut asked = std::mem::replace(next, Round::Of(Vec::new()));
    let mut after = None;
    failed.in_a_row = 0;
    loop {
        let (of, is_last) = match &mut asked {
            Round::Of(these) => (std::mem::take(these), true),
            Round::All => {
                let page = Cursor { after, limit: K::LOOKED_AT };
                // Without a page nobody knows who comes behind it.
                let page = failed.note(K::owners(&app.store, Asker::Server, age, 1, page).await).unwrap_or_default();
                after = page.last().map(|last| last.owner);
                (page.iter().filter(|old| old.rows > 0).map(|old| old.owner).collect(), page.is_empty())
            }
        };
        for owner in of {
            let has_more = visit::<K>(app, owner, age, &mut freed).await;
            if failed.note(has_more) == Some(true) && left.len() < LEFT_MAX {
                left.push(owner);
            }
            if failed.in_a_row >= FAILED_IN_A_ROW_MAX {
                return freed;
            }
        }
        if is_last {
            *next = Round::Of(left);
            return freed;
        }
    }
}

/// A portion for one owner: whether there may be more.
async fn visit<K: Kind>(app: &App, owner: K::Owner, age: K::Age, freed: &mut Portions) -> Result<bool, StoreError> {
    let limit = u32::try_from(K::PORTION).unwrap_or(u32::MAX);
    let found = K::stretch(&app.store, Asker::Server, owner, age, Cursor { after: None, limit }).await?;
    if found.rows == 0 {
        return Ok(false);
    }
    let Some(gone) = portion(app, K::forget(owner, age)).await? else { return Ok(false) };
    if K::IS_COUNTED && gone.events == 0 {
        // Another node was first, or somebody changes one of them.
        return Ok(false);
    }
    freed.portions += 1;
    if gone.held > 0 {
        freed.held += u64::try_from(gone.held).unwrap_or(u64::MAX);
        let client_id = K::name(&app.store, owner).await.ok().flatten();
        let (held, client_id) = (gone.held, client_id.as_deref().unwrap_or("an application that could not be read"));
        tracing::info!(
            client_id,
            held,
            "{held} events of {client_id} that were held are older than held events are kept, and are freed: no attempt that is recorded has delivered them"
        );
    }
    Ok(found.rows >= i64::from(limit))
}

/// Which events went with what was freed; none: somebody else changed what was to be freed. Whatever became of it, the next look finds what is left.
async fn portion(app: &App, write: Write) -> Result<Option<Forgotten>, StoreError> {
    let done = app.store.commit(Batch(vec![write])).await;
    sleep(PAUSE).await;
    match done {
        Ok(done) => Ok(Some(done.events_forgotten)),
        Err(CommitError::Conflict(_)) => Ok(None),
        Err(CommitError::Unknown) => Err(StoreError::Unavailable("whether it was done is not known".to_owned())),
        Err(CommitError::Store(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{self, Deployment};

    #[test]
    fn what_is_held_has_an_age_of_its_own_or_none() {
        let days = |days: u64| Some(Duration::from_secs(86_400 * days));
        let of_events = |events, held_events| {
            let old = Lives { attempt_bytes: None, events, held_events }.of_events(UnixMillis(0))?;
            Some([old.made_before.0, old.held_before.0])
        };
        assert_eq!(of_events(days(1), days(3)), Some([-86_400_000, -3 * 86_400_000]));
        assert_eq!(of_events(days(1), None), Some([-86_400_000, i64::MIN]));
        assert_eq!(of_events(None, None), None);
    }

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
        let before = app.clock.now().plus_ms(86_400_000);
        let old = TooOld { made_before: before, held_before: before };
        let (mut next, mut failed) = (Round::All, Failed::default());
        assert_eq!(
            round::<Events>(&app, old, &mut next, &mut failed).await.portions,
            2,
            "the last one of an application stays"
        );
        assert_eq!(next, Round::Of(vec![many.expect("was made")]));
        assert_eq!(round::<Events>(&app, old, &mut next, &mut failed).await.portions, 1);
        assert!(next.is_over() && failed.first.is_none());
        Deployment::close(&app);
    }
}
