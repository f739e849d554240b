//! Many events sent again by a filter: counted, walked in portions, never twice, stopped.

use std::sync::Arc;

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::OldRows as _;
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{Asker, AttemptRow, Cursor, EventRow};
use countersign_store::redelivery::{
    Counted, DiedOf, Fared, REDELIVERED_MAX, Redeliveries, RedeliveryRow, RedeliveryState, RedeliveryWrite, Sought,
    Span, Walked,
};
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

const fn sought() -> Sought {
    Sought::every(TENANT, APP, DeliveryState::Dead)
}

const fn span(of: Sought, after: i64, through: i64, most: u32) -> Span {
    Span { of, after, through, most }
}

fn advance(id: u128, (from, to): (i64, i64), events: &[i64], ended_at: Option<UnixMillis>) -> Write {
    Write::Redelivery(Box::new(RedeliveryWrite::Advance {
        tenant: TENANT,
        application: APP,
        id: SortedId(id),
        was: DeliveryState::Dead,
        from,
        to,
        events: events.iter().map(|no| EventNo(*no)).collect(),
        due_at: at(90),
        ended_at,
    }))
}

fn stop(id: u128) -> Write {
    stop_at(TENANT, id, 0)
}

pub fn stop_of(tenant: TenantNo) -> Write {
    stop_at(tenant, 7, 0)
}

fn stop_at(tenant: TenantNo, id: u128, from: i64) -> Write {
    let (application, id) = (APP, SortedId(id));
    Write::Redelivery(Box::new(RedeliveryWrite::Stop { tenant, application, id, from, at: at(95) }))
}

/// An event that was made then, and how its first attempt left it.
async fn leave(store: &Any, no: i64, biz_id: &str, made_ms: i64, state: DeliveryState) {
    let row = EventRow { created_at: at(made_ms), ..event(no, biz_id) };
    let due_at = (state == DeliveryState::Pending).then_some(at(60));
    commit(&**store, vec![enqueue(row), attempt(no, 1, state, due_at)]).await;
}

async fn found(store: &Any, span: Span) -> Vec<i64> {
    store.sought(span).await.expect("reads").into_iter().map(|(event, _)| event.0).collect()
}

async fn one(store: &Any, id: u128) -> RedeliveryRow {
    store.redeliveries(Redeliveries::One(SortedId(id)), 9).await.expect("reads").pop().expect("is there")
}

async fn running(store: &Any) -> Vec<SortedId> {
    let which = Redeliveries::Running { lanes: LaneSet::ALL, after: None };
    store.redeliveries(which, 9).await.expect("reads").iter().map(|row| row.id).collect()
}

async fn state(store: &Any, no: i64) -> (DeliveryState, Option<UnixMillis>, bool) {
    let id = SortedId(u128::from(no.unsigned_abs()));
    let (event, _) = store.event(Asker::Operator, id).await.expect("reads").expect("is there");
    (event.state, event.due_at, event.by_hand)
}

pub async fn events_that_are_meant_are_found_by_state_business_and_age_in_order(store: Any) {
    for (no, biz_id, state) in [
        (1, "a", DeliveryState::Dead),
        (2, "a", DeliveryState::Delivered),
        (3, "b", DeliveryState::Dead),
        (4, "a", DeliveryState::Pending),
        (5, "a", DeliveryState::Dead),
    ] {
        leave(&store, no, biz_id, 10 * no, state).await;
    }
    assert_eq!(found(&store, span(sought(), 0, i64::MAX, 9)).await, [1, 3, 5]);
    assert_eq!(found(&store, span(sought(), 0, i64::MAX, 2)).await, [1, 3]);
    assert_eq!(found(&store, span(sought(), 1, 4, 9)).await, [3], "behind one seq, through another");
    assert_eq!(found(&store, span(sought(), 1, 3, 9)).await, [3], "which belongs to it");
    let delivered = Sought { state: DeliveryState::Delivered, ..sought() };
    assert_eq!(found(&store, span(delivered, 0, 9, 9)).await, [2]);
    let of_a = Sought { biz_id: Some("a".to_owned()), ..sought() };
    assert_eq!(found(&store, span(of_a, 0, 9, 9)).await, [1, 5]);
    let between = Sought { from: Some(at(30)), to: Some(at(50)), ..sought() };
    assert_eq!(found(&store, span(between, 0, 9, 9)).await, [3], "from an instant on, before another");
    let foreign = Sought { tenant: OTHER_TENANT, ..sought() };
    assert_eq!(found(&store, span(foreign, 0, 9, 9)).await, [] as [i64; 0]);
}

pub async fn events_that_are_meant_are_found_by_what_they_died_of(store: Any) {
    for no in 1..=5 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    let dies = async |no, number, outcome, http_status| {
        let Write::RecordAttempt { tenant, application, attempt: made, bytes, state, due_at } =
            attempt(no, number, DeliveryState::Dead, None)
        else {
            panic!("an attempt")
        };
        let made = Arc::new(AttemptRow { outcome, http_status, ..(*made).clone() });
        commit(&*store, vec![Write::RecordAttempt { tenant, application, attempt: made, bytes, state, due_at }]).await;
    };
    // The first attempt at the third one came to something else.
    commit(&*store, vec![attempt(3, 1, DeliveryState::Pending, Some(at(60)))]).await;
    dies(1, 1, Outcome::DnsFailed, None).await;
    dies(2, 1, Outcome::HttpStatus, Some(503)).await;
    dies(3, 2, Outcome::HttpStatus, Some(404)).await;
    dies(4, 1, Outcome::Fail, Some(200)).await;
    let of = async |outcome, http_status| {
        let of = Sought { died_of: DiedOf { outcome, http_status }, ..sought() };
        let counted = store.count_sought(span(of.clone(), 0, 9, 9)).await.expect("reads");
        let found = found(&store, span(of, 0, 9, 9)).await;
        assert_eq!((counted.looked, counted.found), (5, i64::try_from(found.len()).expect("few")));
        found
    };
    assert_eq!(of(None, None).await, [1, 2, 3, 4]);
    assert_eq!(of(Some(Outcome::DnsFailed), None).await, [1]);
    assert_eq!(of(Some(Outcome::HttpStatus), None).await, [2, 3], "what the last attempt came to");
    assert_eq!(of(None, Some(404)).await, [3]);
    assert_eq!(of(Some(Outcome::HttpStatus), Some(503)).await, [2]);
    assert_eq!(of(Some(Outcome::DnsFailed), Some(503)).await, [] as [i64; 0]);
    let died_of = DiedOf { outcome: Some(Outcome::Fail), http_status: Some(200) };
    let asked = RedeliveryRow { sought: Sought { died_of, ..sought() }, ..redelivery(7) };
    commit(&*store, vec![start(asked)]).await;
    assert_eq!(one(&store, 7).await.sought.died_of, died_of);
}

pub async fn events_that_are_meant_are_counted_among_the_first_of_a_stretch(store: Any) {
    for no in 1..=5 {
        let state = if no == 2 { DeliveryState::Delivered } else { DeliveryState::Dead };
        leave(&store, no, "a", 100 - no, state).await;
    }
    let count = async |span| store.count_sought(span).await.expect("reads");
    let all = Counted { looked: 5, found: 4, oldest_at: Some(at(95)), first: Some(1), last: Some(5) };
    assert_eq!(count(span(sought(), 0, i64::MAX, 9)).await, all);
    let some = Counted { looked: 2, found: 1, oldest_at: Some(at(97)), first: Some(3), last: Some(3) };
    assert_eq!(count(span(sought(), 1, i64::MAX, 2)).await, some, "what is looked at has a bound");
    assert_eq!(count(span(sought(), 5, i64::MAX, 9)).await, Counted::default());
    assert_eq!(count(span(sought(), 0, 2, 9)).await.looked, 2);
    // What is not meant is looked at, too, and counting goes on behind it.
    let other = Sought { state: DeliveryState::Delivered, ..sought() };
    let one = Counted { looked: 5, found: 1, oldest_at: Some(at(98)), first: Some(2), last: Some(5) };
    assert_eq!(count(span(other, 0, i64::MAX, 9)).await, one);
    let foreign = Sought { tenant: OTHER_TENANT, ..sought() };
    assert_eq!(count(span(foreign, 0, 9, 9)).await, Counted::default());
}

pub async fn of_an_application_one_redelivery_runs_at_a_time(store: Any) {
    leave(&store, 1, "a", 0, DeliveryState::Dead).await;
    let asked = RedeliveryRow {
        sought: Sought { biz_id: Some("a".to_owned()), from: Some(at(0)), to: Some(at(9)), ..sought() },
        is_at_least: true,
        ..redelivery(7)
    };
    commit(&*store, vec![start(asked.clone()), audit("events.redeliver")]).await;
    assert_eq!(one(&store, 7).await, RedeliveryRow { through_seq: 1, ..asked }, "the store gives the last seq");
    let taken = Conflict::Taken(Key::Redelivery(APP));
    assert_eq!(conflict(&*store, vec![start(redelivery(8))]).await, taken);
    assert_eq!(running(&store).await, [SortedId(7)]);
    commit(&*store, vec![stop(7)]).await;
    assert_eq!(conflict(&*store, vec![start(redelivery(7))]).await, taken, "an id is new");
    commit(&*store, vec![start(redelivery(8))]).await;
    assert_eq!(running(&store).await, [SortedId(8)]);
    let of_nobody = Sought { application: ApplicationNo(APP.0 + 1), ..sought() };
    conflict(&*store, vec![start(RedeliveryRow { sought: of_nobody, ..redelivery(9) })]).await;
}

pub async fn a_portion_moves_the_cursor_and_what_is_still_meant_and_nothing_twice(store: Any) {
    for no in 1..=4 {
        leave(&store, no, "a", 0, if no == 3 { DeliveryState::Delivered } else { DeliveryState::Dead }).await;
    }
    commit(&*store, vec![start(redelivery(7))]).await;
    // The third is no longer what it was when it was read.
    commit(&*store, vec![advance(7, (0, 3), &[1, 2, 3], None)]).await;
    let again = (DeliveryState::Pending, Some(at(90)), true);
    assert_eq!((state(&store, 1).await, state(&store, 2).await), (again, again));
    assert_eq!(state(&store, 3).await.0, DeliveryState::Delivered);
    let moved = one(&store, 7).await;
    assert_eq!((moved.cursor_seq, moved.done, moved.state), (3, 2, RedeliveryState::Running));
    // The first one dies again: it is not taken again by whoever read the row before.
    commit(&*store, vec![attempt(1, 2, DeliveryState::Dead, None)]).await;
    let stale = conflict(&*store, vec![advance(7, (0, 3), &[1], None)]).await;
    assert_eq!(stale, Conflict::Moved(Key::Redelivery(APP)));
    assert_eq!(state(&store, 1).await, (DeliveryState::Dead, None, false));
    commit(&*store, vec![advance(7, (3, 4), &[4], Some(at(91)))]).await;
    let done = one(&store, 7).await;
    assert_eq!((done.done, done.state, done.ended_at), (3, RedeliveryState::Done, Some(at(91))));
    conflict(&*store, vec![advance(7, (4, 4), &[1], None)]).await;
    assert_eq!((state(&store, 1).await.0, running(&store).await), (DeliveryState::Dead, vec![]));
}

pub async fn how_its_events_fare_is_counted_until_a_later_redelivery_takes_them(store: Any) {
    for no in 1..=6 {
        leave(&store, no, "a", 0, if no == 5 { DeliveryState::Delivered } else { DeliveryState::Dead }).await;
    }
    let fared = async |id: u128, (after, through), most| {
        let walked = Walked { tenant: TENANT, application: APP, id: SortedId(id), after, through, most };
        store.fared(walked).await.expect("reads")
    };
    commit(&*store, vec![start(redelivery(7))]).await;
    commit(&*store, vec![advance(7, (0, 4), &[1, 2, 3, 4], None)]).await;
    let all = Fared { looked: 6, last: Some(6), waiting: 4, delivered: 0, dead: 0 };
    assert_eq!(fared(7, (0, 9), 9).await, all);
    commit(&*store, vec![attempt(1, 2, DeliveryState::Delivered, None)]).await;
    commit(&*store, vec![attempt(2, 2, DeliveryState::Dead, None)]).await;
    commit(&*store, vec![attempt(3, 2, DeliveryState::Held, None)]).await;
    let all = Fared { waiting: 2, delivered: 1, dead: 1, ..all };
    assert_eq!(fared(7, (0, 9), 9).await, all);
    assert_eq!(fared(7, (0, 9), 2).await, Fared { looked: 2, last: Some(2), waiting: 0, ..all });
    assert_eq!(fared(7, (2, 3), 9).await, Fared { looked: 1, last: Some(3), waiting: 1, delivered: 0, dead: 0 });
    assert_eq!(fared(8, (0, 9), 9).await, Fared { waiting: 0, delivered: 0, dead: 0, ..all }, "of another one");
    assert_eq!(fared(7, (6, 9), 9).await, Fared::default());
    let foreign = Walked { tenant: OTHER_TENANT, application: APP, id: SortedId(7), after: 0, through: 9, most: 9 };
    assert_eq!(store.fared(foreign).await.expect("reads"), Fared::default());
    // What is sent again by itself stays where it was; what a later one takes is counted there.
    let again = Write::Redeliver { tenant: TENANT, event: EventNo(1), attempts: 2, due_at: at(95) };
    commit(&*store, vec![again, stop_at(TENANT, 7, 4)]).await;
    commit(&*store, vec![start(redelivery(8))]).await;
    commit(&*store, vec![advance(8, (0, 9), &[2, 6], Some(at(96)))]).await;
    assert_eq!(fared(7, (0, 9), 9).await, Fared { waiting: 3, delivered: 0, dead: 0, ..all });
    assert_eq!(fared(8, (0, 9), 9).await, Fared { waiting: 2, delivered: 0, dead: 0, ..all });
}

pub async fn a_portion_takes_nothing_of_another_application(store: Any) {
    leave(&store, 1, "a", 0, DeliveryState::Dead).await;
    commit(&*store, vec![start(redelivery(7))]).await;
    let of = |tenant: TenantNo, application| RedeliveryWrite::Advance {
        tenant,
        application,
        id: SortedId(7),
        was: DeliveryState::Dead,
        from: 0,
        to: 1,
        events: vec![EventNo(1)],
        due_at: at(9),
        ended_at: None,
    };
    for (tenant, application) in [(OTHER_TENANT, APP), (TENANT, ApplicationNo(APP.0 + 1))] {
        conflict(&*store, vec![Write::Redelivery(Box::new(of(tenant, application)))]).await;
    }
    assert_eq!((state(&store, 1).await.0, one(&store, 7).await.cursor_seq), (DeliveryState::Dead, 0));
}

pub async fn a_redelivery_that_was_stopped_makes_nothing_pending(store: Any) {
    leave(&store, 1, "a", 0, DeliveryState::Dead).await;
    commit(&*store, vec![start(redelivery(7))]).await;
    commit(&*store, vec![stop(7)]).await;
    let stopped = one(&store, 7).await;
    assert_eq!((stopped.state, stopped.ended_at), (RedeliveryState::Stopped, Some(at(95))));
    let moved = Conflict::Moved(Key::Redelivery(APP));
    assert_eq!(conflict(&*store, vec![advance(7, (0, 1), &[1], None)]).await, moved);
    assert_eq!(conflict(&*store, vec![stop(7)]).await, moved);
    assert_eq!(state(&store, 1).await.0, DeliveryState::Dead);
}

pub async fn who_stops_a_redelivery_has_seen_how_far_it_came(store: Any) {
    for no in 1..=2 {
        leave(&store, no, "a", 0, DeliveryState::Dead).await;
    }
    commit(&*store, vec![start(redelivery(7)), advance(7, (0, 1), &[1], None)]).await;
    let moved = Conflict::Moved(Key::Redelivery(APP));
    assert_eq!(conflict(&*store, vec![stop_at(TENANT, 7, 0)]).await, moved, "a portion went on meanwhile");
    assert_eq!(one(&store, 7).await.state, RedeliveryState::Running);
    commit(&*store, vec![stop_at(TENANT, 7, 1)]).await;
    let stopped = one(&store, 7).await;
    assert_eq!((stopped.state, stopped.done), (RedeliveryState::Stopped, 1));
}

pub async fn redeliveries_are_listed_newest_first(store: Any) {
    for id in 1..=3 {
        commit(&*store, vec![start(redelivery(id)), stop(id)]).await;
    }
    let list = async |client_id: Option<&str>, after: Option<u128>, limit| -> Vec<u128> {
        let which = Redeliveries::All { client_id: client_id.map(str::to_owned), after: after.map(SortedId) };
        store.redeliveries(which, limit).await.expect("reads").iter().map(|row| row.id.0).collect()
    };
    assert_eq!(list(None, None, 9).await, [3, 2, 1]);
    assert_eq!(list(Some("app_one"), Some(3), 1).await, [2]);
    assert_eq!(list(Some("app_two"), None, 9).await, [] as [u128; 0]);
    let which = Redeliveries::One(SortedId(4));
    assert_eq!(store.redeliveries(which, 1).await.expect("reads"), []);
}

pub async fn a_portion_has_a_bound(store: Any) {
    commit(&*store, vec![start(redelivery(7))]).await;
    let many: Vec<i64> = (0..).take(REDELIVERED_MAX + 1).collect();
    let refused = store.commit(countersign_store::Batch(vec![advance(7, (0, 1), &many, None)])).await;
    assert!(refused.is_err());
    assert_eq!(one(&store, 7).await.cursor_seq, 0);
}

pub async fn what_a_redelivery_has_yet_to_come_to_is_not_forgotten_by_age(store: Any) {
    for no in 1..=5 {
        leave(&store, no, "a", 0, DeliveryState::Dead).await;
    }
    commit(&*store, vec![start(redelivery(7))]).await;
    let forget = || vec![Write::ForgetEvents { tenant: TENANT, application: APP, old: too_old(at(99)) }];
    let left = async || {
        let events = store.events_after(TENANT, APP, 0, 9).await.expect("reads");
        events.iter().map(|event| event.no.0).collect::<Vec<_>>()
    };
    let said = async || {
        let page = Cursor { after: None, limit: 9 };
        let of_one =
            store.old_events_of(Asker::Operator, (TENANT, APP), too_old(at(99)), page).await.expect("reads").rows;
        let all = store
            .old_events(Asker::Operator, too_old(at(99)), 9, Cursor { after: None, limit: 9 })
            .await
            .expect("reads");
        assert_eq!(all.iter().find(|old| old.application == APP).map(|old| old.events), Some(of_one));
        of_one
    };
    assert_eq!(said().await, 0);
    commit(&*store, forget()).await;
    assert_eq!(left().await, [1, 2, 3, 4, 5]);

    commit(&*store, vec![advance(7, (0, 2), &[1, 2], None)]).await;
    commit(&*store, vec![attempt(1, 2, DeliveryState::Delivered, None), attempt(2, 2, DeliveryState::Dead, None)])
        .await;
    assert_eq!(said().await, 2, "it has come to these");
    commit(&*store, forget()).await;
    assert_eq!(left().await, [3, 4, 5]);

    commit(&*store, vec![stop_at(TENANT, 7, 2)]).await;
    assert_eq!(said().await, 2, "it waits for none any more, and the last one never goes");
    commit(&*store, forget()).await;
    assert_eq!(left().await, [5]);
}
