//! How many places one address may have, of connections and of requests, so that one peer cannot take them all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::source::{Network, block_of};

/// How often the log says that somebody was refused.
pub(super) const SAID_EVERY: Duration = Duration::from_secs(60);

/// The places of each address. By default nobody is counted.
#[derive(Debug, Default)]
pub struct AddressLimit {
    /// Most of one address; 0 is no limit.
    most: usize,
    /// Who is not counted: proxies, which carry everybody's.
    exempt: Vec<Network>,
    /// Whether this machine is.
    count_loopback: bool,
    present: Mutex<HashMap<u128, usize>>,
}

/// A place. Given back when it is dropped.
#[derive(Debug)]
pub struct AddressPermit {
    limit: Arc<AddressLimit>,
    block: Option<u128>,
}

impl AddressLimit {
    /// At most `most` places for one address, 0 for no limit, but for those of `exempt` networks and, unless
    /// `count_loopback`, of this machine. Of IPv6 a block of 64 bits counts as one address.
    pub fn new(most: usize, exempt: Vec<Network>, count_loopback: bool) -> Self {
        Self { most, exempt, count_loopback, ..Self::default() }
    }

    /// Most of one address; 0 is no limit.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// One more place for `peer`; none if it has as many as it may.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<AddressPermit> {
        let peer = peer.to_canonical();
        let is_counted = self.most > 0
            && (self.count_loopback || !peer.is_loopback())
            && !self.exempt.iter().any(|network| network.contains(peer));
        if !is_counted {
            return Some(AddressPermit { limit: self.clone(), block: None });
        }
        let block = block_of(peer);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let count = present.entry(block).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPermit { limit: self.clone(), block: Some(block) })
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let Some(block) = self.block else { return };
        let mut present = self.limit.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = present.get_mut(&block) {
            *count -= 1;
            if *count == 0 {
                present.remove(&block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(count_loopback: bool) -> Arc<AddressLimit> {
        let proxies = vec![Network::parse("10.0.0.0/8").expect("a network")];
        Arc::new(AddressLimit::new(2, proxies, count_loopback))
    }

    fn enter(limit: &Arc<AddressLimit>, peer: &str) -> Option<AddressPermit> {
        limit.enter(peer.parse().expect("an address"))
    }

    #[test]
    fn an_address_has_its_share_of_connections_and_gets_a_place_back_when_one_ends() {
        let limit = limit(false);
        let (first, second) = (enter(&limit, "192.0.2.1"), enter(&limit, "::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(enter(&limit, "192.0.2.1").is_none(), "a third one is refused");
        assert!(enter(&limit, "192.0.2.2").is_some(), "somebody else's is not");
        drop(first);
        assert!(enter(&limit, "192.0.2.1").is_some());
        drop(second);
        assert!(limit.present.lock().expect("whole").is_empty(), "nothing is kept of those that have gone");
    }

    #[test]
    fn a_block_of_ipv6_is_one_address() {
        let limit = limit(false);
        let held = [enter(&limit, "2001:db8::1"), enter(&limit, "2001:db8::ffff:1")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter(&limit, "2001:db8::2").is_none());
        assert!(enter(&limit, "2001:db8:0:1::2").is_some());
    }

    #[test]
    fn proxies_are_not_counted_and_this_machine_only_where_it_shall_be() {
        let many = |limit: &Arc<AddressLimit>, peer| (0..5).map(|_| enter(limit, peer)).collect::<Option<Vec<_>>>();
        for peer in ["10.1.2.3", "127.0.0.1", "::1"] {
            assert!(many(&limit(false), peer).is_some(), "{peer}");
        }
        assert!(many(&limit(true), "127.0.0.1").is_none());
        assert!(many(&Arc::new(AddressLimit::new(0, Vec::new(), true)), "192.0.2.1").is_some(), "0 is no limit");
    }
}
