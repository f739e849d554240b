//! Answers whose length nobody knows when they begin: they may take longer than a request may, as long as somebody reads them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

use super::connection_state::ConnectionState;

/// A body that counts as under way until its end; of one whose length is not known, each part counts as something asked.
#[derive(Debug)]
pub(super) struct LongAnswer<B> {
    body: B,
    state: Arc<ConnectionState>,
    counts_parts: bool,
}

impl<B: Body> LongAnswer<B> {
    /// `state` is what its connection counts by.
    pub(super) fn new(body: B, state: Arc<ConnectionState>) -> Self {
        let counts_parts = body.size_hint().exact().is_none();
        Self { body, state, counts_parts }
    }
}

impl<B: Body + Unpin> Body for LongAnswer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if self.counts_parts && matches!(polled, Poll::Ready(Some(Ok(_)))) {
            self.state.asked.fetch_add(1, Ordering::Relaxed);
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
