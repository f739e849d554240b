//! Receivers that verify every callback, each with one fault of its own: exactly the checks that are about it say so.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// What a receiver does that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It works before it answers.
    WorksFirst,
    /// It takes no event a second time, not even to say that it has it.
    TakesNothingTwice,
    /// It takes nothing that is behind what it has of an order.
    InsistsOnOrder,
    /// It takes only the kinds that it knows.
    TakesKnownKindsOnly,
    /// It waits for a body for less than a second.
    IsImpatient,
    /// It takes small bodies only.
    IsSmall,
    /// It reads whatever comes, and is gone after too much.
    ReadsWithoutEnd,
}

/// What a large body is to the one that reads without end.
const TOO_MUCH: usize = 1024 * 1024;

struct Faulty {
    fault: Fault,
    verifier: CallbackVerifier,
    has_worked: AtomicBool,
    is_gone: AtomicBool,
    /// Events that were taken, and orders of which a second event was.
    taken: Mutex<HashSet<String>>,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn read(&self, body: Body) -> Option<Bytes> {
        let most = if self.has(Fault::IsSmall) { 16 * 1024 } else { usize::MAX };
        let patience = Duration::from_millis(if self.has(Fault::IsImpatient) { 900 } else { 60_000 });
        timeout(patience, to_bytes(body, most)).await.ok()?.ok()
    }

    /// Whether it takes this genuine callback.
    fn takes(&self, event: &callback::Callback) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = taken.insert(event.event_id.clone());
        if event.sequence == Some(2) {
            taken.insert(event.biz_id.clone());
        }
        match self.fault {
            Fault::TakesNothingTwice => is_new,
            Fault::InsistsOnOrder => event.sequence != Some(1) || !taken.contains(&event.biz_id),
            Fault::TakesKnownKindsOnly => event.biz_type == "PAYMENT_ORDER",
            Fault::WorksFirst | Fault::IsImpatient | Fault::IsSmall | Fault::ReadsWithoutEnd => true,
        }
    }
}

async fn receive_faultily(State(receiver): State<Arc<Faulty>>, headers: HeaderMap, body: Body) -> Response {
    let refused = |why: &str| (StatusCode::BAD_REQUEST, callback::failed(why)).into_response();
    if receiver.has(Fault::WorksFirst) && !receiver.has_worked.swap(true, Ordering::SeqCst) {
        // Longer than a receiver should take, and no race: it is what this one does.
        sleep(Duration::from_millis(5_200)).await;
    }
    let Some(body) = receiver.read(body).await else { return refused("no body") };
    if receiver.has(Fault::ReadsWithoutEnd) && body.len() > TOO_MUCH {
        receiver.is_gone.store(true, Ordering::SeqCst);
    }
    if receiver.is_gone.load(Ordering::SeqCst) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match receiver.verifier.verify_now(header, &body) {
        Ok(event) if receiver.takes(&event) => (StatusCode::OK, callback::processed()).into_response(),
        Ok(_) => refused("not this one"),
        Err(why) => refused(&why.to_string()),
    }
}

async fn found_of(fault: Fault) -> (Fault, Vec<(String, String)>, Option<i32>) {
    let state = Arc::new(Faulty {
        fault,
        verifier: CallbackVerifier::new(SECRET),
        has_worked: AtomicBool::new(false),
        is_gone: AtomicBool::new(false),
        taken: Mutex::default(),
    });
    let (found, code) = found(Router::new().route("/callback", post(receive_faultily)).with_state(state)).await;
    (fault, found, code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_one_fault_is_named_for_that_one_and_for_no_other() {
    let mut all = JoinSet::new();
    for fault in [
        Fault::WorksFirst,
        Fault::TakesNothingTwice,
        Fault::InsistsOnOrder,
        Fault::TakesKnownKindsOnly,
        Fault::IsImpatient,
        Fault::IsSmall,
        Fault::ReadsWithoutEnd,
    ] {
        all.spawn(found_of(fault));
    }
    for (fault, found, code) in all.join_all().await {
        let (wanted, ends): (&[(&str, &str)], i32) = match fault {
            Fault::WorksFirst => (&[("prompt", "advice")], 0),
            Fault::TakesNothingTwice => (&[("duplicate", "fail"), ("out-of-order", "fail")], 1),
            Fault::InsistsOnOrder => (&[("out-of-order", "fail")], 1),
            Fault::TakesKnownKindsOnly => (&[("unknown-kind", "advice")], 0),
            Fault::IsImpatient => (&[("slow", "fail")], 1),
            Fault::IsSmall => (&[("large", "fail")], 1),
            Fault::ReadsWithoutEnd => (&[("huge", "fail")], 1),
        };
        let wanted: Vec<_> = wanted.iter().map(|(check, verdict)| pair(check, verdict)).collect();
        assert_eq!((found, code), (wanted, Some(ends)), "{fault:?}");
    }
}
