//! What is told of an end: an event whose last attempt has failed, an endpoint that says it is gone.

use countersign_domain::time::UnixMillis;
use countersign_store::Write;
use countersign_store::contract::{AttemptRow, EventRow};
use metrics::{counter, describe_counter};
use serde_json::json;

use crate::app::events::public_id;
use crate::app::{Actor, Deed};

const DEAD: &str = "countersign_callbacks_dead_total";
const DISABLED: &str = "countersign_endpoints_disabled_total";

/// Says what the counters are. They are there from the start: an alert on their growth sees the first of all, too.
pub(super) fn describe() {
    describe_counter!(DEAD, "Callbacks whose last attempt failed; they wait until somebody redelivers them");
    describe_counter!(DISABLED, "Endpoints whose callbacks were disabled because they answered 410");
    for name in [DEAD, DISABLED] {
        counter!(name).increment(0);
    }
}

/// An event whose last attempt has failed: it is dead once that is recorded.
#[derive(Debug)]
pub(super) struct Death {
    /// The line of the audit log, for the batch that makes it dead. What the endpoint said is the attempt's.
    pub(super) line: Write,
    id: String,
    client_id: String,
}

impl Death {
    pub(super) fn of(event: &EventRow, attempt: &AttemptRow, now: UnixMillis) -> Self {
        let (id, client_id) = (public_id(event.event_id), event.client_id.clone());
        let before = json!({ "state": event.state.name() }).to_string();
        let after = json!({
            "state": "dead",
            "client_id": client_id,
            "attempts": attempt.attempt,
            "outcome": attempt.outcome.name(),
        });
        let line = Actor::system().records(Deed {
            tenant: Some(event.tenant),
            at: now,
            action: "event.dead",
            subject: &id,
            before,
            after: after.to_string(),
        });
        Self { line, id, client_id }
    }

    /// Says so, and counts it: it is recorded.
    pub(super) fn tell(&self, last: &AttemptRow) {
        let Self { id, client_id, .. } = self;
        let AttemptRow { attempt, outcome, duration_ms: took_ms, .. } = *last;
        let (outcome, detail) = (outcome.name(), last.detail.as_str());
        tracing::error!(event.id = %id, client_id, attempt, took_ms, outcome, detail,
            "Callback {id} failed ({outcome}) in its last attempt, {attempt}; it is dead until it is redelivered");
        counter!(DEAD).increment(1);
    }
}

/// One more endpoint is disabled, and that is recorded.
pub(super) fn count_disabled() {
    counter!(DISABLED).increment(1);
}
