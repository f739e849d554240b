//! A rule version is made later than every order of its sub-account that was paid before it.

use std::sync::Arc;

use countersign_domain::ids::MerchantNo;
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus};
use countersign_domain::rules::RuleVersion;
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::payment_order::PaymentOrderRow;
use countersign_store::{AnyStore, Store as _};

use super::payment_orders::{moved, paid};
use crate::fixtures::*;

type Any = Arc<AnyStore>;

/// The move that pays an order at an instant.
pub fn pay(row: &PaymentOrderRow, paid_ms: i64) -> Write {
    let paid = paid(row);
    let order = PaymentOrder { paid_at: Some(at(paid_ms)), ..paid.order.clone() };
    moved(&PaymentOrderRow { order, ..paid }, PaymentStatus::Pending)
}

/// Adds a pending order.
pub async fn add(store: &AnyStore, merchant: MerchantNo, number: i64) -> PaymentOrderRow {
    let row = payment_order(merchant, number, &format!("T-{number}"));
    commit(store, vec![insert_payment(row.clone())]).await;
    row
}

/// Version `no`, made at an instant.
pub fn made(no: i64, ms: i64) -> RuleVersion {
    RuleVersion { created_at: at(ms), ..version(no) }
}

pub const fn since(ms: i64) -> Conflict {
    Conflict::PaidSince(SUB, at(ms))
}

async fn versions(store: &AnyStore) -> usize {
    store.rule_versions(TENANT, SUB, all()).await.expect("reads").len()
}

pub async fn a_version_is_made_after_whatever_was_paid_before_it(store: Any) {
    let (first, second) = (add(&store, SUB, 7).await, add(&store, SUB, 8).await);
    // Also the first version: there was none when the order was paid.
    commit(&*store, vec![pay(&first, 500)]).await;
    for ms in [1, 499, 500] {
        assert_eq!(conflict(&*store, vec![append(SUB, made(1, ms)), audit("no")]).await, since(500));
    }
    commit(&*store, vec![append(SUB, made(1, 501))]).await;
    commit(&*store, vec![pay(&second, 1_500)]).await;
    assert_eq!(conflict(&*store, vec![append(SUB, made(2, 1_500)), audit("no")]).await, since(1_500));
    assert_eq!(versions(&store).await, 1);
    commit(&*store, vec![append(SUB, made(2, 1_501))]).await;
    assert_eq!(store.audit(all()).await.expect("reads"), []);
}

pub async fn what_was_paid_by_a_clock_that_is_behind_lowers_nothing(store: Any) {
    let (first, second) = (add(&store, SUB, 7).await, add(&store, SUB, 8).await);
    commit(&*store, vec![pay(&first, 1_500)]).await;
    commit(&*store, vec![pay(&second, 1_200)]).await;
    assert_eq!(conflict(&*store, vec![append(SUB, made(1, 1_300))]).await, since(1_500));
    commit(&*store, vec![append(SUB, made(1, 1_501))]).await;
}

pub async fn what_is_paid_elsewhere_or_not_at_all_holds_no_version_up(store: Any) {
    let other = MerchantNo(11);
    commit(&*store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
    let own = add(&store, SUB, 7).await;
    let (others, of_the_institution) = (add(&store, other, 8).await, add(&store, INSTITUTION, 9).await);
    let mut without_fee = paid(&of_the_institution);
    (without_fee.order.fee, without_fee.order.paid_at) = (None, Some(at(9_000)));
    commit(&*store, vec![pay(&others, 9_000)]).await;
    commit(&*store, vec![moved(&without_fee, PaymentStatus::Pending)]).await;
    let stale = Write::Guard(Guard::RuleHead { tenant: TENANT, merchant: SUB, version_no: 3 });
    assert_eq!(conflict(&*store, vec![pay(&own, 9_000), stale]).await, Conflict::Moved(Key::RuleHead(SUB)));
    commit(&*store, vec![append(SUB, made(1, 1))]).await;
    commit(&*store, vec![append(INSTITUTION, made(1, 1))]).await;
    assert_eq!(
        conflict(&*store, vec![append(other, made(1, 1))]).await,
        Conflict::PaidSince(other, at(9_000)),
        "the other sub-account's own"
    );
}

pub async fn a_batch_that_pays_and_makes_a_version_is_judged_in_order(store: Any) {
    let row = add(&store, SUB, 7).await;
    assert_eq!(conflict(&*store, vec![pay(&row, 500), append(SUB, made(1, 500))]).await, since(500));
    // Whose version is out of turn is told that first.
    let out_of_turn = vec![pay(&row, 500), append(SUB, made(2, 500))];
    assert_eq!(conflict(&*store, out_of_turn).await, Conflict::Moved(Key::RuleHead(SUB)));
    commit(&*store, vec![append(SUB, made(1, 500)), pay(&row, 500)]).await;
    assert_eq!(conflict(&*store, vec![append(SUB, made(2, 500))]).await, since(500));
}

pub async fn of_64_that_pay_and_make_a_version_at_once_the_next_is_later_than_all_that_was_paid(store: Any) {
    let mut rows = Vec::new();
    for n in 0..32 {
        rows.push(add(&store, SUB, 100 + n).await);
    }
    let paying = rows.iter().zip(1..).map(|(row, n)| (vec![pay(row, 10 * n)], None));
    let making = (1..=32).map(|n| (vec![append(SUB, made(1, 10 * n))], Some(10 * n)));
    let begin = |(writes, version): (Vec<Write>, Option<i64>)| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { (version, store.commit(Batch(writes)).await.is_ok()) })
    };
    let tasks: Vec<_> = paying.chain(making).map(begin).collect();
    let (mut versions, mut paid) = (Vec::new(), 0);
    for task in tasks {
        match task.await.expect("ends") {
            (Some(ms), true) => versions.push(ms),
            (None, true) => paid += 1,
            (Some(_), false) => {}
            (None, false) => panic!("nothing stands in the way of a payment"),
        }
    }
    assert!(paid == 32 && versions.len() < 2, "{paid} {versions:?}");
    // Everything was paid by 320: whoever comes now comes behind that.
    let next = i64::try_from(versions.len()).expect("few") + 1;
    assert_eq!(conflict(&*store, vec![append(SUB, made(next, 320))]).await, since(320));
    commit(&*store, vec![append(SUB, made(next, 321))]).await;
}
