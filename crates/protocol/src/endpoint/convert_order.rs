//! `GET /v1/pay/convert/order`: one convert order.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::RequestRefused;
use crate::body::{FieldRefused, missing};
use crate::exact::Exact;
use crate::query::{Query, encode};

/// HTTP method.
pub const METHOD: &str = "GET";
/// Path.
pub const PATH: &str = "/v1/pay/convert/order";
/// Most digits of an order ID.
pub const ORDER_ID_DIGITS_MAX: usize = 18;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Request {
    /// 1 to 18 digits without a leading zero. In its place `order_id` is taken, for clients that know it by that name: one of the two. New clients send this one.
    #[param(rename = "orderId")]
    pub order_id: String,
}

impl Request {
    /// Reads a raw query string.
    pub fn parse(query: &str) -> Result<Self, RequestRefused> {
        let query = Query::parse(query);
        let (name, order_id) = match (query.text("orderId")?, query.text("order_id")?) {
            (Some(_), Some(_)) => return Err(FieldRefused::new("order_id", "must not be given beside orderId").into()),
            (Some(order_id), None) => ("orderId", order_id),
            (None, Some(order_id)) => ("order_id", order_id),
            (None, None) => return Err(missing("orderId").into()),
        };
        let digits = (1..=ORDER_ID_DIGITS_MAX).contains(&order_id.len())
            && !order_id.starts_with('0')
            && order_id.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            return Err(FieldRefused::new(name, "must be 1 to 18 digits without a leading zero").into());
        }
        Ok(Self { order_id })
    }

    /// The query string that asks for it, without `?`.
    pub fn to_query(&self) -> String {
        format!("orderId={}", encode(&self.order_id))
    }
}

/// A convert order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ConvertOrder)]
pub struct Response {
    /// Order ID.
    pub order_id: String,
    /// User identifier.
    #[serde(rename = "userId")]
    pub user_id: i64,
    /// Currency sold.
    #[serde(rename = "sellCurrency")]
    pub sell_currency: String,
    /// Currency bought.
    #[serde(rename = "buyCurrency")]
    pub buy_currency: String,
    /// Amount sold, numeric text.
    #[serde(rename = "sellAmount")]
    pub sell_amount: String,
    /// Amount bought, numeric text.
    #[serde(rename = "buyAmount")]
    pub buy_amount: String,
    /// 1 created, 3 success, 6 failed.
    pub status: i64,
    /// Quote coin per base coin of the pair.
    pub rate: Exact,
    /// Quote ID.
    #[serde(rename = "quoteId")]
    pub quote_id: String,
    /// Unix milliseconds.
    #[serde(rename = "createTime")]
    pub create_time: i64,
}

/// Where a convert order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Made, not carried out yet.
    Created,
    /// Carried out. Final.
    Success,
    /// Not carried out, and never will be. Final.
    Failed,
    /// A number that is newer than this program, as it came.
    Other(i64),
}

impl Status {
    /// Whether an order with this status keeps it for ever. False for a number that this program does not know: ask again.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Success | Self::Failed => true,
            Self::Created | Self::Other(_) => false,
        }
    }
}

impl Response {
    /// The status by its name.
    pub const fn status(&self) -> Status {
        match self.status {
            1 => Status::Created,
            3 => Status::Success,
            6 => Status::Failed,
            other => Status::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn a_status_has_a_name_and_an_unknown_one_keeps_its_number() {
        let order = |status| super::Response {
            order_id: "1".to_owned(),
            user_id: 1,
            sell_currency: "GT".to_owned(),
            buy_currency: "USDT".to_owned(),
            sell_amount: "1".to_owned(),
            buy_amount: "1".to_owned(),
            status,
            rate: crate::exact::Exact::default(),
            quote_id: "q".to_owned(),
            create_time: 0,
        };
        for (number, name, is_final) in [
            (1, Status::Created, false),
            (3, Status::Success, true),
            (6, Status::Failed, true),
            (2, Status::Other(2), false),
        ] {
            let status = order(number).status();
            assert_eq!((status, status.is_final()), (name, is_final));
        }
    }
}
