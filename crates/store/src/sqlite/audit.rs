//! The ends of the audit log of each tenant: last number and last link. The one writer keeps them at hand, and writes those that moved once
//! for each group: a line costs no look-up, and a group no more pages than tenants.
//!
//! Invariant: whatever is remembered here is in `audit_head`, or will be with the open transaction.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use rusqlite::{OptionalExtension, params};

use super::statements::{Kept, Sql};
use crate::chain::{self, ChainKey, Link, START};
use crate::rows::AuditRow;

/// Tenants remembered; beyond, all are read again.
const REMEMBERED_MAX: usize = 65_536;

/// Where a tenant's log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) no: i64,
    pub(super) link: Option<Link>,
}

/// Heads of the audit log.
#[derive(Debug)]
pub(super) struct AuditHeads {
    /// None yet: lines get no link.
    key: Arc<OnceLock<ChainKey>>,
    last: HashMap<i64, Head>,
    /// What the open transaction moved.
    moved: BTreeSet<i64>,
    /// A tenant, and its head before, for each line of the batch that is being applied.
    of_batch: Vec<(i64, Head)>,
}

impl AuditHeads {
    pub(super) fn new(key: Arc<OnceLock<ChainKey>>) -> Self {
        Self { key, last: HashMap::new(), moved: BTreeSet::new(), of_batch: Vec::new() }
    }

    /// The number and the link of a line that is appended.
    pub(super) fn next(&mut self, kept: &mut Kept<'_>, tenant: i64, row: &AuditRow) -> rusqlite::Result<Head> {
        let before = if let Some(last) = self.last.get(&tenant) {
            *last
        } else {
            let read = |row: &rusqlite::Row<'_>| Ok(Head { no: row.get(0)?, link: row.get(1)? });
            kept.get(Sql::AuditHead)?.query_row([tenant], read).optional()?.unwrap_or_default()
        };
        let no = before.no + 1;
        let link = self.key.get().map(|key| chain::link(&before.link.unwrap_or(START), no, &key.mark(None, row)));
        self.last.insert(tenant, Head { no, link: link.or(before.link) });
        self.moved.insert(tenant);
        self.of_batch.push((tenant, before));
        Ok(Head { no, link })
    }

    /// Another batch begins.
    pub(super) fn begin(&mut self) {
        self.of_batch.clear();
    }

    /// The batch was undone: its numbers go to others.
    pub(super) fn undo(&mut self) {
        while let Some((tenant, before)) = self.of_batch.pop() {
            self.last.insert(tenant, before);
        }
    }

    /// Writes what moved, as the last thing before a commit.
    pub(super) fn save(&mut self, kept: &mut Kept<'_>) -> rusqlite::Result<()> {
        for tenant in &self.moved {
            // 0: every batch that took a number was undone, and there is no line yet.
            if let Some(last) = self.last.get(tenant).filter(|last| last.no > 0) {
                kept.run(Sql::AuditHeadPut, params![tenant, last.no, last.link])?;
            }
        }
        self.moved.clear();
        if self.last.len() > REMEMBERED_MAX {
            self.last.clear();
        }
        Ok(())
    }

    /// The transaction was rolled back: what it moved did not.
    pub(super) fn forget(&mut self) {
        self.last.clear();
        self.moved.clear();
        self.of_batch.clear();
    }
}
