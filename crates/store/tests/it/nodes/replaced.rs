//! A second process under the id of the first, as with a data folder that was copied.

use countersign_domain::time::UnixMillis;

use super::*;

async fn begins(store: &PostgresStore) -> Tended {
    tend(store, Tend { stage: Stage::Begins, ..heartbeat(1, &[]) }).await
}

/// A further heartbeat of the process that has this behind it.
fn next(of: &Tended) -> Tend {
    Tend { begun_at: of.begun_at, ..heartbeat(1, &of.held) }
}

/// Waits until the database gives another millisecond.
async fn passes(database: &Database, than: Option<UnixMillis>) {
    let (client, than) = (database.client().await, than.expect("it began").0);
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    while client.query_one(now, &[]).await.expect("reads").get::<_, i64>(0) <= than {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_under_one_id_the_one_that_began_last_has_the_lanes_and_the_other_hears_of_it() {
    let (database, [one, two]) = two_nodes().await;
    let first = begins(&one).await;
    assert_eq!(tend(&one, next(&first)).await, first, "it runs, and has begun when it began");
    passes(&database, first.begun_at).await;
    let copy = begins(&two).await;
    assert_eq!((copy.held.len(), copy.nodes_alive), (64, 1));
    assert!(copy.begun_at > first.begun_at);

    let replaced = tend(&one, next(&first)).await;
    assert_eq!((replaced.begun_at, replaced.held.as_slice(), replaced.nodes_alive), (None, [].as_slice(), 1));
    // Some lanes are free, and it is told that it was replaced while it stops: it takes nothing, and says nothing in the other's name.
    let free = "UPDATE delivery_lane SET node = NULL, expires_at = 0 WHERE lane < 8";
    database.client().await.execute(free, &[]).await.expect("is written");
    assert_eq!(tend(&one, next(&first)).await.held, []);
    let mut unlike = Tend { stage: Stage::Leaves, ..next(&first) };
    unlike.who.settings = "s2".to_owned();
    assert_eq!(tend(&one, unlike).await.begun_at, None);
    let listed = || async { two.nodes(LEASE_MS, 10).await.expect("reads") };
    let seen = listed().await;
    assert_eq!((seen.len(), Some(seen[0].started_at), &seen[0].who), (1, copy.begun_at, &heartbeat(1, &[]).who));
    tend(&one, Tend { stage: Stage::Ends, ..next(&first) }).await;
    assert_eq!(listed().await.len(), 1, "nor does its end end the other");
    let goes_on = tend(&two, next(&copy)).await;
    assert_eq!(
        (goes_on.begun_at, goes_on.held.len()),
        (copy.begun_at, 64),
        "whose lanes are renewed, and the free ones taken"
    );
    tend(&two, Tend { stage: Stage::Ends, ..next(&goes_on) }).await;
    assert_eq!(listed().await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_replaced_begins_anew_when_the_other_process_is_not_alive_any_more() {
    let (database, [one, two]) = two_nodes().await;
    let first = begins(&one).await;
    passes(&database, first.begun_at).await;
    let copy = begins(&two).await;
    assert_eq!(tend(&one, next(&first)).await.begun_at, None);
    expire(&database, 1).await;
    let anew = tend(&one, next(&first)).await;
    assert!(anew.begun_at > copy.begun_at, "{anew:?}");
    assert_eq!(tend(&one, next(&anew)).await.held.len(), 64);
    assert_eq!(tend(&two, next(&copy)).await.begun_at, None, "and now the other one was replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_forgotten_and_one_that_slept_are_still_themselves() {
    let (database, [one, two]) = two_nodes().await;
    let first = begins(&one).await;
    expire(&database, 1).await;
    let awake = tend(&one, next(&first)).await;
    assert_eq!(awake.begun_at, first.begun_at, "its row is its own, old as it is");
    expire(&database, 1).await;
    tend(&two, Tend { stage: Stage::Begins, ..heartbeat(2, &[]) }).await;
    assert_eq!(two.nodes(LEASE_MS, 10).await.expect("reads").len(), 1, "the first one is forgotten");
    let seen = tend(&one, next(&awake)).await;
    assert_eq!((seen.begun_at, seen.nodes_alive), (first.begun_at, 2));
}
