//! Since when a writer has been at one piece of work: a store whose writers hang is not ready, though reads may go well.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One writer's.
#[derive(Debug)]
pub(crate) struct WorkClock {
    made: Instant,
    /// Milliseconds from `made` to the begin of the work, and one; 0: there is none.
    since: AtomicU64,
}

impl WorkClock {
    pub(crate) fn new() -> Self {
        Self { made: Instant::now(), since: AtomicU64::new(0) }
    }

    pub(crate) fn begin(&self) {
        let since = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since.store(since.saturating_add(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long the present work has taken so far.
    pub(crate) fn age(&self) -> Duration {
        match self.since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.made.elapsed().saturating_sub(Duration::from_millis(since - 1)),
        }
    }
}
