//! What a process connected to, seen from two sides that know nothing of each other: its system calls, and whoever accepted. And what may be
//! among it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};

use super::special::why_forbidden;
use crate::strace::trace::parse;

/// An address that a socket was told to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Not a socket of datagrams: a connection is made at once.
    pub is_stream: bool,
    /// To where, as it stood in the call.
    pub address: SocketAddr,
}

/// Every call of `connect` with an Internet address in what strace has written (with `-tt -yy`), failed ones and those cut off as well.
pub fn connects(trace: &str) -> Result<Vec<Connect>> {
    let calls = parse(trace).into_iter().filter(|call| call.name == "connect");
    let calls = calls.filter(|call| call.arguments.contains("sa_family=AF_INET"));
    calls
        .map(|call| connect(&call.arguments).with_context(|| format!("a call of connect that cannot be read: {call}")))
        .collect()
}

/// `9<TCP:[77]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("8.8.8.8")}, 16`. A socket that says nothing of its kind is a stream.
fn connect(arguments: &str) -> Option<Connect> {
    let between =
        |before: &str, after: &str| arguments.split_once(before)?.1.split_once(after).map(|(inside, _)| inside);
    let (port, ip) = if arguments.contains("sa_family=AF_INET6,") {
        (between("sin6_port=htons(", ")")?, between("inet_pton(AF_INET6, \"", "\"")?)
    } else {
        (between("sin_port=htons(", ")")?, between("inet_addr(\"", "\"")?)
    };
    let ip: IpAddr = ip.parse().ok()?;
    let is_datagram = ["<UDP:", "<UDPv6:"].iter().any(|label| arguments.contains(label));
    Some(Connect { is_stream: !is_datagram, address: SocketAddr::new(ip, port.parse().ok()?) })
}

/// What was seen of one process.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By its system calls.
    pub connects: Vec<Connect>,
    /// By the listeners: their own end of each connection.
    pub accepted: Vec<SocketAddr>,
}

/// How much of it there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections begun, but for those to the name server.
    pub streams: usize,
    /// To how many addresses.
    pub addresses: usize,
    /// Questions to the name server, by datagram or connection.
    pub questions: usize,
    /// Sockets of datagrams that were told an address and no port: so the C library finds out how it would reach one. Nothing can be sent by them.
    pub soundings: usize,
}

impl Seen {
    /// Forbidden addresses that were connected to, each with who saw it.
    pub fn offences(&self, resolver: SocketAddr) -> Vec<String> {
        let called = self.connects.iter().filter(|call| call.address != resolver).filter_map(|call| {
            let Connect { is_stream, address } = *call;
            if !is_stream {
                return (address.port() != 0).then(|| format!("system call: datagrams to {address}"));
            }
            why_forbidden(address.ip()).map(|why| format!("system call: connect to {address} ({why})"))
        });
        let accepted = self.accepted.iter().filter_map(|address| {
            let ip = address.ip().to_canonical();
            why_forbidden(ip).map(|why| format!("listener: a connection to {ip} port {} ({why})", address.port()))
        });
        called.chain(accepted).collect()
    }

    /// How much there is.
    pub fn counts(&self, resolver: SocketAddr) -> Counts {
        let mut counts = Counts::default();
        let mut addresses = std::collections::HashSet::new();
        for Connect { is_stream, address } in &self.connects {
            if *address == resolver {
                counts.questions += 1;
            } else if *is_stream {
                counts.streams += 1;
                addresses.insert(address.ip());
            } else {
                counts.soundings += 1;
            }
        }
        counts.addresses = addresses.len();
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 53)), 53);

    fn line(label: &str, address: &str) -> String {
        let address: SocketAddr = address.parse().expect("an address");
        let (ip, port) = (address.ip(), address.port());
        let text = match ip {
            IpAddr::V4(_) => format!("{{sa_family=AF_INET, sin_port=htons({port}), sin_addr=inet_addr(\"{ip}\")}}, 16"),
            IpAddr::V6(_) => format!(
                "{{sa_family=AF_INET6, sin6_port=htons({port}), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, \"{ip}\", &sin6_addr), sin6_scope_id=0}}, 28"
            ),
        };
        format!("7 10:00:00.000001 connect(9<{label}:[77]>, {text}) = -1 EINPROGRESS (Operation now in progress)\n")
    }

    fn seen(lines: &[String], accepted: &[&str]) -> Seen {
        let accepted = accepted.iter().map(|text| text.parse().expect("an address")).collect();
        Seen { connects: connects(&lines.concat()).expect("it can be read"), accepted }
    }

    #[test]
    fn what_is_public_the_name_server_and_soundings_are_no_offence() {
        let lines = [
            line("TCP", "8.8.8.8:443"),
            line("TCPv6", "[2606:4700::1]:8443"),
            line("UDP", "127.0.0.53:53"),
            line("TCP", "127.0.0.53:53"),
            line("UDP", "10.0.0.1:0"),
            "7 10:00:00.1 connect(9<UNIX-STREAM:[8]>, {sa_family=AF_UNIX, sun_path=\"/x\"}, 110) = 0\n".to_owned(),
            "7 10:00:00.1 connect(9<UDP:[8]>, {sa_family=AF_UNSPEC, sa_data=\"\\0\"}, 16) = 0\n".to_owned(),
        ];
        let seen = seen(&lines, &["[::ffff:8.8.8.8]:443", "[2606:4700::1]:443"]);
        assert_eq!(seen.offences(RESOLVER), Vec::<String>::new());
        assert_eq!(seen.counts(RESOLVER), Counts { streams: 2, addresses: 2, questions: 2, soundings: 1 });
    }

    #[test]
    fn each_side_alone_finds_a_forbidden_address_and_a_call_cut_off_counts() {
        for address in
            ["10.0.0.1:443", "127.0.0.53:443", "[::ffff:8.8.8.8]:443", "[64:ff9b::808:808]:443", "[fd00::1]:80"]
        {
            for label in ["TCP", "TCPv6", "socket"] {
                assert_eq!(seen(&[line(label, address)], &[]).offences(RESOLVER).len(), 1, "{label} {address}");
            }
        }
        assert_eq!(seen(&[], &["[::ffff:169.254.169.254]:80", "[::1]:443"]).offences(RESOLVER).len(), 2);
        assert_eq!(seen(&[line("UDP", "8.8.8.8:53")], &[]).offences(RESOLVER).len(), 1, "another name server");
        let cut =
            line("TCP", "10.0.0.1:443").replace(") = -1 EINPROGRESS (Operation now in progress)", " <unfinished ...>");
        let rest = "7 10:00:00.2 <... connect resumed>) = 0\n".to_owned();
        assert_eq!(seen(&[cut, rest], &[]).offences(RESOLVER).len(), 1);
    }

    #[test]
    fn a_call_that_cannot_be_read_is_an_error() {
        assert!(connects("7 10:00:00.1 connect(9<TCP:[8]>, {sa_family=AF_INET, what=1}, 16) = 0\n").is_err());
    }
}
