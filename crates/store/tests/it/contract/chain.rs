//! The chain of the audit log.

use std::sync::Arc;

use countersign_domain::ids::TenantNo;
use countersign_store::audit_gaps::AuditGaps as _;
use countersign_store::chain::{ChainFault, ChainHead, ChainKey, ChainLine, ChainReport, ChainWalk, UnreadableLine};
use countersign_store::contract::Cursor;
use countersign_store::{AnyStore, Batch, Store};

use crate::fixtures::{OTHER_TENANT, SUB, TENANT, append, at, audit_of, commit, version};

type Any = Arc<AnyStore>;

/// The action that says what was there before the chain.
const BEGIN: &str = "audit.begin";

pub fn key() -> ChainKey {
    ChainKey::new(&[42; 32])
}

pub async fn heads(store: &AnyStore) -> Vec<ChainHead> {
    store.audit_heads(Cursor { after: None, limit: 1000 }).await.expect("reads")
}

pub async fn lines(store: &AnyStore) -> Vec<ChainLine> {
    store.audit_chain(Cursor { after: None, limit: 10_000 }).await.expect("reads")
}

/// Walks over the whole log.
pub async fn walk(store: &AnyStore) -> Result<ChainReport, ChainFault> {
    walk_with(store, &key(), Vec::new()).await
}

pub async fn walk_with(store: &AnyStore, key: &ChainKey, kept: Vec<ChainHead>) -> Result<ChainReport, ChainFault> {
    let now = heads(store).await;
    let mut walk = ChainWalk::new(key.clone(), now.iter().copied().chain(kept), BEGIN);
    for line in lines(store).await {
        walk.line(&line);
    }
    let (report, faults) = walk.end(now);
    faults.into_iter().next().map_or(Ok(report), Err)
}

pub async fn lines_are_linked_and_the_walk_finds_them_in_order(store: Any) {
    store.chain_audit(key());
    // A later key is not taken: it would break what is linked.
    store.chain_audit(ChainKey::new(&[1; 32]));
    for no in 0..3 {
        commit(&*store, vec![audit_of(Some(TENANT), no, "a"), audit_of(Some(TENANT), no, "b")]).await;
        commit(&*store, vec![audit_of(Some(OTHER_TENANT), no, "c")]).await;
        commit(&*store, vec![audit_of(None, no, "d")]).await;
    }
    let report = walk(&store).await.expect("holds");
    assert_eq!((report.lines, report.tenants, report.unlinked), (12, 3, 0));
    let read = lines(&store).await;
    assert!(read.iter().all(|line| line.link.is_some()));
    let of = |tenant: Option<TenantNo>| {
        let last = read.iter().filter(|line| line.row.tenant == tenant).max_by_key(|line| line.row.no).expect("there");
        ChainHead { tenant, no: last.row.no, link: last.link }
    };
    assert_eq!(heads(&store).await, [of(None), of(Some(TENANT)), of(Some(OTHER_TENANT))]);
    let other = walk_with(&store, &ChainKey::new(&[1; 32]), Vec::new()).await.expect_err("another key");
    assert_eq!(other.no, 1);
}

pub async fn lines_of_many_commits_at_once_hang_together(store: Any) {
    store.chain_audit(key());
    let tasks: Vec<_> = (0..64_i64)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let tenant = [None, Some(TENANT), Some(OTHER_TENANT)][usize::try_from(n % 3).expect("small")];
                let line = |action: &str| audit_of(tenant, n, action);
                commit(&*store, vec![line("one"), line("two")]).await;
                commit(&*store, vec![line("three")]).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("commits");
    }
    let report = walk(&store).await.expect("holds");
    assert_eq!((report.lines, report.unlinked), (192, 0));
}

pub async fn a_refused_batch_leaves_no_link(store: Any) {
    store.chain_audit(key());
    commit(&*store, vec![audit_of(Some(TENANT), 0, "first")]).await;
    let before = heads(&store).await;
    for refused in [
        vec![audit_of(Some(TENANT), 1, "refused"), append(SUB, version(5))],
        vec![audit_of(Some(TENANT), 1, "refused"), append(SUB, version(1)), append(SUB, version(3))],
    ] {
        store.commit(Batch(refused)).await.expect_err("out of turn");
    }
    assert_eq!(heads(&store).await, before);
    commit(&*store, vec![audit_of(Some(TENANT), 2, "second")]).await;
    assert_eq!(walk(&store).await.expect("holds").lines, 2);
}

pub async fn lines_of_before_the_chain_are_covered_by_its_digest(store: Any) {
    for no in 0..3 {
        commit(&*store, vec![audit_of(Some(TENANT), no, "old")]).await;
    }
    commit(&*store, vec![audit_of(None, 0, "old")]).await;
    let before = walk(&store).await.expect("nothing to hold");
    assert_eq!((before.lines, before.unlinked), (4, 4));
    store.chain_audit(key());
    commit(&*store, vec![audit_of(None, 4, BEGIN)]).await;
    commit(&*store, vec![audit_of(Some(TENANT), 5, "new")]).await;
    let after = walk(&store).await.expect("holds");
    assert_eq!((after.lines, after.unlinked), (6, 4));
    assert_eq!(after.unlinked_digest, before.unlinked_digest, "new lines change nothing of what was before");
    assert_eq!(after.begun.len(), 1);
    assert_eq!(after.begun[0].at, at(4));
}

pub async fn a_page_goes_on_where_the_one_before_ended(store: Any) {
    store.chain_audit(key());
    for no in 0..7 {
        commit(&*store, vec![audit_of([None, Some(TENANT)][no % 2], 0, "a")]).await;
    }
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = store.audit_chain(Cursor { after, limit: 3 }).await.expect("reads");
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        paged.extend(page);
    }
    assert_eq!(paged, lines(&store).await);
    let first = store.audit_heads(Cursor { after: None, limit: 1 }).await.expect("reads");
    assert_eq!(first[0].tenant, None);
    let second = store.audit_heads(Cursor { after: Some(0), limit: 9 }).await.expect("reads");
    assert_eq!(second.iter().map(|head| (head.tenant, head.no)).collect::<Vec<_>>(), [(Some(TENANT), 3)]);
}

pub async fn who_has_a_chain_is_read_by_the_page(store: Any) {
    // Merchants of their own, and none of their sub-accounts.
    let owners = async |after, limit| store.chain_owners(Cursor { after, limit }).await.expect("reads");
    assert_eq!(owners(None, 9).await, [TENANT, OTHER_TENANT]);
    assert_eq!(owners(None, 1).await, [TENANT]);
    assert_eq!(owners(Some(TENANT.0), 9).await, [OTHER_TENANT]);
    assert_eq!(owners(Some(OTHER_TENANT.0), 9).await, []);
}

pub async fn what_is_known_of_a_line_is_read_by_the_place_before_it(store: Any) {
    store.chain_audit(key());
    for tenant in [None, Some(TENANT), None] {
        commit(&*store, vec![audit_of(tenant, 0, "a"), audit_of(tenant, 0, "b")]).await;
    }
    let mut after = None;
    for line in lines(&store).await {
        let known = store.unreadable_line(after).await.expect("reads");
        let (tenant, no) = (line.row.tenant, line.row.no);
        assert_eq!(known, Some(UnreadableLine { place: line.place, tenant, no, link: line.link }));
        after = Some(line.place);
    }
    assert_eq!(store.unreadable_line(after).await.expect("reads"), None);
}
