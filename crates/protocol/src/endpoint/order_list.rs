//! `POST /v1/pay/order/list`: the merchant's own payment orders, newest first, by pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::order_page::{LIMIT_DEFAULT, LIMIT_MAX};
use super::payment_order::Status;
use super::{RequestRefused, order_page, order_query, to_json};
use crate::body::{FieldRefused, Fields, UNIX_MILLIS_MAX};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/order/list";

/// Which orders are asked for: those of which all of it is true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PaymentOrderListRequest)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Only those that stand so now: `PENDING`, `PROCESS`, `PAID`, `EXPIRED` or `CLOSED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<Status>,
    /// Only those made then or later, Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_time_from: Option<i64>,
    /// Only those made before then, Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_time_to: Option<i64>,
    /// `next` of the page before; absent or empty: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Most orders on the page, 1 to 100; 50 by default.
    #[schema(value_type = Option<u32>)]
    pub limit: u32,
}

impl Default for Request {
    /// The newest fifty.
    fn default() -> Self {
        Self { status: None, create_time_from: None, create_time_to: None, after: None, limit: LIMIT_DEFAULT }
    }
}

impl Request {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let status = fields.text("status")?.map(|text| match Status::from(text) {
            Status::Other(_) => Err(FieldRefused::new("status", "must be PENDING, PROCESS, PAID, EXPIRED or CLOSED")),
            known => Ok(known),
        });
        let (after, limit) = order_page::read(&fields)?;
        let create_time_from = fields.integer_within("createTimeFrom", 0, UNIX_MILLIS_MAX)?;
        let create_time_to = fields.integer_within("createTimeTo", 0, UNIX_MILLIS_MAX)?;
        if create_time_from.zip(create_time_to).is_some_and(|(from, to)| from >= to) {
            return Err(FieldRefused::new("createTimeTo", "must be greater than createTimeFrom").into());
        }
        Ok(Self { status: status.transpose()?, create_time_from, create_time_to, after, limit })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderList)]
pub struct Response {
    /// Newest first, each as the query tells it. A page may hold fewer than asked for, or none, and not be the last one.
    pub orders: Vec<order_query::Response>,
    /// What to send as `after` for the next page, beside the same filters; null: there is nothing more.
    pub next: Option<String>,
}
