//! What waits of an application, and what the dead ones died of.

use std::sync::Arc;

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_store::backlog::{Backlog, Backlogs as _, DeadRow, NodeBacklog, WithDead};
use countersign_store::batch::Write;
use countersign_store::contract::{Cursor, EventRow};
use countersign_store::{AnyStore, Store as _};

use crate::fixtures::*;

type Any = Arc<AnyStore>;
type Death = (i64, Outcome, Option<u16>, String);

/// An event that was written then.
async fn write(store: &Any, no: i64, made_ms: i64) {
    commit(&**store, vec![enqueue(EventRow { created_at: at(made_ms), ..event(no, &format!("b{no}")) })]).await;
}

/// An attempt at it, how that ended, and where it left the delivery.
async fn try_it(store: &Any, no: i64, number: i64, (outcome, status): (Outcome, Option<u16>), state: DeliveryState) {
    let due_at = (state == DeliveryState::Pending).then_some(at(60));
    let mut made = attempt(no, number, state, due_at);
    if let Write::RecordAttempt { attempt, .. } = &mut made {
        let attempt = Arc::make_mut(attempt);
        (attempt.outcome, attempt.http_status, attempt.detail) = (outcome, status, format!("attempt {number}"));
    }
    commit(&**store, vec![made]).await;
}

async fn dies(store: &Any, no: i64, how: (Outcome, Option<u16>)) {
    write(store, no, 10 * no).await;
    try_it(store, no, 1, how, DeliveryState::Dead).await;
}

async fn dead(store: &Any, of: Option<(TenantNo, ApplicationNo)>, after: Option<i64>, limit: u32) -> Vec<DeadRow> {
    store.dead(of, Cursor { after, limit }).await.expect("reads")
}

async fn deaths(store: &Any, after: Option<i64>, limit: u32) -> Vec<Death> {
    let rows = dead(store, Some((TENANT, APP)), after, limit).await;
    rows.into_iter().map(|row| (row.no.0, row.outcome, row.http_status, row.detail)).collect()
}

fn death(no: i64, outcome: Outcome, status: Option<u16>, number: i64) -> Death {
    (no, outcome, status, format!("attempt {number}"))
}

pub async fn what_is_open_and_what_is_dead_is_counted_up_to_a_bound(store: Any) {
    let count = async |most| store.backlog(TENANT, APP, most).await.expect("reads");
    assert_eq!(count(9).await, Backlog::default());
    for no in 1..=5 {
        write(&store, no, 10 * no).await;
    }
    let failed = (Outcome::Timeout, None);
    try_it(&store, 1, 1, (Outcome::Delivered, Some(200)), DeliveryState::Delivered).await;
    try_it(&store, 2, 1, failed, DeliveryState::Pending).await;
    try_it(&store, 3, 1, failed, DeliveryState::Held).await;
    try_it(&store, 5, 1, failed, DeliveryState::Dead).await;
    assert_eq!(count(9).await, Backlog { open: 3, oldest_open: Some(at(20)), dead: 1 });
    dies(&store, 6, failed).await;
    let bound = count(1).await;
    assert_eq!((bound.open, bound.dead), (1, 1), "no more than was asked for");
    assert_eq!(count(2).await.dead, 2);
}

pub async fn what_is_pending_and_dead_of_all_is_counted_up_to_a_bound(store: Any) {
    let count = async |lanes, most| store.waiting(lanes, most).await.expect("reads");
    assert_eq!(count(LaneSet::ALL, 9).await, NodeBacklog::default());
    for no in 1..=5 {
        write(&store, no, 10 * no).await;
    }
    let failed = (Outcome::Timeout, None);
    try_it(&store, 1, 1, failed, DeliveryState::Held).await;
    try_it(&store, 2, 1, failed, DeliveryState::Pending).await;
    try_it(&store, 3, 1, failed, DeliveryState::Dead).await;
    try_it(&store, 4, 1, (Outcome::Delivered, Some(200)), DeliveryState::Delivered).await;
    let other =
        EventRow { tenant: OTHER_TENANT, application: OTHER_APP, client_id: "app_two".to_owned(), ..event(6, "b6") };
    commit(&*store, vec![enqueue(other)]).await;
    let all = NodeBacklog { pending: 3, oldest_pending: Some(at(20)), dead: 1 };
    assert_eq!(count(LaneSet::ALL, 9).await, all, "of every tenant");
    dies(&store, 7, failed).await;
    let bound = count(LaneSet::ALL, 1).await;
    assert_eq!((bound.pending, bound.dead), (1, 1), "no more than was asked for");
    assert_eq!(count(LaneSet::ALL, 2).await.dead, 2);
    // Of several nodes each counts what it delivers.
    let own = [Lane::of(APP)].into_iter().collect();
    let of_app = count(own, 9).await.pending;
    assert_eq!(of_app, if store.is_shared() { 2 } else { 3 });
    assert_eq!(count(LaneSet::NONE, 9).await.pending, if store.is_shared() { 0 } else { 3 });
}

pub async fn the_backlog_of_another_tenant_is_not_there(store: Any) {
    write(&store, 1, 10).await;
    dies(&store, 2, (Outcome::Fail, Some(200))).await;
    for (tenant, of) in [(OTHER_TENANT, APP), (TENANT, OTHER_APP), (OTHER_TENANT, OTHER_APP)] {
        assert_eq!(store.backlog(tenant, of, 9).await.expect("reads"), Backlog::default());
        assert_eq!(dead(&store, Some((tenant, of)), None, 9).await, []);
    }
}

pub async fn applications_with_dead_events_are_found_one_after_the_other(store: Any) {
    let asked = async |after, limit| store.with_dead(after, limit).await.expect("reads");
    write(&store, 1, 10).await;
    assert_eq!(asked(None, 9).await, [], "nothing is dead");
    for no in [2, 3] {
        dies(&store, no, (Outcome::Fail, Some(200))).await;
    }
    let own = WithDead { tenant: TENANT, application: APP, client_id: "app_one".to_owned() };
    assert_eq!(asked(None, 9).await, std::slice::from_ref(&own), "once, however much of it is dead");
    let other =
        EventRow { tenant: OTHER_TENANT, application: OTHER_APP, client_id: "app_two".to_owned(), ..event(6, "b") };
    commit(&*store, vec![enqueue(other)]).await;
    let Write::RecordAttempt { attempt: made, bytes, state, .. } = attempt(6, 1, DeliveryState::Dead, None) else {
        panic!("an attempt")
    };
    let (tenant, application) = (OTHER_TENANT, OTHER_APP);
    commit(&*store, vec![Write::RecordAttempt { tenant, application, attempt: made, bytes, state, due_at: None }])
        .await;
    let other = WithDead { tenant, application, client_id: "app_two".to_owned() };
    let all = asked(None, 9).await;
    assert!(all.len() == 2 && all.contains(&own) && all.contains(&other), "{all:?}");
    assert_eq!(asked(None, 1).await, all[..1]);
    assert_eq!(asked(Some((all[0].tenant, all[0].application)), 9).await, all[1..]);
    assert_eq!(asked(Some((all[1].tenant, all[1].application)), 9).await, []);
}

pub async fn the_place_of_an_application_is_found_by_its_client_id(store: Any) {
    for (client_id, place) in [("app_one", (TENANT, APP)), ("app_two", (OTHER_TENANT, OTHER_APP))] {
        assert_eq!(store.place_of(client_id).await.expect("reads"), Some(place), "{client_id}");
    }
    assert_eq!(store.place_of("app_nobody").await.expect("reads"), None);
}

pub async fn dead_events_come_newest_first_with_their_last_attempt(store: Any) {
    dies(&store, 1, (Outcome::DnsFailed, None)).await;
    write(&store, 2, 20).await;
    write(&store, 3, 30).await;
    try_it(&store, 3, 1, (Outcome::Timeout, None), DeliveryState::Pending).await;
    try_it(&store, 3, 2, (Outcome::HttpStatus, Some(500)), DeliveryState::Dead).await;
    dies(&store, 4, (Outcome::Fail, Some(200))).await;
    let all = [
        death(4, Outcome::Fail, Some(200), 1),
        death(3, Outcome::HttpStatus, Some(500), 2),
        death(1, Outcome::DnsFailed, None, 1),
    ];
    assert_eq!(deaths(&store, None, 9).await, all);
    assert_eq!(deaths(&store, None, 2).await, all[..2]);
    assert_eq!(deaths(&store, Some(3), 9).await, all[2..], "those before one");
    let row = dead(&store, Some((TENANT, APP)), Some(2), 1).await.pop().expect("is there");
    let written = event(1, "b1");
    assert_eq!((row.no, row.tenant, row.client_id.as_str()), (EventNo(1), TENANT, "app_one"));
    assert_eq!((row.event_id, row.created_at), (written.event_id, at(10)));
    let of_business = dead(&store, None, None, 9).await.into_iter().map(|row| (row.seq, row.biz_id));
    assert_eq!(of_business.collect::<Vec<_>>(), [4, 3, 1].map(|no| (no, format!("b{no}"))));
}

pub async fn what_is_sent_again_is_dead_no_more(store: Any) {
    dies(&store, 1, (Outcome::Timeout, None)).await;
    commit(&*store, vec![Write::Redeliver { tenant: TENANT, event: EventNo(1), attempts: 1, due_at: at(90) }]).await;
    assert_eq!(deaths(&store, None, 9).await, []);
    try_it(&store, 1, 2, (Outcome::Unreadable, Some(200)), DeliveryState::Dead).await;
    assert_eq!(deaths(&store, None, 9).await, [death(1, Outcome::Unreadable, Some(200), 2)]);
}

pub async fn dead_events_of_all_tenants_come_in_one_list(store: Any) {
    dies(&store, 1, (Outcome::Timeout, None)).await;
    let other = EventRow {
        tenant: OTHER_TENANT,
        application: OTHER_APP,
        client_id: "app_two".to_owned(),
        created_at: at(15),
        ..event(2, "b2")
    };
    let mut made = attempt(2, 1, DeliveryState::Dead, None);
    if let Write::RecordAttempt { tenant, application, .. } = &mut made {
        (*tenant, *application) = (OTHER_TENANT, OTHER_APP);
    }
    commit(&*store, vec![enqueue(other), made]).await;
    dies(&store, 3, (Outcome::Fail, Some(200))).await;
    let of = |rows: Vec<DeadRow>| rows.into_iter().map(|row| (row.no.0, row.tenant, row.client_id)).collect::<Vec<_>>();
    let all = [(3, TENANT, "app_one"), (2, OTHER_TENANT, "app_two"), (1, TENANT, "app_one")]
        .map(|(no, tenant, id)| (no, tenant, id.to_owned()));
    assert_eq!(of(dead(&store, None, None, 9).await), all);
    assert_eq!(of(dead(&store, None, Some(3), 1).await), all[1..2]);
}
