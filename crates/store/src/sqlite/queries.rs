//! Every read, as a function of a connection. The SQL of reads is here and nowhere else.

use countersign_domain::convert::ConvertOrder;
use countersign_domain::ids::{ApplicationNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use rusqlite::{Connection, Params, Row, params};

use super::fault::fault;
use super::{rows, secrets};
use crate::chain::{ChainHead, ChainLine, ChainPlace};
use crate::contract::{
    ApplicationView, AttemptRow, AuditKey, AuditRow, Cursor, EventRow, IdempotencyRow, MerchantKind, MerchantRow,
    RuleFilter, RulePage, StoreError, TokenRow,
};
use crate::page::PageBuilder;
use crate::pulled::Pulled;
use crate::words;

pub(super) type Found<T> = Result<T, StoreError>;

macro_rules! merchant_columns {
    ($m:literal) => {
        concat!(
            $m,
            ".tenant_no, ",
            $m,
            ".merchant_no, ",
            $m,
            ".merchant_id, ",
            $m,
            ".kind, ",
            $m,
            ".name, ",
            $m,
            ".base_r, ",
            $m,
            ".base_f, ",
            $m,
            ".user_id, ",
            $m,
            ".enabled, ",
            $m,
            ".revision, ",
            $m,
            ".created_at"
        )
    };
}

macro_rules! rule_columns {
    ($r:literal) => {
        concat!(
            $r,
            ".rule_no, ",
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

macro_rules! order_columns {
    ($o:literal) => {
        concat!(
            $o,
            ".order_id, ",
            $o,
            ".user_id, ",
            $o,
            ".sell_currency, ",
            $o,
            ".buy_currency, ",
            $o,
            ".sell_amount, ",
            $o,
            ".buy_amount, ",
            $o,
            ".status, ",
            $o,
            ".rate, ",
            $o,
            ".quote_id, ",
            $o,
            ".created_at, ",
            $o,
            ".revision"
        )
    };
}

pub(super) use order_columns;

macro_rules! application_columns {
    () => {
        concat!(
            "a.tenant_no, a.application_no, a.client_id, a.merchant_no, a.name, a.enabled, a.callback_url, ",
            "a.callback_enabled, a.callback_encoding, a.callback_vocabulary, a.timestamp_tolerance_ms, ",
            "a.tolerance_before_ms, a.tolerance_raised_at, ",
            "a.rate_limit_per_s, a.callback_rate_per_s, a.callback_concurrency, a.callback_schedule, a.revision, a.created_at, ",
            merchant_columns!("m"),
            ", t.merchant_id, t.enabled FROM application a LEFT JOIN merchant m ON m.merchant_no = a.merchant_no ",
            "LEFT JOIN merchant t ON t.merchant_no = a.tenant_no "
        )
    };
}

macro_rules! event_columns {
    () => {
        concat!(
            "e.tenant_no, e.event_no, e.application_no, e.client_id, e.event_id, e.seq, e.sequence, e.biz_type, ",
            "e.biz_id, e.biz_status, e.data, e.body, e.created_at, d.state, d.attempts, d.due_at, d.behind_no, d.by_hand "
        )
    };
}

pub(super) use {event_columns, merchant_columns};

/// The first row, read.
pub(super) fn one<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Found<T>,
) -> Found<Option<T>> {
    let mut statement = conn.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(params).map_err(fault)?;
    rows.next().map_err(fault)?.map(read).transpose()
}

/// Every row, read.
pub(super) fn many<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Found<T>,
) -> Found<Vec<T>> {
    let mut statement = conn.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(params).map_err(fault)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        found.push(read(row)?);
    }
    Ok(found)
}

pub(super) fn ping(conn: &Connection) -> Found<()> {
    one(conn, "SELECT 1", [], |_| Ok(())).map(|_| ())
}

pub(super) fn setting(conn: &Connection, name: &str) -> Found<Option<String>> {
    one(conn, "SELECT name, value FROM setting WHERE name = ?1", [name], |row| {
        rows::Fields::new(row, "setting", 1, 0).text()
    })
}

fn view(row: &Row<'_>) -> Found<ApplicationView> {
    let (application, next) = rows::application(row)?;
    let mut rest = rows::Fields::new(row, "application", next, 1);
    if rest.opt_int()?.is_none() {
        return Err(rest.corrupt());
    }
    let (merchant, next) = rows::merchant(row, next)?;
    let mut tenant = rows::Fields::new(row, "application", next, 1);
    let (tenant_id, tenant_enabled) = (tenant.text()?, tenant.flag()?);
    Ok(ApplicationView { application, merchant, tenant_id, tenant_enabled, secrets: Vec::new() })
}

/// Where two columns of an application stand among its columns.
const APPLICATION_NO: usize = 1;
const CLIENT_ID: usize = 2;

pub(super) fn application(conn: &Connection, client_id: &str) -> Found<Option<ApplicationView>> {
    // Where there is none, another one is read and left: strangers must not see from the time which ClientIds exist.
    let sql = concat!(
        "SELECT ",
        application_columns!(),
        "WHERE a.application_no = (SELECT coalesce(f.application_no, d.least) FROM \
         (SELECT min(application_no) AS least FROM application) d LEFT JOIN application f ON f.client_id = ?1)"
    );
    let read = |row: &Row<'_>| {
        let is_it = row.get_ref(CLIENT_ID).is_ok_and(|id| id.as_str() == Ok(client_id));
        Ok((is_it, row.get(APPLICATION_NO).map(ApplicationNo).map_err(fault)?, view(row)))
    };
    let Some((is_it, no, found)) = one(conn, sql, [client_id], read)? else { return Ok(None) };
    let secrets = secrets::of(conn, no);
    if !is_it {
        return Ok(None);
    }
    let mut found = found?;
    found.secrets = secrets?;
    Ok(Some(found))
}

pub(super) fn application_revision(conn: &Connection, client_id: &str) -> Found<Option<i64>> {
    one(conn, "SELECT client_id, revision FROM application WHERE client_id = ?1", [client_id], |row| {
        rows::Fields::new(row, "application", 1, 0).int()
    })
}

pub(super) fn applications(conn: &Connection, of: Option<MerchantNo>, page: &Cursor) -> Found<Vec<ApplicationView>> {
    let sql = concat!(
        "SELECT ",
        application_columns!(),
        "WHERE (?1 IS NULL OR a.merchant_no = ?1) AND a.application_no > ?2 ORDER BY a.application_no LIMIT ?3"
    );
    let after = page.after.unwrap_or(i64::MIN);
    let mut found = many(conn, sql, params![of.map(|m| m.0), after, page.limit], view)?;
    for view in &mut found {
        view.secrets = secrets::of(conn, view.application.no)?;
    }
    Ok(found)
}

pub(super) fn merchant(conn: &Connection, merchant_id: &str) -> Found<Option<MerchantRow>> {
    let sql = concat!("SELECT ", merchant_columns!("m"), " FROM merchant m WHERE m.merchant_id = ?1");
    one(conn, sql, [merchant_id], |row| Ok(rows::merchant(row, 0)?.0))
}

pub(super) fn merchants(
    conn: &Connection,
    tenant: Option<TenantNo>,
    kind: Option<MerchantKind>,
    page: &Cursor,
) -> Found<Vec<MerchantRow>> {
    let sql = concat!(
        "SELECT ",
        merchant_columns!("m"),
        " FROM merchant m WHERE (?1 IS NULL OR m.tenant_no = ?1) AND (?4 IS NULL OR m.kind = ?4) AND m.merchant_no > ?2
          ORDER BY m.merchant_no LIMIT ?3"
    );
    let (after, kind) = (page.after.unwrap_or(i64::MIN), kind.map(words::of_kind));
    many(conn, sql, params![tenant.map(|t| t.0), after, page.limit, kind], |row| Ok(rows::merchant(row, 0)?.0))
}

macro_rules! token_select {
    () => {
        "SELECT token_id, name, digest, role, created_at, expires_at, revoked_at, last_used_at FROM operator_token WHERE "
    };
}

pub(super) fn token(conn: &Connection, digest: &[u8; 32]) -> Found<Option<TokenRow>> {
    one(conn, concat!(token_select!(), "digest = ?1"), [digest], rows::token)
}

pub(super) fn token_by_id(conn: &Connection, token_id: &str) -> Found<Option<TokenRow>> {
    one(conn, concat!(token_select!(), "token_id = ?1"), [token_id], rows::token)
}

pub(super) fn tokens(conn: &Connection, page: &Cursor<String>) -> Found<Vec<TokenRow>> {
    let after = page.after.as_deref().unwrap_or("");
    many(
        conn,
        concat!(token_select!(), "token_id > ?1 ORDER BY token_id LIMIT ?2"),
        params![after, page.limit],
        rows::token,
    )
}

/// The last version and its base, where the row promises one.
fn head(row: &Row<'_>, first: usize, version_no: Option<i64>) -> Found<RuleHead> {
    let broken = || rows::Fields::new(row, "fee_rule_head", 0, 0).corrupt();
    let (last, next) = rows::rule(row, first)?;
    let last = last.filter(|l| version_no.is_none_or(|no| no == l.version_no)).ok_or_else(broken)?;
    let (base, _) = rows::rule(row, next)?;
    if base.as_ref().map(|b| b.version_no) != last.base_version_no {
        return Err(broken());
    }
    Ok(RuleHead { last, base })
}

/// The newest version of a sub-account and its base: what every upgrade and every fee reads.
pub(super) const NEWEST_RULE: &str = concat!(
    "SELECT h.merchant_no, h.version_no, ",
    rule_columns!("l"),
    ", ",
    rule_columns!("b"),
    " FROM fee_rule_head h LEFT JOIN fee_rule l ON l.rule_no = h.last_no AND l.merchant_no = h.merchant_no
      LEFT JOIN fee_rule b ON b.rule_no = l.base_no AND b.merchant_no = h.merchant_no
      WHERE h.merchant_no = ?1 AND h.tenant_no = ?2"
);

pub(super) fn rule_head(
    conn: &Connection,
    tenant: TenantNo,
    of: MerchantNo,
    made_by: Option<UnixMillis>,
) -> Found<Option<RuleHead>> {
    let Some(made_by) = made_by else {
        return one(conn, NEWEST_RULE, [of.0, tenant.0], |row| {
            let version_no = rows::Fields::new(row, "fee_rule_head", 1, 0).int()?;
            head(row, 2, Some(version_no))
        });
    };
    // Back along the chain until a version was made early enough. `made` is what the walk stops at.
    let sql = concat!(
        "WITH RECURSIVE back (rule_no, previous_no, made) AS (
           SELECT f.rule_no, f.previous_no, f.created_at FROM fee_rule_head h JOIN fee_rule f ON f.rule_no = h.last_no
             WHERE h.merchant_no = ?1 AND h.tenant_no = ?3
           UNION ALL
           SELECT f.rule_no, f.previous_no, f.created_at FROM back CROSS JOIN fee_rule f ON f.rule_no = back.previous_no
             WHERE back.made > ?2)
         SELECT l.merchant_no, ",
        rule_columns!("l"),
        ", ",
        rule_columns!("b"),
        " FROM back CROSS JOIN fee_rule l ON l.rule_no = back.rule_no
          LEFT JOIN fee_rule b ON b.rule_no = l.base_no AND b.merchant_no = l.merchant_no WHERE back.made <= ?2"
    );
    one(conn, sql, [of.0, made_by.0, tenant.0], |row| head(row, 1, None))
}

pub(super) fn rule_versions(
    conn: &Connection,
    tenant: TenantNo,
    of: MerchantNo,
    page: &Cursor,
) -> Found<Vec<RuleVersion>> {
    // The chain is walked newest first, and SQLite stops walking at the limit.
    let sql = concat!(
        "WITH RECURSIVE back (rule_no, previous_no, version_no) AS (
           SELECT f.rule_no, f.previous_no, f.version_no FROM fee_rule_head h JOIN fee_rule f ON f.rule_no = h.last_no
             WHERE h.merchant_no = ?1 AND h.tenant_no = ?4
           UNION ALL
           SELECT f.rule_no, f.previous_no, f.version_no FROM back CROSS JOIN fee_rule f ON f.rule_no = back.previous_no)
         SELECT ", rule_columns!("l"),
        " FROM back CROSS JOIN fee_rule l ON l.rule_no = back.rule_no WHERE back.version_no < ?2 LIMIT ?3"
    );
    let before = page.after.unwrap_or(i64::MAX);
    many(conn, sql, params![of.0, before, page.limit, tenant.0], |row| {
        let (version, _) = rows::rule(row, 0)?;
        version.ok_or_else(|| rows::Fields::new(row, "fee_rule", 0, 0).corrupt())
    })
}

pub(super) fn rule_page(
    conn: &Connection,
    tenant: TenantNo,
    filter: &RuleFilter,
    now: UnixMillis,
    offset: u64,
    limit: u32,
) -> Found<RulePage> {
    let sql = concat!(
        "SELECT m.merchant_no, m.merchant_id, h.version_no, ", rule_columns!("l"), ", ", rule_columns!("b"),
        " FROM merchant m LEFT JOIN fee_rule_head h ON h.merchant_no = m.merchant_no
          LEFT JOIN fee_rule l ON l.rule_no = h.last_no AND l.merchant_no = h.merchant_no
          LEFT JOIN fee_rule b ON b.rule_no = l.base_no AND b.merchant_no = h.merchant_no
          WHERE m.tenant_no = ?1 AND m.kind = 'sub_account' AND (?2 IS NULL OR m.merchant_id = ?2) ORDER BY m.merchant_id"
    );
    let mut page = PageBuilder::new(filter, now, offset, limit);
    let mut statement = conn.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(params![tenant.0, filter.sub_merchant_id]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let mut fields = rows::Fields::new(row, "merchant", 1, 0);
        let (merchant_id, version_no) = (fields.text()?, fields.opt_int()?);
        let found = version_no.map(|no| head(row, 3, Some(no))).transpose()?;
        page.add(&merchant_id, found.as_ref());
    }
    Ok(page.finish())
}

pub(super) fn convert_order(
    conn: &Connection,
    tenant: TenantNo,
    of: MerchantNo,
    order: OrderId,
) -> Found<Option<ConvertOrder>> {
    let sql = concat!(
        "SELECT ",
        order_columns!("o"),
        " FROM convert_order o WHERE o.order_id = ?1 AND o.merchant_no = ?2 AND o.tenant_no = ?3"
    );
    one(conn, sql, [order.get(), of.0, tenant.0], |row| rows::convert_order(row, 0))
}

pub(super) fn convert_order_owner(conn: &Connection, order: OrderId) -> Found<Option<(MerchantRow, ConvertOrder)>> {
    let sql = concat!(
        "SELECT ",
        merchant_columns!("m"),
        ", ",
        order_columns!("o"),
        " FROM convert_order o JOIN merchant m ON m.merchant_no = o.merchant_no WHERE o.order_id = ?1"
    );
    one(conn, sql, [order.get()], |row| {
        let (merchant, next) = rows::merchant(row, 0)?;
        Ok((merchant, rows::convert_order(row, next)?))
    })
}

pub(super) fn event(conn: &Connection, event_id: SortedId) -> Found<Option<(EventRow, Vec<AttemptRow>)>> {
    let sql = concat!(
        "SELECT ",
        event_columns!(),
        "FROM event e LEFT JOIN delivery d ON d.event_no = e.event_no WHERE e.event_id = ?1"
    );
    let Some(event) = one(conn, sql, [event_id.0.to_be_bytes()], rows::event)? else { return Ok(None) };
    let sql = "SELECT event_no, attempt, at, outcome, http_status, duration_ms, address, detail, fence, dns_us, connect_us, tls_us,
               first_byte_us, total_us, reused FROM attempt WHERE event_no = ?1 ORDER BY attempt";
    let attempts = many(conn, sql, [event.no.0], rows::attempt)?;
    Ok(Some((event, attempts)))
}

pub(super) fn events_after(
    conn: &Connection,
    tenant: TenantNo,
    of: ApplicationNo,
    after: i64,
    limit: u32,
) -> Found<Vec<EventRow>> {
    let sql = concat!(
        "SELECT ",
        event_columns!(),
        "FROM event e LEFT JOIN delivery d ON d.event_no = e.event_no
         WHERE e.application_no = ?1 AND e.seq > ?2 AND e.tenant_no = ?4 ORDER BY e.seq LIMIT ?3"
    );
    let mut statement = conn.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(params![of.0, after, limit, tenant.0]).map_err(fault)?;
    let mut pulled = Pulled::default();
    while pulled.has_room()
        && let Some(row) = rows.next().map_err(fault)?
    {
        pulled.push(rows::event(row)?);
    }
    Ok(pulled.events())
}

pub(super) fn remembered(conn: &Connection, scope: &str, key: &str) -> Found<Option<IdempotencyRow>> {
    let sql =
        "SELECT scope, key, body_digest, status, answer, created_at FROM idempotency WHERE scope = ?1 AND key = ?2";
    one(conn, sql, [scope, key], rows::remembered)
}

pub(super) fn audit(conn: &Connection, page: &Cursor<AuditKey>) -> Found<Vec<AuditRow>> {
    let sql = "SELECT tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id FROM audit
               WHERE (at, tenant_no, audit_no) < (?1, ?2, ?3) ORDER BY at DESC, tenant_no DESC, audit_no DESC LIMIT ?4";
    let (at, tenant, no) = words::of_audit_place(page.after);
    many(conn, sql, params![at, tenant, no, page.limit], rows::audit)
}

/// In the order of writing.
pub(super) fn audit_chain(conn: &Connection, page: &Cursor<ChainPlace>) -> Found<Vec<ChainLine>> {
    let sql =
        "SELECT line_no, 0, tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id, link
               FROM audit WHERE line_no > ?1 ORDER BY line_no LIMIT ?2";
    let after = page.after.map_or(i64::MIN, |place| place.0);
    many(conn, sql, params![after, page.limit], rows::chain_line)
}

pub(super) fn audit_heads(conn: &Connection, page: &Cursor) -> Found<Vec<ChainHead>> {
    let sql = "SELECT tenant_no, audit_no, link FROM audit_head WHERE tenant_no > ?1 ORDER BY tenant_no LIMIT ?2";
    many(conn, sql, params![page.after.unwrap_or(i64::MIN), page.limit], rows::chain_head)
}
