//! Applications whose open deliveries are still to be held or released.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use rusqlite::{Connection, params};

use super::queries::{Found, many};
use super::rows;
use crate::contract::{Cursor, TurningRow};

pub(super) fn turning(conn: &Connection, page: &Cursor<(TenantNo, ApplicationNo)>) -> Found<Vec<TurningRow>> {
    let sql = "SELECT t.tenant_no, t.application_no, a.client_id, t.due_at FROM delivery_turn t LEFT JOIN application a
               ON a.application_no = t.application_no WHERE (t.tenant_no, t.application_no) > (?1, ?2)
               ORDER BY t.tenant_no, t.application_no LIMIT ?3";
    let (tenant, of) = page.after.map_or((i64::MIN, i64::MIN), |(tenant, of)| (tenant.0, of.0));
    many(conn, sql, params![tenant, of, page.limit], rows::turning)
}
