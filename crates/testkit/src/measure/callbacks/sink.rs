//! A receiver that costs as little as it can: it says SUCCESS to every request, counts them, and keeps the first one as it came.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use rcgen::CertificateParams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::measure::load::length;
use crate::patience::until;
use crate::receiver::{Clients, acceptor};

/// What it says.
pub(super) const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 24\r\n\r\n{\"returnCode\":\"SUCCESS\"}";
/// The same of who closes the connection behind it.
const LAST_ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 24\r\n\r\n{\"returnCode\":\"SUCCESS\"}";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Came {
    requests: Cell<usize>,
    first: RefCell<Vec<u8>>,
}

/// The receiver; it lives as long as its thread's tasks run.
#[derive(Debug)]
pub struct Sink {
    /// Where it listens.
    pub address: SocketAddr,
    came: Rc<Came>,
}

impl Sink {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        Self::listen(None, true).await
    }

    /// The same over TLS, and the certificate that it shows (PEM). `keeps`: it keeps its connections.
    pub async fn start_tls(keeps: bool) -> Result<(Self, String)> {
        let (acceptor, pem) = acceptor(&CertificateParams::new(vec!["127.0.0.1".to_owned()])?, &Clients::All)?;
        Ok((Self::listen(Some(acceptor), keeps).await?, pem))
    }

    async fn listen(tls: Option<TlsAcceptor>, keeps: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, came) = (listener.local_addr()?, Rc::<Came>::default());
        let of_all = came.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, came) = (tls.clone(), of_all.clone());
                let _ = stream.set_nodelay(true);
                tokio::task::spawn_local(async move {
                    match tls {
                        None => answer(stream, came, keeps).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, came, keeps).await;
                            }
                        }
                    }
                });
            }
        });
        Ok(Self { address, came })
    }

    /// Requests so far.
    pub fn count(&self) -> usize {
        self.came.requests.get()
    }

    /// The first request of all.
    pub fn first(&self) -> Vec<u8> {
        self.came.first.borrow().clone()
    }

    /// Waits for so many.
    pub async fn wait_for(&self, count: usize) -> Result<()> {
        until("the callbacks come", PATIENCE, async || Ok((self.count() >= count).then_some(()))).await?;
        Ok(())
    }
}

/// Serves a connection until its client has closed it, or for one request.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, came: Rc<Came>, keeps: bool) {
    let (mut buffer, mut have) = (vec![0; 16 * 1024], 0);
    while let Ok(read) = stream.read(&mut buffer[have..]).await {
        have += read;
        if read == 0 {
            return;
        }
        // One request at a time is under way on a connection.
        let head = buffer[..have].windows(4).position(|w| w == b"\r\n\r\n");
        let Some(end) = head.map(|end| end + 4 + length(&buffer[..end])).filter(|end| have >= *end) else { continue };
        if came.requests.replace(came.requests.get() + 1) == 0 {
            came.first.replace(buffer[..end].to_vec());
        }
        have = 0;
        if stream.write_all(if keeps { ANSWER } else { LAST_ANSWER }).await.is_err() {
            return;
        }
        if !keeps {
            let _ = stream.shutdown().await;
            return;
        }
    }
}
