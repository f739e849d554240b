//! Answers whose length nobody knows when they begin: they may take longer than a request may, as long as somebody reads them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

/// A body that counts as under way until its end, and each part of it as something asked. One of a known length is passed on as it is.
#[derive(Debug)]
pub(super) struct Long<B> {
    body: B,
    asked: Option<Arc<AtomicU64>>,
}

impl<B: Body> Long<B> {
    /// `asked` is what its connection counts by.
    pub(super) fn new(body: B, asked: Arc<AtomicU64>) -> Self {
        let is_known = body.size_hint().exact().is_some();
        Self { body, asked: (!is_known).then_some(asked) }
    }
}

impl<B: Body + Unpin> Body for Long<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(_))), Some(asked)) = (&polled, &self.asked) {
            asked.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
