//! Answers that are made while they go out, a page at a time: nothing waits in memory for a caller who reads slowly.
//!
//! What breaks off midway ends the connection without the end of the answer, so no caller takes a part for the whole.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use countersign_store::StoreError;
use hyper::body::Frame;
use thiserror::Error;
use tokio::time::Instant;

use crate::app::App;
use crate::app::concurrency_limit::ConcurrencyPermit;
use crate::app::error::AppError;

/// How long a caller may take over the parts in all, besides a second for each so many bytes: one who takes longer keeps a place from others.
const SLACK: Duration = Duration::from_secs(60);
const BYTES_PER_S_MIN: u64 = 16 * 1024;
/// So much is given at once, so that it is seen how fast it is taken.
const PART_BYTES_MAX: usize = 4 * 1024;

/// What an answer is made of.
pub trait Pages: Sized + Send + 'static {
    /// The next bytes, and what makes those after them; none: that was all.
    fn next(self) -> impl Future<Output = Result<(Bytes, Option<Self>), AppError>> + Send;
}

/// The rest of an answer that has begun will not come.
#[derive(Debug, Error)]
#[error("the answer broke off")]
struct BrokenOff;

type Page<P> = Pin<Box<dyn Future<Output = Result<(Bytes, Option<P>), AppError>> + Send>>;

struct Streamed<P> {
    app: Arc<App>,
    page: Option<Page<P>>,
    /// What is made and not given yet.
    rest: Bytes,
    pace: Pace,
    _place: ConcurrencyPermit,
}

/// How fast a caller takes what is given.
#[derive(Debug, Default)]
pub struct Pace {
    given: u64,
    /// How long the caller took over it.
    taken: Duration,
    /// When the last part was given; none once more was asked for.
    since: Option<Instant>,
}

impl Pace {
    /// As if the caller had taken so much longer over the last part.
    #[cfg(test)]
    pub fn rests(&mut self, more: Duration) {
        self.taken += more;
    }

    fn gives(&mut self, bytes: usize, now: Instant) {
        self.given += bytes as u64;
        self.since = Some(now);
    }

    /// The caller asks for more: whether that is too late. Then the log says so.
    pub fn is_too_slow(&mut self, now: Instant) -> bool {
        if let Some(since) = self.since.take() {
            self.taken += now.duration_since(since);
        }
        let is_too_slow = self.taken > SLACK + Duration::from_secs(self.given / BYTES_PER_S_MIN);
        if is_too_slow {
            tracing::warn!(
                "An answer to an operator broke off: it was taken more slowly than {BYTES_PER_S_MIN} bytes a second"
            );
        }
        is_too_slow
    }

    /// The next part of what is made, which is given now.
    pub fn part(&mut self, made: &mut Bytes, now: Instant) -> Bytes {
        let part = made.split_to(made.len().min(PART_BYTES_MAX));
        self.gives(part.len(), now);
        part
    }
}

/// What is left then nobody takes: the caller went away, or its connection was closed because it took nothing.
impl<P> Drop for Streamed<P> {
    fn drop(&mut self) {
        if self.page.is_some() || !self.rest.is_empty() {
            tracing::info!("An answer to an operator broke off: its caller went away, or took nothing for too long");
        }
    }
}

impl<P> fmt::Debug for Streamed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed").finish_non_exhaustive()
    }
}

impl<P: Pages> hyper::body::Body for Streamed<P> {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if !self.is_end_stream() && self.pace.is_too_slow(Instant::now()) {
            (self.page, self.rest) = (None, Bytes::new());
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        while self.rest.is_empty() {
            let Some(page) = self.page.as_mut() else { return Poll::Ready(None) };
            let made = ready!(page.as_mut().poll(context));
            self.page = None;
            match made {
                Ok((bytes, rest)) => {
                    self.page = rest.map(|rest| Box::pin(rest.next()) as Page<P>);
                    self.rest = bytes;
                }
                Err(error) => {
                    told(&self.app, &error);
                    return Poll::Ready(Some(Err(BrokenOff)));
                }
            }
        }
        let Self { rest, pace, .. } = &mut *self;
        Poll::Ready(Some(Ok(Frame::data(pace.part(rest, Instant::now())))))
    }

    fn is_end_stream(&self) -> bool {
        self.page.is_none() && self.rest.is_empty()
    }
}

/// The caller sees that it broke off, and nothing else: the log says why.
fn told(app: &App, error: &AppError) {
    match error {
        AppError::Store(StoreError::Unavailable(cause)) => app.trouble.met(cause),
        other => tracing::error!(error = %other, "An answer to an operator broke off: {other}"),
    }
}

/// 200 with what `pages` makes. It holds its place until the caller has it all, or is gone.
pub fn stream(app: Arc<App>, place: ConcurrencyPermit, kind: &'static str, pages: impl Pages) -> Response<Body> {
    let body =
        Streamed { app, page: Some(Box::pin(pages.next())), rest: Bytes::new(), pace: Pace::default(), _place: place };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_may_be_slow_for_a_minute_and_then_as_slow_as_the_least_rate() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let mut takes = |after: Duration| {
            now += after;
            let is_too_slow = pace.is_too_slow(now);
            pace.gives(16 * 1024, now);
            is_too_slow
        };
        assert!(!takes(Duration::from_secs(3600)), "what it waits for us does not count");
        assert!(!takes(SLACK));
        for _ in 0..100 {
            assert!(!takes(Duration::from_secs(1)), "the least rate");
        }
        assert!(!takes(Duration::from_secs(2)));
        assert!(takes(Duration::from_secs(2)), "slower than that, and the minute is used up");
    }
}
