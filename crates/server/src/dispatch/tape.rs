//! What goes over a connection, written down as it passes: the heads of one exchange byte for byte, and when the first byte of its answer came.
//!
//! The HTTP library writes the request's head and reads the answer's; here is the one place that sees their bytes. Under TLS it sees them in
//! the clear. Bodies are not written down: the one that goes out is the event's, the one that comes in is read by whoever asked.
//! Invariant: what is held for one exchange is bounded by [`SENT_BYTES_MAX`] and [`HEARD_BYTES_MAX`]. An idle connection holds nothing.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use memchr::memchr_iter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Most that is written down of a request's head; a URL is shorter by far.
const SENT_BYTES_MAX: usize = 16 * 1024;
/// All heads of one answer together, interim ones too, are at most so large; what is longer ends the exchange.
pub(super) const HEARD_BYTES_MAX: usize = 32 * 1024;

/// The heads of one exchange.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    /// As it went out, with the blank line.
    pub(super) sent: Vec<u8>,
    /// As it came in, with interim answers before it. Where it was no HTTP: what came.
    pub(super) heard: Vec<u8>,
    /// From the beginning of the exchange to the first byte of the answer.
    pub(super) first_byte: Option<Duration>,
}

#[derive(Debug, Default)]
struct Reel {
    heads: Heads,
    /// When the exchange began; none between two.
    began: Option<Instant>,
    /// Bytes of the request's body.
    body: usize,
    is_sent: bool,
    is_heard: bool,
    /// Where the head that is being heard begins, and how far it was looked through for its end.
    head_at: usize,
    looked_to: usize,
}

/// Written by the connection, read by the attempt that has it.
#[derive(Debug, Default)]
pub(super) struct Tape(Mutex<Reel>);

impl Tape {
    fn reel(&self) -> MutexGuard<'_, Reel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An exchange begins, whose request has a body of so many bytes.
    pub(super) fn begin(&self, now: Instant, body: usize) {
        *self.reel() = Reel { began: Some(now), body, ..Reel::default() };
    }

    /// Ends the exchange and gives what was written down.
    pub(super) fn take(&self) -> Heads {
        std::mem::take(&mut *self.reel()).heads
    }

    fn sent(&self, bytes: &[u8]) {
        let reel = &mut *self.reel();
        if reel.began.is_none() || reel.is_sent {
            return;
        }
        let sent = &mut reel.heads.sent;
        let before = sent.len();
        let bytes = &bytes[..bytes.len().min(SENT_BYTES_MAX - before)];
        // Nearly always the whole request comes at once: then its head ends where its body begins. A head has no blank line before its end.
        let end = if before == 0 {
            let whole = bytes.len().checked_sub(reel.body).filter(|end| bytes[..*end].ends_with(b"\r\n\r\n"));
            let end = whole.or_else(|| end_of_head(bytes, 0));
            sent.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            end
        } else {
            sent.extend_from_slice(bytes);
            let end = end_of_head(sent, before.saturating_sub(3));
            sent.truncate(end.unwrap_or(SENT_BYTES_MAX));
            end
        };
        reel.is_sent = end.is_some() || sent.len() >= SENT_BYTES_MAX;
    }

    fn heard(&self, bytes: &[u8]) -> io::Result<()> {
        let reel = &mut *self.reel();
        let Some(began) = reel.began else { return Ok(()) };
        if reel.is_heard || bytes.is_empty() {
            return Ok(());
        }
        reel.heads.first_byte.get_or_insert_with(|| began.elapsed());
        let heard = &mut reel.heads.heard;
        let room = HEARD_BYTES_MAX - heard.len();
        heard.extend_from_slice(&bytes[..bytes.len().min(room)]);
        while let Some(end) = end_of_head(heard, reel.looked_to) {
            if !is_interim(&heard[reel.head_at..end]) {
                heard.truncate(end);
                reel.is_heard = true;
                return Ok(());
            }
            (reel.head_at, reel.looked_to) = (end, end);
        }
        reel.looked_to = heard.len().saturating_sub(3).max(reel.head_at);
        if bytes.len() >= room {
            return Err(io::Error::new(ErrorKind::FileTooLarge, "the heads of the answer are too large"));
        }
        Ok(())
    }
}

/// Where the first head that ends behind `from` ends: after a blank line. Lines may end without a carriage return.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    for at in memchr_iter(b'\n', rest) {
        match rest[at + 1..] {
            [b'\n', ..] => return Some(from + at + 2),
            [b'\r', b'\n', ..] => return Some(from + at + 3),
            _ => {}
        }
    }
    None
}

/// Whether another head follows: 1xx, but for 101, after which there is no HTTP any more; or nothing but empty lines.
fn is_interim(head: &[u8]) -> bool {
    let line = head.trim_ascii_start();
    let code = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "));
    line.is_empty() || code.is_some_and(|code| code.starts_with(b"1") && !code.starts_with(b"101"))
}

/// A connection with its tape. It does not gather parts (no vectored writes): so the library puts head and body together, which takes less
/// than to have the kernel do it.
#[derive(Debug)]
pub(super) struct Taped<T> {
    io: T,
    tape: Arc<Tape>,
}

impl<T> Taped<T> {
    pub(super) const fn new(io: T, tape: Arc<Tape>) -> Self {
        Self { io, tape }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Taped<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        Poll::Ready(self.tape.heard(&buffer.filled()[before..]))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Taped<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.tape.sent(&bytes[..written.min(bytes.len())]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes, in pieces of every size.
    fn heard(bytes: &[u8], piece: usize) -> (Heads, bool) {
        let tape = Tape::default();
        tape.begin(Instant::now(), 0);
        let is_refused = bytes.chunks(piece).any(|piece| tape.heard(piece).is_err());
        (tape.take(), is_refused)
    }

    #[test]
    fn a_request_is_written_down_up_to_its_blank_line_however_it_is_cut() {
        let head = b"POST /cb HTTP/1.1\r\nHost: a\r\n\r\n";
        let whole = [head.as_slice(), b"{\"a\":\"\r\n\r\n\"}"].concat();
        for piece in 1..=whole.len() {
            let tape = Tape::default();
            tape.sent(b"before the exchange");
            tape.begin(Instant::now(), whole.len() - head.len());
            whole.chunks(piece).for_each(|piece| tape.sent(piece));
            assert_eq!(tape.take().sent, head, "pieces of {piece}");
        }
    }

    #[test]
    fn an_answer_is_written_down_with_what_came_before_it_and_without_its_body() {
        let final_head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        for heads in [
            final_head.to_owned(),
            "HTTP/1.1 200 OK\nContent-Length: 2\n\n".to_owned(),
            format!("\r\n{final_head}"),
            format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{final_head}"),
            format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n{final_head}"),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_owned(),
        ] {
            let whole = format!("{heads}{{}}\n\n");
            for piece in 1..=whole.len() {
                let (found, is_refused) = heard(whole.as_bytes(), piece);
                assert_eq!(String::from_utf8_lossy(&found.heard), heads, "pieces of {piece}");
                assert!(!is_refused && found.first_byte.is_some());
            }
        }
    }

    #[test]
    fn heads_without_end_end_the_exchange_and_are_kept_up_to_the_bound() {
        for (what, piece) in [("HTTP/1.1 100 Continue\r\n\r\n", 700), ("X", 1), ("HTTP/1.1 200 OK\r\nA: b\r\n", 8_192)]
        {
            let endless = what.repeat(2 * HEARD_BYTES_MAX / what.len());
            let (found, is_refused) = heard(endless.as_bytes(), piece);
            assert!(is_refused, "{what}");
            assert_eq!(found.heard, &endless.as_bytes()[..HEARD_BYTES_MAX], "{what}");
        }
    }

    #[test]
    fn what_comes_between_two_exchanges_is_nobodys_and_the_next_begins_anew() {
        let tape = Tape::default();
        tape.begin(Instant::now(), 0);
        tape.sent(b"POST / HTTP/1.1\r\n\r\n");
        drop(tape.heard(b"HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!tape.take().heard.is_empty());
        tape.sent(b"late");
        drop(tape.heard(b"late"));
        assert_eq!(tape.take(), Heads::default());
        tape.begin(Instant::now(), 0);
        drop(tape.heard(b"HTTP/1.1 204 No Content\r\n\r\n"));
        assert_eq!(tape.take().heard, b"HTTP/1.1 204 No Content\r\n\r\n");
    }
}
