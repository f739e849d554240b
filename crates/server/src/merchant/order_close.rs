//! `POST /v1/pay/order/close`: gives a pending payment order of the caller up.

use std::sync::Arc;

use countersign_protocol::endpoint::order_close::{DONE, Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::payment_orders::named;
use super::signed::{Input, Signed};
use crate::app::{App, payment_orders};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::OrderClose;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.body)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let named = named(signed.request());
        payment_orders::close(app, signed.owner(), &named, signed.claim(), &signed.actor()).await?;
        success(&Response { result: DONE.to_owned() })
    }
}
