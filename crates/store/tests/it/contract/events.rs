//! Events, their numbers, deliveries and attempts.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use countersign_domain::lanes::{Fence, Lane, LaneSet};
use countersign_store::batch::{Batch, Conflict, DELIVERIES_TURNED_MAX, EventNumbers, Guard, Key, Write};
use countersign_store::contract::{
    ApplicationRow, Asker, AttemptRow, Cursor, EventFilter, EventRow, Portion, TurningRow,
};
use countersign_store::own_events::OWN_EVENTS_BYTES_MAX;
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

pub(super) async fn one(store: &Any, no: u128) -> EventRow {
    store.event(Asker::Operator, SortedId(no)).await.expect("reads").expect("there").0
}

/// What is due by then, first attempts first.
pub(super) async fn due(store: &Any, now_ms: i64) -> Vec<i64> {
    let of = vec![(TENANT, APP), (OTHER_TENANT, OTHER_APP)];
    let pending = store.pending_of(Portion { of, known: Vec::new(), limit: 10_000 }).await.expect("reads");
    pending
        .whole()
        .expect("all can be read")
        .into_iter()
        .filter(|e| e.due_at <= Some(at(now_ms)))
        .map(|e| e.no.0)
        .collect()
}

pub(super) fn of_other(no: i64, biz_id: &str) -> EventRow {
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
                // Every fourth is refused after its event was looked at; half of those break whatever is committed with them.
                let mut writes = vec![enqueue(event(no, if no % 2 == 0 { "even" } else { "odd" }))];
                if no % 8 == 0 {
                    writes.push(Write::InsertSecret(Box::new(secret(&format!("sec_{no}"), ApplicationNo(404), 1))));
                } else if no % 4 == 0 {
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
    assert_eq!(store.event(Asker::Operator, SortedId(2)).await.expect("reads"), None);
}

pub async fn pending_events_come_by_kind_and_due_time(store: Any) {
    for (no, due_ms) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 40), (6, 5), (7, 6)] {
        commit(&*store, vec![enqueue(EventRow { due_at: Some(at(due_ms)), ..event(no, "a") })]).await;
    }
    commit(&*store, vec![enqueue(of_other(8, "a"))]).await;
    // However often it was repeated.
    for (no, made, due_ms) in [(6, 1, 15), (7, 1, 8), (7, 2, 9)] {
        commit(&*store, vec![attempt(no, made, DeliveryState::Pending, Some(at(due_ms)))]).await;
    }
    let pending = |of: Vec<_>, known: &[i64], limit| {
        let (store, known) = (Arc::clone(&store), known.iter().copied().map(EventNo).collect());
        async move {
            let found = store.pending_of(Portion { of, known, limit }).await.expect("reads");
            found.whole().expect("all can be read").into_iter().map(|e| e.no.0).collect::<Vec<_>>()
        }
    };
    let both = || vec![(TENANT, APP), (OTHER_TENANT, OTHER_APP)];
    assert_eq!(pending(vec![(TENANT, APP)], &[], 9).await, [2, 4, 3, 1, 5, 7, 6]);
    assert_eq!(pending(both(), &[], 2).await, [2, 4, 7, 6, 8]);
    assert_eq!(pending(vec![(TENANT, APP)], &[], 1).await, [2, 7]);
    assert_eq!(pending(vec![(OTHER_TENANT, APP)], &[], 9).await, [] as [i64; 0], "another tenant's application");
    assert_eq!(pending(Vec::new(), &[], 9).await, [] as [i64; 0]);
    assert_eq!(pending(both(), &[4, 7, 2, 99], 2).await, [3, 1, 6, 8], "those that are known take no place");
    assert_eq!(pending(both(), &[8, 7, 6, 5, 4, 3, 2, 1], 9).await, [] as [i64; 0]);
}

pub async fn who_is_owed_something_comes_once_with_the_first_due_time(store: Any) {
    let owed = |after, limit| {
        let store = Arc::clone(&store);
        async move {
            let rows = store.owed(LaneSet::ALL, Cursor { after, limit }).await.expect("reads");
            rows.into_iter().map(|o| (o.tenant, o.application, o.due_at.0 - at(0).0)).collect::<Vec<_>>()
        }
    };
    assert_eq!(owed(None, 9).await, []);
    for (no, due_ms) in [(1, 30), (2, 10), (3, 20)] {
        commit(&*store, vec![enqueue(EventRow { due_at: Some(at(due_ms)), ..event(no, "a") })]).await;
    }
    commit(&*store, vec![enqueue(of_other(4, "a"))]).await;
    for (no, made, due_ms) in [(1, 1, 30), (3, 1, 9), (3, 2, 7)] {
        commit(&*store, vec![attempt(no, made, DeliveryState::Pending, Some(at(due_ms)))]).await;
    }
    let (ours, theirs) = ((TENANT, APP, 7), (OTHER_TENANT, OTHER_APP, 0));
    assert_eq!(owed(None, 9).await, [ours, theirs], "by number; repeated attempts count, too");
    assert_eq!(owed(None, 1).await, [ours]);
    assert_eq!(owed(Some(APP), 9).await, [theirs]);
    commit(&*store, vec![attempt(3, 3, DeliveryState::Delivered, None)]).await;
    assert_eq!(owed(None, 1).await, [(TENANT, APP, 10)]);
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    assert_eq!(owed(None, 9).await, [theirs]);
}

pub async fn an_event_waits_behind_a_pending_one_until_that_is_over(store: Any) {
    for over in [DeliveryState::Delivered, DeliveryState::Dead] {
        let base = if over == DeliveryState::Dead { 10 } else { 0 };
        for no in 1..=3 {
            commit(&*store, vec![enqueue(event(base + no, &format!("biz{base}")))]).await;
        }
        commit(&*store, vec![defer(base + 2, base + 1, 500)]).await;
        commit(&*store, vec![defer(base + 3, base + 2, 600)]).await;
        let row = one(&store, u128::try_from(base + 2).expect("small")).await;
        assert_eq!((row.behind, row.due_at), (Some(EventNo(base + 1)), Some(at(500))));
        assert_eq!(due(&store, 499).await, [base + 1]);
        commit(&*store, vec![attempt(base + 1, 1, DeliveryState::Pending, Some(at(0)))]).await;
        assert_eq!(due(&store, 499).await, [base + 1], "a failed attempt ends nothing");
        commit(&*store, vec![attempt(base + 1, 2, over, None)]).await;
        let row = one(&store, u128::try_from(base + 2).expect("small")).await;
        assert_eq!((row.behind, row.due_at, row.state), (None, Some(at(2)), DeliveryState::Pending));
        assert_eq!(due(&store, 499).await, [base + 2], "the one behind the second waits on");
        assert_eq!(due(&store, 600).await, [base + 2, base + 3], "at the end of its patience it is due");
        commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
        let row = one(&store, u128::try_from(base + 3).expect("small")).await;
        assert_eq!((row.behind, row.due_at), (None, None), "what is held waits for nobody else");
        commit(&*store, vec![Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(0) }]).await;
        for no in [2, 3] {
            commit(&*store, vec![attempt(base + no, 1, over, None)]).await;
        }
    }
}

pub async fn an_event_that_went_out_of_turn_keeps_to_its_own_schedule(store: Any) {
    for no in [1, 2] {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![defer(2, 1, 500)]).await;
    commit(&*store, vec![attempt(2, 1, DeliveryState::Pending, Some(at(900)))]).await;
    assert_eq!(one(&store, 2).await.behind, None, "it waits for nobody any more");
    commit(&*store, vec![attempt(1, 1, DeliveryState::Delivered, None)]).await;
    assert_eq!(one(&store, 2).await.due_at, Some(at(900)));
}

pub async fn what_is_sent_by_hand_is_noted_until_it_is_over(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Dead, None)]).await;
    assert!(!one(&store, 1).await.by_hand);
    commit(&*store, vec![Write::Redeliver { tenant: TENANT, event: EventNo(1), attempts: 1, due_at: at(3) }]).await;
    assert!(one(&store, 1).await.by_hand);
    commit(&*store, vec![attempt(1, 2, DeliveryState::Pending, Some(at(9)))]).await;
    assert!(one(&store, 1).await.by_hand);
    commit(&*store, vec![attempt(1, 3, DeliveryState::Delivered, None)]).await;
    assert!(!one(&store, 1).await.by_hand);
}

pub async fn an_attempt_moves_the_delivery(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(60)))]).await;
    let (row, attempts) = store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there");
    assert_eq!((row.state, row.attempts, row.due_at), (DeliveryState::Pending, 1, Some(at(60))));
    assert_eq!(attempts.len(), 1);
    assert_eq!(due(&store, 59).await, [] as [i64; 0]);
    assert_eq!(due(&store, 60).await, [1]);
    commit(&*store, vec![attempt(1, 2, DeliveryState::Delivered, None)]).await;
    let (row, attempts) = store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there");
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
    assert_eq!(due(&store, 70).await, [1, 2, 5, 4]);
    assert_eq!(one(&store, 3).await.state, DeliveryState::Dead);
}

pub async fn only_what_is_over_is_delivered_again(store: Any) {
    for no in 1..=3 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![attempt(2, 1, DeliveryState::Delivered, None)]).await;
    commit(&*store, vec![attempt(3, 1, DeliveryState::Dead, None)]).await;
    let again_after = |no, attempts| Write::Redeliver { tenant: TENANT, event: EventNo(no), attempts, due_at: at(80) };
    let again = |no| again_after(no, 1);
    let held = EventRow { state: DeliveryState::Held, due_at: None, ..event(4, "a") };
    commit(&*store, vec![enqueue(held)]).await;
    for no in [1, 4, 404] {
        assert_eq!(conflict(&*store, vec![again(no)]).await, Conflict::Moved(Key::Delivery(EventNo(no))));
    }
    // One that was sent again in between is another thing: what was looked at is not what would be sent.
    for attempts in [0, 2] {
        let moved = conflict(&*store, vec![again_after(2, attempts)]).await;
        assert_eq!(moved, Conflict::Moved(Key::Delivery(EventNo(2))), "{attempts}");
    }
    commit(&*store, vec![again(2), again(3)]).await;
    assert_eq!(due(&store, 80).await, [1, 2, 3]);
    assert_eq!(one(&store, 2).await.attempts, 1, "attempts go on counting");
    commit(&*store, vec![attempt(2, 2, DeliveryState::Delivered, None)]).await;
}

pub async fn what_is_pending_is_due_sooner_and_only_that(store: Any) {
    for no in 1..=5 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(900)))]).await;
    commit(&*store, vec![attempt(2, 1, DeliveryState::Pending, Some(at(40)))]).await;
    commit(&*store, vec![attempt(3, 1, DeliveryState::Delivered, None)]).await;
    commit(&*store, vec![attempt(4, 1, DeliveryState::Dead, None)]).await;
    commit(&*store, vec![defer(5, 1, 700)]).await;
    let held = EventRow { state: DeliveryState::Held, due_at: None, ..event(6, "b") };
    commit(&*store, vec![enqueue(held)]).await;
    let now = |no, attempts, was_due| {
        let (event, was_due, due_at) = (EventNo(no), at(was_due), at(80));
        Write::SendNow { tenant: TENANT, event, attempts, was_due, due_at }
    };
    // One that was tried in between is another thing: its next attempt is not the one that was meant. So is one that is due at another time, or waits
    // for another one.
    let others =
        [(3, 1, 900), (4, 1, 900), (6, 0, 900), (404, 0, 900), (1, 0, 900), (1, 1, 80), (5, 1, 700), (5, 0, 700)];
    for (no, attempts, was_due) in others {
        let refused = conflict(&*store, vec![now(no, attempts, was_due)]).await;
        assert_eq!(refused, Conflict::Moved(Key::Delivery(EventNo(no))));
    }
    commit(&*store, vec![now(1, 1, 900)]).await;
    commit(&*store, vec![now(2, 1, 40)]).await;
    let twice = conflict(&*store, vec![now(1, 1, 900)]).await;
    assert_eq!(twice, Conflict::Moved(Key::Delivery(EventNo(1))), "it is due by now");
    let sooner = one(&store, 1).await;
    let of = (sooner.state, sooner.due_at, sooner.attempts, sooner.by_hand);
    assert_eq!(of, (DeliveryState::Pending, Some(at(80)), 1, false), "by its schedule, which goes on");
    assert_eq!(one(&store, 2).await.due_at, Some(at(40)), "not later than it was");
    let waits = one(&store, 5).await;
    assert_eq!((waits.due_at, waits.behind), (Some(at(700)), Some(EventNo(1))));
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

pub async fn a_pulled_page_ends_where_it_is_large_enough(store: Any) {
    let large = |no, bytes: usize| enqueue(EventRow { data: "x".repeat(bytes), ..event(no, "a") });
    let third = OWN_EVENTS_BYTES_MAX / 3;
    for (no, bytes) in [(1, OWN_EVENTS_BYTES_MAX * 2), (2, third), (3, third), (4, third), (5, third), (6, 1)] {
        commit(&*store, vec![large(no, bytes)]).await;
    }
    let pull = async |after, limit| {
        let rows = store.events_after(TENANT, APP, after, limit).await.expect("reads");
        rows.into_iter().map(|e| (e.seq, e.data.len())).collect::<Vec<_>>()
    };
    assert_eq!(pull(0, 9).await, [(1, OWN_EVENTS_BYTES_MAX * 2)], "one at least");
    assert_eq!(pull(1, 9).await, [(2, third), (3, third), (4, third)], "the one that passes the bound is the last");
    assert_eq!(pull(1, 2).await, [(2, third), (3, third)]);
    assert_eq!(pull(4, 9).await, [(5, third), (6, 1)]);
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
    let as_read = |revision| {
        Write::Guard(Guard::Application {
            application: APP,
            client_id: "app_one".to_owned(),
            revision,
            holds_changes: true,
        })
    };
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
    assert_eq!(store.event(Asker::Operator, SortedId(2)).await.expect("reads"), None);
    assert_eq!(due(&store, 5).await, [1]);
    commit(&*store, vec![held(2), as_read(2)]).await;
}

pub async fn nobody_writes_under_a_term_that_nobody_holds(store: Any) {
    let lane = Lane::of(APP);
    let guard = |fence| Write::Guard(Guard::Lane { application: APP, fence: Fence(fence) });
    commit(&*store, vec![enqueue(event(1, "a")), guard(0)]).await;
    assert_eq!(conflict(&*store, vec![guard(1), audit("late")]).await, Conflict::Fenced(lane));
    let Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at } =
        attempt(1, 1, DeliveryState::Delivered, None)
    else {
        panic!("an attempt")
    };
    let attempt = Arc::new(AttemptRow { fence: Fence(1), ..(*attempt).clone() });
    let late = Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at };
    assert_eq!(conflict(&*store, vec![late]).await, Conflict::Fenced(lane));
    assert_eq!(one(&store, 1).await.attempts, 0);
}

/// So many events of the application, from this number on.
async fn backlog(store: &Any, from: i64, count: usize, state: DeliveryState) {
    let due_at = (state == DeliveryState::Pending).then_some(at(0));
    let numbers: Vec<i64> = (from..).take(count).collect();
    for some in numbers.chunks(500) {
        let writes = some.iter().map(|no| enqueue(EventRow { state, due_at, ..event(*no, "a") })).collect();
        commit(&**store, writes).await;
    }
}

async fn notes(store: &Any) -> Vec<(TenantNo, ApplicationNo, i64)> {
    let found = store.turning(LaneSet::ALL, Cursor { after: None, limit: 10 }).await.expect("reads");
    found.into_iter().map(|note| (note.tenant, note.application, note.due_at.0 - at(0).0)).collect()
}

async fn due_count(store: &Any) -> usize {
    due(store, 1_000).await.len()
}

pub async fn a_backlog_is_turned_in_portions_until_the_note_goes(store: Any) {
    let (tenant, application) = (TENANT, APP);
    let most = DELIVERIES_TURNED_MAX;
    backlog(&store, 1, 2 * most, DeliveryState::Pending).await;
    commit(&*store, vec![enqueue(of_other(9_999, "a"))]).await;
    let hold = || Write::HoldPending { tenant, application };
    commit(&*store, vec![Write::Turn { tenant, application, due_at: at(3) }, hold()]).await;
    assert_eq!((due_count(&store).await, notes(&store).await), (most + 1, vec![(TENANT, APP, 3)]));
    commit(&*store, vec![hold()]).await;
    assert_eq!((due_count(&store).await, notes(&store).await), (1, Vec::new()), "the other tenant's stays");

    // One more than a portion; a second note has the later instant.
    backlog(&store, 20_001, most + 1, DeliveryState::Held).await;
    let note = |ms| Write::Turn { tenant, application, due_at: at(ms) };
    commit(&*store, vec![note(4)]).await;
    commit(&*store, vec![note(5)]).await;
    let release = || Write::ReleaseHeld { tenant, application, due_at: at(5) };
    for left in [2 * most + 1, most + 1] {
        commit(&*store, vec![release()]).await;
        assert_eq!((due_count(&store).await, notes(&store).await), (3 * most + 1 - left + 1, vec![(TENANT, APP, 5)]));
    }
    commit(&*store, vec![release()]).await;
    assert_eq!((due_count(&store).await, notes(&store).await.len()), (3 * most + 1, 1));
    commit(&*store, vec![release()]).await;
    assert_eq!((due_count(&store).await, notes(&store).await), (3 * most + 2, Vec::new()));
}

pub async fn a_portion_that_was_decided_before_a_change_back_is_refused_and_leaves_its_note(store: Any) {
    let (tenant, application) = (TENANT, APP);
    backlog(&store, 1, 3, DeliveryState::Pending).await;
    let as_read = |revision| {
        Write::Guard(Guard::Application { application, client_id: "app_one".to_owned(), revision, holds_changes: true })
    };
    commit(&*store, vec![Write::Turn { tenant, application, due_at: at(3) }]).await;
    let back = ApplicationRow { revision: 2, ..application_row() };
    commit(&*store, vec![Write::UpdateApplication(Box::new(back))]).await;
    let late = vec![as_read(1), Write::HoldPending { tenant, application }];
    assert_eq!(conflict(&*store, late).await, Conflict::Moved(Key::Application("app_one".to_owned())));
    assert_eq!((due_count(&store).await, notes(&store).await.len()), (3, 1));
    commit(&*store, vec![as_read(2), Write::ReleaseHeld { tenant, application, due_at: at(3) }]).await;
    assert_eq!((due_count(&store).await, notes(&store).await), (3, Vec::new()));
}

pub async fn nobody_notes_anything_for_another_tenants_application(store: Any) {
    for (tenant, application) in [(OTHER_TENANT, APP), (TENANT, OTHER_APP), (TENANT, ApplicationNo(404))] {
        commit(&*store, vec![Write::Turn { tenant, application, due_at: at(1) }]).await;
    }
    assert_eq!(notes(&store).await, Vec::new());
    for (tenant, application) in [(OTHER_TENANT, OTHER_APP), (TENANT, APP)] {
        commit(&*store, vec![Write::Turn { tenant, application, due_at: at(1) }]).await;
    }
    assert_eq!(notes(&store).await, [(TENANT, APP, 1), (OTHER_TENANT, OTHER_APP, 1)]);
    // Nor does a portion of another tenant take it away.
    commit(&*store, vec![Write::HoldPending { tenant: OTHER_TENANT, application: APP }]).await;
    assert_eq!(notes(&store).await.len(), 2);
    let rest = store.turning(LaneSet::ALL, Cursor { after: Some((TENANT, APP)), limit: 10 }).await.expect("reads");
    assert_eq!(rest.iter().map(|note| note.client_id.as_str()).collect::<Vec<_>>(), ["app_two"]);
    let first = store.turning(LaneSet::ALL, Cursor { after: None, limit: 1 }).await.expect("reads");
    assert_eq!(first.iter().map(TurningRow::place).collect::<Vec<_>>(), [(TENANT, APP)]);
}

pub async fn what_is_open_is_listed_as_its_application_stands(store: Any) {
    let list = |state| {
        let store = Arc::clone(&store);
        async move {
            let filter = EventFilter { state: Some(state), ..EventFilter::default() };
            let rows = store.events(filter, Cursor { after: None, limit: 10 }, 100).await.expect("reads");
            assert!(rows.events.iter().all(|event| event.state == state), "each says so: {rows:?}");
            rows.events.into_iter().map(|e| e.no.0).collect::<Vec<_>>()
        }
    };
    backlog(&store, 1, 1, DeliveryState::Pending).await;
    backlog(&store, 2, 1, DeliveryState::Held).await;
    commit(&*store, vec![enqueue(event(3, "a")), attempt(3, 1, DeliveryState::Dead, None)]).await;
    let row = |url: Option<&str>, revision| {
        let row = ApplicationRow { callback_url: url.map(str::to_owned), callback_enabled: true, ..application_row() };
        Write::UpdateApplication(Box::new(ApplicationRow { revision, ..row }))
    };
    commit(&*store, vec![row(Some("https://shop.example/"), 2)]).await;
    assert_eq!((list(DeliveryState::Pending).await, list(DeliveryState::Held).await), (vec![2, 1], vec![]));
    commit(&*store, vec![row(None, 3)]).await;
    assert_eq!((list(DeliveryState::Pending).await, list(DeliveryState::Held).await), (vec![], vec![2, 1]));
    assert_eq!(list(DeliveryState::Dead).await, [3]);
}

fn application_row() -> ApplicationRow {
    application(APP, "app_one", INSTITUTION, TENANT)
}
