//! Batches on two nodes take their locks in one order, whether they are committed alone or in a group, so that they never wait for each other in a ring.
//!
//! PostgreSQL ends such a wait after a second, and the loser is done again: nothing is wrong afterwards, but seconds are gone. So its own count
//! of them is what is looked at.

use std::sync::Arc;

use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::testing::Database;
use countersign_store::{CommitError, PostgresStore, Store};
use tokio::task::JoinSet;

use crate::fixtures::*;
use crate::postgres::two_nodes;

/// Batches of each caller.
const EACH: i64 = 60;

fn enqueued(no: i64) -> Write {
    enqueue(event(no, "biz"))
}

fn unchanged(revision: i64) -> Write {
    Write::Guard(Guard::Application {
        application: APP,
        client_id: "app_one".to_owned(),
        revision,
        holds_changes: true,
    })
}

/// Commits what `batch` makes of each number; a guard that does not hold any more is no matter.
async fn play(node: Arc<PostgresStore>, batch: impl Fn(i64) -> Vec<Write>) {
    for n in 0..EACH {
        match node.commit(Batch(batch(n))).await {
            Ok(_) | Err(CommitError::Conflict(Conflict::Moved(Key::Application(_)))) => {}
            Err(error) => panic!("batch {n}: {error:?}"),
        }
    }
}

async fn done(node: Arc<PostgresStore>, writes: Vec<Write>) {
    commit(&*node, writes).await;
}

/// How many rings of waits the database has broken, once nobody is connected any more: what a connection has seen is counted at its end.
async fn rings(database: &Database) -> i64 {
    let client = database.client().await;
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                  AND backend_type = 'client backend'";
    while client.query_one(others, &[]).await.expect("reads").get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    client.query_one(count, &[]).await.expect("reads").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeatable_change_beside_changes_in_groups_waits_in_no_ring() {
    let (database, [one, two]) = two_nodes().await;
    let mut callers = JoinSet::new();
    for caller in 1..=2 {
        // Its answer is remembered, so it is committed alone. The order is that of a payment order that is moved.
        callers.spawn(play(Arc::clone(&one), move |n| {
            let no = caller * 1_000 + n;
            vec![audit("moved"), enqueued(no), remember(answer(&no.to_string()))]
        }));
        callers.spawn(play(Arc::clone(&two), move |n| vec![enqueued(10_000 + caller * 1_000 + n), audit("told")]));
    }
    callers.join_all().await;
    drop((one, two));
    assert_eq!(rings(&database).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeatable_change_that_rests_on_an_application_beside_changes_of_it_waits_in_no_ring() {
    let (database, [one, two]) = two_nodes().await;
    let mut callers = JoinSet::new();
    for caller in 1..=2 {
        callers.spawn(play(Arc::clone(&one), move |n| {
            let no = caller * 1_000 + n;
            let remembered = remember(answer(&no.to_string()));
            vec![audit("told"), unchanged(n + 1), enqueued(no), remembered]
        }));
    }
    callers.spawn(play(Arc::clone(&two), |n| {
        let row = application(APP, "app_one", INSTITUTION, TENANT);
        let row = countersign_store::contract::ApplicationRow { revision: n + 2, ..row };
        vec![Write::UpdateApplication(Box::new(row)), audit("changed")]
    }));
    callers.join_all().await;
    drop((one, two));
    assert_eq!(rings(&database).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_only_looks_waits_for_no_disk_and_for_nobody_who_is_about_to_change_what_it_looks_at() {
    let (database, [one, _two]) = two_nodes().await;
    commit(&*one, vec![add_quote(quote("PAY-1", 30))]).await;
    let look = || {
        let (merchant, quote_id) = (SUB, "PAY-1".to_owned());
        vec![Write::Guard(Guard::UnusedQuote { tenant: TENANT, merchant, quote_id }), unchanged(1)]
    };
    let client = database.client().await;
    let marks = async || {
        let sum = "SELECT coalesce(sum(mark), 0)::bigint FROM commit_mark";
        client.query_one(sum, &[]).await.expect("reads").get::<_, i64>(0)
    };
    let before = marks().await;
    for _ in 0..3 {
        commit(&*one, look()).await;
    }
    assert_eq!(marks().await, before, "nothing was committed");
    let _held = database.hold_quotes().await;
    assert_eq!(conflict(&*one, look()).await, Conflict::Moved(Key::Quote("PAY-1".to_owned())));
    commit(&*one, vec![audit("something")]).await;
    assert_ne!(marks().await, before, "a change is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_revokes_a_token_and_all_that_rest_on_it_wait_in_no_ring() {
    let (database, [one, two]) = two_nodes().await;
    let id = |n: u8| format!("tok_{n}");
    for n in 1..=2 {
        commit(&*one, vec![Write::InsertToken(Box::new(token(&id(n), n)))]).await;
    }
    let mut callers = JoinSet::new();
    for caller in 0..6u8 {
        let node = Arc::clone(if caller % 2 == 0 { &one } else { &two });
        // Some alone, the others in groups; some of the system's own log, to which the revocation appends.
        callers.spawn(async move {
            let tenant = (caller % 3 == 0).then_some(TENANT);
            for n in 0.. {
                let rests_on = Write::Guard(Guard::Token { token_id: id(1 + caller / 3) });
                let rare = (caller % 2 == 0).then(|| remember(answer(&format!("{caller} {n}"))));
                let batch = [rests_on, audit_of(tenant, 0, "told")].into_iter().chain(rare).collect();
                match node.commit(Batch(batch)).await {
                    Ok(_) => {}
                    Err(CommitError::Conflict(Conflict::TokenRevoked)) => break,
                    Err(error) => panic!("{n}: {error:?}"),
                }
            }
        });
    }
    let count = async |n: u8| {
        let lines = two.audit(all()).await.expect("reads");
        lines.iter().filter(|line| line.action == if n == 0 { "told" } else { "revoked" }).count()
    };
    while count(0).await < 60 {}
    // Each by the right of the other: one is refused, or neither where both were let in.
    let revoke = |by: u8, n: u8| {
        let rests_on = Write::Guard(Guard::Token { token_id: id(by) });
        Batch(vec![rests_on, Write::RevokeToken { token_id: id(n), at: at(5) }, audit_of(None, 0, "revoked")])
    };
    let both = tokio::join!(one.commit(revoke(1, 2)), two.commit(revoke(2, 1)));
    for (n, outcome) in [(2, both.0), (1, both.1)] {
        if outcome.is_err() {
            one.commit(Batch(vec![Write::RevokeToken { token_id: id(n), at: at(5) }])).await.expect("is revoked");
        }
    }
    callers.join_all().await;
    assert_ne!(count(1).await, 0);
    drop((one, two));
    assert_eq!(rings(&database).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_revoked_at_once_and_let_go_of_when_all_that_rest_on_it_are_committed() {
    let (database, [one, two]) = two_nodes().await;
    // In a group, and alone.
    for (n, rare) in [(1, None), (2, Some(put("a", "1")))] {
        let token_id = format!("tok_{n}");
        commit(&*one, vec![Write::InsertToken(Box::new(token(&token_id, n)))]).await;
        let batch = || {
            let rests_on = Write::Guard(Guard::Token { token_id: token_id.clone() });
            [rests_on, audit("told")].into_iter().chain(rare.clone()).collect::<Vec<_>>()
        };
        let is_let_go = || vec![Write::Guard(Guard::TokenLetGo { token_id: token_id.clone() })];
        commit(&*two, is_let_go()).await;
        let held = database.hold_table("audit").await;
        let told = tokio::spawn(done(Arc::clone(&one), batch()));
        database.somebody_waits().await;
        commit(&*two, vec![Write::RevokeToken { token_id: token_id.clone(), at: at(5) }]).await;
        assert_eq!(conflict(&*two, is_let_go()).await, Conflict::Moved(Key::Token(token_id.clone())), "{n}");
        drop(held);
        told.await.expect("is committed");
        assert_eq!(conflict(&*one, batch()).await, Conflict::TokenRevoked);
        commit(&*two, is_let_go()).await;
    }
}
