//! How connections of callbacks leave this machine: from which of its addresses, and through which proxy, where there is one.
//!
//! Invariant: the proxy is told the vetted address, never the name, so it has nothing to look up. The proxy's own address is the operator's
//! choice, and not vetted.
//! Invariant: what the proxy wants to know of us (name and password) goes into its request, and into no message.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::faults::{self, Lack, NotConnected};
use super::look_ups::LookUps;
use crate::visible::misleads;

/// Longest head of a proxy's answer, in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Longest name and password together, in bytes.
const CREDENTIALS_BYTES_MAX: usize = 1_024;

/// Why a proxy cannot be used. What was written is not repeated: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyRefused {
    /// Not `http://host:port`.
    #[error("it must be http://HOST:PORT, with nothing behind the port")]
    Form,
    /// `http://user:password@host:port`.
    #[error("it must hold no user name or password: they belong into callback_proxy_credentials_file")]
    UserInfo,
    /// No colon, too long, or signs that cannot be sent.
    #[error(
        "the credentials must be one line of printable signs, NAME:PASSWORD, of at most {CREDENTIALS_BYTES_MAX} bytes"
    )]
    Credentials,
    /// A byte order mark, a space of no width, or the like.
    #[error(
        "the credentials have a character that is not seen, such as a byte order mark (U+FEFF) before the name: write them without it"
    )]
    Unseen,
}

/// An HTTP proxy that takes `CONNECT`.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<Zeroizing<String>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl fmt::Display for Proxy {
    /// `host:port`, as a URL has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Proxy {
    /// Reads `http://host:port`.
    pub fn parse(url: &str) -> Result<Self, ProxyRefused> {
        let uri: Uri = url.parse().map_err(|_| ProxyRefused::Form)?;
        let authority = uri.authority().ok_or(ProxyRefused::Form)?;
        if authority.as_str().contains('@') {
            return Err(ProxyRefused::UserInfo);
        }
        let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/") && !url.contains(['?', '#']);
        let port = authority.port_u16().filter(|port| *port > 0).ok_or(ProxyRefused::Form)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if uri.scheme_str() != Some("http") || host.is_empty() || !is_bare {
            return Err(ProxyRefused::Form);
        }
        Ok(Self { host, port, authorization: None })
    }

    /// The same with a name and a password, `name:password`.
    pub fn with_credentials(self, line: &str) -> Result<Self, ProxyRefused> {
        let is_line = line.contains(':') && line.len() <= CREDENTIALS_BYTES_MAX && !line.contains(char::is_control);
        if !is_line {
            return Err(ProxyRefused::Credentials);
        }
        // An editor's byte order mark, or what was copied along: the proxy would refuse a name that looks right.
        if line.contains(misleads) {
            return Err(ProxyRefused::Unseen);
        }
        let encoded = Zeroizing::new(STANDARD.encode(line));
        Ok(Self { authorization: Some(Zeroizing::new(format!("Basic {}", *encoded))), ..self })
    }

    /// Asks for a tunnel to this address. What it makes of the address is the endpoint's; what is wrong between it and us is ours.
    async fn tunnel(&self, mut tcp: TcpStream, address: SocketAddr) -> Result<TcpStream, NotConnected> {
        // Some proxies refuse a single destination in this way: whose fault it is nobody knows.
        let broken =
            |error: io::Error| NotConnected::from(format!("the proxy {self} broke the connection off: {error}"));
        let mut request = Zeroizing::new(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n"));
        if let Some(authorization) = &self.authorization {
            request.push_str("Proxy-Authorization: ");
            request.push_str(authorization);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        tcp.write_all(request.as_bytes()).await.map_err(broken)?;
        let mut head = Vec::with_capacity(512);
        let end = loop {
            if let Some(end) = head.windows(4).position(|signs| signs == b"\r\n\r\n") {
                break end + 4;
            }
            if head.len() > HEAD_BYTES_MAX {
                return Err(self.lacking(format_args!("gave an answer whose head is too large")));
            }
            if tcp.read_buf(&mut head).await.map_err(broken)? == 0 {
                let begins = head.len().min(HTTP.len());
                return Err(match &head[..begins] {
                    [] => format!("the proxy {self} closed the connection without an answer").into(),
                    begun if HTTP.starts_with(begun) => {
                        format!("the proxy {self} closed the connection within its answer").into()
                    }
                    _ => self.lacking(format_args!("gave an answer that is not HTTP")),
                });
            }
        };
        match status(&head) {
            Some(200..=299) if head.len() == end => Ok(tcp),
            // An endpoint that speaks before it is spoken to looks like this, too.
            Some(200..=299) => Err(format!("the proxy {self} sent more than the answer to CONNECT").into()),
            Some(407) if self.authorization.is_some() => {
                Err(self.lacking(format_args!("does not take our credentials (407)")))
            }
            Some(407) => Err(self.lacking(format_args!("wants credentials (407)"))),
            Some(status @ (405 | 501)) => Err(self.lacking(format_args!("knows no CONNECT: it answered {status}"))),
            Some(status) => {
                Err(format!("the proxy {self} makes no connection to {address}: it answered {status}").into())
            }
            None => Err(self.lacking(format_args!("gave an answer that is not HTTP"))),
        }
    }

    /// What no endpoint can help.
    fn lacking(&self, does: fmt::Arguments<'_>) -> NotConnected {
        NotConnected { why: format!("the proxy {self} {does}"), lack: Some(Lack::Proxy) }
    }
}

/// How every answer begins.
const HTTP: &[u8] = b"HTTP/1.";

/// The status of a head that begins `HTTP/1.x 200`.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(HTTP)?;
    let digits = rest.get(2..5).filter(|_| rest[0].is_ascii_digit() && rest[1] == b' ')?;
    let is_end = rest.get(5).is_some_and(|sign| matches!(sign, b' ' | b'\r'));
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|status| is_end && *status >= 100)
}

/// Addresses of this machine that connections come from, by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// For IPv4.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6.
    pub v6: Option<Ipv6Addr>,
}

impl Sources {
    /// At most one of each family; none: there are two of one, or one that is none of a machine.
    pub fn of(addresses: &[IpAddr]) -> Option<Self> {
        let mut sources = Self::default();
        for address in addresses {
            let taken = match address.to_canonical() {
                IpAddr::V4(v4) => sources.v4.replace(v4).is_some() || v4.is_unspecified() || v4.is_multicast(),
                IpAddr::V6(v6) => sources.v6.replace(v6).is_some() || v6.is_unspecified() || v6.is_multicast(),
            };
            if taken {
                return None;
            }
        }
        Some(sources)
    }

    /// All of them.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    /// Connects to an address from ours of its family. Where only the other family has one, nothing goes out from an address that nobody chose.
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        match self.towards(address) {
            Some(source) => {
                // A port that still waits for late packets of an earlier connection may go to another address.
                socket.set_reuseaddr(true)?;
                socket.bind(SocketAddr::new(source, 0))?;
            }
            None if self.addresses().next().is_some() => {
                return Err(io::Error::other("callback_source_address has no address of its family"));
            }
            None => {}
        }
        socket.connect(address).await
    }

    /// Ours of the family of this address.
    fn towards(&self, address: SocketAddr) -> Option<IpAddr> {
        if address.is_ipv4() { self.v4.map(IpAddr::V4) } else { self.v6.map(IpAddr::V6) }
    }

    fn not_connected(&self, address: SocketAddr, error: &io::Error) -> NotConnected {
        faults::not_connected(address, self.towards(address).is_some(), error)
    }
}

/// The way out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Through it, where there is one.
    pub proxy: Option<Proxy>,
    /// From there, to endpoints or to the proxy.
    pub sources: Sources,
}

impl Route {
    /// A connection whose other end is this address, which was vetted; why not, in words that name who is at fault.
    pub(super) async fn connect(
        &self,
        address: SocketAddr,
        end: Instant,
        look_ups: &LookUps,
        last: &LastAnswered,
    ) -> Result<TcpStream, NotConnected> {
        let Some(proxy) = &self.proxy else {
            let connected = timeout_at(end, self.sources.connect(address)).await;
            let connected = connected.map_err(|_| faults::connecting_took_too_long(&address.to_string()))?;
            return connected.map_err(|error| self.sources.not_connected(address, &error));
        };
        let (tcp, at) = self.reach(proxy, end, look_ups, last).await?;
        let request = TunnelRequest { last, at, has_answered: false };
        // A proxy that hangs here may wait for the endpoint.
        let tunnel = timeout_at(end, proxy.tunnel(tcp, address)).await;
        let tunnel =
            tunnel.map_err(|_| faults::connecting_took_too_long(&format!("{address} through the proxy {proxy}")))?;
        // Also where it refuses: that may be the endpoint's fault.
        request.answered();
        tunnel
    }

    /// The first address of the proxy that takes a connection, beginning with the one that answered last. Each has an equal part of what is left: one that is
    /// dead does not keep all callbacks from the others.
    async fn reach(
        &self,
        proxy: &Proxy,
        end: Instant,
        look_ups: &LookUps,
        last: &LastAnswered,
    ) -> Result<(TcpStream, SocketAddr), NotConnected> {
        let found = timeout_at(end, look_ups.look_up_without_limit(&proxy.host, proxy.port)).await;
        let found = found.map_err(|_| proxy.lacking(format_args!("cannot be looked up: it took too long")))?;
        let mut found = found.map_err(|error| {
            let unfound = proxy.lacking(format_args!("cannot be looked up: {error}"));
            NotConnected { lack: faults::lack_of(&error).or(unfound.lack), ..unfound }
        })?;
        if let Some(at) = found.iter().position(|address| last.is(*address)) {
            found[..=at].rotate_right(1);
        }
        self.reach_one_of(&found, proxy, end).await
    }

    /// The same of these addresses, in their order.
    async fn reach_one_of(
        &self,
        found: &[SocketAddr],
        proxy: &Proxy,
        end: Instant,
    ) -> Result<(TcpStream, SocketAddr), NotConnected> {
        let mut last_fault = proxy.lacking(format_args!("has no address"));
        for (address, still) in found.iter().zip((1..=found.len()).rev()) {
            let now = Instant::now();
            let part = end.saturating_duration_since(now) / u32::try_from(still).unwrap_or(1);
            let fault = match timeout_at(now + part, self.sources.connect(*address)).await {
                Ok(Ok(tcp)) => return Ok((tcp, *address)),
                Ok(Err(error)) => self.sources.not_connected(*address, &error),
                Err(_) => faults::connecting_took_too_long(&address.to_string()).into(),
            };
            let lack = fault.lack.or(Some(Lack::Proxy));
            if lack >= last_fault.lack {
                last_fault = NotConnected { why: format!("the proxy {}", fault.why), lack };
            }
        }
        Err(last_fault)
    }
}

/// Which address of the proxy answered last; none where it has been asked in vain since.
#[derive(Debug, Default)]
pub(super) struct LastAnswered(Mutex<Option<SocketAddr>>);

impl LastAnswered {
    fn is(&self, address: SocketAddr) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) == Some(address)
    }

    fn set(&self, address: Option<SocketAddr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

/// An address of the proxy that is asked for a tunnel. Where this is cut off, since no answer comes, it is no longer the one to begin with.
struct TunnelRequest<'l> {
    last: &'l LastAnswered,
    at: SocketAddr,
    has_answered: bool,
}

impl TunnelRequest<'_> {
    fn answered(mut self) {
        self.last.set(Some(self.at));
        self.has_answered = true;
    }
}

impl Drop for TunnelRequest<'_> {
    fn drop(&mut self) {
        if !self.has_answered && self.last.is(self.at) {
            self.last.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_proxy_is_a_host_and_a_port_and_shows_no_password() {
        for (url, shown) in [
            ("http://proxy.example:3128", "proxy.example:3128"),
            ("http://10.0.0.1:8080/", "10.0.0.1:8080"),
            ("http://[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(Proxy::parse(url).expect("a proxy").to_string(), shown);
        }
        for url in [
            "",
            "proxy.example",
            "proxy.example:3128",
            "https://proxy.example:3128",
            "socks5://proxy.example:1080",
            "http://proxy.example",
            "http://:3128",
            "http://proxy.example:0",
            "http://proxy.example:3128/x",
            "http://proxy.example:3128/?a",
            "http://proxy.example:3128#a",
            "http://proxy.example:99999",
        ] {
            assert_eq!(Proxy::parse(url), Err(ProxyRefused::Form), "{url}");
        }
        assert_eq!(Proxy::parse("http://me:canary@proxy.example:3128"), Err(ProxyRefused::UserInfo));
        let proxy = Proxy::parse("http://proxy.example:3128").expect("a proxy");
        let with = proxy.clone().with_credentials("me:canary").expect("credentials");
        assert_eq!(with.authorization.as_ref().map(|text| text.as_str()), Some("Basic bWU6Y2FuYXJ5"));
        assert!(!format!("{with:?} {with}").contains("canary") && !format!("{with:?} {with}").contains("bWU6"));
        for line in ["", "canary", "me:can\nary", "me:\u{7f}", &format!("me:{}", "a".repeat(CREDENTIALS_BYTES_MAX))] {
            assert_eq!(proxy.clone().with_credentials(line), Err(ProxyRefused::Credentials), "{line:?}");
        }
        for line in ["\u{feff}me:canary", "me:\u{200b}canary", "me:can\u{ad}ary"] {
            assert_eq!(proxy.clone().with_credentials(line), Err(ProxyRefused::Unseen), "{line:?}");
        }
        assert!(proxy.with_credentials("m\u{fc}ller:p\u{e4}ss w\u{f6}rd").is_ok(), "letters of any language are seen");
    }

    /// A listener whose queue is full: who comes now waits.
    async fn hangs() -> (SocketAddr, Vec<TcpStream>, tokio::net::TcpListener) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("binds");
        let listener = socket.listen(1).expect("listens");
        let address = listener.local_addr().expect("has one");
        let mut waiting = Vec::new();
        // Twice in a row: one alone may have been the machine.
        let mut in_vain = 0;
        while in_vain < 2 {
            match timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
                Ok(stream) => waiting.push(stream.expect("connects")),
                Err(_) => in_vain += 1,
            }
        }
        (address, waiting, listener)
    }

    #[tokio::test]
    async fn an_address_of_the_proxy_that_hangs_leaves_the_others_their_time_and_is_asked_last_from_then_on() {
        let (dead, _waiting, _listener) = hangs().await;
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let works = proxy.local_addr().expect("has one");
        let names = LookUps::by(move |_, _| Ok(vec![dead, works]));
        let route = Route { proxy: Proxy::parse("http://proxy.example:3128").ok(), ..Route::default() };
        let named = route.proxy.as_ref().expect("a proxy");
        let last = LastAnswered::default();
        let within = |ms| Instant::now() + Duration::from_millis(ms);
        // The one that hangs has half of it.
        let tcp = route.reach(named, within(6_000), &names, &last).await.expect("the second one takes it");
        assert_eq!((tcp.0.peer_addr().expect("has one"), tcp.1), (works, works));
        last.set(Some(tcp.1));
        // Its share would be half an hour.
        let again = route.reach(named, within(3_600_000), &names, &last);
        let tcp = timeout(Duration::from_secs(60), again).await.expect("at once").expect("takes it");
        assert_eq!(tcp.1, works);
        let request = |at| TunnelRequest { last: &last, at, has_answered: false };
        drop(request(dead));
        assert!(last.is(works), "another one's fault");
        drop(request(works));
        assert!(!last.is(works), "it did not answer");
        request(works).answered();
        assert!(last.is(works));

        let why = route.reach_one_of(&[dead], named, within(300)).await.expect_err("hangs");
        let wanted = format!("the proxy {dead}: connecting took too long");
        assert_eq!(why, NotConnected { why: wanted, lack: Some(Lack::Proxy) });
    }

    #[test]
    fn a_status_is_read_from_a_line_of_http_only() {
        for (head, wanted) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Some(200)),
            ("HTTP/1.0 200\r\n\r\n", Some(200)),
            ("HTTP/1.1 407 Who?\r\n\r\n", Some(407)),
            ("HTTP/1.1 2000 OK\r\n\r\n", None),
            ("HTTP/1.1 020 OK\r\n\r\n", None),
            ("HTTP/2 200\r\n\r\n", None),
            ("SSH-2.0-x\r\n\r\n", None),
            ("\r\n\r\n", None),
        ] {
            assert_eq!(status(head.as_bytes()), wanted, "{head:?}");
        }
    }

    #[test]
    fn sources_are_one_of_each_family() {
        let of = |texts: &[&str]| {
            Sources::of(&texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Some(Sources::default()));
        assert_eq!(of(&["127.0.0.5", "::1"]).expect("one of each").addresses().count(), 2);
        assert_eq!(of(&["::ffff:127.0.0.5"]).expect("one").v4, Some(Ipv4Addr::new(127, 0, 0, 5)));
        for bad in
            [&["127.0.0.5", "127.0.0.6"][..], &["::1", "fd00::1"], &["0.0.0.0"], &["::"], &["224.0.0.1"], &["ff02::1"]]
        {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
