//! One HTTP exchange at a time: all that the command line needs of a client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Usage;
use crate::tls_fault;

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

/// No connection could be made: whoever is asked got nothing of what was to be sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreached(String);

fn unanswered(base: &str) -> anyhow::Error {
    anyhow!("{base} did not answer within 30 s")
}

/// The variable that gives the address of the merchant API.
pub const URL: &str = "COUNTERSIGN_URL";
/// The variable that gives the address of the operator API.
pub const OPERATOR_URL: &str = "COUNTERSIGN_OPERATOR_URL";

/// By what an address was given, so far as can be told: the flag, or the variable that stands in for it.
pub fn given_by<'a>(
    flag: &'a str,
    variable: &'a str,
    address: &str,
    environment: &BTreeMap<String, String>,
) -> &'a str {
    if environment.get(variable).is_some_and(|value| value == address) { variable } else { flag }
}

/// What is said where no answer came: of a change that may have been done all the same, that too, and what to do then.
pub fn lost(error: anyhow::Error, writes: bool, said: &str, then: &str) -> anyhow::Error {
    let is_not_done = !writes || error.is::<Unreached>() || error.is::<Usage>();
    let said = said.to_owned();
    error.context(if is_not_done { said } else { format!("{said}, and it may have been done: {then}") })
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body as text; bytes that are no UTF-8 are replaced.
    pub body: String,
    /// The id that Countersign gave the request, whatever its headers begin with; none: somebody else answered.
    pub request_id: Option<String>,
}

impl Answer {
    /// Whether the server failed within, or somebody on the way gave up on it: a change may have been done. Our own 503 says that it was not.
    pub fn leaves_open(&self) -> bool {
        self.status.is_server_error() && (self.status != StatusCode::SERVICE_UNAVAILABLE || self.request_id.is_none())
    }
}

/// What is said of a change that was answered and may have been done all the same, and what to do then.
pub fn unsure(said: &anyhow::Error, then: &str) -> anyhow::Error {
    anyhow!("{said} (it may have been done: {then})")
}

/// The end of the name of the header with a request's id: what it begins with is a setting.
const REQUEST_ID_NAME_END: &str = "-request-id";
/// How long such an id is: so many lowercase hexadecimal digits.
const REQUEST_ID_LEN: usize = 28;

fn request_id(headers: &HeaderMap) -> Option<String> {
    let is_id =
        |id: &&str| id.len() == REQUEST_ID_LEN && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let named = headers.iter().filter(|(name, _)| name.as_str().ends_with(REQUEST_ID_NAME_END));
    named.filter_map(|(_, value)| value.to_str().ok()).find(is_id).map(str::to_owned)
}

/// Sends `ask` to `base` (`http://host:port` or `https://host`) and reads the answer, within 30 s.
pub async fn exchange(base: &str, ask: &Ask) -> anyhow::Result<Answer> {
    let exchange = async { begin(base, ask).await?.whole().await };
    tokio::time::timeout(EXCHANGE_TIME_MAX, exchange).await.map_err(|_| unanswered(base))?
}

/// What came back, its body still on the way.
pub struct Arriving {
    /// The status.
    pub status: StatusCode,
    request_id: Option<String>,
    body: Incoming,
    from: String,
    connection: JoinHandle<()>,
}

impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Arriving {
    /// The next piece of the body, within 30 s; none: it is whole.
    pub async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            let Ok(next) = tokio::time::timeout(EXCHANGE_TIME_MAX, self.body.frame()).await else {
                bail!("{} sent nothing for 30 s", self.from);
            };
            let Some(frame) = next else { return Ok(None) };
            let frame = frame.map_err(|error| anyhow!("{} broke off: {error}", self.from))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The whole, where it is small.
    pub async fn whole(mut self) -> anyhow::Result<Answer> {
        let body = Limited::new(&mut self.body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow!("{} broke off: {error}", self.from))?;
        let request_id = self.request_id.take();
        Ok(Answer { status: self.status, body: String::from_utf8_lossy(&body.to_bytes()).into_owned(), request_id })
    }
}

/// Sends `ask` and gives the answer as it begins, within 30 s; its body may be of any length.
pub async fn open(base: &str, ask: &Ask) -> anyhow::Result<Arriving> {
    let begun = tokio::time::timeout(EXCHANGE_TIME_MAX, begin(base, ask)).await;
    begun.map_err(|_| unanswered(base))?
}

/// Sends `ask` and gives each part of an answer that says yes to `take`, as it comes: however long it all takes, each part comes within 30 s.
/// The answer that is returned then has no body. One that refuses is read whole.
pub async fn stream(
    base: &str,
    ask: &Ask,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Answer> {
    let mut answer = open(base, ask).await?;
    let status = answer.status;
    if !status.is_success() {
        let whole = tokio::time::timeout(EXCHANGE_TIME_MAX, answer.whole()).await;
        return whole.map_err(|_| anyhow!("{base} sent nothing for 30 s"))?;
    }
    while let Some(part) = answer.next().await? {
        take(&part)?;
    }
    Ok(Answer { status, body: String::new(), request_id: answer.request_id.take() })
}

/// The address of a server: `http://host:port` or `https://host`, with nothing of who calls. What may be a password is repeated by no refusal.
pub fn address(base: &str) -> anyhow::Result<Uri> {
    demand_nobody(base)?;
    let uri: Uri = base
        .trim_end_matches('/')
        .parse()
        .map_err(|error| Usage(format!("{base:?} is no address such as http://127.0.0.1:8080: {error}")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        bail!(Usage(format!("{base:?} must begin with http:// or https://")));
    }
    demand_port(&uri)?;
    ensure!(
        uri.query().is_none() && !base.contains('#'),
        Usage("the address of a server is scheme, host, port and path: leave out what begins with ? or #".to_owned())
    );
    Ok(uri)
}

/// Refuses an address in which anything but a port stands behind the host: whoever has the scheme's own port would get what is meant for another.
pub fn demand_port(uri: &Uri) -> anyhow::Result<()> {
    let is_port = |digits: &str| {
        (1..=5).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let host = uri.host().unwrap_or_default();
    let behind = uri.authority().and_then(|place| place.as_str().strip_prefix(host));
    ensure!(
        behind.is_some_and(|behind| behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port)),
        Usage(format!("behind the host {host} of a URL belongs a colon with a port from 1 to 65535, or nothing"))
    );
    Ok(())
}

/// Refuses a URL in which somebody is named: nothing here sends that, and the URL stands in messages.
pub fn demand_nobody(url: &str) -> anyhow::Result<()> {
    let uri = url.parse::<Uri>().ok();
    // In what is no URL, or has a port that is none, any @ may be that of a password.
    let is_whole = |place: &&Authority| place.host() == place.as_str() || place.port_u16().is_some();
    let place = uri.as_ref().and_then(Uri::authority).filter(is_whole).map_or(url, Authority::as_str);
    ensure!(
        !place.contains('@'),
        Usage("no user name and no password belong into a URL: write it without what stands up to the @".to_owned())
    );
    Ok(())
}

async fn begin(base: &str, ask: &Ask) -> anyhow::Result<Arriving> {
    let base = address(base)?;
    begin_over(connect(&base).await?, &base, ask).await
}

/// What an address says that is asked by http:// and answers something else.
pub const NO_HTTP: &str = "does not answer in HTTP: where it speaks TLS, say https://";

/// Whether over TLS, the host as it is written, and the port.
fn place(base: &Uri) -> (bool, &str, u16) {
    let tls = base.scheme_str() == Some("https");
    (tls, base.host().unwrap_or_default(), base.port_u16().unwrap_or(if tls { 443 } else { 80 }))
}

async fn connect(base: &Uri) -> anyhow::Result<TcpStream> {
    let (_, host, port) = place(base);
    let tcp = TcpStream::connect((bare(host), port))
        .await
        .with_context(|| Unreached(format!("{host}:{port} cannot be reached")))?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// An address of IPv6 without its brackets.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

async fn begin_over(tcp: TcpStream, base: &Uri, ask: &Ask) -> anyhow::Result<Arriving> {
    let (tls, host, port) = place(base);
    if tls {
        let name = ServerName::try_from(bare(host).to_owned())?;
        let stream = tokio_rustls::TlsConnector::from(trust()?)
            .connect(name, tcp)
            .await
            .map_err(|error| Unreached(format!("no TLS with {host}:{port}: {}", tls_fault::words(&error))))?;
        converse(TokioIo::new(stream), base, ask).await
    } else {
        let answer = converse(TokioIo::new(tcp), base, ask).await;
        let is_no_http =
            |error: &anyhow::Error| error.chain().any(|cause| cause.downcast_ref().is_some_and(hyper::Error::is_parse));
        answer.map_err(|error| if is_no_http(&error) { anyhow!("{host}:{port} {NO_HTTP}") } else { error })
    }
}

async fn converse<IO>(io: IO, base: &Uri, ask: &Ask) -> anyhow::Result<Arriving>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let connection = tokio::spawn(async move {
        // Whoever reads the answer hears of what went wrong.
        let _ = connection.await;
    });
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let path = format!("{}{}", base.path().trim_end_matches('/'), ask.path);
    let mut request = Request::builder().method(&ask.method).uri(path).header("host", authority);
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    let body = Full::new(Bytes::from(ask.body.clone().unwrap_or_default()));
    let answer = sender.send_request(request.body(body)?).await.with_context(|| format!("{authority} broke off"))?;
    let (status, from) = (answer.status(), authority.to_owned());
    let request_id = request_id(answer.headers());
    Ok(Arriving { status, request_id, body: answer.into_body(), from, connection })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_or_names_somebody_is_wrong_usage_and_no_password_is_repeated() {
        for good in ["http://127.0.0.1:8080", "https://pay.example/", "http://[::1]:1", "https://pay.example/a/b"] {
            assert!(address(good).is_ok(), "{good}");
        }
        let refused = |text: &str| {
            let error = address(text).expect_err(text);
            assert!(error.is::<Usage>(), "{text}");
            error.to_string()
        };
        for named in [
            "http://me:canary@127.0.0.1:1",
            "http://me@127.0.0.1",
            "http://me:can ary@127.0.0.1:1",
            "http://me:can/ary@127.0.0.1:1",
            "ftp://me:canary@h",
            "me:canary@h",
        ] {
            let wanted = "no user name and no password belong into a URL: write it without what stands up to the @";
            assert_eq!(refused(named), wanted, "{named}");
        }
        assert!(refused("http://a b").starts_with("\"http://a b\" is no address such as http://127.0.0.1:8080: "));
        for more in ["http://127.0.0.1:1?x=1", "http://127.0.0.1:1/#x", "https://pay.example/a?"] {
            assert!(refused(more).ends_with("leave out what begins with ? or #"), "{more}");
        }
        assert_eq!(refused("nonsense"), "\"nonsense\" must begin with http:// or https://");
        assert_eq!(refused("ftp://h"), "\"ftp://h\" must begin with http:// or https://");
    }

    #[test]
    fn what_stands_behind_the_host_is_a_port_or_no_address() {
        for (good, wanted) in [
            ("http://h", 80),
            ("https://h/a:b", 443),
            ("http://h:1", 1),
            ("http://h:65535", 65535),
            ("http://h:08081", 8081),
            ("https://[::1]", 443),
            ("http://[::1]:8081", 8081),
        ] {
            let uri = address(good).expect(good);
            assert_eq!(place(&uri).2, wanted, "{good}");
        }
        for host in ["h", "127.0.0.1", "[::1]"] {
            for behind in [":", ":0", ":65536", ":99999", ":808081", ":008081", ":+8081", ":-1", ":8o81", ":80:80"] {
                let error = address(&format!("http://{host}{behind}")).expect_err(behind);
                assert!(error.is::<Usage>(), "{host}{behind}: {error}");
            }
            let wanted =
                format!("behind the host {host} of a URL belongs a colon with a port from 1 to 65535, or nothing");
            assert_eq!(address(&format!("http://{host}:99999")).expect_err(host).to_string(), wanted);
        }
        assert!(address("http://[::1]8081").is_err(), "a colon is missing");
    }

    #[test]
    fn a_change_whose_answer_was_lost_may_have_been_done_and_whoever_asked_is_told() {
        let said = |error: anyhow::Error, writes| lost(error, writes, "it did not answer", "look").to_string();
        let broke_off = || anyhow!("h broke off");
        assert_eq!(said(broke_off(), true), "it did not answer, and it may have been done: look");
        assert_eq!(said(broke_off(), false), "it did not answer");
        let unreached = anyhow!("refused").context(Unreached("h cannot be reached".to_owned()));
        assert_eq!(said(unreached, true), "it did not answer");
        assert_eq!(said(anyhow!(Usage("no address".to_owned())), true), "it did not answer");
    }
}
