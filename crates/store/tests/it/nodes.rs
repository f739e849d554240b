//! What nodes that share a database tell each other: who delivers, what the time is, what has changed.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo};
use countersign_domain::lanes::{Fence, LANES, Lane, LaneSet};
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::{
    ApplicationRow, Asker, AttemptRow, ClaimKey, Claimed, CommitError, Cursor, EventRow,
};
use countersign_store::nodes::{NodeId, Signal, Stage, Tend, Tended, Who};
use countersign_store::redelivery::{Redeliveries, RedeliveryRow, Sought};
use countersign_store::testing::Database;
use countersign_store::{PostgresStore, Store};
use tokio::time::timeout;

use crate::fixtures::*;
use crate::postgres::{begin, waits};

mod leaving;
mod listed;
mod other_settings;
mod replaced;
mod silence;

/// Long enough for every test.
const LEASE_MS: i64 = 600_000;
const PATIENCE: Duration = Duration::from_secs(30);

type Held = Vec<(Lane, Fence)>;

async fn two_nodes() -> (Database, [Arc<PostgresStore>; 2]) {
    let database = Database::new().await;
    let nodes = [Arc::new(open_postgres(&database, 1).await), Arc::new(open_postgres(&database, 2).await)];
    furnish(&*nodes[0]).await;
    (database, nodes)
}

pub fn heartbeat(node: u8, held: &[(Lane, Fence)]) -> Tend {
    Tend {
        who: Who {
            node: NodeId([node; 16]),
            name: format!("node {node}"),
            version: format!("0.1.{node}"),
            key_id: "k1".to_owned(),
            settings: "s1".to_owned(),
        },
        stage: Stage::Runs,
        seen: None,
        wants: u32::from(LANES),
        held: held.to_vec(),
        give_back: Vec::new(),
        lease_ms: LEASE_MS,
        clock_ahead_ms: None,
    }
}

async fn tend(store: &PostgresStore, tend: Tend) -> Tended {
    store.tend_lanes(tend).await.expect("the heart beats")
}

/// A second application of the first one's merchant, in the next lane.
async fn neighbour(store: &PostgresStore) -> ApplicationNo {
    let no = ApplicationNo(APP.0 + 1);
    let row = application(no, "app_three", INSTITUTION, TENANT);
    commit(store, vec![Write::InsertApplication(Box::new(row))]).await;
    no
}

/// Lets the leases of a node end, and its last heartbeat be long ago.
async fn expire(database: &Database, node: u8) {
    let client = database.client().await;
    let id: &[u8] = &[node; 16];
    client.execute("UPDATE delivery_lane SET expires_at = 0 WHERE node = $1", &[&id]).await.expect("is written");
    client.execute("UPDATE node SET seen_at = 0 WHERE node_id = $1", &[&id]).await.expect("is written");
}

fn lanes(held: &[(Lane, Fence)]) -> LaneSet {
    held.iter().map(|(lane, _)| *lane).collect()
}

fn fence_of(held: &[(Lane, Fence)], lane: Lane) -> Fence {
    held.iter().find(|(l, _)| *l == lane).expect("it is held").1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_go_from_one_node_to_two_and_back_to_the_one_that_is_left() {
    let (_database, [one, two]) = two_nodes().await;
    let first = tend(&one, heartbeat(1, &[])).await;
    assert_eq!((lanes(&first.held), first.nodes_alive), (LaneSet::ALL, 1));
    assert!(first.held.iter().all(|(_, fence)| *fence == Fence(1)));
    let beside = tend(&two, heartbeat(2, &[])).await;
    assert_eq!((beside.held.len(), beside.nodes_alive), (0, 2), "nobody's lane is taken from him");
    let (keeps, gives): (Held, Held) = first.held.iter().partition(|(lane, _)| lane.get() < 32);
    let less = tend(&one, Tend { give_back: gives, ..heartbeat(1, &keeps) }).await;
    assert_eq!((less.held.as_slice(), less.nodes_alive), (keeps.as_slice(), 2), "and the share is not exceeded");
    let other = tend(&two, heartbeat(2, &[])).await;
    assert!(other.held.iter().map(|(lane, _)| lane.get()).eq(32..64));
    assert!(other.held.iter().all(|(_, fence)| *fence == Fence(2)));
    let ends = tend(&one, Tend { stage: Stage::Ends, ..heartbeat(1, &less.held) }).await;
    assert_eq!((ends.held.as_slice(), ends.nodes_alive), ([].as_slice(), 1));
    assert_eq!(tend(&two, heartbeat(2, &other.held)).await.held.len(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_begins_again_waits_for_no_lease_of_its_own() {
    let (database, [one, two]) = two_nodes().await;
    let before = tend(&one, Tend { stage: Stage::Begins, ..heartbeat(1, &[]) }).await;
    assert_eq!(tend(&two, heartbeat(2, &[])).await.held.len(), 0);
    let again = tend(&one, Tend { stage: Stage::Begins, ..heartbeat(1, &[]) }).await;
    assert_eq!((again.held.len(), again.nodes_alive), (32, 2));
    assert!(again.held.iter().all(|(_, fence)| *fence == Fence(2)));
    let late = tend(&one, heartbeat(1, &before.held)).await;
    assert_eq!(late.held, [], "what was held before the start is nobody's word");
    let late = tend(&one, Tend { give_back: before.held, ..heartbeat(1, &again.held) }).await;
    assert_eq!(late.held.len(), 32);
    assert!(late.held.iter().all(|(_, fence)| *fence == Fence(2)), "nor is it given back by it");
    let names = database.client().await.query("SELECT name FROM node ORDER BY name", &[]).await.expect("reads");
    assert_eq!(names.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["node 1", "node 2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_take_at_once_no_two_get_the_same_lane_under_one_fence() {
    let database = Arc::new(Database::new().await);
    let mut nodes = Vec::new();
    for node in 0..6u8 {
        nodes.push(Arc::new(open_postgres(&database, node).await));
    }
    let mut given = HashSet::new();
    for round in 0..25 {
        let takes = nodes.iter().enumerate().map(|(at, store)| {
            let store = Arc::clone(store);
            let node = u8::try_from(at).expect("six");
            tokio::spawn(async move { store.tend_lanes(heartbeat(node, &[])).await.expect("the heart beats").held })
        });
        let mut now = LaneSet::NONE;
        for take in takes.collect::<Vec<_>>() {
            for (lane, fence) in take.await.expect("ends") {
                assert!(given.insert((lane, fence)), "round {round}: {lane:?} {fence:?} was given twice");
                assert!(!now.contains(lane), "round {round}: {lane:?} is held by two");
                now = now.with(lane);
            }
        }
        let client = database.client().await;
        client.batch_execute("UPDATE delivery_lane SET expires_at = 0").await.expect("is written");
    }
    assert!(given.len() > 25 * 32, "lanes were given: {}", given.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_an_older_term_is_refused_and_leaves_nothing() {
    let (database, [one, two]) = two_nodes().await;
    let lane = Lane::of(APP);
    let of = attempt_at;
    commit(&*one, vec![enqueue(event(1, "a"))]).await;
    let old = fence_of(&tend(&one, heartbeat(1, &[])).await.held, lane);
    expire(&database, 1).await;
    let new = fence_of(&tend(&two, heartbeat(2, &[])).await.held, lane);
    assert!(new > old);
    let guard = |fence| Write::Guard(Guard::Lane { application: APP, fence });
    for late in [
        vec![of(old), audit("late")],
        vec![of(old), Write::HoldPending { tenant: TENANT, application: APP }],
        vec![guard(old), Write::HoldPending { tenant: TENANT, application: APP }],
        vec![guard(Fence(0)), audit("nobody's")],
        vec![of(Fence(new.0 + 1))],
    ] {
        assert_eq!(conflict(&*one, late).await, Conflict::Fenced(lane));
    }
    let (row, attempts) = one.event(Asker::Operator, event(1, "a").event_id).await.expect("reads").expect("there");
    assert_eq!((row.state, row.attempts, attempts.len()), (DeliveryState::Pending, 0, 0));
    assert!(one.audit(all()).await.expect("reads").is_empty());
    commit(&*two, vec![of(new), guard(new)]).await;
    let (_, attempts) = one.event(Asker::Operator, event(1, "a").event_id).await.expect("reads").expect("there");
    assert_eq!(attempts[0].fence, new);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_under_which_a_commit_is_on_its_way_is_renewed_but_not_taken_before_it_ends() {
    let (database, [one, two]) = two_nodes().await;
    commit(&*one, vec![enqueue(event(1, "a"))]).await;
    let held = tend(&one, heartbeat(1, &[])).await.held;
    // Somebody has the delivery, so the commit of its attempt waits in the middle.
    let mut other = database.client().await;
    let in_the_way = other.transaction().await.expect("begins");
    in_the_way.execute("SELECT FROM delivery FOR UPDATE", &[]).await.expect("locks");
    let result = attempt_at(fence_of(&held, Lane::of(APP)));
    let writing = tokio::spawn({
        let one = Arc::clone(&one);
        async move { commit(&*one, vec![result]).await }
    });
    let client = database.client().await;
    let waits = "SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()";
    let blocked = async { while client.query(waits, &[]).await.expect("reads").is_empty() {} };
    timeout(PATIENCE, blocked).await.expect("the commit waits");
    assert_eq!(tend(&one, heartbeat(1, &held)).await.held, held, "its own node goes on");
    expire(&database, 1).await;
    let around = tend(&two, heartbeat(2, &[])).await.held;
    assert_eq!((around.len(), lanes(&around).contains(Lane::of(APP))), (63, false));
    in_the_way.rollback().await.expect("lets go");
    writing.await.expect("is recorded");
    assert_eq!(tend(&two, heartbeat(2, &around)).await.held.len(), 64);
}

/// The first attempt at the first event, under this term.
fn attempt_at(fence: Fence) -> Write {
    match attempt(1, 1, DeliveryState::Delivered, None) {
        Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at } => {
            let attempt = Arc::new(AttemptRow { fence, ..(*attempt).clone() });
            Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at }
        }
        other => panic!("an attempt, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_looks_in_its_own_lanes_only() {
    let (_database, [one, _two]) = two_nodes().await;
    let neighbour = neighbour(&one).await;
    for (no, application, client_id) in [(1, APP, "app_one"), (2, neighbour, "app_three"), (3, APP, "app_one")] {
        let due_at = Some(at(10 * no));
        let event = EventRow { application, client_id: client_id.to_owned(), due_at, ..event(no, "a") };
        commit(&*one, vec![enqueue(event)]).await;
    }
    let owed = |lanes, after, limit| {
        let one = Arc::clone(&one);
        async move {
            let rows = one.owed(lanes, Cursor { after, limit }).await.expect("reads");
            rows.into_iter().map(|o| (o.application, o.due_at.0 - at(0).0)).collect::<Vec<_>>()
        }
    };
    let of = |no| LaneSet::NONE.with(Lane::of(no));
    let (ours, theirs) = ((APP, 10), (neighbour, 20));
    assert_eq!(owed(LaneSet::ALL, None, 10).await, [ours, theirs]);
    assert_eq!(owed(LaneSet::ALL, None, 1).await, [ours]);
    assert_eq!(owed(LaneSet::ALL, Some(APP), 10).await, [theirs]);
    assert_eq!(owed(of(APP), None, 10).await, [ours]);
    assert_eq!(owed(of(neighbour), None, 10).await, [theirs]);
    assert_eq!(owed(of(neighbour), Some(neighbour), 10).await, []);
    assert!(owed(LaneSet::NONE, None, 10).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_turned_or_sent_again_is_found_in_its_own_lanes_only() {
    let (_database, [one, _two]) = two_nodes().await;
    let neighbour = neighbour(&one).await;
    for (id, application, client_id) in [(1, APP, "app_one"), (2, neighbour, "app_three")] {
        let begun = redelivery(id);
        let sought = Sought { application, ..begun.sought };
        let begun = RedeliveryRow { sought, client_id: client_id.to_owned(), ..begun };
        commit(&*one, vec![Write::Turn { tenant: TENANT, application, due_at: at(0) }, start(begun)]).await;
    }
    let found = |lanes, after: Option<ApplicationNo>| {
        let (one, after) = (Arc::clone(&one), after.map(|no| (TENANT, no)));
        async move {
            let noted = one.turning(lanes, Cursor { after, limit: 10 }).await.expect("reads");
            let running = one.redeliveries(Redeliveries::Running { lanes, after }, 10).await.expect("reads");
            let running: Vec<_> = running.into_iter().map(|row| row.sought.application).collect();
            assert_eq!(noted.into_iter().map(|row| row.application).collect::<Vec<_>>(), running);
            running
        }
    };
    let of = |no| LaneSet::NONE.with(Lane::of(no));
    assert_eq!(found(LaneSet::ALL, None).await, [APP, neighbour]);
    assert_eq!(found(LaneSet::ALL, Some(APP)).await, [neighbour]);
    assert_eq!(found(of(APP), None).await, [APP]);
    assert_eq!(found(of(neighbour), None).await, [neighbour]);
    assert_eq!(found(of(neighbour), Some(neighbour)).await, []);
    assert_eq!(found(LaneSet::NONE, None).await, []);
}

/// Else it would wait behind what is over until its patience ends: nobody follows any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_to_wait_for_an_event_that_ends_in_this_moment_hears_of_its_end() {
    let (database, [one, _two]) = two_nodes().await;
    commit(&*one, vec![enqueue(event(1, "a")), enqueue(event(2, "a"))]).await;
    let other = database.client().await;
    other
        .batch_execute("BEGIN; UPDATE delivery SET state = 'delivered', due_at = NULL WHERE event_no = 1")
        .await
        .expect("ends it");
    let mut deferred = pin!(one.commit(Batch(vec![defer(2, 1, 500)])));
    begin(deferred.as_mut()).await;
    waits(&database).await;
    other.batch_execute("COMMIT").await.expect("is written");
    let Err(CommitError::Conflict(refused)) = deferred.await else { panic!("it waits behind what is over") };
    assert_eq!(refused, Conflict::Moved(Key::Delivery(EventNo(1))));
}

/// Else an event would be written as held that nothing will release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rests_on_an_application_waits_for_a_change_of_it_that_is_under_way() {
    let (database, [one, _two]) = two_nodes().await;
    let other = database.client().await;
    let change = "BEGIN; UPDATE application SET revision = revision + 1 WHERE client_id = 'app_one'";
    other.batch_execute(change).await.expect("changes it");
    let guard =
        Guard::Application { application: APP, client_id: "app_one".to_owned(), revision: 1, holds_changes: true };
    let mut written = pin!(one.commit(Batch(vec![Write::Guard(guard), enqueue(event(1, "a"))])));
    begin(written.as_mut()).await;
    waits(&database).await;
    other.batch_execute("COMMIT").await.expect("is written");
    let Err(CommitError::Conflict(refused)) = written.await else { panic!("it rests on what is no more") };
    assert_eq!(refused, Conflict::Moved(Key::Application("app_one".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_holds_no_changes_of_an_application_waits_for_none_and_rests_on_those_that_are_committed() {
    let (database, [one, _two]) = two_nodes().await;
    let other = database.client().await;
    let change = "BEGIN; UPDATE application SET revision = revision + 1 WHERE client_id = 'app_one'";
    other.batch_execute(change).await.expect("changes it");
    let (application, client_id) = (APP, "app_one".to_owned());
    let guard = Guard::Application { application, client_id, revision: 1, holds_changes: false };
    let written = |no| one.commit(Batch(vec![Write::Guard(guard.clone()), enqueue(event(no, "a"))]));
    written(1).await.expect("the change is not committed");
    other.batch_execute("COMMIT").await.expect("is written");
    let Err(CommitError::Conflict(refused)) = written(2).await else { panic!("it rests on what is no more") };
    assert_eq!(refused, Conflict::Moved(Key::Application("app_one".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonces_of_the_databases_last_seconds_are_forgotten_for_no_node_whose_clock_is_ahead() {
    let (database, [one, two]) = two_nodes().await;
    let now = one.database_time().await.expect("answers").expect("it has a clock");
    let stamped = |text: &str, ago_ms: i64| ClaimKey { stamped_at: now.plus_ms(-ago_ms), ..nonce(text, 0) };
    commit(&*two, vec![Write::ClaimNonce(stamped("used", 0))]).await;
    one.purge_nonces(now.plus_ms(86_400_000)).await.expect("purges");
    let three = open_postgres(&database, 3).await;
    assert_eq!(three.settle(stamped("used", 0)).await.expect("answers"), Claimed::Used);
    assert_eq!(three.settle(stamped("new", 0)).await.expect("answers"), Claimed::Fresh);
    assert_eq!(three.settle(stamped("old", 86_400_000)).await.expect("answers"), Claimed::TooOld);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_directory_are_seen_in_the_order_of_their_commits() {
    let (_database, nodes) = two_nodes().await;
    let begun = nodes[0].directory_changes(i64::MAX, NOBODY).await.expect("reads");
    assert!(begun.client_ids.is_empty() && begun.revision >= 2);
    let writers: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(at, store)| {
            let store = Arc::clone(store);
            let (no, id, merchant, tenant) =
                [(APP, "app_one", INSTITUTION, TENANT), (OTHER_APP, "app_two", OTHER, OTHER_TENANT)][at];
            tokio::spawn(async move {
                for revision in 2..=60 {
                    let row = ApplicationRow { revision, ..application(no, id, merchant, tenant) };
                    commit(&*store, vec![Write::UpdateApplication(Box::new(row))]).await;
                }
            })
        })
        .collect();
    // Whoever follows the changes ends with the last revision of each, whatever came between two looks.
    let (mut after, mut known) = (begun.revision, [1, 1]);
    let follow = async {
        while known != [60, 60] {
            let changes = nodes[0].directory_changes(after, NOBODY).await.expect("reads");
            for id in changes.client_ids {
                let at = usize::from(id == "app_two");
                known[at] = nodes[1].application_revision(&id).await.expect("reads").expect("there");
            }
            assert!(changes.revision >= after);
            after = changes.revision;
        }
    };
    timeout(PATIENCE, follow).await.expect("no change was missed");
    for writer in writers {
        writer.await.expect("ends");
    }
    let end = nodes[1].directory_changes(i64::MAX, NOBODY).await.expect("reads").revision;
    assert_eq!(end, begun.revision + 118);
    assert!(nodes[1].directory_changes(end, NOBODY).await.expect("reads").client_ids.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_secret_is_a_change_of_the_directory_and_a_refused_one_is_none() {
    let (_database, [one, two]) = two_nodes().await;
    let before = one.directory_changes(i64::MAX, NOBODY).await.expect("reads").revision;
    commit(&*one, vec![Write::InsertSecret(Box::new(secret("sec_9", APP, 9)))]).await;
    let changes = two.directory_changes(before, NOBODY).await.expect("reads");
    assert_eq!((changes.revision, changes.client_ids), (before + 1, vec!["app_one".to_owned()]));
    conflict(
        &*one,
        vec![Write::UpdateApplication(Box::new(ApplicationRow {
            revision: 9,
            ..application(APP, "app_one", INSTITUTION, TENANT)
        }))],
    )
    .await;
    commit(&*one, vec![audit("something else")]).await;
    assert_eq!(two.directory_changes(before + 1, NOBODY).await.expect("reads").revision, before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_calls_out_the_other_hears() {
    let (_database, [one, two]) = two_nodes().await;
    let mut heard = two.signals().expect("nodes hear each other");
    let mut hear = async |wanted: Signal| {
        let wait = async { while heard.recv().await.expect("is heard") != wanted {} };
        timeout(PATIENCE, wait).await.expect("in time");
    };
    hear(Signal::Directory).await;
    let some = LaneSet::NONE.with(Lane::of(APP)).with(Lane::of(OTHER_APP));
    one.announce(some);
    hear(Signal::Due(some)).await;
    commit(&*one, vec![Write::InsertSecret(Box::new(secret("sec_9", APP, 9)))]).await;
    hear(Signal::Directory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_decides_however_wrong_a_nodes_is() {
    let (database, [one, two]) = two_nodes().await;
    let name = database.url().rsplit('/').next().expect("a name").to_owned();
    let real = one.database_time().await.expect("answers").expect("it has a clock");
    // Their connections go on with the real clock.
    assert_eq!(tend(&one, Tend { lease_ms: 50_000, ..heartbeat(1, &[]) }).await.held.len(), 64);
    assert_eq!(tend(&two, heartbeat(2, &[])).await.held.len(), 0);
    let client = database.client().await;
    // From now on the database's clock is a minute ahead.
    client
        .batch_execute(&format!(
            "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '60 s' $$;
             ALTER DATABASE {name} SET search_path = public, pg_catalog"
        ))
        .await
        .expect("is made");
    let ahead = open_postgres(&database, 3).await;
    let told = ahead.database_time().await.expect("answers").expect("it has a clock");
    assert!((60_000..300_000).contains(&(told.0 - real.0)), "{told:?} after {real:?}");
    assert_eq!(
        tend(&ahead, heartbeat(3, &[])).await.held.len(),
        22,
        "what is left of the lease has ended by that clock"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_with_a_merchant_is_a_change_of_each_of_its_applications_and_writes_each_once() {
    let (database, [one, two]) = two_nodes().await;
    let neighbour = ApplicationNo(APP.0 + 1);
    commit(&*one, vec![Write::InsertApplication(Box::new(application(neighbour, "app_three", SUB, TENANT)))]).await;
    let before = two.directory_changes(i64::MAX, NOBODY).await.expect("reads").revision;
    let client = database.client().await;
    let count = "CREATE TABLE written (revision BIGINT NOT NULL);
                 CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                   $$ BEGIN INSERT INTO written VALUES (NEW.revision - OLD.revision); RETURN NULL; END $$;
                 CREATE TRIGGER note AFTER UPDATE ON application FOR EACH ROW EXECUTE FUNCTION note()";
    client.batch_execute(count).await.expect("is made");
    commit(&*one, vec![Write::Reassess { tenant: TENANT, merchant: None, due_at: at(1) }]).await;
    let written = client.query("SELECT revision FROM written", &[]).await.expect("reads");
    assert_eq!(written.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [1, 1], "each is written once");
    let changes = two.directory_changes(before, NOBODY).await.expect("reads");
    let mut ids = changes.client_ids;
    ids.sort();
    assert_eq!((changes.revision, ids), (before + 1, vec!["app_one".to_owned(), "app_three".to_owned()]));
    let uses = countersign_store::contract::Uses::default();
    commit(&*one, vec![Write::AddUses(Box::new(uses))]).await;
    assert_eq!(two.directory_changes(before, NOBODY).await.expect("reads").revision, before + 1, "a use is no change");
}
