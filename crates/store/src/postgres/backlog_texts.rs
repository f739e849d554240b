//! Texts of the statements about what waits and what is dead; [`super::statements`] gives them their names.

use crate::backlog::dead_columns;

pub(super) const OF_ONE: &str =
    "WITH open AS (SELECT event_no FROM delivery WHERE tenant_no = $1 AND application_no = $2
     AND state IN ('pending', 'held') LIMIT $3)
     SELECT (SELECT count(*) FROM open),
     (SELECT e.created_at FROM event e WHERE e.tenant_no = $1 AND e.event_no = (SELECT min(event_no) FROM open)),
     (SELECT count(*) FROM (SELECT FROM delivery WHERE tenant_no = $1 AND application_no = $2 AND state = 'dead' LIMIT $3) dead)";
pub(super) const DEAD_OF: &str = concat!(
    "SELECT ",
    dead_columns!(),
    dead_deliveries!("tenant_no = $1 AND application_no = $2 AND ", "$3", "$4", "$1")
);
pub(super) const DEAD_OF_ALL: &str =
    concat!("SELECT ", dead_columns!(), dead_deliveries!("", "$1", "$2", "d.tenant_no"));
// From one application to the next, however much of each is dead.
pub(super) const WITH_DEAD: &str =
    "WITH RECURSIVE s AS ((SELECT d.tenant_no, d.application_no FROM delivery d WHERE d.state = 'dead'
       AND (d.tenant_no, d.application_no) > ($1, $2) ORDER BY d.tenant_no, d.application_no LIMIT 1)
     UNION ALL SELECT n.tenant_no, n.application_no FROM s CROSS JOIN LATERAL (SELECT d.tenant_no, d.application_no FROM delivery d
       WHERE d.state = 'dead' AND (d.tenant_no, d.application_no) > (s.tenant_no, s.application_no)
       ORDER BY d.tenant_no, d.application_no LIMIT 1) n)
     SELECT s.tenant_no, s.application_no, (SELECT p.client_id FROM application p WHERE p.application_no = s.application_no)
     FROM s LIMIT $3";
pub(super) const OF_ALL: &str =
    "WITH pending AS (SELECT tenant_no, event_no FROM delivery WHERE state = 'pending' AND (application_no & 63) = ANY($1::bigint[])
     LIMIT $2)
     SELECT (SELECT count(*) FROM pending),
     (SELECT e.created_at FROM (SELECT tenant_no, event_no FROM pending ORDER BY event_no LIMIT 1) first
      CROSS JOIN LATERAL (SELECT created_at FROM event WHERE tenant_no = first.tenant_no AND event_no = first.event_no LIMIT 1) e),
     (SELECT count(*) FROM (SELECT FROM delivery WHERE state = 'dead' LIMIT $2) dead)";

/// Whether an event `e` with its delivery `d` holds up later ones of its bizId. As a value: for `EXISTS` a plan may gather all that the tenant was
/// ever delivered.
macro_rules! holds_up {
    () => {
        "d.state IN ('pending', 'held') AND NOT (d.by_hand AND coalesce((SELECT true FROM attempt a
         WHERE a.tenant_no = $1 AND a.event_no = e.event_no AND a.outcome = 'delivered' LIMIT 1), false))"
    };
}

// Down the index of bizIds, by both of its columns, until one is pending. As in lists of events: the bizId is one of a list, a range is of this
// index alone, and one end is a pair's, so that whatever is known of the tables no other index gives that order.
// `+ 0`: with a limit that is not known beforehand a plan would take an index by the tenant alone.
pub(super) const OPEN_BEFORE: &str = concat!(
    "SELECT e.event_no FROM (SELECT o.biz_id, o.event_no, o.application_no, o.sequence FROM event o WHERE o.biz_id = ANY(ARRAY[$2])
     AND (o.biz_id, o.event_no) <= ($2, $4) AND (o.event_no, o.seq) >= ($3, 0) AND o.event_no < $4 AND $1 = o.tenant_no + 0
     ORDER BY o.biz_id DESC, o.event_no DESC LIMIT $7) e WHERE e.application_no = $5 AND e.sequence < $6 AND (SELECT ",
    holds_up!(),
    " FROM delivery d WHERE d.tenant_no = $1 AND d.event_no = e.event_no) ORDER BY e.biz_id DESC, e.event_no DESC LIMIT 1"
);
pub(super) const MANY_OPEN: &str =
    "SELECT 1::bigint FROM delivery WHERE tenant_no = $1 AND application_no = $2 AND state IN ('pending', 'held')
     LIMIT 1 OFFSET $3";
// As the walks look: below its own number first, from the latest down.
pub(super) const OPEN_AMONG: &str = concat!(
    "SELECT e.event_no FROM delivery d CROSS JOIN LATERAL (SELECT * FROM event WHERE tenant_no = $1 AND event_no = d.event_no LIMIT 1) e
     WHERE d.tenant_no = $1 AND d.application_no = $4 AND e.biz_id = $2 AND e.sequence < $5 AND ",
    holds_up!(),
    " ORDER BY e.event_no < $3 DESC, e.event_no DESC LIMIT 1"
);
