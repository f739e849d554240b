//! The clock and the chance of a client: the system's, or a test's.

use std::fmt;
use std::sync::Arc;

/// Where a client's time and nonces come from.
#[derive(Clone)]
pub struct Ambient {
    pub now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    pub bits128: Arc<dyn Fn() -> u128 + Send + Sync>,
}

impl Default for Ambient {
    fn default() -> Self {
        Self { now_ms: Arc::new(wall_ms), bits128: Arc::new(system_bits) }
    }
}

impl fmt::Debug for Ambient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ambient")
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place of the SDK that reads the wall clock")]
pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The operating system's source does not fail on the platforms we run on; if it does, we must not go on.
fn system_bits() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u128::from_le_bytes(bytes)
}
