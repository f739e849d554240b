//! What writes of events, deliveries and attempts do to the model.

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::time::UnixMillis;

use super::state::{State, guard, parent};
use crate::attempt_log::AttemptBytes;
use crate::batch::{Committed, Conflict, DELIVERIES_TURNED_MAX, EventNumbers, Key, Write};
use crate::contract::{AttemptRow, CommitError, EventRow};

impl State {
    pub(super) fn enqueue(&mut self, row: &EventRow, committed: &mut Committed) -> Result<(), CommitError> {
        let taken = self.events.values().any(|e| e.no == row.no || e.event_id == row.event_id);
        guard(!taken, || Conflict::Taken(Key::Event(row.event_id)))?;
        let of_tenant = self.applications.get(&row.application).is_some_and(|a| a.tenant == row.tenant);
        parent(of_tenant, "an application")?;
        let next = |last: &mut i64| {
            *last += 1;
            *last
        };
        let seq = next(self.seqs.entry(row.application).or_default());
        let sequence = next(self.sequences.entry((row.application, row.biz_id.clone())).or_default());
        self.events.insert(row.no, EventRow { seq, sequence, ..row.clone() });
        committed.events.push(EventNumbers { seq, sequence });
        Ok(())
    }

    pub(super) fn record_attempt(
        &mut self,
        tenant: TenantNo,
        attempt: &AttemptRow,
        bytes: Option<&AttemptBytes>,
        state: DeliveryState,
        due_at: Option<UnixMillis>,
    ) -> Result<(), CommitError> {
        let moved = || Conflict::Moved(Key::Delivery(attempt.event));
        let Some(event) = self.events.get_mut(&attempt.event) else { return Err(CommitError::Conflict(moved())) };
        guard(event.tenant == tenant && event.attempts == attempt.attempt - 1, moved)?;
        event.attempts = attempt.attempt;
        event.state = state;
        event.due_at = due_at;
        event.behind = None;
        event.by_hand &= !state.is_over();
        if state.is_over() {
            for follower in self.events.values_mut().filter(|e| e.behind == Some(attempt.event)) {
                follower.behind = None;
                follower.due_at = follower.due_at.map(|due_at| due_at.min(attempt.at));
            }
        }
        self.attempts.entry(attempt.event).or_default().push(attempt.clone());
        self.keep_bytes(tenant, attempt, bytes);
        Ok(())
    }

    pub(super) fn turn(
        &mut self,
        of: (TenantNo, ApplicationNo),
        from: DeliveryState,
        to: DeliveryState,
        due_at: Option<UnixMillis>,
    ) {
        let mut left = self.events.values_mut().filter(|e| (e.tenant, e.application) == of && e.state == from);
        for event in left.by_ref().take(DELIVERIES_TURNED_MAX) {
            event.state = to;
            event.due_at = due_at;
            event.behind = None;
        }
        if left.next().is_none() {
            self.turning.remove(&of);
        }
    }

    pub(super) fn send_again(&mut self, write: &Write) -> Result<(), CommitError> {
        match write {
            Write::Redeliver { tenant, event, attempts, due_at } => self.redeliver(*tenant, *event, *attempts, *due_at),
            Write::SendNow { tenant, event, attempts, was_due, due_at } => {
                self.send_now((*tenant, *event), (*attempts, *was_due), *due_at)
            }
            _ => Ok(()),
        }
    }

    fn redeliver(
        &mut self,
        tenant: TenantNo,
        event: EventNo,
        attempts: i64,
        due_at: UnixMillis,
    ) -> Result<(), CommitError> {
        let moved = || Conflict::Moved(Key::Delivery(event));
        let Some(stored) = self.events.get_mut(&event) else { return Err(CommitError::Conflict(moved())) };
        let may = match stored.state {
            DeliveryState::Delivered | DeliveryState::Dead => true,
            DeliveryState::Pending | DeliveryState::Held => false,
        };
        guard(may && (stored.tenant, stored.attempts) == (tenant, attempts), moved)?;
        stored.state = DeliveryState::Pending;
        stored.due_at = Some(due_at);
        stored.by_hand = true;
        Ok(())
    }

    fn send_now(
        &mut self,
        (tenant, event): (TenantNo, EventNo),
        (attempts, was_due): (i64, UnixMillis),
        due_at: UnixMillis,
    ) -> Result<(), CommitError> {
        let found = self.events.get_mut(&event);
        let stands = (tenant, DeliveryState::Pending, attempts, Some(was_due), None);
        let pending = found.filter(|e| (e.tenant, e.state, e.attempts, e.due_at, e.behind) == stands);
        let pending = pending.ok_or(CommitError::Conflict(Conflict::Moved(Key::Delivery(event))))?;
        pending.due_at = pending.due_at.map(|at| at.min(due_at));
        Ok(())
    }

    pub(super) fn defer(
        &mut self,
        tenant: TenantNo,
        event: EventNo,
        behind: EventNo,
        until: UnixMillis,
    ) -> Result<(), CommitError> {
        let stands = |no| self.events.get(&no).filter(|e| e.tenant == tenant).map(|e| e.state);
        let is_open = matches!(stands(behind), Some(DeliveryState::Pending | DeliveryState::Held));
        guard(is_open, || Conflict::Moved(Key::Delivery(behind)))?;
        guard(stands(event) == Some(DeliveryState::Pending), || Conflict::Moved(Key::Delivery(event)))?;
        if let Some(event) = self.events.get_mut(&event) {
            (event.behind, event.due_at) = (Some(behind), Some(until));
        }
        Ok(())
    }
}
