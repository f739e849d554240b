//! Callbacks of one application, by hand: paused, resumed, tried out.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use countersign_protocol::body::Fields;
use countersign_store::contract::ApplicationView;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::applications::Application;
use super::call::{Call, Named, Reply};
use super::fields::checked_text;
use super::problem::{Problem, ProblemDocument};
use crate::app::identity::{self, Switch};
use crate::dispatch::Tried;

/// Longest reason, in characters.
const REASON_CHARS_MAX: usize = 200;

/// Why callbacks are paused or resumed.
#[derive(Debug, ToSchema)]
pub struct SwitchRequest {
    /// For the audit log, 1 to 200 characters.
    pub reason: Option<String>,
}

/// What became of a test callback.
#[derive(Debug, Serialize, ToSchema)]
pub struct TestAnswer {
    /// `delivered`, `refused_address`, `dns_failed`, `connect_failed`, `tls_failed`, `timeout`, `http_status`, `unreadable` or `fail`.
    pub outcome: &'static str,
    /// The status, where an answer came.
    pub http_status: Option<u16>,
    /// The address that was connected to.
    pub address: Option<String>,
    /// How long it took.
    pub duration_ms: i64,
    /// What went wrong, in words.
    pub detail: String,
    /// The headers that it was signed with; signatures are withheld.
    pub headers: BTreeMap<String, String>,
    /// The body that was signed.
    pub body: String,
}

impl From<&Tried> for TestAnswer {
    fn from(tried: &Tried) -> Self {
        Self {
            outcome: tried.outcome.name(),
            http_status: tried.http_status,
            address: tried.address.map(|address| address.to_string()),
            duration_ms: i64::try_from(tried.took.as_millis()).unwrap_or(i64::MAX),
            detail: tried.detail.clone(),
            headers: tried.headers.iter().cloned().collect(),
            body: tried.body.clone(),
        }
    }
}

fn reason(body: &[u8]) -> Result<Option<String>, Problem> {
    let text = Fields::parse(body)?.text("reason")?;
    text.map(|text| checked_text("reason", text, 1, REASON_CHARS_MAX)).transpose()
}

async fn turn(client_id: &str, switch: Switch, call: &Call) -> Reply {
    call.once(async {
        let why = reason(&call.body)?;
        let keep = |view: &ApplicationView| call.keep(&Application::from(view));
        let view =
            identity::switch_callbacks(call.app(), client_id, switch, why.as_deref(), &keep, &call.actor).await?;
        Ok(Application::from(&view))
    })
    .await
}

/// Stops the callbacks of an application: what is pending is held, until they are resumed. The same switch as `callback_enabled`.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/callbacks/pause", tag = "Applications", operation_id = "pause_callbacks",
    params(("client_id" = String, Path, description = "The ClientId")), request_body = SwitchRequest,
    responses((status = 200, body = Application), (status = 404, body = ProblemDocument)))]
pub async fn pause(Named(client_id): Named<String>, call: Call) -> Reply {
    turn(&client_id, Switch::Pause, &call).await
}

/// Lets the callbacks of an application go out again, what was held among them. The same switch as `callback_enabled`.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/callbacks/resume", tag = "Applications", operation_id = "resume_callbacks",
    params(("client_id" = String, Path, description = "The ClientId")), request_body = SwitchRequest,
    responses((status = 200, body = Application), (status = 404, body = ProblemDocument)))]
pub async fn resume(Named(client_id): Named<String>, call: Call) -> Reply {
    turn(&client_id, Switch::Resume, &call).await
}

/// Sends a signed callback that tells of nothing (`bizType` CALLBACK_TEST), paused or not, and says what became of it. No event, no attempt.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/callbacks/test", tag = "Applications", operation_id = "test_callback",
    params(("client_id" = String, Path, description = "The ClientId")),
    responses((status = 200, body = TestAnswer), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn test(State(desk): State<Arc<Desk>>, Named(client_id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let keep = |tried: &Tried| call.keep(&TestAnswer::from(tried));
        Ok(TestAnswer::from(&desk.settings.dispatcher.try_out(&client_id, &keep, &call.actor).await?))
    })
    .await
}
