//! What is known of a connection while it is served.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::ending::Ending;

/// Shared by all that serve one connection; each request under way, and each answer of which a part is still to be handed over, holds it once more.
#[derive(Debug)]
pub(super) struct ConnectionState {
    began: Instant,
    /// Requests so far, and parts of long answers.
    asked: AtomicU64,
    /// When the last of them came, in ms after the beginning.
    pub(super) asked_at_ms: AtomicU64,
    /// Whether a body was left unread, so that the peer may still be sending.
    pub(super) leaves_unread: AtomicBool,
    /// Whether a request of HTTP/1 came: such connections end by themselves when they are told to.
    pub(super) is_http_1: AtomicBool,
    /// Whether the socket has not taken all of what it was given last: the end of an answer waits for the peer to read.
    waits_to_write: AtomicBool,
    /// Answers of HTTP/2 that are still to be read, with what was seen of each at the last look.
    unread: Mutex<Vec<Seen>>,
    /// The end of its listener.
    pub(super) ending: Arc<Ending>,
}

/// How far an answer is.
#[derive(Debug, Default)]
pub(super) struct Unread {
    parts: AtomicU64,
}

impl Unread {
    /// One more part of it is handed over.
    pub(super) fn part(&self) {
        self.parts.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Seen {
    answer: Weak<Unread>,
    parts: u64,
    /// Looks since then that found it no further.
    looks: u32,
}

/// Answers that are remembered before those that are over are forgotten: more than may be under way on a connection.
const UNREAD_KEPT: usize = 256;

/// The service, the stream, and whoever serves the connection.
pub(super) const HOLDERS: usize = 3;

impl Default for ConnectionState {
    /// A connection that begins now, of a listener that never ends.
    fn default() -> Self {
        Self::of(Arc::default())
    }
}

impl ConnectionState {
    /// A connection that begins now, of a listener with this end.
    pub(super) fn of(ending: Arc<Ending>) -> Self {
        Self {
            ending,
            began: Instant::now(),
            asked: AtomicU64::default(),
            asked_at_ms: AtomicU64::default(),
            leaves_unread: AtomicBool::default(),
            is_http_1: AtomicBool::default(),
            waits_to_write: AtomicBool::default(),
            unread: Mutex::default(),
        }
    }

    /// A request came, or a part of a long answer was taken.
    pub(super) fn asks(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.asked_at_ms.store(at_ms, Ordering::Relaxed);
    }

    /// Since when nothing was asked for: since the beginning, if nothing ever was.
    pub(super) fn quiet_since(&self) -> Instant {
        self.began + Duration::from_millis(self.asked_at_ms.load(Ordering::Relaxed))
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) <= HOLDERS
    }

    /// How a write went, of so many bytes.
    pub(super) fn heed_write(&self, written: &Poll<io::Result<usize>>, of: usize) {
        let is_whole = matches!(written, Poll::Ready(Ok(count)) if *count == of);
        self.waits_to_write.store(!is_whole, Ordering::Relaxed);
    }

    /// Whether what was written last is not all on its way yet.
    pub(super) fn waits_to_write(&self) -> bool {
        self.waits_to_write.load(Ordering::Relaxed)
    }

    /// An answer begins, and is there until what is returned is dropped.
    pub(super) fn begin_unread(&self) -> Arc<Unread> {
        let answer = Arc::new(Unread::default());
        let seen = Seen { answer: Arc::downgrade(&answer), parts: 0, looks: 0 };
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        // Between two looks many may come and go.
        if unread.len() >= UNREAD_KEPT {
            unread.retain(|seen| seen.answer.strong_count() > 0);
        }
        unread.push(seen);
        answer
    }

    /// Looks at these answers: for how many looks in a row one of them has gone no further, at the most.
    pub(super) fn stuck_for(&self) -> u32 {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.retain_mut(|seen| {
            let Some(answer) = seen.answer.upgrade() else { return false };
            let parts = answer.parts.load(Ordering::Relaxed);
            seen.looks = if parts == seen.parts { seen.looks + 1 } else { 0 };
            seen.parts = parts;
            true
        });
        unread.iter().map(|seen| seen.looks).max().unwrap_or(0)
    }

    /// Requests so far, and parts of long answers.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}
