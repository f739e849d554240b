//! One attempt: sign, connect to a vetted address, send, read the answer.
//!
//! Invariant: one deadline over all of it. No redirect is followed, nothing is decompressed, no answer is logged; what is kept of it, in the
//! attempt's bytes, is bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::{ACKNOWLEDGEMENT_BYTES_MAX, Acknowledgement, read_acknowledgement};
use countersign_store::attempt_log::{AttemptBytes, Phases};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, OpenConnection, Unreached, Works};
use super::early::early;
use super::egress::Target;
use super::faults::{self, Lack, Stage};
use super::retry_after::retry_after_ms;
use super::stopwatch::{Stopwatch, micros};
use super::tape::{Heads, Tape};
use super::unreadable;

/// Kept of an answer's body, in bytes. Of one whose status says no, more is not even read.
const BODY_BYTES_KEPT: usize = 16 * 1024;
/// How long the body of an answer whose status says no may take: it decides nothing, and is read for people only.
const REFUSAL_READ_FOR: Duration = Duration::from_secs(2);

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) http_status: Option<u16>,
    pub(crate) retry_after_ms: Option<i64>,
    pub(crate) address: Option<Arc<str>>,
    pub(crate) detail: String,
    pub(crate) took: Duration,
    pub(crate) phases: Phases,
    /// None where nothing went over a connection.
    pub(crate) bytes: Option<AttemptBytes>,
    /// Where there is no connection for a lack of ours, which: nothing of it says anything of the endpoint.
    pub(crate) lack: Option<Lack>,
}

/// What is sent: the headers but for `Host`, and the event's own bytes.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What is known of the answer so far; a deadline that passes keeps it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) watch: Stopwatch,
    address: Option<Arc<str>>,
    http_status: Option<u16>,
    retry_after_ms: Option<i64>,
    /// The connection's, while the exchange lasts.
    tape: Option<Arc<Tape>>,
    heads: Heads,
    body: Answer,
    /// When its answer had been read to the end, where it was.
    ended: Option<Instant>,
}

/// What was read of an answer's body.
#[derive(Debug, Default)]
struct Answer {
    bytes: Vec<u8>,
    length: usize,
    has_more: bool,
}

impl Progress {
    /// The exchange begins on this connection.
    fn begin(&mut self, connection: &OpenConnection, body: usize, reused: bool, now: Instant) {
        self.address = Some(connection.address.clone());
        self.watch.enter(Stage::Head);
        self.watch.phases.reused = Some(reused);
        connection.tape.begin(now, body);
        self.tape = Some(connection.tape.clone());
    }

    /// The same on a connection that is used this once. Gives the tape for it; how long the body is, is not known.
    pub(super) fn begin_alone(&mut self) -> Arc<Tape> {
        self.watch.enter(Stage::Head);
        let tape = Arc::new(Tape::default());
        tape.begin(Instant::now(), 0);
        self.tape.insert(tape).clone()
    }

    /// The exchange is over: from here on its connection may be another attempt's.
    fn end(&mut self) {
        if let Some(tape) = self.tape.take() {
            self.heads = tape.take();
        }
    }

    fn report(mut self, ending: Ending, took: Duration) -> Report {
        self.end();
        self.watch.stop();
        let phases = Phases {
            first_byte_us: self.heads.first_byte.map(micros),
            total_us: Some(micros(took)),
            ..self.watch.phases
        };
        Report {
            outcome: ending.outcome,
            http_status: self.http_status,
            retry_after_ms: self.retry_after_ms,
            address: self.address.take(),
            detail: ending.detail,
            took,
            phases,
            lack: ending.lack,
            bytes: self.bytes(),
        }
    }

    fn bytes(self) -> Option<AttemptBytes> {
        let Self { heads: Heads { sent, heard, .. }, body: Answer { mut bytes, length, has_more }, .. } = self;
        if sent.is_empty() && heard.is_empty() {
            return None;
        }
        let is_cut = has_more || bytes.len() > BODY_BYTES_KEPT;
        bytes.truncate(BODY_BYTES_KEPT);
        let answer_length = i64::try_from(length).unwrap_or(i64::MAX);
        Some(AttemptBytes { sent_head: sent, answer_head: heard, answer_body: bytes, answer_length, is_cut })
    }
}

pub(super) struct Ending {
    outcome: Outcome,
    detail: String,
    lack: Option<Lack>,
}

fn ending(outcome: Outcome, detail: impl Into<String>) -> Ending {
    Ending { outcome, detail: detail.into(), lack: None }
}

impl From<Unreached> for Ending {
    fn from(Unreached { outcome, detail, lack }: Unreached) -> Self {
        Self { outcome, detail, lack }
    }
}

/// Makes the attempt. `now` is for Retry-After dates only.
pub(super) async fn make(
    connector: &Connector,
    url: &str,
    letter: Letter,
    deadline: Duration,
    now: UnixMillis,
) -> Report {
    within(deadline, async |progress, end| try_exchange(connector, url, letter, now, end, progress).await).await
}

/// Makes an attempt of what is to be done until a moment, and reports it.
pub(super) async fn within(
    deadline: Duration,
    exchange: impl AsyncFnOnce(&mut Progress, Instant) -> Result<Ending, Ending>,
) -> Report {
    let began = Instant::now();
    let end = began + deadline;
    let mut progress = Progress::default();
    let ending = match timeout_at(end, exchange(&mut progress, end)).await {
        Ok(Ok(ending) | Err(ending)) => ending,
        Err(_) => ending(Outcome::Timeout, faults::too_late(progress.watch.stage(), deadline)),
    };
    let took = progress.ended.unwrap_or_else(Instant::now).saturating_duration_since(began);
    progress.report(ending, took)
}

async fn try_exchange(
    connector: &Connector,
    url: &str,
    letter: Letter,
    now: UnixMillis,
    end: Instant,
    progress: &mut Progress,
) -> Result<Ending, Ending> {
    let target = connector.target(url)?;
    let vetted = connector.vetted(&target, &mut progress.watch).await?;
    let request = request(&target, letter.headers, Full::new(letter.body));
    let (mut connection, response) = send(connector, &target, &vetted, request, now, progress).await?;
    let idle_time = connector.idle_time(response.headers());
    let ending = hear(&mut connection.works, response, now, end, progress).await?;
    if let Some(ended) = progress.ended {
        connector.keep(connection, ended, idle_time);
    }
    Ok(ending)
}

/// Reads an answer and judges it: to its end, unless its status says no.
pub(super) async fn hear(
    works: &mut Works,
    response: Response<Incoming>,
    now: UnixMillis,
    end: Instant,
    progress: &mut Progress,
) -> Result<Ending, Ending> {
    let status = response.status();
    progress.http_status = Some(status.as_u16());
    progress.retry_after_ms =
        response.headers().get(RETRY_AFTER).and_then(|value| retry_after_ms(value.as_bytes(), now));
    if !status.is_success() {
        // Its body decides nothing; the connection goes with it.
        let enough = (Instant::now() + REFUSAL_READ_FOR).min(end);
        let _read = timeout_at(enough, works.until(read(response, BODY_BYTES_KEPT, &mut progress.body))).await;
        let further = if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            "; redirects are not followed"
        } else {
            ""
        };
        return Ok(ending(Outcome::HttpStatus, format!("answered {}{further}", status.as_u16())));
    }
    progress.watch.enter(Stage::Body);
    let is_encoded = unreadable::is_encoded(response.headers());
    works.until(read(response, ACKNOWLEDGEMENT_BYTES_MAX, &mut progress.body)).await?;
    progress.end();
    progress.ended = Some(Instant::now());
    Ok(match read_acknowledgement(&progress.body.bytes) {
        Acknowledgement::Success => ending(Outcome::Delivered, ""),
        Acknowledgement::Fail { .. } => ending(Outcome::Fail, "the answer's returnCode is not SUCCESS"),
        Acknowledgement::Unreadable => ending(Outcome::Unreadable, unreadable::words(&progress.body.bytes, is_encoded)),
    })
}

/// What goes out: the signed headers first, then those that every request of ours has.
pub(super) fn request<B>(target: &Target, headers: HeaderMap, body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.path_and_query().clone();
    *request.headers_mut() = headers;
    request.headers_mut().insert(HOST, target.authority().clone());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("Countersign"));
    request
}

/// Sends on a kept connection, or on a new one where there is none or it has ended before the request was written.
async fn send(
    connector: &Connector,
    target: &Target,
    vetted: &[SocketAddr],
    mut request: Request<Full<Bytes>>,
    at: UnixMillis,
    progress: &mut Progress,
) -> Result<(OpenConnection, Response<Incoming>), Ending> {
    let body = request.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    loop {
        let now = Instant::now();
        let Some(mut connection) = connector.kept(target, vetted, now) else { break };
        if connection.works.until(connection.sender.ready()).await.is_err() {
            continue;
        }
        progress.begin(&connection, body, true, now);
        match connection.works.until(connection.sender.try_send_request(request)).await {
            Ok(response) => return Ok((connection, response)),
            Err(mut error) => {
                if let Some(unsent) = error.take_message() {
                    request = unsent;
                    continue;
                }
                let ending = broken(&error.into_error(), at, progress);
                if ending.outcome == Outcome::ConnectFailed {
                    connector.lost(&connection, now, Instant::now());
                }
                return Err(ending);
            }
        }
    }
    (progress.address, progress.tape, progress.watch.phases.reused) = (None, None, None);
    // Rare, and large: most attempts go over a kept connection.
    let mut connection = Box::pin(connector.open(target, vetted, &mut progress.watch, &mut progress.address)).await?;
    progress.begin(&connection, body, false, Instant::now());
    match connection.works.until(connection.sender.send_request(request)).await {
        Ok(response) => Ok((connection, response)),
        Err(error) => Err(broken(&error, at, progress)),
    }
}

/// The connection gave no answer.
pub(super) fn broken(error: &hyper::Error, now: UnixMillis, progress: &mut Progress) -> Ending {
    progress.end();
    // On a connection that was used before, the handshake went well.
    let is_new = progress.watch.phases.reused != Some(true);
    if let Some(detail) = faults::alert(error).filter(|_| is_new) {
        return ending(Outcome::TlsFailed, detail);
    }
    let (outcome, detail) = faults::no_head(error, !progress.heads.heard.is_empty());
    if outcome == Outcome::ConnectFailed
        && let Some(early) = early(&progress.heads.heard, now)
    {
        progress.http_status = Some(early.http_status);
        progress.retry_after_ms = early.retry_after_ms;
        // Nobody has read it.
        progress.body.has_more = true;
        return ending(early.outcome, early.detail);
    }
    ending(outcome, detail)
}

/// Reads a body of at most so many bytes; what it has of it stays also where it fails or is cut off. Until it has ended, or broken off, there may be
/// more.
async fn read(response: Response<Incoming>, most: usize, answer: &mut Answer) -> Result<(), Ending> {
    answer.has_more = true;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            answer.has_more = false;
            ending(Outcome::Unreadable, faults::no_body(&error))
        })?;
        let Some(data) = frame.data_ref() else { continue };
        answer.length += data.len();
        let room = most - answer.bytes.len();
        answer.bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Err(ending(Outcome::Unreadable, "the answer is larger than 64 KiB"));
        }
    }
    answer.has_more = false;
    Ok(())
}
