//! Callbacks of one application, by hand: paused, resumed, tried out.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use countersign_domain::delivery::Schedule;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::body::Fields;
use countersign_protocol::code::Code;
use countersign_store::contract::ApplicationView;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::applications::Application;
use super::call::{Bare, Call, Named, Reply, json};
use super::fields::checked_text;
use super::paging::Asked;
use super::problem::{Problem, ProblemDocument};
use crate::app::endpoint::{self, Endpoint, Flow};
use crate::app::identity::{self, Switch};
use crate::dispatch::{BreakerState, EndpointView, Tried};

/// Why it cannot be said which endpoints fail.
const DISPATCHER_BUSY: &str = "the deliverer of callbacks waits for the database and cannot say which endpoints fail; ask again, and look at /readyz";
/// Longest reason, in characters.
pub(crate) const REASON_CHARS_MAX: usize = 200;

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
            address: tried.address.as_deref().map(str::to_owned),
            duration_ms: i64::try_from(tried.took.as_millis()).unwrap_or(i64::MAX),
            detail: tried.detail.clone(),
            headers: tried.headers.iter().cloned().collect(),
            body: tried.body.clone(),
        }
    }
}

/// How callbacks of an application fare.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the answer")]
pub struct CallbacksAnswer {
    /// The application.
    pub client_id: String,
    /// `enabled`: they go out. Else what keeps them: `held_since_restore`, `merchant_disabled`, `paused` by hand, `gone` since the endpoint answered 410, `no_url`, or `no_secret`: none is live that could sign them.
    pub state: &'static str,
    /// Events that wait for their next attempt.
    pub pending: i64,
    /// Whether there are more: 10,000 are counted.
    pub pending_is_at_least: bool,
    /// Events that wait for callbacks to go out.
    pub held: i64,
    /// Whether there are more: 10,000 are counted.
    pub held_is_at_least: bool,
    /// Events whose schedule is used up.
    pub dead: i64,
    /// Whether there are more: 10,000 are counted.
    pub dead_is_at_least: bool,
    /// When the oldest event was written that is pending or held (of those that were counted); null: there is none.
    pub oldest_open_at: Option<String>,
    /// When the next attempt may go: when it is due, when the breaker lets one go, or now, whichever is latest; null: none is due, or nothing goes out now. What may go now waits for its turn only: for the endpoint's rate and its attempts at once.
    pub next_attempt_at: Option<String>,
    /// Callbacks in a second, its own or the deployment's; null: as many as there are.
    pub rate_per_s: Option<u32>,
    /// When failed attempts are repeated, by its own schedule or the deployment's.
    pub schedule: Vec<String>,
    /// Whether this node delivers for the application, and so knows what follows. Another one does where it is false, and all that follows is null.
    pub breaker_known: bool,
    /// `closed`: attempts go. `open`: none goes before `breaker_until`, but for what is long due where nobody is there. `half_open`: one may go, or is under way, and how it ends decides.
    pub breaker: Option<&'static str>,
    /// When the endpoint is tried again; null unless the breaker is open.
    pub breaker_until: Option<String>,
    /// How many attempts may be under way at once now; 0 while the breaker is open.
    pub attempts_at_once: Option<usize>,
    /// How many may where the endpoint does not fail: its own number or the deployment's.
    pub attempts_at_once_max: Option<usize>,
    /// How many are under way.
    pub in_flight: Option<usize>,
    /// When the last attempt was recorded that this node remembers, at its end (`at` of an attempt is its beginning); null: it remembers none.
    pub last_attempt_at: Option<String>,
    /// What came of it.
    pub last_outcome: Option<&'static str>,
}

impl CallbacksAnswer {
    fn of(
        endpoint: &Endpoint,
        rate_per_s: Option<u32>,
        schedule: &Schedule,
        view: Option<&EndpointView>,
        now: UnixMillis,
    ) -> Self {
        let breaker_until = view.and_then(|view| until(view.breaker));
        let next = may_go_at(endpoint.flow, endpoint.next_attempt_at, breaker_until, now);
        let last = view.and_then(|view| view.last);
        Self {
            client_id: endpoint.view.application.client_id.clone(),
            state: endpoint.flow.name(),
            pending: endpoint.pending.count,
            pending_is_at_least: endpoint.pending.is_at_least,
            held: endpoint.held.count,
            held_is_at_least: endpoint.held.is_at_least,
            dead: endpoint.dead.count,
            dead_is_at_least: endpoint.dead.is_at_least,
            oldest_open_at: endpoint.oldest_open_at.map(rfc3339),
            next_attempt_at: next.map(rfc3339),
            rate_per_s,
            schedule: schedule.texts(),
            breaker_known: view.is_some(),
            breaker: view.map(|view| view.breaker.name()),
            breaker_until: breaker_until.map(rfc3339),
            attempts_at_once: view.map(|view| view.at_once),
            attempts_at_once_max: view.map(|view| view.at_once_max),
            in_flight: view.map(|view| view.in_flight),
            last_attempt_at: last.map(|(at, _)| rfc3339(at)),
            last_outcome: last.map(|(_, outcome)| outcome.name()),
        }
    }
}

/// Until when nothing goes; none where something may.
const fn until(breaker: BreakerState) -> Option<UnixMillis> {
    match breaker {
        BreakerState::Open { until } => Some(until),
        BreakerState::Closed | BreakerState::HalfOpen => None,
    }
}

/// When something may go that is due at this instant, now at the earliest; none where nothing does.
fn may_go_at(
    flow: Flow,
    due: Option<UnixMillis>,
    breaker_until: Option<UnixMillis>,
    now: UnixMillis,
) -> Option<UnixMillis> {
    let due = due.filter(|_| flow == Flow::Enabled)?;
    Some(breaker_until.map_or(due, |until| due.max(until)).max(now))
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

/// How callbacks of an application fare. Whether they go out, what waits and what is dead; and, from the node that delivers for it, how its endpoint stands.
#[utoipa::path(get, path = "/operator/v1/applications/{client_id}/callbacks", tag = "Callbacks", operation_id = "show_callbacks",
    params(("client_id" = String, Path, description = "The ClientId")),
    responses((status = 200, body = CallbacksAnswer), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(client_id): Named<String>) -> Reply {
    let endpoint = endpoint::look(&desk.app, &client_id).await?;
    let (dispatcher, row) = (&desk.settings.dispatcher, &endpoint.view.application);
    let view = dispatcher.view(row).await;
    let (rate, schedule) = (dispatcher.rate_of(row), dispatcher.schedule_of(row));
    Ok(json(&CallbacksAnswer::of(&endpoint, rate, schedule, view.as_ref(), desk.app.clock.now())))
}

/// An endpoint that did not take what it got last, as the node that delivers for it sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct FailingEndpoint {
    /// The application.
    pub client_id: String,
    /// `closed`: attempts go. `open`: none goes before `breaker_until`, but for what is long due where nobody is there. `half_open`: one may go, or is under way, and how it ends decides.
    pub breaker: &'static str,
    /// When the endpoint is tried again; null unless the breaker is open.
    pub breaker_until: Option<String>,
    /// How many attempts may be under way at once now; 0 while the breaker is open.
    pub attempts_at_once: usize,
    /// How many may where the endpoint does not fail.
    pub attempts_at_once_max: usize,
    /// How many are under way.
    pub in_flight: usize,
    /// When the last attempt was recorded, at its end, RFC 3339.
    pub last_attempt_at: Option<String>,
    /// What came of it.
    pub last_outcome: Option<&'static str>,
}

/// Endpoints that fail.
#[derive(Debug, Serialize, ToSchema)]
pub struct FailingEndpoints {
    /// Those whose breaker is not closed first, then those tried last.
    pub items: Vec<FailingEndpoint>,
    /// Endpoints that are left off.
    pub items_left_off: usize,
}

impl FailingEndpoint {
    fn of(client_id: &str, view: &EndpointView) -> Self {
        Self {
            client_id: client_id.to_owned(),
            breaker: view.breaker.name(),
            breaker_until: until(view.breaker).map(rfc3339),
            attempts_at_once: view.at_once,
            attempts_at_once_max: view.at_once_max,
            in_flight: view.in_flight,
            last_attempt_at: view.last.map(|(at, _)| rfc3339(at)),
            last_outcome: view.last.map(|(_, outcome)| outcome.name()),
        }
    }
}

/// Endpoints that this node delivers for and that did not take what they got last. What they had before a restart, or at another node, is not known.
#[utoipa::path(get, path = "/operator/v1/callbacks/failing", tag = "Callbacks", operation_id = "list_failing_callbacks",
    params(("limit" = Option<u32>, Query, description = "At most so many endpoints: 1 to 500, default 50")),
    responses((status = 200, body = FailingEndpoints)))]
pub async fn failing(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let found = desk.settings.dispatcher.failing(asked.limit as usize).await;
    let (found, items_left_off) = found.ok_or_else(|| Problem::new(Code::ServiceUnavailable, DISPATCHER_BUSY))?;
    let items = found.iter().map(|(client_id, view)| FailingEndpoint::of(client_id, view)).collect();
    Ok(json(&FailingEndpoints { items, items_left_off }))
}

/// Stops the callbacks of an application. What is pending is held, until they are resumed. The same switch as `callback_enabled`.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/callbacks/pause", tag = "Callbacks", operation_id = "pause_callbacks",
    params(("client_id" = String, Path, description = "The ClientId")), request_body = SwitchRequest,
    responses((status = 200, body = Application), (status = 404, body = ProblemDocument)))]
pub async fn pause(Named(client_id): Named<String>, call: Call) -> Reply {
    turn(&client_id, Switch::Pause, &call).await
}

/// Lets the callbacks of an application go out again, what was held among them. The same switch as `callback_enabled`.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/callbacks/resume", tag = "Callbacks", operation_id = "resume_callbacks",
    params(("client_id" = String, Path, description = "The ClientId")), request_body = SwitchRequest,
    responses((status = 200, body = Application), (status = 404, body = ProblemDocument)))]
pub async fn resume(Named(client_id): Named<String>, call: Call) -> Reply {
    turn(&client_id, Switch::Resume, &call).await
}

/// Sends a signed callback that tells of nothing. Its `bizType` is CALLBACK_TEST; it goes out paused or not, and the answer says what became of it. There
/// is no event, and no attempt.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/callbacks/test", tag = "Callbacks", operation_id = "test_callback",
    params(("client_id" = String, Path, description = "The ClientId")),
    responses((status = 200, body = TestAnswer), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn test(State(desk): State<Arc<Desk>>, Named(client_id): Named<String>, Bare(call): Bare) -> Reply {
    call.once(async {
        let keep = |tried: &Tried| call.keep(&TestAnswer::from(tried));
        Ok(TestAnswer::from(&desk.settings.dispatcher.try_out(&client_id, &keep, &call.actor).await?))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_before_the_breaker_lets_it_or_while_something_keeps_it() {
        let (now, early, late) = (UnixMillis(1), Some(UnixMillis(1)), Some(UnixMillis(2)));
        assert_eq!(may_go_at(Flow::Enabled, early, None, now), early);
        assert_eq!(may_go_at(Flow::Enabled, early, late, now), late);
        assert_eq!(may_go_at(Flow::Enabled, late, early, now), late);
        assert_eq!(may_go_at(Flow::Enabled, None, late, now), None);
        assert_eq!(may_go_at(Flow::Enabled, early, late, UnixMillis(3)), Some(UnixMillis(3)), "never in the past");
        for flow in
            [Flow::HeldSinceRestore, Flow::MerchantDisabled, Flow::Paused, Flow::Gone, Flow::NoUrl, Flow::NoSecret]
        {
            assert_eq!(may_go_at(flow, early, None, now), None, "{flow:?}");
        }
    }
}
