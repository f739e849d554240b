//! Makes claims last: many in one transaction, or those of one tenant where the tables may be spread by tenant.
//!
//! Invariant: nobody hears `Fresh` before the transaction that inserted its claim is committed, and nobody hears `Used` because of a row
//! that may be its own: every row says which group of claims inserted it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Error, Row};

use super::commit_lane::FATE_PERIOD;
use super::dial::Dial;
use super::fault::{Failure, Trouble};
use super::nonces::{Nonces, Settling, read_claims};
use super::pipeline::each_in_order;
use super::session::Step;
use super::statements::Sql;
use super::writer_connections::WriterConnections;
use crate::contract::Claimed;
use crate::window::ClaimHash;

/// Claims that are taken on at once at most.
const CLAIMS_MAX: usize = 512;
/// How often a transaction is begun again before its claims are answered 503.
const TRIES_MAX: u32 = 3;

/// What it needs prepared.
const CLAIMING: &[Sql] = &[Sql::ClaimLock, Sql::Horizon, Sql::NoncesSettle, Sql::NoncesSettleAgain];
/// The steps of a transaction: `BEGIN`, the lock, the horizon, the claims, `COMMIT`.
const STEPS: usize = 5;
const HORIZON: usize = 2;
const CLAIMS: usize = 3;
const COMMIT: usize = 4;

/// Settles claims.
#[derive(Debug)]
pub(super) struct Settler {
    connections: WriterConnections,
    nonces: Arc<Nonces>,
    /// Whether a transaction is of one tenant.
    by_tenant: bool,
    /// The number of the last group, in its rows: those of two openings begin at places chosen by chance.
    number: i64,
}

/// Claims of one transaction.
struct Group {
    claims: Vec<Settling>,
    number: i64,
    /// Since when its transaction may have been done unseen.
    doubt: Option<Instant>,
}

/// The horizon and the claims that this group inserted.
type Inserted = (i64, Vec<(ClaimHash, i64)>);

impl Settler {
    /// `node` names this opening among all others.
    pub(super) fn new(dial: Arc<Dial>, nonces: Arc<Nonces>, by_tenant: bool, node: [u8; 16]) -> Self {
        let number = node.first_chunk().copied().map_or(0, i64::from_be_bytes);
        Self { connections: WriterConnections::new(dial, CLAIMING), nonces, by_tenant, number }
    }

    /// Settles until nobody can ask any more.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Settling>) {
        let mut claims = Vec::with_capacity(CLAIMS_MAX);
        while queue.recv_many(&mut claims, CLAIMS_MAX).await > 0 {
            let age = self.connections.limits().age();
            let (claims, late): (Vec<_>, Vec<_>) = claims.drain(..).partition(|claim| claim.since.elapsed() < age);
            self.refuse(late, &Failure::late());
            let groups = self.groups(claims);
            self.settle(groups).await;
        }
    }

    /// The claims as they are settled together, in the order of their keys, as everywhere, so that two nodes do not wait for each other.
    fn groups(&mut self, mut claims: Vec<Settling>) -> Vec<Group> {
        claims.sort_unstable_by_key(|claim| (claim.tenant, claim.hash.to_bytes()));
        let mut groups: BTreeMap<i64, Vec<Settling>> = BTreeMap::new();
        for claim in claims {
            groups.entry(if self.by_tenant { claim.tenant } else { 0 }).or_default().push(claim);
        }
        let group = |claims| {
            self.number = self.number.wrapping_add(1);
            Group { claims, number: self.number, doubt: None }
        };
        groups.into_values().map(group).collect()
    }

    async fn settle(&mut self, mut groups: Vec<Group>) {
        let begun = Instant::now();
        let mut tries = 1;
        while !groups.is_empty() {
            let outcomes = self.each(&mut groups).await;
            let (limits, mut again) = (self.connections.limits(), Vec::new());
            for (group, outcome) in groups.into_iter().zip(outcomes) {
                let failure = match outcome {
                    Ok((horizon, inserted)) => {
                        self.nonces.raise_horizon(horizon);
                        self.answer(group, horizon, &inserted);
                        continue;
                    }
                    Err(failure) => failure,
                };
                let may_go_well = matches!(failure.trouble, Trouble::Again | Trouble::Lost);
                match group.doubt {
                    Some(since) if since.elapsed() < limits.fate() => again.push(group),
                    Some(_) => self.doubtful(group, &failure),
                    None if may_go_well && tries < TRIES_MAX && begun.elapsed() < limits.age() => again.push(group),
                    None => self.refuse(group.claims, &failure),
                }
            }
            tries += 1;
            if again.iter().any(|group| group.doubt.is_some()) {
                sleep(FATE_PERIOD).await;
            }
            groups = again;
        }
    }

    fn answer(&self, group: Group, horizon: i64, inserted: &[(ClaimHash, i64)]) {
        let mut inserted: Vec<[u8; 16]> = inserted.iter().map(|(hash, _)| hash.to_bytes()).collect();
        inserted.sort_unstable();
        for claim in group.claims {
            self.nonces.settled(claim.hash, claim.stamped_at);
            let answer = if inserted.binary_search(&claim.hash.to_bytes()).is_ok() {
                Claimed::Fresh
            } else if claim.stamped_at > horizon {
                Claimed::Used
            } else if group.doubt.is_some() {
                // The row may have been ours, and be deleted by now.
                Claimed::InDoubt
            } else {
                Claimed::TooOld
            };
            // Whoever went away has no use for the answer.
            drop(claim.answer.send(Ok(answer)));
        }
    }

    /// Nothing was done.
    fn refuse(&self, claims: Vec<Settling>, failure: &Failure) {
        for claim in claims {
            self.nonces.unsettled(claim.hash, claim.stamped_at);
            if claim.answer.send(Err(self.connections.refusal(failure))).is_err() {
                // Whoever went away cannot give it back.
                self.nonces.give_back(claim.hash, claim.stamped_at);
            }
        }
    }

    /// Nobody knows what was done.
    fn doubtful(&self, group: Group, failure: &Failure) {
        tracing::error!(error = failure.why, "A connection broke while nonces were claimed, and nobody can be asked");
        for claim in group.claims {
            self.nonces.in_doubt(claim.hash, claim.stamped_at);
            drop(claim.answer.send(Ok(Claimed::InDoubt)));
        }
    }

    /// A transaction for each group, all sent one behind the other without waiting. Notes which may have been done without an answer.
    async fn each(&mut self, groups: &mut [Group]) -> Vec<Result<Inserted, Failure>> {
        let session = match self.connections.open().await {
            Ok(session) => session,
            Err(failure) => return groups.iter().map(|_| Err(failure.clone())).collect(),
        };
        let columns: Vec<_> = groups.iter().map(columns).collect();
        let steps = columns.iter().flat_map(|(claim, tenants, hashes, stamps, number)| {
            let steps: [Step<'_>; STEPS] = [
                session.word("BEGIN"),
                session.step(Sql::ClaimLock, Vec::new()),
                session.step(Sql::Horizon, Vec::new()),
                session.step(*claim, vec![tenants, hashes, stamps, number]),
                session.word("COMMIT"),
            ];
            steps
        });
        let outcomes = match timeout(self.connections.limits().look(), each_in_order(steps.collect())).await {
            // It is not told which of the commits the warning was about.
            Ok(_) if session.was_warned() => groups.iter().map(|_| Err(Failure::warned())).collect(),
            Ok(found) => by_transaction(found),
            Err(_) => groups.iter().map(|_| Err(Failure::silent())).collect(),
        };
        drop(columns);
        let mut worst = None;
        for (group, outcome) in groups.iter_mut().zip(&outcomes) {
            let Err(failure) = outcome else { continue };
            if failure.leaves_doubt() {
                group.doubt.get_or_insert_with(Instant::now);
            }
            if worst.is_none() || failure.leaves_doubt() {
                worst = Some(failure.clone());
            }
        }
        match worst {
            // Without a row there was nothing to wait for a standby with.
            None if outcomes.iter().flatten().any(|(_, inserted)| !inserted.is_empty()) => {
                self.connections.proved(session);
            }
            None => self.connections.keep(session),
            Some(failure) => self.connections.after(session, &failure),
        }
        outcomes
    }
}

/// How a group claims, and with what: the tenants, hashes and stamps of its claims, and its number.
type Columns = (Sql, Vec<i64>, Vec<Vec<u8>>, Vec<i64>, i64);

fn columns(group: &Group) -> Columns {
    let claims = &group.claims;
    (
        if group.doubt.is_some() { Sql::NoncesSettleAgain } else { Sql::NoncesSettle },
        claims.iter().map(|claim| claim.tenant).collect(),
        claims.iter().map(|claim| claim.hash.to_bytes().to_vec()).collect(),
        claims.iter().map(|claim| claim.stamped_at).collect(),
        group.number,
    )
}

/// What became of each transaction, by what became of all steps.
fn by_transaction(mut found: Vec<Result<Vec<Row>, Error>>) -> Vec<Result<Inserted, Failure>> {
    let mut outcomes = Vec::new();
    while found.len() >= STEPS {
        let rest = found.split_off(STEPS);
        outcomes.push(outcome(found));
        found = rest;
    }
    outcomes
}

fn outcome(steps: Vec<Result<Vec<Row>, Error>>) -> Result<Inserted, Failure> {
    let of_step = |(at, step): (usize, Result<Vec<Row>, Error>)| {
        step.map_err(|error| if at == COMMIT { Failure::in_commit(&error) } else { Failure::new(&error) })
    };
    let rows = steps.into_iter().enumerate().map(of_step).collect::<Result<Vec<_>, _>>()?;
    Ok(read_claims(&rows[HORIZON], &rows[CLAIMS])?)
}
