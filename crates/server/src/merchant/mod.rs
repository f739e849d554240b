//! The merchant listener: the signed API, without a framework between hyper and the checks.
//!
//! Order of checks, first failure answers: transport (404, 405, 431, 413, 415), headers, timestamp, ClientId and signature,
//! nonce, rate limit, MerchantId and On-Behalf-Of, body. See docs/PROTOCOL.md.
//!
//! Invariant: nothing here writes to the store but the fate of a nonce; endpoints translate and call `app`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use countersign_domain::time::UnixMillis;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::Endpoint;
use countersign_protocol::headers::Prefixes;
use countersign_store::Store as _;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::HeaderName;
use hyper::{Method, Request, Response};

use crate::app::App;
use crate::log::{self, LogSink, RequestLine};
use crate::meters::RequestMeters;

mod answer;
mod budget;
mod caught;
mod intake;
mod signed;
mod source;

mod convert_order;
mod events;
mod rule_create;
mod rule_list;
mod rule_query;
mod rule_upgrade;
mod rules;
mod time;

pub use answer::Failure;
pub use source::{Network, Sources};

/// How much of a request is taken in. See docs/OPERATING.md.
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

/// What the merchant listener is configured with.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Header prefixes; the first is the server's own.
    pub prefixes: Prefixes,
    /// What is taken in.
    pub limits: IntakeLimits,
    /// Who is asked whose address a request came from.
    pub sources: Sources,
    /// Failed authentications per second and source address; 0 is off.
    pub failed_auth_per_s: u32,
    /// How many of them at once.
    pub failed_auth_burst: u32,
    /// Whether loopback addresses are budgeted too.
    pub limit_loopback: bool,
}

/// The merchant listener's state.
#[derive(Debug)]
pub struct Edge {
    app: Arc<App>,
    settings: EdgeSettings,
    request_id_header: HeaderName,
    request_ids: answer::RequestIds,
    failed: budget::FailedAuthentications,
    log: LogSink,
    meters: RequestMeters,
}

/// What a request's log line will say.
#[derive(Debug, Default)]
struct Trace {
    endpoint: Option<Endpoint>,
    client_id: String,
    merchant_id: String,
    on_behalf_of: String,
    drift_ms: Option<i64>,
    nonce_first_stamped: Option<i64>,
    source: Option<IpAddr>,
    request_id: String,
}

/// Counts a request and writes its line when it is dropped: after the answer, or when the client has gone before it.
struct Told<'a> {
    edge: &'a Edge,
    started: Instant,
    at: UnixMillis,
    method: Method,
    path: String,
    trace: Trace,
    outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy)]
enum Outcome {
    /// Its client has gone before there was an answer.
    Gone,
    /// Success was answered.
    Success,
    /// A failure was answered: its code, and the reason for the log.
    Failure(Code, &'static str),
}

/// Refused signatures are answered at multiples of this after their arrival. Far more than one takes, where a row is read from memory.
const REFUSAL_GRID: Duration = Duration::from_micros(20);
/// The same where the row is read from a database that nodes share.
const REFUSAL_GRID_SHARED: Duration = Duration::from_micros(100);

/// Waits for the next point of the grid. What is equal in look-ups and HMACs still differs by some tens of nanoseconds, such as a row that
/// is found; whoever may ask often enough could see that. Not by a timer: the finest one would make a refusal a hundred times longer.
fn await_grid(began: Instant, grid: Duration) {
    let points = began.elapsed().as_nanos() / grid.as_nanos() + 1;
    let end = began + grid * u32::try_from(points).unwrap_or(u32::MAX);
    while Instant::now() < end {}
}

/// The status in the log of a request whose client has gone; it is never sent.
const CLIENT_GONE: u16 = 499;

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let (status, code, reason) = match self.outcome {
            Outcome::Success => (200, countersign_protocol::code::SUCCESS, ""),
            Outcome::Failure(code, reason) => (code.http_status(), code.code(), reason),
            Outcome::Gone => (CLIENT_GONE, "", "client_gone"),
        };
        match self.outcome {
            Outcome::Success => self.edge.meters.count(self.trace.endpoint, None, took),
            Outcome::Failure(code, _) => self.edge.meters.count(self.trace.endpoint, Some(code), took),
            Outcome::Gone => metrics::counter!("countersign_requests_cut_off_total").increment(1),
        }
        // A path that we know, and a ClientId that has signed, are no secrets.
        let shown = log::shown(&self.path);
        let path = if self.trace.endpoint.is_some() { shown.into() } else { log::blinded(shown) };
        let client_id = match self.outcome {
            Outcome::Success => self.trace.client_id.as_str().into(),
            Outcome::Failure(..) | Outcome::Gone => log::blinded(&self.trace.client_id),
        };
        RequestLine {
            at: self.at,
            request_id: &self.trace.request_id,
            listener: "merchant",
            method: self.method.as_str(),
            path: &path,
            status,
            code,
            reason,
            client_id: &client_id,
            merchant_id: &self.trace.merchant_id,
            on_behalf_of: &self.trace.on_behalf_of,
            source: &self.trace.source.map(source::text).unwrap_or_default(),
            drift_ms: self.trace.drift_ms,
            nonce_first_stamped: self.trace.nonce_first_stamped,
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
        .write(&self.edge.log);
    }
}

impl Edge {
    /// The edge of `app`. Fails where a prefix makes no header name.
    pub fn new(app: Arc<App>, settings: EdgeSettings, log: LogSink) -> Result<Self, hyper::header::InvalidHeaderName> {
        let request_id_header = HeaderName::from_bytes(settings.prefixes.first().request_id.as_bytes())?;
        Ok(Self {
            request_id_header,
            request_ids: answer::RequestIds::new(app.chance.bits64()),
            failed: budget::FailedAuthentications::new(&settings),
            settings,
            app,
            log,
            meters: RequestMeters::default(),
        })
    }

    /// Forgets sources that have behaved for a while; called by housekeeping.
    pub fn tidy(&self) {
        self.failed.tidy();
    }

    /// Answers one request from `peer`. Always an envelope, also after a panic.
    pub async fn serve<B>(&self, request: Request<B>, peer: IpAddr) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error,
    {
        let source = self.settings.sources.of(peer, request.headers());
        let mut told = Told {
            edge: self,
            started: Instant::now(),
            at: self.app.clock.now(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            trace: Trace { request_id: self.request_ids.next(), source: Some(source), ..Trace::default() },
            outcome: Outcome::Gone,
        };
        let outcome = caught::caught(self.route(&mut told.trace, request))
            .await
            .unwrap_or_else(|_| Err(Failure::internal("panic")));
        told.outcome = match &outcome {
            Ok(_) => Outcome::Success,
            Err(failure) => Outcome::Failure(failure.code, failure.reason),
        };
        if let Err(Failure { trouble: Some(cause), .. }) = &outcome {
            self.app.trouble.met(cause);
        }
        let tells_no_time = matches!(&outcome, Err(failure) if failure.tells_no_time);
        let answer = answer::response(outcome, &self.request_id_header, &told.trace.request_id);
        if tells_no_time {
            let began = told.started;
            // The line is part of the time.
            drop(told);
            await_grid(began, if self.app.store.is_shared() { REFUSAL_GRID_SHARED } else { REFUSAL_GRID });
        }
        answer
    }

    /// Finds the endpoint, takes the body in, and hands over.
    async fn route<B>(&self, trace: &mut Trace, request: Request<B>) -> Result<Vec<u8>, Failure>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error,
    {
        let (head, body) = request.into_parts();
        intake::check_framing(&head)?;
        let endpoint = intake::endpoint(&head)?;
        trace.endpoint = Some(endpoint);
        intake::check_head(&head, &self.settings.limits)?;
        let body = intake::read(&head, body, &self.settings.limits).await?;
        let input = signed::Input { head: &head, body: &body };
        match endpoint {
            Endpoint::Time => time::handle(&self.app),
            Endpoint::RuleUpgrade => self.signed::<rule_upgrade::Operation>(trace, input).await,
            Endpoint::RuleCreate => self.signed::<rule_create::Operation>(trace, input).await,
            Endpoint::RuleQuery => self.signed::<rule_query::Operation>(trace, input).await,
            Endpoint::RuleList => self.signed::<rule_list::Operation>(trace, input).await,
            Endpoint::ConvertOrder => self.signed::<convert_order::Operation>(trace, input).await,
            Endpoint::Events => self.signed::<events::Operation>(trace, input).await,
        }
    }
}
