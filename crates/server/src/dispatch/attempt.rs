//! One attempt: sign, connect to a vetted address, send, read the answer.
//!
//! Invariant: one deadline over all of it. No redirect is followed, nothing is decompressed, no answer is logged or kept.

use std::net::SocketAddr;
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::{ACKNOWLEDGEMENT_BYTES_MAX, Acknowledgement, read_acknowledgement};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, Line, Unreached};
use super::egress::Target;
use super::faults::{self, Stage};
use super::retry_after::retry_after_ms;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) outcome: Outcome,
    pub(super) http_status: Option<u16>,
    pub(super) retry_after_ms: Option<i64>,
    pub(super) address: Option<SocketAddr>,
    pub(super) detail: String,
    pub(super) took: Duration,
}

/// What is sent: the headers but for `Host`, and the event's own bytes.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What is known of the answer so far; a deadline that passes keeps it.
#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    address: Option<SocketAddr>,
    http_status: Option<u16>,
    retry_after_ms: Option<i64>,
}

struct Ending {
    outcome: Outcome,
    detail: String,
}

fn ending(outcome: Outcome, detail: impl Into<String>) -> Ending {
    Ending { outcome, detail: detail.into() }
}

impl From<Unreached> for Ending {
    fn from(Unreached { outcome, detail }: Unreached) -> Self {
        Self { outcome, detail }
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
    let began = Instant::now();
    let mut progress = Progress::default();
    let ending = match timeout_at(began + deadline, exchange(connector, url, letter, now, &mut progress)).await {
        Ok(ending) => ending,
        Err(_) => ending(Outcome::Timeout, faults::too_late(progress.stage, deadline)),
    };
    Report {
        outcome: ending.outcome,
        http_status: progress.http_status,
        retry_after_ms: progress.retry_after_ms,
        address: progress.address,
        detail: ending.detail,
        took: began.elapsed(),
    }
}

async fn exchange(
    connector: &Connector,
    url: &str,
    letter: Letter,
    now: UnixMillis,
    progress: &mut Progress,
) -> Ending {
    match try_exchange(connector, url, letter, now, progress).await {
        Ok(ending) | Err(ending) => ending,
    }
}

async fn try_exchange(
    connector: &Connector,
    url: &str,
    letter: Letter,
    now: UnixMillis,
    progress: &mut Progress,
) -> Result<Ending, Ending> {
    let target = connector.target(url)?;
    let vetted = connector.vetted(&target).await?;
    let request = request(&target, letter)?;
    let (line, response) = send(connector, &target, &vetted, request, progress).await?;
    let status = response.status();
    progress.http_status = Some(status.as_u16());
    progress.retry_after_ms =
        response.headers().get(RETRY_AFTER).and_then(|value| retry_after_ms(value.as_bytes(), now));
    if !status.is_success() {
        // Its body is of no interest; the connection goes with it.
        let further = if status.is_redirection() { "; redirects are not followed" } else { "" };
        return Ok(ending(Outcome::HttpStatus, format!("answered {}{further}", status.as_u16())));
    }
    progress.stage = Stage::Body;
    let answer = read(response).await?;
    connector.keep(line);
    Ok(match read_acknowledgement(&answer) {
        Acknowledgement::Success => ending(Outcome::Delivered, ""),
        Acknowledgement::Fail { .. } => ending(Outcome::Fail, "the answer's returnCode is not SUCCESS"),
        Acknowledgement::Unreadable => ending(Outcome::Unreadable, "the answer is no JSON object with a returnCode"),
    })
}

fn request(target: &Target, letter: Letter) -> Result<Request<Full<Bytes>>, Ending> {
    let malformed = |_| ending(Outcome::RefusedAddress, "the callback URL cannot be written as a request");
    let mut request = Request::new(Full::new(letter.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.path_and_query().parse().map_err(malformed)?;
    let host = HeaderValue::from_str(target.authority())
        .map_err(|_| ending(Outcome::RefusedAddress, "the callback URL's host cannot be written as a header"))?;
    *request.headers_mut() = letter.headers;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("Countersign"));
    Ok(request)
}

/// Sends on a kept connection, or on a new one where there is none or it has ended before the request was written.
async fn send(
    connector: &Connector,
    target: &Target,
    vetted: &[SocketAddr],
    mut request: Request<Full<Bytes>>,
    progress: &mut Progress,
) -> Result<(Line, Response<Incoming>), Ending> {
    while let Some(mut line) = connector.kept(target, vetted) {
        if line.sender.ready().await.is_err() {
            continue;
        }
        (progress.address, progress.stage) = (Some(line.address), Stage::Head);
        match line.sender.try_send_request(request).await {
            Ok(response) => return Ok((line, response)),
            Err(mut error) => match error.take_message() {
                Some(unsent) => request = unsent,
                None => return Err(broken(&error.into_error())),
            },
        }
    }
    progress.address = None;
    let mut line = connector.open(target, vetted, &mut progress.stage).await?;
    (progress.address, progress.stage) = (Some(line.address), Stage::Head);
    match line.sender.send_request(request).await {
        Ok(response) => Ok((line, response)),
        Err(error) => Err(broken(&error)),
    }
}

fn broken(error: &hyper::Error) -> Ending {
    let (outcome, detail) = faults::no_head(error);
    ending(outcome, detail)
}

async fn read(response: Response<Incoming>) -> Result<Bytes, Ending> {
    match Limited::new(response.into_body(), ACKNOWLEDGEMENT_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ending(Outcome::Unreadable, "the answer is larger than 64 KiB"))
        }
        Err(error) => Err(ending(Outcome::Unreadable, faults::no_body(&*error))),
    }
}
