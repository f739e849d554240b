//! The end of a connection on which the peer still sends: the answer is there to be read, and what comes is thrown away for a moment.
//!
//! A socket that is closed with bytes unread makes the kernel reset the connection, and a peer that hears of the reset may lose the answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::connection_state::ConnectionState;

/// What is thrown away at the end of a connection.
const LINGER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Read at once while nobody wants it.
const PIECE_BYTES: usize = 16 * 1024;

/// A stream that ends in two steps where the peer still sends: its own side first, and all of it when the peer has ended or time is up.
#[derive(Debug)]
pub(super) struct Lingering<T> {
    stream: T,
    state: Arc<ConnectionState>,
    /// For how long what comes is thrown away.
    linger: Duration,
    end: End,
}

#[derive(Debug)]
enum End {
    Open,
    /// Our side is ended.
    Half {
        left: usize,
        until: Option<Pin<Box<Sleep>>>,
    },
    Whole,
}

impl<T> Lingering<T> {
    /// `state` knows whether a body was left unread.
    pub(super) const fn new(stream: T, state: Arc<ConnectionState>, linger: Duration) -> Self {
        Self { stream, state, linger, end: End::Open }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lingering<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.state.heed_write(&written, bytes.len());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let End::Open = this.end {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            let still_sends = this.state.leaves_unread.load(Ordering::Relaxed);
            let until = still_sends.then(|| Box::pin(tokio::time::sleep(this.linger)));
            this.end = End::Half { left: LINGER_BYTES_MAX, until };
        }
        if let End::Half { left, until } = &mut this.end {
            ready!(poll_throw_away(&mut this.stream, context, left, until, this.linger));
            this.end = End::Whole;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.state.heed_write(&written, pieces.iter().map(|piece| piece.len()).sum());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Reads until the peer has ended, too, or the bounds are reached. Nobody is waited for who has sent nothing by now and owes nothing.
fn poll_throw_away<T: AsyncRead + Unpin>(
    stream: &mut T,
    context: &mut Context<'_>,
    left: &mut usize,
    until: &mut Option<Pin<Box<Sleep>>>,
    linger: Duration,
) -> Poll<()> {
    let mut piece = [0; PIECE_BYTES];
    while *left > 0 {
        let mut buffer = ReadBuf::new(&mut piece);
        match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                *left = left.saturating_sub(buffer.filled().len());
                until.get_or_insert_with(|| Box::pin(tokio::time::sleep(linger)));
            }
            Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(()),
            Poll::Pending => {
                let Some(until) = until else { return Poll::Ready(()) };
                return until.as_mut().poll(context);
            }
        }
    }
    Poll::Ready(())
}
