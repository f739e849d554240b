//! A closed-loop generator on one thread: keep-alive connections, each request signed afresh.

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::cpu_ns;
use crate::wire::wall_ms;

/// Somebody to sign as, and what to ask.
#[derive(Debug)]
pub struct Asker {
    /// The ClientId.
    pub client_id: String,
    /// Its secret.
    pub secret: Vec<u8>,
    /// Path and query of a GET.
    pub target: String,
}

/// What one slice has shown.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Requests per second.
    pub rate: f64,
    /// CPU of the server per request, in microseconds.
    pub cpu_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
}

/// How requests get to a server.
#[derive(Clone)]
pub(super) enum Way {
    /// Plain HTTP over connections that are kept.
    Plain,
    /// TLS over connections that are kept.
    Kept(TlsConnector),
    /// TLS over a connection for each request.
    Anew(TlsConnector),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Way {
    async fn connect(&self, address: SocketAddr) -> anyhow::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(match self {
            Self::Plain => Box::new(stream),
            Self::Kept(tls) | Self::Anew(tls) => Box::new(tls.connect(ServerName::from(address.ip()), stream).await?),
        })
    }
}

#[derive(Debug, Default)]
struct Counts {
    latencies: RefCell<Vec<f64>>,
    recording: Cell<bool>,
    ended: Cell<bool>,
    bad: Cell<u64>,
}

/// Loads `address` over plain connections for a warm-up and then `slice`; every answer must be 200.
pub async fn slice(
    address: SocketAddr,
    pid: u32,
    askers: &Rc<Vec<Asker>>,
    connections: usize,
    slice: Duration,
) -> anyhow::Result<Slice> {
    slice_by(&Way::Plain, (address, pid), askers, connections, slice).await
}

/// The same by any way, to an address where that process listens.
pub(super) async fn slice_by(
    way: &Way,
    (address, pid): (SocketAddr, u32),
    askers: &Rc<Vec<Asker>>,
    connections: usize,
    slice: Duration,
) -> anyhow::Result<Slice> {
    let counts = Rc::new(Counts::default());
    let mut tasks = JoinSet::new();
    for n in 0..connections {
        tasks.spawn_local(connection(way.clone(), address, askers.clone(), n, counts.clone()));
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    counts.recording.set(true);
    let (cpu, started) = (cpu_ns(pid), Instant::now());
    tokio::time::sleep(slice).await;
    counts.recording.set(false);
    let (cpu, took) = (cpu_ns(pid) - cpu, started.elapsed().as_secs_f64());
    counts.ended.set(true);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    anyhow::ensure!(counts.bad.get() == 0, "{} answers were not 200", counts.bad.get());
    let mut latencies = counts.latencies.borrow_mut();
    latencies.sort_by(f64::total_cmp);
    let n = latencies.len().max(1);
    let at = |percent: usize| latencies.get((n - 1) * percent / 100).copied().unwrap_or(0.0);
    let requests = f64::from(u32::try_from(n)?);
    #[expect(clippy::cast_precision_loss, reason = "a slice is far below 2^52 ns")]
    Ok(Slice { rate: requests / took, cpu_us: cpu as f64 / 1e3 / requests, p50_us: at(50), p99_us: at(99) })
}

async fn connection(
    way: Way,
    address: SocketAddr,
    askers: Rc<Vec<Asker>>,
    n: usize,
    counts: Rc<Counts>,
) -> anyhow::Result<()> {
    let keys: Vec<_> = askers.iter().map(|a| SigningKey::new(&a.secret)).collect();
    let mut kept = None;
    let (mut out, mut answer) = (Vec::with_capacity(1024), vec![0u8; 16 * 1024]);
    let mut count = n as u64;
    let own = wall_ms();
    while !counts.ended.get() {
        let which = usize::try_from(count).unwrap_or(0) % askers.len();
        count += 1;
        let nonce = format!("{own:012x}{n:04x}{count:016x}");
        request(&mut out, &askers[which], &keys[which], &nonce)?;
        let started = Instant::now();
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => way.connect(address).await?,
        };
        stream.write_all(&out).await?;
        let ok = read(&mut stream, &mut answer).await?;
        if counts.recording.get() {
            counts.latencies.borrow_mut().push(started.elapsed().as_secs_f64() * 1e6);
        }
        if !ok {
            counts.bad.set(counts.bad.get() + 1);
        }
        if matches!(way, Way::Anew(_)) {
            // The server may have gone first.
            let _ = stream.shutdown().await;
        } else {
            kept = Some(stream);
        }
    }
    Ok(())
}

fn request(out: &mut Vec<u8>, asker: &Asker, key: &SigningKey, nonce: &str) -> anyhow::Result<()> {
    let timestamp = wall_ms().to_string();
    let signature = encode_signature(&key.sign(&timestamp, nonce, b""), Encoding::Hex);
    out.clear();
    write!(
        out,
        "GET {} HTTP/1.1\r\nHost: x\r\nX-Service-Certificate-ClientId: {}\r\nX-Service-Timestamp: {timestamp}\r\nX-Service-Nonce: {nonce}\r\nX-Service-Signature: {signature}\r\n\r\n",
        asker.target, asker.client_id
    )?;
    Ok(())
}

/// Reads one answer with a Content-Length; whether it was 200.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> anyhow::Result<bool> {
    let mut have = 0;
    loop {
        let n = stream.read(&mut buffer[have..]).await?;
        anyhow::ensure!(n > 0, "the server closed a connection");
        have += n;
        if let Some(end) = buffer[..have].windows(4).position(|w| w == b"\r\n\r\n")
            && have >= end + 4 + length(&buffer[..end])
        {
            return Ok(&buffer[9..12] == b"200");
        }
    }
}

/// What a head says of the length of its body; 0 where it says nothing.
pub(super) fn length(head: &[u8]) -> usize {
    head.split(|b| *b == b'\n')
        .find(|line| line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:"))
        .map_or(0, |line| {
            line[15..].iter().filter(|b| b.is_ascii_digit()).fold(0, |v, b| v * 10 + usize::from(b - b'0'))
        })
}
