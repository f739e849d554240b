//! An answer as it came, and what it says.

use countersign_protocol::code::Code;
use countersign_protocol::envelope::Envelope;
use reqwest::header::{DATE, RETRY_AFTER};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::http_date;

/// An answer longer than this is not read: 64 MiB.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A request that cannot be built was never sent.
pub fn transport(error: reqwest::Error) -> Error {
    if error.is_builder() {
        Error::Usage(format!("the request cannot be built: {error}"))
    } else {
        Error::Transport(error)
    }
}

/// An answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub http_status: u16,
    /// The server's name for the request.
    pub request_id: Option<String>,
    /// The `Date` header in Unix milliseconds, cut to the second.
    pub date_ms: Option<i64>,
    /// The `Retry-After` header in seconds.
    pub retry_after_s: Option<u32>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

/// What an answer is that is no envelope.
fn no_envelope(body: &[u8], error: &serde_json::Error) -> String {
    #[derive(Deserialize)]
    struct Problem {
        r#type: String,
    }
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) if problem.r#type.starts_with("urn:countersign:problem:") => {
            "it is one of the operator API, which has an address of its own".to_owned()
        }
        Ok(_) | Err(_) => format!("it is no envelope: {error}"),
    }
}

impl Answer {
    pub(crate) async fn read(mut response: reqwest::Response, request_id_name: &str) -> Result<Self, Error> {
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok());
        let mut answer = Self {
            http_status: response.status().as_u16(),
            request_id: header(request_id_name).map(str::to_owned),
            date_ms: header(DATE.as_str()).and_then(http_date::parse),
            retry_after_s: header(RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()),
            body: Vec::new(),
        };
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if answer.body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(answer.unreadable(format!("it is longer than {ANSWER_BYTES_MAX} bytes")));
            }
            answer.body.extend_from_slice(&chunk);
        }
        Ok(answer)
    }

    /// The code of a refusal, where this SDK knows it.
    pub fn code(&self) -> Option<Code> {
        serde_json::from_slice::<Envelope<Box<RawValue>>>(&self.body).ok().and_then(|envelope| envelope.known_code())
    }

    /// The data of a success; every other answer is an error.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let envelope: Envelope<Box<RawValue>> =
            serde_json::from_slice(&self.body).map_err(|e| self.unreadable(no_envelope(&self.body, &e)))?;
        if !envelope.is_success() {
            return Err(self.refusal(envelope));
        }
        if !(200..300).contains(&self.http_status) {
            return Err(self.unreadable("it says SUCCESS under a status of failure".to_owned()));
        }
        let data = envelope.data.ok_or_else(|| self.unreadable("it has no data".to_owned()))?;
        serde_json::from_str(data.get()).map_err(|e| self.unreadable(format!("its data is not as agreed: {e}")))
    }

    fn refusal(&self, envelope: Envelope<Box<RawValue>>) -> Error {
        let (http_status, request_id) = (self.http_status, self.request_id.clone());
        let known = envelope.known_code();
        let Envelope { code, label, error_message: message, .. } = envelope;
        let retry_after_s = self.retry_after_s;
        match known {
            Some(code) => Error::Refused { code, label, message, http_status, request_id, retry_after_s },
            None => Error::RefusedNewly { code, label, message, http_status, request_id, retry_after_s },
        }
    }

    fn unreadable(&self, why: String) -> Error {
        Error::Unreadable { http_status: self.http_status, why, request_id: self.request_id.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_operator_api_is_told_from_a_page_of_somebody_else() {
        let said = |body: &str| {
            let (http_status, body) = (404, body.as_bytes().to_vec());
            let answer = Answer { http_status, request_id: None, date_ms: None, retry_after_s: None, body };
            answer.data::<()>().expect_err("it is no envelope").to_string()
        };
        let problem =
            said(r#"{"type":"urn:countersign:problem:NOT_FOUND","title":"Not found","status":404,"code":"400404"}"#);
        let wanted =
            "the answer (HTTP 404) cannot be read: it is one of the operator API, which has an address of its own";
        assert_eq!(problem, wanted);
        for other in ["<html>", r#"{"type":"about:blank","status":404}"#, "{}", ""] {
            assert!(said(other).contains("it is no envelope: "), "{other}");
        }
    }
}
