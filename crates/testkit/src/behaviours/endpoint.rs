//! An endpoint on bare sockets that does one thing to every connection: each byte is ours.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DnType};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::interval;
use tokio_rustls::TlsAcceptor;

use crate::refusing::Refusing;

/// Between two bytes that are dripped.
const DRIP_EVERY: Duration = Duration::from_secs(1);
/// What goes out at once where there is no end of it.
const FLOOD_BYTES: usize = 16 * 1024;

/// How far a conversation goes before it ends or stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The connection was taken.
    Accept,
    /// The first bytes of the TLS handshake came.
    Hello,
    /// The request's head came.
    Head,
    /// The whole request came.
    Body,
    /// A part of the answer's head was sent.
    AnswerHead,
    /// The answer's head and a part of its body were sent.
    AnswerBody,
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It ended in 2020.
    Expired,
    /// It is for another name.
    OtherName,
    /// Nobody that is trusted has signed it.
    Stranger,
}

/// What an endpoint does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// Nobody listens.
    Refuse,
    /// It resets the connection.
    Reset(At),
    /// It does nothing more, for as long as the other side waits.
    Hang(At),
    /// It reads the request, says this, and closes.
    Say(Vec<u8>),
    /// It reads the request, says the first, and then the second without end.
    SayOn(Vec<u8>, Vec<u8>),
    /// It reads the request, says the first, and then the second a byte at a time.
    Drip(Vec<u8>, Vec<u8>),
    /// It answers the TLS hello with this, and closes.
    Greet(Vec<u8>),
    /// It speaks TLS with a certificate that is not good.
    Show(Flaw),
}

impl Does {
    fn is_tls(&self) -> bool {
        matches!(self, Self::Reset(At::Hello) | Self::Hang(At::Hello) | Self::Greet(_) | Self::Show(_))
    }
}

/// The endpoint. It ends when it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    url: String,
    trusted: Option<String>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Listens(AbortHandle),
    /// Held, so that it goes on to refuse.
    #[expect(dead_code, reason = "held, not read")]
    Refuses(Refusing),
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Work::Listens(task) = &self.work {
            task.abort();
        }
    }
}

impl Endpoint {
    /// Listens on a free loopback port.
    pub async fn start(does: &Does) -> Result<Self> {
        if *does == Does::Refuse {
            let port = Refusing::take()?;
            return Ok(Self { url: url(does, port.address()?), trusted: None, work: Work::Refuses(port) });
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a loopback port")?;
        let url = url(does, listener.local_addr()?);
        let (tls, trusted) = match does {
            Does::Show(flaw) => {
                let (acceptor, pem) = flawed(*flaw)?;
                (Some(acceptor), (*flaw != Flaw::Stranger).then_some(pem))
            }
            Does::Refuse
            | Does::Reset(_)
            | Does::Hang(_)
            | Does::Say(_)
            | Does::SayOn(..)
            | Does::Drip(..)
            | Does::Greet(_) => (None, None),
        };
        let task = tokio::spawn(accept(listener, tls, Arc::new(does.clone())));
        Ok(Self { url, trusted, work: Work::Listens(task.abort_handle()) })
    }

    /// The callback URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A certificate, PEM, that is to be trusted: what is wrong with it is something else.
    pub fn trusted(&self) -> Option<&str> {
        self.trusted.as_deref()
    }
}

fn url(does: &Does, address: SocketAddr) -> String {
    let scheme = if does.is_tls() { "https" } else { "http" };
    format!("{scheme}://{address}/callbacks")
}

/// An acceptor with a certificate that has this flaw, and the certificate.
fn flawed(flaw: Flaw) -> Result<(TlsAcceptor, String)> {
    let name = if flaw == Flaw::OtherName { "other.example" } else { "127.0.0.1" };
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    // Each an authority of its own name, or one could pass for the other's.
    params.distinguished_name.push(DnType::CommonName, format!("{flaw:?}"));
    if flaw == Flaw::Expired {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let pair = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&pair)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), certificate.pem()))
}

/// All conversations end with this task.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, does: Arc<Does>) {
    let mut conversations = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        let (tls, does) = (tls.clone(), does.clone());
        // What goes wrong is the other side's to notice.
        conversations.spawn(async move { drop(converse(tcp, tls, &does).await) });
        while conversations.try_join_next().is_some() {}
    }
}

async fn converse(mut tcp: TcpStream, tls: Option<TlsAcceptor>, does: &Does) -> Result<()> {
    match does {
        Does::Refuse => {}
        Does::Show(_) => {
            if let Some(tls) = tls {
                tls.accept(tcp).await?;
            }
        }
        Does::Reset(at) => {
            go_to(&mut tcp, *at).await?;
            tcp.set_zero_linger()?;
        }
        Does::Hang(at) => {
            go_to(&mut tcp, *at).await?;
            drain(&mut tcp).await?;
        }
        Does::Say(bytes) => {
            read_request(&mut tcp).await?;
            tcp.write_all(bytes).await?;
            close(tcp).await?;
        }
        Does::SayOn(first, again) => {
            read_request(&mut tcp).await?;
            tcp.write_all(first).await?;
            let flood = again.repeat(FLOOD_BYTES.div_ceil(again.len().max(1)));
            loop {
                tcp.write_all(&flood).await?;
            }
        }
        Does::Drip(first, slowly) => {
            read_request(&mut tcp).await?;
            tcp.write_all(first).await?;
            let mut ticks = interval(DRIP_EVERY);
            for byte in slowly {
                ticks.tick().await;
                tcp.write_all(&[*byte]).await?;
            }
        }
        Does::Greet(bytes) => {
            read_some(&mut tcp).await?;
            tcp.write_all(bytes).await?;
            close(tcp).await?;
        }
    }
    Ok(())
}

/// Whatever the other side still sends is read: a close with bytes unread would be a reset.
async fn close(mut tcp: TcpStream) -> Result<()> {
    tcp.shutdown().await?;
    drain(&mut tcp).await
}

async fn drain(tcp: &mut TcpStream) -> Result<()> {
    while read_some(tcp).await? > 0 {}
    Ok(())
}

async fn read_some(tcp: &mut TcpStream) -> Result<usize> {
    Ok(tcp.read(&mut [0; 4_096]).await?)
}

async fn go_to(tcp: &mut TcpStream, at: At) -> Result<()> {
    match at {
        At::Accept => {}
        At::Hello => {
            read_some(tcp).await?;
        }
        At::Head => {
            read_head(tcp).await?;
        }
        At::Body => read_request(tcp).await?,
        At::AnswerHead => {
            read_request(tcp).await?;
            tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Ty").await?;
        }
        At::AnswerBody => {
            read_request(tcp).await?;
            tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n{\"returnCode\"").await?;
        }
    }
    Ok(())
}

/// Reads byte by byte, so that the body stays where it is.
async fn read_head(tcp: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).to_ascii_lowercase())
}

async fn read_request(tcp: &mut TcpStream) -> Result<()> {
    let head = read_head(tcp).await?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.context("the request says how long its body is")?.trim().parse()?];
    tcp.read_exact(&mut body).await?;
    Ok(())
}
