//! `POST /v1/pay/order/list`: the caller's payment orders, newest first, by pages.

use std::sync::Arc;

use countersign_domain::payment_order::{PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::order_list::{Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};
use countersign_store::contract::Cursor;
use countersign_store::payment_order::PaymentOrderFilter;

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::{App, payment_orders};
use crate::edges::payment_orders::in_full;

/// The operation.
#[derive(Debug)]
pub struct Operation;

/// What is asked for, in the domain's words.
#[derive(Clone, Debug)]
pub struct Asked {
    filter: PaymentOrderFilter,
    page: Cursor<PrepayId>,
}

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::OrderList;
    type Request = Asked;

    fn parse(input: Input<'_>) -> Result<Asked, RequestRefused> {
        let asked = Request::parse(input.body)?;
        // Nobody is told all orders as if they stood as was asked for.
        let status = asked.status.map(|status| {
            let unknown = || RequestRefused::of_field(Code::InvalidParameter, "status", "is none of an order");
            PaymentStatus::from_name(status.as_str()).ok_or_else(unknown)
        });
        let is_none = || RequestRefused::of_field(Code::InvalidParameter, "after", "must be the next of a page before");
        let after = asked.after.map(|after| PrepayId::parse(&after).ok_or_else(is_none)).transpose()?;
        let filter = PaymentOrderFilter {
            status: status.transpose()?,
            from: asked.create_time_from.map(UnixMillis),
            to: asked.create_time_to.map(UnixMillis),
            ..PaymentOrderFilter::default()
        };
        Ok(Asked { filter, page: Cursor { after, limit: asked.limit } })
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Asked>) -> Result<Vec<u8>, Failure> {
        let (owner, asked) = (signed.owner(), signed.request());
        let by = signed.application().application.no;
        let listed = payment_orders::of_merchant(app, owner, by, asked.filter.clone(), asked.page.clone()).await?;
        if let Some(place) = listed.place {
            signed.hold(place);
        }
        let orders = listed.orders.iter().map(|row| in_full(app, &owner.merchant_id, &row.order)).collect();
        success(&Response { orders, next: listed.next.map(|next| next.to_string()) })
    }
}
