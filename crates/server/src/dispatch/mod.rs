//! Delivers callbacks: takes what is due, makes the attempts, records each with its verdict.
//!
//! A wake-up says "look", not "what". The dispatcher reads what is due from the store at start, after each
//! commit that rang [`App::bell`] (here or on another node), when a retry falls due, and every few seconds. So a crash anywhere has no special path: what was
//! not recorded is due again, and is sent again with the same attempt number (delivery is at least once). What this process has just written
//! is handed over instead ([`crate::app::fresh`]), and nothing rests on that.
//!
//! Invariant: in one process an event is never attempted twice at once. The line-up takes it once, what has ended is landed
//! before the next read, and what a read has found is not handed over.
//! Invariant: of nodes that share a store one delivers for an application: the one that holds its lane ([`leases`]). An attempt that is still
//! in flight when a lease runs out may meet one of the next holder; its result is refused, since it names the older term.
//! Invariant: how much an application has waiting, and how its endpoint answers, costs its neighbours a bounded part of what there is
//! ([`lineup`]). What is owed is read for each application by itself.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::EventNo;
use countersign_domain::lanes::{Fence, LaneSet};
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::contract::EventRow;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::repeated_warning::SharedWarning;

mod answer_quota;
mod attempt;
mod by_hand;
mod connect;
mod dead_and_disabled;
mod deliver;
mod early;
pub mod egress;
mod endpoint_settings;
mod expire;
mod faults;
mod flight;
mod health;
mod hold_release;
mod idle;
mod lane_heartbeats;
mod leases;
mod lineup;
mod look_ups;
mod measure;
mod meters;
mod permits;
mod place_in_lineup;
mod queue;
mod ranges;
mod record;
mod records;
mod resend;
mod retry_after;
mod round;
pub mod route;
mod settings;
#[cfg(test)]
mod spellings;
mod stopwatch;
mod tape;
mod timetable;
mod trial;
mod unlike;
mod unreadable;
mod unsigned;

pub(crate) use attempt::Report;
pub(crate) use by_hand::{ByHand, Manner};
pub(crate) use connect::Spelling;
pub(crate) use deliver::Parts;
pub(crate) use meters::{ATTEMPT_SECONDS, DELAY_SECONDS};

pub use health::BreakerState;
pub use idle::IDLE_TOTAL_MAX;
pub use look_ups::LOOK_UPS_MAX;
pub use place_in_lineup::EndpointView;
pub use settings::{DEADLINE, DispatchError, DispatchSettings};
pub use trial::{BIZ_TYPE, Tried};

use connect::Connector;
use flight::Flight;
use health::Sign;
use leases::{Leases, Terms};
use lineup::{Bounds, Lineup, Waited};

/// How many authorities https callbacks are checked by: the system's and the extra ones (PEM). Refused where the dispatcher would not start with
/// them.
pub fn count_roots(extra: &[u8], allow_private: bool) -> Result<usize, DispatchError> {
    connect::roots(extra, allow_private).map(|roots| roots.len())
}

/// The table is looked at this often even if nobody rings, where nobody else could.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two looks there is at least this.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// How long to leave the store alone after it failed.
const STORE_PAUSE: Duration = Duration::from_millis(STORE_PAUSE_MS.unsigned_abs());
const STORE_PAUSE_MS: i64 = 1_000;
/// The log tells this often of what fails again and again.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// What waits for something that may change elsewhere is asked again after this, in ms.
const RECHECK_MS: i64 = 5_000;
/// An event that cannot be delivered or recorded for a fault of ours rests this long, in ms.
const FAULT_MS: i64 = 60_000;

/// How the handling of a taken event ended.
#[derive(Debug)]
enum Ended {
    /// An attempt was made, and is to be recorded.
    Made(Box<records::Record>),
    /// An attempt was made and recorded; the next one is due then, unless the event is over. `was_moved`: by somebody else meanwhile, most likely by a
    /// commit of this very attempt whose answer was lost.
    Attempted { next: Option<UnixMillis>, sign: Sign, outcome: Outcome, was_moved: bool },
    /// It waits for an earlier one of its bizId, and the store knows.
    Behind { event: EventNo },
    /// It waits after a fault.
    Waits { until: UnixMillis },
    /// Its application has no key that signs, or could not be read, or there was no file for a connection to its endpoint.
    ApplicationWaits { until: UnixMillis },
    /// All events of its application are held. What came of the attempt that was recorded, where one was.
    Held { last: Option<Outcome> },
    /// Things changed meanwhile: look again.
    Again,
}

/// What one pass works on; only one pass at a time.
#[derive(Debug)]
struct PassState {
    lineup: Lineup,
    /// The lanes that the line-up is made of.
    open: LaneSet,
    /// Lanes of this node that were looked through since it has had them.
    looked: LaneSet,
    /// The terms that the line-up is of: those of all lanes of this node, lapsed or not.
    terms: Terms,
    /// Attempts that were made and are to be recorded.
    records: records::Records,
    tasks: JoinSet<()>,
}

/// Delivers what is due.
#[derive(Debug)]
pub struct Dispatcher {
    app: Arc<App>,
    settings: DispatchSettings,
    connector: Connector,
    headers: deliver::CallbackHeaders,
    /// What this node may deliver.
    leases: Leases,
    heartbeats: AsyncMutex<lane_heartbeats::HeartbeatState>,
    pass_state: AsyncMutex<PassState>,
    ended: Mutex<Vec<(Flight, Ended)>>,
    landed: Notify,
    /// Something may be to be held or released.
    hold_notes: Notify,
    /// A redelivery of many events was begun.
    resends: Notify,
    /// Lanes whose applications are to be looked for.
    looks: Mutex<LaneSet>,
    look: Notify,
    /// This node ends: the next heartbeat says so, and is due.
    leaves: Notify,
    meters: meters::Meters,
    /// How much of answers is kept.
    answer_quotas: answer_quota::AnswerQuotas,
    /// Attempts made since the start.
    attempts: AtomicUsize,
    /// Callbacks that tell of nothing and are under way.
    trials: trial::Trials,
    /// Applications that were told of since no secret signs their callbacks.
    unsigned: unsigned::Unsigned,
    /// That connections could not be begun for a lack of ours is said now and then.
    lacks: SharedWarning,
}

impl Dispatcher {
    /// Reads the machine's root certificates; delivers nothing yet.
    pub fn new(app: Arc<App>, settings: DispatchSettings) -> Result<Self, DispatchError> {
        let limits = [
            (settings.concurrency, "concurrency"),
            (settings.slow, "slow"),
            (settings.per_application, "per_application"),
            (settings.per_merchant, "per_merchant"),
        ];
        for (limit, name) in limits {
            if limit == 0 {
                return Err(DispatchError::Zero(name));
            }
        }
        meters::Meters::describe();
        metrics::describe_gauge!("countersign_dispatch_lanes", "Lanes, of 64, that this node delivers callbacks for");
        metrics::describe_counter!(
            "countersign_callback_results_fenced_total",
            "Results of attempts that came after another node had taken over"
        );
        unlike::describe();
        dead_and_disabled::describe();
        let bounds = Bounds {
            in_flight: settings.concurrency,
            slow: settings.slow,
            per_application: settings.per_application,
            per_merchant: settings.per_merchant,
        };
        let pass_state = PassState {
            lineup: Lineup::new(bounds),
            open: LaneSet::NONE,
            looked: LaneSet::NONE,
            terms: Terms::NONE,
            records: records::Records::default(),
            tasks: JoinSet::new(),
        };
        Ok(Self {
            connector: Connector::new(&settings)?,
            headers: deliver::CallbackHeaders::new(settings.prefixes.first()),
            leases: if app.store.is_shared() { Leases::none() } else { Leases::alone() },
            heartbeats: AsyncMutex::default(),
            app,
            settings,
            pass_state: AsyncMutex::new(pass_state),
            ended: Mutex::default(),
            landed: Notify::new(),
            hold_notes: Notify::new(),
            resends: Notify::new(),
            looks: Mutex::default(),
            look: Notify::new(),
            leaves: Notify::new(),
            meters: meters::Meters::default(),
            answer_quotas: answer_quota::AnswerQuotas::default(),
            attempts: AtomicUsize::new(0),
            trials: trial::Trials::default(),
            unsigned: unsigned::Unsigned::default(),
            lacks: SharedWarning::default(),
        })
    }

    /// Delivers until `shutdown` turns true (or its sender is gone), then lets the attempts in flight end within the grace.
    /// What does not end by then stays as it is in the store and is sent again by the next start. What other nodes can deliver for is given
    /// back meanwhile; they see this one until `silent` turns true, when it answers nobody any more.
    pub async fn run(self: Arc<Self>, shutdown: watch::Receiver<bool>, mut silent: watch::Receiver<bool>) {
        let mut beside = JoinSet::new();
        let (holder, looker, resender, updater, counter) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self.clone());
        beside.spawn(async move { holder.hold_or_release_always().await });
        beside.spawn(async move { looker.look_always().await });
        beside.spawn(async move { resender.resend_always().await });
        beside.spawn(async move { updater.take_up_changes_always().await });
        beside.spawn(async move { counter.count_always().await });
        beside.spawn(self.clone().expire_always());
        let is_shared = self.app.store.is_shared();
        if is_shared {
            // Leases are renewed until the last attempt has landed, and this node is seen until it answers nobody any more.
            beside.spawn(self.clone().tend());
        }
        tokio::select! {
            () = self.clone().work(shutdown) => {}
            // They go on for ever: one that ends has panicked, and what it did would not be done any more.
            Some(ended) = beside.join_next() => ended.expect("a part of the dispatcher goes on"),
        }
        if is_shared {
            if !*silent.borrow() {
                self.begin_to_leave();
                let _ = silent.wait_for(|silent| *silent).await;
            }
            self.leave(beside).await;
        } else {
            beside.shutdown().await;
        }
    }

    async fn drain(self: &Arc<Self>) {
        let end = Instant::now() + self.settings.drain_grace;
        loop {
            let mut pass_state = self.pass_state.lock().await;
            self.land(&mut pass_state, self.app.clock.now());
            self.hand_over(&mut pass_state, 0);
            let flights = pass_state.lineup.flights();
            if flights == 0 {
                return;
            }
            drop(pass_state);
            if self.app.store.is_shared() {
                self.begin_to_leave();
            }
            if timeout_at(end, self.landed.notified()).await.is_err() {
                tracing::warn!(
                    flights,
                    "Callbacks were cut off in flight at the stop; the next start sends them again, or another node"
                );
                self.pass_state.lock().await.tasks.shutdown().await;
                self.leases.cut_off();
                self.leaves.notify_one();
                return;
            }
        }
    }

    fn tell(&self, ended: impl IntoIterator<Item = (Flight, Ended)>) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
        self.landed.notify_one();
    }

    /// Handles one taken event and reports its end, whatever happens to the task.
    async fn handle(self: Arc<Self>, event: EventRow, fence: Fence, waited: Waited) {
        let rest = Ended::Waits { until: self.app.clock.now().plus_ms(FAULT_MS) };
        let mut landing = Landing { dispatcher: &self, flight: Flight::of(&event), ended: rest };
        landing.ended = self.deliver(event, fence, waited).await;
    }
}

/// Reports the end of a taken event when it is dropped: at the end of its task, in a panic, or when it is cut off.
struct Landing<'a> {
    dispatcher: &'a Dispatcher,
    flight: Flight,
    ended: Ended,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let ended = std::mem::replace(&mut self.ended, Ended::Again);
        self.dispatcher.tell([(self.flight.clone(), ended)]);
    }
}
