//! What the two edges share: the checks of a body's type, and the order that both show.

use countersign_domain::convert::ConvertOrder;
use countersign_protocol::endpoint::convert_order::Response;
use countersign_protocol::exact::Exact;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, TRANSFER_ENCODING};
use hyper::http::request::Parts;

use crate::merchant::IntakeLimits;

pub mod payment_orders;

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

/// Why a head is refused that two readers of the same bytes could understand differently, such as a proxy and we. None where it is fine.
/// The parser refuses the rest of them.
pub fn framing_refusal(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        (Some(_), _) => return Some("send the body as it is, or in chunks: Transfer-Encoding: chunked, once"),
    }
    let mut hosts = headers.get_all(HOST).iter();
    (hosts.next().is_some() && hosts.next().is_some()).then_some("send the header Host once")
}

/// Why a head is refused with 431: more than the limits, up to what the HTTP parser itself reads. None where it fits.
pub fn head_refusal(head: &Parts, limits: &IntakeLimits) -> Option<String> {
    let line =
        head.uri.path_and_query().map_or(0, |p| p.as_str().len()) + head.method.as_str().len() + " HTTP/1.1 ".len();
    // Four bytes a header: ": " and CR LF.
    let size = line + head.headers.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum::<usize>();
    let IntakeLimits { line_bytes_max, head_bytes_max, headers_max, .. } = limits;
    (line > *line_bytes_max || size > *head_bytes_max || head.headers.len() > *headers_max).then(|| {
        format!(
            "the head of a request is at most {head_bytes_max} bytes in {headers_max} headers, its first line at most {line_bytes_max} bytes"
        )
    })
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
