//! What deliveries are counted by, for `/metrics`. Handles are made at their first use and kept, so that an attempt pays additions, and not
//! look-ups.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::UnixMillis;
use countersign_store::backlog::{Backlogs as _, NodeBacklog};
use countersign_store::contract::EventRow;
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tokio::time::{Instant, sleep};

use super::Dispatcher;
use super::attempt::Report;
use super::lineup::Waited;

const LACKS: &str = "countersign_callback_lacks_total";
const ATTEMPTS: &str = "countersign_callback_attempts_total";
pub(crate) const ATTEMPT_SECONDS: &str = "countersign_callback_attempt_seconds";
/// From when an event was due until its first attempt began. Its buckets are set where the recorder is made.
pub(crate) const DELAY_SECONDS: &str = "countersign_callback_delay_seconds";
const IN_FLIGHT: &str = "countersign_callbacks_in_flight";
const ENDPOINTS_OPEN: &str = "countersign_callback_endpoints_open";
const PENDING: &str = "countersign_callbacks_pending";
const OLDEST: &str = "countersign_callback_oldest_pending_seconds";
const DEAD: &str = "countersign_callbacks_dead";

/// What waits is counted this often, and up to so many.
const COUNT_EVERY: Duration = Duration::from_secs(60);
const COUNTED_MAX: u32 = 100_000;
/// How soon a node without lanes, such as one that has just begun, looks whether it has some.
const LANES_AGAIN: Duration = Duration::from_secs(1);

/// Handles of what is counted at each attempt and each pass.
#[derive(Default)]
pub(super) struct Meters {
    attempts: [OnceLock<Counter>; Outcome::ALL.len()],
    attempt_seconds: OnceLock<Histogram>,
    delay_seconds: OnceLock<Histogram>,
    in_flight: OnceLock<Gauge>,
    endpoints_open: OnceLock<Gauge>,
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

impl Meters {
    /// Says what is counted here.
    pub(super) fn describe() {
        describe_counter!(ATTEMPTS, "Attempts to deliver callbacks by outcome");
        // There from the start, as below.
        counter!(ATTEMPTS, "outcome" => Outcome::Delivered.name()).increment(0);
        describe_counter!(
            LACKS,
            "Attempts that were not made, since this node lacked a file, memory, an address or port of its own, a place for a look-up, or its proxy"
        );
        // There from the start: an alert on its growth sees the first of all, too.
        counter!(LACKS).increment(0);
        describe_histogram!(ATTEMPT_SECONDS, "From a callback's look-up to its answer");
        describe_histogram!(DELAY_SECONDS, "From when a callback was due until its first attempt began");
        describe_gauge!(IN_FLIGHT, "Callbacks that are being attempted now");
        describe_gauge!(ENDPOINTS_OPEN, "Endpoints that are left alone for a while since they fail");
        describe_gauge!(PENDING, "Callbacks of this node's lanes that wait for an attempt, counted each minute");
        describe_gauge!(OLDEST, "How long ago the oldest of them was written");
        describe_gauge!(DEAD, "Callbacks that are dead, of all nodes, counted each minute");
    }

    /// An attempt at this event begins.
    pub(super) fn begins(&self, event: &EventRow, waited: Waited, now: UnixMillis) {
        // How late a repeated one is goes by its endpoint, and so is a first one that its endpoint kept waiting.
        let is_ours = event.attempts == 0 && waited == Waited::ForUs;
        if let Some(due_at) = event.due_at.filter(|_| is_ours) {
            let late = Duration::from_millis(u64::try_from(now.0.saturating_sub(due_at.0)).unwrap_or(0));
            self.delay_seconds.get_or_init(|| histogram!(DELAY_SECONDS)).record(late.as_secs_f64());
        }
    }

    /// An attempt was none, for a lack of ours.
    pub(super) fn lacks() {
        counter!(LACKS).increment(1);
    }

    /// An attempt has ended.
    pub(super) fn ended(&self, report: &Report) {
        let at = Outcome::ALL.iter().position(|outcome| *outcome == report.outcome);
        if let Some(cell) = at.and_then(|at| self.attempts.get(at)) {
            cell.get_or_init(|| counter!(ATTEMPTS, "outcome" => report.outcome.name())).increment(1);
        }
        self.attempt_seconds.get_or_init(|| histogram!(ATTEMPT_SECONDS)).record(report.took.as_secs_f64());
    }

    /// After a pass.
    pub(super) fn stand(&self, in_flight: usize, endpoints_open: usize) {
        let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
        self.in_flight.get_or_init(|| gauge!(IN_FLIGHT)).set(number(in_flight));
        self.endpoints_open.get_or_init(|| gauge!(ENDPOINTS_OPEN)).set(number(endpoints_open));
    }
}

impl Dispatcher {
    /// Counts what waits, again and again, until it is cut off. On several nodes each counts what is pending in its own lanes.
    pub(super) async fn count_always(&self) {
        let mut counted = None;
        loop {
            let lanes = self.leases.open(Instant::now());
            if lanes.is_empty() {
                // What waits is other nodes' now, also where the store does not answer.
                show_pending(0, None, self.app.clock.now());
            }
            if !lanes.is_empty() || counted.is_none_or(|at: Instant| at.elapsed() >= COUNT_EVERY) {
                counted = Some(Instant::now());
                self.count(lanes).await;
            }
            sleep(if lanes.is_empty() { LANES_AGAIN } else { COUNT_EVERY }).await;
        }
    }

    async fn count(&self, lanes: LaneSet) {
        match self.app.store.waiting(lanes, COUNTED_MAX).await {
            Ok(NodeBacklog { pending, oldest_pending, dead }) => {
                show_pending(pending, oldest_pending, self.app.clock.now());
                gauge!(DEAD).set(number(dead));
            }
            Err(error) => {
                tracing::warn!(%error, "What waits could not be counted; the metrics keep what they said");
            }
        }
    }
}

fn show_pending(pending: i64, oldest: Option<UnixMillis>, now: UnixMillis) {
    let age = oldest.map_or(0, |written| now.0.saturating_sub(written.0));
    gauge!(PENDING).set(number(pending));
    gauge!(OLDEST).set(Duration::from_millis(u64::try_from(age).unwrap_or(0)).as_secs_f64());
}

fn number(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::app::fixtures::{Deployment, application, dead};
    use crate::dispatch::DispatchSettings;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_without_lanes_counts_what_is_dead_as_the_others_do() {
        let meters = crate::meters::install().expect("meters");
        let deployment = Deployment::on_postgres().await;
        let app = deployment.open().await;
        dead(&app, &application(&app, "shop", None).await).await;
        let dispatcher = Dispatcher::new(app.clone(), DispatchSettings::default()).expect("settings that hold");
        assert!(dispatcher.leases.open(Instant::now()).is_empty(), "it has taken none");
        // What it said while it had lanes.
        gauge!(DEAD).set(7);
        let counted = async {
            while !meters.render().lines().any(|line| line == format!("{DEAD} 1")) {
                // It is asked again until an end.
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = dispatcher.count_always() => panic!("it counts until it is dropped"),
            counted = timeout(Duration::from_secs(20), counted) => counted.expect("it is counted"),
        }
        Deployment::close(&app);
    }
}
