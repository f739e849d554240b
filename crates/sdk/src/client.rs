//! The client: signs, sends, follows the server's clock, reads the envelope.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use countersign_protocol::code::Code;
use countersign_protocol::endpoint;
use countersign_protocol::headers::{HeaderNames, Prefixes, read_timestamp};
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Url};

use crate::ambient::Ambient;
use crate::answer::{Answer, transport};
use crate::error::Error;
use crate::identity;
use crate::secret::{Secret, SecretRefused};
use crate::tls::{self, Roots};

/// The prefix of header names unless another is chosen.
pub const HEADER_PREFIX_DEFAULT: &str = "X-Service-";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The server closes a connection on which nothing was asked for 30 s: one that is taken up at that moment would lose its request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(25);

/// How a client is set up; see [`Client::builder`].
pub struct ClientBuilder {
    base_url: String,
    client_id: String,
    secret: Result<Secret, SecretRefused>,
    merchant_id: Option<String>,
    on_behalf_of: Option<String>,
    header_prefix: String,
    timeout: Duration,
    roots: Roots,
    proxy: Option<String>,
    ambient: Ambient,
}

impl fmt::Debug for ClientBuilder {
    /// Without what may carry a password: key, base URL, proxy, and what stands in the ClientId's place and is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("client_id", &identity::check_client_id(&self.client_id).is_ok().then_some(&self.client_id))
            .field("merchant_id", &self.merchant_id)
            .field("on_behalf_of", &self.on_behalf_of)
            .field("header_prefix", &self.header_prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// The main merchant that this application belongs to; the fee-rule operations demand it. Taken as it is given: nothing is trimmed.
    #[must_use]
    pub fn merchant_id(mut self, id: impl Into<String>) -> Self {
        self.merchant_id = Some(id.into());
        self
    }

    /// The sub-account that is spoken for. Taken as it is given: nothing is trimmed.
    #[must_use]
    pub fn on_behalf_of(mut self, id: impl Into<String>) -> Self {
        self.on_behalf_of = Some(id.into());
        self
    }

    /// What header names begin with, where the deployment says otherwise than `X-Service-`.
    #[must_use]
    pub fn header_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.header_prefix = prefix.into();
        self
    }

    /// How long one request may take from connecting to its last byte; 30 s unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Trusts these certificates (PEM) and no others, instead of the machine's own list, which the environment can name: `SSL_CERT_FILE`, `SSL_CERT_DIR`.
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Roots::Only(pem.into());
        self
    }

    /// Goes through this proxy, to a base URL that is https. Without it no proxy is used, whatever the environment says.
    #[must_use]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Where the time comes from, in Unix milliseconds: for tests.
    #[must_use]
    pub fn clock(mut self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        self.ambient.now_ms = Arc::new(now_ms);
        self
    }

    /// Where nonces come from, 128 bits at a time: for tests. A nonce that repeats is refused by the server.
    #[must_use]
    pub fn chance(mut self, bits128: impl Fn() -> u128 + Send + Sync + 'static) -> Self {
        self.ambient.bits128 = Arc::new(bits128);
        self
    }

    /// The client. Refuses a base URL that is not https, but for the machine's own addresses; what can be no [`Secret`]; a ClientId that is a
    /// secret; and a ClientId, MerchantId or On-Behalf-Of that is empty or that no header can hold. Nothing is trimmed: cut off yourself the
    /// line feed that a file ends with.
    pub fn build(self) -> Result<Client, Error> {
        let base_url = base_url(&self.base_url)?;
        identity::check_client_id(&self.client_id)?;
        self.merchant_id.as_deref().map_or(Ok(()), identity::check_merchant_id)?;
        self.on_behalf_of.as_deref().map_or(Ok(()), identity::check_on_behalf_of)?;
        let key = RwLock::new(self.secret?.into_key());
        let prefixes =
            Prefixes::new(std::slice::from_ref(&self.header_prefix)).map_err(|e| Error::Usage(e.to_string()))?;
        if self.proxy.is_some() && base_url.scheme() != "https" {
            let why = "a proxy needs a base URL that begins with https://: it would read all that is sent in the clear";
            return Err(Error::Usage(why.to_owned()));
        }
        let roots = if base_url.scheme() == "https" { self.roots } else { Roots::None };
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config(&roots)?)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never()) // The same bytes again would be a replay.
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .timeout(self.timeout)
            .user_agent(concat!("countersign-sdk/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if let Some(proxy) = &self.proxy {
            http = http
                .proxy(reqwest::Proxy::all(proxy).map_err(|e| Error::Usage(format!("the proxy cannot be used: {e}")))?);
        }
        let shared = Shared {
            http: http.build().map_err(|e| Error::Usage(format!("the HTTP client cannot be set up: {e}")))?,
            base_url,
            client_id: self.client_id,
            key,
            names: prefixes.first().clone(),
            ambient: self.ambient,
            offset_ms: AtomicI64::new(0),
        };
        Ok(Client { shared: Arc::new(shared), merchant_id: self.merchant_id, on_behalf_of: self.on_behalf_of })
    }
}

fn base_url(text: &str) -> Result<Url, Error> {
    let refuse = |why: &str| Error::Usage(format!("the base URL {why}")); // Its text may carry a password.
    let url = Url::parse(text.trim_end_matches('/')).map_err(|e| refuse(&format!("cannot be read: {e}")))?;
    let host = url.host_str().ok_or_else(|| refuse("has no host"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("must be scheme, host, port and path only"));
    }
    let local = host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if local => Ok(url),
        "http" => Err(refuse("must begin with https://: only this machine's own addresses are spoken to in the clear")),
        _ => Err(refuse("must begin with https://")),
    }
}

/// A merchant's client. Cheap to clone; clones share connections and what was learned of the server's clock.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    merchant_id: Option<String>,
    on_behalf_of: Option<String>,
}

struct Shared {
    http: reqwest::Client,
    base_url: Url,
    client_id: String,
    key: RwLock<SigningKey>,
    names: HeaderNames,
    ambient: Ambient,
    /// Server's clock minus ours, as far as we know.
    offset_ms: AtomicI64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.shared.base_url.as_str())
            .field("client_id", &self.shared.client_id)
            .field("merchant_id", &self.merchant_id)
            .field("on_behalf_of", &self.on_behalf_of)
            .finish_non_exhaustive()
    }
}

/// Whether a request carries identity and signature.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signed {
    /// Stamped with this time, in Unix milliseconds.
    At(i64),
    No,
}

/// Whether a time has the form of a timestamp, 13 digits. The server refuses another one before it looks at the time.
fn is_timestamp(ms: i64) -> bool {
    read_timestamp(ms.to_string().as_bytes()).is_some()
}

impl Client {
    /// A client of the application `client_id` at `base_url`. The secret's text is wiped as soon as its key is made; what is wrong
    /// with one of the three, [`ClientBuilder::build`] says.
    pub fn builder<S>(base_url: impl Into<String>, client_id: impl Into<String>, secret: S) -> ClientBuilder
    where
        S: TryInto<Secret>,
        SecretRefused: From<S::Error>,
    {
        ClientBuilder {
            base_url: base_url.into(),
            client_id: client_id.into(),
            secret: secret.try_into().map_err(SecretRefused::from),
            merchant_id: None,
            on_behalf_of: None,
            header_prefix: HEADER_PREFIX_DEFAULT.to_owned(),
            timeout: CALL_TIMEOUT,
            roots: Roots::System,
            proxy: None,
            ambient: Ambient::default(),
        }
    }

    /// The same client, speaking for a sub-account. Taken as it is given: nothing is trimmed, and where no header can hold it, each
    /// call says so.
    #[must_use]
    pub fn on_behalf_of(&self, id: impl Into<String>) -> Self {
        Self { on_behalf_of: Some(id.into()), ..self.clone() }
    }

    /// The application that it signs for.
    pub fn client_id(&self) -> &str {
        &self.shared.client_id
    }

    /// The sub-account that is spoken for.
    pub(crate) fn speaks_for(&self) -> Option<&str> {
        self.on_behalf_of.as_deref()
    }

    /// Signs with this secret from now on: after a rotation, while calls are made. Clones have it, too. Refused, and then nothing has changed, where
    /// it can be no [`Secret`].
    pub fn set_secret<S>(&self, secret: S) -> Result<(), Error>
    where
        S: TryInto<Secret>,
        SecretRefused: From<S::Error>,
    {
        let secret = secret.try_into().map_err(SecretRefused::from)?;
        *self.shared.key.write().unwrap_or_else(PoisonError::into_inner) = secret.into_key();
        Ok(())
    }

    /// The server's clock minus ours in ms, as far as it was learned; 0 until a timestamp was refused. One of more than some seconds
    /// deserves an alarm: this machine's clock is wrong, and what else goes by it, too.
    pub fn clock_offset_ms(&self) -> i64 {
        self.shared.offset_ms.load(Ordering::Relaxed)
    }

    /// Asks for the server's time, and goes by it from then on, as clones do; says by how many ms it is ahead of ours. A call does so by itself where its
    /// timestamp is refused, but a verifier that goes by [`server_now_ms`](Self::server_now_ms) needs it before the first call. [`Error::Unreadable`]
    /// where the time that was told has not 13 digits. What was learned before stays where it fails.
    pub async fn learn_clock(&self) -> Result<i64, Error> {
        let (server_ms, ours_ms) = self.ask_time().await?;
        self.shared.offset_ms.store(server_ms.saturating_sub(ours_ms), Ordering::Relaxed);
        Ok(self.clock_offset_ms())
    }

    /// One signed call of any method and path, such as `("GET", "/v1/pay/convert/order?orderId=1", b"")`; the answer as it came,
    /// refusals too. If the timestamp is refused, the server's clock is asked and the call repeated once.
    pub async fn call(&self, method: &str, path_and_query: &str, body: &[u8]) -> Result<Answer, Error> {
        let stamp_ms = self.server_now_ms();
        let first = self.send(method, path_and_query, body, Signed::At(stamp_ms)).await?;
        let code = first.code();
        // INVALID_PARAMETER: the clock, or the offset that was learned, is so wrong that the stamp was no timestamp. Only the server's time puts that
        // right.
        let is_for_its_time = code == Some(Code::TimestampOutOfRange)
            || (code == Some(Code::InvalidParameter) && !is_timestamp(stamp_ms));
        if !is_for_its_time {
            return Ok(first);
        }
        let refused_at_ms = (self.shared.ambient.now_ms)();
        // Refused before anything was done: to repeat it, with another nonce, is safe.
        if self.learn_offset(&first, refused_at_ms).await {
            self.send(method, path_and_query, body, Signed::At(self.server_now_ms())).await
        } else {
            Ok(first)
        }
    }

    /// One call without identity and signature.
    pub(crate) async fn call_unsigned(&self, method: &str, path_and_query: &str) -> Result<Answer, Error> {
        self.send(method, path_and_query, b"", Signed::No).await
    }

    /// The server's time in Unix milliseconds, as far as it was learned: this machine's until a timestamp was refused. For a
    /// [`CallbackVerifier`](crate::CallbackVerifier::clock) on a machine whose clock may be wrong.
    pub fn server_now_ms(&self) -> i64 {
        (self.shared.ambient.now_ms)().saturating_add(self.clock_offset_ms())
    }

    /// Asks for the server's time; where that fails, the date of the refusal must do. Whether anything was learned: a time that no
    /// timestamp can say is not, or all clones would send it from then on.
    async fn learn_offset(&self, refused: &Answer, refused_at_ms: i64) -> bool {
        let told = self.ask_time().await.ok();
        // A date is cut to its second: take the middle. It is of when the refusal came, however long the question went unanswered.
        let date = refused.date_ms.map(|at| (at.saturating_add(500), refused_at_ms));
        let found = told.into_iter().chain(date).find(|(server_ms, _)| is_timestamp(*server_ms));
        if let Some((server_ms, ours_ms)) = found {
            self.shared.offset_ms.store(server_ms.saturating_sub(ours_ms), Ordering::Relaxed);
        }
        found.is_some()
    }

    /// The server's time, one that a timestamp can say, and ours in the middle of the question.
    async fn ask_time(&self) -> Result<(i64, i64), Error> {
        let now_ms = || (self.shared.ambient.now_ms)();
        let before = now_ms();
        let asked = self.call_unsigned(endpoint::time::METHOD, endpoint::time::PATH).await;
        let middle = before.saturating_add(now_ms().saturating_sub(before) / 2);
        let answer = asked?;
        let server_ms = answer.data::<endpoint::time::Response>()?.server_time;
        if !is_timestamp(server_ms) {
            return Err(answer.unreadable(format!("it says that it is {server_ms}, which is no time")));
        }
        Ok((server_ms, middle))
    }

    async fn send(&self, method: &str, path_and_query: &str, body: &[u8], signed: Signed) -> Result<Answer, Error> {
        let Shared { http, names, .. } = &*self.shared;
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|_| Error::Usage(format!("{method:?} is no HTTP method")))?;
        let mut request = http.request(method, self.url(path_and_query)?).header(CONTENT_TYPE, "application/json");
        if let Signed::At(now_ms) = signed {
            request = self.sign(request, now_ms, body)?;
        }
        if !body.is_empty() {
            request = request.body(body.to_vec());
        }
        let response = request.send().await.map_err(transport)?;
        Answer::read(response, &names.request_id, self.server_now_ms()).await
    }

    fn sign(
        &self,
        request: reqwest::RequestBuilder,
        now_ms: i64,
        body: &[u8],
    ) -> Result<reqwest::RequestBuilder, Error> {
        let Shared { key, names, ambient, client_id, .. } = &*self.shared;
        let (timestamp, nonce) = (now_ms.to_string(), format!("{:032x}", (ambient.bits128)()));
        let signed = key.read().unwrap_or_else(PoisonError::into_inner).sign(&timestamp, &nonce, body);
        let signature = encode_signature(&signed, Encoding::Hex);
        let mut request = request
            .header(&names.client_id, client_id)
            .header(&names.timestamp, timestamp)
            .header(&names.nonce, nonce)
            .header(&names.signature, signature);
        if let Some(id) = &self.merchant_id {
            request = request.header(&names.merchant_id, id);
        }
        if let Some(id) = &self.on_behalf_of {
            identity::check_on_behalf_of(id)?; // It may have come after the client was built.
            request = request.header(&names.on_behalf_of, id);
        }
        Ok(request)
    }

    fn url(&self, path_and_query: &str) -> Result<Url, Error> {
        if !path_and_query.starts_with('/') {
            return Err(Error::Usage(format!("the path {path_and_query:?} does not begin with /")));
        }
        let base = self.shared.base_url.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}{path_and_query}"))
            .map_err(|e| Error::Usage(format!("the path cannot be used: {e}")))
    }
}
