//! What redeliveries of many events do to the model, and how their events are found.

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::EventNo;

use super::page;
use super::state::{State, guard};
use crate::batch::{Conflict, Key};
use crate::contract::{CommitError, EventRow};
use crate::redelivery::{
    Counted, DiedOf, Fared, Redeliveries, RedeliveryRow, RedeliveryState, RedeliveryWrite, Span, Walked,
};

impl State {
    pub(super) fn redelivery(&mut self, write: &RedeliveryWrite) -> Result<(), CommitError> {
        let (tenant, application) = write.of();
        let moved = || CommitError::Conflict(Conflict::Moved(Key::Redelivery(application)));
        let of = |row: &RedeliveryRow| (row.sought.tenant, row.sought.application) == (tenant, application);
        let runs = |row: &RedeliveryRow| row.state == RedeliveryState::Running;
        match write {
            RedeliveryWrite::Start(row) => {
                let is_there = self.applications.get(&application).is_some_and(|a| a.tenant == tenant);
                let taken = self.redeliveries.values().any(|other| other.id == row.id || (of(other) && runs(other)));
                guard(is_there && !taken, || Conflict::Taken(Key::Redelivery(application)))?;
                let through_seq = self.seqs.get(&application).copied().unwrap_or(0);
                self.redeliveries.insert(row.id, RedeliveryRow { through_seq, ..row.clone() });
            }
            RedeliveryWrite::Advance { id, was, from, to, events, due_at, ended_at, .. } => {
                let found = self.redeliveries.get_mut(id).filter(|row| of(row) && runs(row) && row.cursor_seq == *from);
                let row = found.ok_or_else(moved)?;
                row.cursor_seq = *to;
                row.ended_at = *ended_at;
                row.state = if ended_at.is_some() { RedeliveryState::Done } else { row.state };
                for no in events {
                    let event = self.events.get_mut(no);
                    let own = |e: &&mut EventRow| (e.tenant, e.application, e.state) == (tenant, application, *was);
                    let Some(event) = event.filter(own) else { continue };
                    (event.state, event.due_at, event.by_hand) = (DeliveryState::Pending, Some(*due_at), true);
                    self.redelivered.insert(*no, *id);
                    row.done += 1;
                }
            }
            RedeliveryWrite::Stop { id, from, at, .. } => {
                let found = self.redeliveries.get_mut(id).filter(|row| of(row) && runs(row) && row.cursor_seq == *from);
                let row = found.ok_or_else(moved)?;
                (row.state, row.ended_at) = (RedeliveryState::Stopped, Some(*at));
            }
        }
        Ok(())
    }

    /// The events of a stretch, in order.
    fn stretch(&self, span: &Span) -> Vec<&EventRow> {
        let own = |e: &&EventRow| (e.tenant, e.application) == (span.of.tenant, span.of.application);
        let inside = |e: &&EventRow| e.seq > span.after && e.seq <= span.through;
        let mut events: Vec<&EventRow> = self.events.values().filter(own).filter(inside).collect();
        events.sort_by_key(|e| e.seq);
        events
    }

    fn is_meant(&self, span: &Span, event: &EventRow) -> bool {
        let died_of = span.of.died_of;
        let last = || self.attempts.get(&event.no)?.iter().find(|attempt| attempt.attempt == event.attempts);
        let came_to = || last().is_some_and(|last| died_of.is(last.outcome, last.http_status));
        span.of.is(event) && (died_of == DiedOf::default() || came_to())
    }

    pub(super) fn sought(&self, span: &Span) -> Vec<(EventNo, i64)> {
        let found = self.stretch(span).into_iter().filter(|e| self.is_meant(span, e)).map(|e| (e.no, e.seq));
        page(found, span.most)
    }

    pub(super) fn count_sought(&self, span: &Span) -> Counted {
        let looked = page(self.stretch(span).into_iter(), span.most);
        let found: Vec<&&EventRow> = looked.iter().filter(|e| self.is_meant(span, e)).collect();
        Counted {
            looked: i64::try_from(looked.len()).unwrap_or(i64::MAX),
            found: i64::try_from(found.len()).unwrap_or(i64::MAX),
            oldest_at: found.iter().map(|e| e.created_at).min(),
            first: found.first().map(|e| e.seq),
            last: looked.last().map(|e| e.seq),
        }
    }

    pub(super) fn fared(&self, walked: &Walked) -> Fared {
        let own = |e: &&EventRow| (e.tenant, e.application) == (walked.tenant, walked.application);
        let inside = |e: &&EventRow| e.seq > walked.after && e.seq <= walked.through;
        let mut events: Vec<&EventRow> = self.events.values().filter(own).filter(inside).collect();
        events.sort_by_key(|e| e.seq);
        let looked = page(events.into_iter(), walked.most);
        let stand = |is_one: fn(DeliveryState) -> bool| {
            let of_it = |e: &&&EventRow| self.redelivered.get(&e.no) == Some(&walked.id) && is_one(e.state);
            i64::try_from(looked.iter().filter(of_it).count()).unwrap_or(i64::MAX)
        };
        Fared {
            looked: i64::try_from(looked.len()).unwrap_or(i64::MAX),
            last: looked.last().map(|e| e.seq),
            waiting: stand(|state| !state.is_over()),
            delivered: stand(|state| state == DeliveryState::Delivered),
            dead: stand(|state| state == DeliveryState::Dead),
        }
    }

    pub(super) fn redeliveries(&self, which: &Redeliveries, limit: u32) -> Vec<RedeliveryRow> {
        let all = self.redeliveries.values();
        match which {
            Redeliveries::One(id) => page(all.filter(|row| row.id == *id).cloned(), limit),
            Redeliveries::All { client_id, after } => {
                let asked = |row: &&RedeliveryRow| {
                    client_id.as_ref().is_none_or(|id| row.client_id == *id) && after.is_none_or(|after| row.id < after)
                };
                page(all.rev().filter(asked).cloned(), limit)
            }
            Redeliveries::Running { after, .. } => {
                let place = |row: &RedeliveryRow| (row.sought.tenant, row.sought.application);
                let runs = |row: &&RedeliveryRow| {
                    row.state == RedeliveryState::Running && after.is_none_or(|after| place(row) > after)
                };
                let mut found: Vec<RedeliveryRow> = all.filter(runs).cloned().collect();
                found.sort_by_key(place);
                page(found.into_iter(), limit)
            }
        }
    }
}
