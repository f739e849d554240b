//! What dead events died of.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use countersign_domain::time::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Reply, json};
use super::paging::Asked;
use super::problem::{Problem, ProblemDocument};
use crate::app::causes::{self, Cause, Causes, Which};
use crate::app::events::public_id;

/// Dead events of one application that died of the same.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadCause {
    /// Whose.
    pub client_id: String,
    /// What came of the last attempt: `refused_address`, `dns_failed`, `connect_failed`, `tls_failed`, `timeout`, `http_status`, `unreadable` or `fail`.
    pub outcome: &'static str,
    /// The status of its answer, where one came.
    pub http_status: Option<u16>,
    /// What went wrong at the newest of them, in words.
    pub detail: String,
    /// How many.
    pub count: i64,
    /// When the oldest of them was written, RFC 3339.
    pub oldest_at: String,
    /// When the newest of them was written, RFC 3339.
    pub newest_at: String,
    /// The newest of them.
    pub example_event_id: String,
}

/// Dead events by what they died of.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeadCauses {
    /// That of the most events first.
    pub items: Vec<DeadCause>,
    /// Causes that are left off, those of the fewest events.
    pub items_left_off: usize,
    /// Whether there may be more: the newest 100,000 dead events are looked at.
    pub count_is_at_least: bool,
}

impl From<&Cause> for DeadCause {
    fn from(cause: &Cause) -> Self {
        Self {
            client_id: cause.client_id.clone(),
            outcome: cause.outcome.name(),
            http_status: cause.http_status,
            detail: cause.detail.clone(),
            count: cause.count,
            oldest_at: rfc3339(cause.oldest_at),
            newest_at: rfc3339(cause.newest_at),
            example_event_id: public_id(cause.example),
        }
    }
}

impl DeadCauses {
    fn of(found: &Causes, limit: u32) -> Self {
        let items: Vec<DeadCause> = found.items.iter().take(limit as usize).map(DeadCause::from).collect();
        Self { items_left_off: found.items.len() - items.len(), items, count_is_at_least: found.is_at_least }
    }
}

fn which(asked: &Asked) -> Result<Which, Problem> {
    let (client_id, (from, to)) = (asked.filters.id("client_id")?, asked.filters.span()?);
    Ok(Which { client_id, from, to, ..Which::default() })
}

/// Dead events, by what came of the last attempt at each. Of which application, how many, since when, and one to look at. The cause of the most first.
#[utoipa::path(get, path = "/operator/v1/events/dead-causes", tag = "Events", operation_id = "list_dead_causes",
    params(("client_id" = Option<String>, Query, description = "Only of this application"),
        ("from" = Option<String>, Query, description = "Only those that were written at this instant or later, RFC 3339"),
        ("to" = Option<String>, Query, description = "Only those that were written before this instant, RFC 3339"),
        ("limit" = Option<u32>, Query, description = "At most so many causes: 1 to 500, default 50")),
    responses((status = 200, body = DeadCauses), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, caller: Extension<Caller>, asked: Asked) -> Reply {
    let which = which(&asked)?;
    let _place = desk.counts.take(&caller.actor.name)?;
    let found = causes::of_dead(&desk.app, &which).await?;
    Ok(json(&DeadCauses::of(&found, asked.limit)))
}
