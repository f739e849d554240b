//! What age would free now.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use countersign_domain::time::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Reply, json};
use super::paging::Page;
use crate::app::retention::{self, Freeable};

/// What would be freed now, of one kind.
#[derive(Debug, Serialize, ToSchema)]
pub struct Retained {
    /// `attempt_bytes` (what went over the wire), `events`, `held_events` (those of the events that are held: no attempt that is recorded has delivered them), or `attempts`
    /// (those that go with their events).
    pub kind: &'static str,
    /// How long it is kept, in seconds; null: for ever.
    pub kept_for_s: Option<u64>,
    /// What is older may go, RFC 3339; null where it is kept for ever.
    pub older_than: Option<String>,
    /// How many would be freed.
    pub rows: i64,
    /// How large they are, in bytes, without what the database needs around them; null: not counted.
    pub bytes: Option<i64>,
    /// Whether there may be more rows and bytes: some 200,000 rows of a kind are counted.
    pub rows_is_at_least: bool,
}

impl From<&Freeable> for Retained {
    fn from(of: &Freeable) -> Self {
        Self {
            kind: of.kind,
            kept_for_s: of.kept_for.map(|life| life.as_secs()),
            older_than: of.older_than.map(rfc3339),
            rows: of.rows,
            bytes: of.bytes,
            rows_is_at_least: of.is_at_least,
        }
    }
}

/// What is older than it is to be kept and would be freed now, by kind. Nothing is freed by asking.
#[utoipa::path(get, path = "/operator/v1/retention", tag = "Deployment", operation_id = "show_retention",
    responses((status = 200, body = Page<Retained>)))]
pub async fn show(State(desk): State<Arc<Desk>>, caller: Extension<Caller>) -> Reply {
    let _place = desk.counts.take(&caller.actor.name)?;
    let kinds = retention::report(&desk.app).await?;
    Ok(json(&Page::whole(kinds.iter().map(Retained::from).collect())))
}
