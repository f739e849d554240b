//! `POST /v1/pay/convert/order/list`: the caller's convert orders, by pages.

use std::sync::Arc;

use countersign_domain::convert_order::ConvertStatus;
use countersign_domain::ids::OrderId;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::convert_order_list::{Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};
use countersign_store::contract::Cursor;

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::{App, convert_orders};
use crate::edges;

/// The operation.
#[derive(Debug)]
pub struct Operation;

/// What is asked for, in the domain's words.
#[derive(Clone, Debug)]
pub struct Asked {
    status: Option<ConvertStatus>,
    page: Cursor<OrderId>,
}

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::ConvertOrderList;
    type Request = Asked;

    fn parse(input: Input<'_>) -> Result<Asked, RequestRefused> {
        let asked = Request::parse(input.body)?;
        let refused = |name, why| RequestRefused::of_field(Code::InvalidParameter, name, why);
        // Nobody is told all orders as if they stood as was asked for.
        let status = asked
            .status
            .map(|code| ConvertStatus::from_code(code).ok_or_else(|| refused("status", "is none of a convert order")));
        let after = asked
            .after
            .map(|after| OrderId::parse(&after).ok_or_else(|| refused("after", "must be the next of a page before")));
        Ok(Asked { status: status.transpose()?, page: Cursor { after: after.transpose()?, limit: asked.limit } })
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Asked>) -> Result<Vec<u8>, Failure> {
        let (owner, Asked { status, page }) = (signed.owner(), signed.request());
        let by = signed.application().application.no;
        let listed = convert_orders::of_merchant(app, owner, by, *status, page.clone()).await?;
        let orders = listed.orders.iter().map(|(_, order)| edges::convert_order(order)).collect();
        success(&Response { orders, next: listed.next.map(|next| next.to_string()) })
    }
}
