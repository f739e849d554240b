//! `POST /v1/pay/convert`: an order made of a quote.

use std::sync::Arc;

use countersign_domain::conversion::Terms;
use countersign_domain::money::{Amount, Currency, TRANSACTION_MAX, transaction_digits};
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::convert::Request;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::App;
use crate::app::conversion::{self, Conversion};
use crate::edges;

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::Convert;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.body)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = signed.request();
        let asked = Conversion {
            client_req_id: asked.client_req_id.clone(),
            terms: Terms {
                quote_id: asked.quote_id.clone(),
                sell_currency: currency("sellCurrency", &asked.sell_currency)?,
                buy_currency: currency("buyCurrency", &asked.buy_currency)?,
                sell_amount: amount("sellAmount", &asked.sell_amount)?,
                buy_amount: amount("buyAmount", &asked.buy_amount)?,
            },
        };
        let order = conversion::convert(app, signed.owner(), &asked, signed.claim(), &signed.actor()).await?;
        success(&edges::convert_order(&order))
    }
}

/// A currency's code; the answer names the field.
pub(super) fn currency(field: &str, text: &str) -> Result<Currency, Failure> {
    Currency::parse(text).ok_or_else(|| Failure::of_field(Code::InvalidCurrency, field, "must be 2 to 10 of A-Z 0-9"))
}

/// An amount of any size, never rounded; the answer names the field.
pub(super) fn amount(field: &str, text: &str) -> Result<Amount, Failure> {
    transaction_digits(text, TRANSACTION_MAX).map_err(|refused| Failure::of_field(Code::InvalidAmount, field, refused))
}
