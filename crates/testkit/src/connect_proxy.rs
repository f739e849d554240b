//! An HTTP proxy that takes `CONNECT` and behaves as a test tells it to: it goes where it is told, by address or name, and remembers what it
//! was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What it does with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Does {
    /// Connects, says 200 and passes everything on.
    #[default]
    Connect,
    /// Says these bytes in place of its own answer, and closes.
    Say(Vec<u8>),
    /// The same, and says nothing more.
    SayAndHang(Vec<u8>),
}

/// What it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The request line and headers.
    pub head: String,
    /// Whoever asked.
    pub peer: SocketAddr,
}

impl ConnectRequest {
    /// What stands behind `CONNECT`.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// A header's value, by its name as written.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[derive(Debug, Default)]
struct Inside {
    does: Mutex<Does>,
    asked: Mutex<Vec<ConnectRequest>>,
}

/// The proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct ConnectProxy {
    inside: Arc<Inside>,
    address: SocketAddr,
    task: AbortHandle,
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectProxy {
    /// On a free loopback port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a loopback port")?;
        let address = listener.local_addr()?;
        let inside = Arc::new(Inside::default());
        let task = tokio::spawn(accept(listener, inside.clone())).abort_handle();
        Ok(Self { inside, address, task })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// As a setting has it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it does this.
    pub fn does(&self, does: Does) {
        *lock(&self.inside.does) = does;
    }

    /// Everything that it was asked so far.
    pub fn asked(&self) -> Vec<ConnectRequest> {
        lock(&self.inside.asked).clone()
    }
}

async fn accept(listener: TcpListener, inside: Arc<Inside>) {
    let mut conversations = JoinSet::new();
    while let Ok((stream, peer)) = listener.accept().await {
        conversations.spawn(converse(stream, peer, inside.clone()));
        while conversations.try_join_next().is_some() {}
    }
}

async fn converse(mut stream: TcpStream, peer: SocketAddr, inside: Arc<Inside>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_BYTES_MAX, "a head has an end");
        head.push(stream.read_u8().await?);
    }
    let asked = ConnectRequest { head: String::from_utf8(head)?, peer };
    let target = asked.target().to_owned();
    lock(&inside.asked).push(asked);
    let does = lock(&inside.does).clone();
    match does {
        Does::Connect => match TcpStream::connect(&target).await {
            Ok(mut other) => {
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                copy_bidirectional(&mut stream, &mut other).await?;
            }
            Err(_) => stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await?,
        },
        Does::Say(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
        }
        Does::SayAndHang(bytes) => {
            stream.write_all(&bytes).await?;
            // Ends when the other side gives up.
            stream.read_to_end(&mut Vec::new()).await?;
        }
    }
    Ok(())
}
