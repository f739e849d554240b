//! Heartbeats behind a time in which a node, or nobody, was seen: one that stood still, a database that was away, a clock that was ahead.

use countersign_domain::time::UnixMillis;
use countersign_store::nodes::Seen;

use super::*;

/// A further heartbeat of node 1 or 2, which was seen last so long ago.
fn behind(node: u8, of: &Tended, silence_ms: i64) -> Tend {
    let seen = of.seen.expect("it was seen");
    let ago = |at: UnixMillis| at.plus_ms(-silence_ms);
    let seen = Seen { at: ago(seen.at), takes_from: ago(seen.takes_from), ..seen };
    Tend { seen: Some(seen), ..heartbeat(node, &of.held) }
}

/// Two nodes that are known for long and have half of the lanes each: the first one the last ones, so that the order of lanes says nothing.
async fn halves() -> (Database, [Arc<PostgresStore>; 2], [Tended; 2]) {
    let (database, [one, two]) = two_nodes().await;
    let known = |tended: Tended| {
        let seen = tended.seen.map(|seen| Seen { takes_from: seen.at, ..seen });
        Tended { seen, ..tended }
    };
    let of_two = known(tend(&two, Tend { wants: 32, ..heartbeat(2, &[]) }).await);
    let of_one = known(tend(&one, heartbeat(1, &[])).await);
    let first_half = (0..32).map(|lane| Lane::new(lane).expect("a lane")).collect();
    assert_eq!((lanes(&of_two.held), of_one.held.len()), (first_half, 32));
    (database, [one, two], [of_one, of_two])
}

async fn expire_both(database: &Database) {
    expire(database, 1).await;
    expire(database, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_time_in_which_nobody_was_seen_each_node_has_what_it_had() {
    let (database, [one, two], [of_one, of_two]) = halves().await;
    expire_both(&database).await;
    let back = tend(&one, behind(1, &of_one, 2 * LEASE_MS)).await;
    assert_eq!(
        (&back.held, back.nodes_alive),
        (&of_one.held, 1),
        "what is the other's is left to it, though it was not seen"
    );
    let again = tend(&two, behind(2, &of_two, 2 * LEASE_MS)).await;
    assert_eq!((&again.held, again.nodes_alive), (&of_two.held, 2), "under the same terms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_had_that_does_not_come_back_is_taken_a_lease_later() {
    let (database, [one, _two], [of_one, _]) = halves().await;
    expire_both(&database).await;
    let back = tend(&one, behind(1, &of_one, 2 * LEASE_MS)).await;
    let free = "UPDATE delivery_lane SET node = NULL, expires_at = 0 WHERE lane < 3";
    database.client().await.execute(free, &[]).await.expect("is written");
    let next = tend(&one, behind(1, &back, LEASE_MS / 5)).await;
    assert_eq!(next.held.len(), 35, "what was given back is nobody's");
    // A fifth of a lease at a time, as heartbeats are.
    let mut seen = next.clone();
    for beat in 2..5 {
        let mut later = behind(1, &seen, LEASE_MS / 5);
        later.seen.as_mut().expect("it was seen").takes_from =
            back.seen.expect("it was").takes_from.plus_ms(-LEASE_MS / 5 * beat);
        seen = tend(&one, later).await;
        assert_eq!(seen.held.len(), 35, "beat {beat}");
    }
    let mut last = behind(1, &seen, LEASE_MS / 5);
    last.seen.as_mut().expect("it was seen").takes_from = back.seen.expect("it was").takes_from.plus_ms(-LEASE_MS - 1);
    assert_eq!(tend(&one, last).await.held.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_longer_than_three_fifths_of_a_lease() {
    let (database, [one, _two], [of_one, _]) = halves().await;
    // Nothing but the other one's lanes has run out: that one was killed.
    expire(&database, 2).await;
    // Less would be a few ms too few where the machine is slow.
    let longer = tend(&one, behind(1, &of_one, LEASE_MS / 5 * 3 + 1)).await;
    assert_eq!(longer.held.len(), 32);
    assert!(longer.seen.expect("it was seen").takes_from > of_one.seen.expect("it was seen").at.plus_ms(LEASE_MS));
    let shorter = tend(&one, behind(1, &of_one, LEASE_MS / 5 * 2)).await;
    assert_eq!((shorter.held.len(), shorter.nodes_alive), (64, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_comes_to_act_late_takes_nothing_either() {
    let (database, [one, _two], [of_one, _]) = halves().await;
    expire(&database, 2).await;
    let mut holder = database.client().await;
    for _ in 0..20 {
        // It was sent in time, and the database stood still: its row is locked, as it is behind a heartbeat that was cut off.
        let holding = holder.transaction().await.expect("begins");
        let lock = "SELECT 1 FROM node WHERE node_id = $1 FOR UPDATE";
        holding.execute(lock, &[&[1_u8; 16].as_slice()]).await.expect("is locked");
        let (one, sent) = (Arc::clone(&one), behind(1, &of_one, LEASE_MS / 5 * 3 - 300));
        let seen = sent.seen.expect("it was seen");
        let late = tokio::spawn(async move { one.tend_lanes(sent).await.expect("the heart beats") });
        timeout(PATIENCE, database.somebody_waits()).await.expect("it waits");
        let until = "SELECT pg_sleep(greatest(0, ($1::bigint + 1) / 1000.0 - extract(epoch FROM clock_timestamp())))";
        let in_time_until = seen.at.plus_ms(LEASE_MS / 5 * 3).0;
        holding.query_one(until, &[&in_time_until]).await.expect("it is later");
        holding.commit().await.expect("ends");
        let late = late.await.expect("ends");
        assert_eq!(late.held.len(), 32);
        // Where the machine is slow it was late before it waited, and shows nothing.
        if late.seen.expect("it was seen").takes_from == seen.takes_from {
            return;
        }
    }
    panic!("it was late each time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_begins_behind_such_a_time_takes_nothing_of_the_others() {
    let (database, [one, two], [of_one, of_two]) = halves().await;
    let three = open_postgres(&database, 3).await;
    expire_both(&database).await;
    let begun = tend(&three, Tend { stage: Stage::Begins, ..heartbeat(3, &[]) }).await;
    assert_eq!((begun.held.as_slice(), begun.nodes_alive), ([].as_slice(), 1));
    for (store, node, had) in [(&one, 1, &of_one), (&two, 2, &of_two)] {
        assert_eq!(tend(store, behind(node, had, 2 * LEASE_MS)).await.held, had.held);
    }
    expire_both(&database).await;
    let waited = behind(3, &begun, LEASE_MS / 5 * 4);
    assert_eq!(tend(&three, waited).await.held, [], "not yet");
    let mut waited = behind(3, &begun, LEASE_MS / 5);
    waited.seen.as_mut().expect("it was seen").takes_from = UnixMillis(0);
    assert_eq!(tend(&three, waited).await.held.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_of_a_clock_that_was_ahead_keeps_nobody_from_taking() {
    let (database, [one, _two], [of_one, _]) = halves().await;
    expire(&database, 2).await;
    let mut ahead = behind(1, &of_one, -3_600_000);
    let seen = ahead.seen.as_mut().expect("it was seen");
    assert!(seen.takes_from > seen.at.plus_ms(-1) && LEASE_MS < 3_600_000, "an hour ahead of the clock");
    assert_eq!(tend(&one, ahead).await.held.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ended_unseen_is_renewed_under_its_fence_and_one_that_was_taken_is_not() {
    let (database, [one, two]) = two_nodes().await;
    let held = tend(&one, heartbeat(1, &[])).await.held;
    expire(&database, 1).await;
    assert_eq!(tend(&one, heartbeat(1, &held)).await.held, held, "nobody came in between");
    expire(&database, 1).await;
    let taken = tend(&two, heartbeat(2, &[])).await;
    assert_eq!((taken.held.len(), taken.nodes_alive), (64, 1));
    let late = tend(&one, heartbeat(1, &held)).await;
    assert_eq!((late.held.as_slice(), late.nodes_alive), ([].as_slice(), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_of_a_database_clock_that_was_ahead_ends_within_a_minute_and_its_node_does_not_count() {
    let (database, [one, two]) = two_nodes().await;
    let held = tend(&one, heartbeat(1, &[])).await.held;
    let client = database.client().await;
    for ahead in
        ["UPDATE delivery_lane SET expires_at = expires_at + 3600000", "UPDATE node SET seen_at = seen_at + 3600000"]
    {
        client.execute(ahead, &[]).await.expect("is written");
    }
    let beside = tend(&two, heartbeat(2, &[])).await;
    assert_eq!((beside.held.len(), beside.nodes_alive), (0, 1), "nothing is taken from whoever may be there");
    let left = "SELECT max(expires_at) - (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM delivery_lane";
    let left: i64 = client.query_one(left, &[]).await.expect("reads").get(0);
    assert!((1..=60_000).contains(&left), "{left} ms");
    let there = tend(&one, heartbeat(1, &held)).await;
    assert_eq!((&there.held, there.nodes_alive), (&held, 2), "it is there");
    let left =
        client.execute("UPDATE delivery_lane SET expires_at = 0 WHERE expires_at > 0", &[]).await.expect("is written");
    assert_eq!((left, tend(&two, heartbeat(2, &[])).await.held.len()), (64, 32), "and when they end, half go over");
}
