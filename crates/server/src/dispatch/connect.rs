//! Connections to vetted addresses, straight or through the operator's proxy ([`super::route`]).
//!
//! Invariant: a connection is made to an address that was looked up and vetted in this very attempt, and kept for reuse under
//! (scheme, name, port, address): so a name that moves is looked up, vetted and certified anew.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use foldhash::HashMap;
use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::egress::{Egress, EgressRefused, Target};
use super::faults::{self, Lack, NotConnected, Stage};
use super::idle::{Answered, IdleConnections, IdleKey, Taken};
use super::look_ups::{LookUps, Unresolved};
use super::route::{LastAnswered, Route};
use super::settings::{DispatchError, DispatchSettings};
use super::stopwatch::Stopwatch;
use super::tape::{HEARD_BYTES_MAX, Tape, Taped};

/// Addresses of one name that are tried, at most.
const ADDRESSES_TRIED_MAX: usize = 4;
/// So much earlier than it says that it closes idle connections, an endpoint is not asked on one any more.
const IDLE_MARGIN: Duration = Duration::from_secs(1);
/// URLs that are remembered as checked.
const TARGETS_MAX: usize = 4_096;

/// Where an attempt failed before its request was sent: the outcome, and words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreached {
    pub(super) outcome: Outcome,
    pub(super) detail: String,
    /// Where an address was not tried, or a name not looked up, for a lack of ours: which.
    pub(super) lack: Option<Lack>,
}

fn unreached(outcome: Outcome, detail: impl Into<String>) -> Unreached {
    Unreached { outcome, detail: detail.into(), lack: None }
}

/// The work of a connection. It goes on while somebody who wants something of it waits in [`Works::until`]: a task of its own would be
/// woken, and wake the attempt, once for each thing that passes. What happens while nobody waits is seen by the next who does.
pub(super) struct Works(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl std::fmt::Debug for Works {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Works").field(&self.0.is_some()).finish()
    }
}

impl Works {
    /// Waits for what the connection brings about.
    pub(super) async fn until<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        poll_fn(|cx| {
            // It says first what it wants, then the connection does it.
            if let Poll::Ready(came) = wanted.as_mut().poll(cx) {
                return Poll::Ready(came);
            }
            self.go_on(cx);
            wanted.as_mut().poll(cx)
        })
        .await
    }

    /// False where the connection has ended.
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        if self.0.as_mut().is_some_and(|works| works.as_mut().poll(cx).is_ready()) {
            self.0 = None;
        }
        self.0.is_some()
    }

    /// Whether the connection is still there, as far as that is known by now.
    fn is_there(&mut self) -> bool {
        self.go_on(&mut Context::from_waker(Waker::noop()))
    }
}

/// An open connection, and where to put it back.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    pub(super) works: Works,
    /// The address that it goes to, as a text.
    pub(super) address: Arc<str>,
    /// What goes over it.
    pub(super) tape: Arc<Tape>,
    key: IdleKey,
    /// Whether it was used for a request before.
    is_used: bool,
}

/// Connects, and keeps connections for a short while.
pub(super) struct Connector {
    egress: Egress,
    route: Route,
    /// Where the proxy answered last.
    proxy_at: LastAnswered,
    look_ups: LookUps,
    connect_timeout: Duration,
    tls: TlsConnector,
    idle_max: Duration,
    idle: Mutex<IdleConnections<OpenConnection>>,
    /// URLs whose form was checked. What may be in them follows from the settings alone.
    targets: Mutex<HashMap<Box<str>, Arc<Target>>>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("egress", &self.egress).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads the machine's roots, once.
    pub(super) fn new(settings: &DispatchSettings) -> Result<Self, DispatchError> {
        let tls = TlsConnector::from(Arc::new(client_config(settings)?));
        Ok(Self {
            egress: settings.egress(),
            route: settings.route.clone(),
            proxy_at: LastAnswered::default(),
            look_ups: LookUps::default(),
            connect_timeout: settings.connect_timeout,
            tls,
            idle_max: settings.idle_max,
            idle: Mutex::new(IdleConnections::of(settings.kept)),
            targets: Mutex::default(),
        })
    }

    /// The URL's form, checked.
    pub(super) fn target(&self, url: &str) -> Result<Arc<Target>, Unreached> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = targets.get(url) {
            return Ok(target.clone());
        }
        let target = self.egress.target(url);
        let target = target.map_err(|refused| unreached(Outcome::RefusedAddress, refused.to_string()))?;
        if targets.len() >= TARGETS_MAX {
            targets.clear();
        }
        let target = Arc::new(target);
        targets.insert(url.into(), target.clone());
        Ok(target)
    }

    /// Looks the name up and gives the addresses that may be connected to, at least one. None where one of all that were found may not.
    pub(super) async fn vetted(&self, target: &Target, watch: &mut Stopwatch) -> Result<Vec<SocketAddr>, Unreached> {
        let refused = |why: EgressRefused| unreached(Outcome::RefusedAddress, why.to_string());
        if let Some(address) = target.literal() {
            self.egress.vet(address).map_err(refused)?;
            return Ok(vec![SocketAddr::new(address, target.port())]);
        }
        watch.enter(Stage::LookUp);
        let found = self.look_ups.look_up(target.host(), target.port(), self.connect_timeout).await;
        let found = found.map_err(|why| {
            let lack = match &why {
                Unresolved::Error(error) => faults::lack_of(error),
                Unresolved::Crowded { has_hung: false } => Some(Lack::LookUp),
                // Whose own look-ups hang is not the better for waiting.
                Unresolved::Crowded { has_hung: true } | Unresolved::TookTooLong => None,
            };
            Unreached { lack, ..unreached(Outcome::DnsFailed, why.to_string()) }
        })?;
        watch.stop();
        let mut vetted = self.egress.vet_all(found.iter().copied()).map_err(|why| {
            let shut = found.iter().find(|address| self.egress.vet(address.ip()).is_err());
            shut.map_or_else(
                || refused(why),
                |shut| unreached(Outcome::RefusedAddress, leads_to(target, shut.ip(), why)),
            )
        })?;
        if vetted.is_empty() {
            return Err(unreached(Outcome::DnsFailed, "the name has no address"));
        }
        vetted.truncate(ADDRESSES_TRIED_MAX);
        Ok(vetted)
    }

    /// A kept connection to one of these addresses, if there is one that may be used again.
    pub(super) fn kept(&self, target: &Target, vetted: &[SocketAddr], now: Instant) -> Option<OpenConnection> {
        for of in vetted {
            let key = idle_key(target, *of);
            loop {
                // The lock is let go before the look: it may take a while, and close the connection.
                let taken = self.idle().take(&key, now);
                let Some(Taken { mut connection, is_trial }) = taken else { break };
                if connection.sender.is_closed() || is_trial && !connection.works.is_there() {
                    continue;
                }
                if is_trial {
                    self.idle().seen_kept(&key);
                }
                return Some(connection);
            }
        }
        None
    }

    /// A kept connection that was taken at that moment broke under a request, before the head of its answer was whole.
    pub(super) fn lost(&self, connection: &OpenConnection, taken_at: Instant, now: Instant) {
        let closed = self.idle().lost(&connection.key, taken_at, now);
        drop(closed);
    }

    fn idle(&self) -> MutexGuard<'_, IdleConnections<OpenConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection to the first of these addresses that takes it; which one that is, is known as soon as it has.
    pub(super) async fn open(
        &self,
        target: &Target,
        vetted: &[SocketAddr],
        watch: &mut Stopwatch,
        connected: &mut Option<Arc<str>>,
    ) -> Result<OpenConnection, Unreached> {
        watch.enter(Stage::Connect);
        let (tcp, address) = self.connect(vetted).await?;
        let text: Arc<str> = address.to_string().into();
        *connected = Some(text.clone());
        let _ = tcp.set_nodelay(true);
        let tape = Arc::new(Tape::default());
        let (sender, works) = if target.is_https() {
            watch.enter(Stage::Tls);
            let tls = self.secured(target, tcp).await?;
            handshake(Taped::new(tls, tape.clone()), Spelling::Title).await?
        } else {
            handshake(Taped::new(tcp, tape.clone()), Spelling::Title).await?
        };
        watch.stop();
        Ok(OpenConnection { sender, works, address: text, tape, key: idle_key(target, address), is_used: false })
    }

    /// TLS on a connection.
    pub(super) async fn secured(&self, target: &Target, tcp: TcpStream) -> Result<TlsStream<TcpStream>, Unreached> {
        let secured = self.tls.connect(server_name(target)?, tcp).await;
        secured.map_err(|error| unreached(Outcome::TlsFailed, faults::tls(&error)))
    }

    /// All addresses together have the connect time; each has an equal part of what is left.
    pub(super) async fn connect(&self, vetted: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Unreached> {
        let end = Instant::now() + self.connect_timeout;
        let mut last = unreached(Outcome::ConnectFailed, "no address to connect to");
        let mut lacking: Option<Unreached> = None;
        for (address, still) in vetted.iter().zip((1..=vetted.len()).rev()) {
            let now = Instant::now();
            let part = end.saturating_duration_since(now) / u32::try_from(still).unwrap_or(1);
            last = match self.route.connect(*address, now + part, &self.look_ups, &self.proxy_at).await {
                Ok(tcp) => return Ok((tcp, *address)),
                Err(NotConnected { why, lack }) => Unreached { lack, ..unreached(Outcome::ConnectFailed, why) },
            };
            if last.lack > lacking.as_ref().and_then(|lacking| lacking.lack) {
                lacking = Some(last.clone());
            }
        }
        // With its own reason, whatever the addresses behind it came to.
        Err(lacking.unwrap_or(last))
    }

    /// How long the connection of this answer may wait for its next request.
    pub(super) fn idle_time(&self, answer: &HeaderMap) -> IdleTime {
        idle_time(answer, self.idle_max)
    }

    /// Keeps a connection whose answer was read to its end, for so long ([`Connector::idle_time`]).
    pub(super) fn keep(&self, mut connection: OpenConnection, now: Instant, time: IdleTime) {
        if time.most.is_zero() {
            return;
        }
        // Where it is ready its work is done for now: whoever uses it next sees first whether it is still there.
        if !(connection.sender.is_ready() || connection.works.is_there()) || connection.sender.is_closed() {
            return;
        }
        let was_used = std::mem::replace(&mut connection.is_used, true);
        let key = connection.key.clone();
        let answered = Answered { was_used, time: time.most, is_said: time.is_said };
        let refused = self.idle().put(&key, connection, now, answered);
        // What is closed is closed without the lock.
        drop(refused);
    }

    /// Closes all that wait.
    pub(super) fn keep_none(&self) {
        let all = self.idle().take_all();
        drop(all);
    }

    /// Closes connections that waited too long. To be called after each pass; most calls find that it is too early to look.
    pub(super) fn sweep(&self) {
        let over = self.idle().sweep(Instant::now(), |connection| connection.sender.is_closed());
        drop(over);
    }
}

/// Of a name whose owner may not know where it leads.
fn leads_to(target: &Target, address: IpAddr, why: EgressRefused) -> String {
    let why = match why {
        EgressRefused::Range(range) => format!("which is in a forbidden range: {range}"),
        other => other.to_string(),
    };
    format!("{} leads to {address}, {why}", target.host())
}

/// How long a connection may wait for its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleTime {
    /// Zero: it is not kept.
    most: Duration,
    /// Whether its endpoint has said that it keeps it.
    is_said: bool,
}

/// The same by the head of the last answer: `Keep-Alive: timeout=5` says when the endpoint closes it.
fn idle_time(answer: &HeaderMap, idle_max: Duration) -> IdleTime {
    let values = answer.get_all("keep-alive").into_iter().filter_map(|value| value.to_str().ok());
    let said = values.flat_map(|value| value.split(',')).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let seconds =
            value.trim().trim_matches('"').parse().ok().filter(|_| name.trim().eq_ignore_ascii_case("timeout"));
        seconds.map(|seconds| Duration::from_secs(seconds).saturating_sub(IDLE_MARGIN))
    });
    let said = said.min();
    IdleTime { most: said.map_or(idle_max, |said| said.min(idle_max)), is_said: said.is_some() }
}

fn idle_key(target: &Target, address: SocketAddr) -> IdleKey {
    IdleKey { is_https: target.is_https(), host: target.host().clone(), address }
}

fn server_name(target: &Target) -> Result<ServerName<'static>, Unreached> {
    let name = match target.literal() {
        Some(IpAddr::V4(v4)) => ServerName::from(IpAddr::V4(v4)),
        Some(IpAddr::V6(v6)) => ServerName::from(IpAddr::V6(v6)),
        None => ServerName::try_from(target.host().to_string())
            .map_err(|_| unreached(Outcome::TlsFailed, "the host is no name that a certificate can carry"))?,
    };
    Ok(name)
}

/// In which letters the names of headers go out. To HTTP it is all one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `X-Service-Nonce`, as every callback of the server has them.
    Title,
    /// `x-service-nonce`, as proxies and HTTP/2 write them.
    Lower,
}

pub(super) async fn handshake<T, B>(io: T, spelling: Spelling) -> Result<(SendRequest<B>, Works), Unreached>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .title_case_headers(spelling == Spelling::Title)
        .max_buf_size(HEARD_BYTES_MAX)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| unreached(Outcome::ConnectFailed, error.to_string()))?;
    // What went wrong is told to the attempt by its own answer.
    Ok((sender, Works(Some(Box::pin(async move { drop(connection.await) })))))
}

/// Whose certificates an endpoint may show: the system's authorities and the extra ones (PEM).
pub(super) fn roots(extra: &[u8], allow_private: bool) -> Result<RootCertStore, DispatchError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if !extra.is_empty() {
        let extra = CertificateDer::pem_slice_iter(extra)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| DispatchError::ExtraRoots)?;
        let wanted = extra.len();
        let (added, _) = roots.add_parsable_certificates(extra);
        if added == 0 || added < wanted {
            return Err(DispatchError::ExtraRoots);
        }
    }
    // In development plain http may be all there is.
    if roots.is_empty() && !allow_private {
        // With few file descriptors they are there and cannot be opened.
        return Err(found
            .errors
            .first()
            .map_or(DispatchError::NoRoots, |error| DispatchError::UnreadRoots(error.to_string())));
    }
    Ok(roots)
}

fn client_config(settings: &DispatchSettings) -> Result<ClientConfig, DispatchError> {
    let roots = roots(&settings.extra_roots, settings.allow_private)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(DispatchError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
