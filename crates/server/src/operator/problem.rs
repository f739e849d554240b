//! Refusals as problem documents.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use countersign_protocol::body::FieldRefused;
use countersign_protocol::code::Code;
use countersign_protocol::sentence;
use countersign_store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::error::AppError;

/// A call that was refused or failed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Its code.
    pub code: Code,
    /// What to change.
    pub sentence: String,
    /// What the store said where it refused; for the log only.
    pub(super) trouble: Option<String>,
}

/// The document on the wire, RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemDocument {
    /// `urn:countersign:problem:` and the label.
    #[serde(rename = "type")]
    pub kind: String,
    /// The label in plain words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What to change.
    pub detail: String,
    /// Six digits, as in the merchant API.
    pub code: &'static str,
    /// The code's name.
    pub label: &'static str,
    /// Finds this request in the log.
    pub request_id: String,
}

impl Problem {
    /// A refusal with its sentence.
    pub fn new(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), trouble: None }
    }

    /// A parameter that is missing, malformed or out of range.
    pub fn field(name: &str, why: impl std::fmt::Display) -> Self {
        Self::of_field(Code::InvalidParameter, name, why)
    }

    /// A refusal of one field with a code of its own.
    pub fn of_field(code: Code, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(code, sentence::of_field(name, why))
    }

    /// Our own fault; the sentence carries no detail.
    pub fn internal() -> Self {
        Self::new(Code::InternalError, "something went wrong on our side; quote the request id when you ask about it")
    }

    /// The answer as it goes out. `allow`: what a 405 allows.
    pub(super) fn render(&self, request_id: &str, allow: Option<&HeaderValue>) -> Response<Body> {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let document = ProblemDocument {
            kind: format!("urn:countersign:problem:{}", self.code.label()),
            title: title(self.code.label()),
            status: status.as_u16(),
            detail: self.sentence.clone(),
            code: self.code.code(),
            label: self.code.label(),
            request_id: request_id.to_owned(),
        };
        let body = serde_json::to_vec(&document).expect("texts and a number always serialize");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        self.put_headers(response.headers_mut(), allow);
        response
    }

    fn put_headers(&self, headers: &mut HeaderMap, allow: Option<&HeaderValue>) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(allow) = allow {
            headers.insert(ALLOW, allow.clone());
        }
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.code, Code::RateLimited | Code::ServiceUnavailable) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
    }
}

/// `NOT_FOUND` as `Not found`.
fn title(label: &str) -> String {
    let mut words = label.to_ascii_lowercase().replace('_', " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        // An operator asks for no merchant: what is not there is nobody's.
        let sentence = match error {
            AppError::OrderNotFound => "no order has this number".to_owned(),
            AppError::SubMerchantNotFound => "no sub-account has this sub_merchant_id".to_owned(),
            _ => error.sentence(),
        };
        let problem = Self::new(error.code(), sentence);
        match error {
            // A line for each would fill a disk that is full already: see `app::trouble`.
            AppError::Store(StoreError::Unavailable(cause)) => Self { trouble: Some(cause), ..problem },
            AppError::Store(cause) => {
                tracing::error!(error = %cause, "The store could not answer an operator: {cause}");
                problem
            }
            _ => problem,
        }
    }
}

impl From<FieldRefused> for Problem {
    fn from(refused: FieldRefused) -> Self {
        Self::new(Code::InvalidParameter, refused.to_string())
    }
}

impl IntoResponse for Problem {
    /// An empty answer that carries the problem: `frame`, which knows the request's id, writes the document.
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() =
            StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}
