//! `POST /v1/pay/order`: a payment order.

use std::sync::Arc;

use countersign_domain::payment_order::PaymentKind;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::payment_orders::{OrderRequest, create, parse};
use super::signed::{Input, Signed};
use crate::app::App;
use crate::edges::payment_orders::made;

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::OrderCreate;
    type Request = OrderRequest;

    fn parse(input: Input<'_>) -> Result<OrderRequest, RequestRefused> {
        parse(input)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, OrderRequest>) -> Result<Vec<u8>, Failure> {
        success(&made(&create(app, signed, PaymentKind::Order).await?.order))
    }
}
