//! Paid orders: how they are walked over.

use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::queries::{Found, many};
use crate::contract::{Cursor, StoreError};
use crate::paid_order::{PaidOrder, PaidOrders, PaidPlace, PaidSpan, Payee, paid_order_columns, read};

/// The plus keeps it from the index by tenant, which would lead over the orders of every sub-account.
const OF_MERCHANT: &str = concat!(
    "SELECT ",
    paid_order_columns!(),
    " FROM payment_order p WHERE p.merchant_no = ?1 AND p.paid_at IS NOT NULL AND (p.paid_at, p.order_no) > (?2, ?3) \
     AND p.paid_at < ?4 AND +p.tenant_no = ?5 ORDER BY p.paid_at, p.order_no LIMIT ?6"
);
const OF_TENANT: &str = concat!(
    "SELECT ",
    paid_order_columns!(),
    " FROM payment_order p WHERE p.tenant_no = ?1 AND p.paid_at IS NOT NULL AND (p.paid_at, p.order_no) > (?2, ?3) \
     AND p.paid_at < ?4 ORDER BY p.paid_at, p.order_no LIMIT ?5"
);

fn paid(conn: &Connection, span: &PaidSpan, page: &Cursor<PaidPlace>) -> Found<Vec<PaidOrder>> {
    let (PaidPlace(at, number), to) = (span.begin(page.after), span.to.0);
    let read = |row: &Row<'_>| read(row);
    match span.of {
        Payee::Merchant(tenant, merchant) => {
            many(conn, OF_MERCHANT, params![merchant.0, at.0, number, to, tenant.0, page.limit], read)
        }
        Payee::Tenant(tenant) => many(conn, OF_TENANT, params![tenant.0, at.0, number, to, page.limit], read),
    }
}

impl PaidOrders for SqliteStore {
    async fn paid_orders(&self, span: PaidSpan, page: Cursor<PaidPlace>) -> Result<Vec<PaidOrder>, StoreError> {
        self.readers.away(move |conn| paid(conn, &span, &page)).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{open::connect, schema};
    use super::*;

    #[test]
    fn a_walk_over_paid_orders_follows_its_index_and_sorts_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let mut conn = connect(&path, 1000).expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        for (sql, index) in [(OF_MERCHANT, "payment_order_paid"), (OF_TENANT, "payment_order_paid_by_tenant")] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepares");
            let values = vec![1; plan.parameter_count()];
            let lines = plan.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).expect("reads");
            let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
            let follows = format!("SEARCH p USING INDEX {index} (");
            let walk = lines.first().expect("a plan");
            assert!(walk.starts_with(&follows) && walk.contains("paid_at"), "{lines:#?}");
            assert!(!lines.iter().any(|line| line.contains("TEMP B-TREE")), "{lines:#?}");
        }
    }
}
