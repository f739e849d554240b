//! Addresses that callbacks do not go to: one table for each family, made of the IANA registries of special-purpose addresses, what other RFCs
//! set aside, and the metadata services of clouds. Beside each row stands where it comes from.
//!
//! The first row that matches decides, so narrower rows stand before the wider ones they are part of.
//! Whatever carries an IPv4 address inside an IPv6 one (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP) is shut as a whole: a
//! merchant's endpoint that is public has an address of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a range is open where private callbacks are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only where private callbacks are allowed.
    Private,
    /// Never.
    Never,
}
use Kind::{Never, Private};

/// One row: addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range<A> {
    pub(super) net: A,
    pub(super) bits: u32,
    pub(super) kind: Kind,
    /// What it is, for people.
    pub(super) what: &'static str,
    /// Which document sets it aside, or whose service it is.
    pub(super) source: &'static str,
}

/// What an address is, where it is not simply public.
pub(super) fn special(address: IpAddr) -> Option<(Kind, &'static str)> {
    match address {
        IpAddr::V4(v4) => {
            let row = V4.iter().find(|row| (v4.to_bits() ^ row.net.to_bits()) >> (32 - row.bits) == 0);
            row.map(|row| (row.kind, row.what))
        }
        IpAddr::V6(v6) => {
            let is_in = |net: Ipv6Addr, bits: u32| (v6.to_bits() ^ net.to_bits()) >> (128 - bits) == 0;
            let row = V6.iter().find(|row| is_in(row.net, row.bits)).map(|row| (row.kind, row.what));
            let isatap = || is_isatap(v6).then_some((Never, "ISATAP tunnel"));
            let outside = || (!is_in(V6_GLOBAL.0, V6_GLOBAL.1)).then_some((Never, "not global unicast"));
            row.or_else(isatap).or_else(outside)
        }
    }
}

/// Global unicast addresses are inside this (RFC 4291, RFC 3587).
const V6_GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// An IPv4 address in the last 32 bits behind any prefix (RFC 5214).
const fn is_isatap(address: Ipv6Addr) -> bool {
    let [_, _, _, _, high, low, _, _] = address.segments();
    low == 0x5efe && (high == 0 || high == 0x0200)
}

const fn v4(octets: [u8; 4], bits: u32, kind: Kind, what: &'static str, source: &'static str) -> Range<Ipv4Addr> {
    let [a, b, c, d] = octets;
    Range { net: Ipv4Addr::new(a, b, c, d), bits, kind, what, source }
}

/// The first four segments are enough for most.
const fn v6(segments: [u16; 4], bits: u32, kind: Kind, what: &'static str, source: &'static str) -> Range<Ipv6Addr> {
    let [a, b, c, d] = segments;
    Range { net: Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), bits, kind, what, source }
}

/// Behind 64 bits of zero.
const fn v6_low(
    segments: [u16; 4],
    bits: u32,
    kind: Kind,
    what: &'static str,
    source: &'static str,
) -> Range<Ipv6Addr> {
    let [e, f, g, h] = segments;
    Range { net: Ipv6Addr::new(0, 0, 0, 0, e, f, g, h), bits, kind, what, source }
}

/// IPv4.
#[rustfmt::skip]
pub(super) const V4: &[Range<Ipv4Addr>] = &[
    v4([100, 100, 100, 200], 32, Never, "metadata", "Alibaba Cloud"),
    v4([168, 63, 129, 16], 32, Never, "metadata", "Azure"),
    v4([192, 0, 0, 192], 32, Never, "metadata", "Oracle Cloud"),
    v4([169, 254, 0, 0], 16, Never, "link-local and metadata", "RFC 3927; metadata of AWS, Azure, Google Cloud and others"),
    v4([0, 0, 0, 0], 8, Never, "this network", "RFC 791, RFC 1122"),
    v4([10, 0, 0, 0], 8, Private, "private", "RFC 1918"),
    v4([100, 64, 0, 0], 10, Private, "shared address space of providers", "RFC 6598"),
    v4([127, 0, 0, 0], 8, Private, "loopback", "RFC 1122"),
    v4([172, 16, 0, 0], 12, Private, "private", "RFC 1918"),
    v4([192, 0, 0, 0], 29, Never, "IPv4 service continuity", "RFC 7335"),
    v4([192, 0, 0, 8], 32, Never, "dummy address", "RFC 7600"),
    v4([192, 0, 0, 9], 32, Never, "port control anycast", "RFC 7723"),
    v4([192, 0, 0, 10], 32, Never, "TURN anycast", "RFC 8155"),
    v4([192, 0, 0, 170], 31, Never, "NAT64 discovery", "RFC 8880, RFC 7050"),
    v4([192, 0, 0, 0], 24, Never, "protocol assignments", "RFC 6890"),
    v4([192, 0, 2, 0], 24, Never, "documentation", "RFC 5737"),
    v4([192, 31, 196, 0], 24, Never, "AS112", "RFC 7535"),
    v4([192, 52, 193, 0], 24, Never, "multicast tunnelling", "RFC 7450"),
    v4([192, 88, 99, 0], 24, Never, "6to4 relay", "RFC 7526, RFC 6751"),
    v4([192, 168, 0, 0], 16, Private, "private", "RFC 1918"),
    v4([192, 175, 48, 0], 24, Never, "AS112", "RFC 7534"),
    v4([198, 18, 0, 0], 15, Never, "benchmarking", "RFC 2544"),
    v4([198, 51, 100, 0], 24, Never, "documentation", "RFC 5737"),
    v4([203, 0, 113, 0], 24, Never, "documentation", "RFC 5737"),
    v4([224, 0, 0, 0], 4, Never, "multicast", "RFC 5771"),
    v4([255, 255, 255, 255], 32, Never, "broadcast", "RFC 919, RFC 8190"),
    v4([240, 0, 0, 0], 4, Never, "reserved", "RFC 1112"),
];

/// IPv6. What is outside of 2000::/3 and not named is shut as well.
#[rustfmt::skip]
pub(super) const V6: &[Range<Ipv6Addr>] = &[
    v6([0xfd00, 0x0ec2, 0, 0], 32, Never, "metadata", "AWS"),
    v6([0xfd00, 0x0042, 0, 0], 32, Never, "metadata", "Scaleway"),
    v6([0xfd00, 0x00c1, 0, 0], 32, Never, "metadata", "Oracle Cloud"),
    v6([0xfd00, 0x0100, 0, 0], 32, Never, "metadata", "Alibaba Cloud"),
    v6([0xfd00, 0xa9fe, 0, 0], 32, Never, "metadata", "Linode (Akamai)"),
    v6([0xfd20, 0x00ce, 0, 0], 32, Never, "metadata", "Google Cloud"),
    v6([0, 0, 0, 0], 128, Never, "unspecified", "RFC 4291"),
    v6_low([0, 0, 0, 1], 128, Private, "loopback", "RFC 4291"),
    v6([0, 0, 0, 0], 96, Never, "IPv4-compatible", "RFC 4291"),
    v6_low([0, 0xffff, 0, 0], 96, Never, "IPv4-mapped", "RFC 4291"),
    v6_low([0xffff, 0, 0, 0], 96, Never, "IPv4-translated", "RFC 2765"),
    v6([0x64, 0xff9b, 0, 0], 96, Never, "NAT64", "RFC 6052"),
    v6([0x64, 0xff9b, 1, 0], 48, Never, "NAT64", "RFC 8215"),
    v6([0x100, 0, 0, 0], 64, Never, "discard", "RFC 6666"),
    v6([0x100, 0, 0, 1], 64, Never, "dummy prefix", "RFC 9780"),
    v6([0x200, 0, 0, 0], 7, Never, "OSI addresses", "RFC 4048"),
    v6([0x2001, 0, 0, 0], 32, Never, "Teredo", "RFC 4380, RFC 8190"),
    v6([0x2001, 2, 0, 0], 48, Never, "benchmarking", "RFC 5180"),
    v6([0x2001, 3, 0, 0], 32, Never, "multicast tunnelling", "RFC 7450"),
    v6([0x2001, 4, 0x112, 0], 48, Never, "AS112", "RFC 7535"),
    v6([0x2001, 0x10, 0, 0], 28, Never, "ORCHID", "RFC 4843"),
    v6([0x2001, 0x20, 0, 0], 28, Never, "ORCHID", "RFC 7343"),
    v6([0x2001, 0x30, 0, 0], 28, Never, "drone identifiers", "RFC 9374"),
    // With the anycasts 2001:1::1 (RFC 7723), 2001:1::2 (RFC 8155) and 2001:1::3 (RFC 9665).
    v6([0x2001, 0, 0, 0], 23, Never, "protocol assignments", "RFC 2928"),
    v6([0x2001, 0xdb8, 0, 0], 32, Never, "documentation", "RFC 3849"),
    v6([0x2002, 0, 0, 0], 16, Never, "6to4", "RFC 3056"),
    v6([0x2620, 0x4f, 0x8000, 0], 48, Never, "AS112", "RFC 7534"),
    v6([0x3ffe, 0, 0, 0], 16, Never, "6bone", "RFC 3701"),
    v6([0x3fff, 0, 0, 0], 20, Never, "documentation", "RFC 9637"),
    v6([0x5f00, 0, 0, 0], 16, Never, "segment routing", "RFC 9602"),
    v6([0xfc00, 0, 0, 0], 7, Private, "unique local", "RFC 4193, RFC 8190"),
    v6([0xfe80, 0, 0, 0], 10, Never, "link-local", "RFC 4291"),
    v6([0xfec0, 0, 0, 0], 10, Never, "site-local", "RFC 3879"),
    v6([0xff00, 0, 0, 0], 8, Never, "multicast", "RFC 4291"),
];
