//! Which ClientIds there are: for an address that has used its budget up, whose made-up ClientIds are not looked up in the store.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock};

use countersign_store::contract::Cursor;
use countersign_store::{Store, StoreError};

use super::App;

/// Applications of a page.
const PAGE: u32 = 500;
/// ClientIds remembered; others are looked up for addresses within their budget only.
const REMEMBERED_MAX: usize = 1_000_000;

/// ClientIds that were seen in the store, by keyed hashes. One that is not there for all that costs a look-up.
#[derive(Debug, Default)]
pub(super) struct There {
    hasher: RandomState,
    hashes: RwLock<HashSet<u64>>,
}

impl There {
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
}

impl App {
    /// Reads which applications there are. Those that are made later are noted as they are made, here or on another node.
    pub async fn learn_applications(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.store.applications(None, Cursor { after, limit: PAGE }).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.application.no.0);
            for view in &page {
                self.callers.there.add(&view.application.client_id);
            }
        }
    }
}
