//! Events that die and endpoints that are gone: told in the audit log, and counted.

use countersign::meters;
use countersign_store::contract::{AuditRow, Cursor};
use countersign_testkit::receiver::Reply;

use super::*;

async fn lines(bench: &Bench, action: &str) -> Vec<AuditRow> {
    let lines = bench.app.store.audit(Cursor { after: None, limit: 200 }).await.expect("the audit log");
    lines.into_iter().filter(|line| line.action == action).collect()
}

fn counts(counter: &str, times: usize) -> bool {
    let seen = meters::install().expect("meters").render();
    seen.lines().any(|line| line == format!("{counter} {times}"))
}

#[tokio::test]
async fn an_event_that_dies_is_told_once_in_the_audit_log_with_its_last_attempt_and_counted() {
    meters::install().expect("meters");
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(500));
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    assert!(lines(&bench, "event.dead").await.is_empty(), "it is tried again");
    while bench.state(&event).await == DeliveryState::Pending {
        assert_eq!(bench.deliver_next(&event).await, 1);
    }
    assert_eq!(bench.state(&event).await, DeliveryState::Dead);
    let told = lines(&bench, "event.dead").await;
    let [line] = &told[..] else { panic!("{told:?}") };
    let row = bench.row(&event).await;
    assert_eq!((line.actor.as_str(), &line.subject), ("system", &events::public_id(event.event_id)));
    assert_eq!((line.tenant, line.before.as_str()), (Some(row.tenant), r#"{"state":"pending"}"#));
    let after: serde_json::Value = serde_json::from_str(&line.after).expect("JSON");
    let wanted = serde_json::json!({"state": "dead", "client_id": owner.client_id, "attempts": row.attempts,
        "outcome": "http_status"});
    assert_eq!(after, wanted);
    assert!(counts("countersign_callbacks_dead_total", 1));

    // Brought back, and dead again: once more.
    of_one::redeliver(&bench.app, event.event_id, &|_| None, &actor()).await.expect("the dead are redeliverable");
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.state(&event).await, DeliveryState::Dead);
    assert_eq!(lines(&bench, "event.dead").await.len(), 2);
    assert!(counts("countersign_callbacks_dead_total", 2));
}

#[tokio::test]
async fn what_was_delivered_stays_so_where_it_is_sent_again_in_vain_and_holds_up_nothing() {
    meters::install().expect("meters");
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
    endpoint.answer_with(Reply::Status(500));
    of_one::redeliver(&bench.app, event.event_id, &|_| None, &actor()).await.expect("it is redeliverable");
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.state(&event).await, DeliveryState::Pending, "its schedule goes on");
    // A later event of the same order does not wait for it.
    let later = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.row(&later).await.attempts, 1);
    while bench.state(&event).await == DeliveryState::Pending {
        bench.deliver_next(&event).await;
    }
    assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
    let dead = lines(&bench, "event.dead").await;
    assert!(dead.iter().all(|line| line.subject != events::public_id(event.event_id)), "{dead:?}");
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_counted_once_however_many_of_its_answers_say_so() {
    meters::install().expect("meters");
    let bench = Arc::new(Bench::new().await);
    // Not at all where somebody has paused its callbacks meanwhile.
    for (is_paused, disabled) in [(false, 1), (true, 1)] {
        let endpoint = receiver().await;
        endpoint.answer_with(Reply::HeldStatus(410));
        let owner = bench.owner(Some(endpoint.url())).await;
        for order in ["one", "two", "three"] {
            bench.emit(&owner, order).await;
        }
        let delivering = tokio::spawn({
            let bench = bench.clone();
            async move { bench.deliver().await }
        });
        endpoint.wait_for(3, SOON).await.expect("three attempts at once");
        if is_paused {
            bench.enable(&owner, false).await;
        }
        endpoint.release(3);
        assert_eq!(delivering.await.expect("no panic"), 3);
        assert_eq!(bench.flow(&owner).await, if is_paused { Flow::Paused } else { Flow::Gone });
        assert_eq!(lines(&bench, "application.disable_callbacks").await.len(), disabled);
        assert!(counts("countersign_endpoints_disabled_total", disabled));
    }
}
