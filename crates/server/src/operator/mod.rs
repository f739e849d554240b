//! The operator listener: provisioning, the daily business, and what a console needs to see. And the listener that tells of health alone.
//!
//! Every answer carries a request id; every refusal is a problem document (RFC 9457). A call is taken in this order, and the first
//! thing that is wrong is the answer: path and method, bearer token, role, content type and size, idempotency key, body.
//!
//! Invariant: nothing here writes to the store. A handler translates, calls `app` once, and translates back.
//! Invariant: a secret leaves this process in the first answer to the call that made it, and never again.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{HeaderName, InvalidHeaderName};
use axum::http::{Request, Response};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse as _;
use axum::routing::get;
use countersign_domain::time::UnixMillis;
use countersign_protocol::headers::Prefixes;
use metrics_exporter_prometheus::PrometheusHandle;
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::app::concurrency_limit::ConcurrencyLimit;
use crate::dispatch::Dispatcher;
use crate::dispatch::egress::Egress;
use crate::edges::IntakeLimits;
use crate::listen::{Held, RequestLimit};
use crate::log::LogSink;
use crate::source::Sources;

mod auth;
mod call;
mod documents;
mod doors;
pub(crate) mod fields;
mod filters;
mod frame;
pub(crate) mod paging;
mod problem;
mod streaming;

pub mod applications;
pub mod attempts;
pub mod audit;
pub mod audit_chain;
pub mod callbacks;
pub mod causes;
pub mod convert_orders;
pub mod delivery;
pub mod events;
pub mod evidence;
pub mod fee_rules;
pub mod health;
pub mod master_key;
pub mod merchants;
pub mod nodes;
pub mod payment_orders;
pub mod rates;
pub mod redeliveries;
pub mod requests;
pub mod retention;
pub mod secrets;
pub mod statements;
pub mod tokens;
pub mod what_if;

pub use auth::Gate;
pub use call::KEY_BYTES_MAX;
pub use doors::{Door, doors};
pub use problem::{Problem, ProblemDocument};

/// Where the operator API begins.
pub const BASE: &str = "/operator/v1";

/// What the operator listener is configured with.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    /// Header prefixes; the first names the request id's header.
    pub prefixes: Prefixes,
    /// Where callbacks may go.
    pub egress: Egress,
    /// Who is asked whose address a request came from.
    pub sources: Sources,
    /// Largest body, in bytes.
    pub body_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// What `/metrics` renders.
    pub metrics: PrometheusHandle,
    /// Where request lines go.
    pub log: LogSink,
    /// How large a head may be.
    pub limits: IntakeLimits,
    /// Whether the listener speaks TLS.
    pub is_tls: bool,
    /// Who tries tokens.
    pub gate: Arc<Gate>,
    /// Sends a callback that tells of nothing, where somebody asks for one.
    pub dispatcher: Arc<Dispatcher>,
}

/// Reads that walk over very many rows to count them, of one token: what dead callbacks died of, how a redelivery fared, what a redelivery would send,
/// what retention will free.
const COUNTS_MAX: usize = 2;

/// The operator listener's state.
#[derive(Debug)]
pub struct Desk {
    /// The deployment.
    pub(crate) app: Arc<App>,
    settings: OperatorSettings,
    request_id_header: HeaderName,
    started_at: UnixMillis,
    statements: ConcurrencyLimit,
    what_ifs: ConcurrencyLimit,
    searches: ConcurrencyLimit,
    counts: ConcurrencyLimit,
    last_look: health::LastLook,
}

/// The address at the other end of the connection; whoever serves the router puts it into each request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Who is let in, before anything of a call is looked at.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// How many calls may be under way.
    pub request_limit: Arc<RequestLimit>,
    /// Who is asked whose address a request came from.
    pub sources: Sources,
}

/// Stands in the extensions of a call that has found no place: nothing else is left of it but what its line in the log says.
#[derive(Clone, Copy, Debug)]
struct CrowdedOut;

/// The address that a call came from, as the limit has worked it out. A call that has found no place has no headers left to work it out from.
#[derive(Clone, Copy, Debug)]
struct Source(IpAddr);

impl Desk {
    /// Of a deployment. Fails where a prefix makes no header name.
    pub fn new(app: Arc<App>, settings: OperatorSettings) -> Result<Arc<Self>, InvalidHeaderName> {
        let request_id_header = HeaderName::from_bytes(settings.prefixes.first().request_id.as_bytes())?;
        Ok(Arc::new(Self {
            started_at: app.clock.now(),
            app,
            settings,
            request_id_header,
            statements: ConcurrencyLimit::new(statements::STATEMENTS_MAX, statements::STATEMENTS_MAX + 2, "statements"),
            what_ifs: ConcurrencyLimit::new(what_if::WHAT_IFS_MAX, what_if::WHAT_IFS_MAX + 1, "what-ifs"),
            searches: ConcurrencyLimit::new(audit::SEARCHES_MAX, audit::SEARCHES_MAX + 2, "searches of the audit log"),
            counts: ConcurrencyLimit::new(COUNTS_MAX, 2 * COUNTS_MAX, "counts of many events"),
            last_look: health::LastLook::default(),
        }))
    }
}

/// Which listener a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CameTo {
    /// That of operators.
    Operators,
    /// That for health alone.
    Health,
}

/// What the operator listener answers.
pub fn router(desk: &Arc<Desk>) -> Router {
    let prefix = desk.settings.prefixes.first().as_given().to_owned();
    let mut api = Router::new();
    for door in doors() {
        let guard = from_fn_with_state((desk.clone(), door.role), auth::demand);
        api = api.route(&door.path(), door.handler.route_layer(guard));
    }
    let api = api.layer(from_fn(frame::never_stored)).merge(of_health()).with_state(desk.clone());
    framed(api.merge(documents::routes(&prefix)).fallback(frame::no_such_path), desk, CameTo::Operators)
}

/// What the listener for health alone answers.
pub fn health_router(desk: &Arc<Desk>) -> Router {
    framed(of_health().with_state(desk.clone()).fallback(frame::nothing_but_health), desk, CameTo::Health)
}

/// What is asked without a token.
fn of_health() -> Router<Arc<Desk>> {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
}

fn framed(router: Router, desk: &Arc<Desk>, came_to: CameTo) -> Router {
    router
        .method_not_allowed_fallback(frame::no_such_method)
        .layer(CatchPanicLayer::custom(frame::panicked))
        .layer(from_fn_with_state((desk.clone(), came_to), frame::frame))
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Held<Body>>, Infallible>> + Send>>;

/// The service of one connection from `peer`, for hyper.
pub fn connection<B>(
    router: &Router,
    entrance: &Entrance,
    peer: IpAddr,
) -> impl hyper::service::Service<Request<B>, Response = Response<Held<Body>>, Error = Infallible, Future = Answering>
+ Send
+ 'static
+ use<B>
where
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let (router, entrance) = (router.clone(), entrance.clone());
    hyper::service::service_fn(move |request: Request<B>| {
        let router = router.clone();
        // At once: of what is turned away no task holds the head.
        let source = entrance.sources.of(peer, request.headers());
        let permit = entrance.request_limit.enter(source);
        let mut request = if permit.is_some() { request.map(Body::new) } else { nothing_but_its_line(&request) };
        request.extensions_mut().insert(Source(source));
        // On a task of its own: a caller who hangs up must not cut off what follows a commit, such as forgetting a revoked secret. It keeps its
        // place until then, and until the answer is taken.
        let call = tokio::spawn(async move {
            let Ok(answer) = router.oneshot(request).await;
            answer.map(|body| Held::new(body, permit))
        });
        let internal = || Problem::internal().into_response().map(|body| Held::new(body, None));
        Box::pin(async move { Ok(call.await.unwrap_or_else(|_| internal())) }) as Answering
    })
}

fn nothing_but_its_line<B>(request: &Request<B>) -> Request<Body> {
    let mut bare = Request::new(Body::empty());
    bare.method_mut().clone_from(request.method());
    if let Ok(path) = crate::log::shown(request.uri().path()).parse() {
        *bare.uri_mut() = path;
    }
    bare.extensions_mut().insert(CrowdedOut);
    bare
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use hyper::service::Service as _;

    use super::*;
    use crate::source::Network;

    #[tokio::test]
    async fn a_call_that_finds_no_place_is_still_known_to_be_of_its_caller_and_not_of_the_proxy() {
        let sources = Sources::behind(vec![Network::parse("192.0.2.0/24").expect("a network")]);
        let of = sources.clone();
        let router = Router::new().fallback(move |request: Request<Body>| async move {
            let is_crowded_out = request.extensions().get::<CrowdedOut>().is_some();
            format!("{is_crowded_out} {:?}", frame::source(&of, &request))
        });
        for (most, wanted) in [(0, "true Some(198.51.100.7)"), (1, "false Some(198.51.100.7)")] {
            let request_limit = Arc::new(RequestLimit::new(most, Arc::default()));
            let entrance = Entrance { request_limit, sources: sources.clone() };
            let service = connection(&router, &entrance, IpAddr::from([192, 0, 2, 1]));
            let request = Request::builder().header("x-forwarded-for", "198.51.100.7").body(Body::empty());
            let answer = service.call(request.expect("a request")).await.expect("an answer");
            let said = answer.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(String::from_utf8_lossy(&said), wanted);
        }
    }
}
