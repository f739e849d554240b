//! Events, their numbers, deliveries and attempts.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{EventNo, SortedId};
use countersign_domain::lanes::{Fence, Lane, LaneSet};
use countersign_store::batch::{Batch, Conflict, EventNumbers, Guard, Key, Write};
use countersign_store::contract::{ApplicationRow, AttemptRow, Cursor, EventFilter, EventRow};
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

async fn one(store: &Any, no: u128) -> EventRow {
    store.event(SortedId(no)).await.expect("reads").expect("there").0
}

async fn due(store: &Any, now_ms: i64) -> Vec<i64> {
    store.due_events(at(now_ms), LaneSet::ALL, 100).await.expect("reads").into_iter().map(|e| e.no.0).collect()
}

fn of_other(no: i64, biz_id: &str) -> EventRow {
    EventRow { application: OTHER_APP, client_id: "app_two".to_owned(), tenant: OTHER_TENANT, ..event(no, biz_id) }
}

pub async fn events_are_numbered_by_application_and_business(store: Any) {
    let numbers = |seq, sequence| EventNumbers { seq, sequence };
    let two = commit(&*store, vec![enqueue(event(1, "a")), enqueue(event(2, "b"))]).await;
    assert_eq!(two.events, [numbers(1, 1), numbers(2, 1)]);
    assert_eq!(commit(&*store, vec![enqueue(event(3, "a"))]).await.events, [numbers(3, 2)]);
    assert_eq!(commit(&*store, vec![enqueue(of_other(4, "a"))]).await.events, [numbers(1, 1)]);
    let stored = one(&store, 3).await;
    assert_eq!(stored, EventRow { seq: 3, sequence: 2, ..event(3, "a") });
}

pub async fn numbers_have_no_gap_after_a_refusal(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    conflict(&*store, vec![enqueue(event(2, "a")), append(SUB, version(5))]).await;
    conflict(&*store, vec![enqueue(event(2, "a")), enqueue(event(3, "a")), enqueue(event(1, "a"))]).await;
    let next = commit(&*store, vec![enqueue(event(2, "a"))]).await;
    assert_eq!(next.events, [EventNumbers { seq: 2, sequence: 2 }]);
}

pub async fn numbers_have_no_gap_under_64_commits_at_once(store: Any) {
    let tasks: Vec<_> = (1..=64)
        .map(|no| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                // Every fourth is refused after its event was looked at.
                let mut writes = vec![enqueue(event(no, if no % 2 == 0 { "even" } else { "odd" }))];
                if no % 4 == 0 {
                    writes.push(append(SUB, version(9)));
                }
                store.commit(Batch(writes)).await.map(|c| (no % 2, c.events[0])).ok()
            })
        })
        .collect();
    let (mut seqs, mut sequences) = (BTreeSet::new(), BTreeSet::new());
    for task in tasks {
        if let Some((parity, numbers)) = task.await.expect("ends") {
            assert!(seqs.insert(numbers.seq));
            assert!(sequences.insert((parity, numbers.sequence)));
        }
    }
    assert!(seqs.into_iter().eq(1..=48));
    assert!(sequences.into_iter().eq((1..=16).map(|n| (0, n)).chain((1..=32).map(|n| (1, n)))));
}

pub async fn event_numbers_and_ids_are_new(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    let same_id = EventRow { no: EventNo(2), ..event(1, "a") };
    let same_no = EventRow { event_id: SortedId(2), ..event(1, "a") };
    for row in [same_id, same_no] {
        let id = row.event_id;
        assert_eq!(conflict(&*store, vec![enqueue(row)]).await, Conflict::Taken(Key::Event(id)));
    }
    assert_eq!(store.event(SortedId(2)).await.expect("reads"), None);
}

pub async fn what_is_due_comes_oldest_first(store: Any) {
    for (no, due_ms) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 40)] {
        commit(&*store, vec![enqueue(EventRow { due_at: Some(at(due_ms)), ..event(no, "a") })]).await;
    }
    assert_eq!(due(&store, 30).await, [2, 4, 3, 1]);
    assert_eq!(due(&store, 9).await, [] as [i64; 0]);
    let first: Vec<_> =
        store.due_events(at(99), LaneSet::ALL, 2).await.expect("reads").into_iter().map(|e| e.no.0).collect();
    assert_eq!(first, [2, 4]);
}

pub async fn the_next_due_time_is_the_first_after(store: Any) {
    assert_eq!(store.next_due_at(at(0), LaneSet::ALL).await.expect("reads"), None);
    for (no, due_ms) in [(1, 30), (2, 10)] {
        commit(&*store, vec![enqueue(EventRow { due_at: Some(at(due_ms)), ..event(no, "a") })]).await;
    }
    assert_eq!(store.next_due_at(at(0), LaneSet::ALL).await.expect("reads"), Some(at(10)));
    assert_eq!(store.next_due_at(at(10), LaneSet::ALL).await.expect("reads"), Some(at(30)));
    assert_eq!(store.next_due_at(at(30), LaneSet::ALL).await.expect("reads"), None);
}

pub async fn an_attempt_moves_the_delivery(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(60)))]).await;
    let (row, attempts) = store.event(SortedId(1)).await.expect("reads").expect("there");
    assert_eq!((row.state, row.attempts, row.due_at), (DeliveryState::Pending, 1, Some(at(60))));
    assert_eq!(attempts.len(), 1);
    assert_eq!(due(&store, 59).await, [] as [i64; 0]);
    assert_eq!(due(&store, 60).await, [1]);
    commit(&*store, vec![attempt(1, 2, DeliveryState::Delivered, None)]).await;
    let (row, attempts) = store.event(SortedId(1)).await.expect("reads").expect("there");
    assert_eq!((row.state, row.attempts, row.due_at), (DeliveryState::Delivered, 2, None));
    let Write::RecordAttempt { attempt: second, .. } = attempt(1, 2, DeliveryState::Delivered, None) else {
        panic!("an attempt")
    };
    assert_eq!(attempts[1], *second);
    assert!(due(&store, 1_000_000).await.is_empty());
}

pub async fn an_attempt_out_of_turn_is_refused(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Dead, None)]).await;
    for (no, number) in [(1, 1), (1, 3), (404, 1)] {
        let refused = conflict(&*store, vec![attempt(no, number, DeliveryState::Delivered, None)]).await;
        assert_eq!(refused, Conflict::Moved(Key::Delivery(EventNo(no))));
    }
    assert_eq!(one(&store, 1).await.state, DeliveryState::Dead);
}

pub async fn held_deliveries_wait_until_released(store: Any) {
    for no in 1..=3 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![enqueue(of_other(4, "a"))]).await;
    commit(&*store, vec![attempt(3, 1, DeliveryState::Dead, None)]).await;
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    assert_eq!(due(&store, 1000).await, [4]);
    assert_eq!(one(&store, 1).await.state, DeliveryState::Held);
    let held = EventRow { state: DeliveryState::Held, due_at: None, ..event(5, "a") };
    commit(&*store, vec![enqueue(held)]).await;
    commit(&*store, vec![Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(70) }]).await;
    assert_eq!(due(&store, 70).await, [4, 1, 2, 5]);
    assert_eq!(one(&store, 3).await.state, DeliveryState::Dead);
}

pub async fn only_what_is_over_is_delivered_again(store: Any) {
    for no in 1..=3 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![attempt(2, 1, DeliveryState::Delivered, None)]).await;
    commit(&*store, vec![attempt(3, 1, DeliveryState::Dead, None)]).await;
    let again = |no| Write::Redeliver { tenant: TENANT, event: EventNo(no), due_at: at(80) };
    for no in [1, 404] {
        assert_eq!(conflict(&*store, vec![again(no)]).await, Conflict::Moved(Key::Delivery(EventNo(no))));
    }
    commit(&*store, vec![again(2), again(3)]).await;
    assert_eq!(due(&store, 80).await, [1, 2, 3]);
    assert_eq!(one(&store, 2).await.attempts, 1, "attempts go on counting");
    commit(&*store, vec![attempt(2, 2, DeliveryState::Delivered, None)]).await;
}

pub async fn events_are_listed_newest_first_by_filter(store: Any) {
    for (no, biz) in [(1, "a"), (2, "b"), (3, "a")] {
        commit(&*store, vec![enqueue(event(no, biz))]).await;
    }
    commit(&*store, vec![enqueue(of_other(4, "a"))]).await;
    commit(&*store, vec![attempt(3, 1, DeliveryState::Dead, None)]).await;
    let list = |filter: EventFilter, after, limit| {
        let store = Arc::clone(&store);
        async move {
            let rows = store.events(filter, Cursor { after, limit }).await.expect("reads");
            rows.into_iter().map(|e| e.no.0).collect::<Vec<_>>()
        }
    };
    let none = EventFilter::default;
    assert_eq!(list(none(), None, 10).await, [4, 3, 2, 1]);
    assert_eq!(list(none(), Some(3), 1).await, [2]);
    let ours = EventFilter { client_id: Some("app_one".to_owned()), ..none() };
    assert_eq!(list(ours.clone(), None, 10).await, [3, 2, 1]);
    assert_eq!(list(EventFilter { biz_id: Some("a".to_owned()), ..none() }, None, 10).await, [4, 3, 1]);
    assert_eq!(list(EventFilter { biz_id: Some("a".to_owned()), ..ours }, None, 10).await, [3, 1]);
    assert_eq!(list(EventFilter { state: Some(DeliveryState::Dead), ..none() }, None, 10).await, [3]);
    assert!(list(EventFilter { client_id: Some("app_x".to_owned()), ..none() }, None, 10).await.is_empty());
}

pub async fn a_merchant_pulls_events_in_order(store: Any) {
    // Numbers come from the clock and chance: a later event may have the smaller one.
    for no in [5, 3, 9] {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![enqueue(of_other(4, "a"))]).await;
    let pull = |after, limit| {
        let store = Arc::clone(&store);
        async move {
            let rows = store.events_after(TENANT, APP, after, limit).await.expect("reads");
            rows.into_iter().map(|e| (e.seq, e.no.0)).collect::<Vec<_>>()
        }
    };
    assert_eq!(pull(0, 10).await, [(1, 5), (2, 3), (3, 9)]);
    assert_eq!(pull(1, 1).await, [(2, 3)]);
    assert!(pull(3, 10).await.is_empty());
}

pub async fn a_due_time_belongs_to_pending_deliveries_only(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    unfit(&*store, vec![enqueue(EventRow { due_at: None, ..event(2, "a") })]).await;
    unfit(&*store, vec![enqueue(EventRow { state: DeliveryState::Held, ..event(2, "a") })]).await;
    unfit(&*store, vec![attempt(1, 1, DeliveryState::Pending, None)]).await;
    unfit(&*store, vec![attempt(1, 1, DeliveryState::Dead, Some(at(1)))]).await;
    assert_eq!(one(&store, 1).await.attempts, 0);
}

pub async fn what_was_decided_about_an_application_is_refused_once_it_has_changed(store: Any) {
    let as_read =
        |revision| Write::Guard(Guard::Application { application: APP, client_id: "app_one".to_owned(), revision });
    let held = |no| enqueue(EventRow { state: DeliveryState::Held, due_at: None, ..event(no, "a") });
    commit(&*store, vec![held(1), as_read(1)]).await;
    let opened = ApplicationRow { revision: 2, ..application(APP, "app_one", INSTITUTION, TENANT) };
    let release = Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(5) };
    commit(&*store, vec![Write::UpdateApplication(Box::new(opened)), release]).await;
    // Whoever looked before would leave it held for ever.
    let moved = Conflict::Moved(Key::Application("app_one".to_owned()));
    assert_eq!(conflict(&*store, vec![held(2), as_read(1)]).await, moved);
    let hold = Write::HoldPending { tenant: TENANT, application: APP };
    assert_eq!(conflict(&*store, vec![as_read(1), hold]).await, moved);
    assert_eq!(store.event(SortedId(2)).await.expect("reads"), None);
    assert_eq!(due(&store, 5).await, [1]);
    commit(&*store, vec![held(2), as_read(2)]).await;
}

pub async fn nobody_writes_under_a_term_that_nobody_holds(store: Any) {
    let lane = Lane::of(APP);
    let guard = |fence| Write::Guard(Guard::Lane { application: APP, fence: Fence(fence) });
    commit(&*store, vec![enqueue(event(1, "a")), guard(0)]).await;
    assert_eq!(conflict(&*store, vec![guard(1), audit("late")]).await, Conflict::Fenced(lane));
    let Write::RecordAttempt { tenant, application, attempt, state, due_at } =
        attempt(1, 1, DeliveryState::Delivered, None)
    else {
        panic!("an attempt")
    };
    let attempt = Box::new(AttemptRow { fence: Fence(1), ..*attempt });
    let late = Write::RecordAttempt { tenant, application, attempt, state, due_at };
    assert_eq!(conflict(&*store, vec![late]).await, Conflict::Fenced(lane));
    assert_eq!(one(&store, 1).await.attempts, 0);
}
