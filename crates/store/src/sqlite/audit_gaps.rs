//! What is not in the audit log.

use countersign_domain::ids::TenantNo;
use rusqlite::params;

use super::SqliteStore;
use super::queries::{Found, many, one};
use crate::asker::Asker;
use crate::audit_gaps::{AuditGaps, chainless, unreadable_line};
use crate::chain::{ChainPlace, UnreadableLine};

const CHAINLESS: &str = "SELECT t.tenant_no FROM (SELECT 0 AS tenant_no UNION ALL SELECT merchant_no FROM merchant WHERE kind = 'institution'
       UNION ALL SELECT merchant_no FROM merchant WHERE kind = 'merchant') t
     WHERE (SELECT h.audit_no FROM audit_head h WHERE h.tenant_no = t.tenant_no) IS NULL ORDER BY t.tenant_no LIMIT ?1";

impl AuditGaps for SqliteStore {
    async fn chainless(&self, most: u32) -> Found<Vec<Option<TenantNo>>> {
        self.readers.away(Asker::Operator, move |conn| many(conn, CHAINLESS, [most], |row| chainless(row))).await
    }

    async fn unreadable_line(&self, after: Option<ChainPlace>) -> Found<Option<UnreadableLine>> {
        let sql = "SELECT line_no, 0, tenant_no, audit_no, link FROM audit WHERE line_no > ?1 ORDER BY line_no LIMIT 1";
        let after = after.map_or(i64::MIN, |place| place.0);
        self.readers.away(Asker::Operator, move |conn| one(conn, sql, params![after], |row| unreadable_line(row))).await
    }
}
