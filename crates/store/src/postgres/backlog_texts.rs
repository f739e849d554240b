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
