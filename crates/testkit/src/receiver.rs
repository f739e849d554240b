//! A merchant's callback endpoint on loopback that behaves as a test tells it to, and remembers what came.
//!
//! Written on bare sockets, since half of what it does is what no HTTP library would do.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

mod came;

pub use came::{Accepted, Received};

/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What the receiver does with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// 200 and `returnCode` SUCCESS.
    Success,
    /// 200 and `returnCode` FAIL.
    Fail,
    /// This status, with a body that would be SUCCESS if the status did not count.
    Status(u16),
    /// The same with a `Retry-After`.
    RetryAfter(u16, String),
    /// 302 to this URL.
    Redirect(String),
    /// 200 and this body.
    Body(Vec<u8>),
    /// 200 and a SUCCESS of this many bytes in all, filled with blanks.
    Padded(usize),
    /// 200, a body that says it is longer than it is, and the end.
    BrokenOff,
    /// 200 and SUCCESS, a byte each so often and never two at once: it takes longer than anybody waits.
    Drip(Duration),
    /// No answer at all, for as long as the other side waits.
    Hang,
    /// SUCCESS, and the connection is closed without a word.
    SuccessAndClose,
    /// SUCCESS, and the connection is closed under whatever comes next over it.
    SuccessOnce,
    /// SUCCESS, and the word that the connection is kept.
    SuccessKeeping,
    /// SUCCESS, but only when [`Receiver::release`] lets it go.
    Held,
    /// This status, but only when [`Receiver::release`] lets it go.
    HeldStatus(u16),
    /// The connection is reset.
    Reset,
    /// Bytes that are not HTTP.
    Garbage,
    /// These bytes as they are, and the end.
    Raw(Vec<u8>),
    /// These bytes as they are, and nothing more for as long as the other side waits.
    HangAfter(Vec<u8>),
}

#[derive(Debug)]
struct Inside {
    script: Mutex<VecDeque<Reply>>,
    otherwise: Mutex<Reply>,
    received: Mutex<Vec<Received>>,
    arrived: Notify,
    released: Semaphore,
    /// Connections that it has closed after an answer, and nobody has asked for yet.
    closed: Semaphore,
    accepted: Mutex<Vec<Accepted>>,
    under_way: AtomicUsize,
    under_way_most: AtomicUsize,
}

/// The endpoint. It ends when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    inside: Arc<Inside>,
    address: SocketAddr,
    ca_pem: Option<String>,
    task: AbortHandle,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    /// Plain HTTP on a free loopback port. Says SUCCESS until it is told otherwise.
    pub async fn start() -> Result<Self> {
        Self::listen(None, None).await
    }

    /// HTTPS with a certificate of its own for `localhost` and 127.0.0.1; see [`Receiver::ca_pem`].
    pub async fn start_tls() -> Result<Self> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        Self::start_tls_as(names).await
    }

    /// HTTPS with a certificate of its own for these names.
    pub async fn start_tls_as(names: Vec<String>) -> Result<Self> {
        Self::start_tls_with(&rcgen::CertificateParams::new(names)?, &Clients::All).await
    }

    /// The same as [`Receiver::start_tls`] with a certificate that ended in 2020.
    pub async fn start_tls_expired() -> Result<Self> {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        Self::start_tls_with(&params, &Clients::All).await
    }

    /// The same as [`Receiver::start_tls`], but TLS 1.3 alone, and whoever comes needs a certificate, too.
    pub async fn start_tls_for_known_clients() -> Result<Self> {
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        Self::start_tls_with(&params, &Clients::Known).await
    }

    async fn start_tls_with(params: &rcgen::CertificateParams, clients: &Clients) -> Result<Self> {
        let (acceptor, pem) = acceptor(params, clients)?;
        Self::listen(Some(acceptor), Some(pem)).await
    }

    /// Plain HTTP where this listener listens.
    pub fn start_on(listener: TcpListener) -> Result<Self> {
        Self::listen_on(listener, None, None)
    }

    /// HTTPS there, with a certificate of its own for these names.
    pub fn start_tls_on(listener: TcpListener, names: Vec<String>) -> Result<Self> {
        let (acceptor, pem) = acceptor(&rcgen::CertificateParams::new(names)?, &Clients::All)?;
        Self::listen_on(listener, Some(acceptor), Some(pem))
    }

    async fn listen(tls: Option<TlsAcceptor>, ca_pem: Option<String>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a loopback port")?;
        Self::listen_on(listener, tls, ca_pem)
    }

    fn listen_on(listener: TcpListener, tls: Option<TlsAcceptor>, ca_pem: Option<String>) -> Result<Self> {
        let address = listener.local_addr()?;
        let inside = Arc::new(Inside {
            script: Mutex::default(),
            otherwise: Mutex::new(Reply::Success),
            received: Mutex::default(),
            arrived: Notify::new(),
            released: Semaphore::new(0),
            closed: Semaphore::new(0),
            accepted: Mutex::default(),
            under_way: AtomicUsize::new(0),
            under_way_most: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, tls, inside.clone())).abort_handle();
        Ok(Self { inside, address, ca_pem, task })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The callback URL: by address in plain HTTP, by `localhost` in HTTPS.
    pub fn url(&self) -> String {
        match &self.ca_pem {
            None => format!("http://{}/callbacks", self.address),
            Some(_) => format!("https://localhost:{}/callbacks", self.address.port()),
        }
    }

    /// What to trust in order to trust its certificate; empty in plain HTTP.
    pub fn ca_pem(&self) -> Vec<u8> {
        self.ca_pem.clone().unwrap_or_default().into_bytes()
    }

    /// Answers to the next requests, one each, after those that are still to come.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.inside.script).extend(replies);
    }

    /// What to do with requests that the script has nothing for.
    pub fn answer_with(&self, reply: Reply) {
        *lock(&self.inside.otherwise) = reply;
    }

    /// Lets so many [`Reply::Held`] go, now or when they come.
    pub fn release(&self, count: usize) {
        self.inside.released.add_permits(count);
    }

    /// Waits until it has closed one more connection of [`Reply::SuccessAndClose`].
    pub async fn until_closed(&self) {
        self.inside.closed.acquire().await.expect("it is never closed").forget();
    }

    /// Every connection that came so far.
    pub fn accepted(&self) -> Vec<Accepted> {
        lock(&self.inside.accepted).clone()
    }

    /// Everything that came so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.inside.received).clone()
    }

    /// How many requests were being answered at once, at most.
    pub fn most_at_once(&self) -> usize {
        self.inside.under_way_most.load(Ordering::SeqCst)
    }

    /// Waits until `count` requests have come.
    pub async fn wait_for(&self, count: usize, within: Duration) -> Result<Vec<Received>> {
        let enough = async {
            loop {
                let arrived = self.inside.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                let received = self.received();
                if received.len() >= count {
                    return received;
                }
                arrived.await;
            }
        };
        match timeout(within, enough).await {
            Ok(received) => Ok(received),
            Err(_) => bail!("{} of {count} callbacks came within {within:?}", self.received().len()),
        }
    }
}

/// Whom a receiver speaks to.
pub(crate) enum Clients {
    All,
    /// Who has a certificate of its authority.
    Known,
}

/// A certificate made for this, and what trusts it.
pub(crate) fn acceptor(params: &rcgen::CertificateParams, clients: &Clients) -> Result<(TlsAcceptor, String)> {
    let pair = rcgen::KeyPair::generate()?;
    let cert = params.self_signed(&pair)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone());
    let config = match clients {
        Clients::All => config.with_safe_default_protocol_versions()?.with_no_client_auth(),
        Clients::Known => {
            let mut roots = RootCertStore::empty();
            roots.add(cert.der().clone())?;
            let known = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            config.with_protocol_versions(&[&TLS13])?.with_client_cert_verifier(known)
        }
    };
    let config = config.with_single_cert(vec![cert.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), cert.pem()))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all conversations when the listener's task ends.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, inside: Arc<Inside>) {
    let mut conversations = tokio::task::JoinSet::new();
    while let Ok((tcp, peer)) = listener.accept().await {
        // Of one that is gone already only its peer is known.
        let local = tcp.local_addr().unwrap_or(peer);
        let connection = {
            let mut accepted = lock(&inside.accepted);
            accepted.push(Accepted { local, peer });
            accepted.len()
        };
        let (tls, inside) = (tls.clone(), inside.clone());
        conversations.spawn(async move {
            // What goes wrong on one connection is the other side's to notice.
            let _ = match tls {
                None => converse(tcp, &inside, connection).await,
                Some(tls) => match tls.accept(tcp).await {
                    Ok(stream) => converse(stream, &inside, connection).await,
                    Err(error) => Err(error.into()),
                },
            };
        });
        while conversations.try_join_next().is_some() {}
    }
}

/// A stream whose connection can be reset.
trait Socket: AsyncRead + AsyncWrite + Unpin {
    fn tcp(&self) -> &TcpStream;
}

impl Socket for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Socket for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

struct UnderWay<'a>(&'a Inside);

impl<'a> UnderWay<'a> {
    fn begin(inside: &'a Inside) -> Self {
        let now = inside.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        inside.under_way_most.fetch_max(now, Ordering::SeqCst);
        Self(inside)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn converse<S: Socket>(mut stream: S, inside: &Inside, connection: usize) -> Result<()> {
    let mut buffer = Vec::new();
    while let Some(received) = read_request(&mut stream, &mut buffer, connection).await? {
        let under_way = UnderWay::begin(inside);
        let reply = lock(&inside.script).pop_front().unwrap_or_else(|| lock(&inside.otherwise).clone());
        let mut turn = pin!(turn(inside, matches!(reply, Reply::Held | Reply::HeldStatus(_))));
        // Those that are held are let go in the order in which they came: its place is taken before anybody hears of it.
        let begun = poll_fn(|context| Poll::Ready(turn.as_mut().poll(context))).await;
        lock(&inside.received).push(received);
        inside.arrived.notify_waiters();
        match begun {
            Poll::Ready(taken) => taken?,
            Poll::Pending => turn.await?,
        }
        if !answer(&mut stream, inside, reply, under_way).await? {
            break;
        }
    }
    Ok(())
}

/// Ends when a request may be answered: one that is held waits until it is released.
async fn turn(inside: &Inside, is_held: bool) -> Result<()> {
    if is_held {
        inside.released.acquire().await?.forget();
    }
    Ok(())
}

async fn read_request<S: Socket>(stream: &mut S, buffer: &mut Vec<u8>, connection: usize) -> Result<Option<Received>> {
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        // Such as a TLS greeting on a port without TLS.
        anyhow::ensure!(b"POST ".starts_with(&buffer[..buffer.len().min(5)]), "this is no POST");
        if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8(buffer[..head_end].to_vec())?;
    let mut lines = text.split("\r\n");
    let target = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(Ok(0), |(_, v)| v.parse())?;
    let body_start = head_end + 4;
    while buffer.len() < body_start + length {
        anyhow::ensure!(stream.read_buf(buffer).await? > 0, "the request's body broke off");
    }
    let head = buffer[..body_start].to_vec();
    let body = buffer[body_start..body_start + length].to_vec();
    buffer.drain(..body_start + length);
    Ok(Some(Received { target, head, headers, body, at: Instant::now(), connection }))
}

const SUCCESS: &[u8] = br#"{"returnCode":"SUCCESS","returnMessage":""}"#;
const FAIL: &[u8] = br#"{"returnCode":"FAIL","returnMessage":"not today"}"#;

/// Whether the connection goes on.
async fn answer<S: Socket>(stream: &mut S, inside: &Inside, reply: Reply, under_way: UnderWay<'_>) -> Result<bool> {
    match reply {
        Reply::Success => say(stream, 200, "", SUCCESS).await?,
        Reply::SuccessKeeping => say(stream, 200, "Keep-Alive: timeout=60\r\n", SUCCESS).await?,
        Reply::Fail => say(stream, 200, "", FAIL).await?,
        Reply::Status(status) => say(stream, status, "", SUCCESS).await?,
        Reply::RetryAfter(status, after) => say(stream, status, &format!("Retry-After: {after}\r\n"), SUCCESS).await?,
        Reply::Redirect(url) => say(stream, 302, &format!("Location: {url}\r\n"), SUCCESS).await?,
        Reply::Body(body) => say(stream, 200, "", &body).await?,
        Reply::Padded(bytes) => {
            let mut body = SUCCESS.to_vec();
            body.resize(bytes.max(SUCCESS.len()), b' ');
            say(stream, 200, "", &body).await?;
        }
        Reply::BrokenOff => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"returnCode\":").await?;
            stream.shutdown().await?;
            return Ok(false);
        }
        Reply::Drip(each) => drip(stream, each).await?,
        Reply::Hang => {
            // Ends when the other side gives up.
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await?;
            return Ok(false);
        }
        Reply::Raw(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
            return Ok(false);
        }
        Reply::HangAfter(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await?;
            return Ok(false);
        }
        Reply::Held => say_after(under_way, stream, 200).await?,
        Reply::HeldStatus(status) => say_after(under_way, stream, status).await?,
        Reply::SuccessAndClose => {
            say(stream, 200, "", SUCCESS).await?;
            stream.shutdown().await?;
            inside.closed.add_permits(1);
            return Ok(false);
        }
        Reply::SuccessOnce => {
            say(stream, 200, "", SUCCESS).await?;
            let _next = stream.read_u8().await?;
            return Ok(false);
        }
        Reply::Reset => {
            stream.tcp().set_zero_linger()?;
            return Ok(false);
        }
        Reply::Garbage => {
            stream.write_all(b"\x00\x01\x02 this is not HTTP\r\n\r\n").await?;
            stream.shutdown().await?;
            return Ok(false);
        }
    }
    Ok(true)
}

async fn drip<S: Socket>(stream: &mut S, each: Duration) -> Result<()> {
    let mut ticks = interval(each);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let whole = [b"HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n", SUCCESS].concat();
    for byte in whole {
        ticks.tick().await;
        stream.write_all(&[byte]).await?;
    }
    Ok(())
}

/// Who has the answer may ask again before this goes on: it is under way until then, and no longer.
async fn say_after<S: Socket>(under_way: UnderWay<'_>, stream: &mut S, status: u16) -> Result<()> {
    drop(under_way);
    say(stream, status, "", SUCCESS).await
}

async fn say<S: Socket>(stream: &mut S, status: u16, further: &str, body: &[u8]) -> Result<()> {
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\n{further}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    stream.flush().await?;
    Ok(())
}

const _: () = assert!(SUCCESS.len() == 43, "the dripped head says how long its body is");
