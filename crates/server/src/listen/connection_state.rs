//! What is known of a connection while it is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared by all that serve one connection; each request under way, and each answer of which a part is still to be handed over, holds it once more.
#[derive(Debug, Default)]
pub(super) struct ConnectionState {
    /// Requests so far, and parts of long answers.
    pub(super) asked: AtomicU64,
    /// Whether a body was left unread, so that the peer may still be sending.
    pub(super) leaves_unread: AtomicBool,
    /// Whether a request of HTTP/1 came: such connections end by themselves when they are told to.
    pub(super) is_http_1: AtomicBool,
}

/// The service, the stream, and whoever serves the connection.
const HOLDERS: usize = 3;

impl ConnectionState {
    /// Whether no request is under way.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) <= HOLDERS
    }

    /// Requests so far, and parts of long answers.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}
