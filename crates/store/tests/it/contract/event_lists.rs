//! Lists of events for operators.

use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::EventNo;
use countersign_store::batch::Write;
use countersign_store::contract::{Asker, Cursor, EventFilter, EventRow};
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

fn of_other(no: i64, biz_id: &str) -> EventRow {
    EventRow { application: OTHER_APP, client_id: "app_two".to_owned(), tenant: OTHER_TENANT, ..event(no, biz_id) }
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
            let rows = store.events(filter, Cursor { after, limit }, 100).await.expect("reads");
            rows.events.into_iter().map(|e| e.no.0).collect::<Vec<_>>()
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

/// Numbers come from the clock and chance: a later event may have the smaller one. An application's own go by the order of their writing.
const WRITTEN: [i64; 12] = [2, 1, 3, 5, 4, 6, 9, 8, 7, 10, 12, 11];

/// Every third is another application's, every second about `a`; half are over, and the others held.
async fn twelve(store: &Any) -> Vec<EventRow> {
    let mut rows = Vec::new();
    for no in WRITTEN {
        let biz_id = if no % 2 == 0 { "a" } else { "b" };
        let state = match no % 4 {
            0 => DeliveryState::Delivered,
            1 => DeliveryState::Dead,
            _ => DeliveryState::Held,
        };
        let row = if no % 3 == 0 { of_other(no, biz_id) } else { event(no, biz_id) };
        let row = EventRow { state, due_at: None, ..row };
        commit(&**store, vec![enqueue(row.clone())]).await;
        // Callbacks of both go out, so what is noted as held is only late.
        let stands = if state == DeliveryState::Held { DeliveryState::Pending } else { state };
        rows.push(EventRow { state: stands, ..row });
    }
    rows
}

fn filters() -> Vec<EventFilter> {
    let states = || DeliveryState::ALL.into_iter().map(Some).chain([None]);
    let mut all = Vec::new();
    for client_id in [None, Some("app_one"), Some("app_two"), Some("app_nobody")] {
        for biz_id in [None, Some("a"), Some("c")] {
            all.extend(states().map(|state| EventFilter {
                client_id: client_id.map(str::to_owned),
                biz_id: biz_id.map(str::to_owned),
                state,
            }));
        }
    }
    all
}

/// The events that are meant, in the order of the list.
fn said(rows: &[EventRow], filter: &EventFilter) -> Vec<i64> {
    let is_meant = |row: &&EventRow| {
        filter.client_id.as_ref().is_none_or(|id| row.client_id == *id)
            && filter.biz_id.as_ref().is_none_or(|id| row.biz_id == *id)
            && filter.state.is_none_or(|state| row.state == state)
    };
    let mut found: Vec<i64> = rows.iter().rev().filter(is_meant).map(|row| row.no.0).collect();
    let goes_by_seq =
        filter.client_id.is_some() && filter.biz_id.is_none() && filter.state != Some(DeliveryState::Dead);
    if !goes_by_seq {
        found.sort_unstable_by_key(|no| std::cmp::Reverse(*no));
    }
    found
}

/// All pages of a list, as numbers; how many there were.
async fn pages(store: &Any, filter: &EventFilter, limit: u32, looked_max: u32) -> (Vec<i64>, usize) {
    let (mut joined, mut after, mut count) = (Vec::new(), None, 0);
    loop {
        let page = store.events(filter.clone(), Cursor { after, limit }, looked_max).await.expect("reads");
        assert!(page.events.len() <= limit as usize, "{filter:?}");
        joined.extend(page.events.iter().map(|event| event.no.0));
        count += 1;
        assert!(count <= 20, "{filter:?} comes to an end");
        let Some(next) = page.next else { return (joined, count) };
        after = Some(next);
    }
}

pub async fn pages_of_events_join_without_gap_whatever_is_looked_at(store: Any) {
    let rows = twelve(&store).await;
    for filter in filters() {
        for (limit, looked_max) in [(100, 100), (1, 100), (2, 100), (1, 1), (2, 1), (2, 3), (9, 2), (9, 12), (9, 11)] {
            let (joined, _) = pages(&store, &filter, limit, looked_max).await;
            assert_eq!(joined, said(&rows, &filter), "{filter:?} {limit} {looked_max}");
        }
    }
}

pub async fn a_page_of_events_looks_at_so_many_unless_an_index_leads_to_them(store: Any) {
    twelve(&store).await;
    let none = EventFilter::default;
    let (own, biz) = (Some("app_one".to_owned()), Some("a".to_owned()));
    let (delivered, dead) = (Some(DeliveryState::Delivered), Some(DeliveryState::Dead));
    for (filter, expected) in [
        // One looked at is a page.
        (EventFilter { state: delivered, ..none() }, 12),
        (EventFilter { client_id: own.clone(), state: delivered, ..none() }, 8),
        (EventFilter { biz_id: biz.clone(), state: dead, ..none() }, 6),
        (EventFilter { biz_id: biz.clone(), client_id: own.clone(), ..none() }, 6),
        (EventFilter { client_id: Some("app_nobody".to_owned()), state: delivered, ..none() }, 1),
        (none(), 1),
        (EventFilter { client_id: own.clone(), ..none() }, 1),
        (EventFilter { biz_id: biz, ..none() }, 1),
        (EventFilter { state: dead, ..none() }, 1),
        (EventFilter { client_id: own, state: dead, ..none() }, 1),
    ] {
        assert_eq!(pages(&store, &filter, 50, 1).await.1, expected, "{filter:?}");
    }
}

pub async fn a_list_of_events_goes_on_behind_one_that_is_gone(store: Any) {
    for (ms, no) in [3, 2, 5, 4, 6].into_iter().enumerate() {
        let created_at = at(i64::try_from(ms).expect("small"));
        commit(&*store, vec![enqueue(EventRow { created_at, ..event(no, "a") })]).await;
        commit(&*store, vec![attempt(no, 1, DeliveryState::Delivered, None)]).await;
    }
    let own = EventFilter { client_id: Some("app_one".to_owned()), ..EventFilter::default() };
    let list = async |filter: &EventFilter, after| -> Vec<i64> {
        let page = store.events(filter.clone(), Cursor { after, limit: 9 }, 100).await.expect("reads");
        page.events.iter().map(|event| event.no.0).collect()
    };
    assert_eq!(list(&own, Some(5)).await, [2, 3]);
    commit(&*store, vec![Write::ForgetEvents { tenant: TENANT, application: APP, old: too_old(at(3)) }]).await;
    assert_eq!(store.event(Asker::Operator, countersign_domain::ids::SortedId(5)).await.expect("reads"), None);
    for after in [5, 2, 3] {
        assert_eq!(list(&own, Some(after)).await, [] as [i64; 0], "what is older is gone, too");
    }
    assert_eq!(list(&own, Some(6)).await, [4]);
    assert_eq!(list(&EventFilter::default(), Some(5)).await, [4], "by number");
    assert_eq!(EventNo(4), store.events(own, Cursor { after: None, limit: 9 }, 1).await.expect("reads").events[1].no);
}
