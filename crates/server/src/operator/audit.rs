//! The audit log.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::ids::TenantNo;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::{AuditKey, AuditRow};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Reply, json};
use super::paging::{Asked, Mark, NUMBER, Page};
use crate::app::operators;

/// Who did what, when and from where.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditLine {
    /// Its number: from 1 without gap for each institution and plain merchant, and for the system itself.
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

const MARK: Mark<AuditKey> = Mark { read: place, write: cursor };

fn cursor(key: &AuditKey) -> String {
    format!("{}.{}.{}", key.at.0, key.tenant.map_or(0, |tenant| tenant.0), key.no)
}

fn place(text: &str) -> Option<AuditKey> {
    let mut numbers = text.splitn(3, '.').map(NUMBER.read);
    let (at, tenant, no) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(AuditKey { at: UnixMillis(at), tenant: (tenant != 0).then_some(TenantNo(tenant)), no })
}

/// The audit log, newest first.
#[utoipa::path(get, path = "/operator/v1/audit", tag = "Audit", operation_id = "list_audit",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<AuditLine>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let rows = operators::audit(&desk.app, asked.after(&MARK)?, asked.limit_and_one()).await?;
    Ok(json(&asked.page(rows, &MARK, AuditRow::key, |row| AuditLine::from(row))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_log_is_read_back_as_it_was_said() {
        for tenant in [None, Some(TenantNo(7))] {
            let key = AuditKey { at: UnixMillis(1_767_312_000_000), tenant, no: 12 };
            assert_eq!(place(&cursor(&key)), Some(key));
        }
        for refused in ["", "1", "1.2", "1.2.x", "1.2.3.4", "x.2.3"] {
            assert_eq!(place(refused), None, "{refused}");
        }
    }
}
