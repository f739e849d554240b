//! `GET /v1/pay/convert/currency`: what can be converted.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_domain::money::Currency;
use countersign_protocol::endpoint::convert_currency::{Request, Response, Side};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::{App, conversion};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::ConvertCurrency;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.query())
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let side = signed.request().side;
        let ways = conversion::ways(app).await?;
        let named = ways.iter().flat_map(|way| {
            let (sold, bought) = way.rate.pair.sides(way.direction);
            let (is_sale, is_purchase) = (side != Some(Side::Buy), side != Some(Side::Sell));
            [is_sale.then_some(sold), is_purchase.then_some(bought)]
        });
        let currencies: BTreeSet<&str> = named.flatten().map(Currency::as_str).collect();
        success(&currencies.into_iter().map(str::to_owned).collect::<Response>())
    }
}
