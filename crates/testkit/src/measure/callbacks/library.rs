//! A yardstick: the HTTP library by itself. A connection for each of those who post, headers made and signed afresh, the answer read and
//! understood; no deadline, no guard, nothing written down.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use countersign_protocol::callback::{Acknowledgement, callback_nonce, read_acknowledgement};
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, spawn_local};
use tokio_rustls::TlsConnector;

use super::AT_ONCE;
use crate::wire::wall_ms;

/// A request as a merchant got it: its headers, where what is made anew stands among them, and its body.
#[derive(Clone, Debug)]
struct Sample {
    headers: HeaderMap,
    target: String,
    body: Bytes,
}

impl Sample {
    fn of(request: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(request)?;
        let (head, body) = text.split_once("\r\n\r\n").context("a head")?;
        let mut lines = head.split("\r\n");
        let target = lines.next().and_then(|line| line.split(' ').nth(1)).context("a request line")?.to_owned();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").context("a header")?;
            headers.insert(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
        }
        Ok(Self { headers, target, body: Bytes::copy_from_slice(body.as_bytes()) })
    }

    fn signed(&self, key: &SigningKey, bits: u128) -> Result<Request<Full<Bytes>>> {
        let (timestamp, nonce) = (format!("{:013}", wall_ms()), callback_nonce(bits));
        let signature = encode_signature(&key.sign(&timestamp, &nonce, &self.body), Encoding::Hex);
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let value = match name.as_str() {
                "x-service-signature" => HeaderValue::try_from(&signature)?,
                "x-service-timestamp" => HeaderValue::try_from(&timestamp)?,
                "x-service-nonce" => HeaderValue::try_from(&nonce)?,
                _ => value.clone(),
            };
            headers.insert(name, value);
        }
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.parse()?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Whom it posts to, and how.
#[derive(Clone)]
pub(super) struct To {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<TlsConnector>,
    /// Over a connection for each.
    pub(super) anew: bool,
}

impl To {
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => shaken(stream).await,
            Some(tls) => shaken(tls.connect(ServerName::from(self.address.ip()), stream).await?).await,
        }
    }
}

/// As the dispatcher has it, but that it trusts this certificate alone (PEM).
pub(in crate::measure) fn trusting(pem: &[u8]) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

async fn shaken(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = Builder::new().title_case_headers(true).handshake(TokioIo::new(stream)).await?;
    spawn_local(connection);
    Ok(sender)
}

/// Posts so many.
pub(super) async fn post(to: &To, sample: &[u8], wanted: usize) -> Result<()> {
    let left = Rc::new(Cell::new(wanted));
    let mut tasks = JoinSet::new();
    for own in 0..AT_ONCE {
        let (left, sample, to) = (left.clone(), Sample::of(sample)?, to.clone());
        tasks.spawn_local(async move {
            let key = SigningKey::new(b"a key that nobody checks, as long as a real one is: 64 bytes....");
            let mut sender = to.connect().await?;
            let mut is_used = false;
            while left.get() > 0 {
                left.set(left.get() - 1);
                if to.anew && is_used {
                    sender = to.connect().await?;
                }
                is_used = true;
                let bits = (own << 32 | left.get()) as u128;
                sender.ready().await?;
                let answer = sender.send_request(sample.signed(&key, bits)?).await?;
                ensure!(answer.status().is_success(), "a callback was answered {}", answer.status());
                let body = answer.into_body().collect().await?.to_bytes();
                ensure!(matches!(read_acknowledgement(&body), Acknowledgement::Success), "a callback was refused");
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
