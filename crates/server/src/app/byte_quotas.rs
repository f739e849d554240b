//! How much of what merchants decide the length of is kept. The disk is everybody's: what goes beyond a small part, which is kept in any case, is bounded for
//! each application.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign_domain::ids::ApplicationNo;
use governor::clock::Clock;
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
    /// Whether the application may go so many bytes beyond; they are counted if so.
    pub fn has_room_for(&self, application: ApplicationNo, further: usize) -> bool {
        self.take(application, further).is_ok()
    }

    /// Counts so many bytes that the application goes beyond. `Err`: seconds until it may; none are counted. 0 costs neither a look nor a lock.
    pub fn take(&self, application: ApplicationNo, further: usize) -> Result<(), u64> {
        let further = u32::try_from(further).unwrap_or(u32::MAX).min(FURTHER_BYTES_AT_ONCE.get());
        let Some(further) = NonZeroU32::new(further) else { return Ok(()) };
        // A look at all of them for each would cost more than it saves where none of them can be forgotten yet.
        let is_time_to_look = self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EACH);
        if is_time_to_look && self.further.len() >= KNOWN_MAX {
            self.further.retain_recent();
        }
        let checked =
            self.further.check_key_n(&application.0, further).expect("no more is asked for than fits at once");
        checked.map_err(|until| whole_seconds(until.wait_time_from(self.further.clock().now())))
    }

    /// Of how many applications it remembers something.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.further.len()
    }
}

/// As long as that in whole seconds, and one at least: 0 would ask for the next one at once.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_room_is_told_the_seconds_until_there_is_some() {
        let quotas = ByteQuotas::default();
        let take = |further| quotas.take(ApplicationNo(1), further);
        assert_eq!(take(4 * 1024 * 1024), Ok(()), "all at once");
        // Less where the machine was busy meanwhile.
        let some = take(56 * 1024).expect_err("nothing is left");
        assert!((10..=14).contains(&some), "{some}");
        let all = take(usize::MAX).expect_err("as much as fits at once");
        assert!((1_020..=1_024).contains(&all), "{all}");
        for (wait_ns, seconds) in [(0, 1), (1, 1), (1_000_000_000, 1), (1_000_000_001, 2), (13_999_999_999, 14)] {
            assert_eq!(whole_seconds(Duration::from_nanos(wait_ns)), seconds, "{wait_ns}");
        }
        assert_eq!(quotas.take(ApplicationNo(2), 4 * 1024 * 1024), Ok(()), "nobody waits for another");
        assert_eq!(take(0), Ok(()));
    }
}
