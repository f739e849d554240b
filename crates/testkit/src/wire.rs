//! A raw HTTP/1.1 client for tests: what is written is what goes out, header twice and all.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use countersign_protocol::code::Code;
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};

/// How long a request may be answered 503: turns of many that ask at once come one after the other.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const REPEAT_PERIOD: Duration = Duration::from_millis(20);

/// Codes of refusals that are about one part of the request.
const ABOUT_A_PART: [Code; 9] = [
    Code::InvalidParameter,
    Code::UnsupportedContentType,
    Code::InvalidNonce,
    Code::InvalidCurrency,
    Code::InvalidAmount,
    Code::InvalidRulePeriod,
    Code::ConfigIdNotAccepted,
    Code::BodyTooLarge,
    Code::DuplicateTradeNo,
];

/// Refuses a refusal of a part of a request that does not begin with that part. Every test whose request is wrong checks this on its way.
pub fn names_its_part(status: u16, answer: &serde_json::Value) -> Result<(), String> {
    if !(400..500).contains(&status) || !ABOUT_A_PART.iter().any(|code| code.code() == answer["code"]) {
        return Ok(());
    }
    // Of merchants, of operators.
    let told = answer["errorMessage"].as_str().or(answer["detail"].as_str()).unwrap_or_default();
    let names = ["field ", "fields ", "header ", "body: "].iter().any(|part| told.starts_with(part));
    if names { Ok(()) } else { Err(format!("a refusal does not begin with the part that is to be changed: {told}")) }
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Head as text, the status line first.
    pub head: String,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; `Null` where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }

    /// The envelope's code; empty where there is none.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One keep-alive connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Connects from this address of the machine.
    pub async fn open_from(source: IpAddr, address: SocketAddr) -> io::Result<Self> {
        let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(source, 0))?;
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Our own end's address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Writes bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads one answer with a Content-Length, or in chunks.
    pub async fn read(&mut self) -> io::Result<Answer> {
        loop {
            if let Some((answer, used)) = parse(&self.buffer) {
                self.buffer.drain(..used);
                names_its_part(answer.status, &answer.json()).map_err(io::Error::other)?;
                return Ok(answer);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Writes a request and reads its answer.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.write(request).await?;
        self.read().await
    }
}

/// The first whole answer in `bytes`, and its length.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Answer, usize)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.get(9..12)?.parse().ok()?;
    let header = |wanted: &str| {
        head.lines()
            .find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case(wanted)))
            .map(|h| h.1.trim())
    };
    if header("transfer-encoding") == Some("chunked") {
        let (body, used) = unchunked(bytes.get(end..)?)?;
        return Some((Answer { status, head, body }, end + used));
    }
    let length = header("content-length").and_then(|value| value.parse::<usize>().ok());
    let length = length.unwrap_or(0);
    let body = bytes.get(end..end + length)?.to_vec();
    Some((Answer { status, head, body }, end + length))
}

/// A body in chunks that is there to its end, and how long it is with their frames.
fn unchunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(bytes.get(at..at + line)?).ok()?, 16).ok()?;
        let begin = at + line + 2;
        let chunk = bytes.get(begin..begin + size)?;
        at = begin + size + 2;
        bytes.get(..at)?;
        if size == 0 {
            return Some((body, at));
        }
        body.extend_from_slice(chunk);
    }
}

/// Connects, sends one request, reads one answer.
pub async fn once(address: SocketAddr, request: &[u8]) -> io::Result<Answer> {
    Connection::open(address).await?.send(request).await
}

/// The same, sent again for as long as it is answered 503: nothing was done then, and whoever is told so says it again.
pub async fn once_served(address: SocketAddr, request: &[u8]) -> anyhow::Result<Answer> {
    let began = Instant::now();
    loop {
        let answer = once(address, request).await?;
        if answer.status != 503 {
            return Ok(answer);
        }
        anyhow::ensure!(
            began.elapsed() < SERVED_WITHIN,
            "it was answered 503 for {SERVED_WITHIN:?}: {}",
            answer.json()
        );
        sleep(REPEAT_PERIOD).await;
    }
}

/// Wall-clock milliseconds: real servers judge timestamps by the real clock.
#[expect(clippy::disallowed_methods, reason = "requests to a real process carry the real time")]
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A nonce never used before.
pub fn fresh_nonce() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system gives random bytes");
    format!("{:032x}", u128::from_le_bytes(bytes))
}

/// Somebody who signs.
#[derive(Clone, Debug)]
pub struct Signer {
    /// The ClientId.
    pub client_id: String,
    /// The key of the Payment API Secret.
    pub key: SigningKey,
    /// Sent as `MerchantId`, where set.
    pub merchant_id: Option<String>,
}

/// A request in parts, so that a test can spoil one of them.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers in order, names as sent.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Signer {
    /// A request signed with this timestamp and nonce.
    pub fn draft_at(&self, method: &str, target: &str, body: &[u8], timestamp: i64, nonce: &str) -> Draft {
        let timestamp = timestamp.to_string();
        let signature = encode_signature(&self.key.sign(&timestamp, nonce, body), Encoding::Hex);
        let mut headers = vec![
            ("X-Service-Certificate-ClientId".to_owned(), self.client_id.clone()),
            ("X-Service-Timestamp".to_owned(), timestamp),
            ("X-Service-Nonce".to_owned(), nonce.to_owned()),
            ("X-Service-Signature".to_owned(), signature),
        ];
        headers.extend(self.merchant_id.iter().map(|m| ("X-Service-MerchantId".to_owned(), m.clone())));
        if !body.is_empty() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        Draft { method: method.to_owned(), target: target.to_owned(), headers, body: body.to_vec() }
    }

    /// A request signed now with a fresh nonce.
    pub fn draft(&self, method: &str, target: &str, body: &[u8]) -> Draft {
        self.draft_at(method, target, body, wall_ms(), &fresh_nonce())
    }
}

impl Draft {
    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !self.body.is_empty() || self.method == "POST" {
            out.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// The same with a header changed; added where it is not there.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        match self.headers.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
            Some(header) => value.clone_into(&mut header.1),
            None => self.headers.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    /// The same without a header.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// The same with a header once more.
    #[must_use]
    pub fn twice(mut self, name: &str) -> Self {
        let again: Vec<_> = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).cloned().collect();
        self.headers.extend(again);
        self
    }
}
