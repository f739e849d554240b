//! What a merchant's receiver needs: a verifier of callbacks, and the two answers to them.

use std::sync::{Mutex, PoisonError};

use countersign_protocol::callback::{self, CallbackBody};
use countersign_protocol::headers::{HeaderNames, PrefixRefused, Prefixes, read_timestamp};
use countersign_protocol::replay::{WINDOW_NONCES_MAX, Window, WindowRefused};
use countersign_protocol::signing::SigningKey;
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;

use crate::ambient;
use crate::client::HEADER_PREFIX_DEFAULT;
use crate::secret::{EmptySecret, key};

/// A genuine callback. The same event may come more than once, so be idempotent by what the signed body says: the same `biz_type`, `biz_id`
/// and `biz_status` never have their effect twice. Source: docs/PROTOCOL.md, "Repeats and order".
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
    /// The application it is meant for.
    pub client_id: String,
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
    /// This very request was received before, or so long ago that this cannot be known.
    #[error(transparent)]
    NotNew(#[from] WindowRefused),
    /// Signed right, but the body is not a callback's.
    #[error("the body is not a callback: {0}")]
    Unreadable(String),
}

impl CallbackRefused {
    /// The HTTP status to answer with. 503 where more callbacks have come than the receiver can remember ([`WindowRefused::Full`]): the callback is
    /// genuine, and on 503 the server sends more slowly. Else 401.
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::NotNew(WindowRefused::Full) => 503,
            Self::MissingHeader(_) | Self::NotGenuine(_) | Self::NotNew(_) | Self::Unreadable(_) => 401,
        }
    }
}

/// Verifies callbacks: signature, age, and that each request is taken once. Share one between all tasks of the receiver.
///
/// What was taken is remembered in memory only. A captured callback that is brought to another process, or to this one after a new start, is taken
/// once more there while its timestamp is acceptable, under whatever event id its sender likes: that header is not signed. So a receiver of several
/// processes shares each [`Callback::nonce`]. It puts the nonce into a table where nonces are unique, refuses a callback whose nonce is there
/// already, and keeps the nonce until [`Callback::sent_ms`] plus the tolerance: up to twice the tolerance after the callback came, since a callback
/// may be stamped ahead. The table stops a captured request. The server's own repeats are signed anew, and known by what they say: see [`Callback`].
///
/// The memory has a bound, [`CallbackVerifier::nonces_max`]. Where it is full, callbacks are refused ([`WindowRefused::Full`])
/// until the oldest of it is too old to be acceptable: to forget one earlier would let it be taken twice.
#[derive(Debug)]
pub struct CallbackVerifier {
    keys: Vec<SigningKey>,
    names: HeaderNames,
    tolerance_ms: i64,
    nonces_max: usize,
    window: Mutex<Window>,
}

impl CallbackVerifier {
    /// A verifier for callbacks signed with this secret, at most five minutes away from the present.
    /// The secret's text is wiped as soon as its key is made. An empty one is refused: anybody can sign with it.
    pub fn new(secret: impl Into<String>) -> Result<Self, EmptySecret> {
        let tolerance_ms = callback::RECOMMENDED_TOLERANCE_MS;
        let prefixes = Prefixes::new(&[HEADER_PREFIX_DEFAULT.to_owned()]).expect("the default prefix is a good one");
        Ok(Self {
            keys: vec![key(secret)?],
            names: prefixes.first().clone(),
            tolerance_ms,
            nonces_max: WINDOW_NONCES_MAX,
            window: Mutex::new(Window::new(tolerance_ms, WINDOW_NONCES_MAX)),
        })
    }

    /// Takes callbacks signed with this secret too: the other one of a rotation. An empty one is refused here as well: where
    /// no secret is being replaced, do not call this.
    pub fn also(mut self, secret: impl Into<String>) -> Result<Self, EmptySecret> {
        self.keys.push(key(secret)?);
        Ok(self)
    }

    /// What header names begin with, where the deployment says otherwise than `X-Service-`.
    pub fn header_prefix(mut self, prefix: impl Into<String>) -> Result<Self, PrefixRefused> {
        self.names = Prefixes::new(&[prefix.into()])?.first().clone();
        Ok(self)
    }

    /// How far a callback's timestamp may be from the present, in ms. Forgets what was received so far.
    #[must_use]
    pub fn tolerance_ms(mut self, tolerance_ms: i64) -> Self {
        self.tolerance_ms = tolerance_ms;
        self.window = Mutex::new(Window::new(tolerance_ms, self.nonces_max));
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
        self.verify(header, body, ambient::wall_ms())
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

        // While a secret is rotated, a second header carries the signature of the other live one.
        let first = self.verify_signature(timestamp, nonce, body, signature, now_ms);
        if let Err(refused) = first {
            let next =
                header(&names.signature_next).map(|next| self.verify_signature(timestamp, nonce, body, next, now_ms));
            if next.is_none_or(|next| next.is_err()) {
                return Err(refused.into());
            }
        }
        let (_, sent_ms) = read_timestamp(timestamp.as_bytes()).ok_or(callback::CallbackRefused::TimestampMalformed)?;
        let body: CallbackBody =
            serde_json::from_slice(body).map_err(|e| CallbackRefused::Unreadable(e.to_string()))?;
        let attempt =
            attempt.parse().map_err(|_| CallbackRefused::Unreadable(format!("{} is no number", names.attempt)))?;
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
            data: body.data,
        })
    }

    /// One signature against every secret; of several refusals, the first.
    fn verify_signature(
        &self,
        timestamp: &str,
        nonce: &str,
        body: &[u8],
        signature: &str,
        now_ms: i64,
    ) -> Result<(), callback::CallbackRefused> {
        let verify = |key| callback::verify(key, timestamp, nonce, body, signature, now_ms, self.tolerance_ms);
        let mut outcomes = self.keys.iter().map(verify);
        let first = outcomes.next().expect("a verifier has at least one secret");
        if first.is_ok() || outcomes.any(|outcome| outcome.is_ok()) { Ok(()) } else { first }
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
