//! Answers that are made while they go out, a page at a time: nothing waits in memory for a caller who reads slowly.
//!
//! What breaks off midway ends the connection without the end of the answer, so no caller takes a part for the whole.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use countersign_store::StoreError;
use hyper::body::Frame;
use thiserror::Error;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::app::error::AppError;

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
    _place: OwnedSemaphorePermit,
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
        let Some(page) = self.page.as_mut() else { return Poll::Ready(None) };
        let made = ready!(page.as_mut().poll(context));
        self.page = None;
        Poll::Ready(Some(match made {
            Ok((bytes, rest)) => {
                self.page = rest.map(|rest| Box::pin(rest.next()) as Page<P>);
                Ok(Frame::data(bytes))
            }
            Err(error) => {
                told(&self.app, &error);
                Err(BrokenOff)
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.page.is_none()
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
pub fn stream(app: Arc<App>, place: OwnedSemaphorePermit, kind: &'static str, pages: impl Pages) -> Response<Body> {
    let body = Streamed { app, page: Some(Box::pin(pages.next())), _place: place };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
