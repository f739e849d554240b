//! What a group of batches must see before it may write, and the guards that are judged by it.
//!
//! The first round trip claims nonces, locks the rows that guards are about, and reads them. Then every guard is judged here, batch by
//! batch and write by write, each batch against what the ones before it leave behind; a batch that is refused leaves nothing behind.

use std::collections::{HashMap, HashSet};

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::ApplicationNo;
use countersign_domain::lanes::{Fence, Lane};
use countersign_domain::time::UnixMillis;
use tokio_postgres::Row;

use super::nonces::{Nonces, read_claims};
use super::payment_order::{OrderAsk, OrderRows, guard};
use super::plan::{Column, Grouped, Plan, Statement, grouped};
use super::rows::Fields;
use super::statements::Sql;
use crate::batch::{Conflict, Guard, Key, Write};
use crate::contract::{ClaimKey, CommitError, StoreError};
use crate::payment_order::PaymentOrderWrite;
use crate::window::{ClaimHash, Undo};

/// The rows that the guards of a group are about, each list sorted.
#[derive(Debug, Default)]
pub(super) struct Ask<'w> {
    /// Tenant, hash, timestamp.
    claims: Vec<(i64, [u8; 16], i64)>,
    /// Tenant and merchant: whose orders are paid, or whose rules change.
    payees: Vec<(i64, i64)>,
    /// Tenant and merchant.
    merchants: Vec<(i64, i64)>,
    orders: OrderAsk,
    lanes: Vec<i64>,
    /// Tenant and event.
    deliveries: Vec<(i64, i64)>,
    applications: Vec<i64>,
    /// Those whose changes go on.
    applications_as_they_are: Vec<i64>,
    tokens: Vec<&'w str>,
    /// Tenant, number, id.
    events: Vec<(i64, i64, [u8; 16])>,
    /// What time it is.
    time: bool,
}

/// Two columns of pairs.
fn pairs(keys: &[(i64, i64)]) -> Vec<Column<'static>> {
    let (tenants, keys): (Vec<i64>, Vec<i64>) = keys.iter().copied().unzip();
    vec![Box::new(tenants), Box::new(keys)]
}

/// Tenant and merchant of an order.
fn payee(write: &PaymentOrderWrite) -> (i64, i64) {
    let row = write.row();
    (row.tenant.0, row.merchant.0)
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

impl<'w> Ask<'w> {
    pub(super) fn of(writes: impl Iterator<Item = &'w Write>, nonces: &Nonces) -> Self {
        let mut ask = Self::default();
        for write in writes.filter_map(grouped) {
            match write {
                Grouped::Claim(claim) => {
                    ask.claims.push((claim.tenant.0, nonces.hash(claim).to_bytes(), claim.stamped_at.0));
                }
                Grouped::Rule { tenant, merchant, .. } => {
                    ask.payees.push((tenant.0, merchant.0));
                    ask.merchants.push((tenant.0, merchant.0));
                }
                Grouped::Attempt { tenant, application, attempt, .. } => {
                    ask.lanes.push(Lane::of(application).get().into());
                    ask.deliveries.push((tenant.0, attempt.event.0));
                }
                Grouped::Event(event) => {
                    ask.events.push((event.tenant.0, event.no.0, event.event_id.0.to_be_bytes()));
                }
                Grouped::PaymentOrder(write) => {
                    ask.payees.extend(write.paid_by_rule().map(|_| payee(write)));
                    ask.orders.add(write);
                }
                // Batches with such a guard run alone.
                Grouped::Audit(_)
                | Grouped::Guard(Guard::Setting { .. } | Guard::UnusedQuote { .. } | Guard::TokenLetGo { .. }) => {}
                Grouped::Guard(guard @ (Guard::Before { .. } | Guard::Reached { .. })) => {
                    ask.time |= guard.asks_the_database();
                }
                Grouped::Guard(Guard::PaymentOrder { tenant, merchant, id, .. }) => {
                    ask.orders.add_guarded(*tenant, *merchant, *id);
                }
                Grouped::Guard(Guard::Lane { application, .. }) => ask.lanes.push(Lane::of(*application).get().into()),
                Grouped::Guard(Guard::RuleHead { tenant, merchant, .. }) => ask.merchants.push((tenant.0, merchant.0)),
                Grouped::Guard(Guard::Application { application, holds_changes: true, .. }) => {
                    ask.applications.push(application.0);
                }
                Grouped::Guard(Guard::Application { application, .. }) => {
                    ask.applications_as_they_are.push(application.0);
                }
                Grouped::Guard(Guard::Token { token_id }) => ask.tokens.push(token_id),
            }
        }
        let mut claims = sorted(ask.claims);
        // One nonce with two timestamps is one nonce; the later one is remembered longer.
        claims.reverse();
        claims.dedup_by_key(|claim| (claim.0, claim.1));
        claims.reverse();
        Self {
            claims,
            payees: sorted(ask.payees),
            merchants: sorted(ask.merchants),
            orders: ask.orders,
            lanes: sorted(ask.lanes),
            deliveries: sorted(ask.deliveries),
            applications: sorted(ask.applications),
            applications_as_they_are: sorted(ask.applications_as_they_are),
            tokens: sorted(ask.tokens),
            events: sorted(ask.events),
            time: ask.time,
        }
    }

    /// The statements of the first round trip, in the order of the locks they take.
    pub(super) fn statements(&self) -> Vec<Statement<'_>> {
        let mut all: Vec<Statement<'_>> = Vec::new();
        if !self.claims.is_empty() {
            let tenants: Vec<i64> = self.claims.iter().map(|(tenant, _, _)| *tenant).collect();
            let hashes: Vec<&[u8]> = self.claims.iter().map(|(_, hash, _)| hash.as_slice()).collect();
            let stamps: Vec<i64> = self.claims.iter().map(|(_, _, stamped_at)| *stamped_at).collect();
            all.push((Sql::ClaimLock, Vec::new()));
            all.push((Sql::Horizon, Vec::new()));
            all.push((Sql::NoncesClaim, vec![Box::new(tenants) as Column<'_>, Box::new(hashes), Box::new(stamps)]));
        }
        if !self.payees.is_empty() {
            all.push((Sql::PayeesLock, pairs(&self.payees)));
            all.push((Sql::LastPaidLock, pairs(&self.payees)));
        }
        if !self.merchants.is_empty() {
            all.push((Sql::HeadsLock, pairs(&self.merchants)));
        }
        all.extend(self.orders.statements());
        if !self.lanes.is_empty() {
            all.push((Sql::LanesGuard, vec![Box::new(&self.lanes)]));
        }
        if !self.deliveries.is_empty() {
            all.push((Sql::DeliveriesLock, pairs(&self.deliveries)));
        }
        if !self.applications.is_empty() {
            all.push((Sql::ApplicationsGuard, vec![Box::new(&self.applications)]));
        }
        if !self.tokens.is_empty() {
            all.push((Sql::TokensLock, vec![Box::new(&self.tokens)]));
            all.push((Sql::TokensLive, vec![Box::new(&self.tokens)]));
        }
        if !self.events.is_empty() {
            let tenants: Vec<i64> = self.events.iter().map(|(tenant, _, _)| *tenant).collect();
            let nos: Vec<i64> = self.events.iter().map(|(_, no, _)| *no).collect();
            let ids: Vec<&[u8]> = self.events.iter().map(|(_, _, id)| id.as_slice()).collect();
            all.push((Sql::EventsTaken, vec![Box::new(tenants) as Column<'_>, Box::new(nos), Box::new(ids)]));
        }
        // From here on behind all that may have had to wait.
        if !self.applications_as_they_are.is_empty() {
            all.push((Sql::ApplicationsLook, vec![Box::new(&self.applications_as_they_are)]));
        }
        if self.time {
            all.push((Sql::DatabaseTime, Vec::new()));
        }
        all
    }

    /// What those statements found.
    pub(super) fn read(&self, mut rows: impl Iterator<Item = Vec<Row>>) -> Result<Seen, StoreError> {
        let mut next = || rows.next().unwrap_or_default();
        let mut seen = Seen { horizon: i64::MIN, ..Seen::default() };
        if !self.claims.is_empty() {
            let (_locked, horizon, inserted) = (next(), next(), next());
            let (horizon, inserted) = read_claims(&horizon, &inserted)?;
            seen.horizon = horizon;
            seen.inserted = inserted.into_iter().collect();
        }
        if !self.payees.is_empty() {
            let (_locked, found) = (next(), next());
            for row in found {
                let mut f = Fields::new(&row, "last_paid", 0, 1);
                seen.rows.last_paid.insert((f.int()?, f.int()?), f.millis()?);
            }
        }
        if !self.merchants.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "fee_rule_head", 0, 1);
                let key = (f.int()?, f.int()?);
                seen.rows.heads.insert(key, (f.int()?, u128::from_be_bytes(f.bytes()?)));
            }
        }
        seen.rows.orders = self.orders.read(&mut next)?;
        if !self.lanes.is_empty() {
            seen.rows.lanes = numbers(&next(), "delivery_lane")?;
        }
        if !self.deliveries.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "delivery", 0, 1);
                let (event, attempts, state) = ((f.int()?, f.int()?), f.int()?, f.text()?);
                let state = DeliveryState::from_name(&state);
                seen.rows.deliveries.insert(event, state.map(|_| attempts));
            }
        }
        if !self.applications.is_empty() {
            seen.rows.applications = numbers(&next(), "application")?;
        }
        if !self.tokens.is_empty() {
            let of = |row| Fields::new(row, "operator_token", 0, 0).text();
            let (_locked, live) = (next(), next());
            seen.rows.tokens = live.iter().map(of).collect::<Result<_, _>>()?;
        }
        if !self.events.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "event", 0, 1);
                let tenant = f.int()?;
                seen.rows.event_nos.insert((tenant, f.int()?));
                seen.rows.event_ids.insert((tenant, u128::from_be_bytes(f.bytes()?)));
            }
        }
        if !self.applications_as_they_are.is_empty() {
            seen.rows.applications.extend(numbers(&next(), "application")?);
        }
        if self.time {
            let row = next();
            let row = row.first().ok_or_else(|| StoreError::Unfit("the database tells no time".to_owned()))?;
            seen.now = Some(Fields::new(row, "clock", 0, 0).millis()?);
        }
        Ok(seen)
    }
}

/// Numbers by their keys.
fn numbers(rows: &[Row], table: &'static str) -> Result<HashMap<i64, i64>, StoreError> {
    let read = |row| {
        let mut f = Fields::new(row, table, 0, 0);
        Ok((f.int()?, f.int()?))
    };
    rows.iter().map(read).collect()
}

/// Rows that guards look at, each by its tenant and its own key.
#[derive(Debug, Default)]
struct Rows {
    /// Version and config id of each rule head.
    heads: HashMap<(i64, i64), (i64, u128)>,
    /// When an order of each sub-account was paid last.
    last_paid: HashMap<(i64, i64), UnixMillis>,
    orders: OrderRows,
    /// Attempts of each delivery; `None`: it cannot be read back.
    deliveries: HashMap<(i64, i64), Option<i64>>,
    event_nos: HashSet<(i64, i64)>,
    event_ids: HashSet<(i64, u128)>,
    /// Fence of each lane.
    lanes: HashMap<i64, i64>,
    /// Revision of each application.
    applications: HashMap<i64, i64>,
    /// Tokens that are not revoked.
    tokens: HashSet<String>,
}

/// What the first round trip found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) horizon: i64,
    /// Claims that this transaction inserted, and their tenants.
    inserted: HashMap<ClaimHash, i64>,
    rows: Rows,
    /// The database's time.
    now: Option<UnixMillis>,
}

/// Judges the batches of a group, one after the other.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    nonces: &'a Nonces,
    seen: Seen,
    pub(super) plan: Plan<'a>,
    /// How to give back, in this process, the nonces of the batches that were let through.
    pub(super) claims: Vec<Undo>,
}

/// What one batch would change.
#[derive(Debug, Default)]
struct BatchChanges {
    claims: Vec<(ClaimHash, Undo)>,
    rows: Rows,
}

impl<'a> Judge<'a> {
    pub(super) fn new(nonces: &'a Nonces, seen: Seen) -> Self {
        nonces.raise_horizon(seen.horizon);
        Self { nonces, seen, plan: Plan::default(), claims: Vec::new() }
    }

    /// Lets a batch through and plans its writes, or refuses it and leaves everything as it was.
    pub(super) fn batch(&mut self, writes: &'a [Write]) -> Result<(), CommitError> {
        let mut changes = BatchChanges::default();
        for write in writes.iter().filter_map(grouped) {
            if let Err(refused) = self.write(&mut changes, write) {
                self.nonces.undo(changes.claims.into_iter().map(|(_, undo)| undo).collect());
                return Err(refused);
            }
        }
        for (hash, undo) in changes.claims {
            self.seen.inserted.remove(&hash);
            self.claims.push(undo);
        }
        let rows = &mut self.seen.rows;
        rows.heads.extend(changes.rows.heads);
        rows.last_paid.extend(changes.rows.last_paid);
        rows.orders.extend(changes.rows.orders);
        rows.deliveries.extend(changes.rows.deliveries);
        rows.event_nos.extend(changes.rows.event_nos);
        rows.event_ids.extend(changes.rows.event_ids);
        for write in writes.iter().filter_map(grouped) {
            self.plan.add(write);
        }
        Ok(())
    }

    /// Deletes the claims that this transaction inserted and no batch was let through with; none: there are none.
    pub(super) fn left_over(&self) -> Option<Statement<'static>> {
        let left = self.seen.inserted.iter().map(|(hash, tenant)| (*tenant, hash.to_bytes().to_vec())).collect();
        let (tenants, hashes): (Vec<i64>, Vec<Vec<u8>>) = sorted(left).into_iter().unzip();
        let none = hashes.is_empty();
        (!none).then(|| (Sql::NoncesGiveBack, vec![Box::new(tenants) as Column<'static>, Box::new(hashes)]))
    }

    fn write(&self, changes: &mut BatchChanges, write: Grouped<'_>) -> Result<(), CommitError> {
        let seen = &self.seen.rows;
        match write {
            Grouped::Claim(claim) => self.claim(changes, claim),
            Grouped::Rule { tenant, merchant, version } => {
                let key = (tenant.0, merchant.0);
                let head = changes.rows.heads.get(&key).or_else(|| seen.heads.get(&key)).copied();
                // The id too: who decided on a head that he remembered may remember one that a failover has lost.
                let is_next = match head {
                    None => version.version_no == 1,
                    Some((no, id)) => version.version_no == no + 1 && version.previous.is_some_and(|p| p.0 == id),
                };
                guard(is_next, Conflict::Moved(Key::RuleHead(merchant)))?;
                if let Some(paid_at) = changes.rows.last_paid.get(&key).or_else(|| seen.last_paid.get(&key)) {
                    guard(*paid_at < version.created_at, Conflict::PaidSince(merchant, *paid_at))?;
                }
                changes.rows.heads.insert(key, (version.version_no, version.config_id.0));
                Ok(())
            }
            Grouped::PaymentOrder(write) => {
                seen.orders.judge(&mut changes.rows.orders, write)?;
                if let Some(paid_at) = write.paid_by_rule() {
                    let key = payee(write);
                    let before = changes.rows.last_paid.get(&key).or_else(|| seen.last_paid.get(&key)).copied();
                    changes.rows.last_paid.insert(key, before.map_or(paid_at, |before| before.max(paid_at)));
                }
                Ok(())
            }
            Grouped::Event(row) => {
                let (no, id) = ((row.tenant.0, row.no.0), (row.tenant.0, row.event_id.0));
                let is_new = changes.rows.event_nos.insert(no) && !seen.event_nos.contains(&no);
                let is_new = changes.rows.event_ids.insert(id) && !seen.event_ids.contains(&id) && is_new;
                guard(is_new, Conflict::Taken(Key::Event(row.event_id)))?;
                changes.rows.deliveries.insert(no, Some(row.attempts));
                Ok(())
            }
            Grouped::Attempt { tenant, application, attempt, .. } => {
                self.lane_at(application, attempt.fence)?;
                let (no, key) = (attempt.event.0, (tenant.0, attempt.event.0));
                let found = changes.rows.deliveries.get(&key).or_else(|| seen.deliveries.get(&key));
                let attempts = match found {
                    Some(Some(attempts)) => Some(*attempts),
                    Some(None) => return Err(StoreError::Corrupt { table: "delivery", row: no.to_string() }.into()),
                    None => None,
                };
                guard(attempts == Some(attempt.attempt - 1), Conflict::Moved(Key::Delivery(attempt.event)))?;
                changes.rows.deliveries.insert(key, Some(attempt.attempt));
                Ok(())
            }
            Grouped::Audit(_) => Ok(()),
            Grouped::Guard(guard) => self.guard(&changes.rows, guard),
        }
    }

    fn guard(&self, changed: &Rows, about: &Guard) -> Result<(), CommitError> {
        let seen = &self.seen.rows;
        match about {
            Guard::Lane { application, fence } => self.lane_at(*application, *fence),
            Guard::Application { application, client_id, revision, .. } => {
                let stored = seen.applications.get(&application.0);
                guard(stored == Some(revision), Conflict::Moved(Key::Application(client_id.clone())))
            }
            Guard::Token { token_id } => guard(seen.tokens.contains(token_id), Conflict::TokenRevoked),
            Guard::RuleHead { tenant, merchant, version_no } => {
                let key = (tenant.0, merchant.0);
                let head = changed.heads.get(&key).or_else(|| seen.heads.get(&key));
                guard(head.map_or(0, |(no, _)| *no) == *version_no, Conflict::Moved(Key::RuleHead(*merchant)))
            }
            Guard::PaymentOrder { tenant, merchant, id, revision } => {
                let stored = seen.orders.revision(&changed.orders, (tenant.0, merchant.0, id.number()));
                guard(stored == Some(*revision), Conflict::Moved(Key::PaymentOrder(*id)))
            }
            Guard::Before { instant, time } => guard(time.now(self.seen.now) < *instant, Conflict::Late(*instant)),
            Guard::Reached { instant, time } => guard(time.now(self.seen.now) >= *instant, Conflict::Early(*instant)),
            Guard::Setting { name, .. } => guard(false, Conflict::Moved(Key::Setting(name.clone()))),
            Guard::TokenLetGo { token_id } => guard(false, Conflict::Moved(Key::Token(token_id.clone()))),
            Guard::UnusedQuote { quote_id, .. } => guard(false, Conflict::Moved(Key::Quote(quote_id.clone()))),
        }
    }

    fn lane_at(&self, application: ApplicationNo, fence: Fence) -> Result<(), CommitError> {
        let lane = Lane::of(application);
        let stored = self.seen.rows.lanes.get(&i64::from(lane.get()));
        guard(stored == Some(&fence.0), Conflict::Fenced(lane))
    }

    fn claim(&self, changes: &mut BatchChanges, claim: &ClaimKey) -> Result<(), CommitError> {
        let used = CommitError::Conflict(Conflict::NonceUsed);
        let hash = self.nonces.hash(claim);
        if claim.stamped_at.0 <= self.seen.horizon {
            return Err(used);
        }
        let Ok(undo) = self.nonces.claim(hash, claim.stamped_at.0) else { return Err(used) };
        if self.seen.inserted.contains_key(&hash) {
            changes.claims.push((hash, undo));
            return Ok(());
        }
        // Another node has it: from now on this one knows.
        Err(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other way round a revocation that is committed between the two would be missed by both.
    #[test]
    fn whether_a_token_is_live_is_asked_once_it_is_seen_that_somebody_rests_on_it() {
        let rests_on = |id: &str| Write::Guard(Guard::Token { token_id: id.to_owned() });
        let writes = [rests_on("tok_2"), rests_on("tok_1"), rests_on("tok_2")];
        let ask = Ask::of(writes.iter(), &Nonces::new([1; 16], 0));
        assert_eq!(ask.tokens, ["tok_1", "tok_2"]);
        let statements: Vec<Sql> = ask.statements().into_iter().map(|(sql, _)| sql).collect();
        assert!(matches!(statements[..], [Sql::TokensLock, Sql::TokensLive]), "{statements:?}");
    }
}
