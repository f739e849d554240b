//! Texts of the statements about redeliveries of many events; [`super::statements`] gives them their names.

use crate::redelivery::redelivery_columns;

/// A stretch of an application's events.
macro_rules! sought {
    () => {
        "FROM event e WHERE e.tenant_no = $1 AND e.application_no = $2 AND e.seq > $3 AND e.seq <= $4"
    };
}

/// What the last attempt at one of them says. As a value: a plan that gathered attempts first would read all of the tenant.
macro_rules! last_attempt {
    ($column:literal) => {
        concat!(
            "(SELECT a.",
            $column,
            " FROM attempt a WHERE a.tenant_no = $1 AND a.event_no = e.event_no \
             AND a.attempt = (SELECT d.attempts FROM delivery d WHERE d.tenant_no = $1 AND d.event_no = e.event_no))"
        )
    };
}

/// Whether one of them is meant.
macro_rules! is_sought {
    () => {
        concat!(
            "((SELECT d.state FROM delivery d WHERE d.tenant_no = $1 AND d.event_no = e.event_no) = $6 \
         AND ($7::text IS NULL OR e.biz_id = $7) AND e.created_at >= $8 AND e.created_at < $9 \
         AND ($10::text IS NULL OR ",
            last_attempt!("outcome"),
            " = $10) \
         AND ($11::bigint IS NULL OR ",
            last_attempt!("http_status"),
            " = $11))"
        )
    };
}

// As values and not as joins: the plan goes along the events by `seq`, and ends at the limit.
pub(super) const SOUGHT: &str =
    concat!("SELECT e.event_no, e.seq ", sought!(), " AND ", is_sought!(), " ORDER BY e.seq LIMIT $5");
pub(super) const SOUGHT_COUNT: &str = concat!(
    "SELECT count(*), count(*) FILTER (WHERE w.is_meant), min(w.created_at) FILTER (WHERE w.is_meant),
     min(w.seq) FILTER (WHERE w.is_meant), max(w.seq) FROM (SELECT e.seq, e.created_at, coalesce(",
    is_sought!(),
    ", false) AS is_meant ",
    sought!(),
    " ORDER BY e.seq LIMIT $5) w"
);
pub(super) const FARED: &str = concat!(
    "SELECT count(*), max(w.seq), count(*) FILTER (WHERE w.state IN ('pending', 'held')),
     count(*) FILTER (WHERE w.state = 'delivered'), count(*) FILTER (WHERE w.state = 'dead') FROM (SELECT e.seq,
     (SELECT d.state FROM delivery d WHERE d.tenant_no = $1 AND d.event_no = e.event_no AND d.redelivery_id = $6) AS state ",
    sought!(),
    " ORDER BY e.seq LIMIT $5) w"
);
pub(super) const DELIVERIES_AGAIN: &str =
    "UPDATE delivery SET state = 'pending', due_at = $4, by_hand = TRUE, redelivery_id = $6 WHERE tenant_no = $1
     AND event_no = ANY($2::bigint[]) AND state = $3 AND application_no = $5 RETURNING 1::bigint";
pub(super) const ONE: &str =
    concat!("SELECT ", redelivery_columns!(), " FROM redelivery r WHERE r.redelivery_id = $1 LIMIT $2");
pub(super) const ALL: &str = concat!(
    "SELECT ",
    redelivery_columns!(),
    " FROM redelivery r WHERE r.redelivery_id < $1 ORDER BY r.redelivery_id DESC LIMIT $2"
);
// By the key of the table, whose begin is the tenant: of other tenants nothing is looked at.
pub(super) const OF_ONE: &str = concat!(
    "SELECT ",
    redelivery_columns!(),
    " FROM redelivery r WHERE r.tenant_no = $1 AND r.redelivery_id < $2 AND r.client_id = $3 ORDER BY r.redelivery_id DESC LIMIT $4"
);
pub(super) const RUNNING: &str = concat!(
    "SELECT ",
    redelivery_columns!(),
    " FROM redelivery r WHERE r.state = 'running' AND (r.tenant_no, r.application_no) > ($1, $2)
     AND (r.application_no & 63) = ANY($3::bigint[]) ORDER BY r.tenant_no, r.application_no LIMIT $4"
);
pub(super) const INSERT: &str =
    "INSERT INTO redelivery (tenant_no, redelivery_id, application_no, client_id, of_state, biz_id, from_at, to_at,
     rate_per_s, from_seq, through_seq, cursor_seq, found, is_at_least, done, state, created_at, of_outcome, of_http_status)
     SELECT a.tenant_no, $2::bytea, a.application_no, $4::text, $5::text, $6::text, $7::bigint, $8::bigint, $9::bigint, $10::bigint,
     coalesce((SELECT c.seq FROM event_counter c WHERE c.tenant_no = $1 AND c.application_no = $3), 0),
     $10::bigint, $11::bigint, $12::boolean, 0, 'running', $13::bigint, $14::text, $15::bigint
     FROM application a WHERE a.application_no = $3 AND a.tenant_no = $1
     ON CONFLICT DO NOTHING RETURNING 1::bigint";
pub(super) const MOVE: &str = "UPDATE redelivery SET cursor_seq = $5, done = done + $6, ended_at = $7,
     state = CASE WHEN $7::bigint IS NULL THEN state ELSE 'done' END WHERE tenant_no = $1 AND redelivery_id = $2
     AND application_no = $3 AND state = 'running' AND cursor_seq = $4 RETURNING 1::bigint";
pub(super) const STOP: &str =
    "UPDATE redelivery SET state = 'stopped', ended_at = $4 WHERE tenant_no = $1 AND redelivery_id = $2
     AND application_no = $3 AND state = 'running' AND cursor_seq = $5 RETURNING 1::bigint";
