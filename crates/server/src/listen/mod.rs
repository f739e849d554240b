//! Sockets: accept, TLS, limits on connections and heads, and a drain that lets nobody hang.
//!
//! Invariant: nothing here knows what a request means.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, DATE, HeaderValue};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::clock::Clock;
use crate::repeated_warning::SharedWarning;
use address_limit::SAID_EVERY;
use connection_state::ConnectionState;
use crowd::Crowd;
use date::date;
use ending::{Ending, Guest, LAST_WORDS};
use linger::Lingering;
use long_answers::{LongAnswer, PART_BYTES_MAX};
use upload::{Drains, ThrowsAway};

mod address_limit;
mod connection_state;
mod crowd;
mod date;
mod ending;
mod expiry;
mod linger;
mod long_answers;
mod request_limit;
pub mod tls;
mod upload;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unread_tests;

pub use address_limit::AddressLimit;
pub use crowd::EVICTED;
pub use expiry::Concern;
pub use long_answers::Held;
pub use request_limit::{RequestLimit, RequestPermit};
pub use upload::Upload;

/// Why an address cannot be listened on, and what to do about it.
pub fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: end it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: choose another one",
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            "ports below 1024 need CAP_NET_BIND_SERVICE (docs/OPERATING.md, Under systemd)"
        }
        _ => return format!("{address} cannot be used: {error}"),
    };
    format!("{address} cannot be used: {why}")
}

/// How a listener treats its connections.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// TLS, unless a proxy before us or loopback makes it needless.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether plain HTTP is taken beside TLS, told apart by the first byte. For loopback addresses only.
    pub plain_too: bool,
    /// Connections at once. For more, those that ask for nothing are closed; where none does, one waits here and the others in the kernel's queue.
    pub connections_max: usize,
    /// How many of them one address may have.
    pub per_address: Arc<AddressLimit>,
    /// How long a head may take, counted from the last answer: it bounds idle connections too.
    pub head_timeout: Duration,
    /// How long a request may be under way on a connection where nothing else is asked.
    pub request_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long answers under way are waited for at the end.
    pub drain: Duration,
    /// What `Date` goes by.
    pub clock: Clock,
    /// For how long what nobody reads is thrown away.
    pub(crate) throws_away: ThrowsAway,
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            tls: None,
            plain_too: false,
            connections_max: 4_096,
            per_address: Arc::default(),
            head_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(5),
            drain: Duration::from_secs(10),
            clock: Clock::System,
            throws_away: ThrowsAway::default(),
        }
    }
}

/// What the HTTP parser reads at the most: twice the contract's limits, so that what lies between gets an envelope.
pub const PARSER_HEAD_BYTES_MAX: usize = 64 * 1024;
/// The same of headers.
pub const PARSER_HEADERS_MAX: usize = 200;
/// The same over HTTP/2, where each header counts 32 bytes more (RFC 9113, 6.5.2), and the pseudo-headers count, too.
const HTTP_2_HEAD_BYTES_MAX: u32 = 72 * 1024;

/// Requests under way at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 128;
/// What a peer of HTTP/2 may send ahead: for one request, and for all of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// What a connection of HTTP/2 keeps for a peer that does not read, for each request: that, and one part more.
const SEND_BYTES_MAX: usize = PART_BYTES_MAX;
/// Requests of HTTP/2 that were reset before anybody looked at them, and resets that we had to send: more end the connection.
const RESETS_MAX: usize = 32;

/// How long the system may take to hand over what it has accepted for a listener that ends.
const HANDED_OVER: Duration = Duration::from_millis(5);

/// Accepts until `shutdown` says true, then drains. `service_for` makes the service of a connection from its peer's address.
pub async fn serve<S, B>(
    listener: TcpListener,
    settings: ListenSettings,
    service_for: impl Fn(IpAddr) -> S,
    mut shutdown: watch::Receiver<bool>,
) where
    S: Service<Request<Upload>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let crowd = Crowd::new(settings.connections_max);
    let (ending, drain) = (Arc::new(Ending::default()), settings.drain);
    let (refusals, failures) = (SharedWarning::default(), SharedWarning::default());
    let (builder, drains) = (builder(&settings), Arc::new(Drains::new(settings.throws_away)));
    let (listens, cut) = watch::channel(());
    let letting_in = async {
        loop {
            let Some((stream, peer)) = accept(&listener, &failures).await else { continue };
            // One address that has its share already is cut off at once: the rest of the places are for others.
            let Some(share) = settings.per_address.enter(peer) else {
                turn_away(&settings.per_address, &refusals, peer);
                continue;
            };
            // Only now, with somebody there who needs it: while nobody comes, nobody has to give up a place.
            let Some(place) = crowd.place().await else { return };
            let connection = Connection {
                settings: settings.clone(),
                builder: builder.clone(),
                drains: drains.clone(),
                guest: ending.guest(),
            };
            let (service, state) = (service_for(peer), Arc::new(ConnectionState::of(ending.clone())));
            let (told, mut cut) = (crowd.join(&state), cut.clone());
            tokio::spawn(async move {
                let _held = (share, place);
                tokio::select! {
                    biased;
                    () = connection.serve(stream, state, service) => {}
                    () = told.to_leave() => {}
                    // Nobody says so: the listener has ended.
                    _ = cut.changed() => {}
                }
            });
        }
    };
    let told = until_the_end(letting_in, &ending, &mut shutdown).await;
    drop(listener);
    if tokio::time::timeout_at(told + drain, ending.come()).await.is_err() {
        tracing::warn!(
            drain_s = drain.as_secs(),
            "Connections were still busy at the end of the drain and were closed"
        );
    }
    drop(listens);
}

/// Lets in whoever comes until `shutdown` says true, and whoever is on the way then, if there is a place: when it said so.
async fn until_the_end(
    letting_in: impl Future<Output = ()>,
    ending: &Ending,
    shutdown: &mut watch::Receiver<bool>,
) -> Instant {
    let mut letting_in = pin!(letting_in);
    tokio::select! {
        biased;
        _ = shutdown.wait_for(|ended| *ended) => {}
        () = letting_in.as_mut() => return Instant::now(),
    }
    ending.draw_near();
    let (told, last) = (Instant::now(), if ending.has_guests() { LAST_WORDS } else { HANDED_OVER });
    let _ = tokio::time::timeout(last, letting_in).await;
    told
}

/// Counts a connection that was closed at once, and says so now and then.
fn turn_away(per_address: &AddressLimit, refusals: &SharedWarning, peer: IpAddr) {
    metrics::counter!("countersign_connections_refused_total").increment(1);
    if let Some(refused) = refusals.due(SAID_EVERY) {
        let most = per_address.most();
        tracing::warn!(source = %peer, refused, "Connections were refused: one address has {most} open already");
    }
}

/// What one connection is served with.
struct Connection {
    settings: ListenSettings,
    builder: Builder<TokioExecutor>,
    drains: Arc<Drains>,
    guest: Guest,
}

impl Connection {
    /// From the first byte to the end. What breaks here is the peer's connection; the requests on it were logged.
    async fn serve<S, B>(mut self, stream: TcpStream, state: Arc<ConnectionState>, service: S)
    where
        S: Service<Request<Upload>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let timeout = self.settings.handshake_timeout;
        let is_plain = match &self.settings.tls {
            None => Some(true),
            Some(_) if self.settings.plain_too => {
                unless_let_go(&mut self.guest, &state, is_plain(&stream, timeout)).await
            }
            Some(_) => Some(false),
        };
        match (is_plain, self.settings.tls.clone()) {
            (None, _) => {}
            (Some(true), _) | (Some(false), None) => self.speak(stream, state, service).await,
            (Some(false), Some(config)) => {
                let handshake = tokio::time::timeout(timeout, TlsAcceptor::from(config).accept(stream));
                if let Some(Ok(Ok(stream))) = unless_let_go(&mut self.guest, &state, handshake).await {
                    self.speak(stream, state, service).await;
                }
            }
        }
    }

    async fn speak<T, S, B>(self, stream: T, state: Arc<ConnectionState>, service: S)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Upload>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let Self { settings, builder, drains, mut guest } = self;
        let stream = TokioIo::new(Lingering::new(stream, state.clone(), settings.throws_away.at_the_end));
        let mut connection = pin!(
            builder
                .serve_connection(stream, watched(service, state.clone(), drains, settings.clock.clone()))
                .into_owned()
        );
        let served = async {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                () = guest.is_let_go_after(&state) => {}
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ = connection => {}
                () = quiet_at_the_end(&state) => {}
            }
        };
        until_idle(served, &state, settings.head_timeout, settings.request_timeout).await;
    }
}

/// The service with an eye on what is under way, and on bodies that it does not read to their end.
fn watched<S, B>(
    service: S,
    state: Arc<ConnectionState>,
    drains: Arc<Drains>,
    clock: Clock,
) -> impl Service<Request<Incoming>, Response = Response<LongAnswer<B>>, Error = Infallible, Future: Send + 'static> + Send
where
    S: Service<Request<Upload>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    service_fn(move |request: Request<Incoming>| {
        let is_http_1 = request.version() < Version::HTTP_2;
        let (request, unfinished) = Upload::watch(request);
        let (state, drains, clock, answer) = (state.clone(), drains.clone(), clock.clone(), service.call(request));
        state.asks();
        state.is_http_1.fetch_or(is_http_1, Ordering::Relaxed);
        async move {
            let Ok(mut answer) = answer.await;
            answer.headers_mut().insert(DATE, date(clock.now()));
            let leaves_unread = match unfinished {
                Some(unfinished) => !drains.finish(unfinished).await,
                None => false,
            };
            // The connection cannot be used again: nobody knows where the next request begins.
            if leaves_unread && is_http_1 {
                state.leaves_unread.store(true, Ordering::Relaxed);
            }
            if is_http_1 && (leaves_unread || state.ending.is_last_answer()) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.map(|body| LongAnswer::new(body, state)))
        }
    })
}

/// Serves a connection to its end, or until nothing was asked on it for `head_timeout` and nothing is under way.
///
/// The parser's own limit does not see a peer that never says which HTTP it speaks, one that does not read its answers, or an
/// idle HTTP/2 connection that answers pings: each would hold its place for ever. A request that waits behind unread answers
/// is under way for ever too, so that counts for `request_timeout` only; of a long answer each part counts as something asked.
/// A peer of HTTP/2 may go on asking and leave one answer unread, for as long and no longer.
async fn until_idle(
    connection: impl Future,
    state: &Arc<ConnectionState>,
    head_timeout: Duration,
    request_timeout: Duration,
) {
    let mut connection = pin!(connection);
    let (mut before, mut quiet) = (0, Duration::ZERO);
    while tokio::time::timeout(head_timeout, connection.as_mut()).await.is_err() {
        let count = state.asked();
        quiet = if count == before { quiet + head_timeout } else { Duration::ZERO };
        before = count;
        let stuck = head_timeout * state.stuck_for().saturating_sub(1);
        if stuck >= request_timeout {
            return;
        }
        if !quiet.is_zero() && (state.is_idle() || quiet >= request_timeout) {
            return;
        }
    }
}

/// Waits, at the end, until nothing goes on upon a connection of HTTP/2 twice in a row: what it was told last is on the way, and so may a request be.
///
/// Such a connection ends by itself only when its peer answers a ping: one that does not read would be waited for to the end of the drain.
async fn quiet_at_the_end(state: &Arc<ConnectionState>) {
    let (mut before, mut was_idle) = (state.asked(), false);
    loop {
        tokio::time::sleep(LAST_WORDS).await;
        let (count, is_idle) = (state.asked(), state.is_idle());
        if is_idle && was_idle && count == before && !state.is_http_1.load(Ordering::Relaxed) {
            return;
        }
        (before, was_idle) = (count, is_idle);
    }
}

/// What comes before the first request, unless the listener lets its connections go first: nothing is under way on such a connection yet.
async fn unless_let_go<T>(guest: &mut Guest, state: &ConnectionState, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = guest.is_let_go_after(state) => None,
    }
}

/// Whether what the peer sends first is no TLS handshake. Who sends nothing in time is taken for a slow TLS peer.
async fn is_plain(stream: &TcpStream, timeout: Duration) -> bool {
    const TLS_HANDSHAKE: u8 = 22;
    let mut first = [0];
    match tokio::time::timeout(timeout, stream.peek(&mut first)).await {
        Ok(Ok(1)) => first[0] != TLS_HANDSHAKE,
        Ok(Ok(_) | Err(_)) | Err(_) => false,
    }
}

fn builder(settings: &ListenSettings) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout)
        .max_buf_size(PARSER_HEAD_BYTES_MAX)
        .max_headers(PARSER_HEADERS_MAX)
        // Answers are small: head and body in one piece cost less than a list of two.
        .writev(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HTTP_2_HEAD_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .keep_alive_interval(settings.head_timeout)
        .keep_alive_timeout(settings.handshake_timeout);
    builder
}

/// The next connection.
async fn accept(listener: &TcpListener, failures: &SharedWarning) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Answers are small and whole: waiting to fill a packet only delays them.
            let _ = stream.set_nodelay(true);
            Some((stream, peer.ip()))
        }
        Err(error) => {
            if let Some(times) = failures.due(SAID_EVERY) {
                tracing::warn!(%error, times, "A connection could not be accepted: {error}");
            }
            // Out of descriptors, most likely: let others end before trying again.
            tokio::time::sleep(Duration::from_millis(20)).await;
            None
        }
    }
}
