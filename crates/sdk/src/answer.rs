//! An answer as it came, and what it says.
//!
//! Invariant: what is not to the letter an answer of the service is none: a gateway's own JSON must not pass for a refusal, after which nothing was done.

use countersign_protocol::code::{Code, SUCCESS};
use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::http_date;

/// An answer longer than this is not read: 64 MiB.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A longer wait than an hour, whatever a `Retry-After` says, is taken for an hour, in seconds.
pub const RETRY_AFTER_S_MAX: u32 = 3_600;
/// So much of an answer that cannot be read is shown.
const SHOWN_BYTES_MAX: usize = 200;

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
    /// The server's name for the request. An answer carries the first prefix of the deployment's list, whichever the request used: of an answer of the
    /// service it is found under any.
    pub request_id: Option<String>,
    /// The `Date` header in Unix milliseconds, cut to the second.
    pub date_ms: Option<i64>,
    /// How long to wait by the `Retry-After` header, in seconds, at most [`RETRY_AFTER_S_MAX`]. One that is a date counts from the answer's own
    /// `Date`, or from the present where that is not there.
    pub retry_after_s: Option<u32>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

/// The five keys. All must be there.
#[derive(Deserialize)]
struct Envelope {
    status: String,
    code: String,
    label: String,
    #[serde(rename = "errorMessage")]
    message: String,
    data: Box<RawValue>,
}

/// What an answer says.
enum Said {
    Success(Box<RawValue>),
    Refusal { known: Option<Code>, code: String, label: String, message: String },
}

/// What an answer is that is no envelope.
fn no_envelope(body: &[u8], error: &str) -> String {
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

/// Reads a `Retry-After`: seconds or a date; a date that is over is no wait.
fn retry_after_s(text: &str, now_ms: i64) -> Option<u32> {
    let seconds = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().unwrap_or(u64::MAX)
    } else {
        let wait_ms = http_date::parse(text)?.saturating_sub(now_ms).max(0);
        u64::try_from(wait_ms).unwrap_or(0).div_ceil(1_000)
    };
    Some(u32::try_from(seconds).map_or(RETRY_AFTER_S_MAX, |seconds| seconds.min(RETRY_AFTER_S_MAX)))
}

/// A request ID of the service has so many lower-case hex digits.
const REQUEST_ID_CHARS: usize = 28;

/// The request ID under a prefix that is not known: one in the service's form before all others, which balancers and others on the way add.
/// `x-request-id` is what most of them call theirs, and asked last.
fn request_id_of(headers: &HeaderMap) -> Option<String> {
    let is_own = |value: &&HeaderValue| {
        value.len() == REQUEST_ID_CHARS && value.as_bytes().iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let ids = || headers.iter().filter(|(name, _)| name.as_str().ends_with("-request-id"));
    let found = ids().map(|(_, value)| value).find(is_own);
    let found =
        found.or_else(|| ids().find(|(name, _)| *name != "x-request-id").or_else(|| ids().next()).map(|id| id.1));
    found.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

impl Answer {
    /// `now_ms` is the server's time as far as it is known.
    pub(crate) async fn read(
        mut response: reqwest::Response,
        request_id_name: &str,
        now_ms: i64,
    ) -> Result<Self, Error> {
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok());
        let date_ms = header(DATE.as_str()).and_then(http_date::parse);
        let mut answer = Self {
            http_status: response.status().as_u16(),
            request_id: header(request_id_name).map(str::to_owned),
            date_ms,
            retry_after_s: header(RETRY_AFTER.as_str())
                .and_then(|text| retry_after_s(text.trim(), date_ms.unwrap_or(now_ms))),
            body: Vec::new(),
        };
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if answer.body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(answer.unreadable(format!("it is longer than {ANSWER_BYTES_MAX} bytes")));
            }
            answer.body.extend_from_slice(&chunk);
        }
        // Not of anything else: a gateway's `x-request-id` finds nothing in the service's logs.
        if answer.request_id.is_none() && answer.said().is_ok() {
            answer.request_id = request_id_of(response.headers());
        }
        Ok(answer)
    }

    /// The code of a refusal, where this SDK knows it. None of what is not to the letter an answer of the service.
    pub fn code(&self) -> Option<Code> {
        match self.said() {
            Ok(Said::Refusal { known, .. }) => known,
            Ok(Said::Success(_)) | Err(_) => None,
        }
    }

    /// The data of a success; every other answer is an error. What is not to the letter an answer of the service is [`Error::Unreadable`]: all
    /// five keys, and either `SUCCESS` with `000000` under a 2xx status, or `FAIL` with six other digits and a label under a 4xx or 5xx status,
    /// which of a code that this SDK knows is that code's own.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        match self.said()? {
            Said::Success(data) if data.get() == "null" => Err(self.unreadable("it has no data".to_owned())),
            Said::Success(data) => {
                serde_json::from_str(data.get()).map_err(|e| self.unreadable(format!("its data is not as agreed: {e}")))
            }
            Said::Refusal { known, code, label, message } => Err(self.refusal(known, code, label, message)),
        }
    }

    fn said(&self) -> Result<Said, Error> {
        let is_object = self.body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
        let read = if is_object {
            serde_json::from_slice::<Envelope>(&self.body).map_err(|e| e.to_string())
        } else {
            Err("it is no JSON object".to_owned())
        };
        let Envelope { status, code, label, message, data } =
            read.map_err(|why| self.unreadable(no_envelope(&self.body, &why)))?;
        let is_code = code.len() == 6 && code.bytes().all(|b| b.is_ascii_digit());
        match status.as_str() {
            "SUCCESS" if code != SUCCESS => {
                Err(self.unreadable(format!("it says SUCCESS with another code than {SUCCESS}")))
            }
            "SUCCESS" if !(200..300).contains(&self.http_status) => {
                Err(self.unreadable("it says SUCCESS under a status of failure".to_owned()))
            }
            "SUCCESS" => Ok(Said::Success(data)),
            "FAIL" if !is_code || code == SUCCESS || label.is_empty() => {
                Err(self.unreadable("it says FAIL without the code and label of a failure".to_owned()))
            }
            "FAIL" if !(400..600).contains(&self.http_status) => {
                Err(self.unreadable("it says FAIL under a status that is none of failure".to_owned()))
            }
            "FAIL" => {
                let known = Code::from_code(&code);
                if known.is_some_and(|known| known.http_status() != self.http_status) {
                    return Err(self.unreadable(format!("its code {code} has another HTTP status")));
                }
                Ok(Said::Refusal { known, code, label, message })
            }
            _ => Err(self.unreadable("it is no envelope: its status is neither SUCCESS nor FAIL".to_owned())),
        }
    }

    fn refusal(&self, known: Option<Code>, code: String, label: String, message: String) -> Error {
        let (http_status, request_id, retry_after_s) = (self.http_status, self.request_id.clone(), self.retry_after_s);
        match known {
            Some(code) => Error::Refused { code, label, message, http_status, request_id, retry_after_s },
            None => Error::RefusedNewly { code, label, message, http_status, request_id, retry_after_s },
        }
    }

    /// This answer is not what was agreed, for this reason.
    pub(crate) fn unreadable(&self, why: String) -> Error {
        Error::Unreadable {
            http_status: self.http_status,
            why,
            body_begins: shown(&self.body),
            request_id: self.request_id.clone(),
            date_ms: self.date_ms,
            retry_after_s: self.retry_after_s,
        }
    }
}

/// The beginning of a body that somebody else has written: what could play with a terminal or a log is escaped.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_operator_api_is_told_from_a_page_of_somebody_else() {
        let said = |body: &str| {
            let (http_status, body) = (404, body.as_bytes().to_vec());
            let answer = Answer { http_status, request_id: None, date_ms: None, retry_after_s: None, body };
            match answer.data::<()>() {
                Err(Error::Unreadable { why, .. }) => why,
                other => panic!("it is no envelope: {other:?}"),
            }
        };
        let problem =
            said(r#"{"type":"urn:countersign:problem:NOT_FOUND","title":"Not found","status":404,"code":"400404"}"#);
        assert_eq!(problem, "it is one of the operator API, which has an address of its own");
        for other in ["<html>", r#"{"type":"about:blank","status":404}"#, "{}", ""] {
            assert!(said(other).contains("it is no envelope: "), "{other}");
        }
    }

    #[test]
    fn a_wait_is_seconds_or_a_date_and_an_hour_at_most() {
        let date_ms = http_date::parse("Fri, 02 Jan 2026 00:00:00 GMT").expect("a date");
        for (text, wanted) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("3600", Some(3_600)),
            ("3601", Some(3_600)),
            ("4294967296", Some(3_600)),
            ("99999999999999999999999", Some(3_600)),
            ("Fri, 02 Jan 2026 00:00:09 GMT", Some(9)),
            ("Fri, 02 Jan 2026 00:00:00 GMT", Some(0)),
            ("Thu, 01 Jan 2026 00:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 2027 23:59:59 GMT", Some(3_600)),
            ("-1", None),
            ("+7", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after_s(text, date_ms), wanted, "{text:?}");
        }
        assert_eq!(retry_after_s("Fri, 02 Jan 2026 00:00:09 GMT", date_ms + 1), Some(9), "never early");
    }

    #[test]
    fn what_is_shown_of_a_body_is_short_and_harmless() {
        assert_eq!(shown(b"<p class=\"x\">it's\n\x1b[31m\0\xff"), "<p class=\"x\">it's\\n\\u{1b}[31m\\0\u{fffd}");
        assert_eq!(shown("\u{202e}\u{2028}".as_bytes()), "\\u{202e}\\u{2028}");
        assert_eq!(shown(&[b'a'; 201]).len(), 200);
        assert_eq!(shown(b""), "");
    }
}
