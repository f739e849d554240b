//! What becomes of a callback after an attempt.
//!
//! Invariant: nothing here knows HTTP or the store. The dispatcher asks, this module answers.
//! Invariant: the schedule is data ([`Schedule`]); there is no formula to reason about.

use std::fmt;

use thiserror::Error;

use crate::time::UnixMillis;

/// How an attempt ended, in the words of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx and `returnCode` SUCCESS.
    Delivered,
    /// The URL is forbidden, or the name leads to a forbidden address, alone or beside others.
    RefusedAddress,
    /// The name could not be looked up.
    DnsFailed,
    /// No connection within its time.
    ConnectFailed,
    /// The handshake or the certificate failed.
    TlsFailed,
    /// The one deadline passed.
    Timeout,
    /// An answer outside 2xx.
    HttpStatus,
    /// 2xx, but no JSON object with a `returnCode`, too large, or broken off.
    Unreadable,
    /// An honest `FAIL`, or any other `returnCode`.
    Fail,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 9] = [
        Self::Delivered,
        Self::RefusedAddress,
        Self::DnsFailed,
        Self::ConnectFailed,
        Self::TlsFailed,
        Self::Timeout,
        Self::HttpStatus,
        Self::Unreadable,
        Self::Fail,
    ];

    /// Its name in answers, logs and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::RefusedAddress => "refused_address",
            Self::DnsFailed => "dns_failed",
            Self::ConnectFailed => "connect_failed",
            Self::TlsFailed => "tls_failed",
            Self::Timeout => "timeout",
            Self::HttpStatus => "http_status",
            Self::Unreadable => "unreadable",
            Self::Fail => "fail",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }
}

/// Where a callback stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Waits for its next attempt.
    Pending,
    /// Waits for a URL, for callbacks to be enabled or released again, or for its merchant to be enabled again.
    Held,
    /// The merchant said SUCCESS. Final, unless redelivered by hand.
    Delivered,
    /// The schedule is used up. Redeliverable.
    Dead,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Held, Self::Delivered, Self::Dead];

    /// Its name in answers, logs and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Held => "held",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl DeliveryState {
    /// As it stands, whatever the row says that is late: what is open is pending where callbacks go out, and held where they do not.
    #[must_use]
    pub const fn standing(self, goes_out: bool) -> Self {
        match self {
            Self::Pending | Self::Held if goes_out => Self::Pending,
            Self::Pending | Self::Held => Self::Held,
            Self::Delivered | Self::Dead => self,
        }
    }

    /// Whether nothing more is sent, unless by hand.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Delivered | Self::Dead => true,
            Self::Pending | Self::Held => false,
        }
    }
}

/// Most delays that a schedule can have.
pub const SCHEDULE_DELAYS_MAX: usize = 32;
/// Shortest delay.
pub const DELAY_MS_MIN: i64 = 1;
/// Longest delay: 7 days.
pub const DELAY_MS_MAX: i64 = 7 * 24 * 3_600_000;
/// A merchant's Retry-After moves an attempt later by no more than this: 1 hour.
pub const RETRY_AFTER_MS_MAX: i64 = 3_600_000;
/// Jitter adds at most a delay's fifth.
const JITTER_DIVISOR: i64 = 5;
const SPREAD_MAX: i64 = u16::MAX as i64;

/// No attempt is put off for longer: the longest delay with its jitter, and what a Retry-After may add.
const PUT_OFF_MS_MAX: i64 = DELAY_MS_MAX + DELAY_MS_MAX / JITTER_DIVISOR + RETRY_AFTER_MS_MAX;

const _: () = assert!(DELAY_MS_MAX < i64::MAX / SPREAD_MAX, "a delay times the spread fits");

/// When an attempt is due that the store has down for `due_at`. Farther ahead than anything is put off only a clock wrote it that was ahead:
/// it is due now.
pub fn due(due_at: UnixMillis, now: UnixMillis) -> UnixMillis {
    if is_too_far_ahead(due_at, now) { now } else { due_at }
}

/// Until when a callback that was written at `created_at` waits for earlier ones of its bizId: for `hold_ms`. Farther ahead than anything is put off
/// only a clock wrote it that was ahead, and nobody knows since when it has waited: it waits from now on, or until `waits_until` where the right clock has
/// fixed that.
pub const fn patience(
    created_at: UnixMillis,
    waits_until: Option<UnixMillis>,
    hold_ms: i64,
    now: UnixMillis,
) -> UnixMillis {
    match waits_until {
        _ if !is_too_far_ahead(created_at, now) => created_at.plus_ms(hold_ms),
        Some(until) if until.0 <= now.plus_ms(hold_ms).0 => until,
        Some(_) | None => now.plus_ms(hold_ms),
    }
}

/// Whether it is farther ahead than any attempt is put off: only a clock can have written it that was ahead.
pub const fn is_too_far_ahead(at: UnixMillis, now: UnixMillis) -> bool {
    at.0.saturating_sub(now.0) > PUT_OFF_MS_MAX
}

/// Whether what was due then has waited for as long as its whole schedule takes.
pub const fn is_overdue(due_at: UnixMillis, whole_ms: i64, now: UnixMillis) -> bool {
    now.0.saturating_sub(due_at.0) >= whole_ms
}

/// How long to wait before each attempt after the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    delays_ms: Vec<i64>,
}

/// Why a list of delays is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleRefused {
    /// No delay, or too many.
    #[error("a schedule has 1 to {SCHEDULE_DELAYS_MAX} delays, not {0}")]
    Count(usize),
    /// A text that is not a number and a unit.
    #[error("{0:?} is no delay: write a whole number and one of ms, s, m, h, d, such as \"30s\"")]
    Form(String),
    /// A delay of nothing, or of more than 7 days.
    #[error("{0:?} is outside 1ms to 7d")]
    Bounds(String),
}

impl Default for Schedule {
    /// 5 s, 30 s, 2 m, 10 m, 30 m, 1 h, 2 h, 4 h, 8 h, 12 h, 20 h, 24 h.
    fn default() -> Self {
        const S: i64 = 1_000;
        const M: i64 = 60 * S;
        const H: i64 = 60 * M;
        Self { delays_ms: vec![5 * S, 30 * S, 2 * M, 10 * M, 30 * M, H, 2 * H, 4 * H, 8 * H, 12 * H, 20 * H, 24 * H] }
    }
}

impl Schedule {
    /// Reads delays such as `5s`, `2m`, `1h`: 1 to 32 of them, each from 1 ms to 7 days.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, ScheduleRefused> {
        if !(1..=SCHEDULE_DELAYS_MAX).contains(&texts.len()) {
            return Err(ScheduleRefused::Count(texts.len()));
        }
        let delays_ms = texts.iter().map(|t| parse_delay(t.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { delays_ms })
    }

    /// The delays in ms, in order.
    pub fn delays_ms(&self) -> &[i64] {
        &self.delays_ms
    }

    /// The delays as they are written in a configuration, in order: `5s`, `2m`.
    pub fn texts(&self) -> Vec<String> {
        let text = |delay: &i64| {
            let (unit, ms) = UNITS_MS.into_iter().find(|(_, ms)| delay % ms == 0).unwrap_or(("ms", 1));
            format!("{}{unit}", delay / ms)
        };
        self.delays_ms.iter().map(text).collect()
    }

    /// From the first attempt to the last one, in ms, where each delay has all the jitter that it may have.
    pub fn whole_ms(&self) -> i64 {
        self.delays_ms.iter().map(|delay| delay + delay / JITTER_DIVISOR).sum()
    }

    /// The delay after so many attempts, in ms; none after the last.
    fn delay_after_ms(&self, attempts_made: u32) -> Option<i64> {
        let index = usize::try_from(attempts_made).ok()?.saturating_sub(1);
        self.delays_ms.get(index).copied()
    }
}

impl fmt::Display for Schedule {
    /// As it is written in a configuration: `5s, 30s, 2m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts().join(", "))
    }
}

/// Largest unit first.
const UNITS_MS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

fn parse_delay(text: &str) -> Result<i64, ScheduleRefused> {
    let form = || ScheduleRefused::Form(text.to_owned());
    let bounds = || ScheduleRefused::Bounds(text.to_owned());
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (_, unit_ms) = UNITS_MS.into_iter().find(|(name, _)| *name == unit).ok_or_else(form)?;
    if digits.is_empty() {
        return Err(form());
    }
    let number: i64 = digits.parse().map_err(|_| bounds())?;
    let delay_ms = number.checked_mul(unit_ms).ok_or_else(bounds)?;
    if (DELAY_MS_MIN..=DELAY_MS_MAX).contains(&delay_ms) { Ok(delay_ms) } else { Err(bounds()) }
}

/// What becomes of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Delivered,
    /// Once more.
    Retry {
        /// Not before this instant.
        due_at: UnixMillis,
    },
    /// The schedule is used up: parked, visible, redeliverable.
    Dead,
    /// It was sent again by hand, in vain: what was delivered once stays delivered.
    StaysDelivered,
    /// The endpoint said 410 Gone: its callbacks are disabled, and this event is held until they are enabled again.
    DisableEndpoint,
}

impl Verdict {
    /// Where the delivery goes, and when it is due next where it is pending.
    pub const fn state(self) -> (DeliveryState, Option<UnixMillis>) {
        match self {
            Self::Delivered | Self::StaysDelivered => (DeliveryState::Delivered, None),
            Self::Retry { due_at } => (DeliveryState::Pending, Some(due_at)),
            Self::Dead => (DeliveryState::Dead, None),
            Self::DisableEndpoint => (DeliveryState::Held, None),
        }
    }
}

/// How a delivery had ended that is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The merchant had it.
    Delivered,
    /// It was dead.
    Dead,
}

impl Verdict {
    /// What becomes of a delivery that had ended so and is sent again, where the schedule would have it so. One that was dead has one attempt,
    /// whatever the schedule has left by now: it may have been made longer since.
    #[must_use]
    pub const fn of_sent_again(self, over: Over) -> Self {
        match (self, over) {
            (Self::Retry { .. } | Self::Dead, Over::Dead) => Self::Dead,
            (Self::Dead, Over::Delivered) => Self::StaysDelivered,
            (Self::Retry { .. }, Over::Delivered)
            | (Self::Delivered | Self::StaysDelivered | Self::DisableEndpoint, Over::Delivered | Over::Dead) => self,
        }
    }
}

/// An attempt that was made, as far as it decides about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempted {
    /// Attempts made of the delivery, this one among them: 1, 2, ...
    pub count: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// The status of its answer, where one came.
    pub http_status: Option<u16>,
    /// What its answer asked to wait, in ms.
    pub retry_after_ms: Option<i64>,
}

/// What becomes of a delivery after an attempt that ended at `now`.
///
/// The next attempt is due a delay of the schedule later, plus 0 to 20 % by `spread` (chance, 0 to 65535), never earlier.
/// A Retry-After of 429 or 503 moves it later still, by at most an hour. 410 disables the endpoint, whatever is left of the schedule.
pub fn after_attempt(attempted: Attempted, schedule: &Schedule, now: UnixMillis, spread: u16) -> Verdict {
    let Attempted { count, outcome, http_status, retry_after_ms } = attempted;
    match outcome {
        Outcome::Delivered => return Verdict::Delivered,
        Outcome::HttpStatus if http_status == Some(410) => return Verdict::DisableEndpoint,
        Outcome::HttpStatus
        | Outcome::RefusedAddress
        | Outcome::DnsFailed
        | Outcome::ConnectFailed
        | Outcome::TlsFailed
        | Outcome::Timeout
        | Outcome::Unreadable
        | Outcome::Fail => {}
    }
    let Some(delay_ms) = schedule.delay_after_ms(count) else { return Verdict::Dead };
    let jittered_ms = delay_ms + delay_ms * i64::from(spread) / (JITTER_DIVISOR * SPREAD_MAX);
    let wished_ms = retry_after_ms.filter(|_| matches!(http_status, Some(429 | 503))).unwrap_or(0);
    let wait_ms = wished_ms.clamp(jittered_ms, jittered_ms + RETRY_AFTER_MS_MAX);
    Verdict::Retry { due_at: now.plus_ms(wait_ms) }
}
