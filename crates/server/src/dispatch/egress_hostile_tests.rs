//! Everything that an outsider may write or answer: addresses of every forbidden range in every spelling, and look-ups that flip.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::super::spellings;
use super::*;
use crate::dispatch::ranges::{Kind, Range, V4, V6};

fn production() -> Egress {
    Egress { allow_private: false, allowed_ports: vec![8443] }
}

fn development() -> Egress {
    Egress { allow_private: true, allowed_ports: Vec::new() }
}

/// First, last and some addresses in between of each range.
fn v4_samples() -> Vec<(Ipv4Addr, Kind)> {
    let samples = V4.iter().flat_map(|row| {
        let (first, rest) = (row.net.to_bits(), u32::MAX.checked_shr(row.bits).unwrap_or(0));
        [0, 1, rest / 3, rest / 2, rest].map(|step| (Ipv4Addr::from_bits(first + step.min(rest)), row.kind))
    });
    samples.collect()
}

fn v6_samples() -> Vec<Ipv6Addr> {
    let samples = V6.iter().flat_map(|row| {
        let (first, rest) = (row.net.to_bits(), u128::MAX.checked_shr(row.bits).unwrap_or(0));
        [0, 1, rest / 3, rest / 2, rest].map(|step| Ipv6Addr::from_bits(first + step.min(rest)))
    });
    samples.collect()
}

/// An IPv4 address inside IPv6 ones, by every way of tunnelling and translating.
fn carried(v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b, c, d] = v4.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    vec![
        v4.to_ipv6_mapped(),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
        Ipv6Addr::new(0x2001, 0, high, low, 0, 0, 0, 1),
        Ipv6Addr::new(0x2a00, 0x1450, 0, 0, 0, 0x5efe, high, low),
        Ipv6Addr::new(0x2a00, 0x1450, 0, 0, 0x0200, 0x5efe, high, low),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x5efe, high, low),
    ]
}

/// An IPv4 address as a host: in every spelling, behind user names, and inside IPv6 ones.
fn v4_hosts(v4: Ipv4Addr) -> Vec<String> {
    let users = ["a@", "a:b@", "merchant.example@", "merchant.example:443@"];
    let mut all = spellings::of_v4(v4);
    all.extend(users.map(|user| format!("{user}{v4}")));
    all.extend(carried(v4).into_iter().map(|v6| format!("[{v6}]")));
    all
}

/// The same of an IPv6 address. A name that stands for it is judged by what it is looked up to.
fn v6_hosts(v6: Ipv6Addr) -> Vec<String> {
    let mut all = spellings::of_v6(v6);
    all.retain(|host| !host.ends_with(".ipv6-literal.net."));
    all.push(format!("user@[{v6}]"));
    all
}

#[test]
fn no_spelling_of_a_forbidden_address_is_taken_as_a_callback_url() {
    let hosts = v4_samples().into_iter().flat_map(|(v4, _)| v4_hosts(v4));
    let hosts: Vec<String> = hosts.chain(v6_samples().into_iter().flat_map(v6_hosts)).collect();
    let mut tried = 0;
    for host in &hosts {
        for scheme in ["https", "HTTPS", "http", "gopher"] {
            for port in ["", ":443", ":8443", ":80", ":0", ":65536", ":"] {
                for path in ["", "/", "/x?y=https://merchant.example/"] {
                    let url = format!("{scheme}://{host}{port}{path}");
                    tried += 1;
                    assert!(production().target(&url).is_err(), "{url:?} is taken");
                }
            }
        }
    }
    assert!(tried > 5_000, "{tried}");
}

#[test]
fn metadata_is_out_of_reach_in_development_too_in_every_spelling() {
    // One of them is loopback in the form of IPv4-compatible addresses, which have not been used since 2006.
    let is_loopback = |v4: Ipv4Addr| carried(v4).contains(&Ipv6Addr::LOCALHOST);
    let never = v4_samples().into_iter().filter(|(v4, kind)| *kind == Kind::Never && !is_loopback(*v4));
    for (v4, _) in never {
        for host in v4_hosts(v4) {
            for scheme in ["http", "https"] {
                assert!(development().target(&format!("{scheme}://{host}/")).is_err(), "{host:?} is taken");
            }
        }
    }
    for text in [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:42::42",
        "fd00:c1::a9fe:a9fe",
        "fd00:100::100:200",
        "fd00:a9fe:a9fe::1",
        "fd20:ce::254",
    ] {
        let address: IpAddr = text.parse().expect("an address");
        assert!(development().vet(address).is_err(), "{text}");
    }
}

#[test]
fn every_row_says_where_it_comes_from_and_none_is_hidden_by_an_earlier_one() {
    for (at, row) in V4.iter().enumerate() {
        assert!(!row.what.is_empty() && !row.source.is_empty(), "{row:?}");
        assert_eq!(row.net.to_bits().checked_shl(row.bits).unwrap_or(0), 0, "{row:?} has bits behind its prefix");
        let hides = |other: &Range<Ipv4Addr>| {
            other.bits <= row.bits && (other.net.to_bits() ^ row.net.to_bits()) >> (32 - other.bits) == 0
        };
        assert!(!V4[..at].iter().any(hides), "{row:?} is never reached");
    }
    for (at, row) in V6.iter().enumerate() {
        assert!(!row.what.is_empty() && !row.source.is_empty(), "{row:?}");
        assert_eq!(row.net.to_bits().checked_shl(row.bits).unwrap_or(0), 0, "{row:?} has bits behind its prefix");
        let hides = |other: &Range<Ipv6Addr>| {
            other.bits <= row.bits && (other.net.to_bits() ^ row.net.to_bits()) >> (128 - other.bits) == 0
        };
        assert!(!V6[..at].iter().any(hides), "{row:?} is never reached");
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    let (four, six) = (v4_samples(), v6_samples());
    prop_oneof![
        3 => any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        3 => any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits >> 3 | 1 << 125).into()),
        1 => (0..four.len()).prop_map(move |n| four[n].0.into()),
        1 => (0..six.len()).prop_map(move |n| six[n].into()),
        1 => any::<u32>().prop_flat_map(|bits| {
            let all = carried(Ipv4Addr::from_bits(bits));
            (0..all.len()).prop_map(move |n| all[n].into())
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_a_look_up_that_found_a_forbidden_address_none_is_used(found in proptest::collection::vec(any_address(), 0..5)) {
        for egress in [production(), development()] {
            let answer = found.iter().map(|address| SocketAddr::new(*address, 443));
            let all_open = found.iter().all(|address| egress.vet(*address).is_ok());
            match egress.vet_all(answer) {
                Ok(vetted) => {
                    prop_assert!(all_open);
                    prop_assert!(vetted.iter().all(|address| found.contains(&address.ip())));
                    prop_assert!(found.iter().all(|address| vetted.iter().any(|v| v.ip() == *address)));
                }
                Err(EgressRefused::Range(_)) => prop_assert!(!all_open),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    /// What carries an IPv4 address is shut whatever that is, and what is open in production is open in development.
    #[test]
    fn no_address_is_reached_by_way_of_another(bits in any::<u32>(), other in any_address()) {
        for v6 in carried(Ipv4Addr::from_bits(bits)) {
            prop_assume!(v6 != Ipv6Addr::LOCALHOST);
            prop_assert!(development().vet(v6.into()).is_err(), "{v6}");
        }
        prop_assert!(production().vet(other).is_err() || development().vet(other).is_ok());
    }
}
