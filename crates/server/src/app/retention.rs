//! What is freed by age: the bytes that went over the wire in attempts, and events that are over, from an application's first one on.
//!
//! Every node looks by itself, in small portions that others' changes go between. What one has freed the others do not find any more, so it
//! costs them one look for each tenant and application. Payment evidence is never freed: the audit log, orders and their moves, fee rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{OldRows as _, OldStretch};
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{Asker, CommitError, Cursor};
use countersign_store::{Store as _, StoreError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::App;
use super::error::AppError;
use super::settled_time::STOOD_FOR;

/// How often a node looks.
const LOOK_EVERY: Duration = Duration::from_secs(600);
const _: () = assert!(LOOK_EVERY.as_secs() >= STOOD_FOR.as_secs(), "by its first look a node knows what time to go by");
/// Between two portions, so that other writers get their turn.
const PAUSE: Duration = Duration::from_millis(20);
/// Tenants, or applications, that are asked for at once where each is counted.
const PAGE: u32 = 64;
/// Applications whose first events are looked at together.
const LOOKED_AT: u32 = 1_000;
/// Rounds of one look, each of a portion for every tenant and application that has more; the next look goes on.
const ROUNDS_MAX: u32 = 100_000;
/// So many that have more than a portion are remembered for the next round; the next look finds the others.
const LEFT_MAX: usize = 100_000;
/// How far a report looks in one read, and in all.
const BOUNDS: Bounds = Bounds { together: 50, few: 100, stretch: 5_000, most: 200_000 };
/// So many rows could be counted while one tenant or application is found to have few, or none.
const LOOK_COSTS: i64 = 2;
/// Rows of one read: a fraction of what a statement may take, and nothing that a checkpoint would wait for.
const READ_ROWS_MAX: u32 = 20_000;
const _: () = assert!(BOUNDS.together * BOUNDS.few < READ_ROWS_MAX && BOUNDS.stretch < READ_ROWS_MAX);

/// How far a report looks.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Tenants, or applications, that are asked for at once.
    together: u32,
    /// Rows of each that are counted then.
    few: u32,
    /// Rows of one of them that are counted at once where they are not few.
    stretch: u32,
    /// Rows of a kind after which its counts are "at least".
    most: i64,
}

/// How long things are kept; none: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// What went over the wire in an attempt, from the attempt on.
    pub attempt_bytes: Option<Duration>,
    /// An event that is over, with its delivery and attempts, from its making on.
    pub events: Option<Duration>,
}

/// What may be freed now, of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeable {
    /// The kind.
    pub kind: &'static str,
    /// How long it is kept; none: for ever.
    pub kept_for: Option<Duration>,
    /// What is older goes.
    pub older_than: Option<UnixMillis>,
    /// How many.
    pub rows: i64,
    /// How large they are; none: not counted.
    pub bytes: Option<i64>,
    /// Whether there may be more: counting has a bound.
    pub is_at_least: bool,
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
                    "What was kept long enough is freed: {attempt_bytes} portions of attempts' bytes, {events} of events"
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

/// Frees all that is too old at `now`, portion by portion. Whoever has more has another portion once everybody has had one.
pub async fn free(app: &App, now: UnixMillis) -> Result<Freed, StoreError> {
    let Lives { attempt_bytes, events } = app.policy.retention;
    let (mut freed, mut of_bytes, mut of_events) = (Freed::default(), Round::All, Round::All);
    for _ in 0..ROUNDS_MAX {
        if let Some(before) = before(now, attempt_bytes) {
            freed.attempt_bytes += bytes_round(app, before, &mut of_bytes).await?;
        }
        if let Some(before) = before(now, events) {
            freed.events += events_round(app, before, &mut of_events).await?;
        }
        if (attempt_bytes.is_none() || of_bytes.is_over()) && (events.is_none() || of_events.is_over()) {
            break;
        }
    }
    Ok(freed)
}

/// A portion for each tenant of the round: how many there were. What is left is the next round.
async fn bytes_round(app: &App, before: UnixMillis, round: &mut Round<TenantNo>) -> Result<u64, StoreError> {
    let (mut left, mut portions) = (Vec::new(), 0);
    let mut asked = std::mem::replace(round, Round::Of(Vec::new()));
    let mut after = None;
    loop {
        let (of, is_last) = match &mut asked {
            Round::Of(these) => (std::mem::take(these), true),
            Round::All => {
                let page = app.store.old_bytes(Asker::Server, before, 1, Cursor { after, limit: PAGE }).await?;
                after = page.last().map(|last| last.tenant);
                (page.iter().map(|old| old.tenant).collect(), page.is_empty())
            }
        };
        for tenant in of {
            portion(app, Write::ForgetBytes { tenant, begun_before: before }).await?;
            portions += 1;
            let more = app.store.old_bytes_of(Asker::Server, tenant, before, Cursor { after: None, limit: 1 }).await?;
            if more.rows > 0 && left.len() < LEFT_MAX {
                left.push(tenant);
            }
        }
        if is_last {
            *round = Round::Of(left);
            return Ok(portions);
        }
    }
}

/// The same of applications.
async fn events_round(
    app: &App,
    before: UnixMillis,
    round: &mut Round<(TenantNo, ApplicationNo)>,
) -> Result<u64, StoreError> {
    let (mut left, mut portions) = (Vec::new(), 0);
    let mut asked = std::mem::replace(round, Round::Of(Vec::new()));
    let mut after = None;
    loop {
        let (of, is_last) = match &mut asked {
            Round::Of(these) => (std::mem::take(these), true),
            Round::All => {
                let page = app.store.old_events(Asker::Server, before, 1, Cursor { after, limit: LOOKED_AT }).await?;
                after = page.last().map(|last| (last.tenant, last.application));
                let old = page.iter().filter(|old| old.events > 0);
                (old.map(|old| (old.tenant, old.application)).collect(), page.is_empty())
            }
        };
        for (tenant, application) in of {
            portion(app, Write::ForgetEvents { tenant, application, created_before: before }).await?;
            portions += 1;
            let page = Cursor { after: None, limit: 1 };
            let more = app.store.old_events_of(Asker::Server, (tenant, application), before, page).await?;
            if more.rows > 0 && left.len() < LEFT_MAX {
                left.push((tenant, application));
            }
        }
        if is_last {
            *round = Round::Of(left);
            return Ok(portions);
        }
    }
}

/// Whatever became of it, the next look finds what is left.
async fn portion(app: &App, write: Write) -> Result<(), StoreError> {
    let done = app.store.commit(Batch(vec![write])).await;
    sleep(PAUSE).await;
    match done {
        Ok(_) | Err(CommitError::Conflict(_) | CommitError::Unknown) => Ok(()),
        Err(CommitError::Store(error)) => Err(error),
    }
}

/// What of a kind has been counted.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rows: i64,
    attempts: i64,
    bytes: i64,
    looked: i64,
    is_at_least: bool,
}

impl Tally {
    fn add(&mut self, rows: i64, attempts: i64, bytes: i64) {
        (self.rows, self.attempts, self.bytes) = (self.rows + rows, self.attempts + attempts, self.bytes + bytes);
        self.looked += rows;
    }

    /// Whether counting ends, since so much has been looked at.
    fn ends(&mut self, within: &Bounds) -> bool {
        self.is_at_least |= self.looked >= within.most;
        self.is_at_least
    }

    /// Behind which row counting goes on after a stretch, if it does.
    fn goes_on<P>(&mut self, stretch: OldStretch<P>, within: &Bounds) -> Option<P> {
        self.add(stretch.rows, stretch.attempts, stretch.bytes);
        stretch.last.filter(|_| stretch.rows >= i64::from(within.stretch) && !self.ends(within))
    }
}

/// What would be freed now, by kind. Frees nothing.
pub async fn report(app: &App) -> Result<Vec<Freeable>, AppError> {
    report_within(app, &BOUNDS).await
}

/// In many small reads: one over all that is old would run into the time-out of a statement, or hold a file's log back, with all lists behind it.
async fn report_within(app: &App, within: &Bounds) -> Result<Vec<Freeable>, AppError> {
    let Lives { attempt_bytes, events } = app.policy.retention;
    let now = app.clock.now();
    let (begun_before, created_before) = (before(now, attempt_bytes), before(now, events));
    let (mut of_bytes, mut of_events) = (Tally::default(), Tally::default());
    if let Some(begun_before) = begun_before {
        count_bytes(app, begun_before, within, &mut of_bytes).await?;
    }
    if let Some(created_before) = created_before {
        count_events(app, created_before, within, &mut of_events).await?;
    }
    let kind = |kind, kept_for, older_than, rows, bytes, of: Tally| {
        let is_at_least = of.is_at_least;
        Freeable { kind, kept_for, older_than, rows, bytes, is_at_least }
    };
    Ok(vec![
        kind("attempt_bytes", attempt_bytes, begun_before, of_bytes.rows, Some(of_bytes.bytes), of_bytes),
        kind("events", events, created_before, of_events.rows, Some(of_events.bytes), of_events),
        kind("attempts", events, created_before, of_events.attempts, None, of_events),
    ])
}

async fn count_bytes(app: &App, before: UnixMillis, within: &Bounds, all: &mut Tally) -> Result<(), AppError> {
    let mut after = None;
    loop {
        let page = Cursor { after, limit: within.together };
        let page = app.store.old_bytes(Asker::Operator, before, within.few, page).await?;
        for old in &page {
            all.looked += LOOK_COSTS;
            if old.rows < i64::from(within.few) {
                all.add(old.rows, old.rows, old.bytes);
            } else {
                count_bytes_of(app, old.tenant, before, within, all).await?;
            }
            if all.is_at_least {
                return Ok(());
            }
        }
        let Some(last) = page.last().filter(|_| page.len() >= within.together as usize && !all.ends(within)) else {
            return Ok(());
        };
        after = Some(last.tenant);
    }
}

async fn count_bytes_of(
    app: &App,
    tenant: TenantNo,
    before: UnixMillis,
    within: &Bounds,
    all: &mut Tally,
) -> Result<(), AppError> {
    let mut after = None;
    loop {
        let stretch =
            app.store.old_bytes_of(Asker::Operator, tenant, before, Cursor { after, limit: within.stretch }).await?;
        after = all.goes_on(stretch, within);
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn count_events(app: &App, before: UnixMillis, within: &Bounds, all: &mut Tally) -> Result<(), AppError> {
    let mut after = None;
    loop {
        let page = Cursor { after, limit: within.together };
        let page = app.store.old_events(Asker::Operator, before, within.few, page).await?;
        for old in &page {
            all.looked += LOOK_COSTS;
            if old.events < i64::from(within.few) {
                all.add(old.events, old.attempts, old.bytes);
            } else {
                count_events_of(app, (old.tenant, old.application), before, within, all).await?;
            }
            if all.is_at_least {
                return Ok(());
            }
        }
        let Some(last) = page.last().filter(|_| page.len() >= within.together as usize && !all.ends(within)) else {
            return Ok(());
        };
        after = Some((last.tenant, last.application));
    }
}

async fn count_events_of(
    app: &App,
    of: (TenantNo, ApplicationNo),
    before: UnixMillis,
    within: &Bounds,
    all: &mut Tally,
) -> Result<(), AppError> {
    let mut after = None;
    loop {
        let stretch =
            app.store.old_events_of(Asker::Operator, of, before, Cursor { after, limit: within.stretch }).await?;
        after = all.goes_on(stretch, within);
        if after.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::run::{close_store, initialise, open_app};
    use countersign_store::attempt_log::EVENTS_FORGOTTEN_MAX;

    /// Rows of bytes, events and attempts, and whether each may be more.
    async fn counted(app: &App, within: Bounds) -> ([i64; 3], [bool; 3]) {
        let report = report_within(app, &within).await.expect("reads");
        let [of_bytes, of_events, of_attempts] = &report[..] else { panic!("three kinds: {report:?}") };
        let all = [of_bytes, of_events, of_attempts];
        (all.map(|kind| kind.rows), all.map(|kind| kind.is_at_least))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_old_is_counted_in_small_reads_and_up_to_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        initialise(&config).await.expect("a deployment");
        let app = open_app(&config, Clock::manual(UnixMillis(1_800_000_000_000)), None).await.expect("it opens");
        for (name, dead) in [("many", 8), ("few", 2), ("one", 1)] {
            let client_id = fixtures::application(&app, name, Some("https://till.example/callback")).await;
            for _ in 0..dead {
                fixtures::dead(&app, &client_id).await;
            }
        }
        app.clock.advance_ms(401 * 86_400_000);
        let whole = ([11, 8, 8], [false; 3]);
        // Of each application the last one stays.
        for (together, few, stretch) in [(9, 99, 9), (2, 2, 3), (1, 1, 1), (3, 7, 7), (1, 8, 4)] {
            assert_eq!(counted(&app, Bounds { together, few, stretch, most: 99 }).await, whole, "{few} {stretch}");
        }
        // After a stretch of the first, or a page with the first.
        assert_eq!(counted(&app, Bounds { together: 9, few: 2, stretch: 3, most: 4 }).await, ([3, 3, 3], [true; 3]));
        assert_eq!(counted(&app, Bounds { together: 1, few: 9, stretch: 9, most: 4 }).await, ([8, 7, 7], [true; 3]));
        close_store(&app.store).expect("it closes");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_later_round_visits_only_those_that_had_more_than_a_portion() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        initialise(&config).await.expect("a deployment");
        let app = open_app(&config, Clock::manual(UnixMillis(1_800_000_000_000)), None).await.expect("it opens");
        let mut many = None;
        for (name, dead) in [("many", EVENTS_FORGOTTEN_MAX + 9), ("few", 3), ("one", 1)] {
            let client_id = fixtures::application(&app, name, Some("https://till.example/callback")).await;
            fixtures::dead_many(&app, &client_id, dead).await;
            let known = app.known_application(&client_id).await.expect("reads").expect("is there");
            many.get_or_insert((known.application.tenant, known.application.no));
        }
        let (before, mut round) = (UnixMillis(1_900_000_000_000), Round::All);
        assert_eq!(
            events_round(&app, before, &mut round).await.expect("frees"),
            2,
            "the last one of an application stays"
        );
        assert_eq!(round, Round::Of(vec![many.expect("was made")]));
        assert_eq!(events_round(&app, before, &mut round).await.expect("frees"), 1);
        assert!(round.is_over());
        close_store(&app.store).expect("it closes");
    }
}
