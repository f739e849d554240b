//! What is kept of attempts, and what is forgotten by age: bytes, and events from the first one on.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{
    BytesPlace, Forgotten, OldBytes, OldEvents, OldRows as _, OldStretch, Phases, TooOld,
};
use countersign_store::batch::{BYTES_FORGOTTEN_MAX, Batch, Conflict, EVENTS_FORGOTTEN_MAX, EventNumbers, Key, Write};
use countersign_store::contract::{Asker, AttemptRow, Cursor, EventRow};
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

const fn forget_bytes(ms: i64) -> Write {
    Write::ForgetBytes { tenant: TENANT, begun_before: at(ms) }
}

const fn forget_events(ms: i64) -> Write {
    Write::ForgetEvents { tenant: TENANT, application: APP, old: too_old(at(ms)) }
}

/// An event that was made then and is delivered by its first attempt.
fn over(no: i64, made_ms: i64) -> [Write; 2] {
    let row = EventRow { created_at: at(made_ms), ..event(no, "a") };
    [enqueue(row), attempt(no, 1, DeliveryState::Delivered, None)]
}

async fn seqs(store: &Any) -> Vec<i64> {
    store.events_after(TENANT, APP, 0, 1000).await.expect("reads").iter().map(|e| e.seq).collect()
}

/// Of which applications events may go.
async fn old_events(
    store: &Any,
    before: UnixMillis,
    most: u32,
    page: Cursor<(TenantNo, ApplicationNo)>,
) -> Vec<OldEvents> {
    let looked_at = store.old_events(Asker::Operator, too_old(before), most, page).await.expect("reads");
    looked_at.into_iter().filter(|old| old.events > 0).collect()
}

async fn has_bytes(store: &Any, no: i64, number: i64) -> bool {
    store.attempt_bytes(TENANT, EventNo(no), number, at(number)).await.expect("reads").is_some()
}

pub async fn an_attempt_keeps_its_phases_and_what_went_over_the_wire(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(60)))]).await;
    commit(&*store, vec![attempt(1, 2, DeliveryState::Dead, None)]).await;
    for number in [1, 2] {
        let found = store.attempt_bytes(TENANT, EventNo(1), number, at(number)).await.expect("reads");
        assert_eq!(found, Some(wire(number)));
    }
    let (_, attempts) = store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there");
    let phases: Vec<Phases> = attempts.iter().map(|a| a.phases).collect();
    assert_eq!(phases.iter().map(|p| p.dns_us).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(phases.iter().map(|p| p.reused).collect::<Vec<_>>(), [Some(false), Some(true)]);
    assert_eq!((phases[0].connect_us, phases[0].tls_us), (Some(20), None));
    assert_eq!((phases[0].first_byte_us, phases[0].total_us), (Some(400), Some(12_345)));
}

pub async fn an_attempt_of_which_nothing_is_known_is_kept_without(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    let Write::RecordAttempt { tenant, application, attempt, state, due_at, .. } =
        attempt(1, 1, DeliveryState::Dead, None)
    else {
        panic!("an attempt")
    };
    let attempt = Arc::new(AttemptRow { phases: Phases::default(), ..(*attempt).clone() });
    commit(&*store, vec![Write::RecordAttempt { tenant, application, attempt, bytes: None, state, due_at }]).await;
    let (_, attempts) = store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there");
    assert_eq!(attempts[0].phases, Phases::default());
    assert!(!has_bytes(&store, 1, 1).await);
    assert_eq!(store.old_bytes(Asker::Operator, at(99), 9, all()).await.expect("reads"), []);
}

pub async fn bytes_are_found_by_all_of_their_attempt_only(store: Any) {
    commit(&*store, over(1, 0).to_vec()).await;
    assert!(has_bytes(&store, 1, 1).await);
    for (tenant, no, number, ms) in [(OTHER_TENANT, 1, 1, 1), (TENANT, 2, 1, 1), (TENANT, 1, 2, 1), (TENANT, 1, 1, 2)] {
        assert_eq!(store.attempt_bytes(tenant, EventNo(no), number, at(ms)).await.expect("reads"), None);
    }
}

pub async fn a_refused_attempt_leaves_no_bytes(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    conflict(&*store, vec![attempt(1, 1, DeliveryState::Dead, None), append(SUB, version(9))]).await;
    let refused = conflict(&*store, vec![attempt(1, 2, DeliveryState::Dead, None)]).await;
    assert_eq!(refused, Conflict::Moved(Key::Delivery(EventNo(1))));
    assert!(!has_bytes(&store, 1, 1).await && !has_bytes(&store, 1, 2).await);
}

pub async fn bytes_are_forgotten_by_the_age_of_their_attempt(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    for number in 1..=3 {
        commit(&*store, vec![attempt(1, number, DeliveryState::Pending, Some(at(60)))]).await;
    }
    let wire_size = |n: i64| i64::try_from(wire(n).sent_head.len() + wire(n).answer_head.len() + 3).expect("small");
    let old = |rows| [OldBytes { tenant: TENANT, rows, bytes: rows * wire_size(1) }];
    assert_eq!(store.old_bytes(Asker::Operator, at(1), 9, all()).await.expect("reads"), []);
    assert_eq!(store.old_bytes(Asker::Operator, at(3), 9, all()).await.expect("reads"), old(2));
    assert_eq!(store.old_bytes(Asker::Operator, at(3), 1, all()).await.expect("reads"), old(1));
    let after = Cursor { after: Some(TENANT), limit: 9 };
    assert_eq!(store.old_bytes(Asker::Operator, at(3), 9, after).await.expect("reads"), []);
    commit(&*store, vec![Write::ForgetBytes { tenant: OTHER_TENANT, begun_before: at(99) }]).await;
    assert_eq!(store.old_bytes(Asker::Operator, at(3), 9, all()).await.expect("reads"), old(2));
    commit(&*store, vec![forget_bytes(3)]).await;
    assert_eq!(store.old_bytes(Asker::Operator, at(99), 9, all()).await.expect("reads"), old(1));
    assert!(!has_bytes(&store, 1, 2).await && has_bytes(&store, 1, 3).await);
    assert_eq!(
        store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there").1.len(),
        3,
        "attempts stay"
    );
    commit(&*store, vec![forget_bytes(99)]).await;
    let others = EventRow { tenant: OTHER_TENANT, application: OTHER_APP, ..event(2, "b") };
    commit(&*store, vec![enqueue(EventRow { client_id: "app_two".to_owned(), ..others })]).await;
    let mut write = attempt(2, 1, DeliveryState::Dead, None);
    if let Write::RecordAttempt { tenant, application, .. } = &mut write {
        (*tenant, *application) = (OTHER_TENANT, OTHER_APP);
    }
    commit(&*store, vec![write]).await;
    let found = store.old_bytes(Asker::Operator, at(99), 9, Cursor { after: None, limit: 1 }).await.expect("reads");
    assert_eq!(found, [OldBytes { tenant: OTHER_TENANT, ..old(1)[0] }], "who has none takes no place of a page");
}

pub async fn bytes_are_forgotten_in_portions(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    let last = i64::try_from(BYTES_FORGOTTEN_MAX).expect("small") + 3;
    let writes: Vec<Write> = (1..=last).map(|n| attempt(1, n, DeliveryState::Pending, Some(at(60)))).collect();
    commit(&*store, writes).await;
    commit(&*store, vec![forget_bytes(last + 1)]).await;
    for number in last - 2..=last {
        assert!(has_bytes(&store, 1, number).await, "the oldest go first");
    }
    assert_eq!(store.old_bytes(Asker::Operator, at(last + 1), 9, all()).await.expect("reads")[0].rows, 3);
    commit(&*store, vec![forget_bytes(last + 1)]).await;
    assert_eq!(store.old_bytes(Asker::Operator, at(last + 1), 9, all()).await.expect("reads"), []);
}

pub async fn events_are_forgotten_up_to_the_first_that_is_open_or_young(store: Any) {
    for no in 1..=3 {
        commit(&*store, over(no, no).to_vec()).await;
    }
    commit(&*store, vec![enqueue(EventRow { created_at: at(4), ..event(4, "a") })]).await;
    for no in 5..=7 {
        commit(&*store, over(no, no).to_vec()).await;
    }
    let size = i64::try_from(event(1, "a").body.len() + event(1, "a").data.len()).expect("small");
    let old = |events| {
        [OldEvents { tenant: TENANT, application: APP, events, held: 0, attempts: events, bytes: events * size }]
    };
    assert_eq!(old_events(&store, at(1), 9, all()).await, []);
    assert_eq!(old_events(&store, at(3), 9, all()).await, old(2));
    assert_eq!(old_events(&store, at(99), 9, all()).await, old(3), "up to the one that is open");
    assert_eq!(old_events(&store, at(99), 1, all()).await, old(1));
    let after = Cursor { after: Some((TENANT, APP)), limit: 9 };
    assert_eq!(old_events(&store, at(99), 9, after).await, []);

    commit(&*store, vec![forget_events(3)]).await;
    assert_eq!(seqs(&store).await, [3, 4, 5, 6, 7]);
    assert_eq!(store.event(Asker::Operator, SortedId(2)).await.expect("reads"), None);
    assert!(!has_bytes(&store, 2, 1).await && has_bytes(&store, 3, 1).await);
    let gone =
        conflict(&*store, vec![Write::Redeliver { tenant: TENANT, event: EventNo(2), attempts: 1, due_at: at(9) }])
            .await;
    assert_eq!(gone, Conflict::Moved(Key::Delivery(EventNo(2))));
    commit(&*store, vec![forget_events(99)]).await;
    assert_eq!(seqs(&store).await, [4, 5, 6, 7], "what is owed stays, and all behind it");
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }, forget_events(99)]).await;
    assert_eq!(seqs(&store).await, [4, 5, 6, 7], "what is held is owed as well");
    assert_eq!(old_events(&store, at(99), 9, all()).await, []);
}

pub async fn what_is_held_goes_by_an_age_of_its_own(store: Any) {
    for no in 1..=3 {
        commit(&*store, over(no, no).to_vec()).await;
    }
    for no in 4..=6 {
        commit(&*store, vec![enqueue(EventRow { created_at: at(no), ..event(no, "a") })]).await;
    }
    let look = async |old| {
        let page = store.old_events(Asker::Operator, old, 9, all()).await.expect("reads");
        let of_one = store.old_events_of(Asker::Operator, (TENANT, APP), old, all()).await.expect("reads");
        let found: Vec<_> = page.iter().map(|old| (old.events, old.held, old.attempts)).collect();
        assert_eq!(found, [(of_one.rows, of_one.held, of_one.attempts)]);
        found[0]
    };
    let old = |made, held| TooOld { made_before: at(made), held_before: at(held) };
    let forget = |made, held| Write::ForgetEvents { tenant: TENANT, application: APP, old: old(made, held) };
    assert_eq!(look(old(99, 99)).await, (3, 0, 3), "what is pending stays, whatever its age");
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    assert_eq!(look(old(99, 4)).await, (3, 0, 3));
    assert_eq!(look(old(99, 5)).await, (4, 1, 3));
    assert_eq!(look(old(5, 99)).await, (4, 1, 3), "none that is younger than what is over goes");
    assert_eq!(look(old(99, 99)).await, (5, 2, 3), "the last one stays");

    // It may be about to go out.
    commit(&*store, vec![Write::Turn { tenant: TENANT, application: APP, due_at: at(50) }]).await;
    assert_eq!(look(old(99, 99)).await, (3, 0, 3));
    let gone = commit(&*store, vec![forget(99, 99)]).await.events_forgotten;
    assert_eq!((gone, seqs(&store).await), (Forgotten { events: 3, held: 0 }, vec![4, 5, 6]));
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    assert_eq!(look(old(99, 99)).await, (2, 2, 0), "it is turned");
    commit(&*store, vec![forget(99, 5)]).await;
    assert_eq!(seqs(&store).await, [5, 6]);
    let gone = commit(&*store, vec![forget(99, 99)]).await.events_forgotten;
    assert_eq!((gone, seqs(&store).await), (Forgotten { events: 1, held: 1 }, vec![6]));
    assert_eq!(commit(&*store, vec![forget(99, 99)]).await.events_forgotten, Forgotten::NONE);
    commit(&*store, vec![Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(60) }]).await;
    let row = store.event(Asker::Operator, SortedId(6)).await.expect("reads").expect("is there").0;
    assert_eq!((row.state, row.due_at), (DeliveryState::Pending, Some(at(60))), "what is left goes out");
}

pub async fn what_was_tried_lately_or_is_sent_again_by_hand_stays_while_it_is_held(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(60)))]).await;
    commit(&*store, over(2, 0).into_iter().chain(over(3, 0)).collect()).await;
    let hold = || vec![Write::HoldPending { tenant: TENANT, application: APP }];
    let look = async |held| {
        let old = TooOld { made_before: at(99), held_before: at(held) };
        store.old_events_of(Asker::Operator, (TENANT, APP), old, all()).await.expect("reads").rows
    };
    commit(&*store, hold()).await;
    let tried = store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("is there").1[0].at;
    assert_eq!([look(tried.0 - at(0).0).await, look(tried.0 - at(0).0 + 1).await], [0, 2], "by its last attempt");
    commit(&*store, vec![Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(60) }]).await;
    commit(&*store, vec![attempt(1, 2, DeliveryState::Dead, None)]).await;
    assert_eq!(look(99).await, 2);
    commit(&*store, vec![Write::Redeliver { tenant: TENANT, event: EventNo(1), attempts: 2, due_at: at(60) }]).await;
    commit(&*store, hold()).await;
    assert_eq!(look(99).await, 0, "somebody asked for it");
}

pub async fn a_look_for_old_events_says_how_far_it_came(store: Any) {
    commit(&*store, over(1, 0).into_iter().chain(over(2, 0)).collect()).await;
    commit(&*store, vec![enqueue(EventRow { tenant: OTHER_TENANT, application: OTHER_APP, ..event(3, "a") })]).await;
    let looked_at = async |after| {
        let page =
            store.old_events(Asker::Operator, too_old(at(99)), 9, Cursor { after, limit: 1 }).await.expect("reads");
        page.iter().map(|old| (old.tenant, old.application, old.events)).collect::<Vec<_>>()
    };
    assert_eq!(looked_at(None).await, [(TENANT, APP, 1)]);
    assert_eq!(looked_at(Some((TENANT, APP))).await, [(OTHER_TENANT, OTHER_APP, 0)]);
    assert_eq!(looked_at(Some((OTHER_TENANT, OTHER_APP))).await, []);
}

pub async fn old_events_of_an_application_are_counted_stretch_by_stretch(store: Any) {
    for no in 1..=6 {
        commit(&*store, over(no, no).to_vec()).await;
    }
    commit(&*store, vec![enqueue(EventRow { created_at: at(7), ..event(7, "a") })]).await;
    let size = i64::try_from(event(1, "a").body.len() + event(1, "a").data.len()).expect("small");
    let count = async |of, before, after, limit| {
        store.old_events_of(Asker::Operator, of, too_old(at(before)), Cursor { after, limit }).await.expect("reads")
    };
    let stretch = |rows, last| OldStretch { rows, held: 0, attempts: rows, bytes: rows * size, last };
    assert_eq!(count((TENANT, APP), 99, None, 4).await, stretch(4, Some(4)));
    assert_eq!(count((TENANT, APP), 99, Some(4), 4).await, stretch(2, Some(6)), "up to the one that is open");
    assert_eq!(count((TENANT, APP), 99, Some(6), 4).await, stretch(0, None));
    assert_eq!(count((TENANT, APP), 6, Some(2), 4).await, stretch(3, Some(5)), "up to the one that is young");
    for of in [(OTHER_TENANT, APP), (TENANT, OTHER_APP), (OTHER_TENANT, OTHER_APP)] {
        assert_eq!(count(of, 99, None, 4).await, stretch(0, None));
    }
    commit(&*store, vec![attempt(7, 1, DeliveryState::Dead, None)]).await;
    assert_eq!(count((TENANT, APP), 99, Some(4), 9).await, stretch(2, Some(6)), "the last one never goes");
}

pub async fn old_bytes_of_a_tenant_are_counted_stretch_by_stretch(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a")), enqueue(event(2, "b"))]).await;
    for (no, number) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)] {
        commit(&*store, vec![attempt(no, number, DeliveryState::Pending, Some(at(60)))]).await;
    }
    let size = i64::try_from(wire(1).sent_head.len() + wire(1).answer_head.len() + wire(1).answer_body.len());
    let size = size.expect("small");
    let place = |(no, number)| BytesPlace { at: at(number), event: EventNo(no), attempt: number };
    let count = async |tenant, before, after: Option<(i64, i64)>, limit| {
        let page = Cursor { after: after.map(place), limit };
        store.old_bytes_of(Asker::Operator, tenant, at(before), page).await.expect("reads")
    };
    let stretch = |rows, last: Option<(i64, i64)>| OldStretch {
        rows,
        held: 0,
        attempts: rows,
        bytes: rows * size,
        last: last.map(place),
    };
    // Two began at one instant, twice.
    assert_eq!(count(TENANT, 99, None, 3).await, stretch(3, Some((1, 2))));
    assert_eq!(count(TENANT, 99, Some((1, 2)), 3).await, stretch(2, Some((1, 3))));
    assert_eq!(count(TENANT, 99, Some((1, 3)), 3).await, stretch(0, None));
    assert_eq!(count(TENANT, 3, Some((1, 1)), 9).await, stretch(3, Some((2, 2))), "older than was asked for");
    assert_eq!(count(OTHER_TENANT, 99, None, 9).await, stretch(0, None));
}

pub async fn the_last_event_of_an_application_is_never_forgotten(store: Any) {
    for no in 1..=3 {
        commit(&*store, over(no, 0).to_vec()).await;
    }
    for _ in 0..3 {
        commit(&*store, vec![forget_events(99)]).await;
    }
    assert_eq!(seqs(&store).await, [3]);
    assert_eq!(old_events(&store, at(99), 9, all()).await, []);
}

pub async fn numbers_go_on_after_events_were_forgotten(store: Any) {
    for no in 1..=3 {
        commit(&*store, over(no, 0).to_vec()).await;
    }
    commit(&*store, vec![enqueue(event(4, "b"))]).await;
    commit(&*store, vec![forget_events(99)]).await;
    assert_eq!(seqs(&store).await, [4]);
    let next = commit(&*store, vec![enqueue(event(5, "a")), enqueue(event(6, "b"))]).await;
    let numbers = [EventNumbers { seq: 5, sequence: 4 }, EventNumbers { seq: 6, sequence: 2 }];
    assert_eq!(next.events, numbers);
}

pub async fn nobody_forgets_another_tenants_events(store: Any) {
    commit(&*store, over(1, 0).into_iter().chain(over(2, 0)).collect()).await;
    let theirs = [
        Write::ForgetEvents { tenant: OTHER_TENANT, application: APP, old: too_old(at(99)) },
        Write::ForgetEvents { tenant: OTHER_TENANT, application: OTHER_APP, old: too_old(at(99)) },
    ];
    commit(&*store, theirs.to_vec()).await;
    assert_eq!(seqs(&store).await, [1, 2]);
}

pub async fn many_that_forget_at_once_leave_no_gap(store: Any) {
    let count = 2 * i64::try_from(EVENTS_FORGOTTEN_MAX).expect("small") + 50;
    for some in (1..=count).collect::<Vec<_>>().chunks(90) {
        commit(&*store, some.iter().flat_map(|no| over(*no, *no)).collect()).await;
    }
    commit(&*store, vec![forget_events(count - 9)]).await;
    let most = i64::try_from(EVENTS_FORGOTTEN_MAX).expect("small");
    assert!(seqs(&store).await.into_iter().eq(most + 1..=count), "a portion, from the first on");
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..4 {
                    // Some lose to others and are begun again by the next housekeeping.
                    drop(store.commit(Batch(vec![forget_events(count - 9)])).await);
                    let left = seqs(&store).await;
                    let first = left[0];
                    assert!(left.into_iter().eq(first..=count), "no gap at any time");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("ends");
    }
    while !old_events(&store, at(count - 9), 1, all()).await.is_empty() {
        commit(&*store, vec![forget_events(count - 9)]).await;
    }
    let left: BTreeSet<i64> = seqs(&store).await.into_iter().collect();
    assert!(left.into_iter().eq(count - 9..=count));
}
