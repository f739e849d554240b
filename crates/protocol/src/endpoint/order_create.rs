//! `POST /v1/pay/order`: a payment order.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::payment_order::Order;
pub use super::payment_order::{Env, Goods, Request};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/order";

/// The order, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderMade)]
#[serde(transparent)]
pub struct Response(pub Order);
