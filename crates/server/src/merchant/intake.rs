//! The transport's own checks: where to, how large, of what type.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::Endpoint;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Body;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT};
use hyper::http::request::Parts;

use super::answer::Failure;
use crate::edges::IntakeLimits;
use crate::{edges, log};

/// A body of a type that is refused is waited for no longer than this.
const REFUSED_BODY_FOR: Duration = Duration::from_secs(1);

/// The reason of a request whose body ended too early: its client has gone, or announced more than it sent.
pub const CUT_OFF: &str = "body_cut_off";

/// The endpoint of a path and method: 404, then 405.
pub fn endpoint(head: &Parts) -> Result<Endpoint, Failure> {
    let path = head.uri.path();
    let mut allowed = None;
    for endpoint in Endpoint::ALL {
        if endpoint.path() == path {
            if endpoint.method() == head.method.as_str() {
                return Ok(*endpoint);
            }
            allowed = Some(endpoint.method());
        }
    }
    match allowed {
        None => Err(Failure::new(Code::NotFound, not_found(path))),
        Some(method) => Err(Failure {
            allow: Some(allow(path).unwrap_or(method)),
            ..Failure::new(
                Code::MethodNotAllowed,
                format!(
                    "this path is not called with {}: use {}",
                    log::shown_method(head.method.as_str()),
                    allow(path).unwrap_or(method)
                ),
            )
        }),
    }
}

/// Which path may be meant by one that is nobody's.
fn not_found(path: &str) -> String {
    let bare = path.trim_end_matches('/');
    let meant = Endpoint::ALL.iter().map(|endpoint| endpoint.path()).find(|ours| ours.eq_ignore_ascii_case(bare));
    match meant {
        Some(meant) => format!("no operation has this path, but {meant} is one: paths are matched to the letter"),
        None => "no operation has this path; the section Operations of the protocol lists them, and they are matched to the letter".to_owned(),
    }
}

/// Paths that have two methods.
fn allow(path: &str) -> Option<&'static str> {
    let methods = Endpoint::ALL.iter().filter(|e| e.path() == path).count();
    (methods == 2).then_some("GET, POST")
}

/// 400, and the end of the connection: nobody may read on where another reader would see something else.
pub fn check_framing(head: &Parts) -> Result<(), Failure> {
    edges::framing_refusal(head).map_or(Ok(()), |sentence| {
        Err(Failure { ends_connection: true, ..Failure::new(Code::InvalidParameter, sentence).because("framing") })
    })
}

/// 431: more than the limits, up to what the HTTP parser itself reads.
pub fn check_head(head: &Parts, limits: &IntakeLimits) -> Result<(), Failure> {
    edges::head_refusal(head, limits).map_or(Ok(()), |sentence| Err(Failure::new(Code::HeadersTooLarge, sentence)))
}

/// A body on GET is signed as sent and not interpreted, and family clients leave the type out there. Packed it is refused as everywhere.
fn typed(head: &Parts) -> Result<(), Failure> {
    let says_nothing = ![CONTENT_TYPE, CONTENT_ENCODING].iter().any(|name| head.headers.contains_key(name));
    if head.method == Method::GET && says_nothing {
        return Ok(());
    }
    edges::type_refusal(&head.headers).map_or(Ok(()), |s| Err(Failure::new(Code::UnsupportedContentType, s)))
}

/// The body, whole: 413 and 415 as early as they are known.
pub async fn read<B>(head: &Parts, body: B, limits: &IntakeLimits) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error + 'static,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > limits.body_bytes_max as u64 {
        return Err(too_large(limits));
    }
    if body.size_hint().lower() > 0
        && let Err(refused) = typed(head)
    {
        // It is of no use. Where it comes along it is taken, and the connection goes on; else it ends with the answer, as after 413. Who asks first
        // has not sent it.
        if !head.headers.contains_key(EXPECT) {
            let _ = tokio::time::timeout(REFUSED_BODY_FOR.min(limits.body_timeout), gather(body, limits)).await;
        }
        return Err(refused);
    }
    let bytes = match tokio::time::timeout(limits.body_timeout, gather(body, limits)).await {
        Ok(Ok(bytes)) => bytes,
        // Chunks: that there is a body is known when the first one comes.
        Ok(Err(failure)) => {
            return Err(typed(head).err().filter(|_| failure.code != Code::BodyTooLarge).unwrap_or(failure));
        }
        Err(_) => {
            typed(head)?;
            let sentence = format!("body: did not arrive within {} s", limits.body_timeout.as_secs());
            return Err(Failure::new(Code::InvalidParameter, sentence).because("body_timeout"));
        }
    };
    if !bytes.is_empty() {
        typed(head)?;
    }
    Ok(bytes)
}

async fn gather<B>(body: B, limits: &IntakeLimits) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error + 'static,
{
    let mut body = std::pin::pin!(body);
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        let have = first.as_ref().map_or(0, Bytes::len) + all.len();
        if have + data.len() > limits.body_bytes_max {
            return Err(too_large(limits));
        }
        match first.take() {
            // Nearly every body comes in one piece: it is not copied.
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(head) => {
                all.extend_from_slice(&head);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Failure {
    let refused = |sentence: &str| Failure::new(Code::InvalidParameter, sentence);
    match edges::body_refusal(error) {
        Some(sentence) => refused(sentence).because("body_broken"),
        // It may have ended its half alone: whoever is there still gets an answer.
        None => refused(edges::BROKE_OFF).because(CUT_OFF),
    }
}

fn too_large(limits: &IntakeLimits) -> Failure {
    Failure::new(Code::BodyTooLarge, format!("body: must be at most {} bytes", limits.body_bytes_max))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use hyper::Request;
    use hyper::body::{Frame, SizeHint};

    use super::*;

    /// A body that never comes, or breaks where it begins; so long, or nobody knows.
    struct Trouble {
        length: Option<u64>,
        breaks: bool,
        asked: Arc<AtomicBool>,
    }

    impl Body for Trouble {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            self.asked.store(true, Ordering::Relaxed);
            if self.breaks { Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into()))) } else { Poll::Pending }
        }

        fn size_hint(&self) -> SizeHint {
            self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    #[test]
    fn a_method_that_is_none_is_told_as_far_as_the_log_has_it() {
        let method = "X".repeat(5_000);
        let request = Request::builder().method(method.as_str()).uri(Endpoint::ConvertOrder.path());
        let refused = endpoint(&request.body(()).expect("a request").into_parts().0).expect_err("no such method");
        let sentence = refused.sentence;
        assert!(sentence.starts_with("this path is not called with XXX") && sentence.len() < 200, "{sentence}");
    }

    fn head(media: &str, asks: bool) -> Parts {
        let mut request = Request::post("/rate/commission_rule/upgrade").header(CONTENT_TYPE, media);
        if asks {
            request = request.header(EXPECT, "100-continue");
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[tokio::test]
    async fn a_type_that_is_refused_comes_before_a_body_that_does_not() {
        let limits = IntakeLimits { body_timeout: Duration::from_millis(20), ..IntakeLimits::default() };
        for (media, length, breaks, asks, code, is_asked) in [
            ("text/plain", Some(5), false, false, Code::UnsupportedContentType, true),
            ("text/plain", Some(5), false, true, Code::UnsupportedContentType, false),
            ("text/plain", Some(5), true, false, Code::UnsupportedContentType, true),
            ("text/plain", None, false, false, Code::UnsupportedContentType, true),
            ("text/plain", None, true, false, Code::UnsupportedContentType, true),
            ("text/plain", Some(65_537), false, false, Code::BodyTooLarge, false),
            ("application/json", Some(5), false, false, Code::InvalidParameter, true),
            ("application/json", None, true, false, Code::InvalidParameter, true),
        ] {
            let asked = Arc::new(AtomicBool::new(false));
            let body = Trouble { length, breaks, asked: asked.clone() };
            let refused = read(&head(media, asks), body, &limits).await.expect_err("no body");
            let found = (refused.code, asked.load(Ordering::Relaxed));
            assert_eq!(found, (code, is_asked), "{media} {length:?} {breaks} {asks}");
        }
    }

    #[test]
    fn a_body_on_get_may_lack_its_type_but_is_never_packed() {
        let is_taken = |method: Method, headers: &[(&str, &str)]| {
            let request = Request::builder().method(method).uri("/v1/pay/convert/order");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let head = request.body(()).expect("a request").into_parts().0;
            typed(&head).map_err(|refused| refused.code)
        };
        let refused = Err(Code::UnsupportedContentType);
        let (json, packed) = (("content-type", "application/json"), ("content-encoding", "gzip"));
        for (method, headers, expected) in [
            (Method::GET, &[][..], Ok(())),
            (Method::GET, &[json], Ok(())),
            (Method::GET, &[packed], refused),
            (Method::GET, &[json, packed], refused),
            (Method::POST, &[], refused),
            (Method::POST, &[packed], refused),
        ] {
            assert_eq!(is_taken(method.clone(), headers), expected, "{method} {headers:?}");
        }
    }
}
