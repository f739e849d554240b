//! One HTTP exchange at a time: all that the command line needs of a client.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

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
            converse(TokioIo::new(stream), &base, ask).await
        } else {
            converse(TokioIo::new(tcp), &base, ask).await
        }
    };
    tokio::time::timeout(EXCHANGE_TIME_MAX, exchange).await.map_err(|_| anyhow!("{base} did not answer within 30 s"))?
}

async fn converse<IO>(io: IO, base: &Uri, ask: &Ask) -> anyhow::Result<Answer>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let connection = tokio::spawn(connection);
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let path = format!("{}{}", base.path().trim_end_matches('/'), ask.path);
    let mut request = Request::builder().method(&ask.method).uri(path).header("host", authority);
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    let body = Full::new(Bytes::from(ask.body.clone().unwrap_or_default()));
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
