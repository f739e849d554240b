//! Rates, quotes and requests: what becomes of them, judged by what each statement finds, and how they are read.

use countersign_domain::conversion::{Limits, Pair, Quote};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::{MerchantNo, OrderId, TenantNo};
use countersign_domain::money::Amount;
use countersign_domain::time::UnixMillis;
use tokio_postgres::Row;

use super::PostgresStore;
use super::alone::{Alone, Stop, guard};
use super::queries::{many, one};
use super::readers::Readers;
use super::rows;
use super::session::Params;
use super::statements::Sql;
use crate::asker::Asker;
use crate::batch::{Conflict, Key};
use crate::contract::{Cursor, StoreError};
use crate::conversion::{
    ConvertMove, ConvertOrderFilter, ConvertOrderPage, ConvertStore, ConvertWrite, QUOTES_FORGOTTEN_MAX, RateRow,
    convert_move, listed, order_page, quote, rate,
};

impl Alone<'_> {
    /// Does a write, and judges its guards by what it finds.
    pub(super) async fn convert(&self, write: &ConvertWrite) -> Result<(), Stop> {
        match write {
            ConvertWrite::PutRate(row) => self.put_rate(row).await,
            ConvertWrite::TellStale { pair, revision } => {
                let pair = pair.to_string();
                guard(&self.run(Sql::RateTold, &[&pair, revision]).await?, Conflict::Moved(Key::Rate(pair)))
            }
            ConvertWrite::AddQuote { tenant, merchant, quote, ended_before } => {
                self.add_quote((*tenant, *merchant), quote, *ended_before).await
            }
            ConvertWrite::Execute { tenant, merchant, client_req_id, order } => {
                self.execute((*tenant, *merchant), client_req_id, order).await
            }
        }
    }

    async fn put_rate(&self, row: &RateRow) -> Result<(), Stop> {
        let pair = row.pair.to_string();
        let Limits { base_min, base_max, quote_min, quote_max } = row.limits;
        let limits = [base_min, base_max, quote_min, quote_max].map(|limit| limit.map(Amount::micros));
        let sql = if row.revision == 1 { Sql::RateInsert } else { Sql::RateUpdate };
        let columns: Params<'_> = &[
            &pair,
            &row.rate.to_string(),
            &limits[0],
            &limits[1],
            &limits[2],
            &limits[3],
            &row.revision,
            &row.updated_at.0,
        ];
        guard(&self.run(sql, columns).await?, Conflict::Moved(Key::Rate(pair.clone())))
    }

    async fn add_quote(
        &self,
        (tenant, merchant): (TenantNo, MerchantNo),
        quote: &Quote,
        ended_before: UnixMillis,
    ) -> Result<(), Stop> {
        let columns: Params<'_> = &[
            &tenant.0,
            &merchant.0,
            &quote.quote_id,
            &quote.pair.to_string(),
            &quote.sell_currency.as_str(),
            &quote.buy_currency.as_str(),
            &quote.sell_amount.micros(),
            &quote.buy_amount.micros(),
            &quote.rate.to_string(),
            &quote.created_at.0,
            &quote.expires_at.0,
        ];
        guard(&self.run(Sql::QuoteInsert, columns).await?, Conflict::Taken(Key::Quote(quote.quote_id.clone())))?;
        let most = i64::try_from(QUOTES_FORGOTTEN_MAX).unwrap_or(i64::MAX);
        self.run(Sql::QuotesForget, &[&tenant.0, &ended_before.0, &most]).await.map(|_| ())
    }

    /// The request's name is what two at once meet at: whoever is second waits for the first one's end, and finds it taken.
    async fn execute(
        &self,
        (tenant, merchant): (TenantNo, MerchantNo),
        client_req_id: &str,
        order: &ConvertOrder,
    ) -> Result<(), Stop> {
        let id = order.order_id.get();
        self.insert_order(tenant, merchant, order).await?;
        let found = self.run(Sql::ConvertRequestInsert, &[&tenant.0, &merchant.0, &client_req_id, &id]).await?;
        guard(&found, Conflict::Taken(Key::ConvertRequest(client_req_id.to_owned())))?;
        let found = self.run(Sql::QuoteUse, &[&tenant.0, &merchant.0, &order.quote_id, &id]).await?;
        guard(&found, Conflict::Moved(Key::Quote(order.quote_id.clone())))
    }
}

/// The first order below a number that is not looked at, of a merchant or of all.
async fn edge(
    from: &Readers,
    below: i64,
    of: Option<[i64; 2]>,
    looked_max: u32,
) -> Result<Option<OrderId>, StoreError> {
    let looked_max = i64::from(looked_max);
    let read = |row: &Row| {
        let mut f = rows::Fields::new(row, "convert_order", 0, 0);
        f.int().and_then(|no| OrderId::new(no).ok_or_else(|| f.corrupt()))
    };
    match of {
        Some([merchant, tenant]) => {
            one(from, Sql::ConvertOrdersOfEdge, &[&below, &looked_max, &merchant, &tenant], read).await
        }
        None => one(from, Sql::ConvertOrdersEdge, &[&below, &looked_max], read).await,
    }
}

impl ConvertStore for PostgresStore {
    async fn rate(&self, pair: &Pair) -> Result<Option<RateRow>, StoreError> {
        one(&self.readers, Sql::Rate, &[&pair.to_string()], rate).await
    }

    async fn rates(&self, page: Cursor<String>) -> Result<Vec<RateRow>, StoreError> {
        let (after, limit) = (page.after.unwrap_or_default(), i64::from(page.limit));
        many(&self.readers, Sql::Rates, &[&after, &limit], rate).await
    }

    async fn quote(&self, tenant: TenantNo, of: MerchantNo, quote_id: &str) -> Result<Option<Quote>, StoreError> {
        one(&self.readers, Sql::Quote, &[&tenant.0, &of.0, &quote_id], quote).await
    }

    async fn convert_request(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        client_req_id: &str,
    ) -> Result<Option<ConvertOrder>, StoreError> {
        let of: Params<'_> = &[&tenant.0, &of.0, &client_req_id];
        one(&self.readers, Sql::ConvertRequest, of, |row: &Row| rows::convert_order(row, 0)).await
    }

    async fn convert_orders(
        &self,
        asker: Asker,
        filter: ConvertOrderFilter,
        cursor: Cursor<OrderId>,
        looked_max: u32,
    ) -> Result<ConvertOrderPage, StoreError> {
        let below = cursor.after.map_or(i64::MAX, OrderId::get);
        let of = filter.of.map(|(tenant, merchant)| [merchant.0, tenant.0]);
        let from = self.lists(asker);
        let edge = if filter.is_bounded() { edge(from, below, of, looked_max).await? } else { None };
        let (above, limit) = (edge.map_or(0, OrderId::get), i64::from(cursor.limit) + 1);
        let status = filter.status.map(ConvertStatus::code);
        let asked: Params<'_> = &[&below, &above, &limit, &status];
        let found = match (&of, filter.status) {
            (Some([merchant, tenant]), _) => {
                let asked: Params<'_> = &[&below, &above, &limit, &status, merchant, tenant];
                many(from, Sql::ConvertOrdersOf, asked, listed).await?
            }
            (None, Some(ConvertStatus::Created)) => many(from, Sql::ConvertOrdersOpen, asked, listed).await?,
            (None, _) => many(from, Sql::ConvertOrders, asked, listed).await?,
        };
        Ok(order_page(found, cursor.limit, edge))
    }

    async fn convert_moves(&self, tenant: TenantNo, order: OrderId) -> Result<Vec<ConvertMove>, StoreError> {
        many(&self.readers, Sql::ConvertMoves, &[&tenant.0, &order.get()], convert_move).await
    }
}
