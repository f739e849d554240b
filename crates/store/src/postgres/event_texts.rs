//! Texts of the lists of events for operators, to which what is asked for is added, and of what is old enough to be freed.

use crate::conditions::{goes_out, is_too_old};

macro_rules! listed {
    ($from:literal) => {
        concat!("SELECT ", event_columns!(), ", coalesce(", goes_out!(), ", false)", $from)
    };
}

/// From the event to its delivery: an outer join as [`crate::conditions::stands_in`] leaves it.
pub(super) const EVENTS: &str =
    listed!(" FROM event e LEFT JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no WHERE true");
pub(super) const EVENTS_LOOK: &str = "SELECT e.event_no, e.event_no FROM event e WHERE true";
pub(super) const EVENTS_LOOK_BY_SEQ: &str = "SELECT e.event_no, e.seq FROM event e WHERE true";
/// From the delivery to its event. The limit keeps a plan from beginning with events.
pub(super) const EVENTS_DEAD: &str = listed!(
    " FROM delivery d CROSS JOIN LATERAL (SELECT * FROM event WHERE tenant_no = d.tenant_no AND event_no = d.event_no LIMIT 1) e
     WHERE d.state = 'dead'"
);

/// The first events of an application, and whether each may go.
macro_rules! first_events {
    () => {
        concat!(
            "(SELECT e.seq, ",
            is_too_old!("$1", "$6"),
            " AS goes FROM event e LEFT JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no
              WHERE e.tenant_no = c.tenant_no AND e.application_no = c.application_no ORDER BY e.seq LIMIT $2)"
        )
    };
}

// Of the first events of each application, those before the first one that stays; the last one that is looked at stays in any case. The look
// ends at the first one that stays, and sizes are read of those before it alone.
pub(super) const OLD: &str = concat!(
    "SELECT c.tenant_no, c.application_no, x.events, x.held, x.attempts, x.bytes FROM event_counter c CROSS JOIN LATERAL (
     SELECT coalesce((SELECT w.seq FROM ",
    first_events!(),
    " w WHERE NOT w.goes ORDER BY w.seq LIMIT 1), (SELECT max(w.seq) FROM ",
    first_events!(),
    " w)) AS seq OFFSET 0) stays CROSS JOIN LATERAL (
     SELECT count(*) AS events, count(*) FILTER (WHERE d.state = 'held') AS held, coalesce(sum(d.attempts), 0)::bigint AS attempts,
     coalesce(sum(octet_length(e.body) + octet_length(e.data)), 0)::bigint AS bytes
     FROM event e JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no
     WHERE e.tenant_no = c.tenant_no AND e.application_no = c.application_no AND e.seq < stays.seq) x
     WHERE (c.tenant_no, c.application_no) > ($3, $4) ORDER BY c.tenant_no, c.application_no LIMIT $5"
);

/// The same of one application behind a `seq`.
macro_rules! next_events {
    () => {
        concat!(
            "(SELECT e.seq, ",
            is_too_old!("$1", "$6"),
            " AS goes FROM event e LEFT JOIN delivery d ON d.tenant_no = e.tenant_no AND d.event_no = e.event_no
              WHERE e.tenant_no = $3 AND e.application_no = $4 AND e.seq > $5 ORDER BY e.seq LIMIT $2)"
        )
    };
}

// The limit on a delivery keeps a plan from gathering all of the tenant.
pub(super) const OLD_OF: &str = concat!(
    "SELECT x.events, x.held, x.attempts, x.bytes, x.last FROM (SELECT coalesce((SELECT w.seq FROM ",
    next_events!(),
    " w WHERE NOT w.goes ORDER BY w.seq LIMIT 1), (SELECT max(w.seq) FROM ",
    next_events!(),
    " w)) AS seq OFFSET 0) stays CROSS JOIN LATERAL (
     SELECT count(*) AS events, count(*) FILTER (WHERE d.state = 'held') AS held, coalesce(sum(d.attempts), 0)::bigint AS attempts,
     coalesce(sum(octet_length(e.body) + octet_length(e.data)), 0)::bigint AS bytes, max(e.seq) AS last
     FROM event e CROSS JOIN LATERAL (SELECT attempts, state FROM delivery WHERE tenant_no = e.tenant_no AND event_no = e.event_no LIMIT 1) d
     WHERE e.tenant_no = $3 AND e.application_no = $4 AND e.seq > $5 AND e.seq < stays.seq) x"
);

/// Events of three applications in turns, all of one business, none of them open; every hundredth is dead.
#[cfg(all(test, feature = "testing"))]
pub(super) const MANY: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, n, 'm' || n, 'institution', 'm', '0', 0, n, true, 1, 0 FROM generate_series(1, 3) n;
    INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled, callback_enabled, callback_encoding,
      callback_vocabulary, revision, created_at)
      SELECT n, n, CASE n WHEN 1 THEN 'app_one' ELSE 'app_' || n END, n, 'a', true, true, 'hex', 'standard', 1, 0 FROM generate_series(1, 3) n;
    INSERT INTO event (tenant_no, event_no, application_no, client_id, event_id, seq, sequence, biz_type, biz_id, biz_status, data, body, created_at)
      SELECT 1 + n % 3, n, 1 + n % 3, 'app_' || 1 + n % 3, decode(lpad(to_hex(n), 32, '0'), 'hex'), n, n, 'T', 'b', 'S', '{}', '', n
      FROM generate_series(1, 12000) n;
    INSERT INTO delivery (tenant_no, event_no, application_no, state, attempts, due_at)
      SELECT tenant_no, event_no, application_no, CASE event_no % 100 WHEN 0 THEN 'dead' ELSE 'delivered' END, 1, NULL FROM event;
    INSERT INTO event_counter (tenant_no, application_no, seq) SELECT n, n, 12000 FROM generate_series(1, 3) n;";

/// The oldest ones are of another business.
#[cfg(all(test, feature = "testing"))]
pub(super) const SOME_OF_ANOTHER: &str = "UPDATE event SET biz_id = 'other' WHERE event_no <= 3000";
