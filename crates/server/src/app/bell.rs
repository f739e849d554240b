//! Tells the dispatcher that deliveries may be due: the one of this process, or of the node that has the lane.
//!
//! The bell says "look", never what: a ring that is lost or doubled changes nothing, since every dispatcher also looks by itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use countersign_domain::ids::ApplicationNo;
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_store::Store as _;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::App;

/// Rung after each commit that made a delivery due.
#[derive(Debug)]
pub struct Bell {
    rung: Notify,
    /// Lanes that this process delivers for.
    held: AtomicU64,
    /// Whether nothing is delivered at all, whatever is due.
    is_paused: AtomicBool,
}

impl Bell {
    /// Of a process that delivers for these lanes at its start.
    pub fn new(held: LaneSet) -> Self {
        Self { rung: Notify::new(), held: AtomicU64::new(held.0), is_paused: AtomicBool::new(false) }
    }

    /// This process delivers for these lanes from now on.
    pub fn hold(&self, held: LaneSet) {
        self.held.store(held.0, Ordering::Release);
    }

    /// The lanes that this process delivers for.
    pub fn held(&self) -> LaneSet {
        LaneSet(self.held.load(Ordering::Acquire))
    }

    /// From here on nothing is delivered, or everything that is due again. What is in flight ends.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Whether nothing is delivered.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Tells the dispatcher of this process to look.
    pub fn ring(&self) {
        self.rung.notify_one();
    }

    /// Waits for the next ring.
    pub fn notified(&self) -> Notified<'_> {
        self.rung.notified()
    }
}

impl App {
    /// Deliveries of an application may be due: whoever delivers for it is told to look. Call it after the commit.
    pub fn ring(&self, application: ApplicationNo) {
        let lane = Lane::of(application);
        if self.due.held().contains(lane) {
            self.due.ring();
        } else {
            self.store.announce(LaneSet::NONE.with(lane));
        }
    }

    /// Deliveries of any application may be due.
    pub fn ring_all(&self) {
        self.due.ring();
        self.store.announce(LaneSet::ALL);
    }
}
