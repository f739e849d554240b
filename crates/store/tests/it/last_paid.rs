//! Two nodes of one database, of which one pays while the other makes a version: whoever comes second sees what the first has done.

use std::pin::pin;
use std::sync::Arc;

use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::CommitError;
use countersign_store::payment_order::PaymentOrderRow;
use countersign_store::testing::Database;
use countersign_store::{AnyStore, Store as _};

use crate::contract::last_paid::{add, made, pay, since};
use crate::fixtures::*;
use crate::postgres::begin;
use crate::until::so_many_wait;

/// Whether an order of the sub-account was paid before, and how many versions were made before.
const BEFORE: [(bool, i64); 4] = [(false, 0), (false, 1), (true, 0), (true, 1)];

/// Two nodes of one database where that has happened, and an order that waits to be paid.
async fn two_nodes(was_paid: bool, versions: i64) -> (Database, [Arc<AnyStore>; 2], PaymentOrderRow) {
    let database = Database::new().await;
    let [one, two] = [1, 2].map(|node| open_postgres(&database, node));
    let nodes = [one.await, two.await].map(|node| Arc::new(AnyStore::Postgres(node)));
    furnish(&*nodes[0]).await;
    let (before, row) = (add(&nodes[0], SUB, 6).await, add(&nodes[0], SUB, 7).await);
    if was_paid {
        commit(&*nodes[0], vec![pay(&before, 100)]).await;
    }
    for no in 1..=versions {
        commit(&*nodes[0], vec![append(SUB, made(no, 200))]).await;
    }
    (database, nodes, row)
}

fn rests_on(version_no: i64) -> Write {
    Write::Guard(Guard::RuleHead { tenant: TENANT, merchant: SUB, version_no })
}

/// Whether anything was paid and any version made before, a version that was decided before a payment and comes after it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_waits_for_a_payment_that_is_under_way_and_is_refused_if_it_is_not_later() {
    for (was_paid, versions) in BEFORE {
        let (database, nodes, row) = two_nodes(was_paid, versions).await;
        let holder = database.client().await;
        holder.batch_execute("BEGIN; SELECT * FROM payment_order FOR UPDATE").await.expect("holds the orders");
        let mut paying = pin!(nodes[0].commit(Batch(vec![pay(&row, 500), rests_on(versions)])));
        begin(paying.as_mut()).await;
        so_many_wait(&database, 1).await;
        let mut making = pin!(nodes[1].commit(Batch(vec![append(SUB, made(versions + 1, 500)), audit("no")])));
        begin(making.as_mut()).await;
        so_many_wait(&database, 2).await;
        holder.batch_execute("COMMIT").await.expect("lets go");
        paying.await.expect("is applied");
        let Err(CommitError::Conflict(refused)) = making.await else { panic!("{was_paid} {versions}: it is made") };
        assert_eq!(refused, since(500), "{was_paid} {versions}");
        commit(&*nodes[1], vec![append(SUB, made(versions + 1, 501))]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_waits_for_a_version_that_is_under_way_and_is_decided_anew() {
    for (was_paid, versions) in BEFORE {
        let (database, nodes, row) = two_nodes(was_paid, versions).await;
        commit(&*nodes[0], vec![audit("a head to hold")]).await;
        let holder = database.client().await;
        holder.batch_execute("BEGIN; SELECT * FROM audit_head FOR UPDATE").await.expect("holds the end of the log");
        let mut making = pin!(nodes[1].commit(Batch(vec![append(SUB, made(versions + 1, 500)), audit("made")])));
        begin(making.as_mut()).await;
        so_many_wait(&database, 1).await;
        let mut paying = pin!(nodes[0].commit(Batch(vec![pay(&row, 501), rests_on(versions)])));
        begin(paying.as_mut()).await;
        so_many_wait(&database, 2).await;
        holder.batch_execute("COMMIT").await.expect("lets go");
        making.await.expect("is applied");
        let Err(CommitError::Conflict(refused)) = paying.await else { panic!("{was_paid} {versions}: it is paid") };
        assert_eq!(refused, Conflict::Moved(Key::RuleHead(SUB)), "{was_paid} {versions}");
        commit(&*nodes[0], vec![pay(&row, 501), rests_on(versions + 1)]).await;
    }
}
