//! `POST /v1/pay/order/query`: one payment order of the caller, by either number.

use std::sync::Arc;

use countersign_protocol::endpoint::order_query::Request;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::payment_orders::named;
use super::signed::{Input, Signed};
use crate::app::{App, payment_orders};
use crate::edges::payment_orders::in_full;

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::OrderQuery;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.body)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let owner = signed.owner();
        let found = payment_orders::find(app, owner, &named(signed.request())).await?;
        success(&in_full(app, &owner.merchant_id, &found.order))
    }
}
