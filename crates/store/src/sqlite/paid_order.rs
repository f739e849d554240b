//! Paid orders: how they are walked over.

use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;
use rusqlite::{Connection, Row, params};
use tokio::time::timeout;

use super::SqliteStore;
use super::fault::fault;
use super::queries::{Found, many, one};
use crate::asker::Asker;
use crate::batch::{Batch, Guard, TimeSource, Write};
use crate::contract::{Cursor, Store as _, StoreError};
use crate::paid_order::{
    self, Numbers, PaidOrder, PaidOrders, PaidSpan, Payee, SETTLE_WITHIN, paid_late, paid_order_columns, paid_soon,
    read,
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

/// The index that leads over a merchant's orders has those that nobody paid, too. A read looks at no more of them than this: each of them is a row.
const LOOKED_MAX: i64 = 20_000;

/// The number of the merchant's order that would be one too many.
fn edge(conn: &Connection, merchant: i64, among: Numbers, looked_max: i64) -> Found<Option<i64>> {
    let sql = "SELECT p.order_no FROM payment_order p INDEXED BY payment_order_by_merchant
               WHERE p.merchant_no = ?1 AND p.order_no > ?2 AND p.order_no < ?3 ORDER BY p.order_no LIMIT 1 OFFSET ?4";
    one(conn, sql, [merchant, among.after, among.end, looked_max], |row| row.get(0).map_err(fault))
}

/// The paid orders that a read has found, and the number of the order before which the read stopped; none where the read has looked at every order.
fn paid(conn: &Connection, span: &PaidSpan, after: i64, max: Max) -> Found<(Vec<PaidOrder>, Option<i64>)> {
    let mut among = span.soon(after);
    let (tenant, merchant, [soon, late]) = match span.of {
        Payee::Merchant(tenant, merchant) => (tenant, Some(merchant.0), OF_MERCHANT),
        Payee::Tenant(tenant) => (tenant, None, OF_TENANT),
    };
    let edge = merchant.map(|merchant| edge(conn, merchant, among, max.looked)).transpose()?.flatten();
    among.end = edge.unwrap_or(among.end);
    let walk = |sql: &str, Numbers { after, end }: Numbers| {
        let values = params![tenant.0, merchant, after, end, span.from.0, span.to.0, max.found];
        many(conn, sql, values, |row: &Row<'_>| read(row))
    };
    let soon = walk(soon, among)?;
    let mut among = paid_order::late(after, &soon);
    among.end = among.end.min(edge.unwrap_or(i64::MAX));
    Ok((paid_order::join(soon, walk(late, among)?, max.found), edge))
}

/// How much a read may do.
#[derive(Clone, Copy)]
struct Max {
    found: u32,
    looked: i64,
}

impl SqliteStore {
    /// Reads until it has found something or there is no more: other reads get their turn, and checkpoints theirs.
    async fn paid(&self, span: PaidSpan, mut after: i64, max: Max) -> Result<Vec<PaidOrder>, StoreError> {
        loop {
            match self.readers.away(Asker::Operator, move |conn| paid(conn, &span, after, max)).await? {
                (found, Some(edge)) if found.is_empty() => after = edge - 1,
                (found, _) => return Ok(found),
            }
        }
    }
}

impl PaidOrders for SqliteStore {
    async fn paid_orders(&self, span: PaidSpan, page: Cursor<PrepayId>) -> Result<Vec<PaidOrder>, StoreError> {
        self.paid(span, paid_order::after(&page), Max { found: page.limit, looked: LOOKED_MAX }).await
    }

    /// The writer does one after the other: what it has before a look that writes nothing is over when that is answered.
    async fn paid_orders_settle(&self) -> Result<bool, StoreError> {
        let always = Guard::Reached { instant: UnixMillis(0), time: TimeSource::new(|| UnixMillis(0)) };
        let looked = timeout(SETTLE_WITHIN, self.commit(Batch(vec![Write::Guard(always)]))).await;
        Ok(matches!(looked, Ok(Ok(_))))
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::{MerchantNo, TenantNo};
    use countersign_domain::time::UnixMillis;

    use super::super::{SqliteOptions, open::connect, schema};
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

    /// A hundred orders of a merchant, a second apart, of which four are paid: the last of them two days late.
    const FEW_PAID: &str = "
        INSERT INTO merchant (tenant_no, merchant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
          VALUES (1, 1, 'm', 'merchant', 'm', '0', 0, 1, 1, 1, 1);
        WITH RECURSIVE o (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM o WHERE n < 100)
        INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount, status,
          created_at, expire_at, paid_at, revision, actor, request_id)
          SELECT 1, (n * 1000) << 19, 0, 1, 1, 'app', 'T-' || n, 'order', 'USDT', 1, iif(n IN (30, 31, 60, 95), 'PAID', 'EXPIRED'), 0, 0,
            CASE WHEN n IN (30, 31, 95) THEN 1735689600000 + n * 1000 WHEN n = 60 THEN 1735689600000 + n * 1000 + 172800000 END, 1, '', ''
          FROM o;";

    #[tokio::test]
    async fn a_read_looks_at_so_many_orders_and_a_page_is_found_all_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let store = SqliteStore::open(&path, SqliteOptions::new([7; 16], "boot")).expect("opens");
        connect(&path, 1000).expect("opens").execute_batch(FEW_PAID).expect("fits");
        let of = Payee::Merchant(TenantNo(1), MerchantNo(1));
        let span = PaidSpan { of, from: UnixMillis(0), to: UnixMillis(i64::MAX) };
        let seconds = |found: &[PaidOrder]| -> Vec<i64> {
            found.iter().map(|order| (order.prepay_id.number() >> 19) / 1000).collect()
        };
        for looked in [1, 2, 7, 29, 30, 31, 99, 100, 1000] {
            for found in [1, 2, 9] {
                let (mut all, mut after) = (Vec::new(), 0);
                loop {
                    let page = store.paid(span, after, Max { found, looked }).await.expect("reads");
                    let Some(last) = page.last() else { break };
                    after = last.prepay_id.number();
                    all.extend(seconds(&page));
                }
                assert_eq!(all, [30, 31, 60, 95], "{looked} {found}");
            }
        }
        let conn = connect(&path, 1000).expect("opens");
        let read = |after, looked| paid(&conn, &span, after, Max { found: 9, looked }).expect("reads");
        let (found, edge) = read(0, 10);
        assert_eq!((found, edge), (vec![], Some(11_000 << 19)), "ten were looked at");
        let (found, edge) = read(25_000 << 19, 10);
        assert_eq!((seconds(&found), edge), (vec![30, 31], Some(36_000 << 19)));
        let (found, edge) = read(90_000 << 19, 10);
        assert_eq!((seconds(&found), edge), (vec![95], None), "the last ten");
    }
}
