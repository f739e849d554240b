//! `POST /v1/pay/transactions/native`: a payment order that is paid by a personal QR code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::payment_order::Order;
pub use super::payment_order::{Env, Goods, Request};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/transactions/native";

/// The order, as it is now, and what its code holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NativeOrderMade)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The order.
    #[serde(flatten)]
    pub order: Order,
    /// The text of the QR code: the deployment's `checkout_url`, a slash and the `prepayId`. As shipped (`countersign://pay`) it leads nowhere.
    pub qr_content: String,
    /// Where the payer can pay without the code; the same address.
    pub location: String,
}
