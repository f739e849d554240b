//! `POST /v1/pay/convert`: carries a quote out. The data is the convert order.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::convert_order::Response;
use super::convert_preview::{self, amount};
use super::{RequestRefused, to_json};
use crate::body::{FieldRefused, Fields, missing};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/convert";
/// Longest `clientReqId`.
pub const CLIENT_REQ_ID_CHARS_MAX: usize = 100;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ConvertRequest)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// 1 to 100 of `A-Z a-z 0-9 _ -`, unique with the merchant for ever: the same one with the same content is answered with the order that it made.
    pub client_req_id: String,
    /// The quote.
    pub quote_id: String,
    /// Currency sold, as in the quote.
    pub sell_currency: String,
    /// Currency bought.
    pub buy_currency: String,
    /// Amount sold, numeric text.
    pub sell_amount: String,
    /// Amount bought, numeric text.
    pub buy_amount: String,
}

impl Request {
    /// What carries this quote out under that `clientReqId`. Store it whole before you send it: after a lost answer it must be the same again, and a new
    /// quote is other content.
    pub fn of(client_req_id: impl Into<String>, quote: &convert_preview::Response) -> Self {
        Self {
            client_req_id: client_req_id.into(),
            quote_id: quote.quote_id.clone(),
            sell_currency: quote.sell_currency.clone(),
            buy_currency: quote.buy_currency.clone(),
            sell_amount: quote.sell_amount.clone(),
            buy_amount: quote.buy_amount.clone(),
        }
    }

    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let client_req_id = fields.required_text("clientReqId")?;
        let is_name = (1..=CLIENT_REQ_ID_CHARS_MAX).contains(&client_req_id.len())
            && client_req_id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !is_name {
            return Err(FieldRefused::new("clientReqId", "must be 1 to 100 of A-Z a-z 0-9 _ -").into());
        }
        Ok(Self {
            client_req_id,
            quote_id: fields.required_text("quoteId")?,
            sell_currency: fields.required_text("sellCurrency")?,
            buy_currency: fields.required_text("buyCurrency")?,
            sell_amount: amount(&fields, "sellAmount")?.ok_or_else(|| missing("sellAmount"))?,
            buy_amount: amount(&fields, "buyAmount")?.ok_or_else(|| missing("buyAmount"))?,
        })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        to_json(self)
    }
}
