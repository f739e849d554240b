//! Callers who go away before they are answered: what was not done for them leaves their nonces open.

use std::pin::pin;

use countersign_store::batch::Batch;
use countersign_store::contract::Claimed;
use countersign_store::testing::Database;
use countersign_store::{SqliteStore, Store};
use rusqlite::Connection;

use crate::fixtures::*;
use crate::postgres::{begin, waits};

async fn begun(store: &impl Store) {
    furnish(store).await;
    commit(store, vec![append(SUB, version(1))]).await;
    assert_eq!(store.reserve(&nonce("gone", 0)).await.expect("answers"), Claimed::Fresh);
}

/// While somebody holds the store up: one change waits, and behind it a batch that will be refused, whose caller goes away. A third
/// change, done behind the two, says that they are over.
async fn goes_away(store: &impl Store, held: impl Future<Output = ()>, lets_go: impl FnOnce()) {
    let mut first = pin!(store.commit(Batch(vec![append(SUB, version(2))])));
    begin(first.as_mut()).await;
    held.await;
    {
        let mut refused = pin!(store.commit(Batch(vec![claim("gone", 0), append(SUB, version(99))])));
        begin(refused.as_mut()).await;
    }
    lets_go();
    first.await.expect("is applied");
    commit(store, vec![append(SUB, version(3))]).await;
    assert_eq!(store.reserve(&nonce("gone", 0)).await.expect("answers"), Claimed::Fresh, "it may be sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgresql_a_batch_that_is_refused_when_its_caller_has_gone_leaves_its_nonce_open() {
    let database = Database::new().await;
    let store = open_postgres(&database, 1).await;
    begun(&store).await;
    let holder = database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE fee_rule IN ACCESS EXCLUSIVE MODE").await.expect("is held");
    // Its end ends the transaction.
    goes_away(&store, waits(&database), || drop(holder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_batch_that_is_refused_when_its_caller_has_gone_leaves_its_nonce_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let store: SqliteStore = open(folder.path());
    begun(&store).await;
    let holder = Connection::open(folder.path().join("countersign.db")).expect("opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("is held");
    goes_away(&store, async {}, || holder.execute_batch("ROLLBACK").expect("lets go")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_while_the_mark_is_raised_for_him_leaves_his_nonce_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let store: SqliteStore = open(folder.path());
    let holder = Connection::open(folder.path().join("countersign.db")).expect("opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("is held");
    {
        let claim = nonce("gone", 0);
        let mut reserving = pin!(store.reserve(&claim));
        begin(reserving.as_mut()).await;
    }
    holder.execute_batch("ROLLBACK").expect("lets go");
    assert_eq!(store.reserve(&nonce("gone", 0)).await.expect("answers"), Claimed::Fresh);
}
