//! What a group of batches must see before it may write, and the guards that are judged by it.
//!
//! The first round trip claims nonces, locks the rows that guards are about, and reads them. Then every guard is judged here, batch by
//! batch and write by write, each batch against what the ones before it leave behind; a batch that is refused leaves nothing behind.

use std::collections::{HashMap, HashSet};

use countersign_domain::delivery::DeliveryState;
use tokio_postgres::Row;

use super::nonces::{Nonces, read_claims};
use super::plan::{Column, Grouped, Plan, Statement, grouped};
use super::rows::Fields;
use super::statements::Sql;
use crate::batch::{Conflict, Key, Write};
use crate::contract::{ClaimKey, CommitError, StoreError};
use crate::window::{ClaimHash, Undo};

/// The rows that the guards of a group are about, each list sorted.
#[derive(Debug, Default)]
pub(super) struct Ask {
    claims: Vec<([u8; 16], i64)>,
    merchants: Vec<i64>,
    deliveries: Vec<i64>,
    event_nos: Vec<i64>,
    event_ids: Vec<Vec<u8>>,
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

impl Ask {
    pub(super) fn of<'w>(writes: impl Iterator<Item = &'w Write>, nonces: &Nonces) -> Self {
        let mut ask = Self::default();
        for write in writes.filter_map(grouped) {
            match write {
                Grouped::Claim(claim) => ask.claims.push((nonces.hash(claim).to_bytes(), claim.stamped_at.0)),
                Grouped::Rule { merchant, .. } => ask.merchants.push(merchant.0),
                Grouped::Attempt { attempt, .. } => ask.deliveries.push(attempt.event.0),
                Grouped::Event(event) => {
                    ask.event_nos.push(event.no.0);
                    ask.event_ids.push(event.event_id.0.to_be_bytes().to_vec());
                }
                Grouped::Audit(_) => {}
            }
        }
        let mut claims = sorted(ask.claims);
        // One nonce with two timestamps is one nonce; the later one is remembered longer.
        claims.reverse();
        claims.dedup_by_key(|claim| claim.0);
        claims.reverse();
        Self {
            claims,
            merchants: sorted(ask.merchants),
            deliveries: sorted(ask.deliveries),
            event_nos: sorted(ask.event_nos),
            event_ids: sorted(ask.event_ids),
        }
    }

    /// The statements of the first round trip, in the order of the locks they take.
    pub(super) fn statements(&self) -> Vec<Statement<'_>> {
        let mut all: Vec<Statement<'_>> = Vec::new();
        if !self.claims.is_empty() {
            let hashes: Vec<&[u8]> = self.claims.iter().map(|(hash, _)| hash.as_slice()).collect();
            let stamps: Vec<i64> = self.claims.iter().map(|(_, stamped_at)| *stamped_at).collect();
            all.push((Sql::ClaimLock, Vec::new()));
            all.push((Sql::Horizon, Vec::new()));
            all.push((Sql::NoncesClaim, vec![Box::new(hashes) as Column<'_>, Box::new(stamps)]));
        }
        if !self.merchants.is_empty() {
            all.push((Sql::HeadsLock, vec![Box::new(&self.merchants)]));
        }
        if !self.deliveries.is_empty() {
            all.push((Sql::DeliveriesLock, vec![Box::new(&self.deliveries)]));
        }
        if !self.event_nos.is_empty() {
            all.push((Sql::EventsTaken, vec![Box::new(&self.event_nos), Box::new(&self.event_ids)]));
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
        if !self.merchants.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "fee_rule_head", 0, 0);
                seen.rows.heads.insert(f.int()?, f.int()?);
            }
        }
        if !self.deliveries.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "delivery", 0, 0);
                let (event, attempts, state) = (f.int()?, f.int()?, f.text()?);
                let state = DeliveryState::from_name(&state);
                seen.rows.deliveries.insert(event, state.map(|_| attempts));
            }
        }
        if !self.event_nos.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "event", 0, 0);
                seen.rows.event_nos.insert(f.int()?);
                seen.rows.event_ids.insert(u128::from_be_bytes(f.bytes()?));
            }
        }
        Ok(seen)
    }
}

/// Rows that guards look at.
#[derive(Debug, Default)]
struct Rows {
    /// Version of each rule head.
    heads: HashMap<i64, i64>,
    /// Attempts of each delivery; `None`: it cannot be read back.
    deliveries: HashMap<i64, Option<i64>>,
    event_nos: HashSet<i64>,
    event_ids: HashSet<u128>,
}

/// What the first round trip found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) horizon: i64,
    /// Claims that this transaction inserted.
    inserted: HashSet<ClaimHash>,
    rows: Rows,
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
struct Turn {
    claims: Vec<(ClaimHash, Undo)>,
    rows: Rows,
}

fn guard(holds: bool, conflict: Conflict) -> Result<(), CommitError> {
    if holds { Ok(()) } else { Err(CommitError::Conflict(conflict)) }
}

impl<'a> Judge<'a> {
    pub(super) fn new(nonces: &'a Nonces, seen: Seen) -> Self {
        nonces.raise_horizon(seen.horizon);
        Self { nonces, seen, plan: Plan::default(), claims: Vec::new() }
    }

    /// Lets a batch through and plans its writes, or refuses it and leaves everything as it was.
    pub(super) fn batch(&mut self, writes: &'a [Write]) -> Result<(), CommitError> {
        let mut turn = Turn::default();
        for write in writes.iter().filter_map(grouped) {
            if let Err(refused) = self.write(&mut turn, write) {
                self.nonces.undo(turn.claims.into_iter().map(|(_, undo)| undo).collect());
                return Err(refused);
            }
        }
        for (hash, undo) in turn.claims {
            self.seen.inserted.remove(&hash);
            self.claims.push(undo);
        }
        let rows = &mut self.seen.rows;
        rows.heads.extend(turn.rows.heads);
        rows.deliveries.extend(turn.rows.deliveries);
        rows.event_nos.extend(turn.rows.event_nos);
        rows.event_ids.extend(turn.rows.event_ids);
        for write in writes.iter().filter_map(grouped) {
            self.plan.add(write);
        }
        Ok(())
    }

    /// Claims that this transaction inserted and no batch was let through with.
    pub(super) fn left_over(&self) -> Vec<Vec<u8>> {
        sorted(self.seen.inserted.iter().map(|hash| hash.to_bytes().to_vec()).collect())
    }

    fn write(&self, turn: &mut Turn, write: Grouped<'_>) -> Result<(), CommitError> {
        let seen = &self.seen.rows;
        match write {
            Grouped::Claim(claim) => self.claim(turn, claim),
            Grouped::Rule { merchant, version, .. } => {
                let head = turn.rows.heads.get(&merchant.0).or_else(|| seen.heads.get(&merchant.0)).copied();
                guard(head.unwrap_or(0) == version.version_no - 1, Conflict::Moved(Key::RuleHead(merchant)))?;
                turn.rows.heads.insert(merchant.0, version.version_no);
                Ok(())
            }
            Grouped::Event(row) => {
                let (no, id) = (row.no.0, row.event_id.0);
                let is_new = turn.rows.event_nos.insert(no) && !seen.event_nos.contains(&no);
                let is_new = turn.rows.event_ids.insert(id) && !seen.event_ids.contains(&id) && is_new;
                guard(is_new, Conflict::Taken(Key::Event(row.event_id)))?;
                turn.rows.deliveries.insert(no, Some(row.attempts));
                Ok(())
            }
            Grouped::Attempt { attempt, .. } => {
                let no = attempt.event.0;
                let found = turn.rows.deliveries.get(&no).or_else(|| seen.deliveries.get(&no));
                let attempts = match found {
                    Some(Some(attempts)) => Some(*attempts),
                    Some(None) => return Err(StoreError::Corrupt { table: "delivery", row: no.to_string() }.into()),
                    None => None,
                };
                guard(attempts == Some(attempt.attempt - 1), Conflict::Moved(Key::Delivery(attempt.event)))?;
                turn.rows.deliveries.insert(no, Some(attempt.attempt));
                Ok(())
            }
            Grouped::Audit(_) => Ok(()),
        }
    }

    fn claim(&self, turn: &mut Turn, claim: &ClaimKey) -> Result<(), CommitError> {
        let used = CommitError::Conflict(Conflict::NonceUsed);
        let hash = self.nonces.hash(claim);
        if claim.stamped_at.0 <= self.seen.horizon {
            return Err(used);
        }
        let Ok(undo) = self.nonces.claim(hash, claim.stamped_at.0) else { return Err(used) };
        if self.seen.inserted.contains(&hash) {
            turn.claims.push((hash, undo));
            return Ok(());
        }
        // Another node has it: from now on this one knows.
        Err(used)
    }
}
