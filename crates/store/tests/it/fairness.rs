//! Of changes that each take a transaction of their own, those of one tenant keep the others waiting for a few of them, and not for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{CommitError, MerchantKind, StoreError};
use countersign_store::testing::Database;
use countersign_store::{PostgresOptions, PostgresStore, Store};
use tokio::task::JoinSet;

use crate::fixtures::*;

/// So many at once.
const MANY: i64 = 120;
/// Half of them.
const HALF: usize = 60;

async fn one_lane(database: &Database) -> Arc<PostgresStore> {
    let options = PostgresOptions { lanes: 1, ..postgres_options(database, 1) };
    let store = PostgresStore::open(options).await.expect("opens");
    for n in [1, 2] {
        let row = merchant(MerchantNo(1_000 + n), &format!("m{n}"), TenantNo(1_000 + n), MerchantKind::Merchant);
        commit(&store, vec![Write::InsertMerchant(Box::new(row))]).await;
    }
    Arc::new(store)
}

/// A convert order of merchant `n`: it runs alone.
fn runs_alone(n: i64, id: i64) -> Batch {
    let (tenant, merchant) = (TenantNo(1_000 + n), MerchantNo(1_000 + n));
    Batch(vec![Write::InsertConvertOrder { tenant, merchant, order: Box::new(order(id)) }])
}

/// Many such changes of one merchant, under way, and how many of them are answered.
async fn many(store: &Arc<PostgresStore>) -> (JoinSet<Result<(), CommitError>>, Arc<AtomicUsize>) {
    let (mut asked, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for id in 1..=MANY {
        let (store, answered) = (Arc::clone(store), Arc::clone(&answered));
        asked.spawn(async move {
            let done = store.commit(runs_alone(1, id)).await.map(|_| ());
            answered.fetch_add(1, Ordering::SeqCst);
            done
        });
    }
    asked.join_next().await.expect("some").expect("ends").expect("is done");
    (asked, answered)
}

#[tokio::test]
async fn a_merchant_with_many_changes_that_run_alone_keeps_others_waiting_for_a_few() {
    let database = Database::new().await;
    let store = one_lane(&database).await;
    let (mut asked, answered) = many(&store).await;
    let grouped = Batch(vec![audit_of(Some(TenantNo(1_002)), 0, "of another")]);
    for (what, change) in [("grouped", grouped), ("alone", runs_alone(2, MANY + 1))] {
        let before = answered.load(Ordering::SeqCst);
        store.commit(change).await.expect("is done");
        let meanwhile = answered.load(Ordering::SeqCst) - before;
        assert!(meanwhile <= 24, "{what}: {meanwhile} of {MANY} came first");
    }
    assert!(answered.load(Ordering::SeqCst) < HALF, "most of them still wait");
    while let Some(done) = asked.join_next().await {
        done.expect("ends").expect("is done all the same");
    }
}

#[tokio::test]
async fn a_merchant_has_so_many_waiting_and_is_told_of_those_that_are_too_many() {
    let database = Database::new().await;
    let store = one_lane(&database).await;
    let (mut asked, _) = many(&store).await;
    for id in MANY + 1..=10 * MANY {
        let store = Arc::clone(&store);
        asked.spawn(async move { store.commit(runs_alone(1, id)).await.map(|_| ()) });
    }
    let mut crowded = 0;
    while let Some(done) = asked.join_next().await {
        match done.expect("ends") {
            Ok(()) => {}
            Err(CommitError::Store(StoreError::Unavailable(why))) if why.contains("changes of one merchant") => {
                crowded += 1;
            }
            // A machine that is this slow lets none wait for longer.
            Err(CommitError::Store(StoreError::Unavailable(why))) if why.contains("too slow") => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(crowded > 0, "all of them found room");
}
