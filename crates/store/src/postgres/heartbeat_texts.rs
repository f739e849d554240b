//! The SQL of heartbeats that has to stand a clock of the database which was ahead, or a second process under one node's id.

/// Who was seen within a lease of now. Later than now nobody was: such a row is of before the clock went back.
macro_rules! is_alive {
    ($lease:literal) => {
        concat!("(n.seen_at > ", now!(), " - ", $lease, " AND n.seen_at < ", now!(), " + ", $lease, ")")
    };
}

/// Whether the id $1 is still that of the process which began at this time, null of one that does not know when it did. It is not if another one has
/// begun under that id: a data folder was copied, or the process slept while its folder was used again.
macro_rules! is_still {
    ($begun_at:literal) => {
        concat!(
            "(",
            $begun_at,
            " IS NULL OR EXISTS (SELECT 1 FROM node WHERE node_id = $1 AND started_at = ",
            $begun_at,
            "))"
        )
    };
}

/// Whether node `n` has a share of the lanes: not one that leaves. A program from before that was said says nothing.
macro_rules! stays {
    () => {
        "NOT EXISTS (SELECT 1 FROM node_program s WHERE s.node_id = n.node_id AND s.leaves)"
    };
}

// A process that begins takes its id over, whoever had it. Of one that runs, $5 says when it began: it is seen unless another one has begun since and
// is alive. Where that one is not, this one begins anew. Answers when the process that was seen began, and when it was seen: now;
// nothing if it is not this one.
pub(super) const SEEN: &str = concat!(
    "INSERT INTO node AS n (node_id, name, started_at, seen_at, clock_ahead_ms)
     SELECT $1, $2, CASE WHEN $4 THEN t.now ELSE coalesce($5, t.now) END, t.now, $3 FROM (SELECT ",
    now!(),
    " AS now) t
     ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, seen_at = excluded.seen_at, clock_ahead_ms = excluded.clock_ahead_ms,
     started_at = CASE WHEN NOT $4 AND ($5 IS NULL OR n.started_at = $5) THEN n.started_at
                  ELSE greatest(excluded.seen_at, n.started_at + 1) END
     WHERE $4 OR $5::bigint IS NULL OR n.started_at = $5 OR NOT ",
    is_alive!("$6::bigint"),
    " RETURNING n.started_at, n.seen_at"
);

// Written once, and read with each beat: another node may have forgotten this one.
pub(super) const SAYS: &str = concat!(
    "INSERT INTO node_program (node_id, version, key_id, settings, leaves) SELECT $1, $2, $3, $4, $5
     WHERE NOT EXISTS (SELECT 1 FROM node_program
                       WHERE node_id = $1 AND version = $2 AND key_id = $3 AND settings = $4 AND leaves = $5) AND ",
    is_still!("$6::bigint"),
    " ON CONFLICT (node_id) DO UPDATE SET version = excluded.version, key_id = excluded.key_id, settings = excluded.settings,
     leaves = excluded.leaves"
);

pub(super) const GONE: &str =
    "WITH gone AS (DELETE FROM node WHERE node_id = $1 AND ($2::bigint IS NULL OR started_at = $2) RETURNING node_id)
     DELETE FROM node_program p USING gone WHERE p.node_id = gone.node_id";

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

/// Whether it is between these times. The first one is never further ahead than a lease, or 5 s, unless the clock went back since. Null: nothing is
/// known against it.
macro_rules! may_take {
    ($from:literal, $by:literal, $lease:literal) => {
        concat!(
            "coalesce((",
            now!(),
            " >= ",
            $from,
            " OR ",
            now!(),
            " < ",
            $from,
            " - greatest(5000, ",
            $lease,
            ")) AND ",
            now!(),
            " <= ",
            $by,
            ", true)"
        )
    };
}

pub(super) const RENEW: &str = concat!(
    "UPDATE delivery_lane l SET expires_at = ",
    now!(),
    " + $4::bigint FROM unnest($2::bigint[], $3::bigint[]) AS a (lane, fence)
     WHERE l.lane = a.lane AND l.fence = a.fence AND l.node = $1 AND ",
    is_still!("$5::bigint"),
    " RETURNING l.lane, l.fence"
);

// What others are about to renew, to take or to commit under is locked, and left alone until the next heartbeat. A term that ends later than the
// longest lease from now, a minute, was begun while the clock was ahead: it ends then, which is not before whoever has it stops believing in it.
//
// A process whose id is another's now takes nothing. From other nodes it takes only between $5 and $6.
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
     free AS (SELECT lane FROM delivery_lane WHERE (node IS NULL OR expires_at <= ",
    now!(),
    " AND (node = $1 OR ",
    may_take!("$5::bigint", "$6::bigint", "$2::bigint"),
    ")) AND ",
    is_still!("$4::bigint"),
    " ORDER BY lane LIMIT greatest(0, least($3::bigint, (SELECT (63 + nodes) / nodes FROM alive))
         - (SELECT count(*) FROM delivery_lane WHERE node = $1 AND expires_at > ",
    now!(),
    ")) FOR UPDATE SKIP LOCKED)
     UPDATE delivery_lane l SET node = $1, fence = l.fence + 1, expires_at = ",
    now!(),
    " + $2::bigint FROM free WHERE l.lane = free.lane RETURNING l.lane, l.fence"
);
