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
use countersign_store::{Store as _, StoreError};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::Desk;
use super::problem::{Problem, ProblemDocument};
use crate::app::error::AppError;
use crate::app::nodes::Tenure;
use crate::app::trouble::NoChanges;
use crate::app::{App, forgotten_nonces, master_key};

const UNFIT: &str = "the store is no longer fit for this node: `countersign doctor` says why, and what to run";
const SILENT: &str = "the store does not answer";
const LEAVING: &str = "this node was told to stop, and ends soon";
const REPLACED: &str =
    "another process has begun under this node's id and is alive: the log of this node says what to do";
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
/// node has the master key that the deployment seals under, no other process has begun under the node's id, and nobody has told the node to stop.
#[utoipa::path(get, path = "/readyz", tag = "Deployment", operation_id = "readyz", security(()),
    responses((status = 200, body = Health), (status = 503, body = ProblemDocument)))]
pub async fn ready(State(desk): State<Arc<Desk>>) -> Result<Json<Health>, Problem> {
    match why_not_ready(&desk).await {
        None => Ok(Json(Health { status: "ready", delivery: desk.app.bell.is_paused().then_some("held") })),
        Some(why) => Err(Problem::new(Code::ServiceUnavailable, why)),
    }
}

/// The last look at the store. There is one at a time: nobody needs a token to ask, and reads of merchants go the same way.
#[derive(Debug, Default)]
pub struct LastLook(Mutex<Option<Looked>>);

#[derive(Debug)]
struct Looked {
    ended: Instant,
    why_not: Option<String>,
}

impl LastLook {
    /// What a look finds, which has so long: one that was under way when whoever asks `came`, or one that begins after that. To be called in a task of its own:
    /// a look that is cut off when its asker goes away would leave those who wait for it to look one after the other, each with less time.
    async fn or(&self, came: Instant, within: Duration, look: impl Future<Output = Option<String>>) -> Option<String> {
        let mut last = self.0.lock().await;
        if let Some(looked) = last.as_ref().filter(|looked| came <= looked.ended) {
            return looked.why_not.clone();
        }
        let why_not = timeout(within, look).await.unwrap_or_else(|_| Some(SILENT.to_owned()));
        *last = Some(Looked { ended: Instant::now(), why_not: why_not.clone() });
        why_not
    }
}

/// Why this node takes no requests, in words; none: it does.
async fn why_not_ready(desk: &Arc<Desk>) -> Option<String> {
    let app = &desk.app;
    if app.leaving.load(Ordering::Relaxed) {
        return Some(LEAVING.to_owned());
    }
    if app.node.tenure() == Tenure::Lost {
        return Some(REPLACED.to_owned());
    }
    if let Some(why) = app.clock.trouble() {
        return Some(why);
    }
    let of_changes = app.trouble.sentence(app.store.is_shared());
    if of_changes.is_none()
        && let Some(why) = forgotten_nonces::trouble(&app.store, app.clock.now(), app.policy.timestamp_tolerance_ms)
    {
        return Some(why);
    }
    // Why a shared store refuses changes is for the log alone; where rights or tables are gone, a look at the store can say so.
    if of_changes.is_some() && !(app.store.is_shared() && app.trouble.why_not_ready() == Some(NoChanges::Refused)) {
        return of_changes;
    }
    let seen = looked(desk).await;
    match of_changes {
        Some(of_changes) => Some(seen.filter(|seen| seen != SILENT).unwrap_or(of_changes)),
        None => seen,
    }
}

/// What a look at the store finds, in words; none: nothing is wrong.
async fn looked(desk: &Arc<Desk>) -> Option<String> {
    let app = &desk.app;
    let (came, of_look) = (Instant::now(), Arc::clone(desk));
    let look = tokio::spawn(async move { of_look.last_look.or(came, ASK_MAX, why_not_by_store(&of_look.app)).await });
    // The look that it waits for ends sooner; whoever scrapes is answered in any case.
    let why_not = match timeout(ASK_MAX, look).await {
        Ok(Ok(why_not)) => why_not,
        Ok(Err(_)) | Err(_) => Some(SILENT.to_owned()),
    };
    // The stop may have begun meanwhile.
    if app.leaving.load(Ordering::Relaxed) { Some(LEAVING.to_owned()) } else { why_not }
}

async fn why_not_by_store(app: &App) -> Option<String> {
    match app.store.ping().await {
        Ok(None) => {}
        Ok(wrong) => return wrong,
        // What is unfit is named with its role and its host, and whoever asks has shown no token.
        Err(StoreError::Unfit(_)) => return Some(UNFIT.to_owned()),
        Err(StoreError::Unavailable(_) | StoreError::Corrupt { .. }) => return Some(SILENT.to_owned()),
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
    let is_ready = why_not_ready(&desk).await.is_none();
    metrics::gauge!("countersign_ready").set(f64::from(u8::from(is_ready)));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], desk.settings.metrics.render()).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;
    use tokio::task::{JoinSet, yield_now};

    use super::*;

    /// Far longer than any look here.
    const LONG: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn those_who_come_during_a_look_share_it_and_who_comes_later_has_a_fresh_one() {
        let (last, looks, goes_on) = <(Arc<LastLook>, Arc<AtomicUsize>, Arc<Notify>)>::default();
        let ask = |came: Instant| {
            let (last, looks, goes_on) = (Arc::clone(&last), Arc::clone(&looks), Arc::clone(&goes_on));
            async move {
                let look = async {
                    looks.fetch_add(1, Ordering::Relaxed);
                    goes_on.notified().await;
                    Some(format!("look {}", looks.load(Ordering::Relaxed)))
                };
                last.or(came, LONG, look).await
            }
        };
        let mut asking = JoinSet::new();
        for _ in 0..50 {
            asking.spawn(ask(Instant::now()));
        }
        while looks.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        goes_on.notify_one();
        for found in asking.join_all().await {
            assert_eq!(found.as_deref(), Some("look 1"));
        }
        goes_on.notify_one();
        assert_eq!(ask(Instant::now()).await.as_deref(), Some("look 2"), "the first one is over");
    }

    /// Each would begin a look when the one before it is over, with less and less time of its own.
    #[tokio::test]
    async fn a_store_that_is_slow_for_each_look_is_not_one_that_is_silent() {
        let (last, looks, goes_on) = <(LastLook, AtomicUsize, Notify)>::default();
        let slow = async || {
            looks.fetch_add(1, Ordering::Relaxed);
            goes_on.notified().await;
            Some("answered".to_owned())
        };
        let mut first = std::pin::pin!(last.or(Instant::now(), LONG, slow()));
        assert!(timeout(Duration::ZERO, &mut first).await.is_err(), "it is under way");
        // They come while it is, and have no time for one of their own.
        let came = Instant::now();
        let one_more = || last.or(came, Duration::ZERO, slow());
        goes_on.notify_one();
        let found = tokio::join!(one_more(), one_more(), first);
        for found in [found.0, found.1, found.2] {
            assert_eq!(found.as_deref(), Some("answered"));
        }
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        // However long ago its asker came, a look has all of its time.
        let look = async {
            yield_now().await;
            Some("answered later".to_owned())
        };
        let came = Instant::now().checked_sub(LONG).expect("an instant");
        assert_eq!(LastLook::default().or(came, LONG, look).await.as_deref(), Some("answered later"));
    }
}
