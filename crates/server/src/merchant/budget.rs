//! Failed authentications are budgeted per source address, never per ClientId or token: nobody can lock a victim out.
//!
//! Of IPv6 a block of 64 bits is one address, as it is for connections. Whoever is over budget costs no look-up until there is room again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::source::block_of;

/// How many failures one address may have. By default there is no budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Failed authentications per second and source address; 0 is off.
    pub per_s: u32,
    /// How many of them at once.
    pub burst: u32,
    /// Whether loopback addresses are budgeted too.
    pub limit_loopback: bool,
}

/// The budget of every source address.
#[derive(Debug)]
pub struct FailedAuthentications {
    limiter: Option<DefaultKeyedRateLimiter<u128>>,
    limit_loopback: bool,
    clock: DefaultClock,
    /// Who is over budget, and until when.
    over: RwLock<HashMap<u128, Instant>>,
    /// Whether anybody is: nobody else's request looks into the map.
    is_anybody_over: AtomicBool,
}

impl FailedAuthentications {
    /// As configured; a rate or a burst of 0 is off.
    pub fn new(budget: &Budget) -> Self {
        let quota = NonZeroU32::new(budget.per_s)
            .zip(NonZeroU32::new(budget.burst))
            .map(|(rate, burst)| Quota::per_second(rate).allow_burst(burst));
        Self {
            limiter: quota.map(RateLimiter::keyed),
            limit_loopback: budget.limit_loopback,
            clock: DefaultClock::default(),
            over: RwLock::default(),
            is_anybody_over: AtomicBool::new(false),
        }
    }

    /// Counts one failure of `source`; false where its budget is used up.
    pub fn one_more(&self, source: IpAddr) -> bool {
        let Some(limiter) = self.limiter.as_ref().filter(|_| self.limit_loopback || !source.is_loopback()) else {
            return true;
        };
        let block = block_of(source);
        let Err(until) = limiter.check_key(&block) else { return true };
        // In this order: where this thread stands still in between, it ends too late and not too soon.
        let wait = until.wait_time_from(self.clock.now());
        let until = Instant::now() + wait;
        let mut over = self.over.write().unwrap_or_else(PoisonError::into_inner);
        over.insert(block, until);
        self.is_anybody_over.store(true, Ordering::Relaxed);
        false
    }

    /// A look-up is made for `source`. Where its caller is gone before the verdict it counts as a failure: the store has the work all the same, and
    /// whoever takes back each request would have as many looked up as they like. `counts`: once nothing that is kept has proved its signature.
    pub fn look_up<'a>(&'a self, source: Option<IpAddr>, counts: &'a AtomicBool) -> LookUp<'a> {
        LookUp { failed: self, source, counts }
    }

    /// Whether the budget of `source` was used up a moment ago and has no room yet for one more failure.
    pub fn is_over(&self, source: IpAddr) -> bool {
        self.is_over_at(Instant::now(), source)
    }

    fn is_over_at(&self, now: Instant, source: IpAddr) -> bool {
        self.is_anybody_over.load(Ordering::Relaxed) && self.over_until(source).is_some_and(|until| now < until)
    }

    fn over_until(&self, source: IpAddr) -> Option<Instant> {
        self.over.read().unwrap_or_else(PoisonError::into_inner).get(&block_of(source)).copied()
    }

    /// Forgets sources whose budget is whole again.
    pub fn tidy(&self) {
        let Some(limiter) = &self.limiter else { return };
        limiter.retain_recent();
        limiter.shrink_to_fit();
        let now = Instant::now();
        let mut over = self.over.write().unwrap_or_else(PoisonError::into_inner);
        over.retain(|_, until| now < *until);
        over.shrink_to_fit();
        self.is_anybody_over.store(!over.is_empty(), Ordering::Relaxed);
    }
}

/// A look-up under way.
#[derive(Debug)]
#[must_use]
pub struct LookUp<'a> {
    failed: &'a FailedAuthentications,
    source: Option<IpAddr>,
    counts: &'a AtomicBool,
}

impl LookUp<'_> {
    /// There is a verdict, or the store has failed.
    pub fn ended(mut self) {
        self.source = None;
    }
}

impl Drop for LookUp<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.source.filter(|_| self.counts.load(Ordering::Relaxed)) {
            self.failed.one_more(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failures(budget: u32) -> FailedAuthentications {
        FailedAuthentications::new(&Budget { per_s: 1, burst: budget, limit_loopback: false })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_block_of_ipv6_has_one_budget() {
        let failed = failures(100);
        let began = Instant::now();
        let fitted = (0..60_000).take_while(|n| failed.one_more(address(&format!("2001:db8:0:7::{n:x}")))).count();
        // One more for each second that it takes.
        let most = 101 + usize::try_from(began.elapsed().as_secs()).expect("soon");
        assert!((100..=most).contains(&fitted), "{fitted}");
        assert!(failed.over_until(address("2001:db8:0:7:ffff::1")).is_some());
        assert!(!failed.is_over(address("2001:db8:0:8::1")));
        assert!(failed.one_more(address("2001:db8:0:8::1")), "the next block has its own");
    }

    #[test]
    fn who_is_over_is_so_until_there_is_room_and_is_forgotten_then() {
        let failed = FailedAuthentications::new(&Budget { per_s: 20, burst: 1, limit_loopback: false });
        let (bad, good) = (address("192.0.2.1"), address("192.0.2.2"));
        assert!(!failed.is_over(bad) && failed.one_more(bad) && !failed.is_over(bad));
        // Until one is refused: where this thread had to wait for long there is room for another.
        while failed.one_more(bad) {}
        let until = failed.over_until(bad).expect("it is over");
        assert!(failed.is_over_at(until.checked_sub(Duration::from_millis(1)).expect("later"), bad));
        assert!(!failed.is_over_at(until, bad) && !failed.is_over(good));
        while failed.is_over(bad) {
            std::thread::yield_now();
        }
        assert!(failed.one_more(bad), "there is room again");
        failed.tidy();
        assert!(failed.over.read().expect("whole").is_empty() && !failed.is_anybody_over.load(Ordering::Relaxed));
    }

    #[test]
    fn this_machine_is_budgeted_only_where_it_shall_be_and_nobody_without_a_budget() {
        let often = |failed: &FailedAuthentications| (0..10).all(|_| failed.one_more(address("127.0.0.1")));
        assert!(often(&failures(1)));
        assert!(often(&FailedAuthentications::new(&Budget { limit_loopback: true, ..Budget::default() })));
        assert!(!often(&FailedAuthentications::new(&Budget { per_s: 1, burst: 1, limit_loopback: true })));
    }
}
