//! Which address a request came from, with trusted proxies before us.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::header::HeaderMap;

/// An address or a range of addresses, `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

const V4_BITS_MIN: u8 = 8;
const V6_LOCAL_BITS_MIN: u8 = 8;
const V6_BITS_MIN: u8 = 16;

impl Network {
    /// Reads `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let written: IpAddr = address.parse().ok()?;
        // Callers are known by their own family, whichever way they came: `::ffff:10.0.0.7` is 10.0.0.7.
        let address = written.to_canonical();
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let beyond = if written.is_ipv6() { 128 - widest } else { 0 };
        let bits = bits.map_or(Some(widest), |b| b.parse::<u8>().ok()?.checked_sub(beyond))?;
        (bits <= widest).then_some(Self { address, bits })
    }

    /// Whether it is wider than what any fleet of proxies has: a few such networks, two halves for example, are everybody.
    pub const fn is_too_wide(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.bits < V4_BITS_MIN,
            // Nobody on the internet has a unique local address, so all of them together are no wider than 10.0.0.0/8.
            IpAddr::V6(address) if address.is_unique_local() => self.bits < V6_LOCAL_BITS_MIN,
            IpAddr::V6(_) => self.bits < V6_BITS_MIN,
        }
    }

    /// The first of its addresses. Where it is not the one that was written, a network was named by an address in it.
    pub fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & v4_mask(self.bits)).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & v6_mask(self.bits)).into(),
        }
    }

    /// The address that was written, and the length.
    pub const fn written(&self) -> (IpAddr, u8) {
        (self.address, self.bits)
    }

    /// Whether `address` is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(a)) => {
                let mask = v4_mask(self.bits);
                net.to_bits() & mask == a.to_bits() & mask
            }
            (IpAddr::V6(net), IpAddr::V6(a)) => {
                let mask = v6_mask(self.bits);
                net.to_bits() & mask == a.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn v4_mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

fn v6_mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

/// Whose word about addresses is taken.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    trusted: Vec<Network>,
}

impl Sources {
    /// Proxies whose `X-Forwarded-For` is believed.
    pub fn behind(trusted: Vec<Network>) -> Self {
        Self { trusted }
    }

    /// The last hop of `X-Forwarded-For` that is not a trusted proxy, where the peer is one; else the peer.
    pub fn of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if self.trusted.is_empty() || !self.is_trusted(peer) {
            return peer;
        }
        let mut source = peer;
        let values: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        for value in values.into_iter().rev() {
            let Ok(hops) = value.to_str() else { return source };
            for hop in hops.rsplit(',') {
                // RFC 9110, 5.6.1: a list may have empty elements, which say nothing.
                let hop = hop.trim();
                if hop.is_empty() {
                    continue;
                }
                let Some(hop) = address(hop) else { return source };
                source = hop;
                if !self.is_trusted(hop) {
                    return source;
                }
            }
        }
        source
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|n| n.contains(address))
    }
}

/// A hop: an address, with a port perhaps.
fn address(hop: &str) -> Option<IpAddr> {
    let bare = hop.trim_start_matches('[').split(']').next().unwrap_or(hop);
    let parsed = bare.parse().ok().or_else(|| hop.parse::<std::net::SocketAddr>().ok().map(|s| s.ip()));
    parsed.map(|a: IpAddr| a.to_canonical())
}

/// Of an IPv6 address, what belongs to one customer of a network: whoever has one address of such a block has all of it.
const V6_BLOCK_BITS: u32 = 64;

/// What is counted as one address.
pub fn block_of(address: IpAddr) -> u128 {
    match address {
        // Where an IPv4 address stands inside of IPv6, which no block of 64 bits can be.
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address) >> V6_BLOCK_BITS << V6_BLOCK_BITS,
    }
}

/// The address as text; the commonest without a trip through the formatter.
pub fn text(address: IpAddr) -> std::borrow::Cow<'static, str> {
    if address == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        "127.0.0.1".into()
    } else if address == IpAddr::V6(Ipv6Addr::LOCALHOST) {
        "::1".into()
    } else {
        address.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn of(peer: &str, forwarded: &[&str]) -> String {
        let sources = Sources::behind(vec![
            Network::parse("10.0.0.0/8").expect("a network"),
            Network::parse("::1").expect("an address"),
        ]);
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(value.as_bytes()).expect("a header value"));
        }
        sources.of(peer.parse().expect("an address"), &headers).to_string()
    }

    #[test]
    fn the_last_untrusted_hop_counts() {
        assert_eq!(of("192.0.2.1", &["198.51.100.7"]), "192.0.2.1", "a stranger's word is not taken");
        assert_eq!(of("10.1.1.1", &[]), "10.1.1.1");
        assert_eq!(of("10.1.1.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(
            of("10.1.1.1", &["203.0.113.9, 198.51.100.7, 10.2.2.2"]),
            "198.51.100.7",
            "what the client itself wrote is not taken"
        );
        assert_eq!(of("10.1.1.1", &["203.0.113.9", "198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(of("::1", &["[2001:db8::5]:80"]), "2001:db8::5");
        assert_eq!(of("10.1.1.1", &["nonsense"]), "10.1.1.1");
        assert_eq!(of("10.1.1.1", &["198.51.100.7,", ""]), "198.51.100.7", "empty elements of a list say nothing");
        assert_eq!(
            of("10.1.1.1", &["203.0.113.9", "\u{e9}, 198.51.100.7"]),
            "10.1.1.1",
            "a line that cannot be read ends it"
        );
        assert_eq!(of("::ffff:10.1.1.1", &["198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn networks_are_read_strictly() {
        for text in ["10.0.0.0/33", "::/129", "10.0.0/8", "x", "", "10.0.0.0/", "::ffff:10.0.0.0/95"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
        assert!(Network::parse("0.0.0.0/0").expect("all").contains(Ipv4Addr::BROADCAST.into()));
        for (mapped, plain) in [("::ffff:10.0.0.7", "10.0.0.7"), ("::ffff:10.0.0.0/104", "10.0.0.0/8")] {
            assert_eq!(Network::parse(mapped), Network::parse(plain), "{mapped}");
        }
    }

    #[test]
    fn networks_that_no_fleet_of_proxies_has_are_too_wide() {
        let is_too_wide = |text| Network::parse(text).expect("a network").is_too_wide();
        for text in [
            "0.0.0.0/0",
            "0.0.0.0/1",
            "128.0.0.0/1",
            "10.0.0.0/7",
            "::/0",
            "::/1",
            "8000::/1",
            "2000::/3",
            "2a00::/15",
            "fc00::/7",
        ] {
            assert!(is_too_wide(text), "{text}");
        }
        for text in ["10.0.0.0/8", "10.0.0.7", "2a00::/16", "2001:db8::/32", "fd00::/8", "::1"] {
            assert!(!is_too_wide(text), "{text}");
        }
    }
}
