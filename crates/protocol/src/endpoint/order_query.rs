//! `POST /v1/pay/order/query`: one payment order, by either number.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::payment_order::Name as Request;
use super::payment_order::{Fee, Order};

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
