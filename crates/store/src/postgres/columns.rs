//! Parts that several statements share: columns of a table, and what is joined in the same way. Tests see them in the statements.

macro_rules! merchant_columns {
    () => {
        "m.tenant_no, m.merchant_no, m.merchant_id, m.kind, m.name, m.base_r, m.base_f, m.user_id, m.enabled, m.revision, \
         m.created_at"
    };
}

macro_rules! rule_columns {
    ($r:literal) => {
        concat!(
            $r,
            ".merchant_no, ",
            $r,
            ".version_no, ",
            $r,
            ".config_id, ",
            $r,
            ".previous_config_id, ",
            $r,
            ".base_version_no, ",
            $r,
            ".r_markup, ",
            $r,
            ".f_markup, ",
            $r,
            ".effective_at, ",
            $r,
            ".due_at, ",
            $r,
            ".created_at"
        )
    };
}

/// The version that another row names, by its whole key. The limit keeps the planner, which knows nothing of the table's size yet, from
/// finding the sub-account first and then walking all its versions.
macro_rules! version_of {
    ($alias:literal, $of:literal, $no:literal) => {
        concat!(
            " LEFT JOIN LATERAL (SELECT * FROM fee_rule v WHERE v.tenant_no = ",
            $of,
            ".tenant_no AND v.merchant_no = ",
            $of,
            ".merchant_no AND v.version_no = ",
            $of,
            ".",
            $no,
            " LIMIT 1) ",
            $alias,
            " ON true "
        )
    };
}

macro_rules! order_columns {
    () => {
        "o.order_id, o.user_id, o.sell_currency, o.buy_currency, o.sell_amount, o.buy_amount, o.status, o.rate, \
         o.quote_id, o.created_at, o.revision"
    };
}

/// An application with its merchant, its tenant's id and its live secrets: a row for each secret, or one without.
macro_rules! application_select {
    ($from:literal) => {
        concat!(
            "SELECT a.tenant_no, a.application_no, a.client_id, a.merchant_no, a.name, a.enabled, a.callback_url, \
             a.callback_enabled, a.callback_gone_at, a.callback_encoding, a.callback_vocabulary, a.timestamp_tolerance_ms, \
             a.tolerance_before_ms, a.tolerance_raised_at, a.rate_limit_per_s, a.callback_rate_per_s, a.callback_concurrency, \
             a.callback_schedule, a.revision, a.created_at, ",
            merchant_columns!(),
            ", t.merchant_id, t.enabled, s.application_no, s.secret_id, s.key_id, s.sealed, s.fingerprint, s.last4, \
             s.signs_callbacks, s.created_at, s.not_after, s.revoked_at, s.last_used_at FROM ",
            $from,
            " a LEFT JOIN merchant m ON m.merchant_no = a.merchant_no LEFT JOIN merchant t ON t.merchant_no = a.tenant_no \
             LEFT JOIN secret s ON s.application_no = a.application_no AND s.revoked_at IS NULL \
             ORDER BY a.application_no, s.created_at DESC, s.secret_id DESC"
        )
    };
}

/// Tokens of operators; what is asked for is added to it.
macro_rules! token_select {
    ($which:literal) => {
        concat!(
            "SELECT token_id, name, digest, role, created_at, expires_at, revoked_at, last_used_at FROM operator_token ",
            $which
        )
    };
}

/// What the first link of a tenant hangs on.
macro_rules! start {
    () => {
        "decode(repeat('00', 32), 'hex')"
    };
}

/// The database's time, in ms since 1970.
macro_rules! now {
    () => {
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

macro_rules! event_columns {
    () => {
        "e.tenant_no, e.event_no, e.application_no, e.client_id, e.event_id, e.seq, e.sequence, e.biz_type, e.biz_id, \
         e.biz_status, e.data, e.body, e.created_at, d.state, d.attempts, d.due_at, d.behind_no, d.by_hand"
    };
}

/// The first of what is dead and asked for, each with its event and its last attempt.
macro_rules! dead_deliveries {
    ($which:literal, $before:literal, $limit:literal, $tenant:literal) => {
        concat!(
            " FROM (SELECT tenant_no, event_no, attempts FROM delivery WHERE ",
            $which,
            "state = 'dead' AND event_no < ",
            $before,
            " ORDER BY event_no DESC LIMIT ",
            $limit,
            ") d CROSS JOIN LATERAL (SELECT client_id, event_id, seq, biz_id, created_at FROM event WHERE tenant_no = ",
            $tenant,
            " AND event_no = d.event_no LIMIT 1) e CROSS JOIN LATERAL (SELECT outcome, http_status, detail FROM attempt \
             WHERE tenant_no = ",
            $tenant,
            " AND event_no = d.event_no AND attempt = d.attempts LIMIT 1) a ORDER BY d.event_no DESC"
        )
    };
}
