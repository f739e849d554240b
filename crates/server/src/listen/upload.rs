//! Bodies that nobody reads to their end: what still comes of one is thrown away for a moment, so that the answer is heard.
//!
//! The library drops such a body. Over HTTP/2 it resets the stream with the answer, which some clients take for a failure of the transport;
//! over HTTP/1 the connection cannot be used again, and the answer has to say so.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use hyper::{Request, Version};
use tokio::sync::Semaphore;

/// Bodies of one listener that are thrown away at once: each holds the room of a request.
const DRAINS_MAX: usize = 256;

/// What is thrown away of a body before its answer. Over HTTP/1 only what keeps a connection in use: the rest comes after the answer, see `linger`.
const HTTP_1_BYTES_MAX: u64 = 64 * 1024;
const HTTP_2_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// For how long what nobody reads is thrown away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrowsAway {
    /// Of a body of HTTP/1, before its answer.
    pub(super) http_1: Duration,
    /// The same of HTTP/2.
    pub(super) http_2: Duration,
    /// At the end of a connection.
    pub(super) at_the_end: Duration,
}

impl Default for ThrowsAway {
    fn default() -> Self {
        Self { http_1: Duration::from_millis(200), http_2: Duration::from_secs(1), at_the_end: Duration::from_secs(1) }
    }
}

/// The body of a request, which leaves behind what was not read of it.
#[derive(Debug)]
pub struct Upload {
    body: Option<Incoming>,
    /// Where to; none where there is no body.
    rest: Option<Arc<Rest>>,
    state: State,
    is_http_2: bool,
}

/// Why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// What the library says of it.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// The stream was reset before its end, with NO_ERROR (RFC 9113, 8.1). The library takes that for the end of the body, as it is where a server has
    /// answered early; of a request it says that its caller does not want it any more.
    #[error("the stream was reset before the end of the body")]
    Reset,
}

/// How far a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Over,
    Broken,
}

/// What was left of a body.
#[derive(Debug, Default)]
pub(super) struct Rest(Mutex<Left>);

#[derive(Debug, Default)]
enum Left {
    /// Its reader has not let go of it, or its framing broke: nobody can read on.
    #[default]
    Lost,
    /// All of it was read.
    Nothing,
    /// The rest may be read.
    Unread(Incoming),
}

/// Throws away what was left of bodies, of so many at once, and for so long each.
#[derive(Debug)]
pub(super) struct Drains(Semaphore, ThrowsAway);

/// What has to be known of a request to finish its body.
#[derive(Debug)]
pub(super) struct Unfinished {
    rest: Arc<Rest>,
    is_http_2: bool,
    /// Whether the client waits for a word before it sends its body: to read would be that word.
    waits: bool,
}

impl Upload {
    /// The request with a body that is watched; and what is to be finished once it is answered, where it has a body.
    pub(super) fn watch(request: Request<Incoming>) -> (Request<Self>, Option<Unfinished>) {
        let rest = (!request.body().is_end_stream()).then(Arc::<Rest>::default);
        let is_http_2 = request.version() == Version::HTTP_2;
        let waits = request.headers().contains_key(EXPECT);
        let unfinished = rest.clone().map(|rest| Unfinished { rest, is_http_2, waits });
        (request.map(|body| Self { body: Some(body), rest, state: State::Open, is_http_2 }), unfinished)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Self { body: Some(body), state: State::Open, is_http_2, .. } = &mut *self else { return Poll::Ready(None) };
        let frame = match ready!(Pin::new(&mut *body).poll_frame(context)) {
            None if *is_http_2 && !body.is_end_stream() => Some(Err(Broken::Reset)),
            frame => frame.map(|frame| frame.map_err(Broken::from)),
        };
        match &frame {
            None => self.state = State::Over,
            Some(Err(_)) => self.state = State::Broken,
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (Some(rest), Some(body)) = (&self.rest, self.body.take()) else { return };
        let left = match self.state {
            State::Broken => Left::Lost,
            State::Over => Left::Nothing,
            State::Open if body.is_end_stream() => Left::Nothing,
            State::Open => Left::Unread(body),
        };
        *rest.0.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}

impl Drains {
    pub(super) fn new(throws_away: ThrowsAway) -> Self {
        Self(Semaphore::new(DRAINS_MAX), throws_away)
    }

    /// Whether a body was read to its end, by its reader or now.
    pub(super) async fn finish(&self, unfinished: Unfinished) -> bool {
        let Unfinished { rest, is_http_2, waits } = unfinished;
        let left = std::mem::take(&mut *rest.0.lock().unwrap_or_else(PoisonError::into_inner));
        let Self(places, throws_away) = self;
        let (bytes_max, time) =
            if is_http_2 { (HTTP_2_BYTES_MAX, throws_away.http_2) } else { (HTTP_1_BYTES_MAX, throws_away.http_1) };
        match left {
            Left::Nothing => true,
            // In a box: hardly any request needs the room.
            Left::Unread(body) if !waits && body.size_hint().lower() <= bytes_max => {
                let Ok(_place) = places.try_acquire() else { return false };
                Box::pin(tokio::time::timeout(time, throw_away(body, bytes_max))).await.unwrap_or(false)
            }
            Left::Lost | Left::Unread(_) => false,
        }
    }
}

/// Whether the body ended within so many bytes.
async fn throw_away(mut body: Incoming, bytes_max: u64) -> bool {
    let mut seen = 0;
    while seen <= bytes_max {
        match body.frame().await {
            None => return true,
            Some(Ok(frame)) => seen += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => return false,
        }
    }
    false
}
