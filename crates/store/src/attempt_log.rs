//! What is known of an attempt beside its outcome: how long its phases took, and the bytes that went over the wire. And how much of this,
//! and of old events, is old enough to be freed.

use countersign_domain::ids::{ApplicationNo, TenantNo};

/// Rows of bytes that one [`crate::Write::ForgetBytes`] forgets at the most, so that no change waits long behind it.
pub const BYTES_FORGOTTEN_MAX: usize = 500;
/// Events that one [`crate::Write::ForgetEvents`] forgets at the most, each with all that belongs to it.
pub const EVENTS_FORGOTTEN_MAX: usize = 200;

/// How long the phases of an attempt took, in microseconds. None: the phase did not happen, or an older program made the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// The look-up of the name; a URL with an address needs none.
    pub dns_us: Option<i64>,
    /// Connecting, with all addresses that were tried.
    pub connect_us: Option<i64>,
    /// The TLS handshake.
    pub tls_us: Option<i64>,
    /// From the moment that the request was handed to its connection to the first byte of the answer.
    pub first_byte_us: Option<i64>,
    /// From the beginning of the attempt to its end.
    pub total_us: Option<i64>,
    /// Whether it went over a connection that an attempt before had left open; none where there was no connection.
    pub reused: Option<bool>,
}

/// What went over the wire in an attempt. The body that was sent is the event's own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AttemptBytes {
    /// Request line and headers as they went out, with the blank line.
    pub sent_head: Vec<u8>,
    /// Status line and headers as they came in, interim ones before them; empty where no byte came. Where it was no HTTP, what came.
    pub answer_head: Vec<u8>,
    /// The answer's body without its chunks' frames, from its beginning.
    pub answer_body: Vec<u8>,
    /// How many bytes of the body were read.
    pub answer_length: i64,
    /// Whether the body is longer than what is kept of it, as far as that is known.
    pub is_cut: bool,
}

/// Blind: the answer is the merchant's, and this may land in a log.
impl std::fmt::Debug for AttemptBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttemptBytes")
            .field("sent_head", &self.sent_head.len())
            .field("answer_head", &self.answer_head.len())
            .field("answer_body", &self.answer_body.len())
            .field("answer_length", &self.answer_length)
            .field("is_cut", &self.is_cut)
            .finish()
    }
}

/// Bytes of a tenant's attempts that are older than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldBytes {
    /// Whose.
    pub tenant: TenantNo,
    /// How many attempts.
    pub rows: i64,
    /// How large they are, in bytes.
    pub bytes: i64,
}

/// An application's first events, as far as they are over and older than was asked for. The last event of an application is never among them,
/// so that whoever pulls can be told which is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldEvents {
    /// The tenant of the application.
    pub tenant: TenantNo,
    /// Whose.
    pub application: ApplicationNo,
    /// How many events.
    pub events: i64,
    /// How many attempts were made at them.
    pub attempts: i64,
    /// How large their data and bodies are, in bytes.
    pub bytes: i64,
}
