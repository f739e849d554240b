//! Fee rules: append-only versions, heads, and an institution's list.

use std::sync::Arc;

use countersign_domain::ids::MerchantNo;
use countersign_domain::money::Amount;
use countersign_domain::rules::{Markup, RuleVersion};
use countersign_store::batch::{Batch, Conflict, Key, Write};
use countersign_store::contract::{Cursor, ListedRule, MerchantKind, RuleFilter, RulePage, RuleRecord, RuleStanding};
use countersign_store::{AnyStore, Store};
use rust_decimal::Decimal;

use crate::fixtures::*;

type Any = Arc<AnyStore>;

pub async fn versions_are_appended_in_order_and_move_the_head(store: Any) {
    assert_eq!(store.rule_head(TENANT, SUB, None).await.expect("reads"), None);
    for no in 1..=3 {
        commit(&*store, vec![append(SUB, version(no))]).await;
        let head = store.rule_head(TENANT, SUB, None).await.expect("reads").expect("has a head");
        assert_eq!(head.last, version(no));
        assert_eq!(head.base, (no > 1).then(|| version(no - 1)));
    }
    let versions = store.rule_versions(TENANT, SUB, all()).await.expect("reads");
    assert_eq!(versions, [version(3), version(2), version(1)]);
}

pub async fn a_version_out_of_turn_is_refused(store: Any) {
    let moved = Conflict::Moved(Key::RuleHead(SUB));
    assert_eq!(conflict(&*store, vec![append(SUB, version(2))]).await, moved);
    commit(&*store, vec![append(SUB, version(1))]).await;
    assert_eq!(conflict(&*store, vec![append(SUB, version(1))]).await, moved);
    assert_eq!(conflict(&*store, vec![append(SUB, version(3))]).await, moved);
    assert_eq!(store.rule_versions(TENANT, SUB, all()).await.expect("reads"), [version(1)]);
}

pub async fn of_64_first_versions_at_once_one_is_appended(store: Any) {
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(
                async move { store.commit(Batch(vec![append(SUB, version(1)), audit("upgrade")])).await.is_ok() },
            )
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += usize::from(task.await.expect("ends"));
    }
    assert_eq!(done, 1);
    assert_eq!(store.audit(all()).await.expect("reads").len(), 1);
}

pub async fn rules_of_two_sub_accounts_do_not_mix(store: Any) {
    commit(&*store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
    let b = MerchantNo(11);
    commit(&*store, vec![append(SUB, version(1))]).await;
    commit(&*store, vec![append(b, version(1))]).await;
    commit(&*store, vec![append(SUB, version(2))]).await;
    commit(&*store, vec![append(b, version(2))]).await;
    commit(&*store, vec![append(b, version(3))]).await;
    assert_eq!(store.rule_versions(TENANT, SUB, all()).await.expect("reads").len(), 2);
    let head = store.rule_head(TENANT, b, None).await.expect("reads").expect("has a head");
    assert_eq!((head.last, head.base), (version(3), Some(version(2))));
    assert_eq!(store.rule_head(TENANT, INSTITUTION, None).await.expect("reads"), None);
}

pub async fn a_head_as_of_an_instant_is_the_last_made_by_then(store: Any) {
    for no in 1..=4 {
        commit(&*store, vec![append(SUB, version(no))]).await;
    }
    let head = |ms| {
        let store = Arc::clone(&store);
        async move { store.rule_head(TENANT, SUB, Some(at(ms))).await.expect("reads") }
    };
    assert_eq!(head(999).await, None);
    let first = head(1000).await.expect("there");
    assert_eq!((first.last, first.base), (version(1), None));
    let third = head(3999).await.expect("there");
    assert_eq!((third.last, third.base), (version(3), Some(version(2))));
    assert_eq!(head(1_000_000).await.expect("there").last, version(4));
}

pub async fn a_base_is_any_earlier_version(store: Any) {
    for no in 1..=3 {
        commit(&*store, vec![append(SUB, version(no))]).await;
    }
    for (no, base) in [(4, Some(1)), (5, Some(1)), (6, Some(2)), (7, None), (8, Some(7))] {
        let made = RuleVersion { base_version_no: base, ..version(no) };
        commit(&*store, vec![append(SUB, made.clone())]).await;
        let head = store.rule_head(TENANT, SUB, None).await.expect("reads").expect("has a head");
        assert_eq!(head.last, made);
        assert_eq!(head.base.map(|b| b.version_no), base);
    }
}

pub async fn markups_come_back_digit_for_digit(store: Any) {
    let texts =
        [("0", "0"), ("100", "5000000"), ("0.00000001", "0.000001"), ("12.34567891", "4999999.999999"), ("0.3", "7")];
    for (no, (r, f)) in (1..).zip(texts) {
        let markup = Markup::new(r.parse().expect("a number"), f.parse().expect("a number")).expect("within limits");
        commit(&*store, vec![append(SUB, RuleVersion { markup, due_at: Some(at(no)), ..version(no) })]).await;
        let last = store.rule_head(TENANT, SUB, None).await.expect("reads").expect("has a head").last;
        assert_eq!((last.markup.r().to_string().as_str(), last.markup.f().to_string().as_str()), (r, f));
        assert_eq!(last.due_at, Some(at(no)));
    }
    let base = Decimal::from_str_exact("0.10").expect("a number");
    let row =
        countersign_store::contract::MerchantRow { base_r: base, base_f: Amount::from_micros(1), ..sub(12, "sub-c") };
    commit(&*store, vec![Write::InsertMerchant(Box::new(row.clone()))]).await;
    assert_eq!(store.merchant("sub-c").await.expect("reads").expect("there").base_r.to_string(), "0.10");
}

pub async fn versions_are_paged_newest_first(store: Any) {
    for no in 1..=7 {
        commit(&*store, vec![append(SUB, version(no))]).await;
    }
    let mut after = None;
    let mut seen = Vec::new();
    for expected in [3, 3, 1, 0] {
        let page = store.rule_versions(TENANT, SUB, Cursor { after, limit: 3 }).await.expect("reads");
        assert_eq!(page.len(), expected);
        after = page.last().map(|v| v.version_no).or(after);
        seen.extend(page.into_iter().map(|v| v.version_no));
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
}

pub async fn among_very_many_versions_a_page_and_a_head_as_of_an_instant_are_found(store: Any) {
    commit(&*store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
    // Three in each second, so that some share their instant with one that a walk begins at.
    let made = |no| RuleVersion { created_at: at(1_000 * (1 + no / 3)), ..version(no) };
    for no in 1..=200 {
        commit(&*store, vec![append(SUB, made(no)), append(MerchantNo(11), made(no))]).await;
    }
    for second in 0..=70 {
        let last = (1..=200).rev().map(made).find(|version| version.created_at <= at(1_000 * second));
        let found = store.rule_head(TENANT, SUB, Some(at(1_000 * second))).await.expect("reads");
        assert_eq!(found.map(|head| head.last), last, "made by second {second}");
    }
    for before in [1, 2, 63, 64, 65, 66, 127, 128, 129, 192, 193, 200, 201, i64::MAX] {
        let page = Cursor { after: Some(before), limit: 3 };
        let found = store.rule_versions(TENANT, SUB, page).await.expect("reads");
        let wanted: Vec<i64> = (1..=200).rev().filter(|no| *no < before).take(3).collect();
        assert_eq!(found.iter().map(|version| version.version_no).collect::<Vec<_>>(), wanted, "before {before}");
    }
}

pub async fn a_rule_of_nobody_is_refused(store: Any) {
    unfit(&*store, vec![append(MerchantNo(404), version(1))]).await;
    assert_eq!(store.rule_head(TENANT, MerchantNo(404), None).await.expect("reads"), None);
}

pub async fn a_malformed_version_is_refused(store: Any) {
    commit(&*store, vec![append(SUB, version(1))]).await;
    unfit(&*store, vec![append(SUB, RuleVersion { base_version_no: Some(2), ..version(2) })]).await;
    unfit(&*store, vec![append(SUB, RuleVersion { previous: None, ..version(2) })]).await;
    unfit(&*store, vec![append(SUB, RuleVersion { version_no: 0, ..version(1) })]).await;
    commit(&*store, vec![append(SUB, version(2))]).await;
}

/// Subs b, c, d beside `sub-a`: b has a rule in force and a pending one, c one that ended, d only a pending one.
async fn furnish_page(store: &Any) {
    for (no, id) in [(13, "sub-d"), (11, "sub-b"), (12, "sub-c")] {
        commit(&**store, vec![Write::InsertMerchant(Box::new(sub(no, id)))]).await;
    }
    let (b, c, d) = (MerchantNo(11), MerchantNo(12), MerchantNo(13));
    commit(&**store, vec![append(b, version(1))]).await;
    let pending = RuleVersion { effective_at: at(50_000), ..version(2) };
    commit(&**store, vec![append(b, pending)]).await;
    commit(&**store, vec![append(c, RuleVersion { due_at: Some(at(9_000)), ..version(1) })]).await;
    commit(&**store, vec![append(d, RuleVersion { effective_at: at(60_000), ..version(1) })]).await;
}

async fn page(store: &Any, filter: RuleFilter, now_ms: i64, offset: u64, limit: u32) -> RulePage {
    store.rule_page(TENANT, filter, at(now_ms), offset, limit).await.expect("reads")
}

/// `id`, `id/version` or `id/version/pending`.
fn names(page: &RulePage) -> Vec<String> {
    let name = |r: &RuleRecord| match &r.rule {
        ListedRule::None => r.sub_merchant_id.clone(),
        ListedRule::InForce(v) => format!("{}/{}", r.sub_merchant_id, v.version_no),
        ListedRule::Pending { version: v, .. } => format!("{}/{}/pending", r.sub_merchant_id, v.version_no),
    };
    page.records.iter().map(name).collect()
}

pub async fn a_page_is_ordered_by_id_then_version(store: Any) {
    furnish_page(&store).await;
    let found = page(&store, RuleFilter::default(), 10_000, 0, 100).await;
    assert_eq!(names(&found), ["sub-a", "sub-b/1", "sub-b/2/pending", "sub-c", "sub-d/1/pending"]);
    assert_eq!(found.total, 5);
}

pub async fn a_page_follows_the_time(store: Any) {
    furnish_page(&store).await;
    let at_8 = page(&store, RuleFilter::default(), 8_999, 0, 100).await;
    assert_eq!(names(&at_8), ["sub-a", "sub-b/1", "sub-b/2/pending", "sub-c/1", "sub-d/1/pending"]);
    let at_50 = page(&store, RuleFilter::default(), 50_000, 0, 100).await;
    assert_eq!(names(&at_50), ["sub-a", "sub-b/2", "sub-c", "sub-d/1/pending"]);
    let at_60 = page(&store, RuleFilter::default(), 60_000, 0, 100).await;
    assert_eq!(names(&at_60), ["sub-a", "sub-b/2", "sub-c", "sub-d/1"]);
}

pub async fn a_page_is_cut_by_offset_and_limit_and_counts_all(store: Any) {
    furnish_page(&store).await;
    let second = page(&store, RuleFilter::default(), 10_000, 2, 2).await;
    assert_eq!((names(&second), second.total), (vec!["sub-b/2/pending".to_owned(), "sub-c".to_owned()], 5));
    let beyond = page(&store, RuleFilter::default(), 10_000, 5, 2).await;
    assert_eq!((beyond.records.len(), beyond.total), (0, 5));
}

pub async fn a_page_obeys_its_filters(store: Any) {
    furnish_page(&store).await;
    let listed = |filter: RuleFilter| {
        let store = Arc::clone(&store);
        async move { names(&page(&store, filter, 10_000, 0, 100).await) }
    };
    let none = RuleFilter::default;
    let with = listed(RuleFilter { has_markup: Some(true), ..none() }).await;
    assert_eq!(with, ["sub-b/1", "sub-b/2/pending", "sub-d/1/pending"]);
    assert_eq!(listed(RuleFilter { has_markup: Some(false), ..none() }).await, ["sub-a", "sub-c"]);
    let pending = listed(RuleFilter { standing: Some(RuleStanding::Pending), ..none() }).await;
    assert_eq!(pending, ["sub-b/2/pending", "sub-d/1/pending"]);
    assert_eq!(listed(RuleFilter { standing: Some(RuleStanding::InForce), ..none() }).await, ["sub-b/1"]);
    let one = RuleFilter { sub_merchant_id: Some("sub-b".to_owned()), ..none() };
    assert_eq!(listed(one).await, ["sub-b/1", "sub-b/2/pending"]);
    let nobody = RuleFilter { sub_merchant_id: Some("sub-x".to_owned()), ..none() };
    assert!(listed(nobody).await.is_empty());
    let contradiction = RuleFilter { has_markup: Some(false), standing: Some(RuleStanding::Pending), ..none() };
    assert!(listed(contradiction).await.is_empty());
}

pub async fn a_page_shows_only_the_tenants_own_sub_accounts(store: Any) {
    let theirs = merchant(MerchantNo(21), "sub-of-other", OTHER_TENANT, MerchantKind::SubAccount);
    commit(&*store, vec![Write::InsertMerchant(Box::new(theirs))]).await;
    assert_eq!(names(&page(&store, RuleFilter::default(), 0, 0, 100).await), ["sub-a"]);
}
