//! What went wrong on the way, in words that tell one fault from another: for the log, the attempt's row and whoever is asked at night.
//!
//! Nothing here repeats what the endpoint sent: its bytes are the merchant's.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use rustix::io::Errno;

use crate::tls_fault;

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    LookUp,
    Connect,
    Tls,
    Head,
    Body,
}

impl Stage {
    const fn doing(self) -> &'static str {
        match self {
            Self::LookUp => "looking the name up",
            Self::Connect => "connecting",
            Self::Tls => "in the TLS handshake",
            Self::Head => "waiting for the head of the answer",
            Self::Body => "reading the body of the answer",
        }
    }
}

/// The one deadline passed.
pub(super) fn too_late(stage: Stage, deadline: Duration) -> String {
    format!("the deadline of {deadline:?} passed while {}", stage.doing())
}

/// What this side lacks for a connection. No endpoint can help that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lack {
    /// A proxy that works. The least: what keeps a connection from it may be one of the others.
    Proxy,
    /// A place for a look-up: as many as there may be wait for this machine's resolver.
    LookUp,
    /// An address of its own, or a port there that is free towards the other end.
    End,
    /// A file, memory, or a port of the source that is named: connections that are kept take these, too.
    Room,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotConnected {
    pub(super) why: String,
    /// Why an address was not tried, where that is for a lack of ours.
    pub(super) lack: Option<Lack>,
}

impl From<String> for NotConnected {
    fn from(why: String) -> Self {
        Self { why, lack: None }
    }
}

/// No connection to this address. `has_source`: it was to come from an address that the settings name.
pub(super) fn not_connected(address: SocketAddr, has_source: bool, error: &io::Error) -> NotConnected {
    if let Some(lack) = no_end_here(address, has_source, error) {
        let why = if has_source {
            format!(
                "{address}: callback_source_address is none of this machine now, or has no port left for it: {error}"
            )
        } else {
            format!("{address}: this machine has no port left for it: {error}")
        };
        return NotConnected { why, lack: Some(lack) };
    }
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => format!("{address}: the connection was refused; nobody listens there"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => format!("{address}: there is no way to it"),
        ErrorKind::ConnectionReset => format!("{address}: the connection was reset as soon as it was made"),
        ErrorKind::TimedOut => connecting_took_too_long(&address.to_string()),
        _ => format!("{address}: {error}"),
    };
    NotConnected { why, lack: lack_of(error) }
}

/// What is lacking where a connection finds no address or port on this side. Without a named source, IPv6 says the same of a machine that is on no network of
/// that family, for which an endpoint may be at fault that has no other address.
fn no_end_here(address: SocketAddr, has_source: bool, error: &io::Error) -> Option<Lack> {
    match Errno::from_io_error(error) {
        // A named source has each port once for all endpoints together.
        Some(Errno::ADDRINUSE) => Some(Lack::Room),
        Some(Errno::ADDRNOTAVAIL) if has_source || address.is_ipv4() => Some(Lack::End),
        _ => None,
    }
}

/// What is lacking where this process, or this machine, has no file or no memory for it.
pub(super) fn lack_of(error: &io::Error) -> Option<Lack> {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).filter(|errno| lacks.contains(errno)).map(|_| Lack::Room)
}

/// The time for connecting is over.
pub(super) fn connecting_took_too_long(towards: &str) -> String {
    format!("{towards}: connecting took too long")
}

/// What the handshake ended with.
pub(super) fn tls(error: &io::Error) -> String {
    format!("TLS failed: {}", tls_fault::words(error))
}

/// What the endpoint has ended TLS with in place of an answer: by TLS 1.3 the handshake is over for us before the endpoint has seen that there is no
/// certificate of ours.
pub(super) fn alert(error: &hyper::Error) -> Option<String> {
    io_error(error).filter(|io| tls_fault::is_alert(io)).map(tls)
}

/// A connection that gave no answer's head. `has_begun`: a part of it came.
pub(super) fn no_head(error: &hyper::Error, has_begun: bool) -> (Outcome, String) {
    let when = if has_begun { "in the middle of the head of the answer" } else { "before an answer" };
    if error.is_parse_too_large() || io_kind(error) == Some(ErrorKind::FileTooLarge) {
        (Outcome::Unreadable, "the head of the answer is too large".to_owned())
    } else if error.is_parse() {
        (Outcome::Unreadable, "the answer is not HTTP".to_owned())
    } else if is_reset(error) {
        (Outcome::ConnectFailed, format!("the connection was reset {when}"))
    } else {
        (Outcome::ConnectFailed, format!("the connection was closed {when}"))
    }
}

/// An answer whose body did not come to its end.
pub(super) fn no_body(error: &(dyn std::error::Error + Send + Sync + 'static)) -> &'static str {
    match io_kind(error) {
        Some(ErrorKind::ConnectionReset) => "the connection was reset in the middle of the answer",
        Some(ErrorKind::UnexpectedEof) => "the answer broke off before its end",
        Some(_) | None => "the body of the answer is not HTTP",
    }
}

fn is_reset(error: &hyper::Error) -> bool {
    io_kind(error) == Some(ErrorKind::ConnectionReset)
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    io_error(error).map(io::Error::kind)
}

/// What the system, or whoever reads in its words, says at the bottom of a fault.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut inner = Some(error);
    while let Some(cause) = inner {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io);
        }
        inner = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_has_no_end_here_is_not_the_endpoints_fault() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (v4, v6) = (at("192.0.2.1:443"), at("[2001:db8::1]:443"));
        for (address, has_source, errno, lack) in [
            (v4, false, Errno::ADDRNOTAVAIL, Some(Lack::End)),
            (v4, true, Errno::ADDRNOTAVAIL, Some(Lack::End)),
            (v4, true, Errno::ADDRINUSE, Some(Lack::Room)),
            (v6, true, Errno::ADDRNOTAVAIL, Some(Lack::End)),
            (v6, false, Errno::ADDRNOTAVAIL, None),
            (v6, false, Errno::NETUNREACH, None),
            (v4, false, Errno::CONNREFUSED, None),
            (v4, false, Errno::ACCESS, None),
            (v4, false, Errno::MFILE, Some(Lack::Room)),
        ] {
            let found = not_connected(address, has_source, &errno.into());
            assert_eq!(found.lack, lack, "{address} {has_source} {errno}: {}", found.why);
            assert!(found.why.starts_with(&address.to_string()), "{}", found.why);
        }
    }
}
