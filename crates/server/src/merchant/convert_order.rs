//! `GET /v1/pay/convert/order`: one convert order of the caller.

use countersign_domain::convert::ConvertOrder;
use countersign_domain::ids::OrderId;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::convert_order::{Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};
use countersign_protocol::exact::Exact;

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::{App, convert};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::ConvertOrder;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.query())
    }

    async fn handle(app: &App, signed: &Signed<Request>) -> Result<Vec<u8>, Failure> {
        let order = OrderId::parse(&signed.request().order_id).ok_or_else(|| {
            Failure::new(Code::InvalidParameter, "orderId: must be 1 to 18 digits without a leading zero")
        })?;
        success(&view(&convert::query(app, signed.owner(), order).await?))
    }
}

fn view(order: &ConvertOrder) -> Response {
    Response {
        order_id: order.order_id.to_string(),
        user_id: order.user_id,
        sell_currency: order.sell_currency.as_str().to_owned(),
        buy_currency: order.buy_currency.as_str().to_owned(),
        sell_amount: order.sell_amount.to_string(),
        buy_amount: order.buy_amount.to_string(),
        status: order.status.code(),
        rate: Exact(order.rate),
        quote_id: order.quote_id.clone(),
        create_time: order.created_at.0,
    }
}
