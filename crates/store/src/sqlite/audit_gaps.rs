//! What is not in the audit log.

use countersign_domain::ids::TenantNo;
use rusqlite::params;

use super::SqliteStore;
use super::queries::{Found, many, one};
use crate::asker::Asker;
use crate::audit_gaps::{AuditGaps, chain_owner, unreadable_line};
use crate::chain::{ChainPlace, UnreadableLine};
use crate::contract::Cursor;

/// Two ways to be one's own tenant, each with an index of its own.
const CHAIN_OWNERS: &str = "SELECT merchant_no FROM merchant WHERE kind = 'institution' AND merchant_no > ?1
     UNION ALL SELECT merchant_no FROM merchant WHERE kind = 'merchant' AND merchant_no > ?1 ORDER BY merchant_no LIMIT ?2";

impl AuditGaps for SqliteStore {
    async fn chain_owners(&self, page: Cursor) -> Found<Vec<TenantNo>> {
        let after = page.after.unwrap_or(i64::MIN);
        self.readers
            .away(Asker::Operator, move |conn| {
                many(conn, CHAIN_OWNERS, params![after, page.limit], |row| chain_owner(row))
            })
            .await
    }

    async fn unreadable_line(&self, after: Option<ChainPlace>) -> Found<Option<UnreadableLine>> {
        let sql = "SELECT line_no, 0, tenant_no, audit_no, link FROM audit WHERE line_no > ?1 ORDER BY line_no LIMIT 1";
        let after = after.map_or(i64::MIN, |place| place.0);
        self.readers.away(Asker::Operator, move |conn| one(conn, sql, params![after], |row| unreadable_line(row))).await
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::schema;
    use super::*;

    #[test]
    fn owners_of_chains_are_read_along_the_indexes_that_have_their_order() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {CHAIN_OWNERS}")).expect("prepares");
        let lines = plan.query_map([0, 9], |row| row.get::<_, String>(3)).expect("reads");
        let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
        for index in ["merchant_institutions", "merchant_plain"] {
            let walk = format!("SEARCH merchant USING COVERING INDEX {index} (merchant_no>?)");
            assert!(lines.contains(&walk), "{lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.contains("TEMP B-TREE")), "{lines:#?}");
    }
}
