//! A body that goes out in pieces, and how much of it had gone when an answer came.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::dispatch::{ByHand, Manner, Parts, Report, Spelling};

/// So much at most waits in this machine for whoever is asked: systems hold some MB for a connection unless they are told, and what
/// they hold nobody has taken. The connection itself holds some 700 KB more.
const SEND_BUFFER_BYTES_MAX: usize = 512 * 1024;

/// How a body goes out.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// So many, of the same size.
    pub count: usize,
    /// At least so long between two.
    pub pause: Duration,
    /// Whether the head says how long it is.
    pub length: Length,
}

impl Pieces {
    /// The whole at once.
    pub const ONE: Self = Self { count: 1, pause: Duration::from_millis(1), length: Length::Stated };

    /// The pieces of a body.
    pub fn of(self, body: Vec<u8>) -> VecDeque<Bytes> {
        let mut body = Bytes::from(body);
        let each = body.len().div_ceil(self.count.max(1)).max(1);
        let mut pieces = VecDeque::with_capacity(self.count);
        while !body.is_empty() {
            pieces.push_back(body.split_to(each.min(body.len())));
        }
        pieces
    }

    /// How long the sending takes of itself, which nobody is to blame for.
    fn time(self) -> Duration {
        self.pause * u32::try_from(self.count).unwrap_or(u32::MAX)
    }
}

/// What the head says of a body's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// `Content-Length`.
    Stated,
    /// Nothing: it comes in chunks.
    Unstated,
}

/// How many bytes of a body had gone out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// When the answer began, or the connection ended without one.
    Before(usize),
    /// When the time for an exchange was over, and neither had come.
    Unheard(usize),
}

/// Sends a callback with its body in pieces, and reads the answer, which has the time that it always has. An answer ends the sending,
/// wherever it is.
pub(super) async fn send(
    by_hand: &ByHand,
    parts: Parts<String>,
    spelling: Spelling,
    body: Vec<u8>,
    pieces: Pieces,
) -> (Report, Sent) {
    let sent = Arc::new(AtomicUsize::new(0));
    let mut at_answer = None;
    let manner = Manner {
        body: InPieces::new(body, pieces, Arc::clone(&sent)),
        spelling,
        longer: pieces.time(),
        send_buffer_bytes_max: SEND_BUFFER_BYTES_MAX,
        begun: &mut || at_answer = Some(sent.load(Ordering::Relaxed)),
    };
    let report = by_hand.send_otherwise(parts, manner).await;
    let bytes = at_answer.unwrap_or_else(|| sent.load(Ordering::Relaxed));
    let is_unheard = report.outcome == Outcome::Timeout && at_answer.is_none();
    (report, if is_unheard { Sent::Unheard(bytes) } else { Sent::Before(bytes) })
}

/// A body whose pieces take their time.
struct InPieces {
    left: VecDeque<Bytes>,
    pause: Interval,
    length: Length,
    /// Bytes of the pieces that the connection has.
    sent: Arc<AtomicUsize>,
}

impl InPieces {
    fn new(body: Vec<u8>, pieces: Pieces, sent: Arc<AtomicUsize>) -> Self {
        let mut pause = interval(pieces.pause);
        // What was held up is not made up for: whoever reads late has the same time to answer.
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { left: pieces.of(body), pause, length: pieces.length, sent }
    }
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
        let piece = self.left.pop_front();
        self.sent.fetch_add(piece.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Length::Stated => SizeHint::with_exact(self.left.iter().map(|piece| piece.len() as u64).sum()),
            Length::Unstated => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_protocol::headers::Prefixes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const ALL: usize = 16 * 1024 * 1024;
    /// Longer than a test may take: whoever is waited for answers or closes.
    const LONG: Duration = Duration::from_secs(60);
    /// What is waited for never comes; how far the sending is by then depends on the machine.
    const SHORT: Duration = Duration::from_millis(500);

    /// What whoever is asked does, when the head has come.
    #[derive(Clone, Copy, Debug)]
    enum Conduct {
        Refuses,
        RefusesAndReadsOn,
        BeginsToAnswer,
        Closes,
        ReadsAll,
        ReadsAllChunks,
        Hangs,
    }

    async fn head(stream: &mut TcpStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        String::from_utf8(head).expect("ASCII")
    }

    async fn refuse(stream: &mut TcpStream) {
        let answer = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("is written");
    }

    /// One connection, which is held as long as this is.
    async fn receive(listener: TcpListener, conduct: Conduct) {
        let (mut stream, _) = listener.accept().await.expect("comes");
        let head = head(&mut stream).await;
        match conduct {
            Conduct::Refuses => refuse(&mut stream).await,
            Conduct::RefusesAndReadsOn => {
                refuse(&mut stream).await;
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            }
            Conduct::BeginsToAnswer => {
                let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\n\r\n";
                stream.write_all(answer).await.expect("is written");
            }
            Conduct::Closes => return,
            Conduct::ReadsAll => {
                assert!(head.contains(&format!("Content-Length: {ALL}\r\n")), "{head}");
                stream.read_exact(&mut vec![0; ALL]).await.expect("all of it");
                refuse(&mut stream).await;
            }
            Conduct::ReadsAllChunks => {
                assert!(head.contains("Transfer-Encoding: chunked\r\n") && !head.contains("Content-Length"), "{head}");
                let mut end = Vec::new();
                while !end.ends_with(b"\r\n0\r\n\r\n") {
                    let mut more = [0; 8 * 1024];
                    let read = stream.read(&mut more).await.expect("goes on");
                    assert!(read > 0, "ends without its last chunk");
                    end.extend_from_slice(&more[..read]);
                    end.drain(..end.len().saturating_sub(7));
                }
                refuse(&mut stream).await;
            }
            Conduct::Hangs => {}
        }
        std::future::pending::<()>().await;
    }

    /// The status or what is said of none, and how much had gone out.
    async fn sent_to(conduct: Conduct, time_max: Duration, length: Length) -> (Result<u16, String>, Sent) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("has one");
        let receiver = tokio::spawn(receive(listener, conduct));
        let prefixes = Prefixes::new(&["X-Service-".to_owned()]).expect("a prefix");
        let by_hand = ByHand::new(&format!("http://{address}/"), prefixes.first(), time_max).expect("is made");
        let parts = Parts {
            signature: None,
            signature_next: None,
            timestamp: String::new(),
            nonce: String::new(),
            event_id: String::new(),
            attempt: String::new(),
            sequence: None,
        };
        let pieces = Pieces { count: 64, pause: Duration::from_millis(1), length };
        let (report, sent) = send(&by_hand, parts, Spelling::Title, vec![b'x'; ALL], pieces).await;
        receiver.abort();
        let status = report.http_status.filter(|_| report.outcome != Outcome::Timeout);
        (status.ok_or(report.detail), sent)
    }

    fn is_a_part(sent: Sent) -> bool {
        matches!(sent, Sent::Before(bytes) if bytes < ALL)
    }

    #[tokio::test]
    async fn an_answer_that_comes_early_ends_the_sending_whether_or_not_the_rest_is_read() {
        for length in [Length::Stated, Length::Unstated] {
            for conduct in [Conduct::Refuses, Conduct::RefusesAndReadsOn] {
                let (answer, sent) = sent_to(conduct, LONG, length).await;
                assert_eq!((answer, is_a_part(sent)), (Ok(413), true), "{conduct:?} {length:?} {sent:?}");
            }
        }
    }

    #[tokio::test]
    async fn an_answer_that_begins_early_and_never_ends_has_come_early() {
        let (answer, sent) = sent_to(Conduct::BeginsToAnswer, LONG, Length::Stated).await;
        assert_eq!((answer, is_a_part(sent)), (Ok(400), true), "its status says all: {sent:?}");
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_without_an_answer_ends_the_sending() {
        let (answer, sent) = sent_to(Conduct::Closes, LONG, Length::Stated).await;
        assert!(
            answer.as_ref().is_err_and(|why| why.starts_with("the connection was ")) && is_a_part(sent),
            "{answer:?} {sent:?}"
        );
    }

    #[tokio::test]
    async fn whoever_reads_all_before_it_answers_was_sent_all() {
        for (conduct, length) in [(Conduct::ReadsAll, Length::Stated), (Conduct::ReadsAllChunks, Length::Unstated)] {
            assert_eq!(sent_to(conduct, LONG, length).await, (Ok(413), Sent::Before(ALL)), "{conduct:?}");
        }
    }

    #[tokio::test]
    async fn whoever_neither_reads_nor_answers_is_sent_no_more_than_buffers_hold_and_is_told_apart() {
        let (answer, sent) = sent_to(Conduct::Hangs, SHORT, Length::Stated).await;
        assert!(answer.as_ref().is_err_and(|why| why.contains(" passed while ")), "{answer:?}");
        // Some 1.5 MiB; with a send buffer as the system makes it, more than 4.
        assert!(matches!(sent, Sent::Unheard(bytes) if bytes < 3 * 1024 * 1024), "{sent:?}");
    }
}
