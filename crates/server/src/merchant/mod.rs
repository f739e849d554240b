//! The merchant listener: the signed API, without a framework between hyper and the checks.
//!
//! Order of checks, first failure answers: transport (404, 405, 431, 413, 415), headers, timestamp, ClientId and signature,
//! nonce, rate limit, MerchantId and On-Behalf-Of, body. See docs/PROTOCOL.md.
//!
//! Invariant: nothing here writes to the store but the fate of a nonce; endpoints translate and call `app`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use countersign_domain::time::UnixMillis;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::Endpoint;
use countersign_protocol::headers::Prefixes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::HeaderName;
use hyper::{Method, Request, Response, Version};

use crate::app::App;
use crate::app::concurrency_limit::ConcurrencyPermit;
use crate::edges::{CROWDED_OUT, IntakeLimits};
use crate::listen::{Held, RequestLimit, RequestPermit};
use crate::log::{self, LogSink, RequestLine};
use crate::meters::RequestMeters;
use crate::source::{self, Sources};

mod answer;
mod budget;
mod intake;
mod panics;
mod signed;
mod timestamps;

mod convert;
mod convert_currency;
mod convert_order;
mod convert_order_list;
mod convert_pair;
mod convert_preview;
mod events;
mod order_close;
mod order_create;
mod order_list;
mod order_native;
mod order_query;
mod payment_orders;
mod rule_create;
mod rule_list;
mod rule_query;
mod rule_upgrade;
mod rules;
mod time;

pub use answer::Failure;
pub(crate) use answer::SCHEME;
pub use budget::{Budget, FailedAuthentications};
pub use intake::CUT_OFF;

/// What the merchant listener is configured with.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Header prefixes; the first is the server's own.
    pub prefixes: Prefixes,
    /// What is taken in.
    pub limits: IntakeLimits,
    /// Who is asked whose address a request came from.
    pub sources: Sources,
    /// How many failed authentications an address may have.
    pub budget: Budget,
    /// How many requests of HTTP/2 may be under way.
    pub request_limit: Arc<RequestLimit>,
}

/// The merchant listener's state.
#[derive(Debug)]
pub struct Edge {
    app: Arc<App>,
    settings: EdgeSettings,
    request_id_header: HeaderName,
    request_ids: answer::RequestIds,
    failed: FailedAuthentications,
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
    refused_through: Option<i64>,
    source: Option<IpAddr>,
    request_id: String,
    /// Of an answer that is long.
    place: OnceLock<Box<ConcurrencyPermit>>,
}

/// Counts a request and writes its line when it is dropped: after the answer, or when the client has gone before it.
struct RequestRecord<'a> {
    edge: &'a Edge,
    started: Instant,
    at: UnixMillis,
    method: Method,
    path: Cow<'static, str>,
    trace: Trace,
    outcome: Outcome,
    /// What the answer says of a failure, where the log has no word of its own for it; or what the store said, where that is why.
    sentence: String,
}

/// The body of an answer, with the request's place among those under way.
pub type Answer = Held<Full<Bytes>>;

/// A request that was let in, with its place among those under way.
#[derive(Debug)]
pub struct Admitted<B> {
    request: Request<B>,
    source: IpAddr,
    started: Instant,
    permit: Option<RequestPermit>,
}

/// How a request ended.
#[derive(Clone, Copy)]
enum Outcome {
    /// Its client has gone before there was an answer, or before all of it was there: the reason for the log.
    Gone(&'static str),
    /// Success was answered.
    Success,
    /// A failure was answered: its code, and the reason for the log.
    Failure(Code, &'static str),
}

/// Refused signatures are answered at multiples of this after their arrival. More than one takes, where rows are read from memory.
const REFUSAL_GRID: Duration = Duration::from_micros(100);
/// The same where nothing was read.
const REFUSAL_GRID_UNREAD: Duration = Duration::from_micros(20);

/// A refusal is answered up to this long after its point of the grid, in ns.
const REFUSAL_BLUR_NS: u64 = 10_000;

/// A path for the log; one of ours needs no copy.
fn kept_path(path: &str) -> Cow<'static, str> {
    let ours = Endpoint::ALL.iter().map(|endpoint| endpoint.path()).find(|ours| *ours == path);
    ours.map_or_else(|| Cow::Owned(path.to_owned()), Cow::Borrowed)
}

/// 503: as many requests are under way as there may be, in all or of this address.
fn crowded_out() -> Failure {
    Failure::new(Code::ServiceUnavailable, CROWDED_OUT).because("crowded_out")
}

/// Waits for the next point of the grid. What is equal in look-ups and HMACs still differs by some tens of nanoseconds, such as a row that
/// is found; whoever may ask often enough could see that. Not by a timer: the finest one would make a refusal a hundred times longer.
/// What the processor remembers of the way to the wait shows in some nanoseconds after it; `chance` covers them.
fn await_grid(began: Instant, grid: Duration, chance: u64) {
    let points = began.elapsed().as_nanos() / grid.as_nanos() + 1;
    let blur = Duration::from_nanos(chance % REFUSAL_BLUR_NS);
    let end = began + grid * u32::try_from(points).unwrap_or(u32::MAX) + blur;
    while Instant::now() < end {}
}

/// The status in the log of a request whose client has gone; it is never sent.
const CLIENT_GONE: u16 = 499;

impl Drop for RequestRecord<'_> {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let (status, code, reason) = match self.outcome {
            Outcome::Success => (200, countersign_protocol::code::SUCCESS, ""),
            Outcome::Failure(code, reason) => (code.http_status(), code.code(), reason),
            Outcome::Gone(reason) => (CLIENT_GONE, "", reason),
        };
        match self.outcome {
            Outcome::Success => self.edge.meters.count(self.trace.endpoint, None, took),
            Outcome::Failure(code, _) => self.edge.meters.count(self.trace.endpoint, Some(code), took),
            Outcome::Gone(_) => metrics::counter!("countersign_requests_cut_off_total").increment(1),
        }
        // A path that we know, and a ClientId that has signed, are no secrets.
        let path = if self.trace.endpoint.is_some() { Cow::Borrowed(&*self.path) } else { log::blinded(&self.path) };
        let is_known = matches!(self.outcome, Outcome::Success);
        let named = |name| if is_known { Cow::Borrowed(name) } else { log::blinded(name) };
        RequestLine {
            at: self.at,
            request_id: &self.trace.request_id,
            listener: "merchant",
            method: log::shown_method(self.method.as_str()),
            // Cut only now: of half a secret nobody can tell that it is one.
            path: log::shown(&path),
            status,
            code,
            reason,
            sentence: &self.sentence,
            client_id: &named(&self.trace.client_id),
            merchant_id: &self.trace.merchant_id,
            on_behalf_of: &named(&self.trace.on_behalf_of),
            source: &self.trace.source.map(source::text).unwrap_or_default(),
            drift_ms: self.trace.drift_ms,
            nonce_first_stamped: self.trace.nonce_first_stamped,
            refused_through: self.trace.refused_through,
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
            failed: FailedAuthentications::new(&settings.budget),
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
    pub async fn serve<B>(&self, request: Request<B>, peer: IpAddr) -> Response<Answer>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error + 'static,
    {
        match self.admit(request, peer) {
            Ok(admitted) => self.answer(admitted).await,
            Err(refusal) => *refusal,
        }
    }

    /// Lets a request in, or gives the answer that turns it away: what it holds is gone when this returns. To be called as soon as there is a head,
    /// before a task is made of it: heads are what a flood fills the memory with.
    pub fn admit<B>(&self, request: Request<B>, peer: IpAddr) -> Result<Admitted<B>, Box<Response<Answer>>> {
        let started = Instant::now();
        let source = self.settings.sources.of(peer, request.headers());
        // A connection of HTTP/1 has one request under way: the bound on connections is enough.
        let is_one_of_many = request.version() == Version::HTTP_2;
        let permit = is_one_of_many.then(|| self.settings.request_limit.enter(source));
        if let Some(None) = permit {
            let record = self.record(&request, source, started);
            return Err(Box::new(self.finish(record, Err(crowded_out())).map(|body| Held::new(body, None))));
        }
        Ok(Admitted { request, source, started, permit: permit.flatten() })
    }

    /// Answers what was let in.
    pub async fn answer<B>(&self, admitted: Admitted<B>) -> Response<Answer>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error + 'static,
    {
        let Admitted { request, source, started, permit } = admitted;
        let mut record = self.record(&request, source, started);
        let outcome = {
            let way = pin!(self.route(&mut record.trace, request));
            panics::caught(way).await.unwrap_or_else(|_| Err(Failure::internal("panic")))
        };
        let place = record.trace.place.take();
        self.finish(record, outcome).map(|body| Held::new(body, permit).with(place))
    }

    fn record<B>(&self, request: &Request<B>, source: IpAddr, started: Instant) -> RequestRecord<'_> {
        RequestRecord {
            edge: self,
            started,
            at: self.app.clock.now(),
            method: request.method().clone(),
            path: kept_path(request.uri().path()),
            trace: Trace { request_id: self.request_ids.next(), source: Some(source), ..Trace::default() },
            outcome: Outcome::Gone("client_gone"),
            sentence: String::new(),
        }
    }

    /// Counts, writes the line, and makes the answer.
    fn finish(&self, mut record: RequestRecord<'_>, outcome: Result<Vec<u8>, Failure>) -> Response<Full<Bytes>> {
        record.outcome = match &outcome {
            Ok(_) => Outcome::Success,
            Err(failure) if failure.reason == CUT_OFF => Outcome::Gone(failure.reason),
            Err(Failure { code, trouble: Some(cause), .. }) => {
                record.sentence = cause.to_string();
                Outcome::Failure(*code, self.app.trouble.failed(cause))
            }
            Err(failure) => Outcome::Failure(failure.code, failure.reason),
        };
        if let Err(Failure { reason: "", trouble: None, sentence, .. }) = &outcome {
            record.sentence.clone_from(sentence);
        }
        let grid = outcome.as_ref().err().and_then(|failure| failure.grid);
        let mut answer = answer::response(outcome, &self.request_id_header, &record.trace.request_id);
        if record.method == Method::HEAD {
            answer = answer::without_content(answer);
        }
        if let Some(grid) = grid {
            let began = record.started;
            // The line is part of the time.
            drop(record);
            await_grid(began, grid, self.app.chance.bits64());
        }
        answer
    }

    /// Finds the endpoint, takes the body in, and hands over.
    async fn route<B>(&self, trace: &mut Trace, request: Request<B>) -> Result<Vec<u8>, Failure>
    where
        B: Body<Data = Bytes>,
        B::Error: std::error::Error + 'static,
    {
        let (head, body) = request.into_parts();
        intake::check_framing(&head)?;
        let endpoint = intake::endpoint(&head)?;
        trace.endpoint = Some(endpoint);
        intake::check_head(&head, &self.settings.limits)?;
        let body = intake::read(&head, body, &self.settings.limits).await?;
        let input = signed::Input { head: &head, body: &body, prefix: None };
        match endpoint {
            Endpoint::Time => time::handle(&self.app),
            Endpoint::ConvertOrder => self.signed::<convert_order::Operation>(trace, input).await,
            // In a box each, so that what is asked most takes no more room than it needs.
            Endpoint::RuleUpgrade => Box::pin(self.signed::<rule_upgrade::Operation>(trace, input)).await,
            Endpoint::RuleCreate => Box::pin(self.signed::<rule_create::Operation>(trace, input)).await,
            Endpoint::RuleQuery => Box::pin(self.signed::<rule_query::Operation>(trace, input)).await,
            Endpoint::RuleList => Box::pin(self.signed::<rule_list::Operation>(trace, input)).await,
            Endpoint::ConvertOrderList => Box::pin(self.signed::<convert_order_list::Operation>(trace, input)).await,
            Endpoint::ConvertCurrency => Box::pin(self.signed::<convert_currency::Operation>(trace, input)).await,
            Endpoint::ConvertPair => Box::pin(self.signed::<convert_pair::Operation>(trace, input)).await,
            Endpoint::ConvertPreview => Box::pin(self.signed::<convert_preview::Operation>(trace, input)).await,
            Endpoint::Convert => Box::pin(self.signed::<convert::Operation>(trace, input)).await,
            Endpoint::OrderCreate => Box::pin(self.signed::<order_create::Operation>(trace, input)).await,
            Endpoint::OrderNative => Box::pin(self.signed::<order_native::Operation>(trace, input)).await,
            Endpoint::OrderQuery => Box::pin(self.signed::<order_query::Operation>(trace, input)).await,
            Endpoint::OrderList => Box::pin(self.signed::<order_list::Operation>(trace, input)).await,
            Endpoint::OrderClose => Box::pin(self.signed::<order_close::Operation>(trace, input)).await,
            Endpoint::Events => Box::pin(self.signed::<events::Operation>(trace, input)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: impl FnOnce(&'static Edge, Admitted<Full<Bytes>>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_answer_under_way_takes_little_room() {
        // It is made for each request and moved into a box: what only a rare operation needs belongs into a box of its own.
        let size = size_of_future(Edge::answer);
        assert!(size <= 2_750, "{size} bytes");
    }

    #[test]
    fn the_log_keeps_the_path_that_was_asked() {
        for path in ["/v1/pay/convert/order", "/v1/pay/convert/order/", "/", "/v1/pay/nothing"] {
            assert_eq!(kept_path(path), path);
        }
        assert!(matches!(kept_path("/v1/time"), Cow::Borrowed(_)));
    }
}
