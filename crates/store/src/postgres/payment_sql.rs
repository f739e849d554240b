//! The SQL of payment orders, and of the locks that payments and rules share. Statements name these texts, and tests look at them there.

use crate::paid_order::{paid_late, paid_order_columns, paid_soon};
use crate::payment_order::payment_order_columns;

/// How a list begins; what is asked for is added to it. So is to the look for where it ends.
pub(super) const PAYMENT_ORDERS: &str = concat!(
    "SELECT ",
    payment_order_columns!(),
    ", (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = p.merchant_no) FROM payment_order p WHERE true"
);
pub(super) const PAYMENT_ORDERS_EDGE: &str = "SELECT p.order_no, p.tail FROM payment_order p WHERE true";

pub(super) const ONE: &str = concat!(
    "SELECT ",
    payment_order_columns!(),
    " FROM payment_order p WHERE p.tenant_no = $1 AND p.merchant_no = $2 AND p.order_no = $3 AND p.tail = $4"
);
// The order is the key's by trade number, and what is asked for beside it is no condition of any other index: a plan that takes few orders of
// a merchant for granted would read all of them.
pub(super) const BY_TRADE_NO: &str = concat!(
    "SELECT ",
    payment_order_columns!(),
    " FROM payment_order p WHERE (p.trade_no, p.tenant_no, p.merchant_no) >= ($3, $1, $2)
     AND (p.trade_no, p.tenant_no, p.merchant_no) <= ($3, $1, $2) AND $1 = p.tenant_no + 0 AND $2 = p.merchant_no + 0
     ORDER BY p.trade_no, p.tenant_no, p.merchant_no LIMIT 1"
);
pub(super) const OWNER: &str = concat!(
    "SELECT ",
    payment_order_columns!(),
    ", ",
    merchant_columns!(),
    " FROM payment_order p JOIN merchant m ON m.merchant_no = p.merchant_no WHERE p.order_no = $1 AND p.tail = $2"
);
pub(super) const MOVES: &str = "SELECT order_no, revision, was, status, at, actor, request_id FROM payment_order_move
    WHERE tenant_no = $1 AND order_no = $2 ORDER BY revision";
// An order without its request is damaged, and not one that is not there.
pub(super) const RECEIVED: &str =
    "SELECT p.order_no, (SELECT r.request_head FROM payment_order_request r WHERE r.tenant_no = $1 AND r.order_no = $3),
    (SELECT r.request_body FROM payment_order_request r WHERE r.tenant_no = $1 AND r.order_no = $3) FROM payment_order p
    WHERE p.tenant_no = $1 AND p.merchant_no = $2 AND p.order_no = $3 AND p.tail = $4";
macro_rules! expired {
    ($order:literal) => {
        concat!(
            "SELECT ",
            payment_order_columns!(),
            " FROM unnest($1::bigint[]) AS l (lane) CROSS JOIN LATERAL (SELECT * FROM payment_order o WHERE o.status = 'PENDING'
     AND (o.application_no & 63) = l.lane AND o.expire_at <= $2 ORDER BY o.expire_at ",
            $order,
            " LIMIT $3) p ORDER BY p.expire_at ",
            $order,
            ", p.order_no ",
            $order,
            " LIMIT $3"
        )
    };
}

pub(super) const EXPIRED: &str = expired!("ASC");
pub(super) const EXPIRED_LAST: &str = expired!("DESC");

// Each transaction that has written to a table, or those of a list. It has the lock until its commit is over.
pub(super) const UNDER_WAY: &str = "SELECT DISTINCT l.virtualtransaction FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.relation = to_regclass($1::text)::oid AND l.mode = 'RowExclusiveLock' AND l.granted
      AND ($2::text[] IS NULL OR l.virtualtransaction = ANY($2))";

// The tenant is one of a list, and the order begins with it: no constant, so the order is not that of the numbers of all. Of a merchant there is a
// range beside, which is of the merchants' index alone. The walk begins and ends by the number: of that range PostgreSQL ends it by the merchant only,
// and beside the merchant's value it does not begin by it. The time in a bound is always less; without it, a plan takes the range for so small
// that any index will do.
macro_rules! paid_of_merchant {
    ($which:expr) => {
        concat!(
            "SELECT ",
            paid_order_columns!(),
            " FROM payment_order p WHERE p.tenant_no = ANY(ARRAY[$1::bigint]) AND p.paid_at IS NOT NULL AND p.merchant_no = $2
     AND (p.merchant_no, p.order_no) > ($2, $3) AND (p.order_no, p.paid_at) > ($3, 9223372036854775807) AND p.order_no < $4 AND p.paid_at >= $5 AND p.paid_at < $6 AND ",
            $which,
            " ORDER BY p.tenant_no, p.merchant_no, p.order_no LIMIT $7"
        )
    };
}
macro_rules! paid_of_tenant {
    ($which:expr) => {
        concat!(
            "SELECT ",
            paid_order_columns!(),
            " FROM payment_order p WHERE p.tenant_no = ANY(ARRAY[$1::bigint]) AND p.paid_at IS NOT NULL
     AND (p.order_no, p.paid_at) > ($2, 9223372036854775807) AND p.order_no < $3 AND p.paid_at >= $4 AND p.paid_at < $5 AND ",
            $which,
            " ORDER BY p.tenant_no, p.order_no LIMIT $6"
        )
    };
}
pub(super) const PAID_OF_MERCHANT: &str = paid_of_merchant!(paid_soon!());
pub(super) const LATE_OF_MERCHANT: &str = paid_of_merchant!(paid_late!());
pub(super) const PAID_OF_TENANT: &str = paid_of_tenant!(paid_soon!());
pub(super) const LATE_OF_TENANT: &str = paid_of_tenant!(paid_late!());

/// What an order that is to be added would meet: its trade number, or its number.
pub(super) const TAKEN: &str =
    "SELECT p.tenant_no, p.merchant_no, p.order_no, p.trade_no FROM unnest($1::bigint[], $2::bigint[], $3::text[])
    AS a (tenant_no, merchant_no, trade_no) CROSS JOIN LATERAL (SELECT q.tenant_no, q.merchant_no, q.order_no, q.trade_no
    FROM payment_order q WHERE a.tenant_no = q.tenant_no + 0 AND a.merchant_no = q.merchant_no + 0
    AND (q.trade_no, q.tenant_no, q.merchant_no) >= (a.trade_no COLLATE \"C\", a.tenant_no, a.merchant_no)
    AND (q.trade_no, q.tenant_no, q.merchant_no) <= (a.trade_no COLLATE \"C\", a.tenant_no, a.merchant_no)
    ORDER BY q.trade_no, q.tenant_no, q.merchant_no LIMIT 1) p
    UNION SELECT p.tenant_no, p.merchant_no, p.order_no, p.trade_no FROM unnest($1::bigint[], $4::bigint[]) AS a (tenant_no, order_no)
    CROSS JOIN LATERAL (SELECT q.tenant_no, q.merchant_no, q.order_no, q.trade_no FROM payment_order q
    WHERE a.tenant_no = q.tenant_no + 0 AND (q.order_no, q.tenant_no) >= (a.order_no, a.tenant_no)
    AND (q.order_no, q.tenant_no) <= (a.order_no, a.tenant_no) ORDER BY q.order_no, q.tenant_no LIMIT 1) p";
pub(super) const LOCK: &str = "SELECT p.tenant_no, p.merchant_no, p.order_no, p.revision FROM payment_order p
    JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS a (tenant_no, merchant_no, order_no)
    ON p.tenant_no = a.tenant_no AND p.merchant_no = a.merchant_no AND p.order_no = a.order_no
    ORDER BY p.tenant_no, p.order_no FOR NO KEY UPDATE OF p";
pub(super) const SHARE: &str = "SELECT p.tenant_no, p.merchant_no, p.order_no, p.revision FROM payment_order p
    JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS a (tenant_no, merchant_no, order_no)
    ON p.tenant_no = a.tenant_no AND p.merchant_no = a.merchant_no AND p.order_no = a.order_no
    ORDER BY p.tenant_no, p.order_no FOR SHARE OF p SKIP LOCKED";
pub(super) const INSERT: &str =
    "INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no,
    kind, currency, amount, merchant_user_id, channel_id, goods_name, goods_detail, terminal_type, return_url, cancel_url, status,
    created_at, expire_at, revision, actor, request_id)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
    $19::bigint[], $20::bigint[], $21::bigint[], $22::text[], $23::text[])";
pub(super) const REQUESTS_INSERT: &str =
    "INSERT INTO payment_order_request (tenant_no, order_no, request_head, request_body)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[])";
pub(super) const MOVE: &str = "UPDATE payment_order p SET status = a.status, actual_amount = a.actual_amount,
    transact_at = a.transact_at, paid_at = a.paid_at, fee_config_id = a.fee_config_id, fee_version_no = a.fee_version_no,
    fee_r_markup = a.fee_r_markup, fee_f_markup = a.fee_f_markup, r_fee = a.r_fee, f_fee = a.f_fee, worked_sum = a.worked_sum,
    revision = a.revision FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::bytea[], $9::bigint[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::bigint[])
    AS a (tenant_no, merchant_no, order_no, status, actual_amount, transact_at, paid_at, fee_config_id, fee_version_no, fee_r_markup,
    fee_f_markup, r_fee, f_fee, worked_sum, revision)
    WHERE p.tenant_no = a.tenant_no AND p.merchant_no = a.merchant_no AND p.order_no = a.order_no";
pub(super) const MOVES_INSERT: &str =
    "INSERT INTO payment_order_move (tenant_no, order_no, revision, was, status, at, actor, request_id)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])";
// Who pays and who makes a version of one sub-account go one after the other: by the row of what was paid last, and while there is none by the
// merchant's. Whoever makes that row holds the merchant's until the row can be seen.
pub(super) const PAYEES_LOCK: &str =
    "SELECT 1::bigint FROM merchant m JOIN unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, merchant_no)
    ON m.merchant_no = a.merchant_no AND m.tenant_no = a.tenant_no
    WHERE NOT EXISTS (SELECT 1 FROM last_paid l WHERE l.tenant_no = a.tenant_no AND l.merchant_no = a.merchant_no)
    ORDER BY m.tenant_no, m.merchant_no FOR NO KEY UPDATE OF m";
pub(super) const LAST_PAID_LOCK: &str = "SELECT l.tenant_no, l.merchant_no, l.paid_at FROM last_paid l
    JOIN unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, merchant_no)
    ON l.tenant_no = a.tenant_no AND l.merchant_no = a.merchant_no
    ORDER BY l.tenant_no, l.merchant_no FOR NO KEY UPDATE OF l";
pub(super) const HEADS_LOCK: &str = "SELECT h.tenant_no, h.merchant_no, h.version_no, h.config_id FROM fee_rule_head h
    JOIN unnest($1::bigint[], $2::bigint[]) AS a (tenant_no, merchant_no)
    ON h.tenant_no = a.tenant_no AND h.merchant_no = a.merchant_no
    ORDER BY h.tenant_no, h.merchant_no FOR UPDATE OF h";
pub(super) const LAST_PAID_PUT: &str = "INSERT INTO last_paid AS l (tenant_no, merchant_no, paid_at)
    SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[])
    ON CONFLICT (tenant_no, merchant_no) DO UPDATE SET paid_at = greatest(l.paid_at, excluded.paid_at)";
