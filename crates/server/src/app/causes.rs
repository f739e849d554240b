//! What dead events died of: the outcome of the last attempt at each, counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::{ApplicationNo, SortedId, TenantNo, time_ordered};
use countersign_domain::time::UnixMillis;
use countersign_store::backlog::{Backlogs as _, DeadRow};
use countersign_store::contract::Cursor;
use countersign_store::redelivery::DiedOf;

use super::App;
use super::error::AppError;
use super::identity::find_application;

/// Dead events that are looked at in one read.
const LOOKED_AT_ONCE: u32 = 2_000;
/// Dead events that are looked at before counts are "at least".
pub(super) const LOOKED_MAX: usize = 100_000;

/// Which dead events are meant.
#[derive(Clone, Debug, Default)]
pub struct Which {
    /// Only of this application.
    pub client_id: Option<String>,
    /// Only of this business id.
    pub biz_id: Option<String>,
    /// Only those that were written at this instant or later.
    pub from: Option<UnixMillis>,
    /// Only events that were written before this instant.
    pub to: Option<UnixMillis>,
    /// Only events that died of this.
    pub died_of: DiedOf,
}

impl Which {
    fn has(&self, row: &DeadRow) -> bool {
        self.biz_id.as_ref().is_none_or(|biz_id| row.biz_id == *biz_id)
            && self.from.is_none_or(|from| row.created_at >= from)
            && self.to.is_none_or(|to| row.created_at < to)
            && self.died_of.is(row.outcome, row.http_status)
    }

    /// Whether no event with a smaller number is meant. A number may be far ahead of its event's instant, and stays so until a restart where a clock
    /// was ahead; it is never behind it.
    fn ends_at(&self, row: &DeadRow) -> bool {
        self.from.is_some_and(|from| row.no.0 < time_ordered(from, 0))
    }
}

/// Dead events of one application that died of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Whose.
    pub client_id: String,
    /// What came of the last attempt.
    pub outcome: Outcome,
    /// The status of its answer, where one came.
    pub http_status: Option<u16>,
    /// What went wrong at the newest of them, in words.
    pub detail: String,
    /// How many.
    pub count: i64,
    /// When the oldest of them was written.
    pub oldest_at: UnixMillis,
    /// When the newest of them was written.
    pub newest_at: UnixMillis,
    /// The newest of them.
    pub example: SortedId,
}

/// Causes, that of the most events first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Each with its events.
    pub items: Vec<Cause>,
    /// Whether there may be more of each, or more of them: the newest 100,000 dead events are looked at.
    pub is_at_least: bool,
}

/// Counts dead events by what they died of.
pub async fn of_dead(app: &App, which: &Which) -> Result<Causes, AppError> {
    let mut tally = Tally::default();
    let is_at_least = each_dead(app, which, |row| tally.add(row)).await?;
    Ok(Causes { items: tally.finish(), is_at_least })
}

/// Shows dead events, newest first. Whether there may be more: the newest 100,000 are looked at.
async fn each_dead(app: &App, which: &Which, show: impl FnMut(DeadRow)) -> Result<bool, AppError> {
    let of = match &which.client_id {
        None => None,
        Some(client_id) => {
            let row = find_application(app, client_id).await?.application;
            Some((row.tenant, row.no))
        }
    };
    Ok(each_dead_of(app, of, which, show).await?.is_at_least)
}

/// How far a look at dead events went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// How many were looked at.
    pub(super) rows: usize,
    /// Whether there may be more.
    pub(super) is_at_least: bool,
}

/// As [`each_dead`], of an application or of all.
pub(super) async fn each_dead_of(
    app: &App,
    of: Option<(TenantNo, ApplicationNo)>,
    which: &Which,
    mut show: impl FnMut(DeadRow),
) -> Result<Looked, AppError> {
    let (mut rows, mut after) = (0, None);
    loop {
        let page = app.store.dead(of, Cursor { after, limit: LOOKED_AT_ONCE }).await?;
        rows += page.len();
        let Some(last) = page.last() else { return Ok(Looked { rows, is_at_least: false }) };
        after = Some(last.no.0);
        let ends = page.len() < LOOKED_AT_ONCE as usize || which.ends_at(last);
        page.into_iter().filter(|row| which.has(row)).for_each(&mut show);
        if ends || rows >= LOOKED_MAX {
            return Ok(Looked { rows, is_at_least: !ends });
        }
    }
}

#[derive(Debug, Default)]
struct Tally(HashMap<(String, &'static str, Option<u16>), Cause>);

impl Tally {
    /// Rows come newest first.
    fn add(&mut self, row: DeadRow) {
        match self.0.entry((row.client_id.clone(), row.outcome.name(), row.http_status)) {
            Entry::Occupied(mut entry) => {
                let cause = entry.get_mut();
                cause.count += 1;
                cause.oldest_at = cause.oldest_at.min(row.created_at);
                cause.newest_at = cause.newest_at.max(row.created_at);
            }
            Entry::Vacant(entry) => {
                entry.insert(Cause {
                    client_id: row.client_id,
                    outcome: row.outcome,
                    http_status: row.http_status,
                    detail: row.detail,
                    count: 1,
                    oldest_at: row.created_at,
                    newest_at: row.created_at,
                    example: row.event_id,
                });
            }
        }
    }

    fn finish(self) -> Vec<Cause> {
        let mut all: Vec<Cause> = self.0.into_values().collect();
        all.sort_by(|a, b| {
            let place = |cause: &Cause| (std::cmp::Reverse((cause.count, cause.newest_at)), cause.example);
            place(a).cmp(&place(b))
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{self, Deployment};

    const NOON: UnixMillis = UnixMillis(1_800_000_000_000);
    const HOUR_MS: i64 = 3_600_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_event_is_passed_over_because_a_clock_was_ahead_and_a_look_ends_where_all_are_older() {
        let deployment = Deployment::on_sqlite().await.at(NOON.plus_ms(24 * HOUR_MS));
        let app = deployment.open().await;
        let client_id = fixtures::application(&app, "m", Some("https://till.example/callback")).await;
        fixtures::dead(&app, &client_id).await;
        // The clock is set right: numbers stay ahead, of a whole page.
        deployment.clock.advance_ms(-24 * HOUR_MS);
        fixtures::dead_many(&app, &client_id, LOOKED_AT_ONCE as usize).await;
        Deployment::close(&app);
        deployment.clock.advance_ms(HOUR_MS);
        let app = deployment.open().await;
        fixtures::dead(&app, &client_id).await;
        let found = async |from_ms| {
            let which = Which { from: Some(NOON.plus_ms(from_ms)), ..Which::default() };
            let mut count = 0;
            let looked = each_dead_of(&app, None, &which, |_| count += 1).await.expect("reads");
            (count, looked.rows, looked.is_at_least)
        };
        let page = LOOKED_AT_ONCE as usize;
        assert_eq!(found(HOUR_MS).await, (2, page + 2, false), "that of a clock that was ahead, and the newest");
        assert_eq!(found(0).await, (page + 2, page + 2, false));
        assert_eq!(found(25 * HOUR_MS).await, (0, page, false), "none of the rest can be as young");
        Deployment::close(&app);
    }
}
