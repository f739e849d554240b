//! What a merchant's receiver needs: a verifier of callbacks, and the two answers to them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use countersign_protocol::callback::{self, CallbackBody};
use countersign_protocol::headers::{HeaderNames, Prefixes, read_timestamp};
use countersign_protocol::replay::{WINDOW_NONCES_MAX, Window, WindowRefused};
use countersign_protocol::signing::SigningKey;
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;

use crate::ambient;
use crate::client::HEADER_PREFIX_DEFAULT;
use crate::error::Error as CallError;
use crate::identity;
use crate::secret::{Secret, SecretRefused};

/// A genuine callback: the service has sent it. That does not say that an order is paid.
///
/// The same event may come more than once, and two events may say the same. So:
///
/// - **Of a payment order** ([`EventData::PaymentOrder`](crate::EventData::PaymentOrder)) keep nothing of what callbacks said. Query the order on
///   every one of them, a repeat too (`order_query`, by its `prepayId`, which is `biz_id`). Deliver where the query says `PAID` and currency and
///   amount are those of your own record of the sale
///   ([`is_paid_exactly`](crate::protocol::endpoint::order_query::Response::is_paid_exactly)), once for each `prepayId`: in one transaction that
///   marks the sale as delivered and does so only where it was not. Whoever goes by `biz_status` instead may deliver what was not paid, or take the
///   news that an order is paid for a repeat of an event that the platform emitted by hand.
/// - **Of any other kind** know repeats by what the signed body says: the same `biz_type`, `biz_id` and `biz_status` never have their effect twice.
///   Keep the three in a table where they are unique together, with `data`, and write them in the transaction that has the effect. Where the three
///   come with other data, a person has to look.
///
/// An institution's application gets the callbacks of the orders that it made on behalf of a sub-account, and queries them
/// [on behalf](crate::Client::on_behalf_of) of the sub-account that its own record of the sale names: without it the answer is `ORDER_NOT_FOUND`, and
/// whoever then acknowledges loses an order that is paid.
///
/// Acknowledge only what is done: of a payment order once the query has said how it stands, or `ORDER_NOT_FOUND`. Any other error of the query, also one
/// that is not temporary, such as a secret that was revoked, is answered with [`failed`].
///
/// Source: docs/PROTOCOL.md, "Repeats and order".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The server's name for the event, the same on every attempt: for logs, and for questions to the operator. Not covered by the
    /// signature: whoever captured a callback can send it under another one, so repeats are not known by it.
    pub event_id: String,
    /// Made anew for each attempt, and signed: no two genuine requests have the same. What receivers of several processes share.
    pub nonce: String,
    /// Which attempt this is: 1, 2, ... Not covered by the signature.
    pub attempt: u32,
    /// Which of the events of its `biz_id` this is: 1, 2, ... Not covered by the signature.
    pub sequence: Option<u64>,
    /// When it was sent, in Unix milliseconds.
    pub sent_ms: i64,
    /// What kind of business it is about.
    pub biz_type: String,
    /// Which payment order or transaction.
    pub biz_id: String,
    /// What became of it.
    pub biz_status: String,
    /// The application it is meant for: one that the verifier knows, and whose secret signed it.
    pub client_id: String,
    /// Which of that application's secrets signed it: 0 is the first, in the order in which they were given. Where it carries two signatures, the one
    /// that the server has chosen, if its secret is known. Once only the new one has signed for a while, the old one can go.
    pub secret_index: usize,
    /// Business data, a JSON text; its structure depends on `biz_type`. See [`Callback::event_data`] for what the service writes by itself,
    /// [`Callback::data_as`] for the rest.
    pub data: String,
}

impl Callback {
    /// Reads the business data into a type of yours.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.data)
    }
}

/// Why a callback is refused, in order of precedence. Answer it with a failure ([`failed`]) under [`CallbackRefused::http_status`]: a genuine sender
/// comes again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallbackRefused {
    /// A header that every callback has is not there.
    #[error("the header {0} is missing")]
    MissingHeader(String),
    /// Malformed, too old, not a callback, or not signed with one of the secrets: see the cause.
    #[error(transparent)]
    NotGenuine(#[from] callback::CallbackRefused),
    /// Signed right, but the body is not a callback's.
    #[error("the body is not a callback: {0}")]
    Unreadable(String),
    /// Signed with the secret of one application, and meant for another one by what it says. Of a verifier that knows many secrets only the first few are
    /// tried: signed with another one, it is refused as one whose signature does not fit.
    #[error("the callback says that it is for another ClientId than the one whose secret signed it")]
    OtherClient,
    /// This very request was received before, or so long ago that this cannot be known.
    #[error(transparent)]
    NotNew(#[from] WindowRefused),
}

impl CallbackRefused {
    /// The HTTP status to answer with. 503 where more callbacks have come than the receiver can remember ([`WindowRefused::Full`]): the callback is
    /// genuine, and on 503 the server sends more slowly. Else 401.
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::NotNew(WindowRefused::Full) => 503,
            Self::MissingHeader(_)
            | Self::NotGenuine(_)
            | Self::Unreadable(_)
            | Self::OtherClient
            | Self::NotNew(_) => 401,
        }
    }
}

/// Verifies callbacks: signature, age, that each is for the application whose secret signed it, and that each request is taken once. Share one between
/// all tasks of the receiver, and for its whole life: [`set_secrets`](Self::set_secrets) and [`remove`](Self::remove) change whose callbacks are taken
/// without forgetting what has come.
///
/// What was taken is remembered in memory only. A captured callback that is brought to another process, or to this one after a new start, is taken
/// once more there while its timestamp is acceptable, under whatever event id its sender likes: that header is not signed.
///
/// - A receiver of one process can refuse what was sent before it started: [`refuse_sent_before`](Self::refuse_sent_before).
/// - A receiver of several processes shares each [`Callback::nonce`]. It puts the nonce into a table where nonces are unique, refuses a callback whose
///   nonce is there already, and keeps the nonce until [`Callback::sent_ms`] plus the tolerance: up to twice the tolerance after the callback came,
///   since a callback may be stamped ahead.
///
/// Either stops a captured request. The server's own repeats are signed anew: see [`Callback`].
///
/// The memory has a bound, [`CallbackVerifier::nonces_max`]. Where it is full, callbacks are refused ([`WindowRefused::Full`])
/// until the oldest of it is too old to be acceptable: to forget one earlier would let it be taken twice.
pub struct CallbackVerifier {
    applications: RwLock<Vec<Application>>,
    names: HeaderNames,
    now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    tolerance_ms: i64,
    refused_before_ms: i64,
    nonces_max: usize,
    window: Mutex<Window>,
}

/// So many secrets of applications that the body does not name are tried at most. None of them makes a callback genuine: they tell one that is meant for
/// another application from one that is forged. Anybody can send a body, and each secret costs a reading of all of it.
const OTHER_SECRETS_MAX: usize = 4;

/// Whose callbacks are taken, and by which secrets.
struct Application {
    client_id: String,
    keys: Vec<SigningKey>,
}

/// What a signature is made of, as it came.
#[derive(Clone, Copy)]
struct Signed<'a> {
    timestamp: &'a str,
    nonce: &'a str,
    body: &'a [u8],
    now_ms: i64,
    tolerance_ms: i64,
}

impl Signed<'_> {
    /// The place of the first key that one of the signatures fits, the first signature before the second. Where none fits, why the first did not.
    fn fitting<'k, P>(
        self,
        candidates: &(impl Iterator<Item = (P, &'k SigningKey)> + Clone),
        signatures: [Option<&str>; 2],
    ) -> Result<P, callback::CallbackRefused> {
        let Self { timestamp, nonce, body, now_ms, tolerance_ms } = self;
        let mut refused = None;
        for signature in signatures.into_iter().flatten() {
            for (place, key) in candidates.clone() {
                match callback::verify(key, timestamp, nonce, body, signature, now_ms, tolerance_ms) {
                    Ok(()) => return Ok(place),
                    Err(why) => _ = refused.get_or_insert(why),
                }
            }
        }
        Err(refused.unwrap_or(callback::CallbackRefused::SignatureMismatch))
    }
}

impl fmt::Debug for CallbackVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applications = self.applications.read().unwrap_or_else(PoisonError::into_inner);
        let client_ids: Vec<_> = applications.iter().map(|a| (&a.client_id, a.keys.len())).collect();
        f.debug_struct("CallbackVerifier")
            .field("secrets_of", &client_ids)
            .field("tolerance_ms", &self.tolerance_ms)
            .field("nonces_max", &self.nonces_max)
            .finish_non_exhaustive()
    }
}

fn application<S>(client_id: &str, secrets: impl IntoIterator<Item = S>) -> Result<Application, CallError>
where
    S: TryInto<Secret>,
    SecretRefused: From<S::Error>,
{
    identity::check_client_id(client_id)?;
    let key = |secret: S| secret.try_into().map(Secret::into_key).map_err(|e| CallError::from(SecretRefused::from(e)));
    let keys: Vec<_> = secrets.into_iter().map(key).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err(CallError::Usage("an application needs a secret to verify its callbacks with".to_owned()));
    }
    Ok(Application { client_id: client_id.to_owned(), keys })
}

impl CallbackVerifier {
    /// A verifier for callbacks of this application, signed with this secret, at most five minutes away from the present.
    /// What cannot be a ClientId or a [`Secret`] is refused ([`Error::Usage`](crate::Error::Usage)); an empty secret most of all, with which anybody can sign.
    pub fn new<S>(client_id: impl AsRef<str>, secret: S) -> Result<Self, CallError>
    where
        S: TryInto<Secret>,
        SecretRefused: From<S::Error>,
    {
        let tolerance_ms = callback::RECOMMENDED_TOLERANCE_MS;
        let prefixes = Prefixes::new(&[HEADER_PREFIX_DEFAULT.to_owned()]).expect("the default prefix is a good one");
        Ok(Self {
            applications: RwLock::new(vec![application(client_id.as_ref(), [secret])?]),
            names: prefixes.first().clone(),
            now_ms: Arc::new(ambient::wall_ms),
            tolerance_ms,
            refused_before_ms: i64::MIN,
            nonces_max: WINDOW_NONCES_MAX,
            window: Mutex::new(Window::new(tolerance_ms, WINDOW_NONCES_MAX)),
        })
    }

    /// Takes callbacks of this application signed with these secrets, and with no others from now on: the new and the old one while a secret is
    /// rotated, in this order, and the new one alone afterwards. Adds the application where it is not known yet: one URL may serve several.
    /// What has come is still remembered, so do this rather than make a new verifier. Refused, and then nothing has changed, where there is no
    /// secret, or one that can be none: while no secret is being replaced, leave the old one out.
    pub fn set_secrets<S>(
        &self,
        client_id: impl AsRef<str>,
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<(), CallError>
    where
        S: TryInto<Secret>,
        SecretRefused: From<S::Error>,
    {
        let new = application(client_id.as_ref(), secrets)?;
        let mut applications = self.applications.write().unwrap_or_else(PoisonError::into_inner);
        match applications.iter_mut().find(|known| known.client_id == new.client_id) {
            Some(known) => *known = new,
            None => applications.push(new),
        }
        Ok(())
    }

    /// Takes no callbacks of this application any more; whether it was known. What has come is still remembered, so do this rather than make a new
    /// verifier. One without any application refuses all.
    pub fn remove(&self, client_id: &str) -> bool {
        let mut applications = self.applications.write().unwrap_or_else(PoisonError::into_inner);
        let known = applications.len();
        applications.retain(|application| application.client_id != client_id);
        applications.len() < known
    }

    /// What header names begin with, where the deployment says otherwise than `X-Service-`.
    pub fn header_prefix(mut self, prefix: impl Into<String>) -> Result<Self, CallError> {
        let prefixes = Prefixes::new(&[prefix.into()]).map_err(|e| CallError::Usage(e.to_string()))?;
        self.names = prefixes.first().clone();
        Ok(self)
    }

    /// How far a callback's timestamp may be from the present: five minutes unless set. Forgets what was received so far.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance_ms = i64::try_from(tolerance.as_millis()).unwrap_or(i64::MAX);
        self.window = Mutex::new(Window::new(self.tolerance_ms, self.nonces_max));
        self
    }

    /// Where the present of [`verify_now`](Self::verify_now) comes from, in Unix milliseconds: this machine's clock unless set. On a machine whose clock
    /// may be wrong let it be the server's, as a [`Client`](crate::Client) has learned it, or every callback is refused as too old.
    ///
    /// Learn it again every minute, and log where that fails. What was learned is how far the two clocks are apart: once this machine's is set, to the
    /// right time, too, it is wrong by as much, and a callback that is refused for its age teaches the verifier nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use countersign_sdk::{CallbackVerifier, Client, Error};
    /// # async fn example(client: &Client, secret: &str) -> Result<CallbackVerifier, Error> {
    /// client.learn_clock().await?;
    /// let learns = client.clone();
    /// tokio::spawn(async move {
    ///     loop {
    ///         tokio::time::sleep(Duration::from_secs(60)).await;
    ///         if let Err(error) = learns.learn_clock().await {
    ///             eprintln!("the server's time is not known: {error}");
    ///         }
    ///     }
    /// });
    /// let learned = client.clone();
    /// Ok(CallbackVerifier::new(client.client_id(), secret)?.clock(move || learned.server_now_ms()))
    /// # }
    /// ```
    #[must_use]
    pub fn clock(mut self, now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        self.now_ms = Arc::new(now_ms);
        self
    }

    /// Refuses what was sent before this instant, in Unix milliseconds, as too old to know whether it was received before
    /// ([`WindowRefused::TooOld`]): set to the present at each start, it keeps out what somebody captured before it, of which this process knows
    /// nothing. Where the server's clock may be ahead of the verifier's, add by how much, since that is what it may have stamped.
    ///
    /// It costs the attempts that are under way while the process starts: they are refused, and the server sends those events again, stamped afresh, as
    /// after any attempt that failed: by the usual schedule 5 seconds after the first, hours after a late one, and never after the last, with which the
    /// event is dead. An [`EventWalk`](crate::EventWalk) at each start brings what that misses. Where the server's clock is behind the verifier's, the same goes for what it sends until then.
    #[must_use]
    pub fn refuse_sent_before(mut self, instant_ms: i64) -> Self {
        self.refused_before_ms = instant_ms;
        self
    }

    /// How many callbacks are remembered at most: [`WINDOW_NONCES_MAX`], 1,000,000, unless set. Forgets what was received so far.
    ///
    /// Each is remembered for as long as its timestamp is acceptable, so take the callbacks that come in a second, times the
    /// tolerance in seconds: the default is enough for 3,333 a second at five minutes. One takes some 180 bytes while it is
    /// remembered, and nothing before: 180 MB at that rate, 5 MB at 100 a second.
    #[must_use]
    pub fn nonces_max(mut self, nonces_max: usize) -> Self {
        self.nonces_max = nonces_max;
        self.window = Mutex::new(Window::new(self.tolerance_ms, nonces_max));
        self
    }

    /// Verifies one request at the present time: [`CallbackVerifier::verify`].
    pub fn verify_now<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
    ) -> Result<Callback, CallbackRefused> {
        self.verify(header, body, (self.now_ms)())
    }

    /// Verifies one request at `now_ms`, in Unix milliseconds. `header` gives a header's value by its name in lower case;
    /// `body` is what was received, byte for byte, before anything read it.
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
        now_ms: i64,
    ) -> Result<Callback, CallbackRefused> {
        let needed = |name: &str| header(name).ok_or_else(|| CallbackRefused::MissingHeader(name.to_owned()));
        let names = &self.names;
        let (timestamp, nonce) = (needed(&names.timestamp)?, needed(&names.nonce)?);
        let (signature, event_id) = (needed(&names.signature)?, needed(&names.event_id)?);
        let attempt = needed(&names.attempt)?;

        let signed = Signed { timestamp, nonce, body, now_ms, tolerance_ms: self.tolerance_ms };
        let (body, secret_index) = self.read(signed, signature, header(&names.signature_next))?;
        let (_, sent_ms) = read_timestamp(timestamp.as_bytes()).ok_or(callback::CallbackRefused::TimestampMalformed)?;
        let attempt =
            attempt.parse().map_err(|_| CallbackRefused::Unreadable(format!("{} is no number", names.attempt)))?;
        if sent_ms < self.refused_before_ms {
            return Err(WindowRefused::TooOld.into());
        }
        self.window.lock().unwrap_or_else(PoisonError::into_inner).admit(nonce, sent_ms, now_ms)?;
        Ok(Callback {
            event_id: event_id.to_owned(),
            nonce: nonce.to_owned(),
            attempt,
            sequence: header(&names.sequence).and_then(|text| text.parse().ok()),
            sent_ms,
            biz_type: body.biz_type,
            biz_id: body.biz_id,
            biz_status: body.biz_status,
            client_id: body.client_id,
            secret_index,
            data: body.data,
        })
    }

    /// The body, once a secret of the application that it names is found to have signed it, and which one. Until then its `client_id` says no more than
    /// which secrets to try first.
    fn read(
        &self,
        signed: Signed<'_>,
        signature: &str,
        next: Option<&str>,
    ) -> Result<(CallbackBody, usize), CallbackRefused> {
        let applications = self.applications.read().unwrap_or_else(PoisonError::into_inner);
        let body = serde_json::from_slice::<CallbackBody>(signed.body);
        let is_named = |known: &&Application| body.as_ref().is_ok_and(|body| body.client_id == known.client_id);
        let named = applications.iter().find(is_named).into_iter().flat_map(|named| named.keys.iter().enumerate());
        let others = applications.iter().filter(|known| !is_named(known)).flat_map(|other| &other.keys);
        let others = others.take(OTHER_SECRETS_MAX).map(|key| (None, key));
        let candidates = named.map(|(index, key)| (Some(index), key)).chain(others);
        // While a secret is rotated, a second header carries the signature of the other live one.
        let fitting = signed.fitting(&candidates, [Some(signature), next])?;
        match (fitting, body) {
            (Some(secret_index), Ok(body)) => Ok((body, secret_index)),
            (None, Ok(_)) => Err(CallbackRefused::OtherClient),
            (_, Err(error)) => Err(CallbackRefused::Unreadable(error.to_string())),
        }
    }
}

/// The body to answer with, under HTTP 200, when a callback was processed. The server does not send the event again.
pub fn processed() -> Vec<u8> {
    answer("SUCCESS", "")
}

/// The body to answer with when a callback was not processed. The server sends the event again later.
pub fn failed(message: &str) -> Vec<u8> {
    answer("FAIL", message)
}

fn answer(code: &str, message: &str) -> Vec<u8> {
    json!({"returnCode": code, "returnMessage": message}).to_string().into_bytes()
}
