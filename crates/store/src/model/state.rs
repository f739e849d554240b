//! What the model holds, and what each write does to it.

use std::collections::BTreeMap;

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::{Fence, Lane};
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::{CLOCKS_APART_MS_MAX, UnixMillis};

use super::conversion::Conversions;
use super::payment_orders::Orders;
use crate::attempt_log::AttemptBytes;
use crate::batch::{ANSWERS_FORGOTTEN_MAX, Committed, Conflict, Guard, Key, USES_FORGOTTEN_MAX, Write};
use crate::chain::{self, ChainKey, Link, START};
use crate::contract::{
    ApplicationRow, ApplicationView, AttemptRow, AuditRow, ClaimKey, CommitError, EventRow, IdempotencyRow,
    MerchantRow, NewAnswer, SecretRow, StoreError, TokenRow, Uses,
};
use crate::payment_order::PaymentOrderRow;
use crate::redelivery::RedeliveryRow;

/// Every row, by its key.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) merchants: BTreeMap<MerchantNo, MerchantRow>,
    pub(super) applications: BTreeMap<ApplicationNo, ApplicationRow>,
    pub(super) secrets: BTreeMap<String, SecretRow>,
    /// Uses of a secret in a minute.
    pub(super) secret_uses: BTreeMap<(String, i64), i64>,
    pub(super) tokens: BTreeMap<String, TokenRow>,
    /// Versions of a sub-account, oldest first.
    pub(super) rules: BTreeMap<MerchantNo, Vec<RuleVersion>>,
    pub(super) orders: BTreeMap<OrderId, (MerchantNo, ConvertOrder)>,
    pub(super) payment_orders: Orders,
    pub(super) events: BTreeMap<EventNo, EventRow>,
    pub(super) attempts: BTreeMap<EventNo, Vec<AttemptRow>>,
    /// What went over the wire in an attempt: its tenant, when it began, the bytes.
    pub(super) bytes: BTreeMap<(EventNo, i64), (TenantNo, UnixMillis, AttemptBytes)>,
    /// The last `seq` of each application, and the last `sequence` of each of its businesses.
    pub(super) seqs: BTreeMap<ApplicationNo, i64>,
    pub(super) sequences: BTreeMap<(ApplicationNo, String), i64>,
    /// Applications whose open events are to be held or released, and when released ones are due.
    pub(super) turning: BTreeMap<(TenantNo, ApplicationNo), UnixMillis>,
    pub(super) redeliveries: BTreeMap<SortedId, RedeliveryRow>,
    /// Of which redelivery an event was part last.
    pub(super) redelivered: BTreeMap<EventNo, SortedId>,
    pub(super) conversions: Conversions,
    pub(super) answers: BTreeMap<(String, String), IdempotencyRow>,
    pub(super) audit: Vec<(AuditRow, Option<Link>)>,
    /// What its lines are linked with.
    pub(super) chain: Option<ChainKey>,
    pub(super) settings: BTreeMap<String, String>,
    /// A nonce's first timestamp, and whether it is used (else reserved).
    pub(super) nonces: BTreeMap<(ApplicationNo, String), (UnixMillis, bool)>,
    /// Nonces stamped at or before it are too old.
    pub(super) horizon: i64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            merchants: BTreeMap::new(),
            applications: BTreeMap::new(),
            secrets: BTreeMap::new(),
            secret_uses: BTreeMap::new(),
            tokens: BTreeMap::new(),
            rules: BTreeMap::new(),
            orders: BTreeMap::new(),
            payment_orders: Orders::new(),
            events: BTreeMap::new(),
            attempts: BTreeMap::new(),
            bytes: BTreeMap::new(),
            seqs: BTreeMap::new(),
            sequences: BTreeMap::new(),
            turning: BTreeMap::new(),
            redeliveries: BTreeMap::new(),
            redelivered: BTreeMap::new(),
            conversions: Conversions::default(),
            answers: BTreeMap::new(),
            audit: Vec::new(),
            chain: None,
            settings: BTreeMap::new(),
            nonces: BTreeMap::new(),
            horizon: i64::MIN,
        }
    }
}

pub(super) fn nonce_key(claim: &ClaimKey) -> (ApplicationNo, String) {
    (claim.application, claim.nonce.clone())
}

pub(super) fn guard(holds: bool, conflict: impl FnOnce() -> Conflict) -> Result<(), CommitError> {
    if holds { Ok(()) } else { Err(CommitError::Conflict(conflict())) }
}

pub(super) fn parent(there: bool, what: &str) -> Result<(), CommitError> {
    if there { Ok(()) } else { Err(StoreError::Unfit(format!("a row refers to {what} that is not there")).into()) }
}

/// Nobody ever takes a lane from the one node of this store.
fn lane_at(application: ApplicationNo, fence: Fence) -> Result<(), CommitError> {
    guard(fence == Fence(0), || Conflict::Fenced(Lane::of(application)))
}

impl State {
    /// Whether the merchant is there, and of this tenant.
    pub(super) fn is_of(&self, merchant: MerchantNo, tenant: TenantNo) -> bool {
        self.merchants.get(&merchant).is_some_and(|m| m.tenant == tenant)
    }

    /// The last version made at or before `as_of`, and its base.
    pub(super) fn head(&self, of: MerchantNo, as_of: Option<UnixMillis>) -> Option<RuleHead> {
        let versions = self.rules.get(&of)?;
        let last = versions.iter().rev().find(|v| as_of.is_none_or(|as_of| v.created_at <= as_of))?;
        let base = last.base_version_no.and_then(|no| versions.iter().find(|v| v.version_no == no));
        Some(RuleHead { last: last.clone(), base: base.cloned() })
    }

    pub(super) fn view(&self, application: &ApplicationRow) -> Result<ApplicationView, StoreError> {
        let merchant = self.merchants.get(&application.merchant);
        let tenant = self.merchants.get(&MerchantNo(application.tenant.0));
        let (Some(merchant), Some(tenant)) = (merchant, tenant) else {
            return Err(StoreError::Corrupt { table: "application", row: application.no.0.to_string() });
        };
        let mut secrets: Vec<SecretRow> = self
            .secrets
            .values()
            .filter(|s| s.application == application.no && s.revoked_at.is_none())
            .cloned()
            .collect();
        secrets.sort_by(|a, b| (b.created_at, &b.secret_id).cmp(&(a.created_at, &a.secret_id)));
        Ok(ApplicationView {
            application: application.clone(),
            merchant: merchant.clone(),
            tenant_id: tenant.merchant_id.clone(),
            tenant_enabled: tenant.enabled,
            secrets,
        })
    }

    /// Checks the write's guard and does it.
    pub(super) fn apply(&mut self, write: &Write, committed: &mut Committed) -> Result<(), CommitError> {
        match write {
            Write::ClaimNonce(claim) => self.claim(claim),
            Write::AppendRule { tenant, merchant, version } => self.append_rule(*tenant, *merchant, version),
            Write::InsertMerchant(row) => self.insert_merchant(row),
            Write::UpdateMerchant(row) => self.update_merchant(row),
            Write::Reassess { tenant, merchant, due_at } => {
                self.reassess(*tenant, *merchant, *due_at);
                Ok(())
            }
            Write::InsertApplication(row) => self.insert_application(row),
            Write::UpdateApplication(row) => self.update_application(row),
            Write::InsertSecret(row) => self.insert_secret(row),
            Write::UpdateSecret(row) => self.update_secret(row),
            Write::AddUses(uses) => {
                self.add_uses(uses);
                Ok(())
            }
            Write::InsertToken(row) => self.insert_token(row),
            Write::RevokeToken { token_id, at } => self.revoke_token(token_id, *at),
            Write::InsertConvertOrder { tenant, merchant, order } => self.insert_order(*tenant, *merchant, order),
            Write::MoveConvertOrder { tenant, order, at } => self.move_order(*tenant, order, *at),
            Write::Convert(write) => self.convert(write),
            Write::PaymentOrder(write) => self.payment_order(write),
            Write::EnqueueEvent(row) => self.enqueue(row, committed),
            Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at } => {
                lane_at(*application, attempt.fence)?;
                self.record_attempt(*tenant, attempt, bytes.as_deref(), *state, *due_at)
            }
            Write::ForgetAnswers { kept_before } => {
                committed.answers_forgotten += self.forget_answers(*kept_before);
                Ok(())
            }
            Write::ForgetBytes { .. } | Write::ForgetEvents { .. } => {
                committed.events_forgotten += self.forget(write);
                Ok(())
            }
            Write::Turn { tenant, application, due_at } => {
                if self.applications.get(application).is_some_and(|a| a.tenant == *tenant) {
                    self.turning.insert((*tenant, *application), *due_at);
                }
                Ok(())
            }
            Write::ReleaseHeld { tenant, application, due_at } => {
                self.turn((*tenant, *application), DeliveryState::Held, DeliveryState::Pending, Some(*due_at));
                Ok(())
            }
            Write::HoldPending { tenant, application } => {
                self.turn((*tenant, *application), DeliveryState::Pending, DeliveryState::Held, None);
                Ok(())
            }
            Write::Defer { tenant, event, behind, until } => self.defer(*tenant, *event, *behind, *until),
            Write::Redeliver { .. } | Write::SendNow { .. } => self.send_again(write),
            Write::Redelivery(write) => self.redelivery(write),
            Write::RememberAnswer(row) => self.remember(row),
            Write::RecordAudit(row) => {
                self.record_audit(row);
                Ok(())
            }
            Write::PutSetting { name, value } => {
                self.settings.insert(name.clone(), value.clone());
                Ok(())
            }
            Write::MoveSetting { name, from, to } => self.move_setting(name, from.as_ref(), to),
            Write::RewrapSecret { secret_id, from, key_id, sealed } => self.rewrap(secret_id, from, (key_id, sealed)),
            Write::Guard(rests_on) => self.holds(rests_on),
        }
    }

    /// Checks a guard of a row that its batch does not write.
    fn holds(&self, rests_on: &Guard) -> Result<(), CommitError> {
        match rests_on {
            Guard::Setting { name, value } => {
                guard(self.settings.get(name) == Some(value), || Conflict::Moved(Key::Setting(name.clone())))
            }
            Guard::Lane { application, fence } => lane_at(*application, *fence),
            Guard::RuleHead { tenant, merchant, version_no } => {
                guard(self.newest(*tenant, *merchant) == *version_no, || Conflict::Moved(Key::RuleHead(*merchant)))
            }
            Guard::Application { application, client_id, revision, .. } => {
                let stored = self.applications.get(application).map(|a| a.revision);
                guard(stored == Some(*revision), || Conflict::Moved(Key::Application(client_id.clone())))
            }
            Guard::Token { token_id } => {
                let live = self.tokens.get(token_id).is_some_and(|token| token.revoked_at.is_none());
                guard(live, || Conflict::TokenRevoked)
            }
            Guard::TokenLetGo { .. } => Ok(()),
            Guard::PaymentOrder { tenant, merchant, id, revision } => {
                let mut rows = self.payment_order_rows();
                let is_it = |row: &PaymentOrderRow| {
                    (row.tenant, row.merchant, row.order.prepay_id.number()) == (*tenant, *merchant, id.number())
                };
                let stored = rows.find(|row| is_it(row)).map(|row| row.order.revision);
                guard(stored == Some(*revision), || Conflict::Moved(Key::PaymentOrder(*id)))
            }
            Guard::UnusedQuote { tenant, merchant, quote_id } => {
                let good = self.is_unused(*tenant, *merchant, quote_id);
                guard(good, || Conflict::Moved(Key::Quote(quote_id.clone())))
            }
            Guard::Before { instant, time } => guard(time.now(None) < *instant, || Conflict::Late(*instant)),
            Guard::Reached { instant, time } => guard(time.now(None) >= *instant, || Conflict::Early(*instant)),
        }
    }

    fn forget_answers(&mut self, kept_before: UnixMillis) -> usize {
        let old = self.answers.values().filter(|a| a.created_at < kept_before);
        let mut old: Vec<_> = old.map(|a| (a.created_at, a.scope.clone(), a.key.clone())).collect();
        old.sort_unstable();
        old.truncate(ANSWERS_FORGOTTEN_MAX);
        for (_, scope, key) in &old {
            self.answers.remove(&(scope.clone(), key.clone()));
        }
        old.len()
    }

    fn move_setting(&mut self, name: &str, from: Option<&String>, to: &str) -> Result<(), CommitError> {
        guard(self.settings.get(name) == from, || Conflict::Moved(Key::Setting(name.to_owned())))?;
        self.settings.insert(name.to_owned(), to.to_owned());
        Ok(())
    }

    fn rewrap(&mut self, secret_id: &str, from: &str, (key_id, sealed): (&str, &[u8])) -> Result<(), CommitError> {
        let stored = self.secrets.get_mut(secret_id).filter(|row| row.key_id == from);
        let moved = || CommitError::Conflict(Conflict::Moved(Key::Secret(secret_id.to_owned())));
        let stored = stored.ok_or_else(moved)?;
        (stored.key_id, stored.sealed) = (key_id.to_owned(), sealed.to_vec());
        Ok(())
    }

    fn record_audit(&mut self, row: &AuditRow) {
        let before = || self.audit.iter().rev().filter(|(last, _)| last.tenant == row.tenant);
        let no = before().next().map_or(1, |(last, _)| last.no + 1);
        let linked = before().find_map(|(_, link)| *link).unwrap_or(START);
        let link = self.chain.as_ref().map(|key| chain::link(&linked, no, &key.mark(None, row)));
        self.audit.push((AuditRow { no, ..row.clone() }, link));
    }

    fn claim(&mut self, claim: &ClaimKey) -> Result<(), CommitError> {
        let used = self.nonces.get(&nonce_key(claim)).is_some_and(|(_, used)| *used);
        guard(claim.stamped_at.0 > self.horizon && !used, || Conflict::NonceUsed)?;
        self.nonces.insert(nonce_key(claim), (claim.stamped_at, true));
        Ok(())
    }

    /// The number of the newest version of a sub-account; 0: there is none.
    fn newest(&self, tenant: TenantNo, merchant: MerchantNo) -> i64 {
        let versions = self.rules.get(&merchant).filter(|_| self.is_of(merchant, tenant));
        versions.and_then(|v| v.last()).map_or(0, |v| v.version_no)
    }

    fn append_rule(
        &mut self,
        tenant: TenantNo,
        merchant: MerchantNo,
        version: &RuleVersion,
    ) -> Result<(), CommitError> {
        let last = self.newest(tenant, merchant);
        guard(last == version.version_no - 1, || Conflict::Moved(Key::RuleHead(merchant)))?;
        let orders = self.payment_order_rows().filter(|row| (row.tenant, row.merchant) == (tenant, merchant));
        let last_paid = orders.filter(|row| row.order.fee.is_some()).filter_map(|row| row.order.paid_at).max();
        if let Some(paid_at) = last_paid.filter(|paid_at| *paid_at >= version.created_at) {
            return Err(CommitError::Conflict(Conflict::PaidSince(merchant, paid_at)));
        }
        parent(self.is_of(merchant, tenant), "a merchant")?;
        self.rules.entry(merchant).or_default().push(version.clone());
        Ok(())
    }

    fn insert_merchant(&mut self, row: &MerchantRow) -> Result<(), CommitError> {
        let taken = self.merchants.values().any(|m| m.no == row.no || m.merchant_id == row.merchant_id);
        guard(!taken, || Conflict::Taken(Key::Merchant(row.merchant_id.clone())))?;
        let tenant = MerchantNo(row.tenant.0);
        parent(tenant == row.no || self.merchants.contains_key(&tenant), "a tenant")?;
        self.merchants.insert(row.no, row.clone());
        Ok(())
    }

    fn update_merchant(&mut self, row: &MerchantRow) -> Result<(), CommitError> {
        let moved = || Conflict::Moved(Key::Merchant(row.merchant_id.clone()));
        let Some(stored) = self.merchants.get_mut(&row.no) else { return Err(CommitError::Conflict(moved())) };
        guard(stored.revision == row.revision - 1, moved)?;
        stored.name.clone_from(&row.name);
        stored.enabled = row.enabled;
        (stored.base_r, stored.base_f) = (row.base_r, row.base_f);
        stored.revision = row.revision;
        Ok(())
    }

    fn reassess(&mut self, tenant: TenantNo, merchant: Option<MerchantNo>, due_at: UnixMillis) {
        let of = |a: &&ApplicationRow| a.tenant == tenant && merchant.is_none_or(|m| a.merchant == m);
        let touched: Vec<ApplicationRow> = self.applications.values().filter(of).cloned().collect();
        for application in touched {
            if let Some(stored) = self.applications.get_mut(&application.no) {
                stored.revision += 1;
            }
            if self.is_open(application.no) {
                self.turning.insert((tenant, application.no), due_at);
            }
        }
    }

    fn is_open(&self, application: ApplicationNo) -> bool {
        let open = [DeliveryState::Pending, DeliveryState::Held];
        self.events.values().any(|e| e.application == application && open.contains(&e.state))
    }

    /// The state as it is to be: what is open goes by whether the application's callbacks go out.
    pub(super) fn stands(&self, event: &EventRow) -> DeliveryState {
        let goes_out =
            self.applications.get(&event.application).is_some_and(|a| self.view(a).is_ok_and(|v| v.goes_out()));
        event.state.standing(goes_out)
    }

    /// Uses of a secret since a minute.
    pub(super) fn uses_since(&self, secret_id: &str, minute: i64) -> i64 {
        self.secret_uses
            .range((secret_id.to_owned(), minute)..=(secret_id.to_owned(), i64::MAX))
            .map(|(_, uses)| uses)
            .sum()
    }

    fn add_uses(&mut self, uses: &Uses) {
        let last = |stored: Option<UnixMillis>, used| {
            let ahead = |at: &UnixMillis| uses.noted_at.filter(|now| *at > now.plus_ms(CLOCKS_APART_MS_MAX));
            stored.map(|at| ahead(&at).unwrap_or(at)).max(Some(used))
        };
        for of in &uses.secrets {
            let Some(secret) = self.secrets.get_mut(&of.secret_id) else { continue };
            secret.last_used_at = last(secret.last_used_at, of.last_used_at);
            *self.secret_uses.entry((of.secret_id.clone(), of.minute)).or_insert(0) += of.uses;
        }
        for of in &uses.tokens {
            let Some(token) = self.tokens.get_mut(&of.token_id) else { continue };
            token.last_used_at = last(token.last_used_at, of.last_used_at);
        }
        let mut old: Vec<_> =
            self.secret_uses.keys().filter(|(_, minute)| *minute < uses.forget_before).cloned().collect();
        old.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        for key in old.into_iter().take(USES_FORGOTTEN_MAX) {
            self.secret_uses.remove(&key);
        }
    }

    fn insert_application(&mut self, row: &ApplicationRow) -> Result<(), CommitError> {
        let taken = self.applications.values().any(|a| a.no == row.no || a.client_id == row.client_id);
        guard(!taken, || Conflict::Taken(Key::Application(row.client_id.clone())))?;
        parent(self.merchants.contains_key(&row.merchant), "a merchant")?;
        parent(self.merchants.contains_key(&MerchantNo(row.tenant.0)), "a tenant")?;
        self.applications.insert(row.no, row.clone());
        Ok(())
    }

    fn update_application(&mut self, row: &ApplicationRow) -> Result<(), CommitError> {
        let moved = || Conflict::Moved(Key::Application(row.client_id.clone()));
        let Some(stored) = self.applications.get_mut(&row.no) else { return Err(CommitError::Conflict(moved())) };
        guard(stored.revision == row.revision - 1, moved)?;
        *stored = ApplicationRow {
            no: stored.no,
            client_id: stored.client_id.clone(),
            tenant: stored.tenant,
            merchant: stored.merchant,
            created_at: stored.created_at,
            ..row.clone()
        };
        Ok(())
    }

    fn insert_secret(&mut self, row: &SecretRow) -> Result<(), CommitError> {
        let taken = self.secrets.contains_key(&row.secret_id);
        guard(!taken, || Conflict::Taken(Key::Secret(row.secret_id.clone())))?;
        parent(self.applications.contains_key(&row.application), "an application")?;
        self.secrets.insert(row.secret_id.clone(), row.clone());
        Ok(())
    }

    fn update_secret(&mut self, row: &SecretRow) -> Result<(), CommitError> {
        let Some(stored) = self.secrets.get_mut(&row.secret_id) else {
            return Err(CommitError::Conflict(Conflict::Moved(Key::Secret(row.secret_id.clone()))));
        };
        stored.not_after = row.not_after;
        stored.revoked_at = row.revoked_at;
        stored.signs_callbacks = row.signs_callbacks;
        Ok(())
    }

    fn insert_token(&mut self, row: &TokenRow) -> Result<(), CommitError> {
        let taken = self.tokens.values().any(|t| t.token_id == row.token_id || t.digest == row.digest);
        guard(!taken, || Conflict::Taken(Key::Token(row.token_id.clone())))?;
        self.tokens.insert(row.token_id.clone(), row.clone());
        Ok(())
    }

    fn revoke_token(&mut self, token_id: &str, at: UnixMillis) -> Result<(), CommitError> {
        let Some(stored) = self.tokens.get_mut(token_id).filter(|stored| stored.revoked_at.is_none()) else {
            return Err(CommitError::Conflict(Conflict::Moved(Key::Token(token_id.to_owned()))));
        };
        stored.revoked_at = Some(at);
        Ok(())
    }

    pub(super) fn insert_order(
        &mut self,
        tenant: TenantNo,
        merchant: MerchantNo,
        order: &ConvertOrder,
    ) -> Result<(), CommitError> {
        let taken = self.orders.contains_key(&order.order_id);
        guard(!taken, || Conflict::Taken(Key::ConvertOrder(order.order_id)))?;
        parent(self.is_of(merchant, tenant), "a merchant")?;
        self.orders.insert(order.order_id, (merchant, order.clone()));
        self.conversions.came_to(order, order.created_at);
        Ok(())
    }

    fn move_order(&mut self, tenant: TenantNo, order: &ConvertOrder, at: UnixMillis) -> Result<(), CommitError> {
        let moved = || Conflict::Moved(Key::ConvertOrder(order.order_id));
        let owner = self.orders.get(&order.order_id).map(|(owner, _)| *owner);
        guard(owner.is_some_and(|owner| self.is_of(owner, tenant)), moved)?;
        let Some((_, stored)) = self.orders.get_mut(&order.order_id) else {
            return Err(CommitError::Conflict(moved()));
        };
        guard(stored.revision == order.revision - 1, moved)?;
        stored.status = order.status;
        stored.revision = order.revision;
        self.conversions.came_to(order, at);
        Ok(())
    }

    fn remember(&mut self, NewAnswer { row, ended_before }: &NewAnswer) -> Result<(), CommitError> {
        let key = (row.scope.clone(), row.key.clone());
        let lives = self.answers.get(&key).is_some_and(|kept| kept.created_at >= *ended_before);
        guard(!lives, || Conflict::Taken(Key::Idempotency))?;
        self.answers.insert(key, row.clone());
        Ok(())
    }
}
