//! Why a request was refused.

use std::sync::Arc;

use axum::extract::State;
use countersign_protocol::code::Code;

use super::Desk;
use super::call::{Named, Reply, json};
use super::problem::{Problem, ProblemDocument};
use crate::explain::{Explained, explain};
use crate::log::REFUSED_KEPT_MAX;

/// Why this node refused a request, if it is among its last refusals.
#[utoipa::path(get, path = "/operator/v1/requests/{request_id}", tag = "Deployment", operation_id = "explain_request",
    params(("request_id" = String, Path, description = "The request's id, as the answer's header says it")),
    responses((status = 200, body = Explained), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(request_id): Named<String>) -> Reply {
    match desk.settings.log.refused(&request_id).as_deref().and_then(explain) {
        Some(explained) => Ok(json(&explained)),
        None => Err(Problem::new(
            Code::NotFound,
            format!(
                "no request {request_id} is among the last {REFUSED_KEPT_MAX} that this node has refused since its start; \
                 ask the other nodes, or look into the log: countersign explain {request_id} --log FILE"
            ),
        )),
    }
}
