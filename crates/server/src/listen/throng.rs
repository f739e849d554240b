//! How many requests may be under way at once over all connections.
//!
//! A connection of HTTP/1 has one request under way, so the bound on connections is a bound on requests. One of HTTP/2 has many, each of which
//! holds its head while it waits for its body: without a bound over all of them a few addresses could fill the memory with requests that they never finish.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::crowd::{Crowd, Place, Refusals};

/// The requests under way of one listener. By default there is no bound.
#[derive(Debug)]
pub struct Throng {
    most: usize,
    crowd: Arc<Crowd>,
    under_way: AtomicUsize,
    refused: Refusals,
}

/// A request's place among those under way. Given back when it is dropped.
#[derive(Debug)]
pub struct Turn {
    throng: Arc<Throng>,
    _place: Place,
}

impl Default for Throng {
    fn default() -> Self {
        Self::new(usize::MAX, Arc::default())
    }
}

impl Throng {
    /// At most `most` at once, and of one address as many as `crowd` lets in.
    pub fn new(most: usize, crowd: Arc<Crowd>) -> Self {
        Self { most, crowd, under_way: AtomicUsize::new(0), refused: Refusals::default() }
    }

    /// A place for one more request of `source`; none where there are as many as there may be, of all or of that address.
    pub fn enter(self: &Arc<Self>, source: IpAddr) -> Option<Turn> {
        let place = self.crowd.enter(source);
        let turn = place.and_then(|place| {
            let room = |n: usize| (n < self.most).then(|| n + 1);
            // Nothing is handed over by this number.
            self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
            Some(Turn { throng: self.clone(), _place: place })
        });
        if turn.is_none() {
            self.refuse(source);
        }
        turn
    }

    fn refuse(&self, source: IpAddr) {
        metrics::counter!("countersign_requests_crowded_out_total").increment(1);
        if let Some(refused) = self.refused.one_more() {
            let (most, share) = (self.most, self.crowd.most());
            tracing::warn!(
                %source, refused,
                "Requests were refused: {most} are under way in all, or {share} of one address"
            );
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.throng.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_bound_in_all_and_a_share_for_each_address() {
        let throng = Arc::new(Throng::new(3, Arc::new(Crowd::new(2, Vec::new(), false))));
        let enter = |source: &str| throng.enter(source.parse().expect("an address"));
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
