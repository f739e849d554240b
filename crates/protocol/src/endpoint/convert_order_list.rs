//! `POST /v1/pay/convert/order/list`: the merchant's own convert orders, by pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RequestRefused, convert_order, to_json};
use crate::body::{FieldRefused, Fields};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/convert/order/list";
/// Orders on a page where nothing is said.
pub const LIMIT_DEFAULT: u32 = 50;
/// Most orders on a page.
pub const LIMIT_MAX: u32 = 100;

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
        let limit = fields.integer_within("limit", 1, i64::from(LIMIT_MAX))?;
        Ok(Self {
            status,
            after: fields.text("after")?.filter(|after| !after.is_empty()),
            limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT),
        })
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
