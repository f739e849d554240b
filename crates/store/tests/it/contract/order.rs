//! The order of the events of one bizId: which of them waits behind which.

use std::sync::Arc;

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{EventNo, time_ordered};
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::AttemptRow;
use countersign_store::{AnyStore, Store as _};

use super::events::{due, of_other, one};
use crate::fixtures::*;

type Any = Arc<AnyStore>;

pub async fn an_event_waits_behind_nothing_that_is_over_or_not_there(store: Any) {
    for no in 1..=2 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![enqueue(of_other(3, "a"))]).await;
    commit(&*store, vec![attempt(1, 1, DeliveryState::Delivered, None)]).await;
    let moved = |no| Conflict::Moved(Key::Delivery(EventNo(no)));
    assert_eq!(conflict(&*store, vec![defer(2, 1, 500)]).await, moved(1), "it is over");
    assert_eq!(conflict(&*store, vec![defer(1, 2, 500)]).await, moved(1));
    assert_eq!(conflict(&*store, vec![defer(2, 9, 500)]).await, moved(9), "it is not there");
    assert_eq!(conflict(&*store, vec![defer(2, 3, 500)]).await, moved(3), "it is another tenant's");
    unfit(&*store, vec![defer(2, 2, 500)]).await;
    let row = one(&store, 2).await;
    assert_eq!((row.behind, row.due_at), (None, Some(at(0))));
}

pub async fn the_open_event_before_one_is_of_its_own_business(store: Any) {
    // The third was numbered before the second was, and committed after it.
    for (no, biz) in [(1, "a"), (3, "a"), (2, "a"), (4, "b"), (5, "a")] {
        commit(&*store, vec![enqueue(event(no, biz))]).await;
    }
    commit(&*store, vec![enqueue(of_other(6, "a"))]).await;
    let before = |no: i64| {
        let store = Arc::clone(&store);
        async move {
            let row = one(&store, u128::try_from(no).expect("a number")).await;
            store.open_before(&row).await.expect("reads").map(|no| no.0)
        }
    };
    assert_eq!([before(1).await, before(4).await, before(6).await], [None; 3]);
    assert_eq!([before(5).await, before(2).await, before(3).await], [Some(3), Some(1), Some(1)]);
    commit(&*store, vec![attempt(1, 1, DeliveryState::Dead, None)]).await;
    assert_eq!(before(2).await, Some(3), "what was numbered later and committed before comes first");
    commit(&*store, vec![attempt(3, 1, DeliveryState::Delivered, None)]).await;
    assert_eq!([before(5).await, before(2).await], [Some(2), None]);
    // A clock that was far ahead numbered the next one.
    let ahead = time_ordered(at(0).plus_ms(86_400_000 * 400), 0);
    for no in [ahead, 7] {
        commit(&*store, vec![enqueue(event(no, "c"))]).await;
    }
    assert_eq!([before(7).await, before(ahead).await], [Some(ahead), None]);
}

pub async fn the_open_event_before_one_is_found_behind_many_that_are_over(store: Any) {
    let many: Vec<i64> = (1..=300).collect();
    commit(&*store, many.iter().map(|no| enqueue(event(*no, "a"))).collect()).await;
    let before = async || store.open_before(&one(&store, 300).await).await.expect("reads").map(|no| no.0);
    assert_eq!(before().await, Some(299));
    commit(&*store, many[1..299].iter().map(|no| attempt(*no, 1, DeliveryState::Delivered, None)).collect()).await;
    assert_eq!(before().await, Some(1));
    commit(&*store, vec![attempt(1, 1, DeliveryState::Dead, None)]).await;
    assert_eq!(before().await, None);
}

pub async fn what_was_delivered_and_is_sent_again_holds_up_no_later_event(store: Any) {
    for no in 1..=3 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    let Write::RecordAttempt { tenant, application, attempt: made, bytes, state, due_at } =
        attempt(1, 1, DeliveryState::Delivered, None)
    else {
        panic!("an attempt")
    };
    let made = Arc::new(AttemptRow { outcome: Outcome::Delivered, ..(*made).clone() });
    commit(&*store, vec![Write::RecordAttempt { tenant, application, attempt: made, bytes, state, due_at }]).await;
    commit(&*store, vec![attempt(2, 1, DeliveryState::Dead, None)]).await;
    for no in [1, 2] {
        commit(&*store, vec![Write::Redeliver { tenant: TENANT, event: EventNo(no), attempts: 1, due_at: at(3) }])
            .await;
    }
    // The endpoint says that it is gone, and comes back.
    commit(&*store, vec![attempt(1, 2, DeliveryState::Held, None)]).await;
    assert!(one(&store, 1).await.by_hand);
    let before = store.open_before(&one(&store, 3).await).await.expect("reads");
    assert_eq!(before, Some(EventNo(2)), "what was never delivered still comes first");
    commit(&*store, vec![attempt(2, 2, DeliveryState::Dead, None)]).await;
    assert_eq!(store.open_before(&one(&store, 3).await).await.expect("reads"), None);
}

pub async fn an_event_waits_behind_one_that_is_held_as_behind_a_pending_one(store: Any) {
    for no in 1..=2 {
        commit(&*store, vec![enqueue(event(no, "a"))]).await;
    }
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    commit(&*store, vec![enqueue(event(3, "a"))]).await;
    let before = |no| {
        let store = Arc::clone(&store);
        async move { store.open_before(&one(&store, no).await).await.expect("reads").map(|no| no.0) }
    };
    assert_eq!([before(2).await, before(3).await], [Some(1), Some(2)]);
    let moved = Conflict::Moved(Key::Delivery(EventNo(2)));
    assert_eq!(conflict(&*store, vec![defer(2, 1, 500)]).await, moved, "what is held is not due at all");
    commit(&*store, vec![defer(3, 2, 500)]).await;
    commit(&*store, vec![Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(7) }]).await;
    assert_eq!(due(&store, 499).await, [1, 2]);
    commit(&*store, vec![attempt(2, 1, DeliveryState::Delivered, None)]).await;
    let row = one(&store, 3).await;
    assert_eq!((row.behind, row.due_at), (None, Some(at(1))));
}
