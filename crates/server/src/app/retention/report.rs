//! What would be freed now, counted in many small reads: one over all that is old would run into the time-out of a statement, or hold a file's
//! log back, with all lists behind it.

use std::time::Duration;

use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::OldStretch;
use countersign_store::contract::{Asker, Cursor};

use super::kinds::{AttemptBytes, Events, Kind};
use super::{App, Lives, before};
use crate::app::error::AppError;

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

/// What of a kind has been counted.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rows: i64,
    held: i64,
    attempts: i64,
    bytes: i64,
    looked: i64,
    is_at_least: bool,
}

impl Tally {
    fn add(&mut self, [rows, held, attempts, bytes]: [i64; 4]) {
        (self.rows, self.held) = (self.rows + rows, self.held + held);
        (self.attempts, self.bytes) = (self.attempts + attempts, self.bytes + bytes);
        self.looked += rows;
    }

    /// Whether counting ends, since so much has been looked at.
    fn ends(&mut self, within: &Bounds) -> bool {
        self.is_at_least |= self.looked >= within.most;
        self.is_at_least
    }

    /// Behind which row counting goes on after a stretch, if it does.
    fn goes_on<P>(&mut self, stretch: OldStretch<P>, within: &Bounds) -> Option<P> {
        self.add([stretch.rows, stretch.held, stretch.attempts, stretch.bytes]);
        stretch.last.filter(|_| stretch.rows >= i64::from(within.stretch) && !self.ends(within))
    }
}

/// What would be freed now, by kind. Frees nothing.
pub async fn report(app: &App) -> Result<Vec<Freeable>, AppError> {
    report_within(app, &BOUNDS).await
}

async fn report_within(app: &App, within: &Bounds) -> Result<Vec<Freeable>, AppError> {
    let lives @ Lives { attempt_bytes, events, held_events } = app.policy.retention;
    let now = app.clock.now();
    let (begun_before, old) = (lives.of_bytes(now), lives.of_events(now));
    let (mut of_bytes, mut of_events) = (Tally::default(), Tally::default());
    if let Some(begun_before) = begun_before {
        count::<AttemptBytes>(app, begun_before, within, &mut of_bytes).await?;
    }
    if let Some(old) = old {
        count::<Events>(app, old, within, &mut of_events).await?;
    }
    let (made_before, held_before) = (before(now, events), before(now, held_events));
    let kind = |kind, kept_for, older_than, rows, bytes, of: Tally| {
        let is_at_least = of.is_at_least;
        Freeable { kind, kept_for, older_than, rows, bytes, is_at_least }
    };
    Ok(vec![
        kind("attempt_bytes", attempt_bytes, begun_before, of_bytes.rows, Some(of_bytes.bytes), of_bytes),
        kind("events", events, made_before, of_events.rows, Some(of_events.bytes), of_events),
        kind("held_events", held_events, held_before, of_events.held, None, of_events),
        kind("attempts", events, made_before, of_events.attempts, None, of_events),
    ])
}

/// Counts what everybody has.
async fn count<K: Kind>(app: &App, age: K::Age, within: &Bounds, all: &mut Tally) -> Result<(), AppError> {
    let mut after = None;
    loop {
        let page = Cursor { after, limit: within.together };
        let page = K::owners(&app.store, Asker::Operator, age, within.few, page).await?;
        for old in &page {
            all.looked += LOOK_COSTS;
            if old.rows < i64::from(within.few) {
                all.add([old.rows, old.held, old.attempts, old.bytes]);
            } else {
                count_of::<K>(app, old.owner, age, within, all).await?;
            }
            if all.is_at_least {
                return Ok(());
            }
        }
        let Some(last) = page.last().filter(|_| page.len() >= within.together as usize && !all.ends(within)) else {
            return Ok(());
        };
        after = Some(last.owner);
    }
}

/// Counts what one owner has, stretch by stretch.
async fn count_of<K: Kind>(
    app: &App,
    owner: K::Owner,
    age: K::Age,
    within: &Bounds,
    all: &mut Tally,
) -> Result<(), AppError> {
    let mut after = None;
    loop {
        let page = Cursor { after, limit: within.stretch };
        let stretch = K::stretch(&app.store, Asker::Operator, owner, age, page).await?;
        after = all.goes_on(stretch, within);
        if after.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{self, Deployment};

    /// Rows of bytes, events and attempts, and whether each may be more.
    async fn counted(app: &App, within: Bounds) -> ([i64; 3], [bool; 3]) {
        let report = report_within(app, &within).await.expect("reads");
        let [of_bytes, of_events, _, of_attempts] = &report[..] else { panic!("four kinds: {report:?}") };
        let all = [of_bytes, of_events, of_attempts];
        (all.map(|kind| kind.rows), all.map(|kind| kind.is_at_least))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_old_is_counted_in_small_reads_and_up_to_a_bound() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
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
        Deployment::close(&app);
    }
}
