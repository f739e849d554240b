//! The one place that reads the wall clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use countersign_domain::time::UnixMillis;

/// Where the time comes from: the machine, or a test.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// A clock that only moves when it is told to.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `at` until it is moved.
    pub fn manual(at: UnixMillis) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(at.0)))
    }

    /// The instant of every decision.
    pub fn now(&self) -> UnixMillis {
        match self {
            Self::System => UnixMillis(wall_ms()),
            Self::Manual(at) => UnixMillis(at.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock; a system clock stays as it is.
    pub fn advance_ms(&self, ms: i64) {
        match self {
            Self::System => {}
            Self::Manual(at) => {
                at.fetch_add(ms, Ordering::SeqCst);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
