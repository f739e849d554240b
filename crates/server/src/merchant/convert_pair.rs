//! `GET /v1/pay/convert/pair`: what a currency can be converted into, or from.

use std::sync::Arc;

use countersign_domain::conversion::Pair;
use countersign_protocol::endpoint::convert_currency::Side;
use countersign_protocol::endpoint::convert_pair::{Convertible, Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::convert::currency;
use super::signed::{Input, Signed};
use crate::app::conversion::Way;
use crate::app::{App, conversion};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::ConvertPair;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.query())
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = signed.request();
        let named = currency("currency", &asked.currency)?;
        let ways = conversion::ways(app).await?;
        let meant = ways.iter().filter(|way| {
            let (sold, bought) = Pair::sides(&way.rate.pair, way.direction);
            (*sold == named && asked.side != Some(Side::Buy)) || (*bought == named && asked.side != Some(Side::Sell))
        });
        success(&meant.map(convertible).collect::<Response>())
    }
}

fn convertible(way: &Way) -> Convertible {
    let (sold, bought) = way.rate.pair.sides(way.direction);
    let (of_sale, of_purchase) = way.rate.limits.sides(way.direction);
    Convertible {
        pair: way.rate.pair.to_string(),
        sell_currency: sold.as_str().to_owned(),
        buy_currency: bought.as_str().to_owned(),
        sell_currency_min: of_sale.0.to_string(),
        sell_currency_max: of_sale.1.to_string(),
        buy_currency_min: of_purchase.0.to_string(),
        buy_currency_max: of_purchase.1.to_string(),
    }
}
