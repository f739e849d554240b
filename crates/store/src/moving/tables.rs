//! Every table, and what becomes of it in a move. A test holds this list against both schemas, so that none can be forgotten.

use super::Cell;

mod payment_orders;

/// What is in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Text,
    Blob,
    /// 0 or 1 in SQLite, a boolean in PostgreSQL.
    Flag,
}

/// A column of PostgreSQL's table, and the expression over SQLite's that gives its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) source: &'static str,
}

impl Column {
    /// The same, where SQLite has no such column and the value is made.
    const fn made_from(self, source: &'static str) -> Self {
        Self { source, ..self }
    }
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Kind::Int, source: name }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text, source: name }
}

const fn blob(name: &'static str) -> Column {
    Column { name, kind: Kind::Blob, source: name }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Flag, source: name }
}

/// A table that is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// What its rows are selected from in SQLite: the same table, unless its rows are made.
    pub(crate) source: &'static str,
    /// The columns that name a row.
    pub(crate) key: &'static [&'static str],
    /// The order in which both sides are read, in words of both dialects. It leaves no choice, and no row refers to a later one.
    pub(crate) order: &'static str,
    pub(crate) columns: &'static [Column],
}

/// Rows of a fetch, and of one whose rows may be large: half a megabyte each, and several fetches are under way at once.
const ROWS_PER_FETCH: u16 = 1000;
const LARGE_ROWS_PER_FETCH: u16 = 50;
/// Tables whose rows hold what callers sent: a body, or what was before and after.
const LARGE: &[&str] = &["attempt_bytes", "audit", "event", "idempotency", "payment_order", "payment_order_request"];

impl Table {
    /// How many rows are asked for at a time.
    pub(crate) fn rows_per_fetch(&self) -> u16 {
        if LARGE.contains(&self.name) { LARGE_ROWS_PER_FETCH } else { ROWS_PER_FETCH }
    }

    /// A row by its key.
    pub(crate) fn row_in_words(&self, row: &[Cell]) -> String {
        let key = |name: &&str| {
            let at = self.columns.iter().position(|column| column.name == *name);
            format!("{name} {}", at.map_or_else(String::new, |at| row[at].words()))
        };
        self.key.iter().map(key).collect::<Vec<_>>().join(", ")
    }
}

/// In this order: no row refers to a table that comes later.
pub(crate) const TABLES: &[Table] = &[
    Table {
        name: "setting",
        // What the file says of its own move stays with it.
        source: "setting WHERE name NOT IN ('move_id', 'moving_to', 'move_ends', 'moved_to')",
        key: &["name"],
        order: "name",
        columns: &[text("name"), text("value")],
    },
    Table {
        name: "merchant",
        source: "merchant",
        key: &["merchant_no"],
        // Whoever is its own tenant comes first: a sub-account refers to its institution.
        order: "tenant_no <> merchant_no, merchant_no",
        columns: &[
            int("tenant_no"),
            int("merchant_no"),
            text("merchant_id"),
            text("kind"),
            text("name"),
            text("base_r"),
            int("base_f"),
            int("user_id"),
            flag("enabled"),
            int("revision"),
            int("created_at"),
        ],
    },
    Table {
        name: "application",
        source: "application",
        key: &["application_no"],
        order: "application_no",
        columns: &[
            int("tenant_no"),
            int("application_no"),
            text("client_id"),
            int("merchant_no"),
            text("name"),
            flag("enabled"),
            text("callback_url"),
            flag("callback_enabled"),
            int("callback_gone_at"),
            text("callback_encoding"),
            text("callback_vocabulary"),
            int("timestamp_tolerance_ms"),
            int("tolerance_before_ms"),
            int("tolerance_raised_at"),
            int("rate_limit_per_s"),
            int("callback_rate_per_s"),
            int("callback_concurrency"),
            text("callback_schedule"),
            int("revision"),
            int("created_at"),
        ],
    },
    Table {
        name: "secret",
        source: "secret",
        key: &["secret_id"],
        order: "secret_id",
        columns: &[
            int("application_no"),
            text("secret_id"),
            text("key_id"),
            blob("sealed"),
            text("fingerprint"),
            text("last4"),
            flag("signs_callbacks"),
            int("created_at"),
            int("not_after"),
            int("revoked_at"),
            int("last_used_at"),
        ],
    },
    Table {
        name: "secret_use",
        source: "secret_use",
        key: &["secret_id", "minute"],
        order: "secret_id, minute",
        columns: &[text("secret_id"), int("minute"), int("uses")],
    },
    Table {
        name: "operator_token",
        source: "operator_token",
        key: &["token_id"],
        order: "token_id",
        columns: &[
            text("token_id"),
            text("name"),
            blob("digest"),
            text("role"),
            int("created_at"),
            int("expires_at"),
            int("revoked_at"),
            int("last_used_at"),
        ],
    },
    Table {
        name: "fee_rule",
        source: "fee_rule",
        key: &["merchant_no", "version_no"],
        order: "merchant_no, version_no",
        columns: &[
            int("tenant_no"),
            int("merchant_no"),
            int("version_no"),
            blob("config_id"),
            blob("previous_config_id"),
            int("base_version_no"),
            text("r_markup"),
            int("f_markup"),
            int("effective_at"),
            int("due_at"),
            int("created_at"),
        ],
    },
    Table {
        name: "fee_rule_head",
        source: "fee_rule_head",
        key: &["merchant_no"],
        order: "merchant_no",
        columns: &[
            int("tenant_no"),
            int("merchant_no"),
            int("version_no"),
            blob("config_id").made_from("(SELECT f.config_id FROM fee_rule f WHERE f.rule_no = fee_rule_head.last_no)"),
            int("base_version_no"),
        ],
    },
    Table {
        name: "order_directory",
        // There the order's own key says whose it is.
        source: "convert_order",
        key: &["order_id"],
        order: "order_id",
        columns: &[int("order_id"), int("tenant_no")],
    },
    Table {
        name: "convert_order",
        source: "convert_order",
        key: &["order_id"],
        order: "order_id",
        columns: &[
            int("tenant_no"),
            int("order_id"),
            int("merchant_no"),
            int("user_id"),
            text("sell_currency"),
            text("buy_currency"),
            int("sell_amount"),
            int("buy_amount"),
            int("status"),
            text("rate"),
            text("quote_id"),
            int("created_at"),
            int("revision"),
        ],
    },
    Table {
        name: "convert_order_move",
        source: "convert_order_move",
        key: &["order_id", "revision"],
        order: "order_id, revision",
        columns: &[int("tenant_no"), int("order_id"), int("revision"), int("status"), int("at")],
    },
    payment_orders::PAYMENT_ORDER,
    payment_orders::LAST_PAID,
    payment_orders::PAYMENT_ORDER_REQUEST,
    payment_orders::PAYMENT_ORDER_MOVE,
    Table {
        name: "convert_quote",
        source: "convert_quote",
        key: &["merchant_no", "quote_id"],
        order: "merchant_no, quote_id",
        columns: &[
            int("tenant_no"),
            int("merchant_no"),
            text("quote_id"),
            text("pair"),
            text("sell_currency"),
            text("buy_currency"),
            int("sell_amount"),
            int("buy_amount"),
            text("rate"),
            int("created_at"),
            int("expires_at"),
            int("order_id"),
        ],
    },
    Table {
        name: "convert_request",
        source: "convert_request",
        key: &["merchant_no", "client_req_id"],
        order: "merchant_no, client_req_id",
        columns: &[int("tenant_no"), int("merchant_no"), text("client_req_id"), int("order_id")],
    },
    Table {
        name: "pair_rate",
        source: "pair_rate",
        key: &["pair"],
        order: "pair",
        columns: &[
            text("pair"),
            text("rate"),
            int("base_min"),
            int("base_max"),
            int("quote_min"),
            int("quote_max"),
            int("revision"),
            int("stale_told"),
            int("updated_at"),
        ],
    },
    Table {
        name: "event",
        source: "event",
        key: &["event_no"],
        order: "event_no",
        columns: &[
            int("tenant_no"),
            int("event_no"),
            int("application_no"),
            text("client_id"),
            blob("event_id"),
            int("seq"),
            int("sequence"),
            text("biz_type"),
            text("biz_id"),
            text("biz_status"),
            text("data"),
            blob("body"),
            int("created_at"),
        ],
    },
    Table {
        name: "delivery",
        source: "delivery",
        key: &["event_no"],
        order: "event_no",
        columns: &[
            int("tenant_no"),
            int("event_no"),
            int("application_no"),
            text("state"),
            int("attempts"),
            int("due_at"),
            int("behind_no"),
            flag("by_hand"),
            blob("redelivery_id"),
        ],
    },
    Table {
        name: "delivery_turn",
        source: "delivery_turn",
        key: &["tenant_no", "application_no"],
        order: "tenant_no, application_no",
        columns: &[int("tenant_no"), int("application_no"), int("due_at")],
    },
    Table {
        name: "redelivery",
        source: "redelivery",
        key: &["redelivery_id"],
        order: "redelivery_id",
        columns: &[
            int("tenant_no"),
            blob("redelivery_id"),
            int("application_no"),
            text("client_id"),
            text("of_state"),
            text("biz_id"),
            int("from_at"),
            int("to_at"),
            text("of_outcome"),
            int("of_http_status"),
            int("rate_per_s"),
            int("from_seq"),
            int("through_seq"),
            int("cursor_seq"),
            int("found"),
            flag("is_at_least"),
            int("done"),
            text("state"),
            int("created_at"),
            int("ended_at"),
        ],
    },
    Table {
        name: "attempt",
        source: "attempt",
        key: &["event_no", "attempt"],
        order: "event_no, attempt",
        columns: &[
            int("tenant_no"),
            int("event_no"),
            int("attempt"),
            int("at"),
            text("outcome"),
            int("http_status"),
            int("duration_ms"),
            text("address"),
            text("detail"),
            int("fence"),
            int("dns_us"),
            int("connect_us"),
            int("tls_us"),
            int("first_byte_us"),
            int("total_us"),
            flag("reused"),
        ],
    },
    Table {
        name: "attempt_bytes",
        source: "attempt_bytes",
        key: &["event_no", "attempt"],
        order: "tenant_no, at, event_no, attempt",
        columns: &[
            int("tenant_no"),
            int("event_no"),
            int("attempt"),
            int("at"),
            blob("sent_head"),
            blob("answer_head"),
            blob("answer_body"),
            int("answer_length"),
            flag("is_cut"),
        ],
    },
    Table {
        name: "event_counter",
        source: "event_counter",
        key: &["application_no"],
        order: "application_no",
        columns: &[int("tenant_no"), int("application_no"), int("seq")],
    },
    Table {
        name: "biz_counter",
        source: "biz_counter",
        key: &["application_no", "biz_id"],
        order: "biz_id, application_no",
        columns: &[int("tenant_no"), int("application_no"), text("biz_id"), int("sequence")],
    },
    Table {
        name: "idempotency",
        source: "idempotency",
        key: &["scope", "key"],
        order: "scope, key",
        columns: &[text("scope"), text("key"), blob("body_digest"), int("status"), text("answer"), int("created_at")],
    },
    Table {
        name: "audit_head",
        source: "audit_head",
        key: &["tenant_no"],
        order: "tenant_no",
        columns: &[int("tenant_no"), int("audit_no"), blob("link")],
    },
    Table {
        name: "audit",
        source: "audit",
        key: &["tenant_no", "audit_no"],
        order: "at, tenant_no, audit_no",
        columns: &[
            int("tenant_no"),
            int("audit_no"),
            int("at"),
            text("actor"),
            text("source"),
            text("action"),
            text("subject"),
            text("before"),
            text("after"),
            text("request_id"),
            blob("link"),
        ],
    },
];

/// Tables and columns that are not copied, in either dialect, and why. A column is `table.column`.
#[cfg(test)]
pub(crate) const NOT_MOVED: &[(&str, &str)] = &[
    ("schema_step", "each database has the steps of its own dialect"),
    ("nonce", "the horizon of the target is raised over every nonce that was ever accepted, so none needs to be known"),
    ("replay", "made anew in the last step, with that horizon and a key of its own"),
    ("commit_mark", "of connections, not of the deployment"),
    ("delivery_lane", "who delivers at the moment"),
    ("node", "who is alive at the moment"),
    ("node_program", "as node"),
    ("directory", "counts changes since the nodes of this database began to look"),
    ("application.directory_revision", "as directory"),
    ("move_record", "the move itself"),
    ("move_progress", "the move itself"),
    ("fee_rule.rule_no", "the place in SQLite's file; PostgreSQL finds a version by its number"),
    ("fee_rule.previous_no", "as rule_no"),
    ("fee_rule.base_no", "as rule_no"),
    ("fee_rule_head.last_no", "as rule_no"),
    ("fee_rule_head.base_no", "as rule_no"),
    ("audit.line_no", "as rule_no"),
    ("audit_head.link_before", "of the transaction under way"),
];

#[cfg(test)]
mod tests;
