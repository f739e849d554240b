//! What is known of an attempt beside its outcome: how long its phases took, and the bytes that went over the wire. And how much of this,
//! and of old events, is old enough to be freed.

use std::future::Future;

use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::time::UnixMillis;

use crate::contract::{Asker, Cursor, StoreError};
use crate::read::{Columns, Fields};

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

/// Before when events were made that are too old to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// Those that are delivered, dead or held. None that is younger goes, whatever became of it.
    pub made_before: UnixMillis,
    /// Those that are held were made before, and no attempt at them began since. None of them goes that is sent again by hand, and none while its
    /// application has a note that its deliveries are to be turned: it may be about to go out.
    pub held_before: UnixMillis,
}

/// What one [`crate::Write::ForgetEvents`] forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// How many events.
    pub events: usize,
    /// How many of them were held: no attempt that was recorded had delivered them.
    pub held: usize,
}

impl Forgotten {
    /// Nothing.
    pub const NONE: Self = Self { events: 0, held: 0 };
}

impl std::ops::AddAssign for Forgotten {
    fn add_assign(&mut self, more: Self) {
        (self.events, self.held) = (self.events + more.events, self.held + more.held);
    }
}

/// An application's first events, as far as they are too old. The last event of an application is never among them, so that whoever pulls can be told
/// which is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldEvents {
    /// The tenant of the application.
    pub tenant: TenantNo,
    /// Whose.
    pub application: ApplicationNo,
    /// How many events.
    pub events: i64,
    /// How many of them are held: no attempt that is recorded has delivered them.
    pub held: i64,
    /// How many attempts were made at them.
    pub attempts: i64,
    /// How large their data and bodies are, in bytes.
    pub bytes: i64,
}

/// What is old of one tenant or application, stretch by stretch: however much it is, no read is a long one.
pub trait OldRows {
    /// Of the tenant's attempts that left bytes and began before an instant, the first `page.limit`: how many, and how large their bytes are.
    fn old_bytes_of(
        &self,
        asker: Asker,
        tenant: TenantNo,
        begun_before: UnixMillis,
        page: Cursor<BytesPlace>,
    ) -> impl Future<Output = Result<OldStretch<BytesPlace>, StoreError>> + Send;

    /// Of the application's events behind a `seq`, the first `page.limit` that [`crate::Write::ForgetEvents`] would forget, and no further than up
    /// to the first that it would not.
    fn old_events_of(
        &self,
        asker: Asker,
        of: (TenantNo, ApplicationNo),
        old: TooOld,
        page: Cursor,
    ) -> impl Future<Output = Result<OldStretch<i64>, StoreError>> + Send;
}

/// The place of an attempt among those of its tenant that left bytes, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BytesPlace {
    /// When it began.
    pub at: UnixMillis,
    /// At which event.
    pub event: EventNo,
    /// Its number.
    pub attempt: i64,
}

impl BytesPlace {
    /// Before all others.
    pub(crate) const BEGIN: Self = Self { at: UnixMillis(i64::MIN), event: EventNo(i64::MIN), attempt: i64::MIN };
}

/// How much of a stretch is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldStretch<P> {
    /// How many rows.
    pub rows: i64,
    /// How many of them are events that are held.
    pub held: i64,
    /// How many attempts they are, or were made at them.
    pub attempts: i64,
    /// How large they are, in bytes.
    pub bytes: i64,
    /// The place of the last row; none where the stretch has no rows.
    pub last: Option<P>,
}

/// Where an attempt's bytes are, and how large, as a row of either dialect has it.
pub(crate) fn sized<R: Columns>(row: &R) -> Result<(BytesPlace, i64), StoreError> {
    let mut f = Fields::new(row, "attempt_bytes", 0, 1);
    Ok((BytesPlace { at: f.millis()?, event: EventNo(f.int()?), attempt: f.int()? }, f.count(0)?))
}

/// The stretch that bytes come to, one after the other.
pub(crate) fn stretch_of_bytes(of: &[(BytesPlace, i64)]) -> OldStretch<BytesPlace> {
    let rows = i64::try_from(of.len()).unwrap_or(i64::MAX);
    OldStretch {
        rows,
        held: 0,
        attempts: rows,
        bytes: of.iter().map(|(_, size)| size).sum(),
        last: of.last().map(|(place, _)| *place),
    }
}

/// A stretch of events as a row of either dialect has it.
pub(crate) fn stretch_of_events<R: Columns>(row: &R) -> Result<OldStretch<i64>, StoreError> {
    let mut f = Fields::new(row, "event", 0, 0);
    Ok(OldStretch {
        rows: f.count(0)?,
        held: f.count(0)?,
        attempts: f.count(0)?,
        bytes: f.count(0)?,
        last: f.opt_int()?,
    })
}
