//! `GET /v1/pay/convert/order`: one convert order of the caller.

use std::sync::Arc;

use countersign_domain::ids::OrderId;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::convert_order::Request;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::{App, convert_orders};
use crate::edges;

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::ConvertOrder;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.query())
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let order = OrderId::parse(&signed.request().order_id).ok_or_else(|| {
            Failure::of_field(Code::InvalidParameter, "orderId", "must be 1 to 18 digits without a leading zero")
        })?;
        success(&edges::convert_order(&convert_orders::query(app, signed.owner(), order).await?))
    }
}
