//! A batch inside a transaction: first every guard, then every write.
//!
//! Invariant: where no two writes of a batch can touch the same row, nothing is written before every guard held, so a refused batch
//! needs no savepoint. Other batches are applied write by write under one.

use std::sync::{Arc, OnceLock};

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;

use super::guards::{guard, lane_at};
use super::heads::{Heads, Marks};
use super::nonces::Nonces;
use super::purge::Passed;
use super::statements::{Kept, Sql};
use super::writes;
use crate::attempt_log::AttemptBytes;
use crate::batch::{Batch, Committed, Conflict, Guard, Key, Write};
use crate::chain::ChainKey;
use crate::contract::{AttemptRow, CommitError, StoreError};
use crate::window::Undo;

/// Why a batch was not applied.
#[derive(Debug)]
pub(super) enum Stop {
    /// For a reason of its own; the transaction is as before it.
    Refused(CommitError),
    /// SQLite failed; the transaction must be rolled back.
    Broken(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<Conflict> for Stop {
    fn from(conflict: Conflict) -> Self {
        Self::Refused(CommitError::Conflict(conflict))
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Refused(CommitError::Store(error))
    }
}

/// What a guard read that its write needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Nothing,
    /// Row numbers of the version before and of the base.
    Rule {
        previous_no: Option<i64>,
        base_no: Option<i64>,
    },
}

/// Applies batches on the writer's connection.
pub(super) struct Applier<'c> {
    pub(super) kept: Kept<'c>,
    pub(super) nonces: &'c Nonces,
    /// Nonces that the open transaction claimed.
    pub(super) claimed: Vec<Undo>,
    found: Vec<Found>,
    pub(super) heads: Heads,
    /// Nonces that purges have passed over.
    pub(super) passed: Passed,
}

/// Rows that writes of one family may share; each is a bit.
const fn family(write: &Write) -> u32 {
    match write {
        Write::ClaimNonce(_) => 1,
        // What was paid last is read by the one and written by the other.
        Write::AppendRule { .. } => 1 << 1 | 1 << 12,
        Write::Guard(Guard::RuleHead { .. }) => 1 << 1,
        Write::InsertMerchant(_) | Write::UpdateMerchant(_) => 1 << 2,
        // What it does follows from merchants and applications, as they are by then.
        Write::Reassess { .. } => 1 << 2 | 1 << 3 | 1 << 7,
        Write::InsertApplication(_) | Write::UpdateApplication(_) | Write::Guard(Guard::Application { .. }) => 1 << 3,
        Write::InsertSecret(_) | Write::UpdateSecret(_) | Write::RewrapSecret { .. } => 1 << 4,
        Write::InsertToken(_) | Write::RevokeToken { .. } | Write::Guard(Guard::Token { .. }) => 1 << 5,
        Write::InsertConvertOrder { .. }
        | Write::MoveConvertOrder { .. }
        | Write::Convert(_)
        | Write::Guard(Guard::UnusedQuote { .. }) => 1 << 6,
        Write::PaymentOrder(_) => 1 << 11 | 1 << 12,
        Write::Guard(Guard::PaymentOrder { .. }) => 1 << 11,
        Write::EnqueueEvent(_)
        | Write::RecordAttempt { .. }
        | Write::ForgetEvents { .. }
        | Write::Turn { .. }
        | Write::ReleaseHeld { .. }
        | Write::HoldPending { .. }
        | Write::Defer { .. }
        | Write::Redeliver { .. }
        | Write::SendNow { .. } => 1 << 7,
        Write::Redelivery(_) => 1 << 7 | 1 << 10,
        Write::RememberAnswer(_) | Write::ForgetAnswers { .. } => 1 << 8,
        Write::PutSetting { .. } | Write::MoveSetting { .. } | Write::Guard(Guard::Setting { .. }) => 1 << 9,
        // No guard reads what these write.
        Write::AddUses(_)
        | Write::RecordAudit(_)
        | Write::ForgetBytes { .. }
        | Write::Guard(Guard::TokenLetGo { .. } | Guard::Lane { .. } | Guard::Before { .. } | Guard::Reached { .. }) => {
            0
        }
    }
}

/// Whether a guard of the batch may depend on an earlier write of it.
fn depends_on_itself(batch: &Batch) -> bool {
    let mut seen = 0;
    batch.0.iter().any(|write| {
        let twice = seen & family(write) != 0;
        seen |= family(write);
        twice
    })
}

impl<'c> Applier<'c> {
    pub(super) fn new(kept: Kept<'c>, nonces: &'c Nonces, chain: Arc<OnceLock<ChainKey>>) -> Self {
        Self {
            kept,
            nonces,
            claimed: Vec::new(),
            found: Vec::new(),
            heads: Heads::new(chain),
            passed: Passed::default(),
        }
    }

    /// Applies a batch inside the open transaction.
    pub(super) fn batch(&mut self, batch: &Batch, marks: &Marks) -> Result<Committed, Stop> {
        let claimed_before = self.claimed.len();
        self.heads.begin(marks);
        let outcome = match batch.0.as_slice() {
            [Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at }] => {
                self.attempt_alone(*tenant, *application, attempt, bytes.as_deref(), *state, *due_at)
            }
            _ if depends_on_itself(batch) => self.one_by_one(batch),
            _ => self.guards_first(batch),
        };
        if outcome.is_err() {
            self.unclaim(claimed_before);
            self.heads.undo();
        }
        outcome
    }

    /// The transaction was committed: what it claimed stays claimed.
    pub(super) fn committed(&mut self) {
        self.claimed.clear();
    }

    /// The transaction was rolled back: so are its claims.
    pub(super) fn rolled_back(&mut self) {
        self.unclaim(0);
        self.heads.forget();
        self.passed = Passed::default();
    }

    fn unclaim(&mut self, keep: usize) {
        for undo in self.claimed.drain(keep..).rev() {
            self.nonces.undo(&undo);
        }
    }

    /// The one write of most batches there are: what its guard asks for is the condition of its first statement, and nothing is written where
    /// that does not hold.
    fn attempt_alone(
        &mut self,
        tenant: TenantNo,
        application: ApplicationNo,
        attempt: &AttemptRow,
        bytes: Option<&AttemptBytes>,
        state: DeliveryState,
        due_at: Option<UnixMillis>,
    ) -> Result<Committed, Stop> {
        lane_at(application, attempt.fence)?;
        if !writes::record_attempt(&mut self.kept, tenant, attempt, bytes, state, due_at)? {
            // Whether it has moved on, or cannot be read.
            self.check_attempt(tenant, application, attempt)?;
            guard(false, Conflict::Moved(Key::Delivery(attempt.event)))?;
        }
        Ok(Committed::default())
    }

    fn guards_first(&mut self, batch: &Batch) -> Result<Committed, Stop> {
        self.found.clear();
        for write in &batch.0 {
            let found = self.check(write)?;
            self.found.push(found);
        }
        let mut committed = Committed::default();
        for (at, write) in batch.0.iter().enumerate() {
            writes::write(&mut self.kept, &mut self.heads, self.nonces, write, self.found[at], &mut committed)?;
        }
        Ok(committed)
    }

    fn one_by_one(&mut self, batch: &Batch) -> Result<Committed, Stop> {
        self.kept.run(Sql::Savepoint, [])?;
        let mut committed = Committed::default();
        for write in &batch.0 {
            let done = self.check(write).and_then(|found| {
                let written = writes::write(&mut self.kept, &mut self.heads, self.nonces, write, found, &mut committed);
                written.map_err(Stop::Broken)
            });
            match done {
                Ok(()) => {}
                Err(Stop::Refused(why)) => {
                    self.kept.run(Sql::SavepointUndo, [])?;
                    self.kept.run(Sql::SavepointRelease, [])?;
                    return Err(Stop::Refused(why));
                }
                Err(broken @ Stop::Broken(_)) => return Err(broken),
            }
        }
        self.kept.run(Sql::SavepointRelease, [])?;
        Ok(committed)
    }
}
