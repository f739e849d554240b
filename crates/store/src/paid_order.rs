//! Orders that were paid, in the order of their payment: what statements list and what a rule that is not made yet is tried on.
//!
//! A paid order never changes: a walk over the past finds the same rows however often it is made.

use std::future::Future;

use countersign_domain::fees::OrderFee;
use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;

use crate::contract::{Cursor, StoreError};
use crate::payment_order::fee;
use crate::read::{Columns, Fields};

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

/// Where an order stands in a walk: when it was paid, then its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PaidPlace(pub UnixMillis, pub i64);

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

impl PaidOrder {
    /// Where it stands.
    pub const fn place(&self) -> PaidPlace {
        PaidPlace(self.paid_at, self.prepay_id.number())
    }
}

/// What every store promises about paid orders.
pub trait PaidOrders {
    /// Paid orders of a span, in the order of their places, behind `page.after`.
    fn paid_orders(
        &self,
        span: PaidSpan,
        page: Cursor<PaidPlace>,
    ) -> impl Future<Output = Result<Vec<PaidOrder>, StoreError>> + Send;
}

impl PaidSpan {
    /// The place behind which the page begins: of the span, none lies at it.
    pub(crate) fn begin(&self, after: Option<PaidPlace>) -> PaidPlace {
        let before_all = PaidPlace(self.from.plus_ms(-1), i64::MAX);
        after.map_or(before_all, |after| after.max(before_all))
    }
}

/// The columns that [`read`] reads, of a table `p`, in words of both dialects.
macro_rules! paid_order_columns {
    () => {
        "p.order_no, p.tail, (SELECT m.merchant_id FROM merchant m WHERE m.merchant_no = p.merchant_no), p.trade_no, p.currency, \
         p.amount, p.actual_amount, p.paid_at, p.fee_config_id, p.fee_version_no, p.fee_r_markup, p.fee_f_markup, p.r_fee, p.f_fee, \
         p.worked_sum"
    };
}

pub(crate) use paid_order_columns;

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
