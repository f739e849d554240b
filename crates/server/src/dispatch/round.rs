//! One pass after the other: lands what has ended, reads what is owed, begins what may begin.

use std::future::ready;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use countersign_domain::delivery::{due, is_too_far_ahead};
use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{Cursor, EventRow, Pending, Portion, UnreadableEvent};
use countersign_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};

use super::endpoint_settings::tell_turned;
use super::flight::Flight;
use super::lineup::{Next, Waited};
use super::{Dispatcher, Ended, FAULT_MS, LOOK_EVERY, PassState, RECHECK_MS, SAID_EVERY, STORE_PAUSE, WAIT_MIN};
use crate::app::fresh::Written;
use crate::repeated_warning::RepeatedWarning;

/// Applications that are found at once.
const OWED_PAGE: u32 = 4_096;
/// Applications with nothing due that are read at once for the first time, and how often: a look whether something waits for longer than it has to.
const FIRST_LOOKS_AT_ONCE: i64 = 16;
const FIRST_LOOKS_EVERY_MS: i64 = 50;
/// Attempts that one pass begins. Where many may begin at once, those under way, requests and what was just written have their turn in between.
const BEGUN_MAX: usize = 16;

impl Dispatcher {
    pub(super) async fn work(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let told = shutdown.clone();
        while !*shutdown.borrow_and_update() {
            let rung = self.app.bell.notified();
            tokio::pin!(rung);
            // Before the read, so that no ring between the read and the wait is lost.
            rung.as_mut().enable();
            let (wait, is_cut) = match self.pass(self.app.clock.now(), &|| *told.borrow()).await {
                Ok(true) => (Duration::ZERO, true),
                Ok(false) => (self.wait().await, false),
                Err(error) => {
                    tracing::warn!(%error, "What is due could not be read; callbacks are tried again shortly");
                    (STORE_PAUSE, false)
                }
            };
            self.connector.sweep();
            if is_cut {
                yield_now().await;
            }
            tokio::select! {
                biased;
                changed = shutdown.changed() => if changed.is_err() { break },
                () = rung => self.hold_notes.notify_one(),
                () = self.landed.notified() => {}
                () = ready(()), if is_cut => {}
                () = sleep(wait) => {}
            }
        }
        self.drain().await;
    }

    /// Looks for applications that have something due: where somebody says so, and in all lanes every few seconds, also where others say so all the
    /// time.
    pub(super) async fn look_always(&self) {
        let longest = if self.app.store.is_shared() { self.settings.look_every } else { LOOK_EVERY };
        let mut all_at = Instant::now() + longest;
        let mut warning = RepeatedWarning::default();
        loop {
            let lanes = std::mem::take(&mut *self.looks.lock().unwrap_or_else(PoisonError::into_inner));
            if let Err(error) = self.look_for(lanes).await {
                if let Some(failed) = warning.due(SAID_EVERY, Instant::now().into_std()) {
                    tracing::warn!(%error, failed, "Who has something due could not be read; it is tried again shortly");
                }
                self.look_in(LaneSet::ALL);
                sleep(STORE_PAUSE).await;
            }
            let _rung = timeout_at(all_at, self.look.notified()).await;
            if Instant::now() >= all_at {
                all_at = Instant::now() + longest;
                self.look_in(LaneSet::ALL);
                self.hold_notes.notify_one();
            }
        }
    }

    /// Has these lanes looked through.
    pub(super) fn look_in(&self, lanes: LaneSet) {
        if !lanes.is_empty() {
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            *looks = looks.union(lanes);
            self.look.notify_one();
        }
    }

    /// Notes when the applications in these lanes have something due.
    pub(super) async fn look_for(&self, lanes: LaneSet) -> Result<(), StoreError> {
        let lanes = lanes.intersection(self.leases.open(Instant::now()));
        let (mut after, mut first_looks) = (None, 0);
        while !lanes.is_empty() {
            let owed = self.app.store.owed(lanes, Cursor { after, limit: OWED_PAGE }).await?;
            let now = self.app.clock.now();
            let mut pass_state = self.pass_state.lock().await;
            for row in &owed {
                let mut at = due(row.due_at, now);
                // Who had the lane before may have let an event wait behind another for longer than this node does. One after the other: all of them
                // at once would keep what is due waiting.
                if !pass_state.looked.contains(Lane::of(row.application)) {
                    at = at.min(now.plus_ms(first_looks / FIRST_LOOKS_AT_ONCE * FIRST_LOOKS_EVERY_MS));
                    first_looks += 1;
                }
                pass_state.lineup.note(row.tenant, row.application, at);
            }
            drop(pass_state);
            match owed.last() {
                Some(last) if owed.len() >= OWED_PAGE as usize => after = Some(last.application),
                Some(_) | None => break,
            }
        }
        let mut pass_state = self.pass_state.lock().await;
        pass_state.looked = pass_state.looked.union(lanes.intersection(self.leases.open(Instant::now())));
        drop(pass_state);
        self.landed.notify_one();
        Ok(())
    }

    /// Lands what has ended, reads what is owed where that is called for, and begins what may begin, unless it is to stop. True: it has begun as
    /// much as a pass may, and there may be more.
    pub(super) async fn pass(
        self: &Arc<Self>,
        now: UnixMillis,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, StoreError> {
        let mut pass_state = self.pass_state.lock().await;
        self.open(&mut pass_state);
        let rung = self.app.bell.take();
        self.look_in(rung.lanes.intersection(pass_state.open));
        for (application, tenant) in rung.applications {
            if pass_state.open.contains(Lane::of(application)) {
                pass_state.lineup.note(tenant, application, now);
            }
        }
        self.land(&mut pass_state, now);
        self.take_written(&mut pass_state, now);
        let (mut read, mut begun) = (Ok(()), 0);
        // What has ended is handed over also where the store cannot be read.
        while read.is_ok() && begun < BEGUN_MAX {
            self.land(&mut pass_state, now);
            if must_stop() || pass_state.open.is_empty() {
                break;
            }
            match pass_state.lineup.next(now) {
                None => break,
                Some(Next::Begin(event, waited)) => {
                    self.begin(&mut pass_state, *event, waited);
                    begun += 1;
                }
                Some(Next::Read(portion)) => read = self.read(&mut pass_state, portion, now).await,
            }
        }
        let under_way = pass_state.lineup.under_way();
        self.hand_over(&mut pass_state, under_way);
        self.meters.stand(pass_state.lineup.under_way(), pass_state.lineup.open_endpoints());
        read.map(|()| begun == BEGUN_MAX)
    }

    /// Sees which lanes this node may deliver for by now. None while the store takes no changes: what cannot be recorded would be sent again and
    /// again.
    fn open(&self, pass_state: &mut PassState) {
        let is_shut = self.app.bell.is_paused() || !self.app.trouble.takes_changes();
        let (held, terms) = self.leases.open_under(Instant::now());
        let before = std::mem::replace(&mut pass_state.terms, terms);
        // What was found under the terms before may have been delivered by whoever had these lanes in between.
        let again = terms.taken_again_since(&before);
        pass_state.looked = pass_state.looked.intersection(held).difference(again);
        let open = if is_shut { LaneSet::NONE } else { held };
        let kept = std::mem::replace(&mut pass_state.open, open).difference(again);
        if kept != open || !again.is_empty() {
            pass_state.lineup.keep_lanes(open.difference(again));
            self.look_in(open.difference(kept));
        }
        if before != terms {
            pass_state.lineup.has_lanes(terms.lanes().difference(again));
            pass_state.lineup.has_lanes(terms.lanes());
        }
    }

    fn begin(self: &Arc<Self>, pass_state: &mut PassState, event: EventRow, waited: Waited) {
        let flight = Flight::of(&event);
        let lane = Lane::of(event.application);
        let Some(fence) = self.leases.begin_under(lane, pass_state.terms.of(lane), Instant::now()) else {
            // The lane is not ours any more: whoever has it delivers. Where its lease is renewed by the next pass, it is looked through then.
            pass_state.open = pass_state.open.without(lane);
            pass_state.looked = pass_state.looked.without(lane);
            pass_state.lineup.land(&flight);
            pass_state.lineup.keep_lanes(pass_state.open);
            return;
        };
        // Large, and handed on several times until it runs.
        pass_state.tasks.spawn(Box::pin(self.clone().handle(event, fence, waited)));
    }

    /// Takes what was written a moment ago and handed over. Where that cannot go next, what is owed is read.
    fn take_written(&self, pass_state: &mut PassState, now: UnixMillis) {
        let Written { events, is_old } = self.app.bell.written();
        for event in events {
            let (tenant, application) = (event.tenant, event.application);
            if !pass_state.open.contains(Lane::of(application)) {
                // Whoever has its lane by now is told.
                self.app.ring(tenant, application);
            } else if is_old || !pass_state.lineup.take_new(event) {
                pass_state.lineup.note(tenant, application, now);
            }
        }
    }

    /// Reads what these applications have waiting.
    async fn read(&self, pass_state: &mut PassState, portion: Portion, now: UnixMillis) -> Result<(), StoreError> {
        let (of, limit, terms) = (portion.of.clone(), portion.limit, pass_state.terms);
        let Pending { mut rows, unreadable } = match self.app.store.pending_of(portion).await {
            Ok(pending) => pending,
            Err(error) => return self.not_read(pass_state, &of, error),
        };
        let found = rows.iter().map(|row| row.no).chain(unreadable.iter().map(|one| one.event));
        self.app.bell.found(found);
        for row in &mut rows {
            // Made to wait by a clock that was ahead: whether it still has to, and how long, is decided anew.
            let is_longer = row.due_at > Some(now.plus_ms(self.settings.order_hold_ms));
            if row.behind.is_some() && is_longer && is_too_far_ahead(row.created_at, now) {
                (row.behind, row.due_at) = (None, Some(now));
            }
            let patience = self.patience(row, now);
            // One that waits behind another is looked at when that one is over, or when its patience ends: by the `order_hold` of today, which may be
            // less than that of the day when it began to wait.
            let by_now = |at: UnixMillis| if row.behind.is_some() { at.min(patience) } else { due(at, now) };
            row.due_at = row.due_at.map(by_now);
        }
        let mut last = None;
        for row in rows.iter().filter(|row| last.replace(row.application) != Some(row.application)) {
            // What cannot be read now is told where the event is handled.
            if let Ok(Some(known)) = self.app.known_application(&row.client_id).await {
                self.take_up(&mut pass_state.lineup, &known);
            }
        }
        // It may have taken long: what was read of lanes that were lost meanwhile is another node's.
        self.open(pass_state);
        let is_ours = |lane: Lane| pass_state.open.contains(lane) && pass_state.terms.of(lane) == terms.of(lane);
        rows.retain(|row| is_ours(Lane::of(row.application)));
        pass_state.lineup.offer(&of, rows, limit, now);
        let until = now.plus_ms(FAULT_MS);
        for one in &unreadable {
            pass_state.lineup.leave_out(one, until, now);
        }
        for some in unreadable.chunk_by(|one, next| one.application == next.application) {
            tell_unreadable(some);
        }
        Ok(())
    }

    /// A read failed, and may have taken long to. Where that is about one application alone, the others go on.
    fn not_read(
        &self,
        pass_state: &mut PassState,
        of: &[(TenantNo, ApplicationNo)],
        error: StoreError,
    ) -> Result<(), StoreError> {
        match (pass_state.lineup.unread(of, self.app.clock.now()), of) {
            (Some(rest_ms), [(_, application)]) => {
                let (application, rest_s) = (application.0, rest_ms / 1_000);
                tracing::error!(
                    %error, application, rest_s,
                    "What an application has waiting cannot be read: its callbacks wait, and those of others go on"
                );
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Takes note of what has ended. After it, what is read from the store shows these attempts.
    pub(super) fn land(&self, pass_state: &mut PassState, now: UnixMillis) {
        while let Some(ended) = pass_state.tasks.try_join_next() {
            if ended.is_err_and(|e| e.is_panic()) {
                tracing::error!("Handling a callback panicked; it is tried again in a minute");
            }
        }
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        for (flight, ended) in ended {
            let lineup = &mut pass_state.lineup;
            if !matches!(ended, Ended::Made(_)) {
                self.leases.land(Lane::of(flight.application));
            }
            match ended {
                Ended::Made(record) => {
                    if record.is_delivered()
                        && let Some((client_id, turned)) = lineup.answered(&flight, now)
                    {
                        tell_turned(&client_id, turned, now);
                    }
                    pass_state.records.push(*record, Instant::now());
                }
                Ended::Attempted { next, sign, outcome, was_moved } => {
                    lineup.came(&flight, now, outcome);
                    if was_moved {
                        lineup.rest_moved(&flight, now.plus_ms(RECHECK_MS));
                    }
                    if let Some((client_id, turned)) = lineup.made(&flight, sign, next, now) {
                        tell_turned(&client_id, turned, now);
                    }
                }
                Ended::Behind { event } => lineup.waits(&flight, event, now),
                Ended::Waits { until } => lineup.park(&flight, until),
                Ended::ApplicationWaits { until } => lineup.park_application(&flight, until),
                Ended::Held { last } => {
                    if let Some(outcome) = last {
                        lineup.came(&flight, now, outcome);
                    }
                    lineup.drop_ready(flight.application);
                    lineup.give_up(flight.application);
                    lineup.land(&flight);
                }
                Ended::Again => {
                    lineup.note(flight.tenant, flight.application, now);
                    lineup.land(&flight);
                }
            }
        }
    }

    /// Has recorded what has waited for long enough, or for nothing any more. `under_way`: attempts whose records may come soon.
    pub(super) fn hand_over(self: &Arc<Self>, pass_state: &mut PassState, under_way: usize) {
        if let Some(records) = pass_state.records.due(under_way, Instant::now()) {
            pass_state.tasks.spawn(self.clone().note(records));
        }
    }

    /// How long nothing is to be done, unless somebody rings or an attempt lands.
    async fn wait(&self) -> Duration {
        let now = self.app.clock.now();
        let pass_state = self.pass_state.lock().await;
        let wait = |at: UnixMillis| Duration::from_millis(u64::try_from(at.0 - now.0).unwrap_or(0));
        // Without a lane nothing may begin, whatever is due.
        let first = pass_state.lineup.first_at().filter(|_| !pass_state.open.is_empty());
        let next = first.map_or(LOOK_EVERY, wait);
        let due = pass_state.records.due_at().map(|at| at.saturating_duration_since(Instant::now()));
        next.min(due.unwrap_or(next)).clamp(WAIT_MIN, LOOK_EVERY)
    }
}

/// One line for an application, and again when what was left out is looked at again.
fn tell_unreadable(some: &[UnreadableEvent]) {
    if let [first, ..] = some {
        tracing::error!(
            error = %first.error,
            application = first.application.0,
            events = some.len(),
            "A callback cannot be read back: it waits, and so do later ones of its bizId for their while; others go on"
        );
    }
}

#[cfg(test)]
#[path = "round_tests.rs"]
mod tests;
