//! Redeliveries of many events: what becomes of them, and how their events are found.

use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use rusqlite::{Connection, Params, Row, params};

use super::heads::Heads;
use super::queries::{Found, many, one};
use super::rows::Fields;
use super::statements::{Kept, Sql};
use crate::redelivery::{
    self, Counted, Fared, Redeliveries, RedeliveryRow, RedeliveryWrite, Span, Walked, redelivery_columns,
};

/// Does a write whose guard held.
pub(super) fn write(kept: &mut Kept<'_>, heads: &Heads, write: &RedeliveryWrite) -> rusqlite::Result<()> {
    match write {
        RedeliveryWrite::Start(row) => insert(kept, heads, row)?,
        RedeliveryWrite::Advance { tenant, application, id, was, to, events, due_at, ended_at, .. } => {
            let mut done = 0_usize;
            for event in events {
                let of = params![event.0, was.name(), due_at.0, tenant.0, application.0, id.0.to_be_bytes()];
                done += kept.run(Sql::DeliveryAgainFrom, of)?;
            }
            let done = i64::try_from(done).unwrap_or(i64::MAX);
            kept.run(Sql::RedeliveryMove, params![id.0.to_be_bytes(), to, done, ended_at.map(|at| at.0)])?;
        }
        RedeliveryWrite::Stop { id, at, .. } => {
            kept.run(Sql::RedeliveryStop, params![id.0.to_be_bytes(), at.0])?;
        }
    }
    Ok(())
}

fn insert(kept: &mut Kept<'_>, heads: &Heads, row: &RedeliveryRow) -> rusqlite::Result<()> {
    let sought = &row.sought;
    let through = heads.last_event(kept, sought.application)?;
    let (outcome, http_status) = sought.died_of.as_kept();
    kept.run(
        Sql::RedeliveryInsert,
        params![
            sought.tenant.0,
            row.id.0.to_be_bytes(),
            sought.application.0,
            row.client_id,
            sought.state.name(),
            sought.biz_id,
            sought.from.map(|from| from.0),
            sought.to.map(|to| to.0),
            row.rate_per_s,
            through,
            row.cursor_seq,
            row.count,
            row.is_at_least,
            row.created_at.0,
            outcome,
            http_status
        ],
    )?;
    Ok(())
}

/// Whether an event `e` is meant. Its delivery as a value and not as a join: the plan goes by `seq` and ends at the limit.
macro_rules! is_meant {
    () => {
        "((SELECT d.state FROM delivery d WHERE d.event_no = e.event_no) = ?6 AND (?7 IS NULL OR e.biz_id = ?7)
          AND e.created_at >= ?8 AND e.created_at < ?9 AND ((?10 IS NULL AND ?11 IS NULL) OR EXISTS (SELECT 1 FROM delivery d
          JOIN attempt a ON a.event_no = d.event_no AND a.attempt = d.attempts WHERE d.event_no = e.event_no
          AND (?10 IS NULL OR a.outcome = ?10) AND (?11 IS NULL OR a.http_status = ?11))))"
    };
}

macro_rules! stretch {
    () => {
        "FROM event e WHERE e.application_no = ?2 AND e.seq > ?3 AND e.seq <= ?4 AND e.tenant_no = ?1 "
    };
}

/// What the two statements have in common, as `?1` to `?11`.
fn bound(span: &Span) -> impl Params {
    let (of, (from, to)) = (&span.of, span.of.times());
    let (tenant, application, state) = (of.tenant.0, of.application.0, of.state.name());
    let (outcome, http_status) = of.died_of.as_kept();
    (
        tenant,
        application,
        span.after,
        span.through,
        span.most,
        state,
        of.biz_id.as_deref(),
        from,
        to,
        outcome,
        http_status,
    )
}

pub(super) fn sought(conn: &Connection, span: &Span) -> Found<Vec<(EventNo, i64)>> {
    let sql = concat!("SELECT e.event_no, e.seq ", stretch!(), "AND ", is_meant!(), " ORDER BY e.seq LIMIT ?5");
    many(conn, sql, bound(span), |row| {
        let mut f = Fields::new(row, "event", 0, 0);
        Ok((EventNo(f.int()?), f.int()?))
    })
}

pub(super) fn count(conn: &Connection, span: &Span) -> Found<Counted> {
    let sql = concat!(
        "SELECT count(*), count(*) FILTER (WHERE w.is_meant), min(w.created_at) FILTER (WHERE w.is_meant),
         min(w.seq) FILTER (WHERE w.is_meant), max(w.seq) FROM (SELECT e.seq, e.created_at, coalesce(",
        is_meant!(),
        ", 0) AS is_meant ",
        stretch!(),
        "ORDER BY e.seq LIMIT ?5) w"
    );
    let read = |row: &Row<'_>| redelivery::read_counted(row);
    Ok(one(conn, sql, bound(span), read)?.unwrap_or_default())
}

pub(super) fn fared(conn: &Connection, walked: &Walked) -> Found<Fared> {
    let sql = concat!(
        "SELECT count(*), max(w.seq), count(*) FILTER (WHERE w.state IN ('pending', 'held')), count(*) FILTER (WHERE w.state = 'delivered'),
         count(*) FILTER (WHERE w.state = 'dead') FROM (SELECT e.seq,
         (SELECT d.state FROM delivery d WHERE d.event_no = e.event_no AND d.redelivery_id = ?6) AS state ",
        stretch!(),
        "ORDER BY e.seq LIMIT ?5) w"
    );
    let (id, Walked { tenant, application, after, through, most, .. }) = (walked.id.0.to_be_bytes(), *walked);
    let of = params![tenant.0, application.0, after, through, most, id];
    Ok(one(conn, sql, of, |row| redelivery::read_fared(row))?.unwrap_or_default())
}

const ALL: &str = concat!(
    "SELECT ",
    redelivery_columns!(),
    " FROM redelivery r WHERE r.redelivery_id < ?1 ORDER BY r.redelivery_id DESC LIMIT ?2"
);
const OF_ONE: &str = concat!(
    "SELECT ",
    redelivery_columns!(),
    " FROM redelivery r INDEXED BY redelivery_of_application WHERE r.application_no = (SELECT a.application_no FROM application a
      WHERE a.client_id = ?3) AND r.redelivery_id < ?1 ORDER BY r.redelivery_id DESC LIMIT ?2"
);

fn before(after: Option<SortedId>) -> [u8; 16] {
    after.map_or(u128::MAX, |after| after.0).to_be_bytes()
}

pub(super) fn list(conn: &Connection, which: &Redeliveries, limit: u32) -> Found<Vec<RedeliveryRow>> {
    let read = |row: &Row<'_>| redelivery::read(row);
    match which {
        Redeliveries::One(id) => {
            let sql =
                concat!("SELECT ", redelivery_columns!(), " FROM redelivery r WHERE r.redelivery_id = ?1 LIMIT ?2");
            many(conn, sql, params![id.0.to_be_bytes(), limit], read)
        }
        Redeliveries::All { client_id: None, after } => many(conn, ALL, params![before(*after), limit], read),
        Redeliveries::All { client_id: Some(client_id), after } => {
            many(conn, OF_ONE, params![before(*after), limit, client_id], read)
        }
        Redeliveries::Running { after, .. } => {
            let sql = concat!(
                "SELECT ",
                redelivery_columns!(),
                " FROM redelivery r WHERE r.state = 'running' AND (r.tenant_no, r.application_no) > (?1, ?2)
                 ORDER BY r.tenant_no, r.application_no LIMIT ?3"
            );
            let (TenantNo(tenant), ApplicationNo(of)) = after.unwrap_or((TenantNo(i64::MIN), ApplicationNo(i64::MIN)));
            many(conn, sql, params![tenant, of, limit], read)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use countersign_domain::lanes::LaneSet;

    use super::super::{SqliteOptions, SqliteStore};
    use super::*;
    use crate::Store as _;

    #[tokio::test]
    async fn a_list_of_redeliveries_keeps_no_thread_that_serves() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::new([1; 16], "boot")).expect("opens");
        let lists = store.readers.hold_lists();
        let at_once = |which| {
            let mut read = pin!(store.redeliveries(which, 9));
            matches!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_)))
        };
        assert!(!at_once(Redeliveries::All { client_id: Some("app_one".to_owned()), after: None }));
        assert!(!at_once(Redeliveries::All { client_id: None, after: None }));
        assert!(at_once(Redeliveries::One(SortedId(1))));
        assert!(at_once(Redeliveries::Running { lanes: LaneSet::ALL, after: None }));
        drop(lists);
    }

    #[test]
    fn the_redeliveries_of_an_application_are_walked_over_alone() {
        let mut conn = Connection::open_in_memory().expect("opens");
        super::super::schema::migrate(&mut conn).expect("migrates");
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {OF_ONE}")).expect("prepares");
        let lines = plan.query_map(params![before(None), 9, "app"], |row| row.get(3)).expect("reads");
        let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
        let walk = "SEARCH r USING INDEX redelivery_of_application (application_no=? AND redelivery_id<?)";
        assert!(lines[0] == walk && !lines.iter().any(|line| line.contains("TEMP B-TREE")), "{lines:#?}");
    }
}
