//! `POST /v1/pay/convert/order/list`: the merchant's own convert orders, by pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::order_page::{LIMIT_DEFAULT, LIMIT_MAX};
use super::{RequestRefused, convert_order, order_page, to_json};
use crate::body::{FieldRefused, Fields};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/convert/order/list";

/// Which orders are asked for: those of which all of it is true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ConvertOrderListRequest)]
pub struct Request {
    /// Only those that stand so: 1 created, 3 success, 6 failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i64>,
    /// `next` of the page before; absent or empty: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Most orders on the page, 1 to 100; 50 by default.
    #[schema(value_type = Option<u32>)]
    pub limit: u32,
}

impl Default for Request {
    /// The first fifty.
    fn default() -> Self {
        Self { status: None, after: None, limit: LIMIT_DEFAULT }
    }
}

impl Request {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let status = fields.integer("status")?;
        if status.is_some_and(|status| !matches!(status, 1 | 3 | 6)) {
            return Err(FieldRefused::new("status", "must be 1, 3 or 6").into());
        }
        let (after, limit) = order_page::read(&fields)?;
        Ok(Self { status, after, limit })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ConvertOrderList)]
pub struct Response {
    /// By descending order ID, each as the query tells it. A page may hold fewer than asked for, or none, and not be the last one.
    pub orders: Vec<convert_order::Response>,
    /// What to send as `after` for the next page, beside the same `status`; null: there is nothing more.
    pub next: Option<String>,
}
