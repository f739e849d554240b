//! `POST /v1/pay/convert/preview`: what a conversion would come to, and a quote that holds the price for a while.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RequestRefused, to_json};
use crate::body::{FieldRefused, Fields};
use crate::code::Code;
use crate::exact::Exact;

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/v1/pay/convert/preview";

/// The amount that the caller fixes, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// So much is sold.
    Sell(String),
    /// So much is bought.
    Buy(String),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Currency sold.
    pub sell_currency: String,
    /// Currency bought.
    pub buy_currency: String,
    /// How much of one of them.
    pub fixed: Fixed,
}

/// The body as it is described; exactly one of the two amounts.
#[derive(Serialize, ToSchema)]
#[schema(as = ConvertPreviewRequest)]
#[serde(rename_all = "camelCase")]
pub struct Body<'a> {
    /// Currency sold, 2 to 10 of `A-Z 0-9`.
    pub sell_currency: &'a str,
    /// Currency bought, another one.
    pub buy_currency: &'a str,
    /// Amount sold: a text, at most 6 decimals. What it buys is computed and rounded down. Empty counts as absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sell_amount: Option<&'a str>,
    /// Amount bought: a text, at most 6 decimals. What it costs is computed and rounded up. Empty counts as absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buy_amount: Option<&'a str>,
}

impl std::fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body")
            .field("sell", &self.sell_currency)
            .field("buy", &self.buy_currency)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let (sell_currency, buy_currency) =
            (fields.required_text("sellCurrency")?, fields.required_text("buyCurrency")?);
        let fixed = match (amount(&fields, "sellAmount")?, amount(&fields, "buyAmount")?) {
            (Some(amount), None) => Fixed::Sell(amount),
            (None, Some(amount)) => Fixed::Buy(amount),
            (Some(_), Some(_)) => {
                return Err(FieldRefused::new(
                    "buyAmount",
                    "must not be given beside sellAmount: the other one is computed",
                )
                .into());
            }
            (None, None) => {
                return Err(FieldRefused::new("sellAmount", "is required, or buyAmount in its place").into());
            }
        };
        Ok(Self { sell_currency, buy_currency, fixed })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        let (sell_amount, buy_amount) = match &self.fixed {
            Fixed::Sell(amount) => (Some(amount.as_str()), None),
            Fixed::Buy(amount) => (None, Some(amount.as_str())),
        };
        to_json(&Body { sell_currency: &self.sell_currency, buy_currency: &self.buy_currency, sell_amount, buy_amount })
    }
}

/// An amount as it was written: a JSON string; empty counts as absent.
pub(super) fn amount(fields: &Fields<'_>, name: &str) -> Result<Option<String>, RequestRefused> {
    let why = "must be a JSON string with a plain number such as \"12.5\"";
    let refused = |_| RequestRefused::of_field(Code::InvalidAmount, name, why);
    Ok(fields.text(name).map_err(refused)?.filter(|text| !text.is_empty()))
}

/// The quote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ConvertQuote)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// Currency sold.
    pub sell_currency: String,
    /// Currency bought.
    pub buy_currency: String,
    /// Amount sold, numeric text.
    pub sell_amount: String,
    /// Amount bought, numeric text.
    pub buy_amount: String,
    /// Quote coin per base coin of the pair.
    pub rate: Exact,
    /// Names the quote where it is carried out.
    pub quote_id: String,
    /// The quote is good before this instant, in Unix milliseconds.
    pub expire_time: i64,
}
