//! Commits whose callers do not learn what became of them, where a test asks for it: what a caller does then must be right whichever it was.

use std::sync::{Mutex, PoisonError};

use super::ModelStore;
use crate::batch::{Batch, Committed};
use crate::contract::{CommitError, StoreError};

/// What becomes of a commit, and what its caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Done, and nobody knows.
    Answer,
    /// Not done, and nobody knows.
    Both,
    /// Not done, and the caller is told so: the store is away.
    Change,
}

impl Lost {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Answer, Self::Both, Self::Change];
}

/// How many commits come before the one that is lost, and how.
#[derive(Debug, Default)]
pub(super) struct Losses(Mutex<Option<(u64, Lost)>>);

impl Losses {
    /// What becomes of the commit that is next.
    fn next(&self) -> Option<Lost> {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match due.as_mut() {
            Some((after @ 1.., _)) => {
                *after -= 1;
                None
            }
            Some(_) | None => due.take().map(|(_, lost)| lost),
        }
    }
}

impl ModelStore {
    /// After so many more commits one is lost in this way.
    pub fn lose(&self, after: u64, lost: Lost) {
        *self.losses.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((after, lost));
    }

    /// Whether the commit that is to be lost has not come yet; none is, from here on.
    pub fn lose_no_more(&self) -> bool {
        self.losses.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    pub(super) fn commit_or_lose(&self, batch: &Batch) -> Result<Committed, CommitError> {
        match self.losses.next() {
            None => self.apply(batch),
            Some(Lost::Answer) => {
                // Also where a guard did not hold: nobody learns of that, either.
                drop(self.apply(batch));
                Err(CommitError::Unknown)
            }
            Some(Lost::Both) => Err(CommitError::Unknown),
            Some(Lost::Change) => Err(StoreError::Unavailable("a test took it away".to_owned()).into()),
        }
    }
}
