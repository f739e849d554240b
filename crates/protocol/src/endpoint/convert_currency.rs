//! `GET /v1/pay/convert/currency`: what can be converted.

use utoipa::{IntoParams, ToSchema};

use super::RequestRefused;
use crate::body::FieldRefused;
use crate::query::Query;

/// HTTP method.
pub const METHOD: &str = "GET";
/// Path.
pub const PATH: &str = "/v1/pay/convert/currency";

/// Which side of a conversion a currency is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Side {
    /// It is sold.
    Sell,
    /// It is bought.
    Buy,
}

impl Side {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sell => "sell",
            Self::Buy => "buy",
        }
    }

    /// The parameter `side` of a query; none: both sides.
    pub(super) fn read(query: &Query<'_>) -> Result<Option<Self>, FieldRefused> {
        match query.text("side")?.as_deref() {
            None | Some("") => Ok(None),
            Some("sell") => Ok(Some(Self::Sell)),
            Some("buy") => Ok(Some(Self::Buy)),
            Some(_) => Err(FieldRefused::new("side", "must be sell or buy")),
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Request {
    /// Only currencies that can be sold, or bought. An empty one counts as absent.
    #[param(inline)]
    pub side: Option<Side>,
}

impl Request {
    /// Reads a raw query string.
    pub fn parse(query: &str) -> Result<Self, RequestRefused> {
        Ok(Self { side: Side::read(&Query::parse(query))? })
    }

    /// The query string that asks for it, without `?`; empty where nothing is said.
    pub fn to_query(&self) -> String {
        self.side.map(|side| format!("side={}", side.as_str())).unwrap_or_default()
    }
}

/// The currencies, in alphabetical order.
pub type Response = Vec<String>;
