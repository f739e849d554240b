//! Where callbacks may go: the URL's form, and the addresses ([`super::ranges`]) that nobody outside should be able to make us connect to.
//!
//! Invariant: what is vetted is the address that came out of the lookup, never the text of the URL. Invariant: only an address that
//! [`Egress::vet`] let pass is connected to, and only if all that the same lookup found passed too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;
use thiserror::Error;

use super::ranges::{Kind, special};

// `cargo xtask egress control` alone leaves the guard out, to show that its run would see that: no setting and no feature does it, and nothing
// that is built for release can (docs/adr/0014-the-guard-is-proved-from-outside.md).
#[cfg(all(countersign_guard_off, not(debug_assertions)))]
compile_error!("the guard over callbacks can be left out of debug builds only, for `cargo xtask egress control`");

/// Longest callback URL, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// Longest name of a host and longest part of one, in bytes (RFC 1035).
const NAME_BYTES_MAX: usize = 254;
const LABEL_BYTES_MAX: usize = 63;

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
    /// Not an absolute URL.
    #[error("the callback URL is no absolute URL such as https://merchant.example/callbacks")]
    Malformed,
    /// A blank: where it stands.
    #[error("the callback URL {0} a blank")]
    Blank(&'static str),
    /// A control character, such as the end of a line.
    #[error("the callback URL holds the control character U+{0:04X}")]
    Control(u32),
    /// A host with letters that the look-up of names does not know.
    #[error("the host of the callback URL must be in ASCII: write a name with other letters in its xn-- form")]
    HostLetters,
    /// In path or query, a character that no URL has.
    #[error("the callback URL holds {0:?}, which no URL does: write it percent-encoded, {encoded}", encoded = percent_encoded(*.0))]
    Character(char),
    /// A sign that nothing is encoded by.
    #[error("the callback URL holds a % without two hex digits behind it: write %25 where the sign itself is meant")]
    Percent,
    /// What is never sent.
    #[error(
        "the callback URL holds a #, and what stands behind one is never sent: leave it out, or write %23 where the sign itself is meant"
    )]
    Fragment,
    /// Longer than any URL needs to be.
    #[error("the callback URL has more than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// No name, and no address in its one plain form.
    #[error(
        "the host of the callback URL must be a name, or an address in its plain form such as 203.0.113.7 or [2001:db8::7]"
    )]
    Host,
    /// Digits that are no port, or none where a colon says that there are.
    #[error("the port of the callback URL must be a number from 1 to 65535")]
    PortForm,
    /// Something other than https.
    #[error("the callback URL must begin with https:// (http:// is for development: allow_private_callbacks)")]
    Scheme,
    /// Something other than both, where plain http is allowed.
    #[error("the callback URL must begin with https:// or http://")]
    EitherScheme,
    /// `https://user:password@host/`.
    #[error("the callback URL must carry no user name or password")]
    UserInfo,
    /// A port that is not allowed.
    #[error("port {0} is not allowed for callbacks: it must be 443, or one of the deployment's callback_ports")]
    Port(u16),
    /// The name stands for such an address, maybe beside others, or the literal is one.
    #[error("the address is in a forbidden range: {0}; callbacks go to public addresses")]
    Range(&'static str),
}

/// A callback URL whose form is allowed. Its name is not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Path and query alone, as the request line has them.
    path: Uri,
    authority: HeaderValue,
    host: Arc<str>,
    literal: Option<IpAddr>,
    port: u16,
    is_https: bool,
}

impl Target {
    /// The host as written, without the brackets of an IPv6 literal.
    pub const fn host(&self) -> &Arc<str> {
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
    pub const fn path_and_query(&self) -> &Uri {
        &self.path
    }

    /// What goes into the `Host` header: as written in the URL.
    pub const fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// The address itself, where the host is one. Not vetted.
    pub const fn literal(&self) -> Option<IpAddr> {
        self.literal
    }
}

impl Egress {
    /// Checks a URL that is to be kept. More is asked of it than of one that was kept before: its port is written as a number is, every
    /// character of its path and query must be one that a URL has, and it has no fragment.
    pub fn accept(&self, url: &str) -> Result<(), EgressRefused> {
        let target = self.target(url)?;
        // `:+443` and `:0443` can be read as ports, and would be sent as they are.
        let named = target.authority.as_bytes();
        let is_plain = named.ends_with(format!(":{}", target.port).as_bytes());
        if !is_plain && named.iter().rev().take_while(|byte| **byte != b']').any(|byte| *byte == b':') {
            return Err(EgressRefused::PortForm);
        }
        let (_, path) = parts(url);
        if path.contains('#') {
            return Err(EgressRefused::Fragment);
        }
        if let Some(c) = path.chars().find(|c| !c.is_ascii_graphic() || r#""<>\^`{|}"#.contains(*c)) {
            return Err(EgressRefused::Character(c));
        }
        let is_code = |rest: &str| rest.as_bytes().get(..2).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
        if path.split('%').skip(1).all(is_code) { Ok(()) } else { Err(EgressRefused::Percent) }
    }

    /// Checks a URL's form, and its address where it is a literal. Names are looked up and vetted on each attempt.
    pub fn target(&self, url: &str) -> Result<Target, EgressRefused> {
        if url.len() > URL_BYTES_MAX {
            return Err(EgressRefused::TooLong);
        }
        let uri: Uri = url.parse().map_err(|_| malformed(url))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(EgressRefused::Malformed);
        };
        let is_https = match scheme {
            "https" => true,
            "http" if self.allow_private => false,
            _ if self.allow_private => return Err(EgressRefused::EitherScheme),
            _ => return Err(EgressRefused::Scheme),
        };
        if authority.as_str().contains('@') {
            return Err(EgressRefused::UserInfo);
        }
        let host = host_of(authority.host()).ok_or(EgressRefused::Host)?;
        // `https://host:/` and `https://host:99999/` have a port that is none.
        let has_port_text = authority.as_str().len() > authority.host().len();
        if has_port_text && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(EgressRefused::PortForm);
        }
        let port = authority.port_u16().unwrap_or(if is_https { HTTPS_PORT } else { HTTP_PORT });
        if !(self.allow_private || port == HTTPS_PORT || self.allowed_ports.contains(&port)) {
            return Err(EgressRefused::Port(port));
        }
        let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
            query if query.starts_with('?') => format!("/{query}").parse(),
            path => path.parse(),
        };
        let path = path.map_err(|_| malformed(url))?;
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| EgressRefused::Malformed)?;
        let literal = host.parse().ok();
        let target = Target { path, authority, host: host.into(), literal, port, is_https };
        match literal {
            Some(address) => self.vet(address).map(|()| target),
            None => Ok(target),
        }
    }

    /// Whether this address may be connected to.
    pub fn vet(&self, address: IpAddr) -> Result<(), EgressRefused> {
        if cfg!(countersign_guard_off) {
            return Ok(());
        }
        match special(address) {
            None => Ok(()),
            Some((Kind::Private, _)) if self.allow_private => Ok(()),
            Some((Kind::Private | Kind::Never, what)) => Err(EgressRefused::Range(what)),
        }
    }

    /// What a look-up found, each address once; refused as a whole if one may not be connected to: a name that stands for such an address
    /// beside others has no legitimate use.
    pub fn vet_all(&self, found: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, EgressRefused> {
        let mut vetted = Vec::new();
        for address in found {
            self.vet(address.ip())?;
            if !vetted.contains(&address) {
                vetted.push(address);
            }
        }
        Ok(vetted)
    }
}

/// Whom a URL names, and what it asks of it: what stands between `://` and the path, and what follows.
fn parts(url: &str) -> (&str, &str) {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// What is wrong with a text that no URL can be read from.
fn malformed(url: &str) -> EgressRefused {
    match url.char_indices().find(|(_, c)| c.is_whitespace() || c.is_control()) {
        Some((_, c)) if c.is_control() => EgressRefused::Control(c.into()),
        Some((0, _)) => EgressRefused::Blank("begins with"),
        Some((at, _)) if url[at..].trim().is_empty() => EgressRefused::Blank("ends with"),
        Some(_) => EgressRefused::Blank("holds"),
        None if !parts(url).0.is_ascii() => EgressRefused::HostLetters,
        None => EgressRefused::Malformed,
    }
}

fn percent_encoded(c: char) -> String {
    c.encode_utf8(&mut [0; 4]).bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}"))
}

/// A host as it may stand in a URL: a name, or an address in its one plain form. Other spellings of addresses, such as `0x7f.1`, `2130706433`
/// and `127.1`, are no names: whoever writes one wants a resolver to read it.
fn host_of(written: &str) -> Option<String> {
    if cfg!(countersign_guard_off) {
        return Some(written.trim_matches(['[', ']']).to_owned());
    }
    if let Some(inside) = written.strip_prefix('[') {
        let inside = inside.strip_suffix(']')?;
        return inside.parse::<Ipv6Addr>().is_ok().then(|| inside.to_owned());
    }
    if written.parse::<Ipv4Addr>().is_ok() {
        return Some(written.to_owned());
    }
    let labels: Vec<&str> = written.strip_suffix('.').unwrap_or(written).split('.').collect();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &&str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_plain);
    let is_number = |label: &&str| {
        let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
        label.bytes().all(|byte| byte.is_ascii_digit()) || hex.is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let is_name = written.len() <= NAME_BYTES_MAX
        && labels.iter().all(is_label)
        && labels.last().is_some_and(|last| !is_number(last));
    is_name.then(|| written.to_owned())
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "egress_hostile_tests.rs"]
mod hostile_tests;
