//! Delivers callbacks: takes what is due, makes the attempts, records each with its verdict.
//!
//! There is one path: a wake-up says "look", never "what". The dispatcher reads what is due from the store at start, after each
//! commit that rang [`App::due`] (here or on another node), when a retry falls due, and every few seconds. So a crash anywhere has no special path: what was
//! not recorded is due again, and is sent again with the same attempt number (delivery is at least once).
//!
//! Invariant: in one process an event is never attempted twice at once. The line-up takes it once, and what has ended is landed
//! before the next read.
//! Invariant: of nodes that share a store one delivers for an application: the one that holds its lane ([`leases`]). An attempt that is still
//! in flight when a lease runs out may meet one of the next holder; its result is refused, since it names the older term.
//! Seam: full fairness between applications with large backlogs belongs in `Store::due_events`; here a hung endpoint keeps at
//! most `per_application` attempts, and reads go on past its backlog up to [`READ_ROWS_MAX`] rows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_domain::lanes::{Fence, Lane, LaneSet};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::EventRow;
use countersign_store::{Store, StoreError};
use metrics::gauge;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::app::App;

mod attempt;
mod connect;
mod deliver;
pub mod egress;
mod faults;
mod leases;
mod lineup;
mod ranges;
mod record;
mod retry_after;
mod settings;
mod tend;
mod turn;

pub use settings::{DispatchError, DispatchSettings};

use connect::Connector;
use leases::Leases;
use lineup::{Bounds, Flight, Lineup, Offer};

/// Rows of a first read of what is due.
const READ_ROWS: u32 = 256;
/// Most rows of one read, when all before are of applications that have their share.
pub const READ_ROWS_MAX: u32 = 32_768;
/// Events kept ready in memory per application.
const READY_PER_APPLICATION_MAX: usize = 512;
/// The table is looked at this often even if nobody rings, where nobody else could.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two looks there is at least this.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// How long to leave the store alone after it failed.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// What waits for something that may change elsewhere is asked again after this, in ms.
const RECHECK_MS: i64 = 5_000;
/// An event that cannot be delivered or recorded for a fault of ours rests this long, in ms.
const FAULT_MS: i64 = 60_000;

/// How the handling of a taken event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// An attempt was made and recorded; the next one is due then.
    Attempted { next: Option<UnixMillis> },
    /// It waits for another event, or after a fault.
    Waits { until: UnixMillis },
    /// Its application has no key that signs, or could not be read.
    ApplicationWaits { until: UnixMillis },
    /// All events of its application are held.
    Held,
    /// Things changed meanwhile: look again.
    Again,
}

/// What one pass works on; only one pass at a time.
#[derive(Debug)]
struct Desk {
    lineup: Lineup,
    /// The lanes that the line-up is made of.
    open: LaneSet,
    tasks: JoinSet<()>,
    /// The table may hold due events that were not read.
    must_look: bool,
    /// The last read left due events behind.
    has_left: bool,
    /// When the next event is due that is not due yet.
    next_due_at: Option<UnixMillis>,
}

/// Delivers what is due.
#[derive(Debug)]
pub struct Dispatcher {
    app: Arc<App>,
    settings: DispatchSettings,
    connector: Connector,
    names: deliver::Names,
    /// What this node may deliver.
    leases: Leases,
    pulse: AsyncMutex<tend::Pulse>,
    desk: AsyncMutex<Desk>,
    ended: Mutex<Vec<(Flight, Ended)>>,
    landed: Notify,
    /// Something may be to be held or released.
    turns: Notify,
    /// Attempts made since the start.
    attempts: AtomicUsize,
}

impl Dispatcher {
    /// Reads the machine's root certificates; delivers nothing yet.
    pub fn new(app: Arc<App>, settings: DispatchSettings) -> Result<Self, DispatchError> {
        for (limit, name) in [(settings.concurrency, "concurrency"), (settings.per_application, "per_application")] {
            if limit == 0 {
                return Err(DispatchError::Zero(name));
            }
        }
        metrics::describe_counter!("countersign_callback_attempts_total", "Attempts to deliver callbacks by outcome");
        metrics::describe_histogram!("countersign_callback_attempt_seconds", "From a callback's look-up to its answer");
        metrics::describe_gauge!("countersign_callbacks_in_flight", "Callbacks that are being attempted now");
        metrics::describe_gauge!("countersign_dispatch_lanes", "Lanes, of 64, that this node delivers callbacks for");
        metrics::describe_counter!(
            "countersign_callback_results_fenced_total",
            "Results of attempts that came after another node had taken over"
        );
        let bounds = Bounds {
            in_flight: settings.concurrency,
            per_application: settings.per_application,
            ready_per_application: READY_PER_APPLICATION_MAX.max(settings.per_application),
        };
        let desk = Desk {
            lineup: Lineup::new(bounds),
            open: LaneSet::NONE,
            tasks: JoinSet::new(),
            must_look: true,
            has_left: false,
            next_due_at: None,
        };
        Ok(Self {
            connector: Connector::new(&settings)?,
            names: deliver::Names::new(settings.prefixes.first()),
            leases: if app.store.is_shared() { Leases::none() } else { Leases::alone() },
            pulse: AsyncMutex::default(),
            app,
            settings,
            desk: AsyncMutex::new(desk),
            ended: Mutex::default(),
            landed: Notify::new(),
            turns: Notify::new(),
            attempts: AtomicUsize::new(0),
        })
    }

    /// Delivers until `shutdown` turns true (or its sender is gone), then lets the attempts in flight end within the grace.
    /// What does not end by then stays as it is in the store and is sent again by the next start. What other nodes can deliver for is given
    /// back at the end.
    pub async fn run(self: Arc<Self>, shutdown: watch::Receiver<bool>) {
        let mut beside = JoinSet::new();
        let turner = self.clone();
        beside.spawn(async move { turner.turn_always().await });
        if !self.app.store.is_shared() {
            self.work(shutdown).await;
            return beside.shutdown().await;
        }
        // The leases are renewed until the last attempt has landed.
        beside.spawn(self.clone().tend());
        self.clone().work(shutdown).await;
        beside.shutdown().await;
        self.leave().await;
    }

    async fn work(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let told = shutdown.clone();
        while !*shutdown.borrow_and_update() {
            let due = self.app.due.notified();
            tokio::pin!(due);
            // Before the read, so that no ring between the read and the wait is lost.
            due.as_mut().enable();
            let wait = match self.pass(self.app.clock.now(), &|| *told.borrow()).await {
                Ok(()) => self.wait().await,
                Err(error) => {
                    tracing::warn!(%error, "What is due could not be read; callbacks are tried again shortly");
                    self.desk.lock().await.must_look = true;
                    STORE_PAUSE
                }
            };
            self.connector.sweep();
            tokio::select! {
                () = due => self.look().await,
                () = self.landed.notified() => {}
                () = sleep(wait) => self.look().await,
                changed = shutdown.changed() => if changed.is_err() { break },
            }
        }
        self.drain().await;
    }

    /// Delivers everything that is due at `now` and waits for the end of it: the number of attempts made. For tests and
    /// tools; `run` does the same for ever, and only one of the two may be in use. A store that fails ends it early.
    pub async fn deliver_due(self: &Arc<Self>, now: UnixMillis) -> usize {
        let before = self.attempts.load(Ordering::SeqCst);
        if self.app.store.is_shared() {
            self.beat().await;
        }
        if let Err(error) = self.turn_all().await {
            tracing::warn!(%error, "What is to be held or released could not be");
        }
        self.look().await;
        loop {
            if let Err(error) = self.pass(now, &|| false).await {
                tracing::warn!(%error, "What is due could not be read");
            }
            let desk = self.desk.lock().await;
            if desk.lineup.flights() == 0 {
                return self.attempts.load(Ordering::SeqCst) - before;
            }
            drop(desk);
            self.landed.notified().await;
        }
    }

    async fn look(&self) {
        self.turns.notify_one();
        self.desk.lock().await.must_look = true;
    }

    /// Lands what has ended, reads what is due where that is called for, and begins what may begin, unless it is to stop.
    async fn pass(self: &Arc<Self>, now: UnixMillis, must_stop: &(dyn Fn() -> bool + Sync)) -> Result<(), StoreError> {
        let mut desk = self.desk.lock().await;
        let paused = self.app.due.is_paused();
        let open = if paused { LaneSet::NONE } else { self.leases.open(Instant::now()) };
        if std::mem::replace(&mut desk.open, open) != open {
            desk.lineup.keep_lanes(open);
            desk.must_look = true;
        }
        loop {
            self.land(&mut desk);
            if must_stop() {
                break;
            }
            while let Some(event) = desk.lineup.next() {
                let Some(fence) = self.leases.begin(Lane::of(event.application), Instant::now()) else {
                    desk.lineup.land(&Flight::of(&event));
                    desk.lineup.drop_ready(event.application);
                    continue;
                };
                let task = self.clone().handle(event, fence);
                desk.tasks.spawn(task);
            }
            if desk.lineup.is_full() || !desk.must_look {
                break;
            }
            self.land(&mut desk);
            self.read_due(&mut desk, now).await?;
        }
        gauge!("countersign_callbacks_in_flight").set(u32::try_from(desk.lineup.flights()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Reads due events, further and further, until there is enough to do or no more is due.
    async fn read_due(&self, desk: &mut Desk, now: UnixMillis) -> Result<(), StoreError> {
        let lanes = desk.open;
        if lanes.is_empty() {
            (desk.must_look, desk.has_left, desk.next_due_at) = (false, false, None);
            return Ok(());
        }
        let mut limit = READ_ROWS;
        loop {
            let rows = self.app.store.due_events(now, lanes, limit).await?;
            let is_cut = rows.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
            let mut has_left = is_cut;
            for row in rows {
                has_left |= match desk.lineup.offer(row, now) {
                    Offer::Full => true,
                    Offer::Ready | Offer::Known | Offer::Parked => false,
                };
            }
            desk.has_left = has_left;
            if !is_cut || limit >= READ_ROWS_MAX || desk.lineup.has_enough() {
                break;
            }
            limit = limit.saturating_mul(4).min(READ_ROWS_MAX);
        }
        desk.next_due_at = self.app.store.next_due_at(now, lanes).await?;
        desk.must_look = false;
        Ok(())
    }

    /// Takes note of what has ended. After it, what is read from the store shows these attempts.
    fn land(&self, desk: &mut Desk) {
        while let Some(ended) = desk.tasks.try_join_next() {
            if ended.is_err_and(|e| e.is_panic()) {
                tracing::error!("Handling a callback panicked; it is tried again in a minute");
            }
        }
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        for (flight, ended) in ended {
            let application = flight.application;
            self.leases.land(Lane::of(application));
            match ended {
                Ended::Attempted { next } => {
                    desk.must_look |= desk.lineup.land(&flight);
                    desk.next_due_at = desk.next_due_at.into_iter().chain(next).min();
                }
                Ended::Waits { until } => desk.must_look |= desk.lineup.park(&flight, until),
                Ended::ApplicationWaits { until } => {
                    desk.lineup.land(&flight);
                    desk.lineup.park_application(application, until);
                }
                Ended::Held => {
                    desk.lineup.land(&flight);
                    desk.lineup.drop_ready(application);
                }
                Ended::Again => {
                    desk.lineup.land(&flight);
                    desk.must_look = true;
                }
            }
            if desk.has_left && desk.lineup.ready_of(application) < self.settings.per_application {
                desk.must_look = true;
            }
        }
    }

    /// How long nothing can be begun, unless somebody rings or an attempt lands.
    async fn wait(&self) -> Duration {
        let now = self.app.clock.now();
        let mut desk = self.desk.lock().await;
        let longest = if self.app.store.is_shared() { self.settings.look_every } else { LOOK_EVERY };
        if desk.lineup.is_full() {
            return longest;
        }
        let next = desk.lineup.first_unparked_at(now).into_iter().chain(desk.next_due_at).min();
        let wait = |at: UnixMillis| Duration::from_millis(u64::try_from(at.0 - now.0).unwrap_or(0));
        next.map_or(longest, wait).clamp(WAIT_MIN, longest.max(WAIT_MIN))
    }

    async fn drain(&self) {
        let end = Instant::now() + self.settings.drain_grace;
        loop {
            let mut desk = self.desk.lock().await;
            self.land(&mut desk);
            let flights = desk.lineup.flights();
            if flights == 0 {
                return;
            }
            drop(desk);
            if timeout_at(end, self.landed.notified()).await.is_err() {
                tracing::warn!(
                    flights,
                    "Callbacks were cut off in flight at the stop; the next start sends them again"
                );
                self.desk.lock().await.tasks.abort_all();
                return;
            }
        }
    }

    /// Handles one taken event and reports its end, whatever happens to the task.
    async fn handle(self: Arc<Self>, event: EventRow, fence: Fence) {
        let rest = Ended::Waits { until: self.app.clock.now().plus_ms(FAULT_MS) };
        let mut landing = Landing { dispatcher: &self, flight: Flight::of(&event), ended: rest };
        landing.ended = self.deliver(event, fence).await;
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
        self.dispatcher.ended.lock().unwrap_or_else(PoisonError::into_inner).push((self.flight.clone(), self.ended));
        self.dispatcher.landed.notify_one();
    }
}
