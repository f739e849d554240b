//! Which callbacks a receiver has seen already. Bounded; time is an argument.

use std::collections::{BTreeSet, HashSet};

use thiserror::Error;

/// Nonces that a [`Window`] keeps unless told otherwise: over 3,300 a second at a tolerance of five minutes. One takes some 180
/// bytes while it is kept (measured, 64-bit Linux), so a full window takes 180 MB.
pub const WINDOW_NONCES_MAX: usize = 1_000_000;

/// Why a nonce is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WindowRefused {
    /// Seen before.
    #[error("this callback was received before")]
    Seen,
    /// So old that it may have been forgotten, or not acceptable by its time.
    #[error("this callback is too old to know whether it was received before")]
    TooOld,
    /// As many as it may keep are still acceptable. The sender repeats a refused callback later.
    #[error("too many callbacks arrived at once to remember them all")]
    Full,
}

/// Remembers each nonce as long as its timestamp is acceptable.
#[derive(Clone, Debug)]
pub struct Window {
    tolerance_ms: i64,
    nonces_max: usize,
    seen: HashSet<Box<str>>,
    by_time: BTreeSet<(i64, Box<str>)>,
    forgotten_through_ms: i64,
}

impl Window {
    /// An empty window for timestamps that are at most so many milliseconds away from the present.
    pub fn new(tolerance_ms: i64, nonces_max: usize) -> Self {
        Self {
            tolerance_ms: tolerance_ms.max(0),
            nonces_max,
            seen: HashSet::new(),
            by_time: BTreeSet::new(),
            forgotten_through_ms: i64::MIN,
        }
    }

    /// Admits a nonce once. Ask only after the signature was found right; times are Unix milliseconds.
    pub fn admit(&mut self, nonce: &str, timestamp_ms: i64, now_ms: i64) -> Result<(), WindowRefused> {
        self.forget(now_ms);
        if self.seen.contains(nonce) {
            return Err(WindowRefused::Seen);
        }
        // A clock that was set back does not bring a forgotten nonce to life again.
        let oldest_ms = now_ms.saturating_sub(self.tolerance_ms);
        if timestamp_ms <= self.forgotten_through_ms || timestamp_ms < oldest_ms {
            return Err(WindowRefused::TooOld);
        }
        if self.seen.len() >= self.nonces_max {
            return Err(WindowRefused::Full);
        }
        self.seen.insert(nonce.into());
        self.by_time.insert((timestamp_ms, nonce.into()));
        Ok(())
    }

    /// Lets a nonce be used again: for a receiver whose work on it failed before it had any effect.
    pub fn release(&mut self, nonce: &str, timestamp_ms: i64) {
        if self.by_time.remove(&(timestamp_ms, nonce.into())) {
            self.seen.remove(nonce);
        }
    }

    /// How many nonces it keeps.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    fn forget(&mut self, now_ms: i64) {
        let oldest_ms = now_ms.saturating_sub(self.tolerance_ms);
        while let Some((timestamp_ms, nonce)) = self.by_time.pop_first() {
            if timestamp_ms >= oldest_ms {
                self.by_time.insert((timestamp_ms, nonce));
                break;
            }
            self.seen.remove(&nonce);
            self.forgotten_through_ms = self.forgotten_through_ms.max(timestamp_ms);
        }
    }
}
