//! Events are forgotten by age while redeliveries of them begin on another node of PostgreSQL.

use std::pin::pin;
use std::time::{Duration, Instant};

use countersign_domain::delivery::DeliveryState;
use countersign_store::attempt_log::{Forgotten, TooOld};
use countersign_store::batch::{Batch, Write};
use countersign_store::testing::Database;
use countersign_store::{PostgresStore, Store};
use tokio_postgres::Client;

use crate::fixtures::*;
use crate::postgres::{begin, two_nodes, waits};

const PATIENCE: Duration = Duration::from_secs(20);

/// Three dead ones, and what forgets the first two of them.
async fn three_dead(store: &PostgresStore) -> Batch {
    for no in 1..=3 {
        commit(store, vec![enqueue(event(no, "a")), attempt(no, 1, DeliveryState::Dead, None)]).await;
    }
    Batch(vec![Write::ForgetEvents { tenant: TENANT, application: APP, old: too_old(at(99)) }])
}

/// Somebody who holds these rows.
async fn holding(database: &Database, rows: &str) -> Client {
    let client = database.client().await;
    client.batch_execute(&format!("BEGIN; SELECT 1 FROM {rows} FOR UPDATE")).await.expect("locks");
    client
}

async fn left(store: &PostgresStore) -> usize {
    store.events_after(TENANT, APP, 0, 9).await.expect("reads").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_redelivery_awaits_that_begins_while_it_is_being_forgotten_stays() {
    let (database, [one, two]) = two_nodes().await;
    let forget = three_dead(&one).await;
    let slow = holding(&database, "delivery WHERE event_no = 2").await;
    let mut forgets = pin!(one.commit(forget));
    begin(forgets.as_mut()).await;
    waits(&database).await;
    commit(&*two, vec![start(redelivery(7))]).await;
    slow.batch_execute("ROLLBACK").await.expect("unlocks");
    forgets.await.expect("is done");
    assert_eq!(left(&two).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_stays_where_a_change_that_is_being_made_lets_it_go_out() {
    let (database, [one, two]) = two_nodes().await;
    for no in 1..=3 {
        commit(&*one, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*one, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    // A change of the application that leaves its note, and is not committed yet.
    let change = holding(&database, "application").await;
    let note = format!("INSERT INTO delivery_turn VALUES ({}, {}, 1)", TENANT.0, APP.0);
    change.batch_execute(&note).await.expect("is noted");
    let old = TooOld { made_before: at(99), held_before: at(99) };
    let forget = || Batch(vec![Write::ForgetEvents { tenant: TENANT, application: APP, old }]);
    let mut forgets = pin!(one.commit(forget()));
    begin(forgets.as_mut()).await;
    waits(&database).await;
    change.batch_execute("COMMIT").await.expect("is made");
    assert_eq!(forgets.await.expect("is done").events_forgotten, Forgotten::NONE);
    assert_eq!(left(&two).await, 3);
    commit(&*two, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    assert_eq!(one.commit(forget()).await.expect("is done").events_forgotten, Forgotten { events: 2, held: 2 });
    assert_eq!(left(&two).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_forgets_waits_for_a_redelivery_that_is_being_begun() {
    let (database, [one, two]) = two_nodes().await;
    let forget = three_dead(&one).await;
    commit(&*two, vec![audit("first")]).await;
    let slow = holding(&database, "audit_head").await;
    // The line of the log is the last of what it does.
    let mut begins = pin!(two.commit(Batch(vec![start(redelivery(7)), audit("begun")])));
    begin(begins.as_mut()).await;
    waits(&database).await;
    let mut forgets = pin!(one.commit(forget));
    begin(forgets.as_mut()).await;
    let turn = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let watcher = database.client().await;
    let begun = Instant::now();
    while watcher.query_one(turn, &[]).await.expect("reads").get::<_, i64>(0) == 0 {
        assert!(begun.elapsed() < PATIENCE, "it does not wait for its turn");
        tokio::task::yield_now().await;
    }
    slow.batch_execute("ROLLBACK").await.expect("unlocks");
    begins.await.expect("is begun");
    forgets.await.expect("is done");
    assert_eq!(left(&two).await, 3);
}
