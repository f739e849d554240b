//! The chain of the audit log: what makes a link, and the walk that finds where one does not hold.
//!
//! A line's *mark* is a keyed hash over every column but the number, and over the mark of the line before it where both were written by one
//! transaction. Its *link* is a hash over the link that the transaction found, the line's number and its mark. So a link commits to every
//! line before it, and nobody without the key can make one; and a database can link lines with marks that it is told, without the key.
//!
//! Invariant: marks are not kept, since with it one could move a line to another place. The one exception is the mark of a tenant's very
//! first transaction (`audit_head.link_before` on PostgreSQL, until the next one): nothing lies before that line.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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

    /// What tells this key from others, and nothing of it.
    pub fn fingerprint(&self) -> [u8; 8] {
        // No line is fed so: a line's mark begins with 32 bytes and goes on.
        let whole = hmac::sign(&self.0, b"fingerprint");
        let mut first = [0; 8];
        first.copy_from_slice(&whole.as_ref()[..8]);
        first
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

/// What is known of a line that cannot be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableLine {
    /// Ask for what comes after it.
    pub place: ChainPlace,
    /// Its tenant; none for the system's own.
    pub tenant: Option<TenantNo>,
    /// Its number.
    pub no: i64,
    /// Its link; none: it has none, or that cannot be read either.
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

/// A place where the log is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainFault {
    /// Of which tenant; none for the system's own.
    pub tenant: Option<TenantNo>,
    /// The number of the line.
    pub no: i64,
    /// What is wrong with it.
    pub what: String,
}

/// What a walk over the whole log came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainReport {
    /// Lines read.
    pub lines: u64,
    /// Tenants, the system among them.
    pub tenants: u64,
    /// Lines without a link, from before the chain.
    pub unlinked: u64,
    /// SHA-256 over the lines without a link; it says nothing where there are no such lines.
    pub unlinked_digest: Link,
    /// Lines with a link.
    pub linked: u64,
    /// The system's lines of this action that hold, in their order: where the chain began says what it found.
    pub begun: Vec<AuditRow>,
}

/// A tenant's chain as far as it was walked.
#[derive(Clone, Debug)]
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

    /// Takes the link of a faulty line as it stands, so that what hangs on it can be looked at.
    fn go_on(&mut self, key: &ChainKey, line: &ChainLine) {
        let Some(stored) = line.link else { return };
        (self.found, self.mark, self.last) = (self.last, Some(key.mark(None, &line.row)), stored);
    }
}

/// Faults that a walk names. It goes on behind a fault, so that one known place does not hide others.
pub const FAULTS_MAX: usize = 20;

/// Walks over the log of all tenants, each tenant's lines by their number.
#[derive(Clone, Debug)]
pub struct ChainWalk {
    key: ChainKey,
    begins_with: &'static str,
    walks: BTreeMap<i64, Walk>,
    /// Heads that must be passed: tenant, number and link. There may be several of one place, which contradict each other.
    heads: BTreeSet<(i64, i64, Option<Link>)>,
    /// Tenants that are there and had neither a line nor a head.
    chainless: BTreeSet<i64>,
    lines: u64,
    linked: u64,
    begun: Vec<AuditRow>,
    faults: Vec<ChainFault>,
}

impl ChainWalk {
    /// `heads`: read before the first line, or kept elsewhere. `begins_with`: the action of the line that covers what was there before it.
    pub fn new(key: ChainKey, heads: impl IntoIterator<Item = ChainHead>, begins_with: &'static str) -> Self {
        let mut walk = Self {
            key,
            begins_with,
            walks: BTreeMap::new(),
            heads: BTreeSet::new(),
            chainless: BTreeSet::new(),
            lines: 0,
            linked: 0,
            begun: Vec::new(),
            faults: Vec::new(),
        };
        walk.must_pass(heads);
        walk
    }

    /// More heads, before the first line.
    pub fn must_pass(&mut self, heads: impl IntoIterator<Item = ChainHead>) {
        self.heads.extend(heads.into_iter().map(|head| (of_audit_tenant(head.tenant), head.no, head.link)));
    }

    /// Who is there and has neither a line nor a head, read before the first line: each chain begins with its owner, in one transaction.
    pub fn must_begin(&mut self, chainless: impl IntoIterator<Item = Option<TenantNo>>) {
        self.chainless.extend(chainless.into_iter().map(of_audit_tenant));
    }

    /// Heads that are to be passed still; the same one that was given twice is one.
    pub fn heads_left(&self) -> usize {
        self.heads.len()
    }

    /// Lines walked over.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether as many faults were found as are named.
    pub const fn is_full(&self) -> bool {
        self.faults.len() >= FAULTS_MAX
    }

    /// A fault that another has found: the line cannot be read at all.
    pub fn fault(&mut self, fault: ChainFault) {
        if !self.is_full() {
            self.faults.push(fault);
        }
    }

    /// The next line. Whether it is what was written.
    pub fn line(&mut self, line: &ChainLine) -> bool {
        let (row, tenant) = (&line.row, of_audit_tenant(line.row.tenant));
        self.lines += 1;
        self.linked += u64::from(line.link.is_some());
        let walk = self.walks.entry(tenant).or_insert_with(Walk::new);
        let expected = walk.no.saturating_add(1);
        walk.no = walk.no.max(row.no);
        let found = if row.no == expected {
            step(&self.key, walk, line).err().map(|what| (row.no, what.to_owned()))
        } else {
            if row.no > expected {
                // Its link hangs on a line that is not there.
                walk.go_on(&self.key, line);
            }
            Some((expected, format!("line {} stands where this one should", row.no)))
        };
        if found.is_none() && line.link.is_some() && row.tenant.is_none() && row.action == self.begins_with {
            self.begun.push(row.clone());
        }
        let is_other = self.passed(tenant, row.no).into_iter().flatten().any(|kept| line.link != Some(kept));
        let of_head =
            is_other.then(|| (row.no, "its link is not the one that the head has, or that was kept".to_owned()));
        let fault = found.or(of_head);
        let holds = fault.is_none();
        if let Some((no, what)) = fault {
            self.fault(ChainFault { tenant: row.tenant, no, what });
        }
        holds
    }

    /// A line that cannot be read back. What hangs on it can be looked at if its link can be read.
    pub fn unreadable(&mut self, line: &UnreadableLine) {
        let tenant = of_audit_tenant(line.tenant);
        self.lines += 1;
        self.linked += u64::from(line.link.is_some());
        let walk = self.walks.entry(tenant).or_insert_with(Walk::new);
        let expected = walk.no.saturating_add(1);
        walk.no = walk.no.max(line.no);
        if let Some(stored) = line.link
            && line.no >= expected
        {
            // Its mark is not known. With this one nothing fits that does not hang on its link.
            (walk.found, walk.mark, walk.last) = (stored, Some(START), stored);
        }
        // The line is there, whatever it says.
        self.passed(tenant, line.no);
        if line.no != expected {
            let what = format!("line {} stands where this one should", line.no);
            self.fault(ChainFault { tenant: line.tenant, no: expected, what });
        }
        self.fault(ChainFault { tenant: line.tenant, no: line.no, what: "it cannot be read back".to_owned() });
    }

    /// The links of the heads of a place, which is passed.
    fn passed(&mut self, tenant: i64, no: i64) -> Vec<Option<Link>> {
        let of_place = (tenant, no, None)..=(tenant, no, Some([u8::MAX; LINK_BYTES]));
        let passed: Vec<_> = self.heads.range(of_place).copied().collect();
        for head in &passed {
            self.heads.remove(head);
        }
        passed.into_iter().map(|(_, _, link)| link).collect()
    }

    /// After the last line; `heads_now` are read after it. What was read, and the first [`FAULTS_MAX`] faults in the order in which they were
    /// found.
    pub fn end(mut self, heads_now: impl IntoIterator<Item = ChainHead>) -> (ChainReport, Vec<ChainFault>) {
        let of = crate::words::audit_tenant;
        let mut missed: Vec<(i64, i64)> = self.heads.iter().map(|(tenant, no, _)| (*tenant, *no)).collect();
        // The nearest of each tenant: what lies behind it is missing, too.
        missed.dedup_by_key(|(tenant, _)| *tenant);
        for tenant in std::mem::take(&mut self.chainless) {
            let is_named = missed.iter().any(|(other, _)| *other == tenant);
            if !is_named && !self.walks.contains_key(&tenant) {
                let what = "the whole chain is missing: it begins with whose it is, in one transaction".to_owned();
                self.fault(ChainFault { tenant: of(tenant), no: 1, what });
            }
        }
        for (tenant, no) in missed {
            let last = self.walks.get(&tenant).map_or(0, |walk| walk.no);
            let what = format!("it is missing: the log ends with line {last}");
            self.fault(ChainFault { tenant: of(tenant), no: last.min(no.saturating_sub(1)) + 1, what });
        }
        let now: HashMap<i64, i64> =
            heads_now.into_iter().map(|head| (of_audit_tenant(head.tenant), head.no)).collect();
        let mut report = ChainReport { lines: self.lines, ..ChainReport::default() };
        let mut digest = digest::Context::new(&digest::SHA256);
        for (tenant, walk) in std::mem::take(&mut self.walks) {
            report.tenants += 1;
            let given = now.get(&tenant).copied().unwrap_or(0);
            if given < walk.no {
                let what = "it lies beyond the last number that was given".to_owned();
                self.fault(ChainFault { tenant: of(tenant), no: given + 1, what });
            }
            if walk.unlinked > 0 {
                report.unlinked += walk.unlinked;
                digest.update(&tenant.to_be_bytes());
                digest.update(&walk.unlinked_digest);
            }
        }
        report.linked = self.linked;
        report.unlinked_digest = bytes(digest.finish().as_ref());
        report.begun = self.begun;
        (report, self.faults)
    }
}

/// One line further. What is wrong with it; the walk stands behind it all the same.
fn step(key: &ChainKey, walk: &mut Walk, line: &ChainLine) -> Result<(), &'static str> {
    let Some(stored) = &line.link else {
        if walk.mark.is_some() {
            // Lines behind it hang on the last link, as if it were not there.
            return Err("it has no link, but lines before it have: added, or written by an older program");
        }
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&walk.unlinked_digest);
        context.update(&line.row.no.to_be_bytes());
        feed(&line.row, |bytes| context.update(bytes));
        walk.unlinked_digest = bytes(context.finish().as_ref());
        walk.unlinked += 1;
        return Ok(());
    };
    let Some((found, mark)) = holds(key, walk, &line.row, stored) else {
        walk.go_on(key, line);
        return Err("its link does not fit: this line, or what came before it, is not what was written");
    };
    (walk.found, walk.mark, walk.last) = (found, Some(mark), *stored);
    Ok(())
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

#[cfg(test)]
mod tests;
