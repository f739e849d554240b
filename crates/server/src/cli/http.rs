//! One HTTP exchange at a time: all that the command line needs of a client.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Interval, interval};

const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is sent.
#[derive(Clone, Debug)]
pub struct Ask {
    /// GET, POST, ...
    pub method: Method,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
    /// The body; none sends none.
    pub body: Option<Vec<u8>>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body as text; bytes that are no UTF-8 are replaced.
    pub body: String,
}

/// Sends `ask` to `base` (`http://host:port` or `https://host`) and reads the answer, within 30 s.
pub async fn exchange(base: &str, ask: &Ask) -> anyhow::Result<Answer> {
    let body = Full::new(Bytes::from(ask.body.clone().unwrap_or_default()));
    exchange_body(base, ask, body).await
}

/// The same with a body that goes out in so many pieces, a pause before each but the first.
pub async fn exchange_in_pieces(base: &str, ask: &Ask, pieces: usize, pause: Duration) -> anyhow::Result<Answer> {
    let body = ask.body.clone().unwrap_or_default();
    let each = body.len().div_ceil(pieces.max(1)).max(1);
    let left: VecDeque<Bytes> = body.chunks(each).map(Bytes::copy_from_slice).collect();
    exchange_body(base, ask, InPieces { left, pause: interval(pause) }).await
}

/// A body whose pieces take their time. Its length is known from the start.
struct InPieces {
    left: VecDeque<Bytes>,
    pause: Interval,
}

impl Body for InPieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        ready!(self.pause.poll_tick(context));
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.iter().map(|piece| piece.len() as u64).sum())
    }
}

async fn exchange_body<B>(base: &str, ask: &Ask, body: B) -> anyhow::Result<Answer>
where
    B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
{
    let exchange = async {
        let base: Uri = base
            .trim_end_matches('/')
            .parse()
            .with_context(|| format!("{base:?} is no address such as http://127.0.0.1:8080"))?;
        let host = base.host().ok_or_else(|| anyhow!("{base} names no host"))?;
        let bare_host = host.trim_matches(['[', ']']);
        let tls = match base.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("{base} must begin with http:// or https://"),
        };
        let port = base.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let tcp =
            TcpStream::connect((bare_host, port)).await.with_context(|| format!("{host}:{port} cannot be reached"))?;
        tcp.set_nodelay(true)?;
        if tls {
            let name = ServerName::try_from(bare_host.to_owned())?;
            let stream = tokio_rustls::TlsConnector::from(trust()?)
                .connect(name, tcp)
                .await
                .with_context(|| format!("no TLS with {host}:{port}"))?;
            converse(TokioIo::new(stream), &base, ask, body).await
        } else {
            converse(TokioIo::new(tcp), &base, ask, body).await
        }
    };
    tokio::time::timeout(EXCHANGE_TIME_MAX, exchange).await.map_err(|_| anyhow!("{base} did not answer within 30 s"))?
}

async fn converse<IO, B>(io: IO, base: &Uri, ask: &Ask, body: B) -> anyhow::Result<Answer>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let connection = tokio::spawn(connection);
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let path = format!("{}{}", base.path().trim_end_matches('/'), ask.path);
    let mut request = Request::builder().method(&ask.method).uri(path).header("host", authority);
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    let answer = sender.send_request(request.body(body)?).await.with_context(|| format!("{authority} broke off"))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| anyhow!("{authority} broke off: {error}"))?;
    connection.abort();
    Ok(Answer { status, body: String::from_utf8_lossy(&body.to_bytes()).into_owned() })
}

fn trust() -> anyhow::Result<Arc<rustls::ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        bail!("this machine has no certificate authorities to check a server by");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
