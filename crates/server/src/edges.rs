//! What the two edges share: the checks of a body's type, and the order that both show.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use countersign_domain::convert_order::ConvertOrder;
use countersign_protocol::endpoint::convert_order::Response;
use countersign_protocol::exact::Exact;
use hyper::Version;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, TRANSFER_ENCODING};
use hyper::http::request::Parts;

pub mod payment_orders;

/// What is said where as many requests are under way as there may be, in all or of one address.
pub(crate) const CROWDED_OUT: &str =
    "too many requests are under way, of all callers or of this address; nothing was done, so repeat this one soon";

/// How much of a request is taken in. See docs/OPERATING.md, Connections.
#[derive(Clone, Debug)]
pub struct IntakeLimits {
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// Bytes of a request line.
    pub line_bytes_max: usize,
    /// Bytes of a head.
    pub head_bytes_max: usize,
    /// Headers of a head.
    pub headers_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 * 1024,
            line_bytes_max: 8 * 1024,
            head_bytes_max: 32 * 1024,
            headers_max: 100,
            body_timeout: Duration::from_secs(10),
        }
    }
}

/// Why a body that is there is refused with 415: it must be JSON as it is, not packed. None where it is fine.
pub fn type_refusal(headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Some("header Content-Encoding: must be left out; send the body as it is");
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let first = match (types.next(), types.next()) {
        (None, _) => return Some("header Content-Type: is missing; a body needs Content-Type: application/json"),
        (Some(_), Some(_)) => return Some("header Content-Type: must be given once: application/json"),
        (Some(first), None) => first,
    };
    let media = first.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    let fits = media.eq_ignore_ascii_case("application/json");
    (!fits).then_some("header Content-Type: must be application/json")
}

/// What is said of a body that ended too early, where somebody is there to hear it.
pub const BROKE_OFF: &str = "body: broke off";

/// What is wrong with a body that could not be read to its end; none: it broke off.
pub fn body_refusal(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let causes = std::iter::successors(Some(error), |cause| (*cause).source());
    let kind = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind).next();
    matches!(kind, Some(ErrorKind::InvalidInput | ErrorKind::InvalidData)).then_some(
        "body: has chunks that cannot be read: each is its size in hex digits, CR LF, that many bytes, CR LF, and the last one has the size 0",
    )
}

macro_rules! must_be_host {
    ($header:literal) => {
        concat!(
            "header ",
            $header,
            ": must be the name or address that is called, and its port where that is not the usual one: host or host:port"
        )
    };
}

/// Why a head is refused that two readers of the same bytes could understand differently, such as a proxy and we. None where it is fine.
/// The parser refuses the rest of them.
pub fn framing_refusal(head: &Parts) -> Option<&'static str> {
    let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        (Some(_), _) => {
            return Some("header Transfer-Encoding: must be chunked, once, or left out where the body has no chunks");
        }
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Some("header Host: must be given once"),
        // RFC 9113, 8.3.1. Over HTTP/1.1 the target counts, whatever the header says (RFC 9112, 3.2.2).
        (Some(host), None) if head.version == Version::HTTP_2 && is_another(host.as_bytes(), head) => {
            Some("header Host: must be what :authority says, or left out")
        }
        (Some(host), None) => (!is_host(host.as_bytes())).then_some(must_be_host!("Host")),
        (None, None)
            if head.version == Version::HTTP_2
                && head.uri.authority().is_some_and(|a| !is_host(a.as_str().as_bytes())) =>
        {
            Some(must_be_host!(":authority"))
        }
        // RFC 9112, 3.2 would have one that is missing from HTTP/1.1 refused. Nothing here depends on it, so small clients, and probes of load
        // balancers, may do without.
        (None, None) => None,
    }
}

/// Whether the pseudo-header `:authority` is there and says something else.
fn is_another(host: &[u8], head: &Parts) -> bool {
    let usual: &[u8] = if head.uri.scheme_str() == Some("http") { b":80" } else { b":443" };
    let place = |text: &[u8]| text.strip_suffix(usual).unwrap_or(text).to_ascii_lowercase();
    head.uri.authority().is_some_and(|authority| place(authority.as_str().as_bytes()) != place(host))
}

/// Whether it is `uri-host [":" port]` of RFC 9110, 7.2, or empty, as of a target that has no authority.
fn is_host(value: &[u8]) -> bool {
    if value.is_empty() {
        return true;
    }
    let (host, port) = match value {
        [b'[', rest @ ..] => match rest.iter().position(|byte| *byte == b']') {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => return false,
        },
        _ => value.split_at(value.iter().position(|byte| *byte == b':').unwrap_or(value.len())),
    };
    let is_port = matches!(port, [] | [b':', ..]) && port.iter().skip(1).all(u8::is_ascii_digit);
    let is_literal = value.first() == Some(&b'[');
    let of_host =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte) || is_literal && *byte == b':';
    is_port && !host.is_empty() && host.iter().all(of_host)
}

/// Why a head is refused with 431: more than the limits, up to what the HTTP parser itself reads. None where it fits.
pub fn head_refusal(head: &Parts, limits: &IntakeLimits) -> Option<String> {
    let target = [
        head.uri.path_and_query().map_or(0, |path| path.as_str().len()),
        head.uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len()),
        head.uri.authority().map_or(0, |authority| authority.as_str().len()),
    ];
    let line = target.iter().sum::<usize>() + head.method.as_str().len() + " HTTP/1.1 ".len();
    // Four bytes a header: ": " and CR LF; four more are the CR LF of the first line and of the last, which is empty.
    let size = line + 4 + head.headers.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum::<usize>();
    let IntakeLimits { line_bytes_max, head_bytes_max, headers_max, .. } = limits;
    let headers = head.headers.len();
    [
        (line, line_bytes_max, "the first line of a request may have", "bytes"),
        (size, head_bytes_max, "the head of a request may have", "bytes"),
        (headers, headers_max, "a request may have", "headers"),
    ]
    .into_iter()
    .find(|(has, most, ..)| has > most)
    .map(|(has, most, may_have, what)| format!("{may_have} at most {most} {what}, and this one has {has}"))
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

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    #[test]
    fn the_first_line_counts_with_the_whole_target() {
        let limits = IntakeLimits::default();
        let refusal = |target: &str| {
            let head = Request::get(target).body(()).expect("a request").into_parts().0;
            head_refusal(&head, &limits)
        };
        let most = limits.line_bytes_max - "GET  HTTP/1.1".len();
        for before in ["/", "http://a/", "http://"] {
            let fill = |len: usize| format!("{before}{}", "x".repeat(len - before.len()));
            // The path of a target that has none is written as `/`.
            let most = if before == "http://" { most - 1 } else { most };
            assert_eq!(refusal(&fill(most)), None, "{before}");
            let said = refusal(&fill(most + 1)).expect("it is too long");
            assert!(said.starts_with("the first line of a request may have at most 8192 bytes"), "{said}");
        }
    }

    #[test]
    fn over_http_2_a_host_beside_another_authority_is_refused() {
        let refusal = |version, target: &str, host: Option<&str>| {
            let request =
                host.iter().fold(Request::get(target).version(version), |head, host| head.header(HOST, *host));
            framing_refusal(&request.body(()).expect("a request").into_parts().0)
        };
        let wrong = Some("header Host: must be what :authority says, or left out");
        for (target, host, wanted) in [
            ("https://a:1/x", Some("b:1"), wrong),
            ("https://a:1/x", Some("a"), wrong),
            ("https://a:1/x", Some("A:1"), None),
            ("https://a:443/x", Some("a"), None),
            ("https://a/x", Some("a:443"), None),
            ("https://a/x", Some("a:80"), wrong),
            ("http://a/x", Some("a:80"), None),
            ("https://a:1/x", None, None),
            ("/x", Some("b"), None),
        ] {
            assert_eq!(refusal(Version::HTTP_2, target, host), wanted, "{target} {host:?}");
            assert_eq!(refusal(Version::HTTP_11, target, host), None, "{target} {host:?}");
        }
        let said = refusal(Version::HTTP_2, "https://u@a/x", None).expect("it names a user");
        assert!(said.starts_with("header :authority: must be"), "{said}");
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port_or_without() {
        for good in
            ["", "a", "a.example", "a:80", "a:", "127.0.0.1:8080", "[::1]", "[::1]:8080", "a_b", "xn--a", "a%2db"]
        {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in
            [":80", "a b", "a b/@", "a, b", "a/b", "b@a", "a:b", "a:80:80", "::1", "[::1", "[]", "[::1]80", "\u{e9}"]
        {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
