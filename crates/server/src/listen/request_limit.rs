//! How many requests may be under way at once over all connections.
//!
//! A connection of HTTP/1 has one request under way, so the bound on connections is a bound on requests. One of HTTP/2 has many, each of which
//! holds its head while it waits for its body: without a bound over all of them a few addresses could fill the memory with requests that they never finish.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::address_limit::{AddressLimit, AddressPermit, SAID_EVERY};
use crate::repeated_warning::SharedWarning;

/// The requests under way of one listener. By default there is no bound.
#[derive(Debug)]
pub struct RequestLimit {
    most: usize,
    per_address: Arc<AddressLimit>,
    under_way: AtomicUsize,
    refused: SharedWarning,
}

/// A request's place among those under way. Given back when it is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    limit: Arc<RequestLimit>,
    _place: AddressPermit,
}

impl Default for RequestLimit {
    fn default() -> Self {
        Self::new(usize::MAX, Arc::default())
    }
}

impl RequestLimit {
    /// At most `most` at once, and of one address as many as `per_address` lets in.
    pub fn new(most: usize, per_address: Arc<AddressLimit>) -> Self {
        Self { most, per_address, under_way: AtomicUsize::new(0), refused: SharedWarning::default() }
    }

    /// A place for one more request of `source`; none where as many requests are under way as may be, in all or from that address.
    pub fn enter(self: &Arc<Self>, source: IpAddr) -> Option<RequestPermit> {
        let place = self.per_address.enter(source);
        let permit = place.and_then(|place| {
            let room = |n: usize| (n < self.most).then(|| n + 1);
            // Nothing is handed over by this number.
            self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
            Some(RequestPermit { limit: self.clone(), _place: place })
        });
        if permit.is_none() {
            self.refuse(source);
        }
        permit
    }

    fn refuse(&self, source: IpAddr) {
        metrics::counter!("countersign_requests_crowded_out_total").increment(1);
        if let Some(refused) = self.refused.due(SAID_EVERY) {
            let (most, share) = (self.most, self.per_address.most());
            tracing::warn!(
                %source, refused,
                "Requests were refused: {most} are under way in all, or {share} of one address"
            );
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.limit.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_bound_in_all_and_a_share_for_each_address() {
        let limit = Arc::new(RequestLimit::new(3, Arc::new(AddressLimit::new(2, Vec::new(), false))));
        let enter = |source: &str| limit.enter(source.parse().expect("an address"));
        let mut held = vec![enter("192.0.2.1"), enter("192.0.2.1")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("192.0.2.1").is_none(), "it has its share");
        held.push(enter("192.0.2.2"));
        assert!(held[2].is_some(), "another address has its own");
        assert!(enter("192.0.2.3").is_none() && enter("127.0.0.1").is_none(), "there are no more in all");
        held.clear();
        assert!(
            enter("192.0.2.3").is_some() && enter("192.0.2.1").is_some(),
            "what was refused has left nothing taken"
        );
    }
}
