//! Paid orders: how they are walked over.

use countersign_domain::payment_order::PrepayId;
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::queries::{Found, many};
use crate::contract::{Cursor, StoreError};
use crate::paid_order::{
    Numbers, PaidOrder, PaidOrders, PaidSpan, Payee, join, paid_late, paid_order_columns, paid_soon, read,
};

/// A walk along an index. It is named: another one by number would lead over the orders of everybody.
macro_rules! walk {
    ($index:literal, $whose:literal, $which:expr) => {
        concat!(
            "SELECT ",
            paid_order_columns!(),
            " FROM payment_order p INDEXED BY ",
            $index,
            " WHERE ",
            $whose,
            " AND p.order_no > ?3 AND p.order_no < ?4 AND p.paid_at >= ?5 AND p.paid_at < ?6 AND ",
            $which,
            " ORDER BY p.order_no LIMIT ?7"
        )
    };
}

/// Soon and late ones of a merchant, and of a tenant.
const OF_MERCHANT: [&str; 2] = [
    walk!("payment_order_by_merchant", "p.merchant_no = ?2 AND p.tenant_no = ?1", paid_soon!()),
    walk!("payment_order_late", "p.merchant_no = ?2 AND p.tenant_no = ?1", paid_late!()),
];
const OF_TENANT: [&str; 2] = [
    walk!("payment_order_paid_of_tenant", "p.tenant_no = ?1 AND ?2 IS NULL", paid_soon!()),
    walk!("payment_order_late_of_tenant", "p.tenant_no = ?1 AND ?2 IS NULL", paid_late!()),
];

fn paid(conn: &Connection, span: &PaidSpan, page: &Cursor<PrepayId>) -> Found<Vec<PaidOrder>> {
    let (tenant, merchant, [soon, late]) = match span.of {
        Payee::Merchant(tenant, merchant) => (tenant, Some(merchant.0), OF_MERCHANT),
        Payee::Tenant(tenant) => (tenant, None, OF_TENANT),
    };
    let walk = |sql: &str, Numbers { after, end }: Numbers| {
        let values = params![tenant.0, merchant, after, end, span.from.0, span.to.0, page.limit];
        many(conn, sql, values, |row: &Row<'_>| read(row))
    };
    Ok(join(walk(soon, span.soon(page.after))?, walk(late, PaidSpan::late(page.after))?, page.limit))
}

impl PaidOrders for SqliteStore {
    async fn paid_orders(&self, span: PaidSpan, page: Cursor<PrepayId>) -> Result<Vec<PaidOrder>, StoreError> {
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
        for (sql, index, whose) in [
            (OF_MERCHANT[0], "payment_order_by_merchant", "merchant_no"),
            (OF_MERCHANT[1], "payment_order_late", "merchant_no"),
            (OF_TENANT[0], "payment_order_paid_of_tenant", "tenant_no"),
            (OF_TENANT[1], "payment_order_late_of_tenant", "tenant_no"),
        ] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepares");
            let values = vec![1; plan.parameter_count()];
            let lines = plan.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).expect("reads");
            let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
            let walk = lines.first().expect("a plan");
            assert_eq!(*walk, format!("SEARCH p USING INDEX {index} ({whose}=? AND order_no>? AND order_no<?)"));
            assert!(!lines.iter().any(|line| line.contains("TEMP B-TREE")), "{lines:#?}");
        }
    }
}
