//! The store in memory: simple enough to be right by reading it. The oracle of the contract's tests.
//!
//! Invariant: a batch works on a copy of everything, which replaces the original only when every guard held.

mod attempt_log;
mod audit_gaps;
mod backlog;
mod conversion;
mod deliveries;
mod lost_answers;
mod paid_orders;
mod payment_orders;
mod public_ids;
mod redeliveries;
mod state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use tokio::sync::broadcast;

use crate::attempt_log::{AttemptBytes, OldBytes, OldEvents, TooOld};
use crate::batch::{Batch, Committed};
use crate::chain::{ChainHead, ChainKey, ChainLine, ChainPlace};
use crate::check::well_formed;
use crate::contract::{
    ApplicationFilter, ApplicationView, Asker, AttemptRow, AuditKey, AuditRow, ClaimKey, Claimed, CommitError, Cursor,
    EventFilter, EventRow, IdempotencyRow, MerchantKind, MerchantRow, OwedRow, Pending, Portion, RuleFilter, RulePage,
    SealedSecret, SecretRow, Store, StoreError, TokenRow, TurningRow,
};
use crate::event_list::EventPage;
use crate::nodes::{DirectoryChanges, NodeId, NodeRow, Signal, Tend, Tended};
use crate::own_events::OwnEventsPage;
use crate::redelivery::{Counted, Fared, Redeliveries, RedeliveryRow, Span, Walked};
use crate::rule_page::RulePageBuilder;
use crate::words::of_audit_tenant;
use lost_answers::Losses;
use state::{State, nonce_key};

pub use lost_answers::Lost;

/// Keeps everything in memory and forgets it when it is dropped.
#[derive(Debug, Default)]
pub struct ModelStore {
    state: Mutex<Box<State>>,
    application_reads: AtomicU64,
    losses: Losses,
}

impl ModelStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, Box<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of a batch or, where a guard does not hold, none of it.
    fn apply(&self, batch: &Batch) -> Result<Committed, CommitError> {
        let mut state = self.state();
        let mut next = state.clone();
        let mut committed = Committed::default();
        for write in &batch.0 {
            next.apply(write, &mut committed)?;
        }
        *state = next;
        Ok(committed)
    }

    /// How often an application, or its revision, was asked for by a ClientId: what a refusal may cost has a bound, and tests count.
    pub fn application_reads(&self) -> u64 {
        self.application_reads.load(Ordering::Relaxed)
    }
}

/// At most `limit` of `rows`.
fn page<T>(rows: impl Iterator<Item = T>, limit: u32) -> Vec<T> {
    rows.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect()
}

impl Store for ModelStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        well_formed(&batch)?;
        self.commit_or_lose(&batch)
    }

    async fn commit_each(&self, batches: Vec<Batch>) -> Vec<Result<Committed, CommitError>> {
        let mut answers = Vec::with_capacity(batches.len());
        for batch in batches {
            answers.push(self.commit(batch).await);
        }
        answers
    }

    async fn reserve(&self, claim: &ClaimKey) -> Result<Claimed, StoreError> {
        let mut state = self.state();
        if claim.stamped_at.0 <= state.horizon {
            return Ok(Claimed::TooOld);
        }
        if state.nonces.contains_key(&nonce_key(claim)) {
            return Ok(Claimed::Used);
        }
        state.nonces.insert(nonce_key(claim), (claim.stamped_at, false));
        Ok(Claimed::Fresh)
    }

    async fn settle(&self, claim: ClaimKey) -> Result<Claimed, StoreError> {
        let mut state = self.state();
        if claim.stamped_at.0 <= state.horizon {
            return Ok(Claimed::TooOld);
        }
        if state.nonces.get(&nonce_key(&claim)).is_some_and(|(_, used)| *used) {
            return Ok(Claimed::Used);
        }
        state.nonces.insert(nonce_key(&claim), (claim.stamped_at, true));
        Ok(Claimed::Fresh)
    }

    fn first_stamped(&self, claim: &ClaimKey) -> Option<UnixMillis> {
        self.state().nonces.get(&nonce_key(claim)).map(|(stamped_at, _)| *stamped_at)
    }

    fn release(&self, claim: &ClaimKey) {
        let mut state = self.state();
        if state.nonces.get(&nonce_key(claim)) == Some(&(claim.stamped_at, false)) {
            state.nonces.remove(&nonce_key(claim));
        }
    }

    async fn purge_nonces(&self, horizon: UnixMillis) -> Result<(), StoreError> {
        let mut state = self.state();
        state.horizon = state.horizon.max(horizon.0);
        let kept_after = state.horizon;
        state.nonces.retain(|_, (stamped_at, _)| stamped_at.0 > kept_after);
        Ok(())
    }

    async fn application(&self, client_id: &str) -> Result<Option<ApplicationView>, StoreError> {
        self.application_reads.fetch_add(1, Ordering::Relaxed);
        let state = self.state();
        state.applications.values().find(|a| a.client_id == client_id).map(|a| state.view(a)).transpose()
    }

    async fn application_revision(&self, client_id: &str) -> Result<Option<i64>, StoreError> {
        self.application_reads.fetch_add(1, Ordering::Relaxed);
        Ok(self.state().applications.values().find(|a| a.client_id == client_id).map(|a| a.revision))
    }

    async fn applications(
        &self,
        _asker: Asker,
        of: ApplicationFilter,
        cursor: Cursor,
    ) -> Result<Vec<ApplicationView>, StoreError> {
        let state = self.state();
        let rows = state.applications.values().filter(|a| {
            of.merchant.is_none_or(|m| a.merchant == m)
                && of.callback_enabled.is_none_or(|enabled| a.callback_enabled == enabled)
                && cursor.after.is_none_or(|after| a.no.0 > after)
        });
        page(rows, cursor.limit).into_iter().map(|a| state.view(a)).collect()
    }

    async fn secrets_not_under(
        &self,
        key_id: &str,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        let state = self.state();
        let rows = state.secrets.values().filter(|row| row.key_id != key_id);
        let rows = rows.filter(|row| after.as_ref().is_none_or(|after| row.secret_id > *after));
        let with_owner = |row: &SecretRow| {
            let owner = state.applications.get(&row.application)?;
            Some(SealedSecret { client_id: owner.client_id.clone(), row: row.clone() })
        };
        Ok(page(rows.filter_map(with_owner), limit))
    }

    async fn merchant(&self, merchant_id: &str) -> Result<Option<MerchantRow>, StoreError> {
        Ok(self.state().merchants.values().find(|m| m.merchant_id == merchant_id).cloned())
    }

    async fn merchants(
        &self,
        tenant: Option<TenantNo>,
        kind: Option<MerchantKind>,
        cursor: Cursor,
    ) -> Result<Vec<MerchantRow>, StoreError> {
        let state = self.state();
        let rows = state.merchants.values().filter(|m| {
            tenant.is_none_or(|t| m.tenant == t)
                && kind.is_none_or(|kind| m.kind == kind)
                && cursor.after.is_none_or(|after| m.no.0 > after)
        });
        Ok(page(rows.cloned(), cursor.limit))
    }

    async fn token(&self, digest: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        Ok(self.state().tokens.values().find(|t| t.digest == *digest).cloned())
    }

    async fn token_by_id(&self, token_id: &str) -> Result<Option<TokenRow>, StoreError> {
        Ok(self.state().tokens.get(token_id).cloned())
    }

    async fn tokens(&self, cursor: Cursor<String>) -> Result<Vec<TokenRow>, StoreError> {
        let state = self.state();
        let rows = state.tokens.values().filter(|t| cursor.after.as_ref().is_none_or(|after| t.token_id > *after));
        Ok(page(rows.cloned(), cursor.limit))
    }

    async fn secret_uses(&self, of: ApplicationNo, since_minute: i64) -> Result<Vec<(String, i64)>, StoreError> {
        let state = self.state();
        let secrets = state.secrets.values().filter(|s| s.application == of);
        let sums = secrets.map(|s| (s.secret_id.clone(), state.uses_since(&s.secret_id, since_minute)));
        Ok(sums.filter(|(_, uses)| *uses > 0).collect())
    }

    async fn rule_head(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        as_of: Option<UnixMillis>,
    ) -> Result<Option<RuleHead>, StoreError> {
        let state = self.state();
        Ok(if state.is_of(of, tenant) { state.head(of, as_of) } else { None })
    }

    async fn rule_versions(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        cursor: Cursor,
    ) -> Result<Vec<RuleVersion>, StoreError> {
        let state = self.state();
        let rows = state.rules.get(&of).filter(|_| state.is_of(of, tenant)).into_iter().flatten().rev();
        let rows = rows.filter(|v| cursor.after.is_none_or(|after| v.version_no < after));
        Ok(page(rows.cloned(), cursor.limit))
    }

    async fn rule_page(
        &self,
        tenant: TenantNo,
        filter: RuleFilter,
        now: UnixMillis,
        offset: u64,
        limit: u32,
    ) -> Result<RulePage, StoreError> {
        let state = self.state();
        let mut subs: Vec<&MerchantRow> =
            state.merchants.values().filter(|m| m.tenant == tenant && m.kind == MerchantKind::SubAccount).collect();
        subs.sort_by(|a, b| a.merchant_id.cmp(&b.merchant_id));
        let mut page = RulePageBuilder::new(&filter, now, offset, limit);
        for sub in subs {
            page.add(&sub.merchant_id, state.head(sub.no, None).as_ref());
        }
        Ok(page.finish())
    }

    async fn convert_order(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        order: OrderId,
    ) -> Result<Option<ConvertOrder>, StoreError> {
        let state = self.state();
        let found = state.orders.get(&order).filter(|(owner, _)| *owner == of && state.is_of(of, tenant));
        Ok(found.map(|(_, order)| order.clone()))
    }

    async fn convert_order_owner(&self, order: OrderId) -> Result<Option<(MerchantRow, ConvertOrder)>, StoreError> {
        let state = self.state();
        let found = state.orders.get(&order);
        Ok(found.and_then(|(owner, order)| Some((state.merchants.get(owner)?.clone(), order.clone()))))
    }

    async fn owed(&self, _lanes: LaneSet, cursor: Cursor<ApplicationNo>) -> Result<Vec<OwedRow>, StoreError> {
        let state = self.state();
        let mut found: BTreeMap<ApplicationNo, OwedRow> = BTreeMap::new();
        for (event, due_at) in state.events.values().filter_map(|e| Some((e, e.due_at?))) {
            let first = OwedRow { tenant: event.tenant, application: event.application, due_at };
            let known = found.entry(event.application).or_insert(first);
            known.due_at = known.due_at.min(due_at);
        }
        let rest = found.into_values().filter(|row| cursor.after.is_none_or(|after| row.application > after));
        Ok(page(rest, cursor.limit))
    }

    async fn pending_of(&self, Portion { of, known, limit }: Portion) -> Result<Pending, StoreError> {
        let state = self.state();
        let mut found = Vec::new();
        for of in of {
            for repeated in [false, true] {
                let asked = |e: &&EventRow| (e.tenant, e.application) == of && (e.attempts > 0) == repeated;
                let new = |e: &&EventRow| e.state == DeliveryState::Pending && !known.contains(&e.no);
                let mut pending: Vec<&EventRow> = state.events.values().filter(new).filter(asked).collect();
                pending.sort_by_key(|e| (e.due_at, e.no));
                found.extend(page(pending.into_iter().cloned(), limit));
            }
        }
        Ok(Pending { rows: found, unreadable: Vec::new() })
    }

    async fn open_before(&self, event: &EventRow) -> Result<Option<EventNo>, StoreError> {
        let state = self.state();
        let of = |e: &EventRow| (e.tenant, e.application, e.biz_id.clone());
        let earlier = |e: &&EventRow| of(e) == of(event) && e.sequence < event.sequence;
        let is_delivered = |attempt: &AttemptRow| attempt.outcome == Outcome::Delivered;
        let was_delivered = |no| state.attempts.get(&no).is_some_and(|all| all.iter().any(is_delivered));
        let open = |e: &&EventRow| {
            matches!(e.state, DeliveryState::Pending | DeliveryState::Held) && !(e.by_hand && was_delivered(e.no))
        };
        let mut found: Vec<EventNo> = state.events.values().filter(earlier).filter(open).map(|e| e.no).collect();
        found.sort_unstable();
        // As the others look: below its own number first, from the latest down.
        Ok(found.iter().rev().find(|no| **no < event.no).or(found.last()).copied())
    }

    async fn turning(
        &self,
        _lanes: LaneSet,
        cursor: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Result<Vec<TurningRow>, StoreError> {
        let state = self.state();
        let rest = state.turning.iter().filter(|(place, _)| cursor.after.is_none_or(|after| **place > after));
        let named = rest.filter_map(|((tenant, application), due_at)| {
            let client_id = state.applications.get(application)?.client_id.clone();
            Some(TurningRow { tenant: *tenant, application: *application, client_id, due_at: *due_at })
        });
        Ok(page(named, cursor.limit))
    }

    async fn event(
        &self,
        _asker: Asker,
        event_id: SortedId,
    ) -> Result<Option<(EventRow, Vec<AttemptRow>)>, StoreError> {
        let state = self.state();
        let found = state.events.values().find(|e| e.event_id == event_id);
        Ok(found.map(|e| (e.clone(), state.attempts.get(&e.no).cloned().unwrap_or_default())))
    }

    async fn attempt_bytes(
        &self,
        tenant: TenantNo,
        event: EventNo,
        attempt: i64,
        at: UnixMillis,
    ) -> Result<Option<AttemptBytes>, StoreError> {
        let state = self.state();
        let found = state.bytes.get(&(event, attempt)).filter(|(of, begun, _)| (*of, *begun) == (tenant, at));
        Ok(found.map(|(_, _, bytes)| bytes.clone()))
    }

    async fn old_bytes(
        &self,
        _asker: Asker,
        begun_before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> Result<Vec<OldBytes>, StoreError> {
        Ok(self.state().old_bytes(begun_before, most, &page))
    }

    async fn old_events(
        &self,
        _asker: Asker,
        old: TooOld,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Result<Vec<OldEvents>, StoreError> {
        Ok(self.state().old_events(old, most, &page))
    }

    async fn events(&self, filter: EventFilter, cursor: Cursor, looked_max: u32) -> Result<EventPage, StoreError> {
        let state = self.state();
        let stands = |event: &EventRow| state.stands(event);
        Ok(filter.page(state.events.values(), stands, (cursor.after, cursor.limit), looked_max))
    }

    async fn events_after(
        &self,
        tenant: TenantNo,
        of: ApplicationNo,
        after: i64,
        limit: u32,
    ) -> Result<Vec<EventRow>, StoreError> {
        let state = self.state();
        let mut rows: Vec<&EventRow> =
            state.events.values().filter(|e| e.tenant == tenant && e.application == of && e.seq > after).collect();
        rows.sort_by_key(|e| e.seq);
        Ok(page(OwnEventsPage::first(rows.into_iter().cloned()), limit))
    }

    async fn sought(&self, span: Span) -> Result<Vec<(EventNo, i64)>, StoreError> {
        Ok(self.state().sought(&span))
    }

    async fn count_sought(&self, span: Span) -> Result<Counted, StoreError> {
        Ok(self.state().count_sought(&span))
    }

    async fn fared(&self, walked: Walked) -> Result<Fared, StoreError> {
        Ok(self.state().fared(&walked))
    }

    async fn redeliveries(&self, which: Redeliveries, limit: u32) -> Result<Vec<RedeliveryRow>, StoreError> {
        Ok(self.state().redeliveries(&which, limit))
    }

    async fn remembered(&self, scope: &str, key: &str) -> Result<Option<IdempotencyRow>, StoreError> {
        Ok(self.state().answers.get(&(scope.to_owned(), key.to_owned())).cloned())
    }

    async fn audit(&self, cursor: Cursor<AuditKey>) -> Result<Vec<AuditRow>, StoreError> {
        let state = self.state();
        let mut rows: Vec<&AuditRow> = state
            .audit
            .iter()
            .map(|(row, _)| row)
            .filter(|row| cursor.after.is_none_or(|after| row.key() < after))
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.key()));
        Ok(page(rows.into_iter().cloned(), cursor.limit))
    }

    fn chain_audit(&self, key: ChainKey) {
        self.state().chain.get_or_insert(key);
    }

    async fn audit_chain(&self, cursor: Cursor<ChainPlace>) -> Result<Vec<ChainLine>, StoreError> {
        let state = self.state();
        let lines = (0_i64..).zip(&state.audit).map(|(place, (row, link))| ChainLine {
            place: ChainPlace(place, 0),
            row: row.clone(),
            link: *link,
        });
        Ok(page(lines.filter(|line| cursor.after.is_none_or(|after| line.place > after)), cursor.limit))
    }

    async fn audit_heads(&self, cursor: Cursor) -> Result<Vec<ChainHead>, StoreError> {
        let mut heads: BTreeMap<i64, ChainHead> = BTreeMap::new();
        for (row, link) in &self.state().audit {
            let head = ChainHead { tenant: row.tenant, no: row.no, link: *link };
            heads
                .entry(of_audit_tenant(row.tenant))
                .and_modify(|last| *last = ChainHead { link: head.link.or(last.link), ..head })
                .or_insert(head);
        }
        let after = cursor.after.unwrap_or(i64::MIN);
        Ok(page(heads.into_iter().filter(|(tenant, _)| *tenant > after).map(|(_, head)| head), cursor.limit))
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(self.state().settings.get(name).cloned())
    }

    async fn ping(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn tend_lanes(&self, tend: Tend) -> Result<Tended, StoreError> {
        Ok(Tended::alone(&tend))
    }

    async fn nodes(&self, _lease_ms: i64, _most: u32) -> Result<Vec<NodeRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn database_time(&self) -> Result<Option<UnixMillis>, StoreError> {
        Ok(None)
    }

    async fn directory_changes(&self, _after: i64, _node: NodeId) -> Result<DirectoryChanges, StoreError> {
        Ok(DirectoryChanges::NONE)
    }

    fn announce(&self, _lanes: LaneSet) {}

    fn signals(&self) -> Option<broadcast::Receiver<Signal>> {
        None
    }
}
