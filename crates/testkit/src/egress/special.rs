//! Which addresses callbacks must never reach, written down a second time: from the IANA registries of special-purpose addresses and of
//! multicast, and what the clouds say of their metadata services. It shares nothing with the server's own table, so that what one of the two
//! forgets the other finds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// Network and name of each range of IPv4.
const V4: &[(&str, &str)] = &[
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private use"),
    ("100.64.0.0/10", "shared address space"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "metadata of Azure"),
    ("169.254.0.0/16", "link local"),
    ("172.16.0.0/12", "private use"),
    ("192.0.0.0/24", "IETF protocol assignments"),
    ("192.0.2.0/24", "documentation 1"),
    ("192.31.196.0/24", "AS112, version 4"),
    ("192.52.193.0/24", "AMT"),
    ("192.88.99.0/24", "6to4 relay anycast"),
    ("192.168.0.0/16", "private use"),
    ("192.175.48.0/24", "direct delegation AS112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation 2"),
    ("203.0.113.0/24", "documentation 3"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved, and limited broadcast"),
];

/// The same of IPv6, inside of what is global unicast; all outside of that is forbidden as a whole.
const V6: &[(&str, &str)] = &[
    ("2001::/32", "Teredo"),
    ("2001:1::/32", "protocol assignments: anycasts"),
    ("2001:2::/48", "benchmarking"),
    ("2001:3::/32", "AMT"),
    ("2001:4:112::/48", "AS112, version 6"),
    ("2001:10::/28", "ORCHID"),
    ("2001:20::/28", "ORCHID, version 2"),
    ("2001:30::/28", "drone remote identifiers"),
    ("2001::/23", "IETF protocol assignments"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("2620:4f:8000::/48", "direct delegation AS112"),
    ("3ffe::/16", "6bone"),
    ("3fff::/20", "documentation"),
];

/// Ranges outside of global unicast that have a name; samples are taken of them.
const V6_OUTSIDE: &[(&str, &str)] = &[
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::/96", "IPv4-compatible"),
    ("::ffff:0:0/96", "IPv4-mapped"),
    ("::ffff:0:0:0/96", "IPv4-translated"),
    ("64:ff9b::/96", "NAT64"),
    ("64:ff9b:1::/48", "NAT64 for local use"),
    ("100::/64", "discard only"),
    ("100:0:0:1::/64", "dummy prefix"),
    ("5f00::/16", "segment routing"),
    ("fc00::/7", "unique local"),
    ("fd00::/8", "unique local"),
    ("fd00:ec2::254/128", "metadata of AWS"),
    ("fd20:ce::254/128", "metadata of Google Cloud"),
    ("fd00:42::42/128", "metadata of Scaleway"),
    ("fd00:c1::a9fe:a9fe/128", "metadata of Oracle Cloud"),
    ("fd00:100::100:200/128", "metadata of Alibaba Cloud"),
    ("fd00:a9fe:a9fe::1/128", "metadata of Linode (Akamai)"),
    ("fe80::/10", "link local"),
    ("fec0::/10", "site local"),
    ("ff00::/8", "multicast"),
];

/// Addresses of metadata services that are inside of wider ranges, and others that people aim at.
const KNOWN: &[&str] = &[
    "100.100.100.200",
    "127.0.0.1",
    "127.0.0.53",
    "169.254.169.254",
    "169.254.170.2",
    "192.0.0.192",
    "192.168.1.1",
    "255.255.255.255",
    "fd00:ec2::254",
    "fd00:42::42",
    "fd00:c1::a9fe:a9fe",
    "fd00:100::100:200",
    "fd00:a9fe:a9fe::1",
    "fd20:ce::254",
    "fe80::a9fe:a9fe",
];

/// A network: its first address, and how many bits it has behind its prefix.
#[derive(Clone, Copy, Debug)]
struct Net {
    first: u128,
    rest: u32,
    what: &'static str,
}

impl Net {
    fn read(text: &str, what: &'static str) -> Self {
        let (address, bits) = text.split_once('/').expect("the table has networks");
        let bits: u32 = bits.parse().expect("the table has lengths");
        match address.parse().expect("the table has addresses") {
            IpAddr::V4(v4) => Self { first: v4.to_bits().into(), rest: 32 - bits, what },
            IpAddr::V6(v6) => Self { first: v6.to_bits(), rest: 128 - bits, what },
        }
    }

    fn holds(self, bits: u128) -> bool {
        (bits ^ self.first).checked_shr(self.rest).unwrap_or(0) == 0
    }

    /// First, second, middle and last.
    fn samples(self) -> [u128; 4] {
        let last = 1_u128.checked_shl(self.rest).map_or(u128::MAX, |size| size - 1);
        [0, 1.min(last), last / 2, last].map(|step| self.first + step)
    }
}

fn nets(table: &[(&str, &'static str)]) -> Vec<Net> {
    table.iter().map(|(net, what)| Net::read(net, what)).collect()
}

static NETS_V4: LazyLock<Vec<Net>> = LazyLock::new(|| nets(V4));
static NETS_V6: LazyLock<Vec<Net>> = LazyLock::new(|| nets(V6));

/// Why nothing may connect to this address; none: it is public.
pub fn why_forbidden(address: IpAddr) -> Option<&'static str> {
    let (table, bits) = match address {
        IpAddr::V4(v4) => (&NETS_V4, v4.to_bits().into()),
        IpAddr::V6(v6) => (&NETS_V6, v6.to_bits()),
    };
    if let IpAddr::V6(v6) = address {
        let [first, _, _, _, id, marker, _, _] = v6.segments();
        if !(0x2000..0x4000).contains(&first) {
            return Some("outside of global unicast");
        }
        if marker == 0x5efe && matches!(id, 0 | 0x0200) {
            return Some("ISATAP");
        }
    }
    table.iter().find(|net| net.holds(bits)).map(|net| net.what)
}

/// Addresses of every forbidden range of IPv4, its ends among them.
pub fn v4_samples() -> Vec<Ipv4Addr> {
    let ranges = NETS_V4.iter().flat_map(|net| net.samples());
    let ranges = ranges.map(|bits| Ipv4Addr::from_bits(u32::try_from(bits).expect("an address of 32 bits")));
    distinct(ranges.chain(known().filter_map(|address| if let IpAddr::V4(v4) = address { Some(v4) } else { None })))
}

/// The same of IPv6.
pub fn v6_samples() -> Vec<Ipv6Addr> {
    let outside = nets(V6_OUTSIDE);
    let ranges = NETS_V6.iter().chain(&outside).flat_map(|net| net.samples()).map(Ipv6Addr::from_bits);
    distinct(ranges.chain(known().filter_map(|address| if let IpAddr::V6(v6) = address { Some(v6) } else { None })))
}

fn known() -> impl Iterator<Item = IpAddr> {
    KNOWN.iter().map(|text| text.parse().expect("the table has addresses"))
}

fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.collect::<std::collections::BTreeSet<T>>().into_iter().collect()
}

/// An IPv4 address inside of IPv6 ones, by every way of tunnelling and translating.
pub fn carriers(v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    let bits = u128::from(v4.to_bits());
    let behind = |prefix: &str| Ipv6Addr::from_bits(prefix.parse::<Ipv6Addr>().expect("a prefix").to_bits() | bits);
    let six_to_four = |host: u128| Ipv6Addr::from_bits(0x2002 << 112 | bits << 80 | host);
    let teredo_client =
        Ipv6Addr::from_bits(0x2001_0000_u128 << 96 | 0x4136_e378 << 64 | 0x8000_63bf << 32 | (bits ^ 0xffff_ffff));
    let teredo_server = Ipv6Addr::from_bits(0x2001_0000_u128 << 96 | bits << 64 | 1);
    vec![
        behind("::ffff:0:0"),
        behind("::"),
        behind("::ffff:0:0:0"),
        behind("64:ff9b::"),
        behind("64:ff9b:1::"),
        six_to_four(1),
        six_to_four(0),
        teredo_client,
        teredo_server,
        behind("2a00:1450::5efe:0:0"),
        behind("2606:4700::200:5efe:0:0"),
        behind("fe80::5efe:0:0"),
    ]
}

/// Addresses that anybody may be called at.
pub const PUBLIC_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(1, 1, 1, 1),
    Ipv4Addr::new(8, 8, 8, 8),
    Ipv4Addr::new(11, 0, 0, 1),
    Ipv4Addr::new(93, 184, 216, 34),
    Ipv4Addr::new(172, 32, 0, 1),
    Ipv4Addr::new(223, 255, 255, 254),
];

/// The same of IPv6.
pub const PUBLIC_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111),
    Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888),
    Ipv6Addr::new(0x2a00, 0x1450, 0x4001, 0x80b, 0, 0, 0, 0x200e),
    Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_and_whatever_carries_one_is_forbidden() {
        for v4 in v4_samples() {
            assert!(why_forbidden(v4.into()).is_some(), "{v4}");
            for v6 in carriers(v4) {
                assert!(why_forbidden(v6.into()).is_some(), "{v6} carries {v4}");
            }
        }
        for v6 in v6_samples() {
            assert!(why_forbidden(v6.into()).is_some(), "{v6}");
        }
        assert!(v4_samples().len() > 60 && v6_samples().len() > 90);
    }

    #[test]
    fn public_addresses_and_the_neighbours_of_ranges_are_not() {
        for v4 in PUBLIC_V4 {
            assert_eq!(why_forbidden(v4.into()), None, "{v4}");
            // Whoever is called at a public address has one: what carries it is forbidden all the same.
            assert!(carriers(v4).into_iter().all(|v6| why_forbidden(v6.into()).is_some()));
        }
        for v6 in PUBLIC_V6 {
            assert_eq!(why_forbidden(v6.into()), None, "{v6}");
        }
        for text in
            ["9.255.255.255", "126.255.255.255", "128.0.0.0", "192.0.1.0", "2001:200::", "2003::", "3fff:1000::"]
        {
            assert_eq!(why_forbidden(text.parse().expect("an address")), None, "{text}");
        }
    }
}
