//! Many events sent again by a filter, of one application or of all: counted, begun, watched, stopped. The dispatcher does the work, in portions.

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, SortedId, prefix};
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::Store as _;
use countersign_store::batch::{Batch, Conflict, Key, Write};
use countersign_store::contract::{ApplicationRow, ApplicationView, CommitError};
use countersign_store::redelivery::{
    Counted, DiedOf, Redeliveries, RedeliveryRow, RedeliveryState, RedeliveryWrite, Sought, Span, Walked,
};
use serde_json::json;

use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::identity::find_application;
use super::{Actor, App, Deed, delivery};

pub mod of_all;
pub mod of_one;

/// Events that are looked at in one read.
const LOOKED_AT_ONCE: u32 = 5_000;
/// Events that are looked at before a count is "at least".
const LOOKED_MAX: i64 = 1_000_000;

/// Which events of an application are to be sent again, and how fast.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where their delivery stands: delivered or dead.
    pub state: DeliveryState,
    /// Only of this business id.
    pub biz_id: Option<String>,
    /// Only those that were written at this instant or later.
    pub from: Option<UnixMillis>,
    /// Only events that were written before this instant.
    pub to: Option<UnixMillis>,
    /// Only events that died of this.
    pub died_of: DiedOf,
    /// Events in a second, at the most.
    pub rate_per_s: i64,
}

impl Wish {
    /// Every event that stands so.
    pub const fn every(state: DeliveryState, rate_per_s: i64) -> Self {
        let died_of = DiedOf { outcome: None, http_status: None };
        Self { state, biz_id: None, from: None, to: None, died_of, rate_per_s }
    }

    fn sought(&self, of: &ApplicationRow) -> Sought {
        Sought {
            tenant: of.tenant,
            application: of.no,
            state: self.state,
            biz_id: self.biz_id.clone(),
            from: self.from,
            to: self.to,
            died_of: self.died_of,
        }
    }
}

/// What a wish comes to.
#[derive(Clone, Debug)]
pub struct Prospect {
    /// How many events.
    pub count: i64,
    /// Whether there may be more: counting has a bound.
    pub is_at_least: bool,
    /// When the oldest was written.
    pub oldest_at: Option<UnixMillis>,
    /// The redelivery that does it; none where it was only looked at, or where there is nothing to do.
    pub begun: Option<RedeliveryRow>,
}

/// A redelivery's public id.
pub fn public_id(id: SortedId) -> String {
    format!("{}{id}", prefix::REDELIVERY)
}

/// A redelivery's id from its public form.
pub fn parse_public_id(text: &str) -> Option<SortedId> {
    text.strip_prefix(prefix::REDELIVERY).and_then(SortedId::parse)
}

/// How many events there are, page by page; whether the bound was met.
async fn count(app: &App, of: &Sought) -> Result<(Counted, bool), AppError> {
    let (mut all, mut after) = (Counted::default(), 0);
    loop {
        let span = Span { of: of.clone(), after, through: i64::MAX, most: LOOKED_AT_ONCE };
        let page = app.store.count_sought(span).await?;
        all = Counted {
            looked: all.looked + page.looked,
            found: all.found + page.found,
            oldest_at: [all.oldest_at, page.oldest_at].into_iter().flatten().min(),
            first: all.first.or(page.first),
            last: page.last.or(all.last),
        };
        let Some(last) = page.last.filter(|_| page.looked == i64::from(LOOKED_AT_ONCE)) else {
            return Ok((all, false));
        };
        if all.looked >= LOOKED_MAX {
            return Ok((all, true));
        }
        after = last;
    }
}

/// What a redelivery of an application would come to. Writes nothing.
pub async fn preview(app: &App, client_id: &str, wish: &Wish) -> Result<Prospect, AppError> {
    let view = find_application(app, client_id).await?;
    let (counted, is_at_least) = count(app, &wish.sought(&view.application)).await?;
    Ok(Prospect { count: counted.found, is_at_least, oldest_at: counted.oldest_at, begun: None })
}

/// Begins a redelivery; of an application one runs at a time. Where no event is meant, only the audit log hears of it.
pub async fn start(
    app: &App,
    client_id: &str,
    wish: &Wish,
    keep: &Keep<'_, Prospect>,
    actor: &Actor,
) -> Result<Prospect, AppError> {
    let view = find_application(app, client_id).await?;
    delivery::must_go_out(app)?;
    may_begin(app, &view).await?;
    let sought = wish.sought(&view.application);
    let (counted, is_at_least) = count(app, &sought).await?;
    // What was looked at in vain need not be looked at again.
    let cursor_seq = counted.first.map_or(counted.last.unwrap_or(0), |first| first - 1);
    let meant = Meant { count: counted.found, is_at_least, oldest_at: counted.oldest_at, cursor_seq };
    begin(app, &view.application, wish, meant, keep, actor).await
}

/// Refuses to send many events of an application again where none would go out, or where some are sent again just now.
async fn may_begin(app: &App, view: &ApplicationView) -> Result<(), AppError> {
    delivery::must_be_wanted(view)?;
    delivery::must_be_signed(app, view)?;
    match running(app, &view.application).await? {
        Some(row) => Err(is_running(&public_id(row.id))),
        None => Ok(()),
    }
}

/// The events of an application that are meant.
#[derive(Clone, Copy, Debug)]
struct Meant {
    count: i64,
    is_at_least: bool,
    oldest_at: Option<UnixMillis>,
    /// Every one of the events has a greater `seq` than this.
    cursor_seq: i64,
}

async fn begin(
    app: &App,
    of: &ApplicationRow,
    wish: &Wish,
    meant: Meant,
    keep: &Keep<'_, Prospect>,
    actor: &Actor,
) -> Result<Prospect, AppError> {
    let (now, Meant { count, is_at_least, oldest_at, .. }) = (app.clock.now(), meant);
    let is_empty = count == 0 && !is_at_least;
    let begun = (!is_empty).then(|| new_row(app, of, wish, meant, now));
    let asked = json!({ "redelivery_id": begun.as_ref().map(|row| public_id(row.id)), "state": wish.state.name(),
        "bizId": wish.biz_id, "from": wish.from.map(rfc3339), "to": wish.to.map(rfc3339), "rate_per_s": wish.rate_per_s,
        "outcome": wish.died_of.outcome.map(Outcome::name), "http_status": wish.died_of.http_status,
        "count": count });
    let audit = actor.records(Deed {
        tenant: Some(of.tenant),
        at: now,
        action: "events.redeliver",
        subject: &of.client_id,
        before: String::new(),
        after: asked.to_string(),
    });
    let prospect = Prospect { count, is_at_least, oldest_at, begun };
    let mut writes = vec![audit];
    let starts = prospect.begun.clone().map(|row| Write::Redelivery(Box::new(RedeliveryWrite::Start(row))));
    writes.extend(starts);
    writes.extend(kept(keep, &prospect));
    match app.store.commit(actor.batch(writes)).await {
        Ok(_) => Ok(prospect),
        Err(CommitError::Conflict(Conflict::Taken(Key::Redelivery(_)))) => {
            // Begun in the meantime, and maybe over by now.
            let other = running(app, of).await?.map(|row| public_id(row.id));
            Err(is_running(other.as_deref().unwrap_or("another one")))
        }
        Err(error) => Err(error.into()),
    }
}

fn new_row(app: &App, of: &ApplicationRow, wish: &Wish, meant: Meant, now: UnixMillis) -> RedeliveryRow {
    RedeliveryRow {
        id: app.chance.sorted_id(now),
        client_id: of.client_id.clone(),
        sought: wish.sought(of),
        rate_per_s: wish.rate_per_s,
        from_seq: meant.cursor_seq,
        through_seq: 0,
        cursor_seq: meant.cursor_seq,
        count: meant.count,
        is_at_least: meant.is_at_least,
        done: 0,
        state: RedeliveryState::Running,
        created_at: now,
        ended_at: None,
    }
}

fn is_running(which: &str) -> AppError {
    AppError::NotRedeliverable(format!(
        "a redelivery of this application is running ({which}): wait for its end, or stop it, and ask again"
    ))
}

/// The redelivery of an application that is running.
async fn running(app: &App, of: &ApplicationRow) -> Result<Option<RedeliveryRow>, AppError> {
    let after = Some((of.tenant, ApplicationNo(of.no.0 - 1)));
    let found = app.store.redeliveries(Redeliveries::Running { lanes: LaneSet::ALL, after }, 1).await?;
    Ok(found.into_iter().find(|row| (row.sought.tenant, row.sought.application) == (of.tenant, of.no)))
}

/// Redeliveries of all tenants, or of one application, newest first.
pub async fn list(
    app: &App,
    client_id: Option<String>,
    after: Option<SortedId>,
    limit: u32,
) -> Result<Vec<RedeliveryRow>, AppError> {
    Ok(app.store.redeliveries(Redeliveries::All { client_id, after }, limit).await?)
}

/// One redelivery.
pub async fn find(app: &App, id: SortedId) -> Result<RedeliveryRow, AppError> {
    let found = app.store.redeliveries(Redeliveries::One(id), 1).await?;
    found.into_iter().next().ok_or_else(|| AppError::NotFound(format!("no redelivery has the id {}", public_id(id))))
}

/// How the events of a redelivery stand now.
#[derive(Clone, Debug)]
pub struct Outcomes {
    /// The redelivery, as it was before they were counted.
    pub of: RedeliveryRow,
    /// Those that wait for an attempt, or are held.
    pub waiting: i64,
    /// Those that were delivered.
    pub delivered: i64,
    /// Those that are dead.
    pub dead: i64,
    /// Whether there may be more of each: counting has a bound.
    pub is_at_least: bool,
}

impl Outcomes {
    /// Those that a later redelivery has taken, or that age has freed; none: not all were looked at.
    pub fn elsewhere(&self) -> Option<i64> {
        let known = self.waiting + self.delivered + self.dead;
        (!self.is_at_least).then(|| (self.of.done - known).max(0))
    }
}

/// How the events of a redelivery fared so far.
pub async fn outcomes(app: &App, id: SortedId) -> Result<Outcomes, AppError> {
    let of = find(app, id).await?;
    let Sought { tenant, application, .. } = of.sought;
    let (mut after, through) = (of.from_seq, of.cursor_seq);
    let (mut all, mut looked) = (Outcomes { of, waiting: 0, delivered: 0, dead: 0, is_at_least: false }, 0);
    loop {
        let page = app.store.fared(Walked { tenant, application, id, after, through, most: LOOKED_AT_ONCE }).await?;
        all.waiting += page.waiting;
        all.delivered += page.delivered;
        all.dead += page.dead;
        looked += page.looked;
        let Some(last) = page.last.filter(|_| page.looked == i64::from(LOOKED_AT_ONCE)) else { return Ok(all) };
        if looked >= LOOKED_MAX {
            return Ok(Outcomes { is_at_least: true, ..all });
        }
        after = last;
    }
}

/// How often a stop is tried while portions are made pending beside it.
const STOPS_MAX: usize = 8;

/// Stops a redelivery that is running: nothing more is made pending. What is pending goes out. What it answers, and notes, is how far it came: a portion that
/// was made pending meanwhile is counted.
pub async fn stop(
    app: &App,
    id: SortedId,
    keep: &Keep<'_, RedeliveryRow>,
    actor: &Actor,
) -> Result<RedeliveryRow, AppError> {
    for _ in 0..STOPS_MAX {
        let row = find(app, id).await?;
        may_stop(&row)?;
        let now = app.clock.now();
        let stopped = RedeliveryRow { state: RedeliveryState::Stopped, ended_at: Some(now), ..row };
        match app.store.commit(stopping(&stopped, now, keep, actor)).await {
            Ok(_) => return Ok(stopped),
            Err(CommitError::Conflict(Conflict::Moved(Key::Redelivery(_)))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

fn stopping(stopped: &RedeliveryRow, at: UnixMillis, keep: &Keep<'_, RedeliveryRow>, actor: &Actor) -> Batch {
    let (id, from) = (stopped.id, stopped.cursor_seq);
    let Sought { tenant, application, .. } = stopped.sought;
    let (before, after) = (json!({ "state": "running" }), json!({ "state": "stopped", "done": stopped.done }));
    let (before, after) = (before.to_string(), after.to_string());
    let audit = actor.records(Deed {
        tenant: Some(tenant),
        at,
        action: "redelivery.stop",
        subject: &public_id(id),
        before,
        after,
    });
    let mut writes =
        vec![Write::Redelivery(Box::new(RedeliveryWrite::Stop { tenant, application, id, from, at })), audit];
    writes.extend(kept(keep, stopped));
    actor.batch(writes)
}

fn may_stop(row: &RedeliveryRow) -> Result<(), AppError> {
    let ended = match row.state {
        RedeliveryState::Running => return Ok(()),
        RedeliveryState::Stopped => "was stopped before",
        RedeliveryState::Done => "is done: every one of its events was made pending",
    };
    Err(AppError::NotRedeliverable(format!("the redelivery {ended}; there is nothing to stop")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tokio::runtime::Handle;
    use tokio::task::block_in_place;

    use super::super::fixtures::{self, Deployment};
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn who_stops_a_redelivery_is_told_how_far_it_came_also_where_it_goes_on_meanwhile() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        let client_id = fixtures::application(&app, "m", None).await;
        let view = find_application(&app, &client_id).await.expect("is there");
        let wish = Wish::every(DeliveryState::Dead, 1);
        let meant = Meant { count: 0, is_at_least: false, oldest_at: None, cursor_seq: 0 };
        let row = new_row(&app, &view.application, &wish, meant, app.clock.now());
        let (id, of) = (row.id, row.sought.clone());
        app.store.commit(Batch(vec![Write::Redelivery(Box::new(RedeliveryWrite::Start(row)))])).await.expect("begins");
        // Between the look and the stop a portion is made pending, twice.
        let at = AtomicI64::new(0);
        let keep = |_: &RedeliveryRow| {
            let from = at.load(Ordering::Relaxed);
            if from < 2 {
                let portion = RedeliveryWrite::Advance {
                    tenant: of.tenant,
                    application: of.application,
                    id,
                    was: DeliveryState::Dead,
                    from,
                    to: from + 1,
                    events: Vec::new(),
                    due_at: UnixMillis(1),
                    ended_at: None,
                };
                let commit = app.store.commit(Batch(vec![Write::Redelivery(Box::new(portion))]));
                block_in_place(|| Handle::current().block_on(commit)).expect("goes on");
                at.store(from + 1, Ordering::Relaxed);
            }
            None
        };
        let told = stop(&app, id, &keep, &fixtures::nobody()).await.expect("is stopped");
        assert_eq!((told.state, told.cursor_seq), (RedeliveryState::Stopped, 2));
        assert_eq!(find(&app, id).await.expect("is there"), told);
        let again = stop(&app, id, &|_| None, &fixtures::nobody()).await.expect_err("is refused").to_string();
        assert!(again.contains("stopped before"), "{again}");
        Deployment::close(&app);
    }
}
