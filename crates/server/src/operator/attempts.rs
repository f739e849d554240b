//! One attempt at delivery with what went over the wire.

use std::sync::Arc;

use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_store::attempt_log::AttemptBytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Named, Reply, json};
use super::events::{Attempt, event_id};
use super::problem::ProblemDocument;
use crate::app::events;

/// Bytes, as a text where they are one.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Bytes {
    /// `text`: `content` is the bytes, which are UTF-8. `base64`: they are not, and `content` is their Base64.
    pub encoding: &'static str,
    /// The bytes.
    pub content: String,
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { encoding: "text", content: text.to_owned() },
            Err(_) => Self { encoding: "base64", content: STANDARD.encode(bytes) },
        }
    }
}

impl Bytes {
    /// Of an answer. A cut may fall inside of its last character: that is left off.
    fn of_answer(bytes: &[u8], is_cut: bool) -> Self {
        match std::str::from_utf8(bytes) {
            Err(error) if is_cut && error.error_len().is_none() => bytes[..error.valid_up_to()].into(),
            Ok(_) | Err(_) => bytes.into(),
        }
    }
}

/// An attempt with what went over the wire, byte for byte.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptWithBytes {
    /// The attempt.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// The request line and the headers as they went out; null where nothing did, or where it is no longer kept.
    pub sent_head: Option<Bytes>,
    /// The body of every attempt at this event; null where no head went out, or where it is no longer kept.
    pub sent_body: Option<Bytes>,
    /// The status line and the headers as they came in, interim answers before them; null where no byte came. Where it was no HTTP: what came.
    pub answer_head: Option<Bytes>,
    /// The beginning of the answer's body, at most 16 KiB, without the frames of chunks; null where no answer came.
    pub answer_body: Option<Bytes>,
    /// How many bytes of the answer's body were read; null where no answer came.
    pub answer_body_bytes: Option<i64>,
    /// Whether the answer's body is longer than what is shown, or may be: no more of it was read.
    pub answer_body_is_cut: bool,
}

impl AttemptWithBytes {
    fn new(attempt: Attempt, body: &[u8], bytes: Option<&AttemptBytes>) -> Self {
        let sent = bytes.filter(|bytes| !bytes.sent_head.is_empty());
        let answer = bytes.filter(|bytes| !bytes.answer_head.is_empty());
        Self {
            attempt,
            sent_head: sent.map(|bytes| bytes.sent_head.as_slice().into()),
            sent_body: sent.map(|_| body.into()),
            answer_head: answer.map(|bytes| Bytes::of_answer(&bytes.answer_head, bytes.is_cut)),
            answer_body: answer.map(|bytes| Bytes::of_answer(&bytes.answer_body, bytes.is_cut)),
            answer_body_bytes: answer.map(|bytes| bytes.answer_length),
            answer_body_is_cut: answer.is_some_and(|bytes| bytes.is_cut),
        }
    }
}

/// One attempt with the bytes of its request and of its answer. The answer is the merchant's, and may hold what only few should read.
#[utoipa::path(get, path = "/operator/v1/events/{event_id}/attempts/{attempt}", tag = "Events", operation_id = "show_attempt",
    params(("event_id" = String, Path, description = "The event"), ("attempt" = i64, Path, description = "Which attempt: 1, 2, ...")),
    responses((status = 200, body = AttemptWithBytes), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named((id, number)): Named<(String, String)>) -> Reply {
    let id = event_id(&id)?;
    let read = || number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok()).flatten();
    let number = read().ok_or_else(|| events::no_attempt(id, &number))?;
    let (event, row, bytes) = events::attempt(&desk.app, id, number).await?;
    Ok(json(&AttemptWithBytes::new(Attempt::from(&row), &event.body, bytes.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_text_where_they_are_one_and_base64_where_not() {
        let of = |bytes: &[u8]| {
            let Bytes { encoding, content } = bytes.into();
            (encoding, content)
        };
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n\0"), ("text", "HTTP/1.1 200 OK\r\n\0".to_owned()));
        assert_eq!(of("ü".as_bytes()), ("text", "ü".to_owned()));
        assert_eq!(of(&[0xff, 0]), ("base64", "/wA=".to_owned()));
        assert_eq!(of(b""), ("text", String::new()));
    }

    #[test]
    fn of_a_text_that_was_cut_inside_of_a_character_the_rest_is_shown() {
        let of = |bytes: &[u8], is_cut| {
            let Bytes { encoding, content } = Bytes::of_answer(bytes, is_cut);
            (encoding, content)
        };
        for whole in ["a\u{fc}", "a\u{5931}", "a\u{1f600}"] {
            for end in 2..whole.len() {
                let cut = &whole.as_bytes()[..end];
                assert_eq!(of(cut, true), ("text", "a".to_owned()), "{cut:?}");
                assert_eq!(of(cut, false).0, "base64", "{cut:?}: the endpoint has ended so");
            }
            assert_eq!(of(whole.as_bytes(), true), ("text", whole.to_owned()));
        }
        assert_eq!(of(b"\xff, and more", true).0, "base64", "it is no text");
    }
}
