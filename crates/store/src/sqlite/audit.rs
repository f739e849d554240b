//! The last number of the audit log of each tenant. The one writer keeps them at hand, and writes those that moved once for each
//! group: a line costs no look-up, and a group no more pages than tenants.
//!
//! Invariant: whatever is remembered here is in `audit_head`, or will be with the open transaction.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{OptionalExtension, params};

use super::statements::{Kept, Sql};

/// Tenants remembered; beyond, all are read again.
const REMEMBERED_MAX: usize = 65_536;

/// Heads of the audit log.
#[derive(Debug, Default)]
pub(super) struct AuditHeads {
    last: HashMap<i64, i64>,
    /// What the open transaction moved.
    moved: BTreeSet<i64>,
    /// A tenant for each number that the batch took which is being applied.
    of_batch: Vec<i64>,
}

impl AuditHeads {
    /// The next number of a tenant.
    pub(super) fn next(&mut self, kept: &mut Kept<'_>, tenant: i64) -> rusqlite::Result<i64> {
        let before = match self.last.get(&tenant) {
            Some(last) => *last,
            None => kept.get(Sql::AuditHead)?.query_row([tenant], |row| row.get(0)).optional()?.unwrap_or(0),
        };
        self.last.insert(tenant, before + 1);
        self.moved.insert(tenant);
        self.of_batch.push(tenant);
        Ok(before + 1)
    }

    /// Another batch begins.
    pub(super) fn begin(&mut self) {
        self.of_batch.clear();
    }

    /// The batch was undone: its numbers go to others.
    pub(super) fn undo(&mut self) {
        for tenant in self.of_batch.drain(..) {
            if let Some(last) = self.last.get_mut(&tenant) {
                *last -= 1;
            }
        }
    }

    /// Writes what moved, as the last thing before a commit.
    pub(super) fn save(&mut self, kept: &mut Kept<'_>) -> rusqlite::Result<()> {
        for tenant in &self.moved {
            // 0: every batch that took a number was undone, and there is no line yet.
            if let Some(last) = self.last.get(tenant).filter(|last| **last > 0) {
                kept.run(Sql::AuditHeadPut, params![tenant, last])?;
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
        *self = Self::default();
    }
}
