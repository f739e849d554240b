//! The audit log.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::time::rfc3339;
use countersign_store::contract::AuditRow;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Reply, json};
use super::paging::{Asked, Page};
use super::problem::Problem;
use crate::app::operators;

/// Who did what, when and from where.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditLine {
    /// Its number; it grows.
    pub no: i64,
    /// When, RFC 3339.
    pub at: String,
    /// `token:tok_...`, `application:app_...` or `system`.
    pub actor: String,
    /// The address it came from; empty for the system's own.
    pub source: String,
    /// What was done: `application.create`, `fee_rule.upgrade`, ...
    pub action: String,
    /// To what.
    pub subject: String,
    /// As it was before; null where there was nothing.
    #[schema(value_type = serde_json::Value)]
    pub before: Option<Box<RawValue>>,
    /// As it is after; never a secret.
    #[schema(value_type = serde_json::Value)]
    pub after: Option<Box<RawValue>>,
    /// The request.
    pub request_id: String,
}

impl From<&AuditRow> for AuditLine {
    fn from(row: &AuditRow) -> Self {
        let document = |text: &str| RawValue::from_string(text.to_owned()).ok();
        Self {
            no: row.no,
            at: rfc3339(row.at),
            actor: row.actor.clone(),
            source: row.source.clone(),
            action: row.action.clone(),
            subject: row.subject.clone(),
            before: document(&row.before),
            after: document(&row.after),
            request_id: row.request_id.clone(),
        }
    }
}

/// The audit log, newest first.
#[utoipa::path(get, path = "/operator/v1/audit", tag = "Audit", operation_id = "list_audit",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<AuditLine>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let after = asked
        .after
        .as_deref()
        .map(str::parse::<i64>)
        .transpose()
        .map_err(|_| Problem::field("after", "must be the number of a line"))?;
    let rows = operators::audit(&desk.app, after, asked.limit_and_one()).await?;
    Ok(json(&asked.page(rows, |row| row.no.to_string(), |row| AuditLine::from(row))))
}
