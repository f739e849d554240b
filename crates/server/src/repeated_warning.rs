//! What comes again and again is told of now and then: a line for each would fill the disk for whoever wants that.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One kind of it.
#[derive(Debug, Default)]
pub(crate) struct RepeatedWarning {
    at: Option<Instant>,
    since: u64,
}

impl RepeatedWarning {
    /// How many there were since the last word, this one with them; none if it is too early for another.
    pub(crate) fn due(&mut self, every: Duration, now: Instant) -> Option<u64> {
        self.since += 1;
        let is_due = self.at.is_none_or(|at| now.duration_since(at) >= every);
        is_due.then(|| {
            self.at = Some(now);
            std::mem::take(&mut self.since)
        })
    }
}

/// The same where many meet it.
#[derive(Debug, Default)]
pub(crate) struct SharedWarning(Mutex<RepeatedWarning>);

impl SharedWarning {
    /// As [`RepeatedWarning::due`], now.
    pub(crate) fn due(&self, every: Duration) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).due(every, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    #[test]
    fn what_is_met_is_told_at_once_and_then_gathered() {
        let (mut warning, now) = (RepeatedWarning::default(), Instant::now());
        assert_eq!(warning.due(EVERY, now), Some(1));
        for _ in 0..500 {
            assert_eq!(warning.due(EVERY, now + EVERY / 2), None);
        }
        assert_eq!(warning.due(EVERY, now + EVERY), Some(501));
        assert_eq!(warning.due(EVERY, now + EVERY), None);
    }
}
