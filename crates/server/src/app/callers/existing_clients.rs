//! Which ClientIds there are, and look-ups beside: for an address that has used its budget up, whose requests are answered without one.
//!
//! Whoever signs right from such an address, and is not kept, is answered 429 like everybody else there, at the same points of time; that their
//! application is read meanwhile shows in their next request alone. ClientIds that are nobody's are never looked up so.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use countersign_store::StoreError;
use countersign_store::contract::Cursor;
use countersign_store::public_ids::PublicIds as _;
use tokio::sync::Notify;

use super::App;

/// Applications of a page.
const PAGE: u32 = 500;
/// ClientIds remembered; others are looked up for addresses within their budget only.
const REMEMBERED_MAX: usize = 1_000_000;
/// ClientIds that may wait to be looked up.
const WANTED_MAX: usize = 256;

/// ClientIds that were seen in the store, by keyed hashes. A ClientId whose hash is kept here, but which is not in the store, costs a look-up.
#[derive(Debug, Default)]
pub(super) struct ExistingClients {
    hasher: RandomState,
    hashes: RwLock<HashSet<u64>>,
    /// Whether all that were there at some moment since have been read.
    is_learnt: AtomicBool,
    wanted: Mutex<BTreeSet<Box<str>>>,
    rung: Notify,
}

impl ExistingClients {
    pub(super) fn has(&self, client_id: &str) -> bool {
        self.hashes.read().unwrap_or_else(PoisonError::into_inner).contains(&self.hasher.hash_one(client_id))
    }

    pub(super) fn add(&self, client_id: &str) {
        if self.has(client_id) {
            return;
        }
        let mut hashes = self.hashes.write().unwrap_or_else(PoisonError::into_inner);
        if hashes.len() < REMEMBERED_MAX {
            hashes.insert(self.hasher.hash_one(client_id));
        }
    }

    /// Whether no more are remembered.
    fn is_full(&self) -> bool {
        self.hashes.read().unwrap_or_else(PoisonError::into_inner).len() >= REMEMBERED_MAX
    }

    /// Has it looked up beside, if it is there.
    pub(super) fn want(&self, client_id: &str) {
        if !self.has(client_id) {
            return;
        }
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.len() < WANTED_MAX && wanted.insert(client_id.into()) {
            self.rung.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn wants_nobody(&self) -> bool {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Applications may have been made of which this node was not told: all are read again.
    pub(super) fn learn_again(&self) {
        self.is_learnt.store(false, Ordering::Release);
        self.rung.notify_one();
    }
}

impl App {
    /// Reads which applications there are. Those that are made later are noted as they are made, here or on another node.
    async fn learn_applications(&self) -> Result<(), StoreError> {
        // Before the first look: what is made unheard of meanwhile asks for another one.
        self.callers.existing.is_learnt.store(true, Ordering::Release);
        let mut after = None;
        loop {
            let page = self.store.client_ids(Cursor { after, limit: PAGE }).await;
            let page = page.inspect_err(|_| self.callers.existing.is_learnt.store(false, Ordering::Release))?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.0);
            for (_, client_id) in &page {
                self.callers.existing.add(client_id);
            }
            if self.callers.existing.is_full() {
                return Ok(());
            }
        }
    }

    /// Learns which applications there are, where that is called for. Else waits until somebody is to be looked up beside, and does it for all who
    /// are. An error: they could not be learnt.
    pub async fn look_up_beside(&self) -> Result<(), StoreError> {
        let existing = &self.callers.existing;
        if !existing.is_learnt.load(Ordering::Acquire) {
            return self.learn_applications().await;
        }
        existing.rung.notified().await;
        let wanted = std::mem::take(&mut *existing.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        for client_id in wanted {
            match self.known_application(&client_id).await {
                // It changed while it was read (this node may hear of its own change a second time): what was read is not kept.
                Ok(Some(_)) if !self.callers.keeps(&client_id) => existing.want(&client_id),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "An application could not be looked up beside"),
            }
        }
        Ok(())
    }
}
