//! How much of what merchants decide the length of is kept. The disk is everybody's: what goes beyond a small part, which is kept in any case, is bounded for
//! each application.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use countersign_domain::ids::ApplicationNo;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// How far an application may go beyond, in bytes: in a second, and all at once.
const FURTHER_BYTES_PER_S: NonZeroU32 = NonZeroU32::new(4 * 1024).expect("not 0");
const FURTHER_BYTES_AT_ONCE: NonZeroU32 = NonZeroU32::new(4 * 1024 * 1024).expect("not 0");
/// With so many applications those whose quota is whole again are forgotten.
const KNOWN_MAX: usize = 10_000;
/// What goes beyond, between two looks whether any can be forgotten.
const LOOK_EACH: u64 = 1_024;

/// The quotas of all applications.
#[derive(Debug)]
pub struct ByteQuotas {
    further: DefaultKeyedRateLimiter<i64>,
    asked: AtomicU64,
}

impl Default for ByteQuotas {
    fn default() -> Self {
        let quota = Quota::per_second(FURTHER_BYTES_PER_S).allow_burst(FURTHER_BYTES_AT_ONCE);
        Self { further: RateLimiter::keyed(quota), asked: AtomicU64::new(0) }
    }
}

impl ByteQuotas {
    /// Whether the application may go so many bytes beyond; they are counted if so. 0 costs neither a look nor a lock.
    pub fn has_room_for(&self, application: ApplicationNo, further: usize) -> bool {
        let further = u32::try_from(further).unwrap_or(u32::MAX).min(FURTHER_BYTES_AT_ONCE.get());
        let Some(further) = NonZeroU32::new(further) else { return true };
        // A look at all of them for each would cost more than it saves where none of them can be forgotten yet.
        let is_time_to_look = self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EACH);
        if is_time_to_look && self.further.len() >= KNOWN_MAX {
            self.further.retain_recent();
        }
        matches!(self.further.check_key_n(&application.0, further), Ok(Ok(())))
    }

    /// Of how many applications it remembers something.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.further.len()
    }
}
