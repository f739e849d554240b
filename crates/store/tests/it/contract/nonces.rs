//! Nonces: used once, whoever asks and however.

use std::sync::Arc;

use countersign_domain::ids::ApplicationNo;
use countersign_store::batch::{Batch, Conflict, Key};
use countersign_store::contract::{ClaimKey, Claimed};
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

async fn reserve(store: &Any, claim: ClaimKey) -> Claimed {
    store.reserve(&claim).await.expect("answers")
}

async fn settle(store: &Any, claim: ClaimKey) -> Claimed {
    store.settle(claim).await.expect("answers")
}

pub async fn a_nonce_is_claimed_once(store: Any) {
    commit(&*store, vec![claim("n", 0)]).await;
    assert_eq!(conflict(&*store, vec![claim("n", 0)]).await, Conflict::NonceUsed);
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Used);
    assert_eq!(settle(&store, nonce("n", 0)).await, Claimed::Used);
    commit(&*store, vec![claim("m", 0)]).await;
}

pub async fn a_nonce_with_another_timestamp_is_the_same_nonce(store: Any) {
    commit(&*store, vec![claim("n", 0)]).await;
    assert_eq!(conflict(&*store, vec![claim("n", 5)]).await, Conflict::NonceUsed);
    assert_eq!(reserve(&store, nonce("n", -5)).await, Claimed::Used);
}

pub async fn the_same_text_of_another_application_is_another_nonce(store: Any) {
    let other = ClaimKey { tenant: OTHER_TENANT, application: OTHER_APP, ..nonce("n", 0) };
    commit(&*store, vec![claim("n", 0)]).await;
    assert_eq!(reserve(&store, other).await, Claimed::Fresh);
}

pub async fn a_reserved_nonce_is_used_for_everybody_else(store: Any) {
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Used);
    assert_eq!(reserve(&store, nonce("n", 9)).await, Claimed::Used);
}

pub async fn a_released_nonce_is_free_again(store: Any) {
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
    store.release(&nonce("n", 0));
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
}

pub async fn a_used_nonce_cannot_be_released(store: Any) {
    commit(&*store, vec![claim("n", 0)]).await;
    assert_eq!(settle(&store, nonce("m", 0)).await, Claimed::Fresh);
    for text in ["n", "m"] {
        store.release(&nonce(text, 0));
        assert_eq!(reserve(&store, nonce(text, 0)).await, Claimed::Used);
    }
}

pub async fn a_reservation_does_not_stop_the_batch_it_was_made_for(store: Any) {
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
    commit(&*store, vec![claim("n", 0)]).await;
    assert_eq!(conflict(&*store, vec![claim("n", 0)]).await, Conflict::NonceUsed);
}

pub async fn a_refused_batch_leaves_its_nonce_reserved(store: Any) {
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
    let refused = conflict(&*store, vec![claim("n", 0), append(SUB, version(5))]).await;
    assert_eq!(refused, Conflict::Moved(Key::RuleHead(SUB)));
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Used);
    assert_eq!(settle(&store, nonce("n", 0)).await, Claimed::Fresh, "it was only reserved");
}

pub async fn a_refused_batch_leaves_an_unreserved_nonce_free(store: Any) {
    conflict(&*store, vec![claim("n", 0), append(SUB, version(5))]).await;
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
}

pub async fn a_batch_that_cannot_be_kept_gives_its_nonce_back(store: Any) {
    let orphan = || countersign_store::Write::InsertSecret(Box::new(secret("sec_x", ApplicationNo(404), 1)));
    unfit(&*store, vec![claim("n", 0), orphan()]).await;
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
    unfit(&*store, vec![claim("n", 0), orphan()]).await;
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Used, "still reserved");
    assert_eq!(settle(&store, nonce("n", 0)).await, Claimed::Fresh);
}

pub async fn a_settled_nonce_is_used_everywhere(store: Any) {
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
    assert_eq!(settle(&store, nonce("n", 0)).await, Claimed::Fresh);
    assert_eq!(settle(&store, nonce("n", 0)).await, Claimed::Used);
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Used);
    assert_eq!(conflict(&*store, vec![claim("n", 0)]).await, Conflict::NonceUsed);
}

pub async fn a_nonce_can_be_settled_without_a_reservation(store: Any) {
    assert_eq!(settle(&store, nonce("n", 0)).await, Claimed::Fresh);
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Used);
}

pub async fn a_nonce_twice_in_one_batch_is_refused(store: Any) {
    let refused = conflict(&*store, vec![claim("n", 0), put("a", "1"), claim("n", 1)]).await;
    assert_eq!(refused, Conflict::NonceUsed);
    assert_eq!(store.setting("a").await.expect("reads"), None);
    assert_eq!(reserve(&store, nonce("n", 0)).await, Claimed::Fresh);
}

async fn of_64<F, T>(ask: impl Fn() -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks: Vec<_> = (0..64).map(|_| tokio::spawn(ask())).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("ends"));
    }
    answers
}

pub async fn of_64_reservations_at_once_one_is_fresh(store: Any) {
    let answers = of_64(|| {
        let store = Arc::clone(&store);
        async move { reserve(&store, nonce("n", 0)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|a| **a == Claimed::Fresh).count(), 1);
    assert_eq!(answers.iter().filter(|a| **a == Claimed::Used).count(), 63);
}

pub async fn of_64_settlements_at_once_one_is_fresh(store: Any) {
    let answers = of_64(|| {
        let store = Arc::clone(&store);
        async move { settle(&store, nonce("n", 0)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|a| **a == Claimed::Fresh).count(), 1);
}

pub async fn of_64_batches_at_once_one_claims(store: Any) {
    let answers = of_64(|| {
        let store = Arc::clone(&store);
        async move { store.commit(Batch(vec![claim("n", 0), audit("claimed")])).await.is_ok() }
    })
    .await;
    assert_eq!(answers.iter().filter(|done| **done).count(), 1);
    assert_eq!(store.audit(all()).await.expect("reads").len(), 1);
}

pub async fn at_or_before_the_horizon_is_too_old(store: Any) {
    commit(&*store, vec![claim("old", 10)]).await;
    store.purge_nonces(at(10)).await.expect("purges");
    for ms in [9, 10] {
        assert_eq!(reserve(&store, nonce("new", ms)).await, Claimed::TooOld);
        assert_eq!(settle(&store, nonce("new", ms)).await, Claimed::TooOld);
        assert_eq!(conflict(&*store, vec![claim("new", ms)]).await, Conflict::NonceUsed);
    }
    assert_eq!(reserve(&store, nonce("old", 10)).await, Claimed::TooOld);
    assert_eq!(reserve(&store, nonce("old", 11)).await, Claimed::Fresh, "forgotten: a later request of the same text");
    assert_eq!(reserve(&store, nonce("new", 11)).await, Claimed::Fresh);
}

pub async fn after_the_horizon_nothing_is_forgotten(store: Any) {
    commit(&*store, vec![claim("written", 11)]).await;
    assert_eq!(settle(&store, nonce("read", 11)).await, Claimed::Fresh);
    assert_eq!(reserve(&store, nonce("reserved", 11)).await, Claimed::Fresh);
    store.purge_nonces(at(10)).await.expect("purges");
    for text in ["written", "read", "reserved"] {
        assert_eq!(reserve(&store, nonce(text, 11)).await, Claimed::Used);
    }
}

pub async fn the_horizon_never_goes_back(store: Any) {
    store.purge_nonces(at(10)).await.expect("purges");
    store.purge_nonces(at(5)).await.expect("purges");
    assert_eq!(reserve(&store, nonce("n", 10)).await, Claimed::TooOld);
}
