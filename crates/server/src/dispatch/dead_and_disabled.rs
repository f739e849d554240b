//! What is told of an end: an event whose last attempt has failed, an endpoint that says it is gone.

use countersign_domain::time::UnixMillis;
use countersign_store::Write;
use countersign_store::contract::{AttemptRow, EventRow};
use metrics::{counter, describe_counter};
use serde_json::json;

use crate::app::Actor;
use crate::app::events::public_id;

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

/// The line of the audit log, for the batch that makes the event dead. What the endpoint said is the attempt's.
pub(super) fn death(event: &EventRow, attempt: &AttemptRow, now: UnixMillis) -> Write {
    let system = Actor::system();
    let before = json!({ "state": event.state.name() }).to_string();
    let after = json!({
        "state": "dead",
        "client_id": event.client_id,
        "attempts": attempt.attempt,
        "outcome": attempt.outcome.name(),
    });
    let id = public_id(event.event_id);
    let line = system.did(Some(event.tenant), now, "event.dead", &id, before, after.to_string());
    Write::RecordAudit(Box::new(line))
}

/// One more event is dead, and that is recorded.
pub(super) fn count_death() {
    counter!(DEAD).increment(1);
}

/// One more endpoint is disabled, and that is recorded.
pub(super) fn count_disabled() {
    counter!(DISABLED).increment(1);
}
