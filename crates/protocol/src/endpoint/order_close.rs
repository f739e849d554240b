//! `POST /v1/pay/order/close`: gives a pending payment order up.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::payment_order::Name as Request;

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/order/close";
/// What `result` says.
pub const DONE: &str = "SUCCESS";

/// It is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderClosed)]
pub struct Response {
    /// `SUCCESS`.
    pub result: String,
}
