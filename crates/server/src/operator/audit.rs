//! The audit log.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use countersign_domain::ids::TenantNo;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::{AuditKey, AuditRow};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Reply, json};
use super::filters::Filters;
use super::paging::{Asked, Mark, NUMBER, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::audit_chain;
use crate::app::audit_log::{self, Which};

/// Who did what, when and from where.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditLine {
    /// The institution or plain merchant in whose chain it is; null for the system's own lines.
    pub merchant_id: Option<String>,
    /// Its number: from 1 without gap for each institution and plain merchant, and for the system itself.
    pub no: i64,
    /// When, RFC 3339.
    pub at: String,
    /// `token:tok_...`, `application:app_...`, `system`, or `machine` for commands at the machine.
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

impl AuditLine {
    /// `merchant_id`: of whom its tenant is.
    pub fn of(merchant_id: Option<String>, row: &AuditRow) -> Self {
        let document = |text: &str| RawValue::from_string(text.to_owned()).ok();
        Self {
            merchant_id,
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

/// Searches under way at once: each reads thousands of lines.
pub(super) const SEARCHES_MAX: usize = 4;
/// Most characters of an actor, an action, a subject or a request's id.
pub(crate) const WORDS_CHARS_MAX: usize = 256;

/// Which lines, but for whose.
fn which(filters: &Filters) -> Result<Which, Problem> {
    let (from, to) = filters.span()?;
    let words = |name| filters.words(name, WORDS_CHARS_MAX);
    Ok(Which {
        tenant: None,
        actor: words("actor")?,
        action: words("action")?,
        subject: words("subject")?,
        request_id: words("request_id")?,
        from,
        to,
    })
}

/// The audit log, newest first.
///
/// With other filters than `from` and `to` a page may hold fewer lines than `limit` and yet have a `next`: so many are looked at, and no more.
#[utoipa::path(get, path = "/operator/v1/audit", tag = "Audit", operation_id = "list_audit",
    params(("merchant_id" = Option<String>, Query, description = "Only lines of this institution, those about its sub-accounts included, or of this plain merchant"),
        ("actor" = Option<String>, Query, description = "Only what this one did: `token:tok_...`, `application:app_...` (also on behalf of a sub-account), `system`, or `machine` for commands at the machine"),
        ("action" = Option<String>, Query, description = "Only this action; with a dot at its end every one that begins so: `fee_rule.`"),
        ("subject" = Option<String>, Query, description = "Only what was done to this"),
        ("request_id" = Option<String>, Query, description = "Only what this request did"),
        ("from" = Option<String>, Query, description = "Only at this instant or later, RFC 3339"), ("to" = Option<String>, Query, description = "Only before this instant, RFC 3339"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<AuditLine>), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, caller: Extension<Caller>, asked: Asked) -> Reply {
    let (after, mut which, merchant_id) =
        (asked.after(&MARK)?, which(&asked.filters)?, asked.filters.id("merchant_id")?);
    if let Some(merchant_id) = merchant_id {
        which.tenant = Some(audit_log::tenant(&desk.app, &merchant_id).await?);
    }
    let _place = if which.is_everything() { None } else { Some(desk.searches.take(&caller.actor.name)?) };
    let lines = audit_log::list(&desk.app, &which, after, asked.limit).await?;
    let next = lines.next.as_ref().map(MARK.write);
    let named = audit_chain::named(&desk.app.store, lines.rows).await?;
    Ok(json(&Page {
        items: named.into_iter().map(|(merchant_id, row)| AuditLine::of(merchant_id, &row)).collect(),
        next,
    }))
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
