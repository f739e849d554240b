//! Reads that have no file of their own, as functions of a connection.

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::ids::{ApplicationNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Params, Row, params, params_from_iter};

use super::fault::fault;
use super::rows;
use crate::chain::{ChainHead, ChainLine, ChainPlace};
use crate::contract::{
    AttemptRow, AuditKey, AuditRow, Cursor, EventRow, IdempotencyRow, MerchantRow, RuleFilter, RulePage, StoreError,
};
use crate::joined;
use crate::own_events::OwnEventsPage;
use crate::rule_page::RulePageBuilder;
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

pub(super) fn setting(conn: &Connection, name: &str) -> Found<Option<String>> {
    one(conn, "SELECT name, value FROM setting WHERE name = ?1", [name], |row| {
        rows::Fields::new(row, "setting", 1, 0).text()
    })
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

/// Back along the chain until a version was made early enough, from the first of every 64th that was not. `made` is what the walk stops at.
const RULE_MADE_BY: &str = concat!(
    "WITH RECURSIVE back (rule_no, previous_no, made) AS (
       SELECT f.rule_no, f.previous_no, f.created_at FROM fee_rule_head h JOIN fee_rule f ON f.rule_no = coalesce(
         (SELECT c.rule_no FROM fee_rule c WHERE c.merchant_no = ?1 AND c.created_at > ?2 AND c.version_no % 64 = 0
           ORDER BY c.created_at, c.version_no LIMIT 1), h.last_no)
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

pub(super) fn rule_head(
    conn: &Connection,
    tenant: TenantNo,
    of: MerchantNo,
    as_of: Option<UnixMillis>,
) -> Found<Option<RuleHead>> {
    let Some(as_of) = as_of else {
        return one(conn, NEWEST_RULE, [of.0, tenant.0], |row| {
            let version_no = rows::Fields::new(row, "fee_rule_head", 1, 0).int()?;
            joined::rule_head(row, 2, Some(version_no))
        });
    };
    one(conn, RULE_MADE_BY, [of.0, as_of.0, tenant.0], |row| joined::rule_head(row, 1, None))
}

/// The chain is walked newest first, from every 64th version that is not before the page. SQLite stops walking at the limit.
const RULE_VERSIONS: &str = concat!(
    "WITH RECURSIVE back (rule_no, previous_no, version_no) AS (
       SELECT f.rule_no, f.previous_no, f.version_no FROM fee_rule_head h JOIN fee_rule f ON f.rule_no = coalesce(
         (SELECT c.rule_no FROM fee_rule c WHERE c.merchant_no = ?1 AND c.version_no >= ?2 AND c.version_no % 64 = 0
           ORDER BY c.version_no LIMIT 1), h.last_no)
         WHERE h.merchant_no = ?1 AND h.tenant_no = ?4
       UNION ALL
       SELECT f.rule_no, f.previous_no, f.version_no FROM back CROSS JOIN fee_rule f ON f.rule_no = back.previous_no)
     SELECT ",
    rule_columns!("l"),
    " FROM back CROSS JOIN fee_rule l ON l.rule_no = back.rule_no WHERE back.version_no < ?2 LIMIT ?3"
);

pub(super) fn rule_versions(
    conn: &Connection,
    tenant: TenantNo,
    of: MerchantNo,
    page: &Cursor,
) -> Found<Vec<RuleVersion>> {
    let before = page.after.unwrap_or(i64::MAX);
    many(conn, RULE_VERSIONS, params![of.0, before, page.limit, tenant.0], |row| {
        let (version, _) = rows::rule(row, 0)?;
        version.ok_or_else(|| rows::Fields::new(row, "fee_rule", 0, 0).corrupt())
    })
}

/// All sub-accounts of an institution, or one of them, with the rule of each.
macro_rules! rule_page {
    ($of:literal) => {
        concat!(
            "SELECT m.merchant_no, m.merchant_id, h.version_no, ",
            rule_columns!("l"),
            ", ",
            rule_columns!("b"),
            " FROM merchant m LEFT JOIN fee_rule_head h ON h.merchant_no = m.merchant_no
              LEFT JOIN fee_rule l ON l.rule_no = h.last_no AND l.merchant_no = h.merchant_no
              LEFT JOIN fee_rule b ON b.rule_no = l.base_no AND b.merchant_no = h.merchant_no
              WHERE m.tenant_no = ?1 AND m.kind = 'sub_account'",
            $of,
            " ORDER BY m.merchant_id"
        )
    };
}

const RULE_PAGE: &str = rule_page!("");
const RULE_PAGE_OF_ONE: &str = rule_page!(" AND m.merchant_id = ?2");

pub(super) fn rule_page(
    conn: &Connection,
    tenant: TenantNo,
    filter: &RuleFilter,
    now: UnixMillis,
    offset: u64,
    limit: u32,
) -> Found<RulePage> {
    let mut page = RulePageBuilder::new(filter, now, offset, limit);
    let sql = if filter.sub_merchant_id.is_some() { RULE_PAGE_OF_ONE } else { RULE_PAGE };
    let of = [Some(tenant.0.into()), filter.sub_merchant_id.clone().map(SqlValue::Text)];
    let mut statement = conn.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(params_from_iter(of.into_iter().flatten())).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let mut fields = rows::Fields::new(row, "merchant", 1, 0);
        let (merchant_id, version_no) = (fields.text()?, fields.opt_int()?);
        let found = version_no.map(|no| joined::rule_head(row, 3, Some(no))).transpose()?;
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
    let mut page = OwnEventsPage::default();
    while page.has_room()
        && let Some(row) = rows.next().map_err(fault)?
    {
        page.push(rows::event(row)?);
    }
    Ok(page.events())
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

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::super::{open::connect, schema};
    use super::*;

    /// A sub-account with 100,000 versions, a second apart.
    const MANY: &str = "
        INSERT INTO merchant (tenant_no, merchant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
          VALUES (1, 1, 'i', 'institution', 'i', '0', 0, 1, 1, 1, 1), (1, 2, 's', 'sub_account', 's', '0', 0, 2, 1, 1, 1);
        WITH RECURSIVE o (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM o WHERE n < 100000)
        INSERT INTO fee_rule (tenant_no, rule_no, merchant_no, version_no, previous_no, config_id, previous_config_id, r_markup, f_markup,
          effective_at, created_at) SELECT 1, n, 2, n, nullif(n - 1, 0), CAST(format('%016d', n) AS BLOB),
          CASE WHEN n > 1 THEN CAST(format('%016d', n - 1) AS BLOB) END, '0', 0, n * 1000, n * 1000 FROM o;
        INSERT INTO fee_rule_head (tenant_no, merchant_no, version_no, last_no) VALUES (1, 2, 100000, 100000);";

    #[test]
    fn a_walk_over_versions_begins_near_to_where_it_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conn = connect(&dir.path().join("db"), 1000).expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        conn.execute_batch(MANY).expect("fits");
        // The steps of SQLite's machine, which take no time of their own.
        let steps = |sql| conn.prepare_cached(sql).expect("is kept").reset_status(StatementStatus::VmStep);
        for second in [1, 63, 64, 65, 50_000, 99_999, 100_000] {
            let as_of = Some(UnixMillis(second * 1_000 + 999));
            let found = rule_head(&conn, TenantNo(1), MerchantNo(2), as_of).expect("reads").expect("there");
            assert_eq!(found.last.version_no, second);
            let taken = steps(RULE_MADE_BY);
            assert!((50..3_000).contains(&taken), "made by second {second}: {taken} steps");
            let page = Cursor { after: Some(second + 1), limit: 1 };
            let found = rule_versions(&conn, TenantNo(1), MerchantNo(2), &page).expect("reads");
            assert_eq!(found[0].version_no, second);
            let taken = steps(RULE_VERSIONS);
            assert!((50..3_000).contains(&taken), "before version {}: {taken} steps", second + 1);
        }
        assert_eq!(rule_head(&conn, TenantNo(1), MerchantNo(2), Some(UnixMillis(999))).expect("reads"), None);
    }

    #[test]
    fn the_rule_of_one_sub_account_is_found_by_its_id_among_any_number() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {RULE_PAGE_OF_ONE}")).expect("prepares");
        let lines = plan.query_map(params![1, "m"], |row| row.get(3)).expect("reads");
        let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
        assert!(lines[0].starts_with("SEARCH m USING INDEX ") && lines[0].contains("merchant_id=?"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.starts_with("SCAN") || line.contains("TEMP B-TREE")), "{lines:#?}");
    }
}
