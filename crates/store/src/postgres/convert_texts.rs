//! Texts of the statements about convert orders, rates and quotes; [`super::statements`] gives them their names.

use crate::conversion::{quote_columns, rate_columns};

pub(super) const ORDER: &str = concat!(
    "SELECT ",
    order_columns!(),
    " FROM convert_order o WHERE o.tenant_no = $1 AND o.order_id = $2 AND o.merchant_no = $3"
);
pub(super) const ORDER_OWNER: &str = concat!(
    "SELECT ",
    merchant_columns!(),
    ", ",
    order_columns!(),
    " FROM convert_order o JOIN merchant m ON m.merchant_no = o.merchant_no WHERE o.tenant_no = $1 AND o.order_id = $2"
);
// Below $1 and above $2, at most $3, in a status or $4 in any.
macro_rules! orders {
    ($from:literal, $of:literal) => {
        concat!(
            "SELECT ",
            order_columns!(),
            ", (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = o.merchant_no) FROM ",
            $from,
            " WHERE o.order_id < $1 AND o.order_id > $2 AND ($4::bigint IS NULL OR o.status = $4)",
            $of,
            " ORDER BY o.order_id DESC LIMIT $3"
        )
    };
}
// Beside the merchant a range that is of the merchants' index alone: where one merchant has nearly all orders of a tenant, PostgreSQL takes any merchant
// for that one, and would walk over all of the tenant's.
pub(super) const ORDERS_OF: &str = orders!(
    "convert_order o",
    " AND o.merchant_no = $5 AND o.tenant_no = $6 AND (o.merchant_no, o.order_id) < ($5, $1)"
);
pub(super) const ORDERS_OPEN: &str = orders!("convert_order o", " AND o.status = 1");
// The directory has all of them in the order of their numbers.
pub(super) const ORDERS: &str = concat!(
    "SELECT ",
    order_columns!(),
    ", (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = o.merchant_no) FROM order_directory i
     JOIN convert_order o ON o.tenant_no = i.tenant_no AND o.order_id = i.order_id
     WHERE i.order_id < $1 AND i.order_id > $2 AND ($4::bigint IS NULL OR o.status = $4) ORDER BY i.order_id DESC LIMIT $3"
);
// The first one below $1 behind so many ($2).
pub(super) const ORDERS_OF_EDGE: &str = "SELECT o.order_id FROM convert_order o
     WHERE o.order_id < $1 AND o.merchant_no = $3 AND o.tenant_no = $4 AND (o.merchant_no, o.order_id) < ($3, $1) ORDER BY o.order_id DESC LIMIT 1 OFFSET $2";
pub(super) const ORDERS_EDGE: &str =
    "SELECT order_id FROM order_directory WHERE order_id < $1 ORDER BY order_id DESC LIMIT 1 OFFSET $2";
pub(super) const ORDER_DIRECTORY_INSERT: &str =
    "INSERT INTO order_directory (order_id, tenant_no) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1::bigint";
pub(super) const ORDER_INSERT: &str =
    "INSERT INTO convert_order (tenant_no, order_id, merchant_no, user_id, sell_currency, buy_currency,
     sell_amount, buy_amount, status, rate, quote_id, created_at, revision)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING RETURNING 1::bigint";
pub(super) const ORDER_UPDATE: &str = "UPDATE convert_order SET status = $3, revision = $4::bigint
     WHERE tenant_no = $1 AND order_id = $2 AND revision = $4::bigint - 1 RETURNING 1::bigint";
pub(super) const MOVES: &str = "SELECT m.revision, m.status, m.at, m.order_id FROM convert_order_move m
     WHERE m.tenant_no = $1 AND m.order_id = $2 ORDER BY m.revision";
pub(super) const RATE: &str = concat!("SELECT ", rate_columns!(), " FROM pair_rate r WHERE r.pair = $1");
pub(super) const RATES: &str =
    concat!("SELECT ", rate_columns!(), " FROM pair_rate r WHERE r.pair > $1 ORDER BY r.pair LIMIT $2");
pub(super) const RATE_INSERT: &str =
    "INSERT INTO pair_rate (pair, rate, base_min, base_max, quote_min, quote_max, revision, stale_told, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8) ON CONFLICT DO NOTHING RETURNING 1::bigint";
pub(super) const RATE_UPDATE: &str =
    "UPDATE pair_rate SET rate = $2, base_min = $3, base_max = $4, quote_min = $5, quote_max = $6,
     revision = $7::bigint, updated_at = $8 WHERE pair = $1 AND revision = $7::bigint - 1 RETURNING 1::bigint";
pub(super) const RATE_TOLD: &str = "UPDATE pair_rate SET stale_told = $2::bigint
     WHERE pair = $1 AND revision = $2::bigint AND stale_told < $2::bigint RETURNING 1::bigint";
pub(super) const QUOTE: &str = concat!(
    "SELECT ",
    quote_columns!(),
    " FROM convert_quote q WHERE q.tenant_no = $1 AND q.merchant_no = $2 AND q.quote_id = $3"
);
pub(super) const QUOTE_INSERT: &str =
    "INSERT INTO convert_quote (tenant_no, merchant_no, quote_id, pair, sell_currency, buy_currency, sell_amount,
     buy_amount, rate, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
     ON CONFLICT DO NOTHING RETURNING 1::bigint";
pub(super) const QUOTES_FORGET: &str =
    "DELETE FROM convert_quote WHERE $1 = tenant_no + 0 AND ctid = ANY(ARRAY(SELECT o.ctid FROM convert_quote o
     WHERE o.tenant_no = $1 AND o.expires_at < $2 ORDER BY o.expires_at, o.merchant_no, o.quote_id LIMIT $3
     FOR UPDATE SKIP LOCKED))";
pub(super) const QUOTE_USE: &str = "UPDATE convert_quote SET order_id = $4
     WHERE tenant_no = $1 AND merchant_no = $2 AND quote_id = $3 AND order_id IS NULL RETURNING 1::bigint";
// Where a batch that uses it has it, nobody waits: it is not there.
pub(super) const QUOTE_UNUSED: &str = "SELECT 1::bigint FROM convert_quote
     WHERE tenant_no = $1 AND merchant_no = $2 AND quote_id = $3 AND order_id IS NULL FOR SHARE SKIP LOCKED";
// The order by its whole key: a join would leave the planner the choice of reading all of a tenant's.
pub(super) const REQUEST: &str = concat!(
    "SELECT ",
    order_columns!(),
    " FROM convert_order o WHERE o.tenant_no = $1 AND o.merchant_no = $2 AND o.order_id = (SELECT c.order_id \
     FROM convert_request c WHERE c.tenant_no = $1 AND c.merchant_no = $2 AND c.client_req_id = $3)"
);
pub(super) const REQUEST_INSERT: &str =
    "INSERT INTO convert_request (tenant_no, merchant_no, client_req_id, order_id) VALUES ($1, $2, $3, $4)
     ON CONFLICT DO NOTHING RETURNING 1::bigint";
