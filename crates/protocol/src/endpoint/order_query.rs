//! `POST /v1/pay/order/query`: one payment order, by either number.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::payment_order::Name as Request;
use super::payment_order::{Fee, Order, Status};
use crate::exact::Exact;

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/order/query";

/// The order with all that became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderInFull)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The order.
    #[serde(flatten)]
    pub order: Order,
    /// Whose it is.
    pub merchant_id: String,
    /// When the payer paid, Unix milliseconds; null before `PAID`, unless the platform has said it.
    pub transact_time: Option<i64>,
    /// As asked for.
    pub goods_name: Option<String>,
    /// As asked for.
    pub channel_id: Option<String>,
    /// What was really paid, numeric text; null before `PAID`, unless the platform has said it. It may be more or less than `orderAmount`, also of a `PAID` order: compare them before you deliver.
    pub actual_amount: Option<String>,
    /// Null before `PAID`, and always for orders of plain merchants and of institutions themselves. Orders of sub-accounts have it from `PAID` on, also where no rule was in force.
    pub fee: Option<Fee>,
    /// The text of the QR code, an address of the platform's page for payers; null where the order has none.
    pub qr_content: Option<String>,
    /// Where the payer can pay without the code; null as above.
    pub location: Option<String>,
}

impl Response {
    /// Whether it is `PAID`, and exactly this amount of this currency was paid: what your own record of the sale says. Amounts are compared as numbers,
    /// so that 12.5 and 12.50 are the same. Only then deliver, and once.
    pub fn is_paid_exactly(&self, currency: &str, amount: Decimal) -> bool {
        let paid = self.actual_amount.as_deref().and_then(|text| Exact::parse(text).ok());
        self.order.status() == Status::Paid && self.order.currency == currency && paid == Some(Exact(amount))
    }
}
