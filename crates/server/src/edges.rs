//! What the two edges share: the checks of a body's type, and the order that both show.

use countersign_domain::convert::ConvertOrder;
use countersign_protocol::endpoint::convert_order::Response;
use countersign_protocol::exact::Exact;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

/// Why a body that is there is refused with 415: it must be JSON as it is, not packed. None where it is fine.
pub fn type_refusal(headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Some("send the body without Content-Encoding");
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        return Some("send the header Content-Type: application/json once");
    };
    let media = first.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    let fits = media.eq_ignore_ascii_case("application/json");
    (!fits).then_some("send the header Content-Type: application/json")
}

/// A convert order as merchants and operators see it.
pub fn convert_order(order: &ConvertOrder) -> Response {
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
