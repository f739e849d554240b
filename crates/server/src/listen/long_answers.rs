//! Answers that take a while to be read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::connection_state::{ConnectionState, Unread};
use super::request_limit::RequestPermit;
use crate::app::concurrency_limit::ConcurrencyPermit;

/// What is handed over at once to a connection of HTTP/2. There it lies until its peer reads, and the request has given up its place by then: of
/// what is larger the rest stays in the answer, and the answer in its place.
pub(super) const PART_BYTES_MAX: usize = 4 * 1024;

/// What is handed over at once to a connection of HTTP/1. It is copied behind what waits there already, up to 64 KiB, and the memory for that stays the
/// connection's until it ends: a whole answer, which nothing splits, would leave as much with each connection that is kept.
const PART_BYTES_MAX_HTTP_1: usize = 16 * 1024;

/// An answer that keeps its request's place among those under way until its last part is handed over.
#[derive(Debug)]
pub struct Held<B> {
    body: B,
    _permit: Option<RequestPermit>,
    _place: Option<Box<ConcurrencyPermit>>,
}

impl<B> Held<B> {
    /// `permit` is the place; none: there is one answer on a connection, which has a place of its own.
    pub fn new(body: B, permit: Option<RequestPermit>) -> Self {
        Self { body, _permit: permit, _place: None }
    }

    /// The same, with a place of its own among answers that are long.
    #[must_use]
    pub fn with(self, place: Option<Box<ConcurrencyPermit>>) -> Self {
        Self { _place: place, ..self }
    }
}

impl<B: Body + Unpin> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that counts as under way until its end, in small parts. Of one whose length is not known, each part counts as something asked:
/// it may take longer than a request may, as long as somebody reads it.
#[derive(Debug)]
pub(super) struct LongAnswer<B> {
    body: B,
    /// What has been taken of the body and is not handed over yet.
    rest: Bytes,
    state: Arc<ConnectionState>,
    counts_parts: bool,
    /// Over HTTP/2, of an answer that has content: even the first part is not taken before its peer lets us send something.
    unread: Option<Arc<Unread>>,
    part_bytes_max: usize,
}

impl<B: Body<Data = Bytes>> LongAnswer<B> {
    /// `state` is what its connection counts by.
    pub(super) fn new(body: B, state: Arc<ConnectionState>) -> Self {
        let length = body.size_hint().exact();
        let is_http_1 = state.is_http_1.load(Ordering::Relaxed);
        let unread = (!is_http_1 && !body.is_end_stream()).then(|| state.begin_unread());
        let part_bytes_max = if is_http_1 { PART_BYTES_MAX_HTTP_1 } else { PART_BYTES_MAX };
        Self { body, rest: Bytes::new(), state, counts_parts: length.is_none(), unread, part_bytes_max }
    }

    /// As much as may be handed over at once; the rest is kept.
    fn part(&mut self, mut data: Bytes) -> Frame<Bytes> {
        if let Some(unread) = &self.unread {
            unread.part();
        }
        if data.len() > self.part_bytes_max {
            self.rest = data.split_off(self.part_bytes_max);
        }
        Frame::data(data)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LongAnswer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.part(rest))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        if self.counts_parts {
            self.state.asks();
        }
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) => self.part(data),
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(most) = of_body.upper() {
            hint.set_upper(most + rest);
        }
        hint.set_lower(of_body.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use http_body_util::{BodyExt as _, Full};

    use super::super::RequestLimit;
    use super::super::address_limit::AddressLimit;
    use super::*;

    /// The sizes of the parts of an answer, and before each whether there is room for another request.
    async fn taken(is_http_1: bool, length: usize) -> Vec<(usize, bool)> {
        let limit = Arc::new(RequestLimit::new(1, Arc::new(AddressLimit::new(9, Vec::new(), false))));
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let permit = limit.enter(peer);
        assert!(permit.is_some());
        let state = Arc::new(ConnectionState::default());
        state.is_http_1.store(is_http_1, Ordering::Relaxed);
        let body = Held::new(Full::new(Bytes::from(vec![b'x'; length])), permit);
        let (mut answer, mut parts) = (Some(LongAnswer::new(body, state)), Vec::new());
        while let Some(mut rest) = answer.take() {
            assert_eq!(rest.size_hint().exact(), Some((length - parts.iter().map(|(n, _)| n).sum::<usize>()) as u64));
            let has_room = limit.enter(peer).is_some();
            let part = rest.frame().await.expect("a part").expect("it is read").into_data().expect("no trailers");
            parts.push((part.len(), has_room));
            // As hyper does: the body is let go with its last part. (The first one it takes once there is room for it.)
            answer = (!rest.is_end_stream()).then_some(rest);
        }
        assert!(limit.enter(peer).is_some(), "its place is free");
        parts
    }

    #[tokio::test]
    async fn an_answer_goes_in_small_parts_and_keeps_its_place_until_the_last() {
        let long = 2 * PART_BYTES_MAX + 1;
        assert_eq!(taken(false, long).await, [(PART_BYTES_MAX, false), (PART_BYTES_MAX, false), (1, false)]);
        assert_eq!(taken(false, PART_BYTES_MAX).await, [(PART_BYTES_MAX, false)]);
        let long = PART_BYTES_MAX_HTTP_1 + 1;
        assert_eq!(taken(true, long).await, [(PART_BYTES_MAX_HTTP_1, false), (1, false)]);
    }
}
