//! Many events of an application sent again by a filter.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::SortedId;
use countersign_domain::time::rfc3339;
use countersign_protocol::body::Fields;
use countersign_protocol::code::Code;
use countersign_store::redelivery::RedeliveryRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::events::BIZ_ID_CHARS_MAX;
use super::fields::{checked_text, client_id, in_order, instant, whole};
use super::paging::{Asked, Mark, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::redelivery::{self, Prospect, Wish, parse_public_id, public_id};

/// Events in a second where nothing is said, and at the most.
const RATE_DEFAULT: i64 = 50;
pub(crate) const RATE_MAX: i64 = 1_000;

/// Which events are sent again, and how fast.
#[derive(Debug, ToSchema)]
pub struct RedeliverRequest {
    /// Whose events.
    pub client_id: String,
    /// `dead` (default) or `delivered`.
    pub state: Option<String>,
    /// Only of this payment order or transaction.
    #[schema(rename = "bizId")]
    pub biz_id: Option<String>,
    /// Only those that were written at this instant or later, RFC 3339.
    pub from: Option<String>,
    /// Only those that were written before this instant, RFC 3339.
    pub to: Option<String>,
    /// Events in a second, at the most: 1 to 1000, default 50.
    pub rate_per_s: Option<i64>,
    /// Only count: nothing is written, and nothing is kept under an `Idempotency-Key`.
    pub preview: Option<bool>,
}

/// What is, or would be, sent again.
#[derive(Debug, Serialize, ToSchema)]
pub struct Redelivering {
    /// The redelivery; absent in a preview, and where no event is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery_id: Option<String>,
    /// How many events are meant.
    pub count: i64,
    /// Whether there may be more: the first 1,000,000 events of the application were counted.
    pub count_is_at_least: bool,
    /// When the oldest of them was written, RFC 3339; null where there is none.
    pub oldest_at: Option<String>,
    /// Events in a second, at the most.
    pub rate_per_s: i64,
    /// How many seconds that takes.
    pub takes_s: i64,
    /// Whether this was only counted.
    pub preview: bool,
    /// `running`, or `done` where no event is meant; absent in a preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
}

impl Redelivering {
    fn of(prospect: &Prospect, wish: &Wish, preview: bool) -> Self {
        let state = if prospect.begun.is_some() { "running" } else { "done" };
        Self {
            redelivery_id: prospect.begun.as_ref().map(|row| public_id(row.id)),
            count: prospect.count,
            count_is_at_least: prospect.is_at_least,
            oldest_at: prospect.oldest_at.map(rfc3339),
            rate_per_s: wish.rate_per_s,
            takes_s: prospect.count.saturating_add(wish.rate_per_s - 1).div_euclid(wish.rate_per_s),
            preview,
            state: (!preview).then_some(state),
        }
    }
}

/// A redelivery and how far it is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Redelivery {
    /// Its id.
    pub redelivery_id: String,
    /// Whose events.
    pub client_id: String,
    /// Of which state the events are: `dead` or `delivered`.
    pub of_state: &'static str,
    /// Only of this payment order or transaction; null: of all.
    #[serde(rename = "bizId")]
    pub biz_id: Option<String>,
    /// Only those that were written at this instant or later; null: all.
    pub from: Option<String>,
    /// Only those that were written before this instant; null: all.
    pub to: Option<String>,
    /// Events in a second, at the most.
    pub rate_per_s: i64,
    /// How many events were meant at the start.
    pub count: i64,
    /// Whether there may have been more.
    pub count_is_at_least: bool,
    /// How many were made pending.
    pub done: i64,
    /// `running`, `stopped` or `done`.
    pub state: &'static str,
    /// When it was asked for, RFC 3339.
    pub created_at: String,
    /// When it ended; null while it is running.
    pub ended_at: Option<String>,
}

impl From<&RedeliveryRow> for Redelivery {
    fn from(row: &RedeliveryRow) -> Self {
        Self {
            redelivery_id: public_id(row.id),
            client_id: row.client_id.clone(),
            of_state: row.sought.state.name(),
            biz_id: row.sought.biz_id.clone(),
            from: row.sought.from.map(rfc3339),
            to: row.sought.to.map(rfc3339),
            rate_per_s: row.rate_per_s,
            count: row.count,
            count_is_at_least: row.is_at_least,
            done: row.done,
            state: row.state.name(),
            created_at: rfc3339(row.created_at),
            ended_at: row.ended_at.map(rfc3339),
        }
    }
}

/// What is wished, and whether it is only to be counted.
fn parse(body: &[u8]) -> Result<(Wish, bool), Problem> {
    let fields = Fields::parse(body)?;
    let state = match fields.text("state")?.as_deref() {
        None | Some("dead") => DeliveryState::Dead,
        Some("delivered") => DeliveryState::Delivered,
        Some(_) => return Err(Problem::field("state", "must be dead or delivered: what is open goes out by itself")),
    };
    let at = |name| fields.text(name)?.map(|text| instant(name, &text)).transpose();
    let (from, to) = in_order(at("from")?, at("to")?)?;
    let biz_id = fields.text("bizId")?.map(|text| checked_text("bizId", text, 1, BIZ_ID_CHARS_MAX)).transpose()?;
    let wish = Wish {
        client_id: client_id(&fields)?,
        state,
        biz_id,
        from,
        to,
        rate_per_s: whole(&fields, "rate_per_s", 1, RATE_MAX)?.unwrap_or(RATE_DEFAULT),
    };
    Ok((wish, fields.boolean("preview")?.unwrap_or(false)))
}

fn redelivery_id(text: &str) -> Result<SortedId, Problem> {
    parse_public_id(text).ok_or_else(|| Problem::new(Code::NotFound, format!("no redelivery has the id {text}")))
}

/// Sends delivered or dead events of an application again, the oldest first and not faster than asked for. With `preview` it only counts them.
#[utoipa::path(post, path = "/operator/v1/events/redeliver", tag = "Events", operation_id = "redeliver_events", request_body = RedeliverRequest,
    responses((status = 200, body = Redelivering), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn start(State(desk): State<Arc<Desk>>, call: Call) -> Reply {
    call.once(async {
        let (wish, preview) = parse(&call.body)?;
        if preview {
            return Ok(Redelivering::of(&redelivery::preview(call.app(), &wish).await?, &wish, true));
        }
        let keep = |prospect: &Prospect| call.keep(&Redelivering::of(prospect, &wish, false));
        let prospect = redelivery::start(call.app(), &wish, &keep, &call.actor).await?;
        desk.settings.dispatcher.redeliver_soon();
        Ok(Redelivering::of(&prospect, &wish, false))
    })
    .await
}

const MARK: Mark<SortedId> = Mark { read: parse_public_id, write: |id| public_id(*id) };

/// Redeliveries, newest first.
#[utoipa::path(get, path = "/operator/v1/redeliveries", tag = "Events", operation_id = "list_redeliveries",
    params(("client_id" = Option<String>, Query, description = "Only of this application"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Redelivery>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let (of, after) = (asked.filters.id("client_id")?, asked.after(&MARK)?);
    let rows = redelivery::list(&desk.app, of, after, asked.limit_and_one()).await?;
    Ok(json(&asked.page(rows, &MARK, |row| row.id, |row| Redelivery::from(row))))
}

/// One redelivery and how far it is.
#[utoipa::path(get, path = "/operator/v1/redeliveries/{redelivery_id}", tag = "Events", operation_id = "show_redelivery",
    params(("redelivery_id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = Redelivery), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(id): Named<String>) -> Reply {
    Ok(json(&Redelivery::from(&redelivery::find(&desk.app, redelivery_id(&id)?).await?)))
}

/// Stops a redelivery: nothing more is made pending from then on. What is pending goes out.
#[utoipa::path(post, path = "/operator/v1/redeliveries/{redelivery_id}/stop", tag = "Events", operation_id = "stop_redelivery",
    params(("redelivery_id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = Redelivery), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn stop(Named(id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let keep = |row: &RedeliveryRow| call.keep(&Redelivery::from(row));
        Ok(Redelivery::from(&redelivery::stop(call.app(), redelivery_id(&id)?, &keep, &call.actor).await?))
    })
    .await
}
