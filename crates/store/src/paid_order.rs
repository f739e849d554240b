//! Orders that were paid, by their numbers: what statements list and what a rule that is not made yet is tried on.
//!
//! A paid order never changes: a walk over the past finds the same rows however often it is made.
//!
//! No index follows the instant of payment of a merchant's orders: each merchant would have a page of its own in it, written with every order
//! that is paid. A number grows with the instant at which it was drawn, and nearly all orders are paid within a day: so what was paid in a span is
//! found among the numbers of the span and of the day before it, and on SQLite by the index that lists of a merchant's orders need anyway. What was
//! paid later than that ([`LATE_MS`]), or on a clock that stood before its number's, has indexes of its own, in which hardly any order is. By
//! its number and its instant of payment each order is either the one or the other, whatever any clock did.

use std::future::Future;
use std::time::Duration;

use countersign_domain::fees::OrderFee;
use countersign_domain::ids::{MerchantNo, TenantNo, time_ordered};
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;

use crate::contract::{Cursor, StoreError};
use crate::payment_order::fee;
use crate::read::{Columns, Fields};

/// An order is late that was paid longer than this after its number was drawn, in ms. The schema's step 16 has the same figure.
pub const LATE_MS: i64 = 86_400_000;

/// How long changes that are under way are waited for.
pub(crate) const SETTLE_WITHIN: Duration = Duration::from_millis(1_500);

/// Whose orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payee {
    /// Of one merchant or sub-account.
    Merchant(TenantNo, MerchantNo),
    /// Of an institution and all its sub-accounts, or of a plain merchant.
    Tenant(TenantNo),
}

/// Which orders: whose, and paid when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaidSpan {
    /// Whose.
    pub of: Payee,
    /// Paid at this instant or later.
    pub from: UnixMillis,
    /// Paid before this instant.
    pub to: UnixMillis,
}

/// What is read of a paid order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidOrder {
    /// Its public number.
    pub prepay_id: PrepayId,
    /// Its merchant's public id.
    pub merchant_id: String,
    /// The merchant's own number.
    pub trade_no: String,
    /// What it was paid in.
    pub currency: Currency,
    /// What was asked for.
    pub amount: Amount,
    /// What was really paid: what the fee is of.
    pub actual_amount: Amount,
    /// The instant of PAID.
    pub paid_at: UnixMillis,
    /// Fixed at that instant; none for merchants without fee rules.
    pub fee: Option<OrderFee>,
}

/// What every store promises about paid orders.
pub trait PaidOrders {
    /// Paid orders of a span, in the order of their numbers, behind `page.after`. None: that was all; fewer than `page.limit` do not say so.
    fn paid_orders(
        &self,
        span: PaidSpan,
        page: Cursor<PrepayId>,
    ) -> impl Future<Output = Result<Vec<PaidOrder>, StoreError>> + Send;

    /// Whether every change of payment orders that had begun when this was asked is over: what they did is read from here on. Waits for them for a
    /// second or so.
    fn paid_orders_settle(&self) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Numbers among which a page is looked for: from behind `after` on, below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) after: i64,
    pub(crate) end: i64,
}

impl PaidSpan {
    /// Where those are that were paid soon, behind a number.
    pub(crate) fn soon(&self, after: i64) -> Numbers {
        let begin = time_ordered(self.from.plus_ms(-LATE_MS), 0);
        Numbers { after: after.max(begin.saturating_sub(1)), end: time_ordered(self.to, 0) }
    }
}

/// Behind which number a page begins.
pub(crate) fn after(page: &Cursor<PrepayId>) -> i64 {
    page.after.map_or(0, PrepayId::number)
}

/// Where late ones are looked for once the others of a page are known: before the last of these, or anywhere if there are none. So a walk passes
/// over each late one once, not with every page.
pub(crate) fn late(after: i64, soon: &[PaidOrder]) -> Numbers {
    Numbers { after, end: soon.last().map_or(i64::MAX, |last| last.prepay_id.number()) }
}

/// A page of both together.
pub(crate) fn join(mut soon: Vec<PaidOrder>, late: Vec<PaidOrder>, limit: u32) -> Vec<PaidOrder> {
    soon.extend(late);
    soon.sort_by_key(|order| order.prepay_id);
    soon.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    soon
}

/// The columns that [`read`] reads, of a table `p`, in words of both dialects.
macro_rules! paid_order_columns {
    () => {
        "p.order_no, p.tail, (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = p.merchant_no), p.trade_no, p.currency, \
         p.amount, p.actual_amount, p.paid_at, p.fee_config_id, p.fee_version_no, p.fee_r_markup, p.fee_f_markup, p.r_fee, p.f_fee, \
         p.worked_sum"
    };
}

/// Whether a paid order of a table `p` is not late, in words of both dialects: the instant of its number is that of its payment or at most
/// [`LATE_MS`] before it.
macro_rules! paid_soon {
    () => {
        "(p.order_no >> 19) + 1735689600000 BETWEEN p.paid_at - 86400000 AND p.paid_at"
    };
}

/// Whether it is late, in the words of its index.
macro_rules! paid_late {
    () => {
        "(p.order_no >> 19) + 1735689600000 NOT BETWEEN p.paid_at - 86400000 AND p.paid_at"
    };
}

pub(crate) use {paid_late, paid_order_columns, paid_soon};

/// A paid order as a row of either dialect has it.
pub(crate) fn read<R: Columns>(row: &R) -> Result<PaidOrder, StoreError> {
    let mut f = Fields::new(row, "payment_order", 0, 0);
    let prepay_id = PrepayId::from_parts(f.int()?, f.int()?).ok_or_else(|| f.corrupt())?;
    let (merchant_id, trade_no, currency) = (f.text()?, f.text()?, f.currency()?);
    let amount = f.amount()?;
    let actual_amount = f.opt_int()?.map_or(amount, Amount::from_micros);
    if amount <= Amount::ZERO || actual_amount <= Amount::ZERO {
        return Err(f.corrupt());
    }
    let (paid_at, fee) = (f.millis()?, fee(&mut f)?);
    Ok(PaidOrder { prepay_id, merchant_id, trade_no, currency, amount, actual_amount, paid_at, fee })
}
