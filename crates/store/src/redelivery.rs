//! Many events sent again by a filter: what is kept of it, how it goes on, and how its events are found.
//!
//! The events of an application are walked once, by `seq`, up to the last one that was there at the start. The cursor moves in the same
//! batch that makes a portion pending, so a process that dies in between leaves both or neither, and no event is taken twice.

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::UnixMillis;

use crate::contract::{EventRow, StoreError};
use crate::read::{Columns, Fields};

/// Events that one [`RedeliveryWrite::Advance`] makes pending at the most, so that no change waits long behind it.
pub const REDELIVERED_MAX: usize = 500;

/// Which events of an application are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Tenant of the application.
    pub tenant: TenantNo,
    /// Whose events.
    pub application: ApplicationNo,
    /// Where their delivery stands: `Delivered` or `Dead`.
    pub state: DeliveryState,
    /// Only of this business id.
    pub biz_id: Option<String>,
    /// Only those that were written at this instant or later.
    pub from: Option<UnixMillis>,
    /// Only events that were written before this instant.
    pub to: Option<UnixMillis>,
    /// Only those whose last attempt came to this.
    pub died_of: DiedOf,
}

/// What the last attempt at an event came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiedOf {
    /// Its outcome; `None`: any.
    pub outcome: Option<Outcome>,
    /// The status of its answer; `None`: any, or no answer.
    pub http_status: Option<u16>,
}

impl DiedOf {
    /// Whether an attempt came to this.
    pub fn is(self, outcome: Outcome, http_status: Option<u16>) -> bool {
        self.outcome.is_none_or(|wanted| wanted == outcome)
            && self.http_status.is_none_or(|wanted| http_status == Some(wanted))
    }

    /// Both as rows have them.
    pub(crate) fn as_kept(self) -> (Option<&'static str>, Option<i64>) {
        (self.outcome.map(Outcome::name), self.http_status.map(i64::from))
    }
}

impl Sought {
    /// Every event of an application that stands so.
    pub const fn every(tenant: TenantNo, application: ApplicationNo, state: DeliveryState) -> Self {
        let died_of = DiedOf { outcome: None, http_status: None };
        Self { tenant, application, state, biz_id: None, from: None, to: None, died_of }
    }

    /// Whether an event is one of them, but for what it died of.
    pub(crate) fn is(&self, event: &EventRow) -> bool {
        (event.tenant, event.application, event.state) == (self.tenant, self.application, self.state)
            && self.biz_id.as_ref().is_none_or(|biz_id| event.biz_id == *biz_id)
            && self.from.is_none_or(|from| event.created_at >= from)
            && self.to.is_none_or(|to| event.created_at < to)
    }

    /// Both instants, where none is the farthest there is.
    pub(crate) fn times(&self) -> (i64, i64) {
        (self.from.map_or(i64::MIN, |from| from.0), self.to.map_or(i64::MAX, |to| to.0))
    }
}

/// A stretch of an application's events, by `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What is looked for in it.
    pub of: Sought,
    /// The stretch begins behind this `seq`.
    pub after: i64,
    /// The stretch ends with this `seq`.
    pub through: i64,
    /// The most events to find, or, where events are counted, the most to look at.
    pub most: u32,
}

/// What was counted in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events that were looked at.
    pub looked: i64,
    /// Those that are meant.
    pub found: i64,
    /// When the oldest of these was written.
    pub oldest_at: Option<UnixMillis>,
    /// The `seq` of the first of these.
    pub first: Option<i64>,
    /// The `seq` of the last one that was looked at.
    pub last: Option<i64>,
}

/// A stretch of the events that a redelivery has walked over, by `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Tenant of the application.
    pub tenant: TenantNo,
    /// Whose events.
    pub application: ApplicationNo,
    /// Which redelivery.
    pub id: SortedId,
    /// The stretch begins behind this `seq`.
    pub after: i64,
    /// The stretch ends with this `seq`.
    pub through: i64,
    /// At most so many events are looked at.
    pub most: u32,
}

/// How the events of a stretch stand that were part of a redelivery, and of no later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fared {
    /// Events that were looked at.
    pub looked: i64,
    /// The `seq` of the last one that was looked at.
    pub last: Option<i64>,
    /// Those that wait for an attempt, or are held.
    pub waiting: i64,
    /// Those that were delivered.
    pub delivered: i64,
    /// Those that are dead.
    pub dead: i64,
}

/// What fared so as a row of either dialect has it.
pub(crate) fn read_counted<R: Columns>(row: &R) -> Result<Counted, StoreError> {
    let mut f = Fields::new(row, "event", 0, 0);
    let (looked, found) = (f.int()?, f.int()?);
    Ok(Counted { looked, found, oldest_at: f.opt_millis()?, first: f.opt_int()?, last: f.opt_int()? })
}

pub(crate) fn read_fared<R: Columns>(row: &R) -> Result<Fared, StoreError> {
    let mut f = Fields::new(row, "delivery", 0, 0);
    Ok(Fared { looked: f.int()?, last: f.opt_int()?, waiting: f.int()?, delivered: f.int()?, dead: f.int()? })
}

/// Where a redelivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedeliveryState {
    /// Portions are made pending. Of one application there is one at the most.
    Running,
    /// Stopped by hand. Final.
    Stopped,
    /// Every event was looked at. Final.
    Done,
}

impl RedeliveryState {
    /// Its name in answers and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Running, Self::Stopped, Self::Done].into_iter().find(|state| state.name() == name)
    }
}

/// A redelivery: what was asked for, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedeliveryRow {
    /// Its public id is `rdl_` + this.
    pub id: SortedId,
    /// The ClientId of the application.
    pub client_id: String,
    /// Which events.
    pub sought: Sought,
    /// Events that are made pending in a second, at the most.
    pub rate_per_s: i64,
    /// The walk begins behind this `seq`.
    pub from_seq: i64,
    /// The last `seq` of the application at the start; given by the store.
    pub through_seq: i64,
    /// The last `seq` that was looked at.
    pub cursor_seq: i64,
    /// How many events were meant at the start.
    pub count: i64,
    /// Whether there may have been more: counting has a bound.
    pub is_at_least: bool,
    /// How many were made pending.
    pub done: i64,
    /// Where it stands.
    pub state: RedeliveryState,
    /// When it was asked for.
    pub created_at: UnixMillis,
    /// When it ended; `None` while it is running.
    pub ended_at: Option<UnixMillis>,
}

/// What becomes of a redelivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedeliveryWrite {
    /// Begins. The store itself gives `through_seq`: what the row carries there is ignored. Guard: the application is its tenant's, the
    /// id is new, and no other one of the application is running.
    Start(RedeliveryRow),
    /// Makes a portion pending, due, by hand, and part of this redelivery: of `events` those that are still in the state `was`. Guard: it is running, and its cursor
    /// is at `from`.
    Advance {
        /// Tenant of the application.
        tenant: TenantNo,
        /// Whose events.
        application: ApplicationNo,
        /// Which redelivery.
        id: SortedId,
        /// The state that its events are in until then.
        was: DeliveryState,
        /// Where the cursor was read.
        from: i64,
        /// Where it goes.
        to: i64,
        /// The portion, at most [`REDELIVERED_MAX`].
        events: Vec<EventNo>,
        /// When they are due.
        due_at: UnixMillis,
        /// When it ended, where this is the end.
        ended_at: Option<UnixMillis>,
    },
    /// Stops: nothing more is made pending. Guard: it is running, and its cursor is at `from`, so whoever stops it knows how far it came.
    Stop {
        /// Tenant of the application.
        tenant: TenantNo,
        /// Whose.
        application: ApplicationNo,
        /// Which redelivery.
        id: SortedId,
        /// Where the cursor was read.
        from: i64,
        /// When.
        at: UnixMillis,
    },
}

impl RedeliveryWrite {
    /// The tenant and the application that it is about.
    pub(crate) const fn of(&self) -> (TenantNo, ApplicationNo) {
        match self {
            Self::Start(row) => (row.sought.tenant, row.sought.application),
            Self::Advance { tenant, application, .. } | Self::Stop { tenant, application, .. } => {
                (*tenant, *application)
            }
        }
    }

    /// What is wrong with it, whatever the rows say.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Start(row) => {
                let begins = row.state == RedeliveryState::Running
                    && row.ended_at.is_none()
                    && row.done == 0
                    && row.from_seq == row.cursor_seq;
                let sound = row.sought.state.is_over() && row.rate_per_s >= 1 && row.count >= 0;
                (!begins || !sound).then_some("a redelivery begins running, of events that are over")
            }
            Self::Advance { from, to, events, .. } => {
                let is_sound = from <= to && events.len() <= REDELIVERED_MAX;
                (!is_sound).then_some("a portion goes forward and has a bound")
            }
            Self::Stop { .. } => None,
        }
    }
}

/// Which redeliveries are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeliveries {
    /// This one, whoever's.
    One(SortedId),
    /// Those of all tenants, newest first.
    All {
        /// Only of this application.
        client_id: Option<String>,
        /// Only redeliveries before this one.
        after: Option<SortedId>,
    },
    /// Those that are running, of all tenants in these lanes, by tenant and application. Stores of one node know no lanes: all.
    Running {
        /// The lanes.
        lanes: LaneSet,
        /// Only redeliveries of applications behind this one.
        after: Option<(TenantNo, ApplicationNo)>,
    },
}

/// A redelivery as a row of either dialect has it.
pub(crate) fn read<R: Columns>(row: &R) -> Result<RedeliveryRow, StoreError> {
    let mut f = Fields::new(row, "redelivery", 0, 1);
    let tenant = TenantNo(f.int()?);
    let id = SortedId(u128::from_be_bytes(f.bytes()?));
    let application = ApplicationNo(f.int()?);
    let client_id = f.text()?;
    let state = DeliveryState::from_name(&f.text()?).filter(|state| state.is_over()).ok_or_else(|| f.corrupt())?;
    let biz_id = f.opt_text()?;
    let (from, to) = (f.opt_int()?.map(UnixMillis), f.opt_int()?.map(UnixMillis));
    let outcome = f.opt_text()?.map(|name| Outcome::from_name(&name).ok_or_else(|| f.corrupt())).transpose()?;
    let http_status = f.opt_int()?.map(u16::try_from).transpose().map_err(|_| f.corrupt())?;
    let died_of = DiedOf { outcome, http_status };
    let found = RedeliveryRow {
        id,
        client_id,
        sought: Sought { tenant, application, state, biz_id, from, to, died_of },
        rate_per_s: f.int()?,
        from_seq: f.int()?,
        through_seq: f.int()?,
        cursor_seq: f.int()?,
        count: f.int()?,
        is_at_least: f.flag()?,
        done: f.int()?,
        state: RedeliveryState::from_name(&f.text()?).ok_or_else(|| f.corrupt())?,
        created_at: UnixMillis(f.int()?),
        ended_at: f.opt_int()?.map(UnixMillis),
    };
    let counts = [found.rate_per_s - 1, found.from_seq, found.through_seq, found.cursor_seq, found.count, found.done];
    let is_sound =
        counts.iter().all(|count| *count >= 0) && (found.state == RedeliveryState::Running) == found.ended_at.is_none();
    if is_sound { Ok(found) } else { Err(f.corrupt()) }
}

/// The columns that [`read`] reads, of a table `r`, in words of both dialects.
macro_rules! redelivery_columns {
    () => {
        "r.tenant_no, r.redelivery_id, r.application_no, r.client_id, r.of_state, r.biz_id, r.from_at, r.to_at, r.of_outcome, r.of_http_status, r.rate_per_s, \
         r.from_seq, r.through_seq, r.cursor_seq, r.found, r.is_at_least, r.done, r.state, r.created_at, r.ended_at"
    };
}

pub(crate) use redelivery_columns;
