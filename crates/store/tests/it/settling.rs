//! Whether a change of payment orders is still under way: a statement that says that it is complete rests on it.

use std::sync::Arc;

use countersign_store::batch::Batch;
use countersign_store::paid_order::PaidOrders;
use countersign_store::testing::{Database, Server};
use countersign_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store};

use crate::breaks::waiting_for_a_standby;
use crate::fixtures::*;
use crate::until::{counted, until_so};

/// Waits until nothing is under way. A loaded machine may be too slow to see it in the time that one look has.
async fn settles(store: &impl PaidOrders, what: &str) {
    until_so(what, async || store.paid_orders_settle().await.expect("reads")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_commit_waits_for_a_standby_is_under_way_on_every_node() {
    let (primary, _standby, options) = waiting_for_a_standby().await;
    let store = Arc::new(PostgresStore::open(options.clone()).await.expect("opens"));
    let other = PostgresStore::open(PostgresOptions { node: [2; 16], ..options }).await.expect("opens");
    settles(&other, "nothing was begun yet").await;
    let waits = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(Batch(vec![insert_payment(payment_order(SUB, 1, "T-1"))])).await }
    });
    let client = client_of(&primary).await;
    counted(&client, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT'").await;
    assert!(!other.paid_orders_settle().await.expect("reads"), "it was decided, and is not seen");
    primary.set_synchronous("");
    settles(&other, "it is over").await;
    drop(waits.await.expect("ends"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_has_written_orders_is_waited_for() {
    let database = Database::new().await;
    let store = open_postgres(&database, 1).await;
    furnish(&store).await;
    commit(&store, vec![insert_payment(payment_order(SUB, 1, "T-1"))]).await;
    let client = database.client().await;
    // Looks at one, and writes something else.
    client
        .batch_execute("BEGIN; SELECT * FROM payment_order FOR UPDATE; INSERT INTO setting VALUES ('a', 'b')")
        .await
        .expect("holds");
    settles(&store, "no order is written").await;
    client.batch_execute("UPDATE payment_order SET revision = revision").await.expect("writes");
    assert!(!store.paid_orders_settle().await.expect("reads"));
    client.batch_execute("ROLLBACK").await.expect("ends");
    settles(&store, "who wrote is gone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_file_what_the_writer_is_at_is_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let store = SqliteStore::open(&path, SqliteOptions::new([1; 16], "boot")).expect("opens");
    settles(&store, "nobody writes").await;
    let other = rusqlite::Connection::open(&path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    assert!(!store.paid_orders_settle().await.expect("reads"), "whoever writes waits");
    other.execute_batch("ROLLBACK").expect("lets go");
    settles(&store, "nobody writes any more").await;
}

/// A plain connection to a server.
pub async fn client_of(server: &Server) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}
