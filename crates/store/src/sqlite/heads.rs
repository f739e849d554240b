//! Ends of what is numbered: the audit log of each tenant (last number and last link), and the events of each application. The one writer keeps
//! them at hand, and writes those that moved once for each group: a line or an event costs no look-up, and a group no more pages than there
//! are tenants and applications in it.
//!
//! Invariant: whatever is remembered here is in its table, or will be with the open transaction.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use countersign_domain::ids::{ApplicationNo, TenantNo};
use rusqlite::{OptionalExtension, Row, params};

use super::statements::{Kept, Sql};
use crate::batch::{Batch, Write};
use crate::chain::{self, ChainKey, Link, Mark, START};
use crate::rows::AuditRow;
use crate::words;

/// Ends remembered of each kind; beyond, all are read again.
const REMEMBERED_MAX: usize = 65_536;

/// The keyed hashes of a batch's audit lines, in their order. The batch's caller makes them, so that the one writer need not.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Mark>);

impl Marks {
    /// None where lines get no link yet.
    pub(super) fn of(batch: &Batch, key: &OnceLock<ChainKey>) -> Self {
        let Some(key) = key.get() else { return Self::default() };
        let marks = batch.0.iter().filter_map(|write| match write {
            Write::RecordAudit(row) => Some(key.mark(None, row)),
            _ => None,
        });
        Self(marks.collect())
    }
}

/// Ends, by what is numbered.
#[derive(Debug)]
struct Ends<V> {
    last: HashMap<i64, V>,
    /// What the open transaction moved.
    moved: BTreeSet<i64>,
    /// What stood before, for each step of the batch that is being applied.
    of_batch: Vec<(i64, V)>,
}

impl<V> Default for Ends<V> {
    fn default() -> Self {
        Self { last: HashMap::new(), moved: BTreeSet::new(), of_batch: Vec::new() }
    }
}

impl<V: Copy> Ends<V> {
    fn get(&self, of: i64) -> Option<V> {
        self.last.get(&of).copied()
    }

    fn step(&mut self, of: i64, before: V, after: V) {
        self.last.insert(of, after);
        self.moved.insert(of);
        self.of_batch.push((of, before));
    }

    fn undo(&mut self) {
        while let Some((of, before)) = self.of_batch.pop() {
            self.last.insert(of, before);
        }
    }

    /// Those that moved.
    fn save(&mut self, mut put: impl FnMut(i64, V) -> rusqlite::Result<usize>) -> rusqlite::Result<()> {
        for of in &self.moved {
            if let Some(last) = self.last.get(of) {
                put(*of, *last)?;
            }
        }
        self.moved.clear();
        if self.last.len() > REMEMBERED_MAX {
            self.last.clear();
        }
        Ok(())
    }
}

/// Where a tenant's log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AuditEnd {
    pub(super) no: i64,
    pub(super) link: Option<Link>,
}

/// How many events an application has had.
#[derive(Clone, Copy, Debug)]
struct EventEnd {
    tenant: i64,
    seq: i64,
}

/// All ends.
#[derive(Debug)]
pub(super) struct Heads {
    /// None yet: lines get no link.
    key: Arc<OnceLock<ChainKey>>,
    audit: Ends<AuditEnd>,
    events: Ends<EventEnd>,
    /// Of the lines of the batch that are still to come, the next one last.
    marks: Vec<Mark>,
}

/// The number after this one. There is none in a damaged file only, and that is no reason to end the writer.
fn one_more(number: i64) -> rusqlite::Result<i64> {
    number.checked_add(1).ok_or(rusqlite::Error::IntegralValueOutOfRange(0, number))
}

impl Heads {
    pub(super) fn new(key: Arc<OnceLock<ChainKey>>) -> Self {
        Self { key, audit: Ends::default(), events: Ends::default(), marks: Vec::new() }
    }

    /// The number and the link of a line that is appended.
    pub(super) fn next_line(&mut self, kept: &mut Kept<'_>, row: &AuditRow) -> rusqlite::Result<AuditEnd> {
        let tenant = words::of_audit_tenant(row.tenant);
        let before = if let Some(last) = self.audit.get(tenant) {
            last
        } else {
            let read = |row: &Row<'_>| Ok(AuditEnd { no: row.get(0)?, link: row.get(1)? });
            kept.get(Sql::AuditHead)?.query_row([tenant], read).optional()?.unwrap_or_default()
        };
        let no = one_more(before.no)?;
        let given = self.marks.pop();
        let mark = given.or_else(|| self.key.get().map(|key| key.mark(None, row)));
        let link = mark.map(|mark| chain::link(&before.link.unwrap_or(START), no, &mark));
        self.audit.step(tenant, before, AuditEnd { no, link: link.or(before.link) });
        Ok(AuditEnd { no, link })
    }

    /// The number of an application's next event.
    pub(super) fn next_event(
        &mut self,
        kept: &mut Kept<'_>,
        TenantNo(tenant): TenantNo,
        of: ApplicationNo,
    ) -> rusqlite::Result<i64> {
        let before = self.last_event(kept, of)?;
        let seq = one_more(before)?;
        self.events.step(of.0, EventEnd { tenant, seq: before }, EventEnd { tenant, seq });
        Ok(seq)
    }

    /// The number of an application's last event; 0 where it has none.
    pub(super) fn last_event(&self, kept: &mut Kept<'_>, of: ApplicationNo) -> rusqlite::Result<i64> {
        if let Some(last) = self.events.get(of.0) {
            return Ok(last.seq);
        }
        let read = |row: &Row<'_>| row.get(0);
        Ok(kept.get(Sql::EventCounted)?.query_row([of.0], read).optional()?.unwrap_or(0))
    }

    /// Another batch begins.
    pub(super) fn begin(&mut self, marks: &Marks) {
        self.audit.of_batch.clear();
        self.events.of_batch.clear();
        self.marks.clear();
        self.marks.extend(marks.0.iter().rev());
    }

    /// The batch was undone: its numbers go to others.
    pub(super) fn undo(&mut self) {
        self.audit.undo();
        self.events.undo();
    }

    /// Writes what moved, as the last thing before a commit.
    pub(super) fn save(&mut self, kept: &mut Kept<'_>) -> rusqlite::Result<()> {
        // 0: every batch that took a number was undone, and there is neither line nor event yet.
        self.audit.save(|tenant, AuditEnd { no, link }| match no {
            0 => Ok(0),
            no => kept.run(Sql::AuditHeadPut, params![tenant, no, link]),
        })?;
        self.events.save(|application, EventEnd { tenant, seq }| match seq {
            0 => Ok(0),
            seq => kept.run(Sql::EventCountPut, [tenant, application, seq]),
        })
    }

    /// The transaction was rolled back: what it moved did not.
    pub(super) fn forget(&mut self) {
        self.audit = Ends::default();
        self.events = Ends::default();
    }
}
