//! Which nonces are used: the database says so, for all nodes. The window of this process only ever says no faster.
//!
//! Invariant: nobody hears `Fresh` from [`crate::Store::settle`], and no batch with a claim is acknowledged, before the row that this
//! claim inserted is committed. A reservation is local: of two nodes that reserve the same nonce, only one can settle or commit it.

use std::sync::atomic::AtomicU32;

use countersign_domain::time::UnixMillis;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::rows::Fields;
use crate::contract::{ClaimKey, Claimed, StoreError};
use crate::window::{ClaimHash, Seen, Undo, Window};

/// What this process knows of nonces.
#[derive(Debug)]
pub(super) struct Nonces {
    key: [u8; 16],
    window: Window,
    /// Purges in a row that failed.
    pub(super) misses: AtomicU32,
}

impl Nonces {
    pub(super) fn new(key: [u8; 16], horizon: i64) -> Self {
        // Nothing is unknowable: what was acknowledged is in the database.
        Self { key, window: Window::new(horizon, i64::MIN), misses: AtomicU32::new(0) }
    }

    pub(super) fn hash(&self, claim: &ClaimKey) -> ClaimHash {
        ClaimHash::of(&self.key, claim)
    }

    pub(super) fn reserve(&self, claim: &ClaimKey) -> Claimed {
        self.window.reserve(self.hash(claim), claim.stamped_at.0).into()
    }

    pub(super) fn first_stamped(&self, claim: &ClaimKey) -> Option<UnixMillis> {
        self.window.first_stamped(self.hash(claim)).map(UnixMillis)
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

    /// A claim is in the database, ours or another's.
    pub(super) fn settled(&self, hash: ClaimHash, stamped_at: i64) {
        self.window.settled(hash, stamped_at);
    }

    /// Gives back a reservation by its hash.
    pub(super) fn give_back(&self, hash: ClaimHash, stamped_at: i64) {
        self.window.release(hash, stamped_at);
    }

    /// A claim may not be in the database: it stays reserved.
    pub(super) fn unsettled(&self, hash: ClaimHash, stamped_at: i64) {
        self.window.unsettled(hash, stamped_at);
    }

    /// Nobody can say whether a claim is in the database. When it comes again, the database is asked, here as on any other node.
    pub(super) fn in_doubt(&self, hash: ClaimHash, stamped_at: i64) {
        self.window.disown(hash, stamped_at);
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
    pub(super) tenant: i64,
    pub(super) hash: ClaimHash,
    pub(super) stamped_at: i64,
    pub(super) since: Instant,
    pub(super) answer: oneshot::Sender<Result<Claimed, StoreError>>,
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
    place.send(Settling { tenant: claim.tenant.0, hash, stamped_at, since: Instant::now(), answer });
    waiting.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store has ended".to_owned())))
}
