//! Rows that cannot be read back hold up what is theirs, and nobody else.

use countersign_domain::lanes::LaneSet;
use countersign_store::contract::{ApplicationRow, Cursor};
use countersign_testkit::receiver::Reply;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_read_back_holds_up_its_biz_id_and_nothing_else() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let damaged = bench.emit(&owner, "one").await;
    let (behind, beside) = (bench.emit(&owner, "one").await, bench.emit(&owner, "two").await);
    let mut others = vec![beside];
    for _ in 0..3 {
        let other = bench.owner(Some(endpoint.url())).await;
        others.push(bench.emit(&other, "one").await);
    }
    bench.damage(&Damage::Event(damaged.no)).await;

    assert_eq!(bench.deliver().await, others.len());
    for event in &others {
        assert_eq!(bench.state(event).await, DeliveryState::Delivered);
    }
    let waits = bench.row(&behind).await;
    assert_eq!((waits.state, waits.behind), (DeliveryState::Pending, Some(damaged.no)));
    assert_eq!(bench.deliver_next(&behind).await, 1, "it waits for no longer than for one that fails");
    assert_eq!(bench.state(&behind).await, DeliveryState::Delivered);

    bench.damage(&Damage::Event(damaged.no)).await;
    bench.clock.advance_ms(60_000);
    assert_eq!(bench.deliver().await, 1, "it can be read again");
    assert_eq!(bench.state(&damaged).await, DeliveryState::Delivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_cannot_be_read_keeps_nobody_elses_events_from_being_held_or_released() {
    let bench = Bench::new().await;
    let (damaged, other) = (bench.owner(None).await, bench.owner(None).await);
    let mut applications = Vec::new();
    for owner in [&damaged, &other] {
        let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
        let (tenant, application) = (view.application.tenant, view.application.no);
        bench.commit(Write::Turn { tenant, application, due_at: START }).await;
        applications.push(application);
    }
    bench.damage(&Damage::Application(damaged.client_id)).await;
    bench.deliver().await;
    let page = Cursor { after: None, limit: 10 };
    let left = bench.app.store.turning(LaneSet::ALL, page).await.expect("the store reads");
    assert_eq!(left.iter().map(|row| row.application).collect::<Vec<_>>(), applications[..1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_cannot_be_read_keeps_no_change_of_another_one_waiting() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(500));
    let mut owners = Vec::new();
    for _ in 0..8 {
        let owner = bench.owner(Some(endpoint.url())).await;
        bench.emit(&owner, "one").await;
        owners.push(owner);
    }
    assert_eq!(bench.deliver().await, owners.len(), "something is remembered of each");
    for owner in &owners {
        // As another node does it, so that nothing of it is read for its own sake.
        let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
        let endpoint = EndpointSettings { concurrency: Some(3), ..EndpointSettings::default() };
        let row = ApplicationRow { endpoint, revision: view.application.revision + 1, ..view.application };
        bench.commit(Write::UpdateApplication(Box::new(row))).await;
        bench.app.callers.forget(&owner.client_id);
        bench.app.bell.change(&owner.client_id);
    }
    bench.damage(&Damage::Application(owners[0].client_id.clone())).await;
    bench.deliver().await;
    for owner in &owners[1..] {
        let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
        let stands = bench.dispatcher.view(&view.application).await.expect("this node delivers");
        assert_eq!(stands.at_once_max, 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_recorded_rests_also_where_another_url_was_set_meanwhile() {
    let bench = Bench::new().await;
    let (gone, new) = (receiver().await, receiver().await);
    gone.answer_with(Reply::HeldStatus(410));
    let owner = bench.owner(Some(gone.url())).await;
    let event = bench.emit(&owner, "one").await;
    let dispatcher = bench.dispatcher.clone();
    let delivering = tokio::spawn(async move { dispatcher.deliver_due(START).await });
    gone.wait_for(1, SOON).await.expect("an attempt");
    bench.set_url(&owner, new.url()).await;
    bench.damage(&Damage::Attempts).await;
    gone.release(1);
    assert_eq!(delivering.await.expect("no panic"), 1, "it is not made again at once");
    assert!(new.received().is_empty());
    assert_eq!(bench.state(&event).await, DeliveryState::Pending);
}
