//! Makes claims last: many in one transaction, or those of one tenant where the tables may be spread by tenant.
//!
//! Invariant: nobody hears `Fresh` before the transaction that inserted his claim is committed, and nobody hears `Used` because of a row
//! that may be his own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::{Error, Row};

use super::fault::{Trouble, trouble, words};
use super::nonces::{Nonces, Settling, read_claims};
use super::session::{Dial, Session, Step, each_in_order};
use super::statements::Sql;
use crate::contract::{Claimed, StoreError};
use crate::window::ClaimHash;

/// Claims that are taken on at once at most.
const CLAIMS_MAX: usize = 512;
/// How often a transaction is begun again before its claims are answered 503.
const TRIES_MAX: u32 = 3;
/// How long the database may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The statements of a transaction that only claims, between `BEGIN` and `COMMIT`.
const CLAIMING: &[Sql] = &[Sql::ClaimLock, Sql::Horizon, Sql::NoncesClaim];
const STEPS: usize = CLAIMING.len() + 2;

/// Settles claims.
#[derive(Debug)]
pub(super) struct Settler {
    dial: Arc<Dial>,
    nonces: Arc<Nonces>,
    /// Whether a transaction is of one tenant.
    by_tenant: bool,
}

/// Why a transaction of claims was not done.
#[derive(Clone)]
struct Failure {
    why: String,
    trouble: Trouble,
}

impl Failure {
    fn new(error: &Error) -> Self {
        Self { why: words(error), trouble: trouble(error) }
    }

    fn silent() -> Self {
        Self { why: "the database does not answer".to_owned(), trouble: Trouble::Lost }
    }

    fn answer(&self) -> StoreError {
        match self.trouble {
            Trouble::Unfit => StoreError::Unfit(self.why.clone()),
            Trouble::Lost | Trouble::Again | Trouble::Away => StoreError::Unavailable(self.why.clone()),
        }
    }
}

/// Claims of one transaction.
struct Group {
    claims: Vec<Settling>,
    /// The transaction may have been done unseen: a row that is there may be our own.
    in_doubt: bool,
}

/// The horizon and the claims that were inserted.
type Inserted = (i64, Vec<(ClaimHash, i64)>);

impl Settler {
    pub(super) const fn new(dial: Arc<Dial>, nonces: Arc<Nonces>, by_tenant: bool) -> Self {
        Self { dial, nonces, by_tenant }
    }

    /// Settles until nobody can ask any more.
    pub(super) async fn run(self, mut queue: mpsc::Receiver<Settling>) {
        let mut session = None;
        let mut claims = Vec::with_capacity(CLAIMS_MAX);
        while queue.recv_many(&mut claims, CLAIMS_MAX).await > 0 {
            let groups = self.groups(std::mem::take(&mut claims));
            self.settle(&mut session, groups).await;
        }
    }

    /// The claims as they are settled together, in the order of their keys, as everywhere, so that two nodes do not wait for each other.
    fn groups(&self, mut claims: Vec<Settling>) -> Vec<Group> {
        claims.sort_unstable_by_key(|claim| (claim.tenant, claim.hash.to_bytes()));
        let mut groups: BTreeMap<i64, Vec<Settling>> = BTreeMap::new();
        for claim in claims {
            groups.entry(if self.by_tenant { claim.tenant } else { 0 }).or_default().push(claim);
        }
        groups.into_values().map(|claims| Group { claims, in_doubt: false }).collect()
    }

    async fn settle(&self, session: &mut Option<Session>, mut groups: Vec<Group>) {
        for tried in 1.. {
            let outcomes = self.each(session, &groups).await;
            let mut again = Vec::new();
            for (mut group, outcome) in groups.into_iter().zip(outcomes) {
                match outcome {
                    Ok((horizon, inserted)) => {
                        self.nonces.raise_horizon(horizon);
                        self.answer(group, horizon, &inserted);
                    }
                    Err(Failure { trouble: trouble @ (Trouble::Lost | Trouble::Again), .. }) if tried < TRIES_MAX => {
                        group.in_doubt |= trouble == Trouble::Lost;
                        again.push(group);
                    }
                    Err(failure) => self.refuse(group, &failure),
                }
            }
            if again.is_empty() {
                return;
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
                Ok(Claimed::Fresh)
            } else if claim.stamped_at <= horizon {
                Ok(Claimed::TooOld)
            } else if group.in_doubt {
                Err(StoreError::Unavailable(
                    "the connection to the database broke while this nonce was claimed".to_owned(),
                ))
            } else {
                Ok(Claimed::Used)
            };
            // Whoever went away has no use for the answer.
            drop(claim.answer.send(answer));
        }
    }

    fn refuse(&self, group: Group, failure: &Failure) {
        for claim in group.claims {
            self.nonces.unsettled(claim.hash, claim.stamped_at);
            drop(claim.answer.send(Err(failure.answer())));
        }
    }

    /// A transaction for each group, all sent one behind the other without waiting. Leaves no session behind one that broke.
    async fn each(&self, kept: &mut Option<Session>, groups: &[Group]) -> Vec<Result<Inserted, Failure>> {
        let session = match kept.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => match self.connect().await {
                Ok(session) => session,
                Err(failure) => return groups.iter().map(|_| Err(failure.clone())).collect(),
            },
        };
        let columns: Vec<_> = groups.iter().map(columns).collect();
        let steps = columns.iter().flat_map(|(tenants, hashes, stamps)| {
            let steps: [Step<'_>; STEPS] = [
                session.word("BEGIN"),
                session.step(Sql::ClaimLock, Vec::new()),
                session.step(Sql::Horizon, Vec::new()),
                session.step(Sql::NoncesClaim, vec![tenants, hashes, stamps]),
                session.word("COMMIT"),
            ];
            steps
        });
        let steps = steps.collect();
        let Ok(mut found) = tokio::time::timeout(ANSWER_TIMEOUT, each_in_order(steps)).await else {
            return groups.iter().map(|_| Err(Failure::silent())).collect();
        };
        let mut outcomes = Vec::with_capacity(groups.len());
        while found.len() >= STEPS {
            let rest = found.split_off(STEPS);
            outcomes.push(outcome(found));
            found = rest;
        }
        // The commit behind a failed statement has rolled back.
        let lost = |outcome: &Result<Inserted, Failure>| {
            outcome.as_ref().is_err_and(|failure| failure.trouble == Trouble::Lost)
        };
        *kept = Some(session).filter(|_| !outcomes.iter().any(lost));
        outcomes
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let away = |error: StoreError| Failure { why: error.to_string(), trouble: Trouble::Away };
        let session = self.dial.session().await.map_err(away)?;
        session.prepare(CLAIMING).await.map_err(|error| Failure::new(&error))?;
        Ok(session)
    }
}

fn columns(group: &Group) -> (Vec<i64>, Vec<Vec<u8>>, Vec<i64>) {
    let claims = &group.claims;
    (
        claims.iter().map(|claim| claim.tenant).collect(),
        claims.iter().map(|claim| claim.hash.to_bytes().to_vec()).collect(),
        claims.iter().map(|claim| claim.stamped_at).collect(),
    )
}

/// What became of one transaction, by what became of its steps.
fn outcome(steps: Vec<Result<Vec<Row>, Error>>) -> Result<Inserted, Failure> {
    let rows = steps.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| Failure::new(&error))?;
    read_claims(&rows[2], &rows[3]).map_err(|error| Failure { why: error.to_string(), trouble: Trouble::Unfit })
}
