//! What somebody asks where callbacks do not arrive: what waits, and what the dead ones died of.

use std::future::Future;

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::UnixMillis;

use crate::contract::{Cursor, StoreError};
use crate::read::{Columns, Fields};

/// Questions about deliveries that are not over, or came to nothing.
pub trait Backlogs {
    /// How much an application has waiting, and how much of it is dead; both counted up to `most`.
    fn backlog(
        &self,
        tenant: TenantNo,
        application: ApplicationNo,
        most: u32,
    ) -> impl Future<Output = Result<Backlog, StoreError>> + Send;

    /// Dead events with their last attempt, newest first: of an application, or of all tenants. `after` is an `EventNo`.
    fn dead(
        &self,
        of: Option<(TenantNo, ApplicationNo)>,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<DeadRow>, StoreError>> + Send;

    /// Applications that have dead events, of all tenants, at most `limit`, in an order of the store's own. `after`: the last one seen.
    fn with_dead(
        &self,
        after: Option<(TenantNo, ApplicationNo)>,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<WithDead>, StoreError>> + Send;

    /// Where an application stands in [`Backlogs::with_dead`], by its ClientId, whatever else of its row can be read; none where there is no such
    /// application.
    fn place_of(
        &self,
        client_id: &str,
    ) -> impl Future<Output = Result<Option<(TenantNo, ApplicationNo)>, StoreError>> + Send;

    /// How much is pending of the applications in these lanes, and how much is dead of all; each counted up to `most`. Stores of one node know
    /// no lanes: all.
    fn waiting(&self, lanes: LaneSet, most: u32) -> impl Future<Output = Result<NodeBacklog, StoreError>> + Send;
}

/// How much waits for a node to deliver it, and how much came to nothing. Counting has a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBacklog {
    /// Events that are pending: due, or waiting for their next attempt.
    pub pending: i64,
    /// When the oldest of the counted events was written; `None` where none was counted.
    pub oldest_pending: Option<UnixMillis>,
    /// Events that are dead, whatever their lane.
    pub dead: i64,
}

/// How much an application has waiting, and how much of it is dead. Counting has a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Events that are pending or held.
    pub open: i64,
    /// When the oldest of the counted events was written; `None` where none was counted.
    pub oldest_open: Option<UnixMillis>,
    /// Events that are dead.
    pub dead: i64,
}

/// An application that has dead events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithDead {
    /// Its tenant.
    pub tenant: TenantNo,
    /// Its number.
    pub application: ApplicationNo,
    /// Its ClientId.
    pub client_id: String,
}

/// A dead event, and how its last attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadRow {
    /// The event.
    pub no: EventNo,
    /// Its tenant.
    pub tenant: TenantNo,
    /// The ClientId of its application.
    pub client_id: String,
    /// Its public id is `evt_` + this.
    pub event_id: SortedId,
    /// Its place among the application's events: 1, 2, ...
    pub seq: i64,
    /// Of which payment order or transaction.
    pub biz_id: String,
    /// When it was written.
    pub created_at: UnixMillis,
    /// What came of the last attempt.
    pub outcome: Outcome,
    /// The status of its answer, where one came.
    pub http_status: Option<u16>,
    /// What went wrong, in words.
    pub detail: String,
}

/// A backlog as a row of either dialect has it.
pub(crate) fn read<R: Columns>(row: &R) -> Result<Backlog, StoreError> {
    let mut f = Fields::new(row, "delivery", 0, 0);
    Ok(Backlog { open: f.int()?, oldest_open: f.opt_int()?.map(UnixMillis), dead: f.int()? })
}

/// What waits as a row of either dialect has it.
pub(crate) fn read_waiting<R: Columns>(row: &R) -> Result<NodeBacklog, StoreError> {
    let mut f = Fields::new(row, "delivery", 0, 0);
    Ok(NodeBacklog { pending: f.int()?, oldest_pending: f.opt_int()?.map(UnixMillis), dead: f.int()? })
}

/// An application as a row of either dialect has it.
pub(crate) fn with_dead<R: Columns>(row: &R) -> Result<WithDead, StoreError> {
    let mut f = Fields::new(row, "application", 0, 0);
    Ok(WithDead { tenant: TenantNo(f.int()?), application: ApplicationNo(f.int()?), client_id: f.text()? })
}

/// The place of an application as a row of either dialect has it.
pub(crate) fn place<R: Columns>(row: &R) -> Result<(TenantNo, ApplicationNo), StoreError> {
    let mut f = Fields::new(row, "application", 0, 1);
    Ok((TenantNo(f.int()?), ApplicationNo(f.int()?)))
}

/// A dead event as a row of either dialect has it.
pub(crate) fn dead<R: Columns>(row: &R) -> Result<DeadRow, StoreError> {
    let mut f = Fields::new(row, "attempt", 0, 0);
    Ok(DeadRow {
        no: EventNo(f.int()?),
        tenant: TenantNo(f.int()?),
        client_id: f.text()?,
        event_id: SortedId(u128::from_be_bytes(f.bytes()?)),
        seq: f.int()?,
        biz_id: f.text()?,
        created_at: UnixMillis(f.int()?),
        outcome: Outcome::from_name(&f.text()?).ok_or_else(|| f.corrupt())?,
        http_status: f.opt_int()?.map(u16::try_from).transpose().map_err(|_| f.corrupt())?,
        detail: f.text()?,
    })
}

/// The columns that [`dead`] reads, of a delivery `d`, its event `e` and its last attempt `a`, in words of both dialects.
macro_rules! dead_columns {
    () => {
        "d.event_no, d.tenant_no, e.client_id, e.event_id, e.seq, e.biz_id, e.created_at, a.outcome, a.http_status, a.detail"
    };
}

pub(crate) use dead_columns;
