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

use crate::app::error::{AppError, INTERNAL};

/// Seconds after which to repeat a call, where nobody knows better.
const RETRY_AFTER_S: u64 = 1;

/// A call that was refused or failed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Its code.
    pub code: Code,
    /// What to change.
    pub sentence: String,
    /// What the store said where it refused; for the log only.
    pub(super) trouble: Option<Box<StoreError>>,
    /// Seconds after which to repeat a call that may be repeated.
    retry_after_s: u64,
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
        Self { code, sentence: sentence.into(), trouble: None, retry_after_s: RETRY_AFTER_S }
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
        Self::new(Code::InternalError, INTERNAL)
    }

    /// The document that says it.
    pub fn document(&self, request_id: &str) -> ProblemDocument {
        ProblemDocument {
            kind: format!("urn:countersign:problem:{}", self.code.label()),
            title: title(self.code.label()),
            status: self.code.http_status(),
            detail: self.sentence.clone(),
            code: self.code.code(),
            label: self.code.label(),
            request_id: request_id.to_owned(),
        }
    }

    /// The answer as it goes out. `allow`: what a 405 allows.
    pub(super) fn render(&self, request_id: &str, allow: Option<&HeaderValue>) -> Response<Body> {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.document(request_id)).expect("texts and a number always serialize");
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
            headers.insert(RETRY_AFTER, HeaderValue::from(self.retry_after_s));
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
        let retry_after_s = error.room_in_s().unwrap_or(RETRY_AFTER_S);
        let problem = Self { retry_after_s, ..Self::new(error.code(), sentence) };
        match error {
            // A line for each would fill a disk that is full already: see `app::trouble`.
            AppError::Store(cause) => Self { trouble: Some(Box::new(cause)), ..problem },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_when_to_come_again_is_in_the_header_too() {
        let header = |error: AppError| {
            let answer = Problem::from(error).render("r", None);
            answer.headers().get(RETRY_AFTER).map(|value| value.to_str().expect("digits").to_owned())
        };
        let full = AppError::CrowdedFor { why: "two are under way: begin another".to_owned(), room_in_s: 40 };
        assert_eq!(full.sentence(), "two are under way: begin another in 40 seconds");
        assert_eq!(header(full).as_deref(), Some("40"));
        assert_eq!(header(AppError::Busy).as_deref(), Some("1"));
        assert_eq!(header(AppError::OrderNotFound), None);
    }
}
