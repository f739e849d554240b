//! What the operations about payment orders share: words of the wire to values of the domain.

use std::sync::Arc;

use countersign_domain::payment_order::{Content, PaymentKind};
use countersign_domain::time::UnixMillis;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::RequestRefused;
use countersign_protocol::endpoint::payment_order::{Name, Request};
use countersign_store::payment_order::{PaymentOrderRow, Received};

use super::answer::Failure;
use super::signed::{Input, Signed};
use crate::app::App;
use crate::app::payment_orders::{self, Named, Wanted};

/// The headers that a signature and a right rest on, whatever the prefix before them.
const KEPT: [&str; 7] =
    ["certificate-clientid", "certificate-sn", "timestamp", "nonce", "signature", "merchantid", "on-behalf-of"];

/// A body of this length, in bytes, is kept in any case: a little more than an order with all its fields needs, written plainly.
const ALWAYS_BYTES: usize = 4096;

/// An order that is asked for, and the request as it came.
#[derive(Debug)]
pub struct OrderRequest {
    request: Request,
    received: Arc<Received>,
}

/// Reads the request of either operation that makes an order.
pub fn parse(input: Input<'_>) -> Result<OrderRequest, RequestRefused> {
    Ok(OrderRequest { request: Request::parse(input.body)?, received: Arc::new(received(input)) })
}

/// Method and path and the headers that count, each on a line, and the body. What stands under another prefix, or in a query, is nobody's: it was ignored.
fn received(input: Input<'_>) -> Received {
    let mut head = format!("{} {}", input.head.method, input.head.uri.path());
    for (name, value) in &input.head.headers {
        let counts =
            input.prefix.and_then(|prefix| name.as_str().strip_prefix(prefix)).is_some_and(|of| KEPT.contains(&of));
        if counts && let Ok(value) = value.to_str() {
            head.push('\n');
            head.push_str(name.as_str());
            head.push_str(": ");
            head.push_str(value);
        }
    }
    Received { head, body: input.body.to_vec() }
}

/// Makes an order of this kind, or finds it.
pub async fn create(
    app: &App,
    signed: &Signed<'_, OrderRequest>,
    kind: PaymentKind,
) -> Result<PaymentOrderRow, Failure> {
    let OrderRequest { request, received } = signed.request();
    let goods = request.goods.clone().unwrap_or_default();
    let content = Content {
        kind,
        currency: payment_orders::currency("currency", &request.currency)?,
        amount: payment_orders::amount("orderAmount", &request.order_amount, kind)?,
        merchant_user_id: request.merchant_user_id.clone(),
        channel_id: request.channel_id.clone(),
        goods_name: goods.goods_name,
        goods_detail: goods.goods_detail,
    };
    let wanted = Wanted {
        trade_no: request.merchant_trade_no.clone(),
        content,
        terminal_type: request.env.as_ref().and_then(|env| env.terminal_type.clone()),
        return_url: request.return_url.clone(),
        cancel_url: request.cancel_url.clone(),
        expires_at: request.order_expire_time.map(UnixMillis),
        received: Arc::clone(received),
    };
    let by = &signed.application().application;
    let further = received.body.len().saturating_sub(ALWAYS_BYTES);
    app.long_bodies.take(by.no, further).map_err(too_long_too_often)?;
    Ok(payment_orders::create(app, signed.owner(), by, &wanted, signed.claim(), &signed.actor()).await?)
}

/// The body is kept with the order for ever, and the disk is everybody's.
fn too_long_too_often(seconds: u64) -> Failure {
    let sentence = format!(
        "the bodies of too many orders of this application were longer than {ALWAYS_BYTES} bytes: leave out what the operation does not know, or slow down"
    );
    Failure { retry_after_s: Some(seconds), ..Failure::new(Code::RateLimited, sentence) }
}

/// The order that a request names.
pub fn named(name: &Name) -> Named<'_> {
    Named { prepay_id: name.prepay_id.as_deref(), trade_no: name.merchant_trade_no.as_deref() }
}
