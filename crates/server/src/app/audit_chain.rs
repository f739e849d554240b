//! The chain of the audit log: its key, where it begins, and the walk that says whether it holds.
//!
//! The key is the deployment's own, made by `init`, and kept sealed under the master key. So another master key changes no link.
//!
//! Invariant: no program begins a chain by itself where there are lines. Who can write to the database could take links and key away, and would
//! have their log signed by the next start. A deployment from before the chain is begun by a command ([`begin`]).

use std::collections::{BTreeMap, BTreeSet};

use countersign_domain::ids::TenantNo;
use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Write};
use countersign_store::chain::{ChainHead, ChainKey, ChainLine, ChainPlace, LINK_BYTES};
use countersign_store::contract::{AuditRow, Cursor};
use countersign_store::public_ids::PublicIds as _;
use countersign_store::{AnyStore, Store as _, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::error::AppError;
use super::sealed::{CHAIN, SEALED_KEY_BYTES};
use super::{Actor, Deed};
use crate::chance::{Chance, hex};
use crate::vault::Vault;

mod verifying;
mod walks;

pub use verifying::{Portion, Verified, VerifiedFault, Verifying, verify_named};
pub use walks::{VerifyRequest, Walks};

/// The setting that holds the sealed key.
pub const CHAIN_KEY: &str = CHAIN.setting;
/// The line that says what was there before the chain.
pub const BEGIN: &str = "audit.begin";

/// Lines read at a time.
const PAGE: u32 = 1000;
const _: () = assert!(LINK_BYTES == SEALED_KEY_BYTES, "the chain's key is as long as a link");

/// A key for the chain of a new deployment, and the setting that keeps it.
pub fn new_key(vault: &Vault, chance: &Chance) -> (ChainKey, String) {
    let (key, _, setting) = CHAIN.make(vault, chance);
    (ChainKey::new(&key), setting)
}

/// The key of a deployment's chain; none: it has not begun.
pub async fn key(vault: &Vault, store: &AnyStore) -> Result<Option<ChainKey>, StoreError> {
    Ok(CHAIN.read(vault, store).await?.map(|key| ChainKey::new(&key)))
}

/// The key that the setting holds.
pub fn opened(vault: &Vault, sealed: &str) -> Result<ChainKey, StoreError> {
    Ok(ChainKey::new(&*CHAIN.open(vault, sealed)?))
}

/// From here on the store links lines with the deployment's key. Whether there is one.
pub async fn link(vault: &Vault, store: &AnyStore) -> Result<Option<ChainKey>, StoreError> {
    let key = key(vault, store).await?;
    if let Some(key) = &key {
        store.chain_audit(key.clone());
    }
    Ok(key)
}

/// Whether the system's chain is there, which begins with the deployment.
pub async fn is_begun(store: &AnyStore) -> Result<bool, StoreError> {
    // By number of tenant, and the system's own is 0. One that is less is nobody's.
    let first = store.audit_heads(Cursor { after: Some(-1), limit: 1 }).await?;
    Ok(first.first().is_some_and(|head| head.tenant.is_none()))
}

/// What a chain that was begun over lines that are there found.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The chain's key.
    pub key: ChainKey,
    /// Lines without a link: the chain vouches for them as they are now.
    pub unlinked: u64,
    /// Lines with the link of a chain whose key is not there any more.
    pub linked: u64,
    /// Why not all of the log holds; nothing was begun over these unless they were accepted.
    pub faults: Vec<VerifiedFault>,
    /// Whether it was begun.
    pub is_begun: bool,
}

/// Begins a chain where there is no key, or where the system's is gone: makes a key if there is none, and notes in the first line that is linked
/// what is in the log already. A log with gaps, or with links of another key, is left alone unless `accept` says otherwise. For a deployment that
/// nobody serves.
pub async fn begin(app: &Opened<'_>, actor: &Actor, now: UnixMillis, accept: bool) -> Result<Begun, AppError> {
    let from = app.store.setting(CHAIN_KEY).await?;
    let (key, to) = match &from {
        // Other tenants' lines hang together under it. Sealed anew, so that of two who begin at once one is refused.
        Some(stored) => (opened(app.vault, stored)?, CHAIN.anew(app.vault, app.chance, stored)?),
        None => new_key(app.vault, app.chance),
    };
    let mut verifying = Verifying::new(key.clone());
    verifying.go_on(app.store, &Portion::WHOLE, |_| {}).await?;
    let (report, faults) = verifying.found(app.store).await?;
    let linked = if from.is_some() { 0 } else { report.linked };
    let mut begun = Begun { key, unlinked: report.unlinked, linked, faults, is_begun: false };
    if !accept && (begun.linked > 0 || !begun.faults.is_empty()) {
        return Ok(begun);
    }
    let before = json!({ "lines": begun.unlinked, "sha256": hex(&report.unlinked_digest) }).to_string();
    let after = json!({ "lines_of_another_chain": begun.linked, "accepted_faults": begun.faults.len() }).to_string();
    let line = actor.records(Deed { tenant: None, at: now, action: BEGIN, subject: "audit", before, after });
    let writes = vec![Write::MoveSetting { name: CHAIN_KEY.to_owned(), from, to }, line];
    // Before the commit, whose line is the first that is linked.
    app.store.chain_audit(begun.key.clone());
    app.store.commit(Batch(writes)).await?;
    begun.is_begun = true;
    Ok(begun)
}

/// A deployment that is open, and that nobody serves.
#[derive(Debug)]
pub struct Opened<'a> {
    /// What opens the chain's key.
    pub vault: &'a Vault,
    /// Where the log is.
    pub store: &'a AnyStore,
    /// What a key is made of.
    pub chance: &'a Chance,
}

/// Every head, read page by page.
pub async fn heads(store: &AnyStore) -> Result<Vec<ChainHead>, StoreError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.audit_heads(Cursor { after, limit: PAGE }).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.tenant.map_or(0, |tenant| tenant.0));
        all.extend(page);
    }
}

/// A page of lines in the order of the chain.
pub async fn lines(store: &AnyStore, after: Option<ChainPlace>, limit: u32) -> Result<Vec<ChainLine>, StoreError> {
    store.audit_chain(Cursor { after, limit }).await
}

/// A head with the public id of its tenant, as it is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct KeptHead {
    /// The institution or plain merchant; null for the system's own lines.
    pub merchant_id: Option<String>,
    /// Number of the last line.
    pub no: i64,
    /// The last link, hexadecimal; null where no line has one.
    pub link: Option<String>,
}

/// A line with its link and the public id of its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLine {
    /// Where it stands in the order of the chain.
    pub place: ChainPlace,
    /// The institution or plain merchant; none for the system's own lines.
    pub merchant_id: Option<String>,
    /// The line.
    pub row: AuditRow,
    /// Its link, hexadecimal.
    pub link: Option<String>,
}

/// The public id of a tenant.
async fn name(store: &AnyStore, tenant: Option<TenantNo>) -> Result<Option<String>, StoreError> {
    Ok(Names::of([tenant].into_iter(), store).await?.name(tenant))
}

/// The public ids of the tenants of a page, read at once.
struct Names(BTreeMap<TenantNo, String>);

impl Names {
    async fn of(tenants: impl Iterator<Item = Option<TenantNo>>, store: &AnyStore) -> Result<Self, StoreError> {
        let tenants: BTreeSet<TenantNo> = tenants.flatten().collect();
        if tenants.is_empty() {
            return Ok(Self(BTreeMap::new()));
        }
        store.tenant_ids(tenants.into_iter().collect()).await.map(Self)
    }

    /// One that is nobody's is named by its number: somebody has changed it.
    fn name(&self, tenant: Option<TenantNo>) -> Option<String> {
        let tenant = tenant?;
        Some(self.0.get(&tenant).cloned().unwrap_or_else(|| format!("tenant number {}", tenant.0)))
    }
}

/// Lines, each behind the public id of its tenant.
pub async fn named(store: &AnyStore, rows: Vec<AuditRow>) -> Result<Vec<(Option<String>, AuditRow)>, AppError> {
    let names = Names::of(rows.iter().map(|row| row.tenant), store).await?;
    Ok(rows.into_iter().map(|row| (names.name(row.tenant), row)).collect())
}

/// A page of heads, each behind the number of its tenant, which `after` is too.
pub async fn named_heads(store: &AnyStore, after: Option<i64>, limit: u32) -> Result<Vec<(i64, KeptHead)>, AppError> {
    let heads = store.audit_heads(Cursor { after, limit }).await?;
    let names = Names::of(heads.iter().map(|head| head.tenant), store).await?;
    let named = heads.into_iter().map(|head| {
        let link = head.link.map(|link| hex(&link));
        let of = KeptHead { merchant_id: names.name(head.tenant), no: head.no, link };
        (head.tenant.map_or(0, |tenant| tenant.0), of)
    });
    Ok(named.collect())
}

/// A page of lines.
pub async fn named_lines(store: &AnyStore, after: Option<ChainPlace>, limit: u32) -> Result<Vec<NamedLine>, AppError> {
    let lines = lines(store, after, limit).await?;
    let names = Names::of(lines.iter().map(|line| line.row.tenant), store).await?;
    let named = lines.into_iter().map(|ChainLine { place, row, link }| {
        let merchant_id = names.name(row.tenant);
        NamedLine { place, merchant_id, row, link: link.map(|link| hex(&link)) }
    });
    Ok(named.collect())
}
