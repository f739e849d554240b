//! Payment orders: how they are written, and how they are found.

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::money::Amount;
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::queries::{Found, many, merchant_columns, one};
use super::statements::{Kept, Sql};
use super::{SqliteStore, rows};
use crate::asker::Asker;
use crate::contract::{Cursor, MerchantRow, StoreError};
use crate::payment_listing::{Listing, StatementEnd, Value, page};
use crate::payment_order::{
    ExpiredFirst, OrderName, PaymentMoveRow, PaymentOrderFilter, PaymentOrderPage, PaymentOrderRow, PaymentOrderWrite,
    PaymentOrders, Received, payment_order_columns, read, read_listed, read_move, read_received,
};

/// Does a write whose guard held.
pub(super) fn write(kept: &mut Kept<'_>, write: &PaymentOrderWrite) -> rusqlite::Result<()> {
    match write {
        PaymentOrderWrite::Insert { row, received } => insert(kept, row, received),
        PaymentOrderWrite::Move { row, entry } => {
            update(kept, row)?;
            if let Some(paid_at) = write.paid_by_rule() {
                kept.run(Sql::LastPaidPut, [row.tenant.0, row.merchant.0, paid_at.0])?;
            }
            let (number, was, status) = (row.order.prepay_id.number(), entry.was.name(), entry.status.name());
            let (revision, at) = (entry.revision, entry.at.0);
            let entry = params![row.tenant.0, number, revision, was, status, at, entry.actor, entry.request_id];
            kept.run(Sql::PaymentOrderMove, entry).map(|_| ())
        }
    }
}

fn insert(kept: &mut Kept<'_>, row: &PaymentOrderRow, received: &Received) -> rusqlite::Result<()> {
    let (order, content) = (&row.order, &row.order.content);
    kept.run(
        Sql::PaymentOrderInsert,
        params![
            row.tenant.0,
            order.prepay_id.number(),
            order.prepay_id.tail(),
            row.merchant.0,
            row.application.0,
            row.client_id,
            order.trade_no,
            content.kind.name(),
            content.currency.as_str(),
            content.amount.micros(),
            content.merchant_user_id,
            content.channel_id,
            content.goods_name,
            content.goods_detail,
            order.terminal_type,
            order.return_url,
            order.cancel_url,
            order.status.name(),
            order.created_at.0,
            order.expires_at.0,
            order.revision,
            row.actor,
            row.request_id
        ],
    )?;
    let request = params![row.tenant.0, order.prepay_id.number(), received.head, received.body];
    kept.run(Sql::PaymentOrderRequest, request).map(|_| ())
}

fn update(kept: &mut Kept<'_>, row: &PaymentOrderRow) -> rusqlite::Result<()> {
    let (order, fee) = (&row.order, row.order.fee.as_ref());
    kept.run(
        Sql::PaymentOrderUpdate,
        params![
            order.prepay_id.number(),
            order.status.name(),
            order.actual_amount.map(Amount::micros),
            order.transact_at.map(|at| at.0),
            order.paid_at.map(|at| at.0),
            fee.and_then(|fee| fee.config_id).map(|id| id.0.to_be_bytes()),
            fee.and_then(|fee| fee.version_no),
            fee.map(|fee| fee.markup.r().to_string()),
            fee.map(|fee| fee.markup.f().micros()),
            fee.map(|fee| fee.fee.r_fee.micros()),
            fee.map(|fee| fee.fee.f_fee.micros()),
            fee.map(|fee| fee.worked_sum.as_str()),
            order.revision
        ],
    )?;
    Ok(())
}

fn whole(row: &Row<'_>) -> Found<PaymentOrderRow> {
    Ok(read(row)?.0)
}

fn find(conn: &Connection, tenant: TenantNo, of: MerchantNo, name: &OrderName) -> Found<Option<PaymentOrderRow>> {
    match name {
        OrderName::Prepay(id) => {
            let sql = concat!(
                "SELECT ",
                payment_order_columns!(),
                " FROM payment_order p WHERE p.order_no = ?1 AND p.tail = ?2 AND p.merchant_no = ?3 AND p.tenant_no = ?4"
            );
            one(conn, sql, [id.number(), id.tail(), of.0, tenant.0], whole)
        }
        OrderName::TradeNo(no) => {
            let sql = concat!(
                "SELECT ",
                payment_order_columns!(),
                " FROM payment_order p WHERE p.trade_no = ?1 AND p.merchant_no = ?2 AND p.tenant_no = ?3"
            );
            one(conn, sql, params![no, of.0, tenant.0], whole)
        }
    }
}

fn owner(conn: &Connection, id: PrepayId) -> Found<Option<(MerchantRow, PaymentOrderRow)>> {
    let sql = concat!(
        "SELECT ",
        payment_order_columns!(),
        ", ",
        merchant_columns!("m"),
        " FROM payment_order p JOIN merchant m ON m.merchant_no = p.merchant_no WHERE p.order_no = ?1 AND p.tail = ?2"
    );
    one(conn, sql, [id.number(), id.tail()], |row| {
        let (order, next) = read(row)?;
        Ok((rows::merchant(row, next)?.0, order))
    })
}

fn moves(conn: &Connection, tenant: TenantNo, id: PrepayId) -> Found<Vec<PaymentMoveRow>> {
    let sql = "SELECT order_no, revision, was, status, at, actor, request_id FROM payment_order_move
               WHERE order_no = ?1 AND tenant_no = ?2 ORDER BY revision";
    many(conn, sql, [id.number(), tenant.0], |row| read_move(row))
}

fn received(conn: &Connection, tenant: TenantNo, of: MerchantNo, id: PrepayId) -> Found<Option<Received>> {
    // An order without its request is damaged, and not one that is not there.
    let sql = "SELECT p.order_no, r.request_head, r.request_body FROM payment_order p LEFT JOIN payment_order_request r
               ON r.order_no = p.order_no AND r.tenant_no = p.tenant_no
               WHERE p.order_no = ?1 AND p.tail = ?2 AND p.merchant_no = ?3 AND p.tenant_no = ?4";
    one(conn, sql, [id.number(), id.tail(), of.0, tenant.0], |row| read_received(row))
}

pub(super) fn values(values: Vec<Value>) -> impl Iterator<Item = SqlValue> {
    values.into_iter().map(|value| match value {
        Value::Int(value) => value.into(),
        Value::Text(value) => value.into(),
    })
}

fn list(conn: &Connection, listing: &Listing, limit: u32, looked_max: u32) -> Found<PaymentOrderPage> {
    let mut edge = None;
    if let Some((end, asked)) = listing.edge(looked_max) {
        let sql = format!("SELECT p.order_no, p.tail FROM payment_order p{} WHERE true{end}", listing.walks());
        edge = one(conn, &sql, params_from_iter(values(asked)), |row| {
            let mut f = rows::Fields::new(row, "payment_order", 0, 0);
            PrepayId::from_parts(f.int()?, f.int()?).ok_or_else(|| f.corrupt())
        })?;
    }
    let (end, asked): StatementEnd = listing.rows(edge, limit);
    let begin = concat!(
        "SELECT ",
        payment_order_columns!(),
        ", (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = p.merchant_no) FROM payment_order p"
    );
    let found =
        many(conn, &format!("{begin}{} WHERE true{end}", listing.walks()), params_from_iter(values(asked)), |row| {
            read_listed(row)
        })?;
    Ok(page(found, limit, edge))
}

fn expired(conn: &Connection, now: UnixMillis, first: ExpiredFirst, limit: u32) -> Found<Vec<Found<PaymentOrderRow>>> {
    macro_rules! sql {
        ($order:literal) => {
            concat!(
                "SELECT ",
                payment_order_columns!(),
                " FROM payment_order p WHERE p.status = 'PENDING' AND p.expire_at <= ?1 ORDER BY ",
                $order,
                " LIMIT ?2"
            )
        };
    }
    let sql = match first {
        ExpiredFirst::Oldest => sql!("p.expire_at, p.order_no"),
        ExpiredFirst::Newest => sql!("p.expire_at DESC, p.order_no DESC"),
    };
    many(conn, sql, params![now.0, limit], |row| Ok(whole(row)))
}

impl PaymentOrders for SqliteStore {
    async fn payment_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        name: OrderName,
    ) -> Result<Option<PaymentOrderRow>, StoreError> {
        self.readers.here(|conn| find(conn, tenant, merchant, &name))
    }

    async fn payment_order_owner(&self, id: PrepayId) -> Result<Option<(MerchantRow, PaymentOrderRow)>, StoreError> {
        self.readers.here(|conn| owner(conn, id))
    }

    async fn payment_order_moves(&self, tenant: TenantNo, id: PrepayId) -> Result<Vec<PaymentMoveRow>, StoreError> {
        self.readers.here(|conn| moves(conn, tenant, id))
    }

    async fn payment_order_received(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        id: PrepayId,
    ) -> Result<Option<Received>, StoreError> {
        self.readers.here(|conn| received(conn, tenant, merchant, id))
    }

    async fn payment_orders(
        &self,
        asker: Asker,
        filter: PaymentOrderFilter,
        now: UnixMillis,
        cursor: Cursor<PrepayId>,
        looked_max: u32,
    ) -> Result<PaymentOrderPage, StoreError> {
        let listing = Listing::new(&filter, now, cursor.after, '?');
        self.readers.away(asker, move |conn| list(conn, &listing, cursor.limit, looked_max)).await
    }

    async fn payment_orders_expired(
        &self,
        _lanes: LaneSet,
        now: UnixMillis,
        first: ExpiredFirst,
        limit: u32,
    ) -> Result<Vec<Result<PaymentOrderRow, StoreError>>, StoreError> {
        self.readers.away(Asker::Server, move |conn| expired(conn, now, first, limit)).await
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::money::Amount;
    use countersign_domain::payment_order::PrepayId;

    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn a_merchants_orders_are_walked_over_from_where_a_page_begins_to_where_it_ends() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        let of = PaymentOrderFilter { of: Some((TenantNo(1), MerchantNo(2))), ..PaymentOrderFilter::default() };
        let (from, to) = (Some(UnixMillis(1_800_000_000_000)), Some(UnixMillis(1_900_000_000_000)));
        let amount_from = Some(Amount::from_micros(1));
        for filter in
            [of.clone(), PaymentOrderFilter { from, to, ..of.clone() }, PaymentOrderFilter { amount_from, ..of }]
        {
            for after in [None, Some(PrepayId::new(1 << 60, 7))] {
                let listing = Listing::new(&filter, UnixMillis(0), after, '?');
                for (end, asked) in
                    [listing.rows(Some(PrepayId::new(1 << 59, 7)), 9)].into_iter().chain(listing.edge(9))
                {
                    let sql = format!(
                        "EXPLAIN QUERY PLAN SELECT p.tail FROM payment_order p{} WHERE true{end}",
                        listing.walks()
                    );
                    let mut plan = conn.prepare(&sql).expect("prepares");
                    let lines = plan.query_map(params_from_iter(values(asked)), |row| row.get(3)).expect("reads");
                    let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
                    let walk = "SEARCH p USING INDEX payment_order_by_merchant (merchant_no=? AND order_no";
                    assert!(lines.len() == 1 && lines[0].starts_with(walk), "{lines:#?}");
                }
            }
        }
    }
}
