//! Tells the dispatcher that deliveries may be due: the one of this process, or of the node that has the lane.
//!
//! A ring says whose deliveries to look at, never what is due: that is read from the store, but for events that this process has just written
//! ([`super::fresh`]). A ring that is lost or doubled changes nothing, since every dispatcher also looks by itself, only later.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_store::Store as _;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::App;
use super::fresh::{Fresh, Written};

/// Applications that are remembered by name; more are looked for.
const NAMED_MAX: usize = 65_536;

/// Whose deliveries are to be looked at.
#[derive(Debug, Default)]
pub struct Rung {
    /// These applications, with their tenants.
    pub applications: HashMap<ApplicationNo, TenantNo>,
    /// Whoever has something due in these lanes.
    pub lanes: LaneSet,
}

/// Applications that somebody has changed, by ClientId.
#[derive(Debug, Default)]
pub struct Changed {
    /// These.
    named: HashSet<String>,
    /// Any of them.
    all: bool,
}

impl Changed {
    /// Whether this application is among the changed ones.
    pub fn has(&self, client_id: &str) -> bool {
        self.all || self.named.contains(client_id)
    }

    /// Whether no application has changed.
    pub fn is_empty(&self) -> bool {
        !self.all && self.named.is_empty()
    }
}

/// Rung after each commit that made a delivery due.
#[derive(Debug)]
pub struct Bell {
    ring: Notify,
    rung: Mutex<Rung>,
    fresh: Mutex<Fresh>,
    change: Notify,
    changed: Mutex<Changed>,
    /// Lanes that this process delivers for.
    lanes: AtomicU64,
    /// Whether nothing is delivered at all, whatever is due.
    is_paused: AtomicBool,
}

impl Bell {
    /// Of a process that delivers for these lanes at its start.
    pub fn new(lanes: LaneSet) -> Self {
        Self {
            ring: Notify::new(),
            rung: Mutex::default(),
            fresh: Mutex::default(),
            change: Notify::new(),
            changed: Mutex::default(),
            lanes: AtomicU64::new(lanes.0),
            is_paused: AtomicBool::new(false),
        }
    }

    /// This process delivers for these lanes from now on.
    pub fn serve_lanes(&self, lanes: LaneSet) {
        self.lanes.store(lanes.0, Ordering::Release);
    }

    /// The lanes that this process delivers for.
    pub fn lanes(&self) -> LaneSet {
        LaneSet(self.lanes.load(Ordering::Acquire))
    }

    /// From here on nothing is delivered, or everything that is due again. What is in flight ends.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Whether nothing is delivered.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    fn rung(&self) -> MutexGuard<'_, Rung> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the dispatcher of this process to look at an application.
    pub fn ring(&self, tenant: TenantNo, application: ApplicationNo) {
        let mut rung = self.rung();
        if rung.applications.len() < NAMED_MAX {
            rung.applications.insert(application, tenant);
        } else {
            rung.lanes = rung.lanes.with(Lane::of(application));
        }
        drop(rung);
        self.ring.notify_one();
    }

    /// Tells it to look at every application in these lanes.
    pub fn ring_lanes(&self, lanes: LaneSet) {
        let mut rung = self.rung();
        rung.lanes = rung.lanes.union(lanes);
        drop(rung);
        self.ring.notify_one();
    }

    /// What was rung for since this was asked last.
    pub fn take(&self) -> Rung {
        std::mem::take(&mut *self.rung())
    }

    pub(super) fn fresh(&self) -> MutexGuard<'_, Fresh> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the dispatcher of this process that an event was handed over.
    pub(super) fn wake(&self) {
        self.ring.notify_one();
    }

    /// From here on events are handed over for so long after their commits were noted, and read later than that.
    pub fn hand_over_for(&self, time: Duration) {
        self.fresh().within = time;
    }

    /// Events that were handed over since this was asked last.
    pub fn written(&self) -> Written {
        self.fresh().take(Instant::now())
    }

    /// A read has found these events: they are not handed over.
    pub fn found(&self, events: impl Iterator<Item = EventNo>) {
        self.fresh().found(events);
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the dispatcher of this process that an application has changed: what it remembers of its settings may be old.
    pub fn change(&self, client_id: &str) {
        let mut changed = self.changed();
        if changed.named.len() < NAMED_MAX {
            changed.named.insert(client_id.to_owned());
        } else {
            changed.all = true;
        }
        drop(changed);
        self.change.notify_one();
    }

    /// Tells it that any application may have.
    pub fn change_all(&self) {
        self.changed().all = true;
        self.change.notify_one();
    }

    /// Which have changed since this was asked last.
    pub fn take_changed(&self) -> Changed {
        std::mem::take(&mut *self.changed())
    }

    /// Waits until one has changed.
    pub fn has_changed(&self) -> Notified<'_> {
        self.change.notified()
    }

    /// Waits for the next ring.
    pub fn notified(&self) -> Notified<'_> {
        self.ring.notified()
    }
}

impl App {
    /// Deliveries of an application may be due: whoever delivers for it is told to look. Call it after the commit.
    pub fn ring(&self, tenant: TenantNo, application: ApplicationNo) {
        let lane = Lane::of(application);
        if self.bell.lanes().contains(lane) {
            self.bell.ring(tenant, application);
        } else {
            self.store.announce(LaneSet::NONE.with(lane));
        }
    }

    /// Deliveries of any application may be due.
    pub fn ring_all(&self) {
        self.bell.ring_lanes(LaneSet::ALL);
        self.store.announce(LaneSet::ALL);
    }
}
