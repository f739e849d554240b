//! What conversions keep beside their orders: rates, quotes, and what a merchant's `clientReqId` stands for.
//!
//! An order is made of a quote in one write: the order with the first row of its history, the quote that it uses up, and the request that it
//! is the answer to for ever. So a process that dies leaves all of it or nothing, and of two at once one is refused.

use std::future::Future;

use countersign_domain::conversion::{Limits, Pair, Quote};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::{MerchantNo, OrderId, TenantNo};
use countersign_domain::money::Amount;
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;

use crate::contract::{Asker, Cursor, StoreError};
use crate::read::{CONVERT_ORDER_COLUMNS, Columns, Fields, convert_order};

/// The most old quotes of its tenant that one [`ConvertWrite::AddQuote`] forgets: more than it adds, so that old quotes do not pile up.
pub const QUOTES_FORGOTTEN_MAX: usize = 8;

/// What a pair is worth, as the back end said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateRow {
    /// The pair.
    pub pair: Pair,
    /// Quote coin per base coin, every digit kept; greater than 0.
    pub rate: Decimal,
    /// How much of either coin one conversion may move.
    pub limits: Limits,
    /// Grows by one with each change; 1 at first.
    pub revision: i64,
    /// The revision of which operators were told that it had become too old; 0: of none. Changed by [`ConvertWrite::TellStale`] only.
    pub stale_told: i64,
    /// When the back end said so.
    pub updated_at: UnixMillis,
}

/// A state that a convert order came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertMove {
    /// The order's revision by then: 1 at its making.
    pub revision: i64,
    /// The state.
    pub status: ConvertStatus,
    /// When.
    pub at: UnixMillis,
}

/// What becomes of rates and quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvertWrite {
    /// Sets a rate and its limits. Guard: the stored revision is `row.revision - 1`; none: 0.
    PutRate(RateRow),
    /// Notes that operators are told of a rate that is too old. Guard: the rate is at this revision, and operators were not told of this revision.
    TellStale {
        /// Which.
        pair: Pair,
        /// Its revision.
        revision: i64,
    },
    /// Adds a quote that nobody has used, and forgets the tenant's oldest ones that ended before an instant, at most [`QUOTES_FORGOTTEN_MAX`].
    /// Guard: of this merchant's quotes none that is kept has its id.
    AddQuote {
        /// Tenant of the merchant.
        tenant: TenantNo,
        /// Whom it is promised.
        merchant: MerchantNo,
        /// The quote.
        quote: Quote,
        /// The instant.
        ended_before: UnixMillis,
    },
    /// Makes an order of the quote that it names. Guards: the order's number is new in the deployment; the request's name is new with the
    /// merchant; the quote is the merchant's, and not used.
    Execute {
        /// Tenant of the merchant.
        tenant: TenantNo,
        /// The owner.
        merchant: MerchantNo,
        /// The request's name.
        client_req_id: String,
        /// The order; its revision is 1.
        order: ConvertOrder,
    },
}

impl ConvertWrite {
    /// The tenant that it belongs to; none for rates.
    pub(crate) const fn tenant(&self) -> Option<TenantNo> {
        match self {
            Self::PutRate(_) | Self::TellStale { .. } => None,
            Self::AddQuote { tenant, .. } | Self::Execute { tenant, .. } => Some(*tenant),
        }
    }

    /// Whose quote or order it is; none for rates.
    pub(crate) const fn merchant(&self) -> Option<MerchantNo> {
        match self {
            Self::PutRate(_) | Self::TellStale { .. } => None,
            Self::AddQuote { merchant, .. } | Self::Execute { merchant, .. } => Some(*merchant),
        }
    }

    /// What is wrong with it, whatever the rows say.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::PutRate(row) => (row.revision < 1 || row.rate <= Decimal::ZERO)
                .then_some("a rate is above 0, and has a revision from 1"),
            Self::TellStale { revision, .. } => (*revision < 1).then_some("a rate has a revision from 1"),
            Self::AddQuote { quote, ended_before, .. } => {
                let begins = quote.order.is_none() && quote.expires_at >= *ended_before;
                (!begins).then_some("a quote begins unused, and is not too old to be kept")
            }
            Self::Execute { order, .. } => (order.revision != 1).then_some("a convert order begins at revision 1"),
        }
    }
}

/// Which orders to list, in the descending order of their numbers: those that were made by the server stand newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConvertOrderFilter {
    /// Only those that stand so.
    pub status: Option<ConvertStatus>,
    /// Only of this merchant.
    pub of: Option<(TenantNo, MerchantNo)>,
}

impl ConvertOrderFilter {
    /// Whether no more than so many orders are looked at for a page: where no index leads to those that are meant and to no others.
    pub(crate) const fn is_bounded(&self) -> bool {
        match (self.status, self.of) {
            (None, _) | (Some(ConvertStatus::Created), None) => false,
            (Some(_), _) => true,
        }
    }
}

/// Orders with the ids of their merchants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvertOrderPage {
    /// At most as many as were asked for.
    pub orders: Vec<(String, ConvertOrder)>,
    /// Where the next page begins: below this number; none: this was the last one.
    pub next: Option<OrderId>,
}

/// A page of what was found, which is one order more than was asked for where there are more. `edge`: the first order that was not looked at.
pub(crate) fn order_page(
    mut found: Vec<(String, ConvertOrder)>,
    limit: u32,
    edge: Option<OrderId>,
) -> ConvertOrderPage {
    let limit = limit as usize;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().map(|(_, order)| order.order_id).filter(|_| has_more);
    let behind = |edge: OrderId| OrderId::new(edge.get() + 1);
    ConvertOrderPage { orders: found, next: last.or_else(|| edge.and_then(behind)) }
}

/// An order of a list: its columns, and the id of its merchant behind them.
pub(crate) fn listed<R: Columns>(row: &R) -> Result<(String, ConvertOrder), StoreError> {
    let order = convert_order(row, 0)?;
    Ok((Fields::new(row, "merchant", CONVERT_ORDER_COLUMNS, CONVERT_ORDER_COLUMNS).text()?, order))
}

/// What every store reads of conversions, beside [`crate::Store::convert_order`].
pub trait ConvertStore {
    /// A pair's rate.
    fn rate(&self, pair: &Pair) -> impl Future<Output = Result<Option<RateRow>, StoreError>> + Send;

    /// Rates by the names of their pairs, which `after` is too.
    fn rates(&self, page: Cursor<String>) -> impl Future<Output = Result<Vec<RateRow>, StoreError>> + Send;

    /// A quote of this merchant, used or not, as long as it is kept; another merchant's is not found by construction.
    fn quote(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        quote_id: &str,
    ) -> impl Future<Output = Result<Option<Quote>, StoreError>> + Send;

    /// The order that this merchant's request was answered with, as it is now.
    fn convert_request(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        client_req_id: &str,
    ) -> impl Future<Output = Result<Option<ConvertOrder>, StoreError>> + Send;

    /// Orders of all tenants, or of one merchant. Where the filter asks for more than an index leads to, at most `looked_max` are looked at: a page may hold fewer
    /// orders than were asked for, and yet not be the last one.
    fn convert_orders(
        &self,
        asker: Asker,
        filter: ConvertOrderFilter,
        page: Cursor<OrderId>,
        looked_max: u32,
    ) -> impl Future<Output = Result<ConvertOrderPage, StoreError>> + Send;

    /// The states that an order came to, oldest first.
    fn convert_moves(
        &self,
        tenant: TenantNo,
        order: OrderId,
    ) -> impl Future<Output = Result<Vec<ConvertMove>, StoreError>> + Send;
}

/// A rate as a row of either dialect has it.
pub(crate) fn rate<R: Columns>(row: &R) -> Result<RateRow, StoreError> {
    let mut f = Fields::new(row, "pair_rate", 0, 0);
    let pair = f.text()?;
    let found = RateRow {
        pair: Pair::parse(&pair).ok_or_else(|| f.corrupt())?,
        rate: f.decimal()?,
        limits: Limits {
            base_min: f.opt_int()?.map(Amount::from_micros),
            base_max: f.opt_int()?.map(Amount::from_micros),
            quote_min: f.opt_int()?.map(Amount::from_micros),
            quote_max: f.opt_int()?.map(Amount::from_micros),
        },
        revision: f.int()?,
        stale_told: f.int()?,
        updated_at: UnixMillis(f.int()?),
    };
    let Limits { base_min, base_max, quote_min, quote_max } = found.limits;
    let are_amounts = [base_min, base_max, quote_min, quote_max].into_iter().flatten().all(|a| a >= Amount::ZERO);
    let is_sound = found.rate > Decimal::ZERO && are_amounts && found.revision >= 1 && found.stale_told >= 0;
    if is_sound { Ok(found) } else { Err(f.corrupt()) }
}

/// A quote as a row of either dialect has it.
pub(crate) fn quote<R: Columns>(row: &R) -> Result<Quote, StoreError> {
    let mut f = Fields::new(row, "convert_quote", 0, 0);
    let quote_id = f.text()?;
    let pair = f.text()?;
    let found = Quote {
        quote_id,
        pair: Pair::parse(&pair).ok_or_else(|| f.corrupt())?,
        sell_currency: f.currency()?,
        buy_currency: f.currency()?,
        sell_amount: Amount::from_micros(f.int()?),
        buy_amount: Amount::from_micros(f.int()?),
        rate: f.decimal()?,
        created_at: UnixMillis(f.int()?),
        expires_at: UnixMillis(f.int()?),
        order: f.opt_int()?.map(|no| OrderId::new(no).ok_or_else(|| f.corrupt())).transpose()?,
    };
    let are_positive = found.sell_amount > Amount::ZERO && found.buy_amount > Amount::ZERO;
    let is_sound = are_positive && found.pair.direction(&found.sell_currency, &found.buy_currency).is_some();
    if is_sound && found.rate > Decimal::ZERO { Ok(found) } else { Err(f.corrupt()) }
}

/// A state of an order's history; its order is the last column.
pub(crate) fn convert_move<R: Columns>(row: &R) -> Result<ConvertMove, StoreError> {
    let mut f = Fields::new(row, "convert_order_move", 0, 3);
    Ok(ConvertMove {
        revision: f.int()?,
        status: f.int().and_then(|code| ConvertStatus::from_code(code).ok_or_else(|| f.corrupt()))?,
        at: UnixMillis(f.int()?),
    })
}

/// The columns that [`rate`] reads, of a table `r`, in words of both dialects.
macro_rules! rate_columns {
    () => {
        "r.pair, r.rate, r.base_min, r.base_max, r.quote_min, r.quote_max, r.revision, r.stale_told, r.updated_at"
    };
}

/// The columns that [`quote`] reads, of a table `q`, in words of both dialects.
macro_rules! quote_columns {
    () => {
        "q.quote_id, q.pair, q.sell_currency, q.buy_currency, q.sell_amount, q.buy_amount, q.rate, q.created_at, q.expires_at, q.order_id"
    };
}

pub(crate) use {quote_columns, rate_columns};
