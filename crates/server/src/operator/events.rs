//! Callback events.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::SortedId;
use countersign_domain::time::rfc3339;
use countersign_protocol::body::{Fields, check_names};
use countersign_protocol::code::Code;
use countersign_store::contract::{AttemptRow, EventFilter, EventRow};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, OneOf, OneOfBuilder, Schema, Type};

use super::Desk;
use super::call::{Bare, Call, Named, Once, Reply, json};
use super::fields::{client_id, given, required};
use super::paging::{Asked, Mark, Page, lettered};
use super::problem::{Problem, ProblemDocument};
use crate::app::App;
use crate::app::events::{self, Happening, next_attempt_at, parse_public_id, public_id};
use crate::app::redelivery::of_one;
use crate::dispatch::BIZ_TYPE as TRIAL;

/// Longest `bizType` and `bizStatus`, in characters.
pub(crate) const WORD_CHARS_MAX: usize = 64;
/// Longest `bizId`: as long as the longest merchantTradeNo, and some more.
pub(crate) const BIZ_ID_CHARS_MAX: usize = 128;

/// What happened.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct EventRequest {
    /// Whose callback it is.
    #[schema(rename = "client_id")]
    pub client_id: String,
    /// What kind of business, 1 to 64 characters: `PAYMENT_ORDER`, `TRANSFER_ADDRESS`, ...
    pub biz_type: String,
    /// Of which payment order or transaction, 1 to 128 characters.
    pub biz_id: String,
    /// What became of it, 1 to 64 characters.
    pub biz_status: String,
    /// Business data: an object, or a text that holds JSON, with no name twice on any level. Merchants get its text, digit for digit.
    #[schema(schema_with = data_schema)]
    pub data: String,
}

fn data_schema() -> Schema {
    let kinds = [Type::Object, Type::String].map(|kind| ObjectBuilder::new().schema_type(kind));
    let about = "Business data: an object, or a text that holds JSON, with no name twice on any level. Merchants get its text, digit for digit.";
    Schema::OneOf(kinds.into_iter().fold(OneOf::builder(), OneOfBuilder::item).description(Some(about)).build())
}

/// An event that was written.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Emitted {
    /// Its id.
    pub event_id: String,
    /// Its place among the events of its `bizId`: 1, 2, ...
    pub sequence: i64,
}

/// An event and where its delivery stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its id.
    #[serde(rename = "event_id")]
    pub event_id: String,
    /// Whose callback it is.
    #[serde(rename = "client_id")]
    pub client_id: String,
    /// What kind of business.
    pub biz_type: String,
    /// Of which payment order or transaction.
    pub biz_id: String,
    /// What became of it.
    pub biz_status: String,
    /// Its place among the application's events: 1, 2, ...
    pub seq: i64,
    /// Its place among the events of its `bizId`: 1, 2, ...
    pub sequence: i64,
    /// `pending`, `held`, `delivered` or `dead`.
    pub state: &'static str,
    /// Attempts made.
    #[serde(rename = "attempt_count")]
    pub attempt_count: i64,
    /// When the next attempt is due; null unless pending, and while callbacks are held since a restore.
    #[serde(rename = "next_attempt_at")]
    pub next_attempt_at: Option<String>,
    /// When it was written, RFC 3339.
    #[serde(rename = "created_at")]
    pub created_at: String,
}

/// An event with its data and all its attempts.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventWithAttempts {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Business data, a JSON text.
    pub data: String,
    /// All attempts, in order.
    pub attempts: Vec<Attempt>,
}

/// One attempt at delivery.
#[derive(Debug, Serialize, ToSchema)]
pub struct Attempt {
    /// 1, 2, ...
    pub attempt: i64,
    /// When it began, RFC 3339.
    pub at: String,
    /// `delivered`, `refused_address`, `dns_failed`, `connect_failed`, `tls_failed`, `timeout`, `http_status`, `unreadable` or `fail`.
    pub outcome: &'static str,
    /// The status, where an answer came.
    pub http_status: Option<u16>,
    /// How long it took.
    pub duration_ms: i64,
    /// The address that was connected to.
    pub address: Option<String>,
    /// What went wrong, in words.
    pub detail: String,
    /// How long the look-up of the name took, in microseconds. Null where a phase did not happen, here and below.
    pub dns_us: Option<i64>,
    /// How long connecting took.
    pub connect_us: Option<i64>,
    /// How long the TLS handshake took.
    pub tls_us: Option<i64>,
    /// From the moment that the request was handed to its connection to the first byte of the answer.
    pub first_byte_us: Option<i64>,
    /// From the beginning to the end of it all; null for attempts of before this was noted.
    pub total_us: Option<i64>,
    /// Whether it went over a connection that an attempt before had left open; null where there was none.
    pub reused: Option<bool>,
}

impl From<&EventRow> for Event {
    fn from(row: &EventRow) -> Self {
        Self {
            event_id: public_id(row.event_id),
            client_id: row.client_id.clone(),
            biz_type: row.biz_type.clone(),
            biz_id: row.biz_id.clone(),
            biz_status: row.biz_status.clone(),
            seq: row.seq,
            sequence: row.sequence,
            state: row.state.name(),
            attempt_count: row.attempts,
            next_attempt_at: next_attempt_at(row).map(rfc3339),
            created_at: rfc3339(row.created_at),
        }
    }
}

impl From<&AttemptRow> for Attempt {
    fn from(row: &AttemptRow) -> Self {
        Self {
            attempt: row.attempt,
            at: rfc3339(row.at),
            outcome: row.outcome.name(),
            http_status: row.http_status,
            duration_ms: row.duration_ms,
            address: row.address.clone(),
            detail: row.detail.clone(),
            dns_us: row.phases.dns_us,
            connect_us: row.phases.connect_us,
            tls_us: row.phases.tls_us,
            first_byte_us: row.phases.first_byte_us,
            total_us: row.phases.total_us,
            reused: row.phases.reused,
        }
    }
}

impl From<&EventRow> for Emitted {
    fn from(row: &EventRow) -> Self {
        Self { event_id: public_id(row.event_id), sequence: row.sequence }
    }
}

/// Reads what is to be an event.
pub(crate) fn parse(body: &[u8]) -> Result<Happening, Problem> {
    let fields = Fields::parse(body)?;
    let biz_type = required(&fields, "bizType", WORD_CHARS_MAX)?;
    if biz_type == TRIAL {
        let why = format!(
            "must not be {TRIAL}: that is of test callbacks, which tell of nothing, and receivers pass it over"
        );
        return Err(Problem::field("bizType", why));
    }
    Ok(Happening {
        client_id: client_id(&fields)?,
        biz_type,
        biz_id: required(&fields, "bizId", BIZ_ID_CHARS_MAX)?,
        biz_status: required(&fields, "bizStatus", WORD_CHARS_MAX)?,
        data: data(&fields)?,
    })
}

/// An object as its own text, or a text that holds JSON. Every receiver has to read it: what their parsers refuse would be sent until it is dead.
fn data(fields: &Fields<'_>) -> Result<String, Problem> {
    let raw = given(fields, "data")?;
    let text = if raw.starts_with('{') { Ok(raw.to_owned()) } else { fields.required_text("data") };
    let text = text.ok().filter(|text| serde_json::from_str::<Value>(text).is_ok()).ok_or_else(|| {
        let why = "must be an object, or a text that holds JSON, as every parser reads it: at most 127 levels deep, without half a surrogate pair, \
                   and with no number beyond 1.8e308";
        Problem::field("data", why)
    })?;
    check_names(&text).map_err(|why| Problem::field("data", why))?;
    Ok(text)
}

pub(super) fn event_id(text: &str) -> Result<SortedId, Problem> {
    parse_public_id(text).ok_or_else(|| Problem::new(Code::NotFound, format!("no event has the id {text}")))
}

/// The answer of a repeated call: `sequence` was given by the store after the answer was kept.
async fn emitted_before(app: &App, kept: &str) -> Result<Emitted, Problem> {
    let kept: Emitted = serde_json::from_str(kept).map_err(|_| Problem::internal())?;
    let (event, _) = events::find(app, event_id(&kept.event_id)?).await?;
    Ok(Emitted::from(&event))
}

/// Writes an event. Its callback goes out at once, or is held where callbacks do not go out.
#[utoipa::path(post, path = "/operator/v1/events", tag = "Events", operation_id = "emit_event", request_body = EventRequest,
    responses((status = 200, body = Emitted), (status = 404, body = ProblemDocument)))]
pub async fn emit(call: Call) -> Reply {
    let act = async {
        let what = parse(&call.body)?;
        let event = events::emit(call.app(), &what, &|row| call.keep(&Emitted::from(row)), &call.actor).await?;
        Ok(Emitted::from(&event))
    };
    Ok(match call.once_or_again(act).await? {
        Once::First(emitted) => json(&emitted),
        Once::Again(kept) => json(&emitted_before(call.app(), &kept).await?),
    })
}

const MARK: Mark<i64> = lettered::<'e'>();

/// Events, newest first. A page may hold fewer events than `limit` and yet have a `next`: so many are looked at for a page, and no more.
#[utoipa::path(get, path = "/operator/v1/events", tag = "Events", operation_id = "list_events",
    params(("client_id" = Option<String>, Query, description = "Only of this application"), ("bizId" = Option<String>, Query, description = "Only of this bizId"),
        ("state" = Option<String>, Query, description = "Only in this state: pending, held, delivered or dead"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Event>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let filter = EventFilter {
        client_id: asked.filters.id("client_id")?,
        biz_id: asked.filters.words("bizId", BIZ_ID_CHARS_MAX)?,
        state: asked.filters.read("state", DeliveryState::from_name, "must be pending, held, delivered or dead")?,
    };
    let page = events::list(&desk.app, filter, asked.after(&MARK)?, asked.limit).await?;
    Ok(json(&Page { items: page.events.iter().map(Event::from).collect(), next: page.next.as_ref().map(MARK.write) }))
}

/// One event with all its attempts.
#[utoipa::path(get, path = "/operator/v1/events/{event_id}", tag = "Events", operation_id = "show_event",
    params(("event_id" = String, Path, description = "The event")),
    responses((status = 200, body = EventWithAttempts), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(id): Named<String>) -> Reply {
    let (event, attempts) = events::find(&desk.app, event_id(&id)?).await?;
    let attempts = attempts.iter().map(Attempt::from).collect();
    Ok(json(&EventWithAttempts { event: Event::from(&event), data: event.data, attempts }))
}

/// Sends an event again that is delivered or dead. One that waits for its next attempt has it now. Its attempts go on counting.
#[utoipa::path(post, path = "/operator/v1/events/{event_id}/redeliver", tag = "Redeliveries", operation_id = "redeliver_event",
    params(("event_id" = String, Path, description = "The event")),
    responses((status = 200, body = Event), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn redeliver(Named(id): Named<String>, Bare(call): Bare) -> Reply {
    call.once(async {
        let event =
            of_one::redeliver(call.app(), event_id(&id)?, &|row| call.keep(&Event::from(row)), &call.actor).await?;
        Ok(Event::from(&event))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_what_every_parser_reads_digit_for_digit() {
        let of = |body: &str| {
            let fields = Fields::parse(body.as_bytes()).expect("an object");
            data(&fields).ok()
        };
        assert_eq!(
            of(r#"{"data":{"n": 1.10,"s":"\ud83d\ude00"}}"#).as_deref(),
            Some(r#"{"n": 1.10,"s":"\ud83d\ude00"}"#)
        );
        assert_eq!(of(r#"{"data":"[1e3]"}"#).as_deref(), Some("[1e3]"));
        let deep = format!(r#"{{"data":"{}{}"}}"#, "[".repeat(500), "]".repeat(500));
        for refused in [
            r#"{"data":{"s":"\ud800"}}"#,
            r#"{"data":"\"\\ud800\""}"#,
            r#"{"data":{"n":1e400}}"#,
            r#"{"data":"1e400"}"#,
            r#"{"data":"{"}"#,
            r#"{"data":7}"#,
            r#"{"data":"{\"a\":[{\"b\":1,\"b\":2}]}"}"#,
            r#"{"data":"{\"a\":1,\"\\u0061\":2}"}"#,
            deep.as_str(),
        ] {
            assert_eq!(of(refused), None, "{refused}");
        }
    }
}
