//! Evidence of a payment order, and the key that it is signed with.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use hyper::body::Frame;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Named, Reply, json};
use super::payment_orders::prepay_id;
use super::problem::ProblemDocument;
use super::streaming::Pace;
use crate::app::evidence::{self, FileLines};

/// JSON, a line each.
const JSON_LINES: &str = "application/x-ndjson";

/// What evidence is checked with. Tell it to those who will check, once and by another way than the files.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvidenceKey {
    /// `Ed25519`.
    pub algorithm: &'static str,
    /// The public key, 64 hex digits.
    pub public_key: String,
    /// A short name of it, as files and the audit log have it.
    pub key_id: String,
}

/// A file that goes out as it is made. Where that fails it breaks off: what was sent is no file, since it has no head.
struct Sent {
    lines: FileLines,
    is_whole: bool,
    /// Of the last line, what is not given yet.
    rest: Bytes,
    pace: Pace,
}

impl Sent {
    fn new(lines: FileLines) -> Self {
        Self { lines, is_whole: false, rest: Bytes::new(), pace: Pace::default() }
    }
}

/// The file broke off.
#[derive(Debug)]
struct BrokeOff;

impl fmt::Display for BrokeOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the evidence broke off")
    }
}

impl std::error::Error for BrokeOff {}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        let is_given = self.is_whole && self.rest.is_empty();
        if !is_given && self.pace.is_too_slow(Instant::now()) {
            // Who makes the lines sees it, and gives the place back.
            self.lines.close();
            return Poll::Ready(Some(Err(BrokeOff)));
        }
        while self.rest.is_empty() {
            match ready!(self.lines.poll_recv(context)) {
                None if self.is_whole => return Poll::Ready(None),
                // Whoever should have read took nothing for too long.
                None => return Poll::Ready(Some(Err(BrokeOff))),
                Some(Ok(line)) => (self.is_whole, self.rest) = (line.is_last, line.text.into()),
                Some(Err(error)) => {
                    tracing::error!(%error, "Evidence that was being exported broke off: {error}");
                    return Poll::Ready(Some(Err(BrokeOff)));
                }
            }
        }
        let Self { rest, pace, .. } = &mut *self;
        Poll::Ready(Some(Ok(Frame::data(pace.part(rest, Instant::now())))))
    }
}

/// All that is known of one payment order, chained and signed. A line of JSON each: see docs/EVIDENCE.md. Many a generator of clients does not take lines: read the
/// answer as it is, or use `countersign evidence`. Who takes it is in the audit log.
#[utoipa::path(get, path = "/operator/v1/payment-orders/{prepayId}/evidence", tag = "Evidence", operation_id = "export_evidence",
    params(("prepayId" = String, Path, description = "The order")),
    responses((status = 200, content_type = "application/x-ndjson", body = String), (status = 404, body = ProblemDocument)))]
pub async fn export(
    State(desk): State<Arc<Desk>>,
    Named(id): Named<String>,
    Extension(caller): Extension<Caller>,
) -> Reply {
    let lines = evidence::export(&desk.app, prepay_id(&id)?, &caller.actor).await?;
    let mut response = Response::new(Body::new(Sent::new(lines)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON_LINES));
    Ok(response)
}

/// The public key that evidence is signed with. It is made when it is first asked for, and stays.
#[utoipa::path(get, path = "/operator/v1/evidence/key", tag = "Evidence", operation_id = "show_evidence_key",
    responses((status = 200, body = EvidenceKey)))]
pub async fn key(State(desk): State<Arc<Desk>>, Extension(caller): Extension<Caller>) -> Reply {
    let public = evidence::key(&desk.app, &caller.actor).await?.public();
    Ok(json(&EvidenceKey { algorithm: "Ed25519", public_key: public.to_hex(), key_id: public.id() }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::app::error::AppError;
    use crate::app::evidence::FileLine;

    /// What arrives of these lines: how many bytes, and whether that is all.
    async fn arrives(sent: Vec<Result<FileLine, AppError>>) -> (usize, bool) {
        let (lines, taken) = mpsc::channel(sent.len().max(1));
        for line in sent {
            lines.try_send(line).expect("there is room");
        }
        drop(lines);
        let mut body = Sent::new(taken);
        let mut bytes = 0;
        loop {
            match body.frame().await {
                None => return (bytes, true),
                Some(Ok(frame)) => bytes += frame.into_data().map_or(0, |data| data.len()),
                Some(Err(BrokeOff)) => return (bytes, false),
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_ends_before_its_head_breaks_off() {
        let line = |is_last| Ok(FileLine { text: "x\n".to_owned(), is_last });
        assert_eq!(arrives(vec![line(false), line(true)]).await, (4, true));
        assert_eq!(arrives(vec![line(false), line(false)]).await, (4, false));
        assert_eq!(arrives(vec![line(false), Err(AppError::Busy), line(true)]).await, (2, false));
        assert_eq!(arrives(Vec::new()).await, (0, false));
    }

    #[tokio::test]
    async fn a_caller_who_takes_a_line_now_and_then_is_cut_off_and_no_more_lines_are_made_for_it() {
        let (lines, taken) = mpsc::channel(4);
        let line = |is_last| Ok(FileLine { text: "x".repeat(10_000), is_last });
        lines.try_send(line(false)).expect("there is room");
        lines.try_send(line(true)).expect("there is room");
        let mut body = Sent::new(taken);
        let mut next = async |after| {
            body.pace.rests(Duration::from_secs(after));
            body.frame().await.map(|frame| frame.map(|frame| frame.into_data().map_or(0, |data| data.len())))
        };
        assert!(
            matches!(next(25).await, Some(Ok(4_096))),
            "a long line goes out in parts, so that it is seen how fast it is taken"
        );
        assert!(matches!(next(25).await, Some(Ok(4_096))));
        assert!(matches!(next(25).await, Some(Err(BrokeOff))), "the minute is used up");
        assert!(lines.is_closed(), "whoever makes the lines sees it");
    }

    #[tokio::test]
    async fn what_comes_after_the_last_part_was_given_breaks_nothing_off() {
        let (lines, taken) = mpsc::channel(1);
        lines.try_send(Ok(FileLine { text: "x\n".to_owned(), is_last: true })).expect("there is room");
        let mut body = Sent::new(taken);
        assert!(matches!(body.frame().await, Some(Ok(_))));
        drop(lines);
        body.pace.rests(Duration::from_secs(3_600));
        assert!(body.frame().await.is_none());
    }
}
