//! What is around every call: its id, its log line, its document where it was refused.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{Method, Response};
use axum::middleware::Next;
use axum::response::IntoResponse;
use countersign_domain::time::UnixMillis;
use countersign_protocol::code::{self, Code};

use super::problem::Problem;
use super::{CameTo, CrowdedOut, Desk, Peer, Source};
use crate::edges::{self, CROWDED_OUT};
use crate::log::{self, RequestLine};
use crate::source::Sources;

/// Bytes of chance in a request's id.
const REQUEST_ID_BYTES: usize = 14;

/// What is known of a request before anything is checked.
#[derive(Clone, Debug)]
pub struct Context {
    /// Its id.
    pub request_id: String,
    /// The address it came from, or empty.
    pub source: String,
    /// The same, where it is known.
    pub address: Option<IpAddr>,
    /// When it came.
    pub at: UnixMillis,
}

/// A method that calls have. Whatever else a stranger writes is one for all, so that nobody can make the metrics grow.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// As the listener has worked it out; where the router is served by somebody else, from what it says of the connection.
pub(super) fn source(sources: &Sources, request: &Request) -> Option<IpAddr> {
    let extensions = request.extensions();
    let peer = || extensions.get::<Peer>().map(|peer| sources.of(peer.0, request.headers()));
    extensions.get::<Source>().map(|source| source.0).or_else(peer)
}

/// Gives the request its id, writes its line, and turns a [`Problem`] into a document. `Date` is set by whoever serves the connection.
pub(super) async fn frame(
    State((desk, came_to)): State<(Arc<Desk>, CameTo)>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let started = Instant::now();
    let source = source(&desk.settings.sources, &request);
    let context = Context {
        request_id: desk.app.chance.hex(REQUEST_ID_BYTES),
        source: source.map(|address| address.to_string()).unwrap_or_default(),
        address: source,
        at: desk.app.clock.now(),
    };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route =
        request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    request.extensions_mut().insert(context.clone());
    let refused = match request.extensions().get::<CrowdedOut>() {
        Some(_) => Err(Problem::new(Code::ServiceUnavailable, CROWDED_OUT)),
        None => refused_by_head(&desk, request),
    };
    let is_framing = matches!(&refused, Err(problem) if problem.code == Code::InvalidParameter);
    let mut response = match refused {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let problem = response.extensions_mut().remove::<Problem>();
    let code = problem.as_ref().map_or(code::SUCCESS, |problem| problem.code.code());
    if let Some(problem) = &problem {
        response = problem.render(&context.request_id, response.headers().get(ALLOW));
    }
    if let Ok(id) = HeaderValue::from_str(&context.request_id) {
        response.headers_mut().insert(desk.request_id_header.clone(), id);
    }
    // What the log says beside the answer: what the store said, where that is why.
    let trouble = problem.as_ref().and_then(|problem| problem.trouble.as_ref());
    let (reason, cause) = trouble.map_or(("", None), |cause| (desk.app.trouble.failed(cause), Some(cause.to_string())));
    if is_framing {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let (listener, is_tls) = match came_to {
        CameTo::Operators => ("operator", desk.settings.is_tls),
        CameTo::Health => ("health", false),
    };
    protect(response.headers_mut(), &path, is_tls);
    let known = known_method(&method);
    metrics::counter!("countersign_operator_requests_total", "method" => known, "route" => route, "code" => code)
        .increment(1);
    RequestLine {
        at: context.at,
        request_id: &context.request_id,
        listener,
        method: log::shown_method(method.as_str()),
        path: log::shown(&log::blinded(&path)),
        status: response.status().as_u16(),
        code,
        reason,
        sentence: cause.as_deref().or(problem.as_ref().map(|problem| &*problem.sentence)).unwrap_or_default(),
        client_id: "",
        merchant_id: "",
        on_behalf_of: "",
        source: &context.source,
        drift_ms: None,
        nonce_first_stamped: None,
        refused_through: None,
        duration_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
    }
    .write(&desk.settings.log);
    response
}

/// The checks of a head, which need nothing else: what may be understood in two ways, and what is too large.
fn refused_by_head(desk: &Desk, request: Request) -> Result<Request, Problem> {
    let (head, body) = request.into_parts();
    if let Some(sentence) = edges::framing_refusal(&head) {
        return Err(Problem::new(Code::InvalidParameter, sentence));
    }
    match edges::head_refusal(&head, &desk.settings.limits) {
        None => Ok(Request::from_parts(head, body)),
        Some(sentence) => Err(Problem::new(Code::HeadersTooLarge, sentence)),
    }
}

/// What a browser may do with an answer: show it, nothing else. The viewer may also run its own scripts.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const OWN_SCRIPTS: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; \
    connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// A browser that has seen the certificate once does not ask without TLS for this long: a year.
const TLS_ALWAYS: &str = "max-age=31536000";

fn protect(headers: &mut HeaderMap, path: &str, is_tls: bool) {
    let policy = if path.starts_with("/docs") { OWN_SCRIPTS } else { NOTHING };
    let mut put = |name, value| headers.insert(name, HeaderValue::from_static(value));
    put(X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(X_FRAME_OPTIONS, "DENY");
    put(REFERRER_POLICY, "no-referrer");
    put(CONTENT_SECURITY_POLICY, policy);
    put(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    put(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if is_tls {
        put(STRICT_TRANSPORT_SECURITY, TLS_ALWAYS);
    }
}

/// Answers of the API may hold a secret: nobody on the way keeps them.
pub async fn never_stored(request: Request, next: Next) -> Response<Body> {
    let mut response = next.run(request).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// 404.
pub async fn no_such_path() -> Problem {
    Problem::new(Code::NotFound, "no such path; /docs lists them all")
}

/// The same where nothing else is.
pub async fn nothing_but_health() -> Problem {
    Problem::new(Code::NotFound, "only /healthz, /readyz and /metrics are here; operators' listener has the rest")
}

/// 405.
pub async fn no_such_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path has no such method; the header Allow lists its methods")
}

/// The same of a path that is read whole or not at all: that somebody has taken it is in the audit log.
pub async fn only_get() -> ([(HeaderName, &'static str); 1], Problem) {
    ([(ALLOW, "GET")], no_such_method().await)
}

/// A panic in one call is that call's failure. Its text goes to the log through the panic hook.
pub fn panicked(_: Box<dyn Any + Send + 'static>) -> Response<Body> {
    Problem::internal().into_response()
}
