//! Many events sent again by a filter, of an application or of all.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::SortedId;
use countersign_domain::time::rfc3339;
use countersign_protocol::body::Fields;
use countersign_protocol::code::Code;
use countersign_store::redelivery::{DiedOf, RedeliveryRow};
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Bare, Call, Named, Reply, json};
use super::events::BIZ_ID_CHARS_MAX;
use super::fields::{checked_text, chosen_id, in_order, instant, whole};
use super::paging::{Asked, Mark, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::App;
use crate::app::error::AppError;
use crate::app::redelivery::of_all::{self, Fate, Share, Shares};
use crate::app::redelivery::{self, Outcomes, Prospect, Wish, parse_public_id, public_id};

/// Events in a second where nothing is said, and at the most.
pub(crate) const RATE_DEFAULT: i64 = 50;
pub(crate) const RATE_MAX: i64 = 1_000;

/// Which events are sent again, and how fast.
#[derive(Debug, ToSchema)]
pub struct RedeliverRequest {
    /// Whose events. Left out in a preview: dead ones of all applications.
    pub client_id: Option<String>,
    /// True, in place of `client_id`: dead ones of all applications.
    pub all_applications: Option<bool>,
    /// `dead` (default) or `delivered`.
    pub state: Option<String>,
    /// Only of this payment order or transaction.
    #[schema(rename = "bizId")]
    pub biz_id: Option<String>,
    /// Only those that were written at this instant or later, RFC 3339.
    pub from: Option<String>,
    /// Only those that were written before this instant, RFC 3339.
    pub to: Option<String>,
    /// Only dead ones whose last attempt came to this, as `GET /events/dead-causes` says.
    pub outcome: Option<String>,
    /// Only dead ones whose last attempt was answered with this status.
    pub http_status: Option<u16>,
    /// Events in a second, at the most and of each application: 1 to 1000, default 50.
    pub rate_per_s: Option<i64>,
    /// With `all_applications`: `next` of the answer before.
    pub after: Option<String>,
    /// Only count: nothing is written, and nothing is kept under an `Idempotency-Key`.
    pub preview: Option<bool>,
}

/// What is, or would be, sent again.
#[derive(Debug, Serialize, ToSchema)]
pub struct Redelivering {
    /// The redelivery; absent in a preview, where no event is meant, and with `all_applications`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery_id: Option<String>,
    /// How many events are meant.
    pub count: i64,
    /// Whether there may be more: the first 1,000,000 events of the application were counted; with `all_applications` the newest 100,000 dead ones
    /// of each.
    pub count_is_at_least: bool,
    /// When the oldest of them was written, RFC 3339; null where there is none.
    pub oldest_at: Option<String>,
    /// Events in a second, at the most and of each application.
    pub rate_per_s: i64,
    /// How many seconds that takes; with `all_applications`, at the application that takes longest.
    pub takes_s: i64,
    /// Whether this was only counted.
    pub preview: bool,
    /// `running`, or `done` where nothing was begun; absent in a preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// With `all_applications`: each application that has dead events which are asked for, up to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applications: Option<Vec<RedeliveringOf>>,
    /// Where there may be more applications: repeat the call with this as `after`. So too where the database failed when some had begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What is, or would be, sent again of one of all applications.
#[derive(Debug, Serialize, ToSchema)]
pub struct RedeliveringOf {
    /// Whose events.
    pub client_id: String,
    /// How many are asked for.
    pub count: i64,
    /// Whether there may be more: the newest 100,000 dead ones are looked at.
    pub count_is_at_least: bool,
    /// When the oldest of them was written, RFC 3339.
    pub oldest_at: Option<String>,
    /// The redelivery; absent in a preview, where they are left out, and where it is not known whether it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery_id: Option<String>,
    /// Why they are left out; absent where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// What tells whether they are sent again, where the database did not say so; then this is the last application, and `next` goes on behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl From<&Share> for RedeliveringOf {
    fn from(share: &Share) -> Self {
        let (redelivery_id, left_out, unknown) = match &share.fate {
            Fate::Meant => (None, None, None),
            Fate::Begun(id) => (Some(id.clone()), None, None),
            Fate::LeftOut(why) => (None, Some(why.clone()), None),
            Fate::Unknown(how) => (None, None, Some(how.clone())),
        };
        let (client_id, oldest_at) = (share.client_id.clone(), share.oldest_at.map(rfc3339));
        let (count, count_is_at_least) = (share.count, share.is_at_least);
        Self { client_id, count, count_is_at_least, oldest_at, redelivery_id, left_out, unknown }
    }
}

/// How many seconds so many events take.
const fn takes_s(count: i64, rate_per_s: i64) -> i64 {
    count.saturating_add(rate_per_s - 1).div_euclid(rate_per_s)
}

impl Redelivering {
    fn of_all(shares: &Shares, wish: &Wish, preview: bool) -> Self {
        let sent: Vec<&Share> = shares.items.iter().filter(|share| !matches!(share.fate, Fate::LeftOut(_))).collect();
        let state = if sent.is_empty() { "done" } else { "running" };
        Self {
            redelivery_id: None,
            count: sent.iter().map(|share| share.count).sum(),
            count_is_at_least: sent.iter().any(|share| share.is_at_least),
            oldest_at: sent.iter().filter_map(|share| share.oldest_at).min().map(rfc3339),
            rate_per_s: wish.rate_per_s,
            takes_s: sent.iter().map(|share| takes_s(share.count, wish.rate_per_s)).max().unwrap_or(0),
            preview,
            state: (!preview).then_some(state),
            applications: Some(shares.items.iter().map(RedeliveringOf::from).collect()),
            next: shares.next.clone(),
        }
    }

    fn of(prospect: &Prospect, wish: &Wish, preview: bool) -> Self {
        let state = if prospect.begun.is_some() { "running" } else { "done" };
        Self {
            redelivery_id: prospect.begun.as_ref().map(|row| public_id(row.id)),
            count: prospect.count,
            count_is_at_least: prospect.is_at_least,
            oldest_at: prospect.oldest_at.map(rfc3339),
            rate_per_s: wish.rate_per_s,
            takes_s: takes_s(prospect.count, wish.rate_per_s),
            preview,
            state: (!preview).then_some(state),
            applications: None,
            next: None,
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
    /// Only those whose last attempt came to this; null: all.
    pub outcome: Option<&'static str>,
    /// Only those whose last attempt was answered with this status; null: all.
    pub http_status: Option<u16>,
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

/// A redelivery, how far it is, and what it waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct RedeliveryNow {
    /// The redelivery.
    #[serde(flatten)]
    pub redelivery: Redelivery,
    /// For what it waits where it is running: what keeps callbacks of the application from going out, as `state` of its callbacks says; `breaker`: its endpoint fails, and is left alone; `endpoint`: what is due has not gone out yet. Null: for nothing but its rate, or another node delivers.
    pub waits_for: Option<&'static str>,
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
            outcome: row.sought.died_of.outcome.map(Outcome::name),
            http_status: row.sought.died_of.http_status,
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

/// Whose events are sent again.
#[derive(Debug)]
enum Whose {
    /// Of this application.
    One(String),
    /// Of all applications, behind this ClientId.
    All(Option<String>),
}

/// Which events, whose, and whether they are only to be counted.
fn parse(body: &[u8]) -> Result<(Wish, Whose, bool), Problem> {
    let fields = Fields::parse(body)?;
    let state = match fields.text("state")?.as_deref() {
        None | Some("dead") => DeliveryState::Dead,
        Some("delivered") => DeliveryState::Delivered,
        Some(_) => return Err(Problem::field("state", "must be dead or delivered: what is open goes out by itself")),
    };
    let preview = fields.boolean("preview")?.unwrap_or(false);
    let whose = whose(&fields, state, preview)?;
    let at = |name| fields.text(name)?.map(|text| instant(name, &text)).transpose();
    let (from, to) = in_order(at("from")?, at("to")?)?;
    let biz_id = fields.text("bizId")?.map(|text| checked_text("bizId", text, 1, BIZ_ID_CHARS_MAX)).transpose()?;
    let rate_per_s = whole(&fields, "rate_per_s", 1, RATE_MAX)?.unwrap_or(RATE_DEFAULT);
    let died_of = died_of(&fields, state)?;
    Ok((Wish { state, biz_id, from, to, died_of, rate_per_s }, whose, preview))
}

fn died_of(fields: &Fields<'_>, state: DeliveryState) -> Result<DiedOf, Problem> {
    let known = |name: String| {
        let found = Outcome::from_name(&name).filter(|outcome| *outcome != Outcome::Delivered);
        found.ok_or_else(|| Problem::field("outcome", format!("must be one of {}", failures().join(", "))))
    };
    let outcome = fields.text("outcome")?.map(known).transpose()?;
    let http_status = whole(fields, "http_status", 100, 999)?.and_then(|status| u16::try_from(status).ok());
    let named = outcome.map(|_| "outcome").or(http_status.map(|_| "http_status"));
    match named.filter(|_| state != DeliveryState::Dead) {
        Some(field) => Err(Problem::field(field, "is of dead events only: what is delivered died of nothing")),
        None => Ok(DiedOf { outcome, http_status }),
    }
}

/// What an event can die of.
pub(crate) fn failures() -> Vec<&'static str> {
    Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Delivered).map(Outcome::name).collect()
}

/// The fields of the call.
const KNOWN: [&str; 11] = [
    "client_id",
    "all_applications",
    "state",
    "bizId",
    "from",
    "to",
    "outcome",
    "http_status",
    "rate_per_s",
    "after",
    "preview",
];

/// All applications are named, but where they are only counted: a ClientId under a misspelt name would reach every merchant.
fn whose(fields: &Fields<'_>, state: DeliveryState, preview: bool) -> Result<Whose, Problem> {
    let of_all = fields.boolean("all_applications")?.unwrap_or(false);
    let (client_id, after) = (chosen_id(fields, "client_id")?, chosen_id(fields, "after")?);
    match (client_id, after) {
        (of_one, _)
            if (of_all || preview && of_one.is_none())
                && let Some(stranger) = fields.stranger(&KNOWN) =>
        {
            let why = "is not known: where no client_id is given a misspelt field would reach every merchant";
            Err(Problem::field(stranger, why))
        }
        (Some(_), _) if of_all => Err(Problem::field("client_id", "and all_applications: give one of them")),
        (Some(_), Some(_)) => Err(Problem::field("after", "goes with all_applications, not with client_id")),
        (Some(client_id), None) => Ok(Whose::One(client_id)),
        (None, _) if state != DeliveryState::Dead => {
            let why = "is required: what is delivered is sent again of one application at a time";
            Err(Problem::field("client_id", why))
        }
        (None, _) if !of_all && !preview => {
            let why = "is required; all_applications: true sends dead events of all applications again";
            Err(Problem::field("client_id", why))
        }
        (None, after) => Ok(Whose::All(after)),
    }
}

fn redelivery_id(text: &str) -> Result<SortedId, Problem> {
    parse_public_id(text).ok_or_else(|| Problem::new(Code::NotFound, format!("no redelivery has the id {text}")))
}

/// Sends delivered or dead events again. Those of an application, the oldest first and not faster than asked for; with `all_applications` dead ones of
/// all. With `preview` it only counts them. Exactly one of `client_id` and `all_applications` is given; a preview may leave out both.
#[utoipa::path(post, path = "/operator/v1/events/redeliver", tag = "Redeliveries", operation_id = "redeliver_events", request_body = RedeliverRequest,
    responses((status = 200, body = Redelivering), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn start(State(desk): State<Arc<Desk>>, call: Call) -> Reply {
    call.once(async {
        let (wish, whose, preview) = parse(&call.body)?;
        if preview {
            let _place = desk.counts.take(&call.actor.name)?;
            return count(call.app(), &wish, &whose).await;
        }
        let begun = begin(&call, &wish, &whose).await?;
        desk.settings.dispatcher.redeliver_soon();
        Ok(begun)
    })
    .await
}

async fn count(app: &App, wish: &Wish, whose: &Whose) -> Result<Redelivering, Problem> {
    Ok(match whose {
        Whose::One(client_id) => Redelivering::of(&redelivery::preview(app, client_id, wish).await?, wish, true),
        Whose::All(after) => Redelivering::of_all(&of_all::preview(app, wish, after.as_deref()).await?, wish, true),
    })
}

async fn begin(call: &Call, wish: &Wish, whose: &Whose) -> Result<Redelivering, Problem> {
    let (app, actor) = (call.app(), &call.actor);
    Ok(match whose {
        Whose::One(client_id) => {
            let keep = |prospect: &Prospect| call.keep(&Redelivering::of(prospect, wish, false));
            Redelivering::of(&redelivery::start(app, client_id, wish, &keep, actor).await?, wish, false)
        }
        Whose::All(after) => {
            let keep = |shares: &Shares| call.keep(&Redelivering::of_all(shares, wish, false));
            Redelivering::of_all(&of_all::start(app, wish, after.as_deref(), &keep, actor).await?, wish, false)
        }
    })
}

const MARK: Mark<SortedId> = Mark { read: parse_public_id, write: |id| public_id(*id) };

/// Redeliveries, newest first.
#[utoipa::path(get, path = "/operator/v1/redeliveries", tag = "Redeliveries", operation_id = "list_redeliveries",
    params(("client_id" = Option<String>, Query, description = "Only of this application"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Redelivery>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let (of, after) = (asked.filters.id("client_id")?, asked.after(&MARK)?);
    let rows = redelivery::list(&desk.app, of, after, asked.limit_and_one()).await?;
    Ok(json(&asked.page(rows, &MARK, |row| row.id, |row| Redelivery::from(row))))
}

/// One redelivery, how far it is, and what it waits for.
#[utoipa::path(get, path = "/operator/v1/redeliveries/{redelivery_id}", tag = "Redeliveries", operation_id = "show_redelivery",
    params(("redelivery_id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = RedeliveryNow), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(id): Named<String>) -> Reply {
    let row = redelivery::find(&desk.app, redelivery_id(&id)?).await?;
    let waits_for = desk.settings.dispatcher.waits_for(&row).await.map_err(AppError::from)?;
    Ok(json(&RedeliveryNow { redelivery: Redelivery::from(&row), waits_for }))
}

/// How the events of a redelivery stand now.
#[derive(Debug, Serialize, ToSchema)]
pub struct RedeliveryOutcomes {
    /// Its id.
    pub redelivery_id: String,
    /// `running`, `stopped` or `done`.
    pub state: &'static str,
    /// How many were made pending.
    pub done: i64,
    /// Those that were delivered.
    pub delivered: i64,
    /// Those that are dead again.
    pub dead: i64,
    /// Those that wait for an attempt, or are held.
    pub waiting: i64,
    /// Those that a later redelivery has sent again, or that are no longer kept; null where not all were looked at.
    pub elsewhere: Option<i64>,
    /// Whether there may be more of each: 1,000,000 events of the application are looked at.
    pub count_is_at_least: bool,
}

impl From<&Outcomes> for RedeliveryOutcomes {
    fn from(outcomes: &Outcomes) -> Self {
        let Outcomes { of, waiting, delivered, dead, is_at_least } = outcomes;
        Self {
            redelivery_id: public_id(of.id),
            state: of.state.name(),
            done: of.done,
            delivered: *delivered,
            dead: *dead,
            waiting: *waiting,
            elsewhere: outcomes.elsewhere(),
            count_is_at_least: *is_at_least,
        }
    }
}

/// How the events of a redelivery fared so far.
#[utoipa::path(get, path = "/operator/v1/redeliveries/{redelivery_id}/outcomes", tag = "Redeliveries", operation_id = "show_redelivery_outcomes",
    params(("redelivery_id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = RedeliveryOutcomes), (status = 404, body = ProblemDocument)))]
pub async fn outcomes(State(desk): State<Arc<Desk>>, caller: Extension<Caller>, Named(id): Named<String>) -> Reply {
    let _place = desk.counts.take(&caller.actor.name)?;
    Ok(json(&RedeliveryOutcomes::from(&redelivery::outcomes(&desk.app, redelivery_id(&id)?).await?)))
}

/// Stops a redelivery: nothing more is made pending from then on. What is pending goes out.
#[utoipa::path(post, path = "/operator/v1/redeliveries/{redelivery_id}/stop", tag = "Redeliveries", operation_id = "stop_redelivery",
    params(("redelivery_id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = Redelivery), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn stop(Named(id): Named<String>, Bare(call): Bare) -> Reply {
    call.once(async {
        let keep = |row: &RedeliveryRow| call.keep(&Redelivery::from(row));
        Ok(Redelivery::from(&redelivery::stop(call.app(), redelivery_id(&id)?, &keep, &call.actor).await?))
    })
    .await
}
