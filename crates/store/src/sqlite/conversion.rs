//! Rates, quotes and requests: their guards, what becomes of them, and how they are read.

use countersign_domain::conversion::{Limits, Pair, Quote};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::{MerchantNo, OrderId, TenantNo};
use countersign_domain::money::Amount;
use rusqlite::{Connection, params, params_from_iter};

use super::SqliteStore;
use super::apply::{Applier, Stop};
use super::guards::guard;
use super::queries::{Found, many, one, order_columns};
use super::rows;
use super::statements::{Kept, Sql};
use super::writes::insert_order;
use crate::asker::Asker;
use crate::batch::{Conflict, Key};
use crate::contract::{Cursor, StoreError};
use crate::conversion::{
    ConvertMove, ConvertOrderFilter, ConvertOrderPage, ConvertStore, ConvertWrite, QUOTES_FORGOTTEN_MAX, RateRow,
    convert_move, listed, order_page, quote, quote_columns, rate, rate_columns,
};

impl Applier<'_> {
    /// Checks the guards of a write.
    pub(super) fn check_convert(&mut self, write: &ConvertWrite) -> Result<(), Stop> {
        match write {
            ConvertWrite::PutRate(row) => {
                let pair = row.pair.to_string();
                let stored = self.revision(Sql::RateRevision, "pair_rate", [&pair])?;
                guard(stored.unwrap_or(0) == row.revision - 1, Conflict::Moved(Key::Rate(pair)))
            }
            ConvertWrite::TellStale { pair, revision } => {
                let pair = pair.to_string();
                let untold = self.kept.finds(Sql::RateUntold, params![pair, revision])?;
                guard(untold, Conflict::Moved(Key::Rate(pair)))
            }
            ConvertWrite::AddQuote { tenant, merchant, quote, .. } => {
                let key = Key::Quote(quote.quote_id.clone());
                self.fresh(Sql::QuoteTaken, params![merchant.0, quote.quote_id], key)?;
                self.merchant_of(*tenant, *merchant)
            }
            ConvertWrite::Execute { tenant, merchant, client_req_id, order } => {
                self.fresh(Sql::OrderTaken, params![order.order_id.get()], Key::ConvertOrder(order.order_id))?;
                self.merchant_of(*tenant, *merchant)?;
                let key = Key::ConvertRequest(client_req_id.clone());
                self.fresh(Sql::ConvertRequestTaken, params![merchant.0, client_req_id], key)?;
                self.check_unused(*tenant, *merchant, &order.quote_id)
            }
        }
    }

    /// That the quote is the merchant's, and not used.
    pub(super) fn check_unused(&mut self, tenant: TenantNo, merchant: MerchantNo, quote_id: &str) -> Result<(), Stop> {
        let good = self.kept.finds(Sql::QuoteUnused, params![merchant.0, quote_id, tenant.0])?;
        guard(good, Conflict::Moved(Key::Quote(quote_id.to_owned())))
    }
}

/// Does a write whose guards held.
pub(super) fn write(kept: &mut Kept<'_>, write: &ConvertWrite) -> rusqlite::Result<()> {
    match write {
        ConvertWrite::PutRate(row) => put_rate(kept, row),
        ConvertWrite::TellStale { pair, revision } => {
            kept.run(Sql::RateTold, params![pair.to_string(), revision]).map(|_| ())
        }
        ConvertWrite::AddQuote { tenant, merchant, quote, ended_before } => {
            let most = i64::try_from(QUOTES_FORGOTTEN_MAX).unwrap_or(i64::MAX);
            kept.run(Sql::QuotesForget, [tenant.0, ended_before.0, most])?;
            add_quote(kept, *tenant, *merchant, quote)
        }
        ConvertWrite::Execute { tenant, merchant, client_req_id, order } => {
            let id = order.order_id.get();
            insert_order(kept, *tenant, *merchant, order)?;
            kept.run(Sql::ConvertRequestInsert, params![tenant.0, merchant.0, client_req_id, id])?;
            kept.run(Sql::QuoteUse, params![merchant.0, order.quote_id, id]).map(|_| ())
        }
    }
}

fn put_rate(kept: &mut Kept<'_>, row: &RateRow) -> rusqlite::Result<()> {
    let Limits { base_min, base_max, quote_min, quote_max } = row.limits;
    let [base_min, base_max, quote_min, quote_max] =
        [base_min, base_max, quote_min, quote_max].map(|limit| limit.map(Amount::micros));
    let columns = params![
        row.pair.to_string(),
        row.rate.to_string(),
        base_min,
        base_max,
        quote_min,
        quote_max,
        row.revision,
        row.updated_at.0
    ];
    kept.run(Sql::RatePut, columns).map(|_| ())
}

fn add_quote(kept: &mut Kept<'_>, tenant: TenantNo, merchant: MerchantNo, quote: &Quote) -> rusqlite::Result<()> {
    let columns = params![
        tenant.0,
        merchant.0,
        quote.quote_id,
        quote.pair.to_string(),
        quote.sell_currency.as_str(),
        quote.buy_currency.as_str(),
        quote.sell_amount.micros(),
        quote.buy_amount.micros(),
        quote.rate.to_string(),
        quote.created_at.0,
        quote.expires_at.0
    ];
    kept.run(Sql::QuoteInsert, columns).map(|_| ())
}

/// A list of orders below `?1` and above `?2`, at most `?3`, in a status or `?4` in any.
macro_rules! orders {
    ($from:literal, $of:literal) => {
        concat!(
            "SELECT ",
            order_columns!("o"),
            ", (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = o.merchant_no) FROM convert_order o ",
            $from,
            " WHERE o.order_id < ?1 AND o.order_id > ?2 AND (?4 IS NULL OR o.status = ?4)",
            $of,
            " ORDER BY o.order_id DESC LIMIT ?3"
        )
    };
}

/// The first order below `?1` behind so many (`?2`).
macro_rules! edge {
    ($of:literal) => {
        concat!(
            "SELECT order_id FROM convert_order WHERE order_id < ?1",
            $of,
            " ORDER BY order_id DESC LIMIT 1 OFFSET ?2"
        )
    };
}

fn list(
    conn: &Connection,
    filter: ConvertOrderFilter,
    cursor: &Cursor<OrderId>,
    looked_max: u32,
) -> Found<ConvertOrderPage> {
    let below = cursor.after.map_or(i64::MAX, OrderId::get);
    let of = filter.of.into_iter().flat_map(|(tenant, merchant)| [Some(merchant.0), Some(tenant.0)]);
    let mut edge = None;
    if filter.is_bounded() {
        let sql = match filter.of {
            Some(_) => edge!(" AND merchant_no = ?3 AND tenant_no = ?4"),
            None => edge!(""),
        };
        let asked = [Some(below), Some(i64::from(looked_max))].into_iter().chain(of.clone());
        edge = one(conn, sql, params_from_iter(asked), |row| {
            let mut f = rows::Fields::new(row, "convert_order", 0, 0);
            f.int().and_then(|no| OrderId::new(no).ok_or_else(|| f.corrupt()))
        })?;
    }
    let sql = match (filter.of, filter.status) {
        (Some(_), _) => orders!("", " AND o.merchant_no = ?5 AND o.tenant_no = ?6"),
        (None, Some(ConvertStatus::Created)) => orders!("INDEXED BY convert_order_open", " AND o.status = 1"),
        (None, _) => orders!("", ""),
    };
    let above = edge.map_or(0, OrderId::get);
    let asked = [Some(below), Some(above), Some(i64::from(cursor.limit) + 1), filter.status.map(ConvertStatus::code)];
    let found = many(conn, sql, params_from_iter(asked.into_iter().chain(of)), |row| listed(row))?;
    Ok(order_page(found, cursor.limit, edge))
}

impl ConvertStore for SqliteStore {
    async fn rate(&self, pair: &Pair) -> Result<Option<RateRow>, StoreError> {
        let sql = concat!("SELECT ", rate_columns!(), " FROM pair_rate r WHERE r.pair = ?1");
        self.readers.here(|conn| one(conn, sql, [pair.to_string()], |row| rate(row)))
    }

    async fn rates(&self, page: Cursor<String>) -> Result<Vec<RateRow>, StoreError> {
        let sql = concat!("SELECT ", rate_columns!(), " FROM pair_rate r WHERE r.pair > ?1 ORDER BY r.pair LIMIT ?2");
        let after = page.after.unwrap_or_default();
        self.readers.here(|conn| many(conn, sql, params![after, page.limit], |row| rate(row)))
    }

    async fn quote(&self, tenant: TenantNo, of: MerchantNo, quote_id: &str) -> Result<Option<Quote>, StoreError> {
        let sql = concat!(
            "SELECT ",
            quote_columns!(),
            " FROM convert_quote q WHERE q.merchant_no = ?1 AND q.quote_id = ?2 AND q.tenant_no = ?3"
        );
        self.readers.here(|conn| one(conn, sql, params![of.0, quote_id, tenant.0], |row| quote(row)))
    }

    async fn convert_request(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        client_req_id: &str,
    ) -> Result<Option<ConvertOrder>, StoreError> {
        let sql = concat!(
            "SELECT ",
            order_columns!("o"),
            " FROM convert_request c JOIN convert_order o ON o.order_id = c.order_id
              WHERE c.merchant_no = ?1 AND c.client_req_id = ?2 AND c.tenant_no = ?3 AND o.merchant_no = ?1 AND o.tenant_no = ?3"
        );
        let of = params![of.0, client_req_id, tenant.0];
        self.readers.here(|conn| one(conn, sql, of, |row| rows::convert_order(row, 0)))
    }

    async fn convert_orders(
        &self,
        asker: Asker,
        filter: ConvertOrderFilter,
        cursor: Cursor<OrderId>,
        looked_max: u32,
    ) -> Result<ConvertOrderPage, StoreError> {
        self.readers.away(asker, move |conn| list(conn, filter, &cursor, looked_max)).await
    }

    async fn convert_moves(&self, tenant: TenantNo, order: OrderId) -> Result<Vec<ConvertMove>, StoreError> {
        let sql = "SELECT m.revision, m.status, m.at, m.order_id FROM convert_order_move m
                   WHERE m.order_id = ?1 AND m.tenant_no = ?2 ORDER BY m.revision";
        self.readers.here(|conn| many(conn, sql, [order.get(), tenant.0], |row| convert_move(row)))
    }
}
