//! Reads of merchants, applications and operator tokens.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use rusqlite::{Connection, Row, params};

use super::fault::fault;
use super::queries::{Found, many, merchant_columns, one};
use super::{rows, secrets};
use crate::contract::{ApplicationFilter, ApplicationView, Cursor, MerchantKind, MerchantRow, TokenRow};
use crate::joined;
use crate::words;

macro_rules! application_columns {
    () => {
        concat!(
            "a.tenant_no, a.application_no, a.client_id, a.merchant_no, a.name, a.enabled, a.callback_url, ",
            "a.callback_enabled, a.callback_gone_at, a.callback_encoding, a.callback_vocabulary, a.timestamp_tolerance_ms, ",
            "a.tolerance_before_ms, a.tolerance_raised_at, ",
            "a.rate_limit_per_s, a.callback_rate_per_s, a.callback_concurrency, a.callback_schedule, a.revision, a.created_at, ",
            merchant_columns!("m"),
            ", t.merchant_id, t.enabled FROM application a LEFT JOIN merchant m ON m.merchant_no = a.merchant_no ",
            "LEFT JOIN merchant t ON t.merchant_no = a.tenant_no "
        )
    };
}

fn view(row: &Row<'_>) -> Found<ApplicationView> {
    Ok(joined::application_view(row)?.0)
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
        Ok((
            is_it,
            row.get(APPLICATION_NO).map(ApplicationNo).map_err(fault)?,
            joined::application_view(row).map(|(view, _)| view),
        ))
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

/// A list of applications whose rows keep this condition. One that may be open keeps its index from being used, so each way of asking has a
/// text of its own.
macro_rules! applications_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            application_columns!(),
            "WHERE ",
            $condition,
            " AND a.application_no > ?1 ORDER BY a.application_no LIMIT ?2"
        )
    };
}

pub(super) fn applications(conn: &Connection, filter: ApplicationFilter, page: &Cursor) -> Found<Vec<ApplicationView>> {
    let (after, limit, enabled) = (page.after.unwrap_or(i64::MIN), page.limit, filter.callback_enabled);
    let mut found = match (filter.merchant, enabled) {
        (Some(merchant), _) => {
            let sql = applications_where!("a.merchant_no = ?4 AND (?3 IS NULL OR a.callback_enabled = ?3)");
            many(conn, sql, params![after, limit, enabled, merchant.0], view)?
        }
        (None, Some(false)) => many(conn, applications_where!("a.callback_enabled = 0"), params![after, limit], view)?,
        (None, Some(true) | None) => {
            let sql = applications_where!("(?3 IS NULL OR a.callback_enabled = ?3)");
            many(conn, sql, params![after, limit, enabled], view)?
        }
    };
    for view in &mut found {
        view.secrets = secrets::of(conn, view.application.no)?;
    }
    Ok(found)
}

pub(super) fn merchant(conn: &Connection, merchant_id: &str) -> Found<Option<MerchantRow>> {
    let sql = concat!("SELECT ", merchant_columns!("m"), " FROM merchant m WHERE m.merchant_id = ?1");
    one(conn, sql, [merchant_id], |row| Ok(rows::merchant(row, 0)?.0))
}

/// A list of merchants whose rows keep this condition, as [`applications_where`].
macro_rules! merchants_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            merchant_columns!("m"),
            " FROM merchant m WHERE ",
            $condition,
            " AND m.merchant_no > ?1 ORDER BY m.merchant_no LIMIT ?2"
        )
    };
}

pub(super) fn merchants(
    conn: &Connection,
    tenant: Option<TenantNo>,
    kind: Option<MerchantKind>,
    page: &Cursor,
) -> Found<Vec<MerchantRow>> {
    let (after, limit) = (page.after.unwrap_or(i64::MIN), page.limit);
    let read = |row: &Row<'_>| Ok(rows::merchant(row, 0)?.0);
    match (tenant, kind) {
        (Some(tenant), kind) => {
            let sql = merchants_where!("m.tenant_no = ?4 AND (?3 IS NULL OR m.kind = ?3)");
            many(conn, sql, params![after, limit, kind.map(words::of_kind), tenant.0], read)
        }
        // The kind stands in the text: a plan that was made for any of them would not go by an index that holds one.
        (None, Some(kind)) => {
            let sql = match kind {
                MerchantKind::Institution => merchants_where!("m.kind = 'institution'"),
                MerchantKind::Merchant => merchants_where!("m.kind = 'merchant'"),
                MerchantKind::SubAccount => merchants_where!("m.kind = 'sub_account'"),
            };
            many(conn, sql, params![after, limit], read)
        }
        (None, None) => many(conn, merchants_where!("true"), params![after, limit], read),
    }
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

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    #[test]
    fn merchants_and_applications_are_listed_along_an_index_that_has_their_order() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        for (sql, begins) in [
            (merchants_where!("true"), "SEARCH m USING INTEGER PRIMARY KEY (rowid>?)"),
            (merchants_where!("m.kind = 'institution'"), "SEARCH m USING INDEX merchant_institutions (merchant_no>?)"),
            (merchants_where!("m.kind = 'merchant'"), "SEARCH m USING INDEX merchant_plain (merchant_no>?)"),
            (
                merchants_where!("m.tenant_no = ?4 AND (?3 IS NULL OR m.kind = ?3)"),
                "SEARCH m USING INDEX merchant_of_tenant (tenant_no=? AND merchant_no>?)",
            ),
            (
                applications_where!("a.merchant_no = ?4 AND (?3 IS NULL OR a.callback_enabled = ?3)"),
                "SEARCH a USING INDEX application_by_merchant (merchant_no=? AND rowid>?)",
            ),
            (
                applications_where!("a.callback_enabled = 0"),
                "SEARCH a USING INDEX application_paused (application_no>?)",
            ),
            (
                applications_where!("(?3 IS NULL OR a.callback_enabled = ?3)"),
                "SEARCH a USING INTEGER PRIMARY KEY (rowid>?)",
            ),
        ] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepares");
            for parameter in 1..=plan.parameter_count() {
                plan.raw_bind_parameter(parameter, 0).expect("is bound");
            }
            let mut rows = plan.raw_query();
            let mut lines = Vec::<String>::new();
            while let Some(row) = rows.next().expect("reads") {
                lines.push(row.get(3).expect("reads"));
            }
            assert!(lines[0] == begins && !lines.iter().any(|line| line.contains("TEMP B-TREE")), "{lines:#?}");
        }
    }
}
