//! Which nonces are used: the database says so, for all nodes. The window of this process only ever says no faster.
//!
//! Invariant: nobody hears `Fresh` from [`crate::Store::settle`], and no batch with a claim is acknowledged, before the row that this
//! claim inserted is committed. A reservation is local: of two nodes that reserve the same nonce, only one can settle or commit it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;

use super::fault::{Trouble, trouble, words};
use super::rows::Fields;
use super::session::{Dial, Session, in_order};
use super::statements::Sql;
use crate::contract::{ClaimKey, Claimed, StoreError};
use crate::window::{ClaimHash, Seen, Undo, Window};

/// Claims in one transaction at most.
const CLAIMS_MAX: usize = 512;
/// How often a transaction is begun again before its claims are answered 503.
const TRIES_MAX: u32 = 3;
/// How long the database may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The statements of a transaction that only claims.
const CLAIMING: &[Sql] = &[Sql::ClaimLock, Sql::Horizon, Sql::NoncesClaim];

/// What this process knows of nonces.
#[derive(Debug)]
pub(super) struct Nonces {
    key: [u8; 16],
    window: Window,
}

impl Nonces {
    pub(super) fn new(key: [u8; 16], horizon: i64) -> Self {
        // Nothing is unknowable: what was acknowledged is in the database.
        Self { key, window: Window::new(horizon, i64::MIN) }
    }

    pub(super) fn hash(&self, claim: &ClaimKey) -> ClaimHash {
        ClaimHash::of(&self.key, claim)
    }

    pub(super) fn reserve(&self, claim: &ClaimKey) -> Claimed {
        self.window.reserve(self.hash(claim), claim.stamped_at.0).into()
    }

    pub(super) fn release(&self, claim: &ClaimKey) {
        self.window.release(self.hash(claim), claim.stamped_at.0);
    }

    /// Takes a nonce for a batch, as far as this process knows.
    pub(super) fn claim(&self, hash: ClaimHash, stamped_at: i64) -> Result<Undo, Seen> {
        self.window.claim(hash, stamped_at)
    }

    pub(super) fn undo(&self, claims: Vec<Undo>) {
        for undo in claims.into_iter().rev() {
            self.window.undo(&undo);
        }
    }

    pub(super) fn horizon(&self) -> i64 {
        self.window.horizon()
    }

    pub(super) fn raise_horizon(&self, horizon: i64) {
        self.window.raise_horizon(horizon);
    }

    pub(super) fn forget(&self) {
        self.window.forget();
    }
}

/// The horizon and the claims that were inserted, with their tenants: what [`Sql::Horizon`] and [`Sql::NoncesClaim`] found.
pub(super) fn read_claims(horizon: &[Row], inserted: &[Row]) -> Result<(i64, Vec<(ClaimHash, i64)>), StoreError> {
    let Some(row) = horizon.first() else {
        return Err(StoreError::Corrupt { table: "replay", row: "1".to_owned() });
    };
    let horizon = Fields::new(row, "replay", 1, 0).int()?;
    let read = |row: &Row| {
        let mut f = Fields::new(row, "nonce", 0, 1);
        let tenant = f.int()?;
        Ok((ClaimHash::from_bytes(f.bytes()?), tenant))
    };
    Ok((horizon, inserted.iter().map(read).collect::<Result<_, StoreError>>()?))
}

/// A reserved nonce that is to last.
#[derive(Debug)]
pub(super) struct Settling {
    tenant: i64,
    hash: ClaimHash,
    stamped_at: i64,
    answer: oneshot::Sender<Result<Claimed, StoreError>>,
}

/// Settles claims, many in one transaction.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) dial: Arc<Dial>,
    pub(super) nonces: Arc<Nonces>,
}

/// Asks the settler for a nonce and waits.
pub(super) async fn settle(
    nonces: &Nonces,
    queue: &mpsc::Sender<Settling>,
    claim: &ClaimKey,
) -> Result<Claimed, StoreError> {
    let (hash, stamped_at) = (nonces.hash(claim), claim.stamped_at.0);
    let place = queue.try_reserve().map_err(|_| StoreError::Unavailable("too many requests are waiting".to_owned()))?;
    match nonces.window.settling(hash, stamped_at) {
        Seen::Taken => {}
        refused @ (Seen::Used | Seen::TooOld | Seen::Unknowable) => return Ok(refused.into()),
    }
    let (answer, waiting) = oneshot::channel();
    place.send(Settling { tenant: claim.tenant.0, hash, stamped_at, answer });
    waiting.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store has ended".to_owned())))
}

/// Why a transaction of claims was not done.
struct Failure {
    why: String,
    trouble: Trouble,
}

impl Settler {
    /// Settles until nobody can ask any more.
    pub(super) async fn run(self, mut queue: mpsc::Receiver<Settling>) {
        let mut session = None;
        let mut claims = Vec::with_capacity(CLAIMS_MAX);
        while queue.recv_many(&mut claims, CLAIMS_MAX).await > 0 {
            self.together(&mut session, &mut claims).await;
        }
    }

    async fn together(&self, session: &mut Option<Session>, claims: &mut Vec<Settling>) {
        // In the order of the keys, as everywhere, so that two nodes do not wait for each other.
        claims.sort_unstable_by_key(|claim| (claim.tenant, claim.hash.to_bytes()));
        // Once a transaction may have been done unseen, a row that is there may be our own.
        let mut in_doubt = false;
        for tried in 1.. {
            match self.once(session, claims).await {
                Ok((horizon, inserted)) => {
                    self.nonces.raise_horizon(horizon);
                    self.answer(claims, horizon, &inserted, in_doubt);
                    return;
                }
                Err(Failure { trouble: Trouble::Lost | Trouble::Again, .. }) if tried < TRIES_MAX => {
                    in_doubt |= session.is_none();
                }
                Err(failure) => {
                    for claim in claims.drain(..) {
                        self.nonces.window.unsettled(claim.hash, claim.stamped_at);
                        let refused = match failure.trouble {
                            Trouble::Unfit => StoreError::Unfit(failure.why.clone()),
                            Trouble::Lost | Trouble::Again | Trouble::Away => {
                                StoreError::Unavailable(failure.why.clone())
                            }
                        };
                        drop(claim.answer.send(Err(refused)));
                    }
                    return;
                }
            }
        }
    }

    fn answer(&self, claims: &mut Vec<Settling>, horizon: i64, inserted: &[(ClaimHash, i64)], in_doubt: bool) {
        let mut inserted: Vec<[u8; 16]> = inserted.iter().map(|(hash, _)| hash.to_bytes()).collect();
        inserted.sort_unstable();
        for claim in claims.drain(..) {
            self.nonces.window.settled(claim.hash, claim.stamped_at);
            let answer = if inserted.binary_search(&claim.hash.to_bytes()).is_ok() {
                Ok(Claimed::Fresh)
            } else if claim.stamped_at <= horizon {
                Ok(Claimed::TooOld)
            } else if in_doubt {
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

    /// One transaction. Leaves no session behind one that broke.
    async fn once(
        &self,
        kept: &mut Option<Session>,
        claims: &[Settling],
    ) -> Result<(i64, Vec<(ClaimHash, i64)>), Failure> {
        let session = match kept.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => self.connect().await?,
        };
        let tenants: Vec<i64> = claims.iter().map(|claim| claim.tenant).collect();
        let hashes: Vec<Vec<u8>> = claims.iter().map(|claim| claim.hash.to_bytes().to_vec()).collect();
        let stamps: Vec<i64> = claims.iter().map(|claim| claim.stamped_at).collect();
        let steps = vec![
            session.word("BEGIN"),
            session.step(Sql::ClaimLock, Vec::new()),
            session.step(Sql::Horizon, Vec::new()),
            session.step(Sql::NoncesClaim, vec![&tenants, &hashes, &stamps]),
            session.word("COMMIT"),
        ];
        match tokio::time::timeout(ANSWER_TIMEOUT, in_order(steps)).await {
            Ok(Ok(rows)) => {
                *kept = Some(session);
                read_claims(&rows[2], &rows[3])
                    .map_err(|error| Failure { why: error.to_string(), trouble: Trouble::Unfit })
            }
            Ok(Err((_, error))) => {
                let failure = Failure { why: words(&error), trouble: trouble(&error) };
                // The commit behind a failed statement has rolled back.
                *kept = Some(session).filter(|_| failure.trouble != Trouble::Lost);
                Err(failure)
            }
            Err(_) => Err(Failure { why: "the database does not answer".to_owned(), trouble: Trouble::Lost }),
        }
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let away = |error: StoreError| Failure { why: error.to_string(), trouble: Trouble::Away };
        let session = self.dial.session().await.map_err(away)?;
        let prepared = session.prepare(CLAIMING).await;
        prepared.map_err(|error| Failure { why: words(&error), trouble: trouble(&error) })?;
        Ok(session)
    }
}
