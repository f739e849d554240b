//! Bytes of attempts, and what is forgotten by age.

use std::collections::BTreeSet;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::time::UnixMillis;

use super::state::State;
use super::{ModelStore, page};
use crate::attempt_log::{
    AttemptBytes, BYTES_FORGOTTEN_MAX, BytesPlace, EVENTS_FORGOTTEN_MAX, Forgotten, OldBytes, OldEvents, OldRows,
    OldStretch, TooOld, stretch_of_bytes,
};
use crate::batch::Write;
use crate::contract::{Asker, AttemptRow, Cursor, EventRow, StoreError};

fn small(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn at_most(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

const fn is_held(event: &EventRow) -> bool {
    matches!(event.state, DeliveryState::Held)
}

impl OldRows for ModelStore {
    async fn old_bytes_of(
        &self,
        _asker: Asker,
        tenant: TenantNo,
        begun_before: UnixMillis,
        cursor: Cursor<BytesPlace>,
    ) -> Result<OldStretch<BytesPlace>, StoreError> {
        let state = self.state();
        let of = state.bytes_before(tenant, begun_before).into_iter().filter_map(|(at, key @ (event, attempt))| {
            let (_, _, bytes) = state.bytes.get(&key)?;
            Some((BytesPlace { at, event, attempt }, small(size(bytes))))
        });
        let rest = of.filter(|(place, _)| cursor.after.is_none_or(|after| *place > after));
        Ok(stretch_of_bytes(&page(rest, cursor.limit)))
    }

    async fn old_events_of(
        &self,
        _asker: Asker,
        of: (TenantNo, ApplicationNo),
        old: TooOld,
        cursor: Cursor,
    ) -> Result<OldStretch<i64>, StoreError> {
        let state = self.state();
        let old = state.too_old(of, old, cursor.after, at_most(cursor.limit));
        Ok(OldStretch {
            rows: small(old.len()),
            held: small(old.iter().filter(|e| is_held(e)).count()),
            attempts: old.iter().map(|e| e.attempts).sum(),
            bytes: small(old.iter().map(|e| e.body.len() + e.data.len()).sum()),
            last: old.last().map(|e| e.seq),
        })
    }
}

fn size(of: &AttemptBytes) -> usize {
    of.sent_head.len() + of.answer_head.len() + of.answer_body.len()
}

impl State {
    pub(super) fn keep_bytes(&mut self, tenant: TenantNo, attempt: &AttemptRow, bytes: Option<&AttemptBytes>) {
        if let Some(bytes) = bytes {
            self.bytes.insert((attempt.event, attempt.attempt), (tenant, attempt.at, bytes.clone()));
        }
    }

    /// Keys of what is old, oldest first.
    fn bytes_before(&self, tenant: TenantNo, before: UnixMillis) -> Vec<(UnixMillis, (EventNo, i64))> {
        let of = self.bytes.iter().filter(|(_, (of, at, _))| *of == tenant && *at < before);
        let mut old: Vec<_> = of.map(|(key, (_, at, _))| (*at, *key)).collect();
        old.sort_unstable();
        old
    }

    /// One of the writes that forget attempts or events by age.
    pub(super) fn forget(&mut self, write: &Write) -> Forgotten {
        if let Write::ForgetBytes { tenant, begun_before } = write {
            self.forget_bytes(*tenant, *begun_before);
        }
        if let Write::ForgetEvents { tenant, application, old } = write {
            return self.forget_events(*tenant, *application, *old);
        }
        Forgotten::NONE
    }

    fn forget_bytes(&mut self, tenant: TenantNo, before: UnixMillis) {
        for (_, key) in self.bytes_before(tenant, before).into_iter().take(BYTES_FORGOTTEN_MAX) {
            self.bytes.remove(&key);
        }
    }

    /// Of the events behind a `seq`, the first `most` that go by age: up to the first that stays, and never the last of all.
    fn too_old(
        &self,
        of: (TenantNo, ApplicationNo),
        TooOld { made_before, held_before }: TooOld,
        after: Option<i64>,
        most: usize,
    ) -> Vec<&EventRow> {
        let own = self.events.values().filter(|e| (e.tenant, e.application) == of);
        let mut own: Vec<&EventRow> = own.filter(|e| after.is_none_or(|after| e.seq > after)).collect();
        own.sort_by_key(|e| e.seq);
        own.truncate(most.saturating_add(1));
        own.pop();
        // Those that a redelivery has yet to come to are kept for it.
        let running = self
            .redeliveries
            .values()
            .filter(|r| (r.sought.tenant, r.sought.application) == of && r.ended_at.is_none());
        let reached = running.map(|r| r.cursor_seq).min().unwrap_or(i64::MAX);
        let is_turning = self.turning.contains_key(&of);
        let goes = |e: &&EventRow| {
            let by_state = match e.state {
                DeliveryState::Delivered | DeliveryState::Dead => true,
                DeliveryState::Held => {
                    let attempts = self.attempts.get(&e.no).into_iter().flatten();
                    let last = attempts.map(|a| a.at).max().max(Some(e.created_at));
                    last < Some(held_before) && !e.by_hand && !is_turning
                }
                DeliveryState::Pending => false,
            };
            by_state && e.created_at < made_before && e.seq <= reached
        };
        own.into_iter().take_while(goes).collect()
    }

    fn forget_events(&mut self, tenant: TenantNo, application: ApplicationNo, old: TooOld) -> Forgotten {
        let old = self.too_old((tenant, application), old, None, EVENTS_FORGOTTEN_MAX);
        let forgotten = Forgotten { events: old.len(), held: old.iter().filter(|e| is_held(e)).count() };
        for event in old.iter().map(|e| e.no).collect::<Vec<_>>() {
            self.events.remove(&event);
            self.attempts.remove(&event);
            self.redelivered.remove(&event);
            self.bytes.retain(|(of, _), _| *of != event);
        }
        forgotten
    }

    pub(super) fn old_bytes(&self, before: UnixMillis, most: u32, cursor: &Cursor<TenantNo>) -> Vec<OldBytes> {
        let most = at_most(most);
        let tenants: BTreeSet<TenantNo> = self.bytes.values().map(|(tenant, _, _)| *tenant).collect();
        let of = |tenant: TenantNo| {
            let old = self.bytes_before(tenant, before);
            let counted = old.iter().take(most).filter_map(|(_, key)| self.bytes.get(key));
            let bytes = counted.map(|(_, _, bytes)| size(bytes)).sum();
            OldBytes { tenant, rows: small(old.len().min(most)), bytes: small(bytes) }
        };
        let rest = tenants.into_iter().filter(|tenant| cursor.after.is_none_or(|after| *tenant > after));
        page(rest.map(of).filter(|old| old.rows > 0), cursor.limit)
    }

    pub(super) fn old_events(
        &self,
        too_old: TooOld,
        most: u32,
        cursor: &Cursor<(TenantNo, ApplicationNo)>,
    ) -> Vec<OldEvents> {
        let most = at_most(most);
        let all: BTreeSet<_> = self.events.values().map(|e| (e.tenant, e.application)).collect();
        let of = |(tenant, application)| {
            let old = self.too_old((tenant, application), too_old, None, most);
            OldEvents {
                tenant,
                application,
                events: small(old.len()),
                held: small(old.iter().filter(|e| is_held(e)).count()),
                attempts: old.iter().map(|e| e.attempts).sum(),
                bytes: small(old.iter().map(|e| e.body.len() + e.data.len()).sum()),
            }
        };
        let rest = all.into_iter().filter(|place| cursor.after.is_none_or(|after| *place > after));
        page(rest.map(of), cursor.limit)
    }
}
