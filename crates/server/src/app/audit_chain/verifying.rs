//! A walk over the whole log that goes on from call to call.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use countersign_domain::ids::TenantNo;
use countersign_protocol::sentence::of_field;
use countersign_store::audit_gaps::AuditGaps as _;
use countersign_store::chain::{
    ChainFault, ChainHead, ChainKey, ChainPlace, ChainReport, ChainWalk, FAULTS_MAX, LINK_BYTES,
};
use countersign_store::contract::{AuditRow, Cursor};
use countersign_store::{AnyStore, Store as _, StoreError};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::{BEGIN, KeptHead, PAGE, heads, key, lines, name};
use crate::app::error::AppError;
use crate::chance::{hex, unhex};
use crate::vault::Vault;

/// What each chain begins with, in the transaction that made its owner.
const DEPLOYMENT_MADE: &str = "deployment.init";
const TENANT_MADE: [&str; 2] = ["institution.create", "merchant.create"];

/// What a walk over the whole log came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Verified {
    /// Whether every line is what was written; null: the walk is not at its end.
    pub holds: Option<bool>,
    /// Lines that hold; with a fault: 0. While the walk is not at its end: lines walked over so far.
    pub lines: u64,
    /// Chains: one for each institution and plain merchant, and the system's.
    pub chains: u64,
    /// Of those lines, how many are from before the chain; they hold as a whole.
    pub lines_before_chain: u64,
    /// The first wrong place.
    pub fault: Option<VerifiedFault>,
    /// The first twenty wrong places, that one among them.
    pub faults: Vec<VerifiedFault>,
    /// Ask again with this as `after`; null: the walk is at its end.
    pub next: Option<String>,
}

/// A line that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifiedFault {
    /// The institution or plain merchant; null for the system's own lines.
    pub merchant_id: Option<String>,
    /// The number of the line.
    pub no: i64,
    /// What is wrong with it.
    pub what: String,
}

impl Verified {
    /// What a walk says that is not at its end.
    pub(super) fn so_far(lines: u64, next: String) -> Self {
        Self { lines, next: Some(next), ..Self::default() }
    }

    fn of(report: &ChainReport, faults: Vec<VerifiedFault>) -> Self {
        if let Some(first) = faults.first() {
            return Self { holds: Some(false), fault: Some(first.clone()), faults, ..Self::default() };
        }
        Self {
            holds: Some(true),
            lines: report.lines,
            chains: report.tenants,
            lines_before_chain: report.unlinked,
            ..Self::default()
        }
    }
}

/// How far one call walks.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    /// Lines, at the most.
    pub lines_max: u64,
    /// How long; one page is read in any case.
    pub time_max: Duration,
}

impl Portion {
    /// To the end.
    pub const WHOLE: Self = Self { lines_max: u64::MAX, time_max: Duration::MAX };
}

/// A walk, as far as it is.
#[derive(Debug)]
pub struct Verifying {
    walk: ChainWalk,
    after: Option<ChainPlace>,
    has_begun: bool,
    /// Faults of what was kept, before any line was read.
    faults: Vec<VerifiedFault>,
}

impl Verifying {
    /// Before the first line.
    pub fn new(key: ChainKey) -> Self {
        Self { walk: ChainWalk::new(key, [], BEGIN), after: None, has_begun: false, faults: Vec::new() }
    }

    /// Whether lines have been read, so that heads come too late.
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Heads that are to be passed.
    pub fn heads(&self) -> usize {
        self.walk.heads_left()
    }

    /// Heads that were kept elsewhere: what was cut off since is found by them.
    pub async fn must_pass(&mut self, store: &AnyStore, kept: Vec<KeptHead>) -> Result<(), AppError> {
        let (mut found, mut faults) = (Vec::with_capacity(kept.len()), Vec::new());
        for head in kept {
            let tenant = match &head.merchant_id {
                None => None,
                Some(id) => match store.merchant(id).await? {
                    Some(merchant) if merchant.tenant.0 == merchant.no.0 => Some(merchant.tenant),
                    Some(_) | None => {
                        let what = "a head was kept of this merchant, and it has no log".to_owned();
                        if self.faults.len() + faults.len() < FAULTS_MAX {
                            faults.push(VerifiedFault { merchant_id: head.merchant_id, no: head.no, what });
                        }
                        continue;
                    }
                },
            };
            found.push(ChainHead { tenant, no: head.no, link: link_of(&head)? });
        }
        // All of them or none: a call that fails may be made again.
        self.walk.must_pass(found);
        self.faults.append(&mut faults);
        Ok(())
    }

    /// Walks on. Whether it is at the end.
    pub async fn go_on(
        &mut self,
        store: &AnyStore,
        portion: &Portion,
        mut tell: impl FnMut(u64),
    ) -> Result<bool, StoreError> {
        if !self.has_begun {
            let heads = heads(store).await?;
            self.walk.must_begin(chainless(store, &heads).await?);
            self.walk.must_pass(heads);
            self.has_begun = true;
        }
        let (began, mut left, mut page_max) = (Instant::now(), portion.lines_max, PAGE);
        loop {
            let limit = u32::try_from(left).unwrap_or(PAGE).min(page_max);
            let read = match lines(store, self.after, limit).await {
                Ok(page) => {
                    let Some(last) = page.last() else { return Ok(true) };
                    self.after = Some(last.place);
                    for line in &page {
                        if self.walk.line(line) {
                            self.look_at_first(&line.row);
                        }
                    }
                    page.len() as u64
                }
                // A line of the page cannot be read: those before it can.
                Err(StoreError::Corrupt { .. }) if limit > 1 => {
                    page_max = limit / 2;
                    continue;
                }
                Err(StoreError::Corrupt { table, row }) => {
                    if self.pass_unreadable(store, table, &row).await?.is_break() {
                        return Ok(true);
                    }
                    page_max = PAGE;
                    1
                }
                Err(error) => return Err(error),
            };
            tell(self.walk.lines());
            left = left.saturating_sub(read);
            if left == 0 || began.elapsed() >= portion.time_max {
                return Ok(false);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Names a chain that begins with another line than the one that its owner was made with: what was there before was taken away.
    fn look_at_first(&mut self, row: &AuditRow) {
        let first: &[&str] = if row.tenant.is_some() { &TENANT_MADE } else { &[DEPLOYMENT_MADE] };
        if row.no == 1 && !first.contains(&row.action.as_str()) {
            let what = format!("the chain does not begin with {}: what was there was taken away", first.join(" or "));
            self.walk.fault(ChainFault { tenant: row.tenant, no: 1, what });
        }
    }

    /// Names the next line, which cannot be read, and goes behind it. Not where its place cannot be read either, and not where as many faults were
    /// found as are named: one who makes every line unreadable shall not have each read by itself.
    async fn pass_unreadable(
        &mut self,
        store: &AnyStore,
        table: &str,
        row: &str,
    ) -> Result<ControlFlow<()>, StoreError> {
        match store.unreadable_line(self.after).await {
            Ok(Some(line)) => {
                self.walk.unreadable(&line);
                self.after = Some(line.place);
                Ok(if self.walk.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            }
            Ok(None) | Err(StoreError::Corrupt { .. }) => {
                self.walk.fault(unreadable(table, row));
                Ok(ControlFlow::Break(()))
            }
            Err(error) => Err(error),
        }
    }

    /// Lines walked over.
    pub const fn lines(&self) -> u64 {
        self.walk.lines()
    }

    /// At the end: what was read, and the faults, without a look at where the chain began.
    pub async fn found(&self, store: &AnyStore) -> Result<(ChainReport, Vec<VerifiedFault>), StoreError> {
        let (report, found) = self.walk.clone().end(heads(store).await?);
        let mut faults = self.faults.clone();
        for ChainFault { tenant, no, what } in found {
            faults.push(VerifiedFault { merchant_id: name(store, tenant).await?, no, what });
        }
        faults.truncate(FAULTS_MAX);
        Ok((report, faults))
    }

    /// At the end: what it came to.
    pub async fn end(&self, store: &AnyStore) -> Result<Verified, StoreError> {
        let (report, mut faults) = self.found(store).await?;
        faults.extend(before_the_chain(&report));
        faults.truncate(FAULTS_MAX);
        Ok(Verified::of(&report, faults))
    }
}

/// Whose chain is gone, its head with it: the system's, as none, then tenants by their number, up to as many as are named.
async fn chainless(store: &AnyStore, heads: &[ChainHead]) -> Result<Vec<Option<TenantNo>>, StoreError> {
    let begun: HashSet<Option<TenantNo>> = heads.iter().map(|head| head.tenant).collect();
    let mut gone = Vec::from_iter((!begun.contains(&None)).then_some(None));
    let mut after = None;
    loop {
        let page = store.chain_owners(Cursor { after, limit: PAGE }).await?;
        let Some(last) = page.last() else { return Ok(gone) };
        after = Some(last.0);
        gone.extend(page.into_iter().map(Some).filter(|owner| !begun.contains(owner)));
        if gone.len() >= FAULTS_MAX {
            gone.truncate(FAULTS_MAX);
            return Ok(gone);
        }
    }
}

fn link_of(head: &KeptHead) -> Result<Option<[u8; LINK_BYTES]>, AppError> {
    let Some(text) = head.link.as_deref() else { return Ok(None) };
    let link = unhex(text).and_then(|link| link.try_into().ok());
    let why = || format!("must have links of 64 hex digits, and that of line {} is none", head.no);
    let refused = || AppError::InvalidParameter(of_field("heads", why()));
    link.map(Some).ok_or_else(refused)
}

fn unreadable(table: &str, row: &str) -> ChainFault {
    let mut numbers = row.split('/').map(|number| number.parse::<i64>().unwrap_or_default());
    let (tenant, no) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let what = format!("row {row} of {table} cannot be read back, nor what comes after it");
    ChainFault { tenant: (tenant != 0).then_some(TenantNo(tenant)), no, what }
}

#[derive(Deserialize)]
struct Before {
    lines: u64,
    sha256: String,
}

/// What is wrong with the lines from before the chain.
fn before_the_chain(report: &ChainReport) -> Option<VerifiedFault> {
    let fault = |no: i64, what: &str| Some(VerifiedFault { merchant_id: None, no, what: what.to_owned() });
    let Some(begun) = report.begun.first() else {
        let why = "lines have no link, and no line says that there were any before the chain: links were taken away";
        return if report.unlinked == 0 { None } else { fault(1, why) };
    };
    match serde_json::from_str::<Before>(&begun.before) {
        Ok(Before { lines, .. }) if lines == 0 && report.unlinked == 0 => None,
        Ok(Before { lines, sha256 }) if lines == report.unlinked && sha256 == hex(&report.unlinked_digest) => None,
        Ok(_) | Err(_) => fault(begun.no, "the lines from before the chain are not those that this line found"),
    }
}

/// Walks over the whole log at once. `kept`: heads that were kept elsewhere. `tell` hears how far it is.
pub async fn verify_named(
    vault: &Vault,
    store: &AnyStore,
    kept: Vec<KeptHead>,
    tell: impl FnMut(u64),
) -> Result<Verified, AppError> {
    let Some(key) = key(vault, store).await? else { return Ok(without_key()) };
    let mut verifying = Verifying::new(key);
    verifying.must_pass(store, kept).await?;
    verifying.go_on(store, &Portion::WHOLE, tell).await?;
    Ok(verifying.end(store).await?)
}

/// Nothing can be said without the key.
pub(super) fn without_key() -> Verified {
    let what = "the key of the chain is not in the settings: the log was never linked, or the key was taken away";
    let fault = VerifiedFault { merchant_id: None, no: 1, what: what.to_owned() };
    Verified::of(&ChainReport::default(), vec![fault])
}
