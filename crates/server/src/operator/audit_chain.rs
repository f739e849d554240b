//! The chain of the audit log: its heads, its lines for export, and whether it holds.

use std::sync::Arc;

use axum::extract::State;
use countersign_protocol::body::Fields;
use countersign_store::chain::ChainPlace;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Desk;
use super::audit::AuditLine;
use super::call::{Call, Reply, json};
use super::paging::{Asked, Mark, NUMBER, Page, lettered};
use super::problem::Problem;
use crate::app::audit_chain::{self, KeptHead, NamedLine, Verified};

/// The end of one chain. Kept elsewhere, it shows what was cut off since.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditHead {
    /// The institution or plain merchant; null for the system's own lines.
    pub merchant_id: Option<String>,
    /// Number of its last line.
    pub no: i64,
    /// The last link, hexadecimal; null where no line has one.
    pub link: Option<String>,
}

/// A line with its link.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditLink {
    /// The line.
    #[serde(flatten)]
    pub line: AuditLine,
    /// Its link, hexadecimal; null: written before there was a chain.
    pub link: Option<String>,
}

impl From<&NamedLine> for AuditLink {
    fn from(line: &NamedLine) -> Self {
        Self { line: AuditLine::of(line.merchant_id.clone(), &line.row), link: line.link.clone() }
    }
}

/// What a walk over the log is to begin with, or which one is to go on.
#[derive(Debug, ToSchema)]
pub struct VerifyRequest {
    /// Heads that were kept elsewhere, as `GET /audit/heads` gave them.
    pub heads: Option<Vec<KeptHead>>,
    /// More heads come with the next call: nothing is walked over yet.
    pub more_heads: Option<bool>,
    /// `next` of the answer before. A walk that is not at its end after five seconds answers it, and is kept for a minute.
    pub after: Option<String>,
    /// Lines that this call walks over, at the most.
    pub limit: Option<i64>,
}

const HEADS: Mark<i64> = lettered::<'h'>();
const MARK: Mark<ChainPlace> = Mark { read: place, write: |place| format!("{}.{}", place.0, place.1) };

fn place(text: &str) -> Option<ChainPlace> {
    let (one, other) = text.split_once('.')?;
    Some(ChainPlace((NUMBER.read)(one)?, (NUMBER.read)(other)?))
}

/// The heads of all chains.
#[utoipa::path(get, path = "/operator/v1/audit/heads", tag = "Audit", operation_id = "list_audit_heads",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<AuditHead>)))]
pub async fn heads(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let heads = audit_chain::named_heads(&desk.app.store, asked.after(&HEADS)?, asked.limit_and_one()).await?;
    let view = |(_, head): &(i64, KeptHead)| AuditHead {
        merchant_id: head.merchant_id.clone(),
        no: head.no,
        link: head.link.clone(),
    };
    Ok(json(&asked.page(heads, &HEADS, |(tenant, _)| *tenant, view)))
}

/// All lines with their links; those of one chain in their order.
#[utoipa::path(get, path = "/operator/v1/audit/lines", tag = "Audit", operation_id = "export_audit",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<AuditLink>)))]
pub async fn lines(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let lines = audit_chain::named_lines(&desk.app.store, asked.after(&MARK)?, asked.limit_and_one()).await?;
    Ok(json(&asked.page(lines, &MARK, |line| line.place, |line| AuditLink::from(line))))
}

fn asked_for(body: &[u8]) -> Result<audit_chain::VerifyRequest, Problem> {
    let fields = Fields::parse(body)?;
    let heads = match fields.raw("heads").map(RawValue::get) {
        None | Some("null") => Vec::new(),
        Some(list) => serde_json::from_str(list)
            .map_err(|_| Problem::field("heads", "must be a list of heads as GET /audit/heads gives them"))?,
    };
    let limit = fields.integer_within("limit", 1, i64::MAX)?.and_then(|limit| u64::try_from(limit).ok());
    let more_heads = fields.boolean("more_heads")?.unwrap_or(false);
    Ok(audit_chain::VerifyRequest { heads, more_heads, after: fields.text("after")?, limit })
}

/// Walks over the whole log, and names the lines that are not what was written.
#[utoipa::path(post, path = "/operator/v1/audit/verify", tag = "Audit", operation_id = "verify_audit", request_body = VerifyRequest,
    responses((status = 200, body = Verified)))]
pub async fn verify(call: Call) -> Reply {
    let asked = asked_for(&call.body)?;
    let app = call.app();
    Ok(json(&app.walks.verify(app, &call.actor, asked).await?))
}
