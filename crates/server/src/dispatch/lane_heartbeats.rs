//! Sharing the deliveries with other nodes: heartbeats that renew, take and give back lanes, and the calls of other nodes.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::{LANES, LaneSet};
use countersign_store::Store as _;
use countersign_store::nodes::{Seen, Signal, Stage, Tend};
use metrics::gauge;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Dispatcher;
use super::leases::Word;
use super::unlike::Unlike;
use crate::app::error::AppError;
use crate::app::master_key;
use crate::app::nodes::Tenure;

/// Heartbeats in one lease: some may be lost before it runs out.
const BEATS_PER_LEASE: u32 = 5;

/// How long a heartbeat under way is waited for at the end.
const LAST_BEAT_FOR: Duration = Duration::from_millis(500);

/// What the heartbeats have come to.
#[derive(Debug, Default)]
pub(super) struct HeartbeatState {
    /// How this process was seen, as the database said; none before the first heartbeat.
    seen: Option<Seen>,
    /// The last one failed, and the log has said so.
    is_failing: bool,
    /// Since when another process has had this node's id.
    replaced_since: Option<Instant>,
    /// The master key that this node lacks, as the log has said.
    lacks_key: Option<String>,
    /// Nodes whose settings differ.
    unlike: Unlike,
}

impl Dispatcher {
    /// Beats and listens until it is cut off.
    pub(super) async fn tend(self: Arc<Self>) {
        let mut beats = interval(self.settings.lease / BEATS_PER_LEASE);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut signals = self.app.store.signals();
        loop {
            tokio::select! {
                _ = beats.tick() => self.beat().await,
                () = self.leaves.notified() => self.beat().await,
                lanes = due(&mut signals) => if self.app.bell.lanes().meets(lanes) { self.app.bell.ring_lanes(lanes) },
            }
        }
    }

    /// Has other nodes see this one. Where the database does not answer, the first heartbeat that it does does it.
    pub async fn join(&self) {
        if self.app.store.is_shared() {
            self.beat().await;
        }
    }

    /// One heartbeat, and what follows from it.
    pub(super) async fn beat(&self) {
        let mut state = self.heartbeats.lock().await;
        let open_before = self.leases.open(Instant::now());
        if self.app.store.is_shared() && (!self.app.trouble.takes_changes() || self.lacks_key(&mut state).await) {
            // What this node cannot sign or record another one may: its lanes are not renewed.
            return self.opened(open_before);
        }
        let word = self.leases.word();
        let stage = match (self.leases.all_leave(), state.seen) {
            (true, _) => Stage::Leaves,
            (false, Some(_)) => Stage::Runs,
            (false, None) => Stage::Begins,
        };
        let sent = Instant::now();
        match self.app.store.tend_lanes(self.heartbeat(stage, &state, word)).await {
            Ok(tended) => {
                self.leases.tended(&tended, sent, self.settings.lease);
                if std::mem::take(&mut state.is_failing) {
                    tracing::info!("Heartbeats reach the database again");
                }
                self.see_replaced(&mut state, tended.seen.is_none(), sent);
                state.seen = tended.seen.or(state.seen);
                state.unlike.tell(&self.settings.who.settings, &tended.others);
            }
            Err(error) => {
                if !std::mem::replace(&mut state.is_failing, true) {
                    tracing::warn!(%error, "A heartbeat failed; when the lease runs out, this node begins no more callbacks");
                }
            }
        }
        self.opened(open_before);
    }

    /// Two processes under one id would share neither the lanes nor what others wait for: the one that began last has them. It is said only when that
    /// has been so for a lease: for as long a node may take what it noted itself for another's, if an answer or a commit was lost with a server.
    fn see_replaced(&self, state: &mut HeartbeatState, is_replaced: bool, now: Instant) {
        let since = is_replaced.then(|| state.replaced_since.unwrap_or(now));
        state.replaced_since = since;
        let tenure = match since {
            None => Tenure::Ours,
            Some(since) if now.duration_since(since) > self.settings.lease => Tenure::Lost,
            Some(_) => Tenure::Replaced,
        };
        match (self.app.node.note_tenure(tenure), tenure) {
            (Tenure::Ours | Tenure::Replaced, Tenure::Lost) => tracing::error!(
                "Another process has begun under this node's id and is alive: its data folder was copied, or this one was used again. \
                 This node is not ready and delivers no callbacks meanwhile. Stop the one with the copied folder, delete node.id in it, and start it again"
            ),
            (Tenure::Lost, Tenure::Ours | Tenure::Replaced) => {
                tracing::info!("No other process runs under this node's id any more");
            }
            (Tenure::Lost, Tenure::Lost) | (Tenure::Ours | Tenure::Replaced, Tenure::Ours | Tenure::Replaced) => {}
        }
    }

    /// Whether the deployment has gone over to a master key that this node was not given, as behind the back of one that stood still.
    async fn lacks_key(&self, state: &mut HeartbeatState) -> bool {
        // It is read as merchants' questions are: what stands before it there must not hold the heartbeat up.
        let lacks = match timeout(self.settings.lease / (2 * BEATS_PER_LEASE), master_key::known(&self.app)).await {
            Ok(Ok(_)) => None,
            Ok(Err(AppError::LacksMasterKey(key_id))) => Some(key_id),
            // The heartbeat has more to say about a store that does not answer.
            Ok(Err(_)) | Err(_) => state.lacks_key.clone(),
        };
        match (&state.lacks_key, &lacks) {
            (None, Some(key_id)) => {
                tracing::error!(key_id, "This node lacks the master key {key_id}: other nodes deliver its callbacks");
            }
            (Some(_), None) => tracing::info!("This node has the master key of the deployment again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        state.lacks_key = lacks;
        state.lacks_key.is_some()
    }

    /// Tells how many lanes may be delivered for, where that has changed; the next pass begins with what is due in them.
    fn opened(&self, before: LaneSet) {
        let mut open = self.leases.open(Instant::now());
        self.app.bell.serve_lanes(open);
        if self.leases.all_leave() {
            // It may have begun to leave between the two.
            open = LaneSet::NONE;
            self.app.bell.serve_lanes(open);
        }
        gauge!("countersign_dispatch_lanes").set(open.len());
        if open == before {
            return;
        }
        tracing::info!(
            lanes = open.len(),
            before = before.len(),
            "This node delivers callbacks for {} of 64 lanes",
            open.len()
        );
        self.app.bell.ring_lanes(LaneSet::NONE);
    }

    /// What nothing is in flight in goes to other nodes at once, the rest as it lands: they need not wait for the last attempt here.
    pub(super) fn begin_to_leave(&self) {
        if !self.leases.all_leave() {
            self.leases.leave();
            self.app.bell.serve_lanes(LaneSet::NONE);
            self.leaves.notify_one();
        }
    }

    /// Ends what runs beside and gives everything back, so that other nodes need not wait for the lease to run out. Nothing may be in flight, and
    /// nobody be answered any more: from here on no node counts with this one.
    pub(super) async fn leave(&self, mut beside: JoinSet<()>) {
        // A heartbeat that is cut off would take its connection with it, and hold the rows of its lanes until the database notices.
        let no_beat = timeout(LAST_BEAT_FOR, self.heartbeats.lock()).await;
        beside.shutdown().await;
        drop(no_beat);
        let (word, state) = (self.leases.word(), self.heartbeats.lock().await);
        if let Err(error) = self.app.store.tend_lanes(self.heartbeat(Stage::Ends, &state, word)).await {
            tracing::warn!(%error, "The lanes could not be given back; other nodes take them when the lease runs out");
        }
    }

    fn heartbeat(&self, stage: Stage, state: &HeartbeatState, word: Word) -> Tend {
        Tend {
            who: self.settings.who.clone(),
            stage,
            seen: state.seen,
            wants: u32::from(LANES),
            held: word.held,
            give_back: word.give_back,
            lease_ms: i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX),
            clock_ahead_ms: self.app.clock.ahead_ms(),
        }
    }
}

/// Waits until another node says that events are due: of these lanes.
async fn due(signals: &mut Option<broadcast::Receiver<Signal>>) -> LaneSet {
    let Some(heard) = signals else { return std::future::pending().await };
    loop {
        match heard.recv().await {
            Ok(Signal::Due(lanes)) => return lanes,
            Ok(Signal::Directory) => {}
            Err(RecvError::Lagged(_)) => return LaneSet::ALL,
            Err(RecvError::Closed) => {
                *signals = None;
                return LaneSet::ALL;
            }
        }
    }
}
