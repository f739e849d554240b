//! Which nonces are used: the window that answers, the journal that remembers, and the mark that covers a reboot.
//!
//! Invariant: no nonce is given out unless its timestamp lies at or below the durable replay mark. After a reboot of the machine
//! the journal may have lost its unsynced end, and everything at or below that mark that is not known is `Unknowable`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::journal::Journal;
use countersign_domain::time::UnixMillis;

use crate::contract::{ClaimKey, Claimed, StoreError};
use crate::window::{ClaimHash, Seen, Undo, Window};

/// How far ahead of a timestamp the replay mark is raised.
pub(super) const MARK_AHEAD_MS: i64 = 2000;
/// When less than this is left, the mark is raised while requests go on.
const MARK_NEAR_MS: i64 = 1000;

/// What a timestamp asks of the replay mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkNeed {
    /// It lies well below.
    Nothing,
    /// It lies below; somebody should raise the mark soon, and it is this caller.
    Soon(i64),
    /// It lies above: raise the mark to this first.
    First(i64),
}

/// The nonces of one database.
pub(super) struct Nonces {
    key: [u8; 16],
    window: Window,
    journal: Journal,
    mark: AtomicI64,
    /// The highest mark that was asked for.
    asked: AtomicI64,
}

impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nonces").field("window", &self.window).field("mark", &self.mark).finish_non_exhaustive()
    }
}

/// A reservation that is given back unless it is kept.
pub(super) struct Hold<'a> {
    nonces: &'a Nonces,
    claim: &'a ClaimKey,
    is_kept: bool,
}

impl<'a> Hold<'a> {
    pub(super) const fn new(nonces: &'a Nonces, claim: &'a ClaimKey) -> Self {
        Self { nonces, claim, is_kept: false }
    }

    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.nonces.release(self.claim);
        }
    }
}

impl Nonces {
    pub(super) fn new(key: [u8; 16], window: Window, journal: Journal, mark: i64) -> Self {
        Self { key, window, journal, mark: AtomicI64::new(mark), asked: AtomicI64::new(mark) }
    }

    /// The keyed hash of an application's nonce. The timestamp is no part of it.
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

    /// Makes a nonce last. The mark must cover its timestamp.
    pub(super) async fn settle(&self, claim: &ClaimKey) -> Result<Claimed, StoreError> {
        let (hash, stamped_at) = (self.hash(claim), claim.stamped_at.0);
        match self.window.settling(hash, stamped_at) {
            Seen::Taken => {}
            refused @ (Seen::Used | Seen::TooOld | Seen::Unknowable) => return Ok(refused.into()),
        }
        match self.journal.append(hash, stamped_at).await {
            Ok(()) => {
                self.window.settled(hash, stamped_at);
                Ok(Claimed::Fresh)
            }
            Err(error) => {
                self.window.unsettled(hash, stamped_at);
                Err(StoreError::Unavailable(error.to_string()))
            }
        }
    }

    /// Claims a nonce for a batch.
    pub(super) fn claim(&self, hash: ClaimHash, stamped_at: i64) -> Result<Undo, Seen> {
        self.window.claim(hash, stamped_at)
    }

    pub(super) fn undo(&self, undo: &Undo) {
        self.window.undo(undo);
    }

    /// What must be done about the replay mark before a request with this timestamp is answered.
    pub(super) fn mark_need(&self, stamped_at: i64) -> MarkNeed {
        let wanted = stamped_at.saturating_add(MARK_AHEAD_MS);
        if stamped_at > self.mark.load(Ordering::Acquire) {
            return MarkNeed::First(wanted);
        }
        let near = stamped_at.saturating_add(MARK_NEAR_MS);
        if near <= self.asked.load(Ordering::Acquire) || self.asked.fetch_max(wanted, Ordering::AcqRel) >= near {
            return MarkNeed::Nothing;
        }
        MarkNeed::Soon(wanted)
    }

    /// The mark is durable up to here.
    pub(super) fn mark_raised(&self, mark: i64) {
        self.mark.fetch_max(mark, Ordering::AcqRel);
        self.asked.fetch_max(mark, Ordering::AcqRel);
    }

    pub(super) fn horizon(&self) -> i64 {
        self.window.horizon()
    }

    pub(super) const fn unknowable_through(&self) -> i64 {
        self.window.unknowable_through()
    }

    /// The largest timestamp up to `horizon` of a nonce that is known.
    pub(super) fn newest_through(&self, horizon: i64) -> Option<i64> {
        self.window.newest_through(horizon)
    }

    /// The horizon is durable up to here.
    pub(super) fn horizon_raised(&self, horizon: i64) {
        self.window.raise_horizon(horizon);
    }

    /// Forgets, in memory and in the journal, what lies at or before the horizon.
    pub(super) fn forget(&self) -> Result<(), StoreError> {
        self.window.forget();
        let removed = self.journal.forget(self.horizon());
        removed.map_err(|error| StoreError::Unavailable(format!("an old nonce journal cannot be removed: {error}")))
    }

    /// Takes no more journal records.
    pub(super) fn stop(&self) {
        self.journal.stop();
    }

    /// Takes no more journal records and puts what there is on stable storage.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        let closed = self.journal.close();
        closed.map_err(|error| StoreError::Unavailable(format!("the nonce journal cannot be synced: {error}")))
    }
}

impl super::SqliteStore {
    /// What is stamped at or before this is too old, whatever the clock says.
    pub fn horizon(&self) -> UnixMillis {
        UnixMillis(self.nonces.horizon())
    }

    /// Begins the nonce journal's next file where none is begun: a folder in which no file can be made takes changes of the database, and no signed
    /// query.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn has_journal(&self) -> Result<(), StoreError> {
        let begun = self.nonces.journal.begin();
        begun.map_err(|error| StoreError::Unavailable(format!("the nonce journal cannot be begun: {error}")))
    }

    /// Files of the nonce journal that were found damaged when it was opened, and how many records of each cannot be read.
    pub fn damaged_journals(&self) -> Vec<(PathBuf, u64)> {
        self.nonces.journal.damaged().iter().map(|found| (found.path.clone(), found.records)).collect()
    }

    /// Since a crash of the machine, or a start that found the journal damaged, what is stamped at or before this and not known as used is
    /// answered `Unknowable`.
    pub fn unknowable_through(&self) -> UnixMillis {
        UnixMillis(self.nonces.unknowable_through())
    }

    /// The largest timestamp of a nonce that a purge up to `horizon` would forget; none: it would forget nothing. Walked on a thread that may
    /// block: there may be millions.
    pub async fn newest_nonce_through(&self, horizon: UnixMillis) -> Result<Option<UnixMillis>, StoreError> {
        let nonces = Arc::clone(&self.nonces);
        let newest = tokio::task::spawn_blocking(move || nonces.newest_through(horizon.0)).await;
        newest.map(|newest| newest.map(UnixMillis)).map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}
