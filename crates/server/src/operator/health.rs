//! Whether the process is up and fit, and what it counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use countersign_protocol::code::Code;
use countersign_store::Store as _;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::Desk;
use super::problem::{Problem, ProblemDocument};
use crate::app::error::AppError;
use crate::app::{App, forgotten_nonces, master_key, operators};

const SILENT: &str = "the store does not answer";
/// A store that has not answered by then counts as one that is away.
const ASK_MAX: Duration = Duration::from_secs(2);

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
#[utoipa::path(get, path = "/healthz", tag = "Deployment", operation_id = "healthz", security(()), responses((status = 200, body = Health)))]
pub async fn alive() -> Json<Health> {
    Json(Health { status: "up", delivery: None })
}

/// The node takes requests. The store answers and takes changes, its schema is right, the machine's clock agrees with that of a shared database, the
/// node has the master key that the deployment seals under, and nobody has told the node to stop.
#[utoipa::path(get, path = "/readyz", tag = "Deployment", operation_id = "readyz", security(()),
    responses((status = 200, body = Health), (status = 503, body = ProblemDocument)))]
pub async fn ready(State(desk): State<Arc<Desk>>) -> Result<Json<Health>, Problem> {
    match why_not_in_time(&desk.app).await {
        None => Ok(Json(Health { status: "ready", delivery: desk.app.due.is_paused().then_some("held") })),
        Some(why) => Err(Problem::new(Code::ServiceUnavailable, why)),
    }
}

/// The same, soon enough for whoever scrapes.
async fn why_not_in_time(app: &App) -> Option<String> {
    timeout(ASK_MAX, why_not_ready(app)).await.unwrap_or_else(|_| Some(SILENT.to_owned()))
}

/// Why this node takes no requests, in words; none: it does.
async fn why_not_ready(app: &App) -> Option<String> {
    if app.leaving.load(Ordering::Relaxed) {
        return Some("this node was told to stop, and ends soon".to_owned());
    }
    let trouble = app.clock.trouble().or_else(|| app.trouble.sentence(app.store.is_shared()));
    if let Some(why) =
        trouble.or_else(|| forgotten_nonces::trouble(&app.store, app.clock.now(), app.policy.timestamp_tolerance_ms))
    {
        return Some(why);
    }
    match operators::ping(app).await {
        Ok(None) => {}
        Ok(wrong) => return wrong,
        Err(_) => return Some(SILENT.to_owned()),
    }
    match master_key::known(app).await {
        Ok(_) => None,
        Err(AppError::Store(_)) => Some(SILENT.to_owned()),
        Err(error) => Some(error.sentence()),
    }
}

/// What is counted, as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "Deployment", operation_id = "metrics", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(desk): State<Arc<Desk>>) -> Response<Body> {
    let is_ready = why_not_in_time(&desk.app).await.is_none();
    metrics::gauge!("countersign_ready").set(f64::from(u8::from(is_ready)));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], desk.settings.metrics.render()).into_response()
}
