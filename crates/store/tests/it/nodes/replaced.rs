//! A second process under the id of the first, as with a data folder that was copied.

use countersign_domain::time::UnixMillis;

use super::*;

async fn begins(store: &PostgresStore) -> Tended {
    tend(store, Tend { stage: Stage::Begins, ..heartbeat(1, &[]) }).await
}

/// When the process began that this was said to.
fn begun(of: &Tended) -> Option<UnixMillis> {
    of.seen.map(|seen| seen.begun_at)
}

/// A further heartbeat of the process that has this behind it.
fn next(of: &Tended) -> Tend {
    Tend { seen: of.seen, ..heartbeat(1, &of.held) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_under_one_id_the_one_that_began_last_has_the_lanes_and_the_other_hears_of_it() {
    let (database, [one, two]) = two_nodes().await;
    let first = begins(&one).await;
    let runs = tend(&one, next(&first)).await;
    assert_eq!((begun(&runs), runs.held), (begun(&first), first.held.clone()), "it runs, and has begun when it began");
    let copy = begins(&two).await;
    assert_eq!((copy.held.len(), copy.nodes_alive), (64, 1));
    assert!(begun(&copy) > begun(&first), "also in the same millisecond");

    let replaced = tend(&one, next(&first)).await;
    assert_eq!((begun(&replaced), replaced.held.as_slice(), replaced.nodes_alive), (None, [].as_slice(), 1));
    // Its own terms are there, as where both have begun at once: they are renewed for it no more.
    let client = database.client().await;
    client.execute("UPDATE delivery_lane SET fence = 1", &[]).await.expect("is written");
    assert_eq!(tend(&one, next(&first)).await.held, []);
    client.execute("UPDATE delivery_lane SET fence = 2", &[]).await.expect("is written");
    // Some lanes are free, and it is told that it was replaced while it stops: it takes nothing, and says nothing in the other's name.
    let free = "UPDATE delivery_lane SET node = NULL, expires_at = 0 WHERE lane < 8";
    database.client().await.execute(free, &[]).await.expect("is written");
    assert_eq!(tend(&one, next(&first)).await.held, []);
    let mut unlike = Tend { stage: Stage::Leaves, ..next(&first) };
    unlike.who.settings = "s2".to_owned();
    assert_eq!(tend(&one, unlike).await.seen, None);
    let listed = || async { two.nodes(LEASE_MS, 10).await.expect("reads") };
    let seen = listed().await;
    assert_eq!((seen.len(), Some(seen[0].started_at), &seen[0].who), (1, begun(&copy), &heartbeat(1, &[]).who));
    tend(&one, Tend { stage: Stage::Ends, ..next(&first) }).await;
    assert_eq!(listed().await.len(), 1, "nor does its end end the other");
    let goes_on = tend(&two, next(&copy)).await;
    assert_eq!(
        (begun(&goes_on), goes_on.held.len()),
        (begun(&copy), 64),
        "whose lanes are renewed, and the free ones taken"
    );
    tend(&two, Tend { stage: Stage::Ends, ..next(&goes_on) }).await;
    assert_eq!(listed().await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_replaced_begins_anew_when_the_other_process_is_not_alive_any_more() {
    let (database, [one, two]) = two_nodes().await;
    let first = begins(&one).await;
    let copy = begins(&two).await;
    assert_eq!(tend(&one, next(&first)).await.seen, None);
    expire(&database, 1).await;
    let anew = tend(&one, next(&first)).await;
    assert!(begun(&anew) > begun(&copy), "{anew:?}");
    assert_eq!(tend(&one, next(&anew)).await.held.len(), 64);
    assert_eq!(tend(&two, next(&copy)).await.seen, None, "and now the other one was replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_forgotten_and_one_that_slept_are_still_themselves() {
    let (database, [one, two]) = two_nodes().await;
    let first = begins(&one).await;
    expire(&database, 1).await;
    let awake = tend(&one, next(&first)).await;
    assert_eq!(begun(&awake), begun(&first), "its row is its own, old as it is");
    expire(&database, 1).await;
    tend(&two, Tend { stage: Stage::Begins, ..heartbeat(2, &[]) }).await;
    assert_eq!(two.nodes(LEASE_MS, 10).await.expect("reads").len(), 1, "the first one is forgotten");
    let seen = tend(&one, next(&awake)).await;
    assert_eq!((begun(&seen), seen.nodes_alive), (begun(&first), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_begin_at_once_the_later_one_frees_what_the_other_has_just_taken() {
    let (database, [one, _two]) = two_nodes().await;
    // The other one has begun, and has not committed yet.
    let mut other = database.client().await;
    let beginning = other.transaction().await.expect("begins");
    let id: &[u8] = &[1; 16];
    let now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let seen = format!("INSERT INTO node (node_id, name, started_at, seen_at) VALUES ($1, 'copy', {now}, {now})");
    beginning.execute(&seen, &[&id]).await.expect("is seen");
    let takes = format!("UPDATE delivery_lane SET node = $1, fence = fence + 1, expires_at = {now} + 600000");
    beginning.execute(&takes, &[&id]).await.expect("are taken");
    let late = tokio::spawn({
        let one = Arc::clone(&one);
        async move { begins(&one).await }
    });
    timeout(PATIENCE, database.somebody_waits()).await.expect("it waits for the other one");
    beginning.commit().await.expect("has begun");
    assert_eq!(late.await.expect("begins, too").held.len(), 64);
}
