//! Where callbacks may go: the URL's form, and a table of addresses that nobody outside should be able to make us connect to.
//!
//! Invariant: what is vetted is the address that came out of the lookup, never the text of the URL: `2130706433` and `0x7f.1`
//! are 127.0.0.1 to a resolver. Invariant: only an address that [`Egress::vet`] let pass is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Uri;
use thiserror::Error;

/// Longest callback URL, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// Which callback addresses this deployment allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Allows plain http, any port, loopback and private addresses: for development, the demo and tests.
    /// Metadata addresses stay forbidden.
    pub allow_private: bool,
    /// Ports that are allowed besides 443.
    pub allowed_ports: Vec<u16>,
}

/// Why a callback does not go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EgressRefused {
    /// Not an absolute http(s) URL, or too long.
    #[error("the callback URL is no absolute https URL of at most {URL_BYTES_MAX} bytes")]
    Malformed,
    /// Something other than https.
    #[error("the callback URL must begin with https://")]
    Scheme,
    /// `https://user:password@host/`.
    #[error("the callback URL must carry no user name or password")]
    UserInfo,
    /// A port that is not allowed.
    #[error("port {0} is not allowed for callbacks")]
    Port(u16),
    /// The name stands for this address only, or the literal is this address.
    #[error("the address is in a forbidden range: {0}")]
    Range(&'static str),
}

/// A callback URL whose form is allowed. Its name is not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    uri: Uri,
    host: String,
    port: u16,
    is_https: bool,
}

impl Target {
    /// Reads a URL's host, without the brackets of an IPv6 literal.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, given or implied.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether TLS is spoken.
    pub const fn is_https(&self) -> bool {
        self.is_https
    }

    /// What goes into the request line: path and query only.
    pub fn path_and_query(&self) -> &str {
        self.uri.path_and_query().map_or("/", |p| p.as_str())
    }

    /// What goes into the `Host` header: as written in the URL.
    pub fn authority(&self) -> &str {
        self.uri.authority().map_or("", |a| a.as_str())
    }

    /// The address itself, where the host is one. Not vetted.
    pub fn literal(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl Egress {
    /// Checks a URL's form, and its address where it is a literal. Names are looked up and vetted on each attempt.
    pub fn target(&self, url: &str) -> Result<Target, EgressRefused> {
        if url.len() > URL_BYTES_MAX {
            return Err(EgressRefused::Malformed);
        }
        let uri: Uri = url.parse().map_err(|_| EgressRefused::Malformed)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(EgressRefused::Malformed);
        };
        let is_https = match scheme {
            "https" => true,
            "http" if self.allow_private => false,
            _ => return Err(EgressRefused::Scheme),
        };
        if authority.as_str().contains('@') {
            return Err(EgressRefused::UserInfo);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        // `https://host:/` and `https://host:99999/` have a port that is none.
        let has_port_text = authority.as_str().len() > authority.host().len();
        if host.is_empty() || (has_port_text && authority.port_u16().is_none()) {
            return Err(EgressRefused::Malformed);
        }
        let port = authority.port_u16().unwrap_or(if is_https { HTTPS_PORT } else { HTTP_PORT });
        if port == 0 || !(self.allow_private || port == HTTPS_PORT || self.allowed_ports.contains(&port)) {
            return Err(EgressRefused::Port(port));
        }
        let target = Target { uri, host, port, is_https };
        match target.literal() {
            Some(address) => self.vet(address).map(|()| target),
            None => Ok(target),
        }
    }

    /// Whether this address may be connected to.
    pub fn vet(&self, address: IpAddr) -> Result<(), EgressRefused> {
        let range = match address {
            IpAddr::V4(v4) => range_of_v4(v4),
            IpAddr::V6(v6) => range_of_v6(v6),
        };
        match range {
            None => Ok(()),
            Some((Kind::Private, _)) if self.allow_private => Ok(()),
            Some((Kind::Private | Kind::Never, what)) => Err(EgressRefused::Range(what)),
        }
    }
}

/// Whether a range is open where private callbacks are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Only where private callbacks are allowed.
    Private,
    /// Never.
    Never,
}

/// Special-purpose IPv4 ranges (IANA registry, and metadata services of clouds). The first that matches decides.
const V4: &[(Ipv4Addr, u32, Kind, &str)] = &[
    (Ipv4Addr::new(100, 100, 100, 200), 32, Kind::Never, "metadata"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Kind::Never, "metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Kind::Never, "link-local and metadata"),
    (Ipv4Addr::UNSPECIFIED, 8, Kind::Never, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Kind::Private, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Kind::Private, "shared address space of providers"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Kind::Private, "loopback"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Kind::Private, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Kind::Never, "protocol assignments and metadata"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Kind::Never, "documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, Kind::Never, "AS112"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, Kind::Never, "multicast tunnelling"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Kind::Never, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Kind::Private, "private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, Kind::Never, "AS112"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Kind::Never, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Kind::Never, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Kind::Never, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Kind::Never, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Kind::Never, "reserved and broadcast"),
];

/// Special-purpose IPv6 ranges. The first that matches decides; what is outside 2000::/3 and not named is refused too.
const V6: &[(Ipv6Addr, u32, Kind, &str)] = &[
    (Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0), 32, Kind::Never, "metadata"),
    (Ipv6Addr::new(0xfd00, 0x0042, 0, 0, 0, 0, 0, 0), 32, Kind::Never, "metadata"),
    (Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0), 32, Kind::Never, "metadata"),
    (Ipv6Addr::UNSPECIFIED, 128, Kind::Never, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, Kind::Private, "loopback"),
    (Ipv6Addr::UNSPECIFIED, 96, Kind::Never, "IPv4-compatible"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Kind::Never, "IPv4-mapped"),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Kind::Never, "IPv4-translated"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, Kind::Never, "NAT64"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Kind::Never, "NAT64"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, Kind::Never, "discard"),
    (Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 0), 64, Kind::Never, "dummy"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Kind::Never, "Teredo"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Kind::Never, "protocol assignments"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Kind::Never, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Kind::Never, "6to4"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, Kind::Never, "AS112"),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, Kind::Never, "6bone"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Kind::Never, "documentation"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, Kind::Never, "segment routing"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Kind::Private, "unique local"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Kind::Never, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Kind::Never, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Kind::Never, "multicast"),
];

/// Global unicast addresses are inside this.
const V6_GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

fn range_of_v4(address: Ipv4Addr) -> Option<(Kind, &'static str)> {
    let is_in = |net: Ipv4Addr, bits: u32| (address.to_bits() ^ net.to_bits()) >> (32 - bits) == 0;
    V4.iter().find(|(net, bits, ..)| is_in(*net, *bits)).map(|(_, _, kind, what)| (*kind, *what))
}

fn range_of_v6(address: Ipv6Addr) -> Option<(Kind, &'static str)> {
    let is_in = |net: Ipv6Addr, bits: u32| (address.to_bits() ^ net.to_bits()) >> (128 - bits) == 0;
    let named = V6.iter().find(|(net, bits, ..)| is_in(*net, *bits)).map(|(_, _, kind, what)| (*kind, *what));
    let outside = !is_in(V6_GLOBAL.0, V6_GLOBAL.1);
    named.or(outside.then_some((Kind::Never, "not global unicast")))
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
