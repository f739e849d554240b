//! What is owed: which applications have pending deliveries, and which of theirs comes first.

use countersign_domain::ids::{ApplicationNo, EventNo};
use rusqlite::{Connection, Row, params};

use super::fault::fault;
use super::queries::{Found, event_columns, many, one};
use super::rows;
use crate::contract::{Cursor, EventRow, OwedRow, Pending, Portion};
use crate::earlier_event::{before, few_open, may_walk_far, nearest};

/// A walk from one application to the next, whatever each has waiting.
pub(super) fn owed(conn: &Connection, page: &Cursor<ApplicationNo>) -> Found<Vec<OwedRow>> {
    let sql = "WITH RECURSIVE a (no) AS (
                 SELECT (SELECT d.application_no FROM delivery d INDEXED BY delivery_next
                         WHERE d.state = 'pending' AND d.application_no > ?1 ORDER BY d.application_no LIMIT 1)
                 UNION ALL
                 SELECT (SELECT d.application_no FROM delivery d INDEXED BY delivery_next
                         WHERE d.state = 'pending' AND d.application_no > a.no ORDER BY d.application_no LIMIT 1)
                 FROM a WHERE a.no IS NOT NULL)
               SELECT (SELECT d.tenant_no FROM delivery d INDEXED BY delivery_next
                       WHERE d.state = 'pending' AND d.application_no = a.no LIMIT 1), a.no,
                 min(coalesce((SELECT d.due_at FROM delivery d INDEXED BY delivery_next WHERE d.state = 'pending'
                               AND d.application_no = a.no AND min(d.attempts, 1) = 0 ORDER BY d.due_at LIMIT 1), ?3),
                     coalesce((SELECT d.due_at FROM delivery d INDEXED BY delivery_next WHERE d.state = 'pending'
                               AND d.application_no = a.no AND min(d.attempts, 1) = 1 ORDER BY d.due_at LIMIT 1), ?3))
               FROM a WHERE a.no IS NOT NULL LIMIT ?2";
    let after = page.after.map_or(i64::MIN, |of| of.0);
    many(conn, sql, params![after, page.limit, i64::MAX], rows::owed)
}

/// Which events are pending is read from the index alone, so that an event that the caller knows already costs one step in the index.
pub(super) fn pending_of(conn: &Connection, portion: &Portion) -> Found<Pending> {
    let numbers = "SELECT d.event_no FROM delivery d INDEXED BY delivery_next
                   WHERE d.state = 'pending' AND d.application_no = ?1 AND min(d.attempts, 1) = ?2
                   ORDER BY d.due_at, d.event_no";
    let row = concat!(
        "SELECT ",
        event_columns!(),
        "FROM delivery d CROSS JOIN event e ON e.event_no = d.event_no
         WHERE d.event_no = ?1 AND d.tenant_no = ?2 AND d.state = 'pending' AND min(d.attempts, 1) = ?3"
    );
    let (mut known, mut found) = (portion.known.clone(), Pending::default());
    known.sort_unstable();
    let (mut numbers, mut row) =
        (conn.prepare_cached(numbers).map_err(fault)?, conn.prepare_cached(row).map_err(fault)?);
    for (tenant, application) in &portion.of {
        for repeated in [0, 1] {
            let (mut new, mut left) = (numbers.query([application.0, repeated]).map_err(fault)?, portion.limit);
            while left > 0
                && let Some(number) = new.next().map_err(fault)?
            {
                let event = EventNo(rows::Fields::new(number, "delivery", 0, 0).int()?);
                if known.binary_search(&event).is_err()
                    && let Some(row) = row.query([event.0, tenant.0, repeated]).map_err(fault)?.next().map_err(fault)?
                {
                    found.add((*tenant, *application), event, rows::event(row));
                    left -= 1;
                }
            }
        }
    }
    Ok(found)
}

/// The walk goes down by itself: a sort of what it finds would walk to its end first.
const OPEN_BEFORE: &str =
    "SELECT e.event_no FROM (SELECT event_no FROM event INDEXED BY event_by_biz WHERE biz_id = ?1 AND event_no >= ?2
       AND event_no < ?3 ORDER BY event_no DESC LIMIT ?7) o CROSS JOIN event e ON e.event_no = o.event_no
     CROSS JOIN delivery d ON d.event_no = e.event_no WHERE e.application_no = ?4 AND e.tenant_no = ?5
     AND e.sequence < ?6 AND (d.state = 'pending' OR d.state = 'held') AND NOT (d.by_hand AND EXISTS
       (SELECT 1 FROM attempt a WHERE a.event_no = d.event_no AND a.outcome = 'delivered')) LIMIT 1";

/// Whether an application has more open deliveries than so many: the last of so many and one.
const MANY_OPEN: &str = "SELECT 1 FROM (
       SELECT event_no FROM delivery INDEXED BY delivery_next WHERE state = 'pending' AND application_no = ?1
       UNION ALL SELECT event_no FROM delivery INDEXED BY delivery_held WHERE state = 'held' AND application_no = ?1)
     LIMIT 1 OFFSET ?2";

/// As the walks look: below its own number first, from the latest down.
const OPEN_AMONG: &str = "SELECT e.event_no FROM (
       SELECT event_no, by_hand FROM delivery INDEXED BY delivery_next WHERE state = 'pending' AND application_no = ?3
       UNION ALL SELECT event_no, by_hand FROM delivery INDEXED BY delivery_held WHERE state = 'held' AND application_no = ?3) d
     CROSS JOIN event e ON e.event_no = d.event_no WHERE e.biz_id = ?1 AND e.tenant_no = ?4 AND e.sequence < ?5
     AND NOT (d.by_hand AND EXISTS (SELECT 1 FROM attempt a WHERE a.event_no = d.event_no AND a.outcome = 'delivered'))
     ORDER BY e.event_no < ?2 DESC, e.event_no DESC LIMIT 1";

pub(super) fn open_before(conn: &Connection, event: &EventRow) -> Found<Option<EventNo>> {
    if may_walk_far(event) {
        let near = walk(conn, event, nearest(event))?;
        if near.is_some() {
            return Ok(near);
        }
        if one(conn, MANY_OPEN, [event.application.0, few_open(event)], |_| Ok(()))?.is_none() {
            let of = params![event.biz_id, event.no.0, event.application.0, event.tenant.0, event.sequence];
            return one(conn, OPEN_AMONG, of, number);
        }
    }
    for range in before(event) {
        let found = walk(conn, event, range)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn walk(conn: &Connection, event: &EventRow, (from, to, most): (i64, i64, i64)) -> Found<Option<EventNo>> {
    let of = params![event.biz_id, from, to, event.application.0, event.tenant.0, event.sequence, most];
    one(conn, OPEN_BEFORE, of, number)
}

fn number(row: &Row<'_>) -> Found<EventNo> {
    rows::Fields::new(row, "event", 0, 0).int().map(EventNo)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::super::attempt_log::tests::MANY;
    use super::super::{open::connect, schema};
    use super::*;

    #[test]
    fn a_look_for_an_earlier_event_ends_at_the_first_that_is_open_and_at_its_bound() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conn = connect(&dir.path().join("db"), 1000).expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        conn.execute_batch(MANY).expect("fits");
        conn.execute_batch("UPDATE delivery SET state = 'pending', due_at = 1").expect("all are open");
        let look = |(from, to, most): (i64, i64, i64), sequence: i64| {
            let mut look = conn.prepare_cached(OPEN_BEFORE).expect("prepares");
            let found = look.exists(params!["b", from, to, 1, 1, sequence, most]).expect("reads");
            (found, look.reset_status(StatementStatus::VmStep))
        };
        let (found, near) = look((i64::MIN, 4999, i64::MAX), 4999);
        assert!(found && near < 200, "the nearest one is open: {near} steps");
        let (found, bounded) = look((1, i64::MAX, 100), 1);
        let (none, all) = look((1, i64::MAX, i64::MAX), 1);
        assert!(!found && !none && bounded * 20 < all, "{bounded} steps of {all}");
    }

    #[test]
    fn an_event_behind_many_of_its_business_that_are_over_looks_at_what_is_open() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        conn.execute_batch(MANY).expect("fits");
        let event = |no: i64| {
            let sql = concat!(
                "SELECT ",
                event_columns!(),
                "FROM event e LEFT JOIN delivery d ON d.event_no = e.event_no WHERE e.event_no = ?1"
            );
            one(&conn, sql, [no], rows::event).expect("reads").expect("is there")
        };
        let steps = || -> i32 {
            let all = [OPEN_BEFORE, MANY_OPEN, OPEN_AMONG];
            all.map(|sql| conn.prepare_cached(sql).expect("is kept").reset_status(StatementStatus::VmStep)).iter().sum()
        };
        let look = |no| (open_before(&conn, &event(no)).expect("reads").map(|no| no.0), steps());
        let open = |sql: &str| conn.execute_batch(sql).expect("is done");
        let (none, few) = look(1000);
        assert!(none.is_none() && steps() == 0);
        assert_eq!(look(5000), (None, few), "however many came before it");
        open("UPDATE delivery SET state = 'pending', due_at = 1 WHERE event_no IN (7, 4999, 5000)");
        assert_eq!(look(5000).0, Some(4999));
        assert_eq!(look(4998).0, Some(7), "a far one is found, too");
        open("UPDATE delivery SET state = 'held', due_at = NULL WHERE event_no = 7");
        let (held, some) = look(4998);
        assert!(held == Some(7) && some < few + 200, "{some} steps, and {few}");
        // With too many that are open the events are walked over, and the same is found.
        open(
            "UPDATE delivery SET state = 'pending', due_at = 1 WHERE event_no < 600; UPDATE delivery SET state = 'dead', due_at = NULL WHERE event_no = 599",
        );
        assert_eq!(look(1000).0, Some(598));
        open("UPDATE event SET biz_id = 'c' WHERE event_no BETWEEN 8 AND 599");
        open(
            "UPDATE delivery SET state = 'pending', due_at = 1 WHERE event_no BETWEEN 4000 AND 5000; UPDATE event SET biz_id = 'c' WHERE event_no BETWEEN 4000 AND 4996",
        );
        assert_eq!(look(1000).0, Some(7));
    }
}
