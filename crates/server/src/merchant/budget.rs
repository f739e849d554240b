//! Failed authentications are budgeted per source address, never per ClientId: nobody can lock a victim out.

use std::net::IpAddr;
use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::EdgeSettings;

/// The budget of every source address.
#[derive(Debug)]
pub struct FailedAuthentications {
    limiter: Option<DefaultKeyedRateLimiter<IpAddr>>,
    limit_loopback: bool,
}

impl FailedAuthentications {
    /// As configured; a rate or a burst of 0 is off.
    pub fn new(settings: &EdgeSettings) -> Self {
        let quota = NonZeroU32::new(settings.failed_auth_per_s)
            .zip(NonZeroU32::new(settings.failed_auth_burst))
            .map(|(rate, burst)| Quota::per_second(rate).allow_burst(burst));
        Self { limiter: quota.map(RateLimiter::keyed), limit_loopback: settings.limit_loopback }
    }

    /// Counts one failure of `source`; false where its budget is used up.
    pub fn one_more(&self, source: IpAddr) -> bool {
        match &self.limiter {
            Some(limiter) if self.limit_loopback || !source.is_loopback() => limiter.check_key(&source).is_ok(),
            Some(_) | None => true,
        }
    }

    /// Forgets sources whose budget is whole again.
    pub fn tidy(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
        }
    }
}
