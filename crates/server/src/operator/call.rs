//! A write call: who, with what body, and whether it was made before.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, Response};
use axum::response::IntoResponse;
use countersign_protocol::body::Fields;
use countersign_protocol::code::Code;
use countersign_protocol::query::encode;
use countersign_protocol::sentence::of_header;
use countersign_store::contract::{IdempotencyRow, NewAnswer};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Desk;
use super::auth::Caller;
use super::frame::Context;
use super::problem::Problem;
use crate::app::error::AppError;
use crate::app::idempotency::{self, Keyed};
use crate::app::nodes;
use crate::app::turns::TurnKey;
use crate::app::{Actor, App};
use crate::digest::sha256;
use crate::edges;

/// What a handler answers.
pub type Reply = Result<Response<Body>, Problem>;

/// Longest `Idempotency-Key`.
pub const KEY_BYTES_MAX: usize = 255;
const KEY_HEADER: &str = "idempotency-key";

/// A write call that was let in, with its whole body.
#[derive(Debug)]
pub struct Call {
    /// Who.
    pub actor: Actor,
    /// The body; an object without members where none came.
    pub body: Bytes,
    keyed: Option<Keyed>,
    desk: Arc<Desk>,
}

/// What becomes of a call that may have been made before.
#[derive(Debug)]
pub enum Once<T> {
    /// It was made now.
    First(T),
    /// It was made before: the answer that was kept.
    Again(String),
}

impl Call {
    /// The deployment.
    pub fn app(&self) -> &App {
        &self.desk.app
    }

    /// How long a node counts as alive that is not seen.
    pub fn lease(&self) -> Duration {
        self.desk.settings.dispatcher.node().1
    }

    /// What keeps `answer`, whose secrets are null already; none without a key.
    pub fn keep(&self, answer: &impl Serialize) -> Option<NewAnswer> {
        let keyed = self.keyed.as_ref()?;
        let text = serde_json::to_string(answer).expect("answers are texts, numbers and lists of them");
        Some(keyed.answered(self.app(), text))
    }

    /// Does what `act` does, or answers what was answered before. Calls with one key take turns.
    pub async fn once<T: Serialize>(&self, act: impl Future<Output = Result<T, Problem>>) -> Reply {
        Ok(match self.once_or_again(act).await? {
            Once::First(answer) => json(&answer),
            Once::Again(text) => json_text(text),
        })
    }

    /// As [`Call::once`], of calls that may take a right away: a repeat is answered when no node knows it any more, too. On another node the first one may
    /// have been done a moment ago, and still be waiting for that.
    pub async fn once_everywhere<T: Serialize>(&self, act: impl Future<Output = Result<T, Problem>>) -> Reply {
        Ok(match self.once_or_again(act).await? {
            Once::First(answer) => json(&answer),
            Once::Again(text) => {
                nodes::until_all_know(self.app()).await;
                json_text(text)
            }
        })
    }

    /// As [`Call::once`], for answers that are completed before they go out.
    pub async fn once_or_again<T>(&self, act: impl Future<Output = Result<T, Problem>>) -> Result<Once<T>, Problem> {
        let Some(keyed) = &self.keyed else { return act.await.map(Once::First) };
        let key = TurnKey::Idempotency { scope: keyed.scope.clone(), key: keyed.key.clone() };
        let _turn = self.app().turns.take_soon(key).await?;
        if let Some(row) = idempotency::recall(self.app(), keyed).await? {
            return Ok(Once::Again(row.answer));
        }
        match act.await {
            Ok(answer) => Ok(Once::First(answer)),
            // Turns are this node's: on another the same call may just have been done, and have been in the way of this one.
            Err(refused) => settled(refused, idempotency::recall(self.app(), keyed).await),
        }
    }
}

/// What to answer to a call that was refused, by what is kept under its key by now.
fn settled<T>(refused: Problem, kept: Result<Option<IdempotencyRow>, AppError>) -> Result<Once<T>, Problem> {
    match kept {
        Ok(Some(row)) => Ok(Once::Again(row.answer)),
        // The key was used for something else meanwhile: to repeat would not help.
        Err(reused @ AppError::IdempotencyKeyReused) => Err(reused.into()),
        Ok(None) | Err(_) => Err(refused),
    }
}

impl FromRequest<Arc<Desk>> for Call {
    type Rejection = Problem;

    async fn from_request(request: Request, desk: &Arc<Desk>) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let caller = head.extensions.get::<Caller>().cloned().ok_or_else(Problem::internal)?;
        let context = head.extensions.get::<Context>().cloned().ok_or_else(Problem::internal)?;
        let body = read(desk, &head.headers, body).await?;
        let keyed = idempotency_key(&head.headers)?.map(|key| Keyed {
            scope: scope(&caller, &head.method, head.uri.path()),
            key,
            body_digest: sha256(&body),
            at: context.at,
        });
        let body = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
        Ok(Self { actor: caller.actor, body, keyed, desk: desk.clone() })
    }
}

/// A [`Call`] that takes no fields: a body is read as strictly all the same.
#[derive(Debug)]
pub struct Bare(pub Call);

impl FromRequest<Arc<Desk>> for Bare {
    type Rejection = Problem;

    async fn from_request(request: Request, desk: &Arc<Desk>) -> Result<Self, Problem> {
        let call = Call::from_request(request, desk).await?;
        Fields::parse(&call.body)?;
        Ok(Self(call))
    }
}

/// Token and route, with the parts of the path: the same key for another merchant is another call.
fn scope(caller: &Caller, method: &Method, path: &str) -> String {
    format!("{} {method} {}", caller.token_id, in_one_spelling(path))
}

/// A path as it is spelt where nothing is percent-encoded that need not be: `%61pp_1` names what `app_1` does.
fn in_one_spelling(path: &str) -> String {
    let parts = path.split('/').map(|part| decoded(part).map_or_else(|| part.to_owned(), |name| encode(&name)));
    parts.collect::<Vec<_>>().join("/")
}

/// A part of a path; none: it is no UTF-8, and names nothing.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let pair = after.get(..2).filter(|pair| byte == b'%' && pair.iter().all(u8::is_ascii_hexdigit));
        let pair = pair.and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        bytes.push(pair.unwrap_or(byte));
        rest = if pair.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |why: &str| Problem::new(Code::InvalidParameter, of_header("Idempotency-Key", why));
    if values.next().is_some() {
        return Err(refuse("must be given once"));
    }
    let text = value.to_str().unwrap_or("");
    if (1..=KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(Some(text.to_owned()))
    } else {
        Err(refuse("must be 1 to 255 visible ASCII characters"))
    }
}

/// The body, whole: 413 as early as its size is known, then 415.
async fn read(desk: &Desk, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let limit = desk.settings.body_bytes_max;
    let too_large = || Problem::new(Code::BodyTooLarge, format!("body: must be at most {limit} bytes"));
    if hyper::body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(too_large());
    }
    let read = tokio::time::timeout(desk.settings.body_timeout, Limited::new(body, limit).collect()).await;
    let read = read.map_err(|_| {
        Problem::new(
            Code::InvalidParameter,
            format!("body: did not arrive within {} s", desk.settings.body_timeout.as_secs()),
        )
    })?;
    let bytes = match read {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
        Err(error) => {
            return Err(Problem::new(Code::InvalidParameter, edges::body_refusal(&*error).unwrap_or(edges::BROKE_OFF)));
        }
    };
    if !bytes.is_empty() {
        edges::type_refusal(headers).map_or(Ok(()), |s| Err(Problem::new(Code::UnsupportedContentType, s)))?;
    }
    Ok(bytes)
}

/// Parts of the path.
#[derive(Debug)]
pub struct Named<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Desk>> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, desk: &Arc<Desk>) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, desk).await {
            // No name that is kept holds U+0000, and not every database can be asked for one.
            Ok(Path(value)) if !parts.uri.path().contains("%00") => Ok(Self(value)),
            Ok(_) | Err(_) => Err(Problem::new(
                Code::NotFound,
                "the path cannot be read: its parts are UTF-8 without U+0000, percent-encoded",
            )),
        }
    }
}

/// 200 with a JSON body.
pub fn json(answer: &impl Serialize) -> Response<Body> {
    Json(answer).into_response()
}

fn json_text(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_path_has_one_spelling_and_another_has_another() {
        for (sent, spelt) in [
            ("/merchants/m-1_2.a~", "/merchants/m-1_2.a~"),
            ("/applications/%61pp_%58", "/applications/app_X"),
            ("/a/b%2fc", "/a/b%2Fc"),
            ("/a/b/c", "/a/b/c"),
            ("/a/b%2561", "/a/b%2561"),
            ("/a/100%", "/a/100%25"),
            ("/a/%+1", "/a/%25%2B1"),
            ("/a/:%3a%c3%a9", "/a/%3A%3A%C3%A9"),
            ("/a/%ff%61", "/a/%ff%61"),
        ] {
            assert_eq!(in_one_spelling(sent), spelt);
        }
    }

    #[test]
    fn a_key_that_another_node_used_for_another_body_is_a_conflict_and_not_a_reason_to_repeat() {
        let busy = || Problem::from(AppError::Busy);
        let reused = settled::<()>(busy(), Err(AppError::IdempotencyKeyReused)).expect_err("refused");
        assert_eq!(reused.code, Code::IdempotencyKeyReused);
        for kept in [Ok(None), Err(AppError::Busy)] {
            assert_eq!(settled::<()>(busy(), kept).expect_err("refused").code, busy().code);
        }
    }
}
