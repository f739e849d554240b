//! What goes back: an envelope, its status, its request id.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use countersign_protocol::code::Code;
use countersign_protocol::{envelope, sentence};
use countersign_store::StoreError;
use http_body_util::Full;
use hyper::body::Body as _;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::app::error::{AppError, INTERNAL};

/// How requests are authenticated, as a 401 names it: by the headers of docs/PROTOCOL.md, which no registered scheme has.
pub const SCHEME: &str = "Signature";

/// What becomes of the nonce of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonceFate {
    /// It is used up, as by every request whose signature was right.
    Settle,
    /// It stays open: the answer is 429 or 503.
    Release,
    /// It is used up already, or nobody knows.
    Leave,
}

/// A request that was refused or failed.
#[derive(Debug)]
pub struct Failure {
    /// Its code.
    pub code: Code,
    /// What to change.
    pub sentence: String,
    /// For the log only: more than the answer may say.
    pub reason: &'static str,
    /// Seconds, for 429 and 503.
    pub retry_after_s: Option<u64>,
    /// For 405: what is allowed.
    pub allow: Option<&'static str>,
    /// What becomes of the nonce.
    pub nonce: NonceFate,
    /// The grid of times for the answer, where its time must not tell why it is a refusal.
    pub grid: Option<Duration>,
    /// Whether the connection ends with the answer.
    pub ends_connection: bool,
    /// What the store said where it could not answer; for the log only.
    pub trouble: Option<Box<StoreError>>,
}

impl Failure {
    /// A refusal with its sentence.
    pub fn new(code: Code, sentence: impl Into<String>) -> Self {
        let (retry_after_s, nonce) = match code {
            Code::RateLimited | Code::ServiceUnavailable => (Some(1), NonceFate::Release),
            Code::InvalidParameter
            | Code::InvalidSignature
            | Code::TimestampOutOfRange
            | Code::UnsupportedContentType
            | Code::InvalidNonce
            | Code::NonceReused
            | Code::DuplicateTradeNo
            | Code::OrderNotFound
            | Code::MerchantNotAllowed
            | Code::InvalidOrderStatus
            | Code::InvalidCurrency
            | Code::InvalidAmount
            | Code::QuoteExpired
            | Code::FeeRuleExists
            | Code::SubMerchantNotFound
            | Code::InvalidRulePeriod
            | Code::ConfigIdNotAccepted
            | Code::NotFound
            | Code::MethodNotAllowed
            | Code::EventsGone
            | Code::BodyTooLarge
            | Code::HeadersTooLarge
            | Code::InternalError
            | Code::Unauthenticated
            | Code::RoleNotAllowed
            | Code::AlreadyExists
            | Code::IdempotencyKeyReused
            | Code::SecretInUse => (None, NonceFate::Settle),
        };
        Self {
            code,
            sentence: sentence.into(),
            reason: "",
            retry_after_s,
            allow: None,
            nonce,
            grid: None,
            ends_connection: false,
            trouble: None,
        }
    }

    /// A refusal of one field.
    pub fn of_field(code: Code, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(code, sentence::of_field(name, why))
    }

    /// Our own fault; the sentence carries no detail.
    pub fn internal(reason: &'static str) -> Self {
        Self { reason, nonce: NonceFate::Leave, ..Self::new(Code::InternalError, INTERNAL) }
    }

    /// With a word for the log.
    #[must_use]
    pub fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        let failure = Self::new(error.code(), error.sentence());
        match error {
            // Whether something was done, or by whom, is not known.
            AppError::OutcomeUnknown | AppError::NonceReused => Self { nonce: NonceFate::Leave, ..failure },
            // A line for each would fill a disk that is full already: see `app::trouble`.
            AppError::Store(cause) => Self { trouble: Some(Box::new(cause)), ..failure },
            AppError::InvalidParameter(_)
            | AppError::InvalidAmount(_)
            | AppError::InvalidCurrency(_)
            | AppError::Quote(_)
            | AppError::DuplicateTradeNo { .. }
            | AppError::NoRate
            | AppError::InvalidRulePeriod(_)
            | AppError::FeeRuleExists
            | AppError::SubMerchantNotFound
            | AppError::OrderNotFound
            | AppError::MerchantNotAllowed(_)
            | AppError::InvalidOrderStatus(_)
            | AppError::InvalidPaymentOrderStatus(_)
            | AppError::NotFound(_)
            | AppError::AlreadyExists(_)
            | AppError::IdempotencyKeyReused
            | AppError::SecretInUse(_)
            | AppError::NotRedeliverable(_)
            | AppError::CallbackNotTestable(_)
            | AppError::EventsGone { .. }
            | AppError::Busy
            | AppError::Crowded(_)
            | AppError::CrowdedFor { .. }
            | AppError::TokenRevoked
            | AppError::LacksMasterKey(_) => failure,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        AppError::from(error).into()
    }
}

/// A success envelope around `data`.
pub fn success<T: Serialize>(data: &T) -> Result<Vec<u8>, Failure> {
    envelope::success(data).map_err(|_| Failure::internal("answer_unwritten"))
}

/// The answer to a request.
pub fn response(
    outcome: Result<Vec<u8>, Failure>,
    request_id_header: &HeaderName,
    request_id: &str,
) -> Response<Full<Bytes>> {
    let (status, body, failure) = match outcome {
        Ok(body) => (StatusCode::OK, body, None),
        Err(failure) => {
            let status = StatusCode::from_u16(failure.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, envelope::failure(failure.code, &failure.sentence), Some(failure))
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(5);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Who asks is in headers that no cache knows to tell callers apart by.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(request_id_header.clone(), id);
    }
    if let Some(failure) = failure {
        // RFC 9110, 15.5.2: clients that know how to authenticate themselves take a 401 without it for a fault of the server.
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(SCHEME));
        }
        if let Some(seconds) = failure.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if failure.ends_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(allow) = failure.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
    }
    response
}

/// The answer to HEAD: its length is said, and nothing of it is sent (RFC 9110, 9.3.2). Over HTTP/2 nobody else sees to that.
pub fn without_content(response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(head, Full::default())
}

/// Ids of requests: the process's own 64 random bits and a count.
#[derive(Debug)]
pub struct RequestIds {
    process: String,
    count: AtomicU64,
}

impl RequestIds {
    /// Ids of a process.
    pub fn new(chance: u64) -> Self {
        Self { process: format!("{chance:016x}"), count: AtomicU64::new(0) }
    }

    /// The next one.
    pub fn next(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(28);
        id.push_str(&self.process);
        for shift in (0..12).rev() {
            id.push(char::from(DIGITS[((count >> (shift * 4)) & 15) as usize]));
        }
        id
    }
}
