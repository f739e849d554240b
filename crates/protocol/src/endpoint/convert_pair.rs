//! `GET /v1/pay/convert/pair`: what a currency can be converted into, or from.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::RequestRefused;
use super::convert_currency::Side;
use crate::query::{Query, encode};

/// HTTP method.
pub const METHOD: &str = "GET";
/// Path.
pub const PATH: &str = "/v1/pay/convert/pair";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Request {
    /// The currency, 2 to 10 of `A-Z 0-9`.
    pub currency: String,
    /// Only conversions that sell it, or buy it. An empty one counts as absent.
    #[param(inline)]
    pub side: Option<Side>,
}

impl Request {
    /// The conversions that sell or buy this currency.
    pub fn new(currency: impl Into<String>) -> Self {
        Self { currency: currency.into(), side: None }
    }

    /// Reads a raw query string.
    pub fn parse(query: &str) -> Result<Self, RequestRefused> {
        let query = Query::parse(query);
        Ok(Self { currency: query.required_text("currency")?, side: Side::read(&query)? })
    }

    /// The query string that asks for it, without `?`.
    pub fn to_query(&self) -> String {
        let side = self.side.map(|side| format!("&side={}", side.as_str())).unwrap_or_default();
        format!("currency={}{side}", encode(&self.currency))
    }
}

/// One way to convert, and how much of either currency at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ConvertPair)]
#[serde(rename_all = "camelCase")]
pub struct Convertible {
    /// Base and quote coin: `GT_USDT`. A rate is quote coin per base coin.
    pub pair: String,
    /// Currency sold.
    pub sell_currency: String,
    /// Currency bought.
    pub buy_currency: String,
    /// Least that can be sold, numeric text.
    pub sell_currency_min: String,
    /// Most that can be sold.
    pub sell_currency_max: String,
    /// Least that can be bought.
    pub buy_currency_min: String,
    /// Most that can be bought.
    pub buy_currency_max: String,
}

/// By pair; conversions that sell the base coin first.
pub type Response = Vec<Convertible>;
