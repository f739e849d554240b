//! `POST /v1/pay/convert/preview`: a price, and a quote that holds it for a while.

use std::sync::Arc;

use countersign_domain::conversion::{Given, Quote};
use countersign_protocol::endpoint::convert_preview::{Fixed, Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};
use countersign_protocol::exact::Exact;

use super::answer::{Failure, success};
use super::convert::{amount, currency};
use super::signed::{Input, Signed};
use crate::app::App;
use crate::app::conversion::{self, PriceAsk};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::ConvertPreview;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.body)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = signed.request();
        let ask = PriceAsk {
            sell: currency("sellCurrency", &asked.sell_currency)?,
            buy: currency("buyCurrency", &asked.buy_currency)?,
            given: match &asked.fixed {
                Fixed::Sell(text) => Given::Sell(amount("sellAmount", text)?),
                Fixed::Buy(text) => Given::Buy(amount("buyAmount", text)?),
            },
        };
        success(&answer(&conversion::preview(app, signed.owner(), &ask, signed.claim()).await?))
    }
}

fn answer(quote: &Quote) -> Response {
    Response {
        sell_currency: quote.sell_currency.as_str().to_owned(),
        buy_currency: quote.buy_currency.as_str().to_owned(),
        sell_amount: quote.sell_amount.to_string(),
        buy_amount: quote.buy_amount.to_string(),
        rate: Exact(quote.rate),
        quote_id: quote.quote_id.clone(),
        expire_time: quote.expires_at.0,
    }
}
