//! The chain of the audit log: its key, where it begins, and the walk that says whether it holds.
//!
//! The key is the deployment's own, made by `init` (or by the first start of a program that knows chains), and kept sealed under the master key.
//! So another master key changes no link.

use std::collections::BTreeMap;

use countersign_domain::ids::TenantNo;
use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Write};
use countersign_store::chain::{
    ChainFault, ChainHead, ChainKey, ChainLine, ChainPlace, ChainReport, ChainWalk, LINK_BYTES,
};
use countersign_store::contract::AuditRow;
use countersign_store::contract::{CommitError, Cursor};
use countersign_store::{AnyStore, Store as _, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::Actor;
use super::error::AppError;
use crate::chance::{Chance, hex, unhex};
use crate::vault::{CHAIN_KEY_ROW, Vault, VaultError};

/// The setting that holds the sealed key: the id of its master key, a colon, hexadecimal.
pub const CHAIN_KEY: &str = "audit_chain_key";
/// The line that says what was there before the chain.
pub const BEGIN: &str = "audit.begin";

/// Lines read at a time.
const PAGE: u32 = 1000;

/// A key for the chain of a new deployment, and the setting that keeps it.
pub fn new_key(vault: &Vault, chance: &Chance) -> (ChainKey, String) {
    let mut key = Zeroizing::new([0; LINK_BYTES]);
    chance.fill(key.as_mut_slice());
    let (key_id, sealed) = vault.seal(chance, CHAIN_KEY_ROW, key.as_slice());
    (ChainKey::new(&key), format!("{key_id}:{}", hex(&sealed)))
}

fn parts(setting: &str) -> Result<(&str, Vec<u8>), StoreError> {
    let unreadable = || StoreError::Corrupt { table: "setting", row: CHAIN_KEY.to_owned() };
    let (key_id, sealed) = setting.split_once(':').ok_or_else(unreadable)?;
    Ok((key_id, unhex(sealed).ok_or_else(unreadable)?))
}

fn opened(vault: &Vault, setting: &str) -> Result<Zeroizing<[u8; LINK_BYTES]>, StoreError> {
    let (key_id, sealed) = parts(setting)?;
    let unreadable = || StoreError::Corrupt { table: "setting", row: CHAIN_KEY.to_owned() };
    let plain = vault.open(key_id, CHAIN_KEY_ROW, &sealed).map_err(|error| match error {
        VaultError::DoesNotOpen => unreadable(),
        VaultError::NoSuchKey(_) => StoreError::Unavailable(error.to_string()),
    })?;
    <[u8; LINK_BYTES]>::try_from(plain.as_slice()).map(Zeroizing::new).map_err(|_| unreadable())
}

/// The setting with the key sealed under the current master key; none where it is already.
pub fn sealed_again(vault: &Vault, chance: &Chance, setting: &str) -> Result<Option<String>, StoreError> {
    if parts(setting)?.0 == vault.key_id() {
        return Ok(None);
    }
    let key = opened(vault, setting)?;
    let sealed = vault.seal_under_current(chance, CHAIN_KEY_ROW, key.as_slice());
    Ok(Some(format!("{}:{}", vault.key_id(), hex(&sealed))))
}

/// The key of a deployment's chain; none: it has not begun.
pub async fn key(vault: &Vault, store: &AnyStore) -> Result<Option<ChainKey>, StoreError> {
    let Some(setting) = store.setting(CHAIN_KEY).await? else { return Ok(None) };
    Ok(Some(ChainKey::new(&*opened(vault, &setting)?)))
}

/// From here on the store links lines. Where there is no key yet, it is made, and what is in the log already is noted in the first line
/// that is linked.
pub async fn begin(vault: &Vault, store: &AnyStore, chance: &Chance, now: UnixMillis) -> Result<(), AppError> {
    if let Some(key) = key(vault, store).await? {
        store.chain_audit(key);
        return Ok(());
    }
    let (key, setting) = new_key(vault, chance);
    let found = walk(store, &key, Vec::new()).await?;
    let found = found
        .map_err(|fault| StoreError::Unfit(format!("the audit log is broken at line {}: {}", fault.no, fault.what)))?;
    let mut writes = vec![Write::MoveSetting { name: CHAIN_KEY.to_owned(), from: None, to: setting }];
    if found.unlinked > 0 {
        let system = Actor { name: "system".to_owned(), source: String::new(), request_id: String::new() };
        let before = json!({ "lines": found.unlinked, "sha256": hex(&found.unlinked_digest) }).to_string();
        writes.push(Write::RecordAudit(Box::new(system.did(None, now, BEGIN, "audit", before, String::new()))));
    }
    // Before the commit, whose line is the first that is linked.
    store.chain_audit(key);
    match store.commit(Batch(writes)).await {
        Ok(_) => Ok(()),
        Err(CommitError::Conflict(_)) => {
            let why = "another node began the chain of the audit log at the same moment: start this one again";
            Err(StoreError::Unavailable(why.to_owned()).into())
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
struct Before {
    lines: u64,
    sha256: String,
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

async fn walk(
    store: &AnyStore,
    key: &ChainKey,
    kept: Vec<ChainHead>,
) -> Result<Result<ChainReport, ChainFault>, StoreError> {
    let before = heads(store).await?;
    let mut walk = ChainWalk::new(key, kept.into_iter().chain(before), BEGIN);
    let mut after = None;
    loop {
        let page = match lines(store, after, PAGE).await {
            Ok(page) => page,
            Err(StoreError::Corrupt { table, row }) => return Ok(Err(unreadable(table, &row))),
            Err(error) => return Err(error),
        };
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        for line in &page {
            if let Err(fault) = walk.line(line) {
                return Ok(Err(fault));
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(walk.end(heads(store).await?))
}

fn unreadable(table: &str, row: &str) -> ChainFault {
    let mut numbers = row.split('/').map(|number| number.parse::<i64>().unwrap_or_default());
    let (tenant, no) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let what = format!("row {row} of {table} cannot be read back");
    ChainFault { tenant: (tenant != 0).then_some(TenantNo(tenant)), no, what }
}

/// Walks over the whole log. `kept`: heads that were kept elsewhere; what was cut off since is found by them.
pub async fn verify(
    vault: &Vault,
    store: &AnyStore,
    kept: Vec<ChainHead>,
) -> Result<Result<ChainReport, ChainFault>, StoreError> {
    let Some(key) = key(vault, store).await? else {
        let what = "the key of the chain is not in the settings: the log was never linked, or the key was taken away"
            .to_owned();
        return Ok(Err(ChainFault { tenant: None, no: 1, what }));
    };
    let report = match walk(store, &key, kept).await? {
        Ok(report) => report,
        Err(fault) => return Ok(Err(fault)),
    };
    if report.unlinked == 0 {
        return Ok(Ok(report));
    }
    let fault = |no: i64, what: &str| Ok(Err(ChainFault { tenant: None, no, what: what.to_owned() }));
    let Some(begun) = report.begun.first() else {
        return fault(
            1,
            "lines have no link, and no line says that there were any before the chain: links were taken away",
        );
    };
    match serde_json::from_str::<Before>(&begun.before) {
        Ok(Before { lines, sha256 }) if lines == report.unlinked && sha256 == hex(&report.unlinked_digest) => {
            Ok(Ok(report))
        }
        Ok(_) | Err(_) => fault(begun.no, "the lines from before the chain are not those that this line found"),
    }
}

/// A head with the public id of its tenant, as it is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
pub struct Line {
    /// Where it stands in the order of the chain.
    pub place: ChainPlace,
    /// The institution or plain merchant; none for the system's own lines.
    pub merchant_id: Option<String>,
    /// The line.
    pub row: AuditRow,
    /// Its link, hexadecimal.
    pub link: Option<String>,
}

/// What a walk over the whole log came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Verified {
    /// Whether every line is what was written.
    pub holds: bool,
    /// Lines that hold; with a fault: 0.
    pub lines: u64,
    /// Chains: one for each institution and plain merchant, and the system's.
    pub chains: u64,
    /// Of those lines, how many are from before the chain; they hold as a whole.
    pub lines_before_chain: u64,
    /// The first wrong place.
    pub fault: Option<VerifiedFault>,
}

/// The first line that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VerifiedFault {
    /// The institution or plain merchant; null for the system's own lines.
    pub merchant_id: Option<String>,
    /// The number of the line.
    pub no: i64,
    /// What is wrong with it.
    pub what: String,
}

/// The public id of a tenant. One that is nobody's is named by its number: somebody has changed it.
async fn name(store: &AnyStore, tenant: Option<TenantNo>) -> Result<Option<String>, StoreError> {
    let Some(tenant) = tenant else { return Ok(None) };
    let page = Cursor { after: Some(tenant.0.saturating_sub(1)), limit: 1 };
    let found = store.merchants(Some(tenant), None, page).await?;
    let found = found.into_iter().next().filter(|merchant| merchant.no.0 == tenant.0);
    Ok(Some(found.map_or_else(|| format!("tenant number {}", tenant.0), |merchant| merchant.merchant_id)))
}

/// Names that were looked up for one page.
#[derive(Default)]
struct Names(BTreeMap<TenantNo, Option<String>>);

impl Names {
    async fn of(&mut self, store: &AnyStore, tenant: Option<TenantNo>) -> Result<Option<String>, StoreError> {
        let Some(no) = tenant else { return Ok(None) };
        if let Some(known) = self.0.get(&no) {
            return Ok(known.clone());
        }
        let found = name(store, tenant).await?;
        self.0.insert(no, found.clone());
        Ok(found)
    }
}

/// A page of heads, each behind the number of its tenant, which `after` is too.
pub async fn named_heads(store: &AnyStore, after: Option<i64>, limit: u32) -> Result<Vec<(i64, KeptHead)>, AppError> {
    let mut all = Vec::new();
    for head in store.audit_heads(Cursor { after, limit }).await? {
        let merchant_id = name(store, head.tenant).await?;
        let head_of = KeptHead { merchant_id, no: head.no, link: head.link.map(|link| hex(&link)) };
        all.push((head.tenant.map_or(0, |tenant| tenant.0), head_of));
    }
    Ok(all)
}

/// A page of lines.
pub async fn named_lines(store: &AnyStore, after: Option<ChainPlace>, limit: u32) -> Result<Vec<Line>, AppError> {
    let (mut names, mut all) = (Names::default(), Vec::new());
    for ChainLine { place, row, link } in lines(store, after, limit).await? {
        let merchant_id = names.of(store, row.tenant).await?;
        all.push(Line { place, merchant_id, row, link: link.map(|link| hex(&link)) });
    }
    Ok(all)
}

/// As [`verify`], in the words of the outside.
pub async fn verify_named(vault: &Vault, store: &AnyStore, kept: Vec<KeptHead>) -> Result<Verified, AppError> {
    let mut heads = Vec::with_capacity(kept.len());
    let fault = |merchant_id: Option<String>, no: i64, what: &str| Verified {
        holds: false,
        lines: 0,
        chains: 0,
        lines_before_chain: 0,
        fault: Some(VerifiedFault { merchant_id, no, what: what.to_owned() }),
    };
    for head in kept {
        let tenant = match &head.merchant_id {
            None => None,
            Some(id) => match store.merchant(id).await? {
                Some(merchant) if merchant.tenant.0 == merchant.no.0 => Some(merchant.tenant),
                Some(_) | None => {
                    return Ok(fault(head.merchant_id, head.no, "a head was kept of this merchant, and it has no log"));
                }
            },
        };
        let link = head.link.as_deref().map(|link| unhex(link).and_then(|link| link.try_into().ok()));
        let link = match link {
            None => None,
            Some(Some(link)) => Some(link),
            Some(None) => {
                let why = format!("the link of the kept head of line {} is not 64 hex digits", head.no);
                return Err(AppError::InvalidParameter(why));
            }
        };
        heads.push(ChainHead { tenant, no: head.no, link });
    }
    Ok(match verify(vault, store, heads).await? {
        Ok(report) => Verified {
            holds: true,
            lines: report.lines,
            chains: report.tenants,
            lines_before_chain: report.unlinked,
            fault: None,
        },
        Err(found) => fault(name(store, found.tenant).await?, found.no, &found.what),
    })
}
