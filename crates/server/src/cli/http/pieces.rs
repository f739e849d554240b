//! A body that goes out in pieces.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Interval, interval};

use super::{Answer, Ask, exchange_body};

/// Sends `ask` with its body in so many pieces, a pause before each but the first, and reads the answer, within 30 s.
pub async fn exchange_in_pieces(base: &str, ask: &Ask, pieces: usize, pause: Duration) -> anyhow::Result<Answer> {
    let body = ask.body.clone().unwrap_or_default();
    let each = body.len().div_ceil(pieces.max(1)).max(1);
    let left: VecDeque<Bytes> = body.chunks(each).map(Bytes::copy_from_slice).collect();
    exchange_body(base, ask, InPieces { left, pause: interval(pause) }).await
}

/// A body whose pieces take their time. Its length is known from the start.
struct InPieces {
    left: VecDeque<Bytes>,
    pause: Interval,
}

impl Body for InPieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        ready!(self.pause.poll_tick(context));
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.iter().map(|piece| piece.len() as u64).sum())
    }
}
