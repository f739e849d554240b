//! The chain of the audit log: what makes a link, and the walk that finds where one does not hold.
//!
//! A line's *mark* is a keyed hash over every column but the number, and over the mark of the line before it where both were written by one
//! transaction. Its *link* is a hash over the link that the transaction found, the line's number and its mark. So a link commits to every
//! line before it, and nobody without the key can make one; and a database can link lines with marks that it is told, without the key.
//!
//! Invariant: marks are not kept, since with it one could move a line to another place. The one exception is the mark of a tenant's very
//! first transaction (`audit_head.link_before` on PostgreSQL, until the next one): nothing lies before that line.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use aws_lc_rs::{constant_time, digest, hmac};
use countersign_domain::ids::TenantNo;

use crate::contract::AuditRow;
use crate::words::of_audit_tenant;

/// Bytes of a link, of a mark and of the key.
pub const LINK_BYTES: usize = 32;
/// A link of the chain.
pub type Link = [u8; LINK_BYTES];
/// A line's keyed hash.
pub(crate) type Mark = [u8; LINK_BYTES];

/// What the first line of a tenant hangs on.
pub const START: Link = [0; LINK_BYTES];

/// The key of the marks. The deployment's own for good: another master key does not change it.
#[derive(Clone)]
pub struct ChainKey(hmac::Key);

impl fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChainKey(..)")
    }
}

impl ChainKey {
    /// Takes 32 random bytes into use.
    pub fn new(key: &[u8; LINK_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The mark of a line; `before`: that of the line before it in the same transaction and tenant.
    pub(crate) fn mark(&self, before: Option<&Mark>, row: &AuditRow) -> Mark {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(before.unwrap_or(&START));
        feed(row, |bytes| context.update(bytes));
        bytes(context.sign().as_ref())
    }
}

fn bytes(hash: &[u8]) -> [u8; LINK_BYTES] {
    hash.try_into().expect("SHA-256 has 32 bytes")
}

/// Every column but the number, so that no two lines give the same bytes.
fn feed(row: &AuditRow, mut take: impl FnMut(&[u8])) {
    // Written out, so that a new column does not compile until it is covered.
    let AuditRow { no: _, tenant, at, actor, source, action, subject, before, after, request_id } = row;
    take(&of_audit_tenant(*tenant).to_be_bytes());
    take(&at.0.to_be_bytes());
    for text in [actor, source, action, subject, before, after, request_id] {
        take(&(text.len() as u64).to_be_bytes());
        take(text.as_bytes());
    }
}

/// The link of a line.
pub(crate) fn link(before: &Link, no: i64, mark: &Mark) -> Link {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(before);
    context.update(&no.to_be_bytes());
    context.update(mark);
    bytes(context.finish().as_ref())
}

/// Where a line stands in the order in which the chain is read; what each number means is the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainPlace(pub i64, pub i64);

/// A line and its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainLine {
    /// Ask for what comes after it.
    pub place: ChainPlace,
    /// The line.
    pub row: AuditRow,
    /// Its link; none: written before there was a chain, or by a program that knows none.
    pub link: Option<Link>,
}

/// The end of a tenant's chain. Kept elsewhere, it shows what was cut off since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Its tenant; none for the system's own lines.
    pub tenant: Option<TenantNo>,
    /// Number of the last line.
    pub no: i64,
    /// The last link; none where no line has one.
    pub link: Option<Link>,
}

/// The first place where the log is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainFault {
    /// Of which tenant; none for the system's own.
    pub tenant: Option<TenantNo>,
    /// The number of the line.
    pub no: i64,
    /// What is wrong with it.
    pub what: String,
}

/// What a walk over the whole log found in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainReport {
    /// Lines read.
    pub lines: u64,
    /// Tenants, the system among them.
    pub tenants: u64,
    /// Lines without a link, from before the chain.
    pub unlinked: u64,
    /// SHA-256 over those; it says nothing where there are none.
    pub unlinked_digest: Link,
    /// The system's lines of this action that hold, in their order: where the chain began says what it found.
    pub begun: Vec<AuditRow>,
}

/// A tenant's chain as far as it was walked.
#[derive(Debug)]
struct Walk {
    no: i64,
    /// The link of the last line.
    last: Link,
    /// What the lines of the last line's transaction hang on, and the last line's mark.
    found: Link,
    mark: Option<Mark>,
    unlinked: u64,
    unlinked_digest: Link,
}

impl Walk {
    const fn new() -> Self {
        Self { no: 0, last: START, found: START, mark: None, unlinked: 0, unlinked_digest: START }
    }
}

/// Walks over the log of all tenants, each tenant's lines by their number.
#[derive(Debug)]
pub struct ChainWalk<'k> {
    key: &'k ChainKey,
    begins_with: &'k str,
    walks: BTreeMap<i64, Walk>,
    /// Heads that must be passed: by tenant and number.
    heads: HashMap<(i64, i64), Option<Link>>,
    lines: u64,
    begun: Vec<AuditRow>,
}

impl<'k> ChainWalk<'k> {
    /// `heads`: read before the first line, or kept elsewhere. `begins_with`: the action of the line that covers what was there before it.
    pub fn new(key: &'k ChainKey, heads: impl IntoIterator<Item = ChainHead>, begins_with: &'k str) -> Self {
        let mut expected: HashMap<(i64, i64), Option<Link>> = HashMap::new();
        for head in heads {
            let place = expected.entry((of_audit_tenant(head.tenant), head.no)).or_insert(head.link);
            // Two that contradict each other cannot both hold: keep one that is a link, so that a line is named.
            *place = place.or(head.link);
        }
        Self { key, begins_with, walks: BTreeMap::new(), heads: expected, lines: 0, begun: Vec::new() }
    }

    /// The next line.
    pub fn line(&mut self, line: &ChainLine) -> Result<(), ChainFault> {
        let (row, tenant) = (&line.row, of_audit_tenant(line.row.tenant));
        let fault = |no: i64, what: String| Err(ChainFault { tenant: row.tenant, no, what });
        self.lines += 1;
        let walk = self.walks.entry(tenant).or_insert_with(Walk::new);
        if row.no != walk.no + 1 {
            return fault(walk.no + 1, format!("line {} stands where this one should", row.no));
        }
        walk.no = row.no;
        match &line.link {
            None if walk.mark.is_some() => {
                return fault(
                    row.no,
                    "it has no link, but lines before it have: added, or written by an older program".to_owned(),
                );
            }
            None => {
                let mut context = digest::Context::new(&digest::SHA256);
                context.update(&walk.unlinked_digest);
                context.update(&row.no.to_be_bytes());
                feed(row, |bytes| context.update(bytes));
                walk.unlinked_digest = bytes(context.finish().as_ref());
                walk.unlinked += 1;
            }
            Some(stored) => {
                let Some((found, mark)) = holds(self.key, walk, row, stored) else {
                    let what = "its link does not fit: this line, or what came before it, is not what was written";
                    return fault(row.no, what.to_owned());
                };
                (walk.found, walk.mark, walk.last) = (found, Some(mark), *stored);
                if row.tenant.is_none() && row.action == self.begins_with {
                    self.begun.push(row.clone());
                }
            }
        }
        match self.heads.remove(&(tenant, row.no)) {
            Some(Some(kept)) if line.link != Some(kept) => {
                fault(row.no, "its link is not the one that the head has, or that was kept".to_owned())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// After the last line; `heads_now` are read after it.
    pub fn end(self, heads_now: impl IntoIterator<Item = ChainHead>) -> Result<ChainReport, ChainFault> {
        let of = crate::words::audit_tenant;
        let mut missed: Vec<(i64, i64)> = self.heads.keys().copied().collect();
        missed.sort_unstable();
        if let Some((tenant, no)) = missed.first() {
            let last = self.walks.get(tenant).map_or(0, |walk| walk.no);
            let what = format!("it is missing: the log ends with line {last}");
            return Err(ChainFault { tenant: of(*tenant), no: last.min(no - 1) + 1, what });
        }
        let now: HashMap<i64, i64> =
            heads_now.into_iter().map(|head| (of_audit_tenant(head.tenant), head.no)).collect();
        let mut report = ChainReport { lines: self.lines, begun: self.begun, ..ChainReport::default() };
        let mut digest = digest::Context::new(&digest::SHA256);
        for (tenant, walk) in &self.walks {
            report.tenants += 1;
            if now.get(tenant).is_none_or(|last| *last < walk.no) {
                let what = "it lies beyond the last number that was given".to_owned();
                let no = now.get(tenant).copied().unwrap_or(0) + 1;
                return Err(ChainFault { tenant: of(*tenant), no, what });
            }
            if walk.unlinked > 0 {
                report.unlinked += walk.unlinked;
                digest.update(&tenant.to_be_bytes());
                digest.update(&walk.unlinked_digest);
            }
        }
        report.unlinked_digest = bytes(digest.finish().as_ref());
        Ok(report)
    }
}

/// Whether the link is the right one, and what the line's transaction found and its mark are: it may go on with the transaction of the line
/// before it, or be the first of another.
fn holds(key: &ChainKey, walk: &Walk, row: &AuditRow, stored: &Link) -> Option<(Link, Mark)> {
    let first = key.mark(None, row);
    if constant_time::verify_slices_are_equal(&link(&walk.last, row.no, &first), stored).is_ok() {
        return Some((walk.last, first));
    }
    let next = key.mark(Some(walk.mark.as_ref()?), row);
    let fits = constant_time::verify_slices_are_equal(&link(&walk.found, row.no, &next), stored).is_ok();
    fits.then_some((walk.found, next))
}
