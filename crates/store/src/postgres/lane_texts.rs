//! The SQL of heartbeats that has to stand a clock of the database which was ahead.

/// Who was seen within a lease of now. Later than now nobody was: such a row is of before the clock went back.
macro_rules! is_alive {
    ($lease:literal) => {
        concat!("seen_at > ", now!(), " - ", $lease, " AND seen_at < ", now!(), " + ", $lease)
    };
}

/// Whether node `n` has a share of the lanes: not one that leaves. A program from before that was said says nothing.
macro_rules! stays {
    () => {
        "NOT EXISTS (SELECT 1 FROM node_program s WHERE s.node_id = n.node_id AND s.leaves)"
    };
}

// A row for each that stays, with what it has noted of its settings where the node that asks, $2, has noted something else.
pub(super) const ALIVE: &str = concat!(
    "SELECT n.node_id, n.name, CASE WHEN p.settings <> own.settings THEN p.settings END
     FROM node n LEFT JOIN node_program p ON p.node_id = n.node_id LEFT JOIN node_program own ON own.node_id = $2 WHERE ",
    is_alive!("$1::bigint"),
    " AND ",
    stays!()
);

// Those that are alive first, then those that have run for longest. A program from before it was said says nothing.
pub(super) const NODES: &str = concat!(
    "SELECT n.node_id, n.name, coalesce(p.version, ''), coalesce(p.key_id, ''), coalesce(p.settings, ''), n.started_at, n.seen_at, n.clock_ahead_ms, ",
    is_alive!("$1::bigint"),
    " AS is_alive, (SELECT count(*) FROM delivery_lane l WHERE l.node = n.node_id AND l.expires_at > ",
    now!(),
    ") FROM node n LEFT JOIN node_program p ON p.node_id = n.node_id ORDER BY is_alive DESC, n.started_at, n.node_id LIMIT $2"
);

// What others are about to renew, to take or to commit under is locked, and left alone until the next heartbeat. A term that ends later than the
// longest lease from now, a minute, was begun while the clock was ahead: it ends then, which is not before whoever has it stops believing in it.
pub(super) const TAKE: &str = concat!(
    "WITH far AS (SELECT lane FROM delivery_lane WHERE expires_at > ",
    now!(),
    " + 60000 FOR UPDATE SKIP LOCKED),
     shortened AS (UPDATE delivery_lane s SET expires_at = ",
    now!(),
    " + 60000 FROM far WHERE s.lane = far.lane),
     alive AS (SELECT greatest(count(*), 1) AS nodes FROM node n WHERE ",
    is_alive!("$2::bigint"),
    " AND ",
    stays!(),
    "),
     free AS (SELECT lane FROM delivery_lane WHERE node IS NULL OR expires_at <= ",
    now!(),
    " ORDER BY lane LIMIT greatest(0, least($3::bigint, (SELECT (63 + nodes) / nodes FROM alive))
         - (SELECT count(*) FROM delivery_lane WHERE node = $1 AND expires_at > ",
    now!(),
    ")) FOR UPDATE SKIP LOCKED)
     UPDATE delivery_lane l SET node = $1, fence = l.fence + 1, expires_at = ",
    now!(),
    " + $2::bigint FROM free WHERE l.lane = free.lane RETURNING l.lane, l.fence"
);
