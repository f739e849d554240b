//! Payment orders, the requests that made them, and their moves.

use super::{Table, blob, int, text};

pub(super) const PAYMENT_ORDER: Table = Table {
    name: "payment_order",
    source: "payment_order",
    key: &["order_no"],
    order: "order_no, tenant_no",
    columns: &[
        int("tenant_no"),
        int("order_no"),
        int("tail"),
        int("merchant_no"),
        int("application_no"),
        text("client_id"),
        text("trade_no"),
        text("kind"),
        text("currency"),
        int("amount"),
        text("merchant_user_id"),
        text("channel_id"),
        text("goods_name"),
        text("goods_detail"),
        text("terminal_type"),
        text("return_url"),
        text("cancel_url"),
        text("status"),
        int("created_at"),
        int("expire_at"),
        int("actual_amount"),
        int("transact_at"),
        int("paid_at"),
        blob("fee_config_id"),
        int("fee_version_no"),
        text("fee_r_markup"),
        int("fee_f_markup"),
        int("r_fee"),
        int("f_fee"),
        text("worked_sum"),
        int("revision"),
        text("actor"),
        text("request_id"),
    ],
};

pub(super) const LAST_PAID: Table = Table {
    name: "last_paid",
    source: "last_paid",
    key: &["merchant_no"],
    order: "merchant_no",
    columns: &[int("tenant_no"), int("merchant_no"), int("paid_at")],
};

pub(super) const PAYMENT_ORDER_REQUEST: Table = Table {
    name: "payment_order_request",
    source: "payment_order_request",
    key: &["order_no"],
    order: "order_no, tenant_no",
    columns: &[int("tenant_no"), int("order_no"), text("request_head"), blob("request_body")],
};

pub(super) const PAYMENT_ORDER_MOVE: Table = Table {
    name: "payment_order_move",
    source: "payment_order_move",
    key: &["order_no", "revision"],
    order: "order_no, tenant_no, revision",
    columns: &[
        int("tenant_no"),
        int("order_no"),
        int("revision"),
        text("was"),
        text("status"),
        int("at"),
        text("actor"),
        text("request_id"),
    ],
};
