//! Whether the process is up and fit, and what it counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use countersign_protocol::code::Code;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::problem::{Problem, ProblemDocument};
use crate::app::{forgotten, operators};

/// How it is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `up` or `ready`.
    pub status: &'static str,
    /// `held` while callbacks are held since a restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<&'static str>,
}

/// The process is up.
#[utoipa::path(get, path = "/healthz", tag = "Health", operation_id = "healthz", security(()), responses((status = 200, body = Health)))]
pub async fn alive() -> Json<Health> {
    Json(Health { status: "up", delivery: None })
}

/// The store answers and takes changes, its schema was found right at the start, the machine's clock agrees with that of a shared database, and
/// nobody has told the node to stop.
#[utoipa::path(get, path = "/readyz", tag = "Health", operation_id = "readyz", security(()),
    responses((status = 200, body = Health), (status = 503, body = ProblemDocument)))]
pub async fn ready(State(desk): State<Arc<Desk>>) -> Result<Json<Health>, Problem> {
    if desk.app.leaving.load(Ordering::Relaxed) {
        return Err(Problem::new(Code::ServiceUnavailable, "this node was told to stop, and ends soon"));
    }
    if let Some(why) = desk.app.clock.trouble() {
        return Err(Problem::new(Code::ServiceUnavailable, why));
    }
    if let Some(why) = desk.app.trouble.why_not_ready() {
        return Err(Problem::new(Code::ServiceUnavailable, why));
    }
    if let Some(why) = forgotten::trouble(&desk.app.store, desk.app.clock.now()) {
        return Err(Problem::new(Code::ServiceUnavailable, why));
    }
    match operators::ping(&desk.app).await {
        Ok(()) => Ok(Json(Health { status: "ready", delivery: desk.app.due.is_paused().then_some("held") })),
        Err(_) => Err(Problem::new(Code::ServiceUnavailable, "the store does not answer")),
    }
}

/// What is counted, as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "Health", operation_id = "metrics", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(desk): State<Arc<Desk>>) -> Response<Body> {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], desk.settings.metrics.render()).into_response()
}
