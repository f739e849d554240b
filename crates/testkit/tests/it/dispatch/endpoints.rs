//! Endpoints that are missing, disabled, gone, or spoken to over TLS.

use countersign_domain::delivery::Schedule;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::Cursor;
use countersign_testkit::receiver::Reply;

use super::*;

#[tokio::test]
async fn without_a_url_events_are_held_and_setting_one_releases_them() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(None).await;
    let event = bench.emit(&owner, "order").await;
    assert_eq!((bench.deliver().await, bench.state(&event).await), (0, DeliveryState::Held));
    bench.set_url(&owner, endpoint.url()).await;
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered));
}

#[tokio::test]
async fn an_event_that_is_pending_where_nothing_may_go_out_becomes_held_without_an_attempt() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.enable(&owner, false).await;
    let event = bench.emit(&owner, "order").await;
    let row = bench.row(&event).await;
    // As after a crash between two nodes: pending, although callbacks are disabled.
    let release = Write::ReleaseHeld { tenant: row.tenant, application: row.application, due_at: bench.clock.now() };
    bench.app.store.commit(Batch(vec![release])).await.expect("held events are released");
    assert_eq!(bench.state(&event).await, DeliveryState::Pending);
    assert_eq!(bench.deliver().await, 0);
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts, row.due_at), (DeliveryState::Held, 0, None));
    assert!(endpoint.received().is_empty());
    bench.enable(&owner, true).await;
    assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered));
}

#[tokio::test]
async fn gone_disables_the_endpoint_and_holds_its_events_until_callbacks_are_enabled_again() {
    let bench = Bench::with(DispatchSettings { per_application: 1, ..settings() }).await;
    let (gone, other) = (receiver().await, receiver().await);
    gone.script([Reply::Status(410)]);
    let (owner, neighbour) = (bench.owner(Some(gone.url())).await, bench.owner(Some(other.url())).await);
    let first = bench.emit(&owner, "first").await;
    let second = bench.emit(&owner, "second").await;
    let of_neighbour = bench.emit(&neighbour, "first").await;
    assert_eq!(bench.deliver().await, 2);
    let (row, attempts) = bench.read(first.event_id).await;
    assert_eq!((row.state, row.attempts, attempts[0].http_status), (DeliveryState::Held, 1, Some(410)));
    let row = bench.row(&second).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Held, 0));
    assert_eq!(bench.state(&of_neighbour).await, DeliveryState::Delivered);
    let view = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    assert!(!view.application.callback_enabled && view.application.callback_url == Some(gone.url()));
    assert_eq!(bench.flow(&owner).await, Flow::Gone);
    bench.clock.advance_ms(5_000);
    bench.change(&owner, ApplicationChange { name: Some("renamed".to_owned()), ..ApplicationChange::default() }).await;
    assert_eq!(bench.flow(&owner).await, Flow::Gone, "a change of something else leaves it");
    bench.enable(&owner, false).await;
    assert_eq!(bench.flow(&owner).await, Flow::Paused, "whoever turns the switch decides");
    let seen = bench.dispatcher.view(&view.application).await.expect("this node delivers");
    assert_eq!(seen.last.map(|(_, outcome)| outcome), Some(Outcome::HttpStatus), "what disabled it is told");
    let audit = bench.app.store.audit(Cursor { after: None, limit: 100 }).await.expect("the audit log");
    let disabled: Vec<_> = audit.iter().filter(|line| line.action == "application.disable_callbacks").collect();
    assert_eq!(disabled.len(), 1);
    assert_eq!((disabled[0].actor.as_str(), &disabled[0].subject), ("system", &owner.client_id));

    let third = bench.emit(&owner, "third").await;
    bench.clock.advance_ms(86_400_000);
    assert_eq!((bench.deliver().await, bench.state(&third).await), (0, DeliveryState::Held));
    bench.enable(&owner, true).await;
    assert_eq!(bench.flow(&owner).await, Flow::Enabled);
    assert_eq!(bench.deliver().await, 3);
    assert_eq!(gone.received().len(), 4);
    let second_attempt = gone.received().into_iter().find(|r| r.need("x-service-attempt") == "2");
    assert!(second_attempt.is_some(), "attempts go on counting");
}

#[tokio::test]
async fn gone_from_an_old_url_does_not_disable_the_new_one() {
    let bench = Arc::new(Bench::new().await);
    let (old, new) = (receiver().await, receiver().await);
    old.script([Reply::HeldStatus(410)]);
    let owner = bench.owner(Some(old.url())).await;
    let event = bench.emit(&owner, "order").await;
    let delivering = tokio::spawn({
        let bench = bench.clone();
        async move { bench.deliver().await }
    });
    old.wait_for(1, SOON).await.expect("an attempt");
    bench.set_url(&owner, new.url()).await;
    old.release(1);
    assert_eq!(delivering.await.expect("no panic"), 2);
    assert_eq!((bench.state(&event).await, new.received().len()), (DeliveryState::Delivered, 1));
}

/// While the request of this number waits for its answer a change is made: how many attempts there were from that one on.
async fn meanwhile(bench: &Arc<Bench>, endpoint: &Receiver, number: usize, change: impl AsyncFnOnce()) -> usize {
    let delivering = tokio::spawn({
        let bench = bench.clone();
        async move { bench.deliver().await }
    });
    endpoint.wait_for(number, SOON).await.expect("an attempt");
    change().await;
    endpoint.release(1);
    delivering.await.expect("no panic")
}

#[tokio::test]
async fn gone_to_what_was_asked_before_callbacks_were_resumed_does_not_disable_them_again() {
    let bench = Arc::new(Bench::new().await);
    // It is asked once more, at once, and what it says to that counts.
    for (then, state, flow) in [
        (Reply::Success, DeliveryState::Delivered, Flow::Enabled),
        (Reply::Status(410), DeliveryState::Held, Flow::Gone),
    ] {
        let endpoint = receiver().await;
        endpoint.script([Reply::HeldStatus(410), then]);
        let owner = bench.owner(Some(endpoint.url())).await;
        let event = bench.emit(&owner, "order").await;
        let attempts = meanwhile(&bench, &endpoint, 1, async || {
            bench.enable(&owner, false).await;
            bench.enable(&owner, true).await;
        });
        assert_eq!((attempts.await, bench.state(&event).await), (2, state));
        assert_eq!(bench.flow(&owner).await, flow);
    }
}

#[tokio::test]
async fn what_ends_in_its_last_attempt_at_an_old_url_is_tried_at_the_new_one_and_held_where_there_is_none() {
    let schedule = Schedule::parse(&["1s"]).expect("a schedule");
    let bench = Arc::new(Bench::with(DispatchSettings { schedule, ..settings() }).await);
    for (moves, attempts, state) in [(true, 2, DeliveryState::Delivered), (false, 1, DeliveryState::Held)] {
        let (old, new) = (receiver().await, receiver().await);
        old.script([Reply::Status(500), Reply::HeldStatus(500)]);
        let owner = bench.owner(Some(old.url())).await;
        let event = bench.emit(&owner, "order").await;
        assert_eq!(bench.deliver().await, 1);
        bench.clock.advance_ms(1_200);
        let url = if moves { Set::To(new.url()) } else { Set::Clear };
        let change = ApplicationChange { callback_url: url, ..ApplicationChange::default() };
        let made = meanwhile(&bench, &old, 2, async || bench.change(&owner, change).await).await;
        assert_eq!((made, bench.state(&event).await), (attempts, state));
        assert_eq!(new.received().len(), usize::from(moves));
    }
}

#[tokio::test]
async fn what_was_delivered_and_fails_again_at_an_old_url_goes_to_the_new_one_too() {
    let schedule = Schedule::parse(&["1s"]).expect("a schedule");
    let bench = Arc::new(Bench::with(DispatchSettings { schedule, ..settings() }).await);
    for moves in [true, false] {
        let (old, new) = (receiver().await, receiver().await);
        old.script([Reply::Success, Reply::HeldStatus(500)]);
        let owner = bench.owner(Some(old.url())).await;
        let event = bench.emit(&owner, "order").await;
        assert_eq!((bench.deliver().await, bench.state(&event).await), (1, DeliveryState::Delivered));
        of_one::redeliver(&bench.app, event.event_id, &|_| None, &actor()).await.expect("it is redeliverable");
        let set = async || {
            if moves {
                bench.set_url(&owner, new.url()).await;
            }
        };
        let made = meanwhile(&bench, &old, 2, set).await;
        assert_eq!((made, new.received().len()), (1 + usize::from(moves), usize::from(moves)));
        assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
    }
}

#[tokio::test]
async fn an_attempt_that_was_in_flight_when_callbacks_were_disabled_is_recorded_all_the_same() {
    let bench = Arc::new(Bench::new().await);
    let endpoint = receiver().await;
    endpoint.script([Reply::Held]);
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    let delivering = tokio::spawn({
        let bench = bench.clone();
        async move { bench.deliver().await }
    });
    endpoint.wait_for(1, SOON).await.expect("an attempt");
    bench.enable(&owner, false).await;
    endpoint.release(1);
    assert_eq!(delivering.await.expect("no panic"), 1);
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Delivered, 1));
    bench.enable(&owner, true).await;
    assert_eq!(bench.deliver().await, 0);
}

#[tokio::test]
async fn over_tls_the_certificate_must_be_trusted_and_bear_the_name() {
    let endpoint = Receiver::start_tls().await.expect("a loopback port");
    let misnamed = Receiver::start_tls_as(vec!["other.example".to_owned()]).await.expect("a loopback port");
    let roots = [endpoint.ca_pem(), misnamed.ca_pem()].concat();
    let trusting = Bench::with(DispatchSettings { extra_roots: roots, ..settings() }).await;
    let by_address = format!("https://127.0.0.1:{}/", endpoint.address().port());
    for (url, outcome) in
        [(endpoint.url(), Outcome::Delivered), (by_address, Outcome::Delivered), (misnamed.url(), Outcome::TlsFailed)]
    {
        let owner = trusting.owner(Some(url.clone())).await;
        let event = trusting.emit(&owner, "order").await;
        trusting.deliver().await;
        assert_eq!(trusting.outcomes(&event).await, [outcome], "{url}");
    }
    let strange = Bench::new().await;
    let owner = strange.owner(Some(endpoint.url())).await;
    let event = strange.emit(&owner, "order").await;
    strange.deliver().await;
    assert_eq!(strange.outcomes(&event).await, [Outcome::TlsFailed]);
    assert_eq!((endpoint.received().len(), misnamed.received().len()), (2, 0));
}

#[tokio::test]
async fn a_connection_is_used_again_for_the_same_endpoint_only() {
    let bench = Bench::new().await;
    let (one, two) = (receiver().await, receiver().await);
    let (first, second) = (bench.owner(Some(one.url())).await, bench.owner(Some(two.url())).await);
    for endpoint in [&one, &two] {
        endpoint.answer_with(Reply::SuccessKeeping);
    }
    for round in 0..3 {
        bench.emit(&first, &format!("{round}")).await;
        bench.emit(&second, &format!("{round}")).await;
        assert_eq!(bench.deliver().await, 2);
    }
    for endpoint in [&one, &two] {
        assert_eq!(endpoint.received().iter().map(|r| r.connection).collect::<Vec<_>>(), [1, 1, 1]);
    }
    // Who says that it closes idle connections soon is not met while it does: this one would never answer on it again.
    let answer = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 24\r\n\r\n{\"returnCode\":\"SUCCESS\"}";
    two.script([Reply::HangAfter(answer.to_vec())]);
    for biz_id in ["soon", "sooner"] {
        let event = bench.emit(&second, biz_id).await;
        assert_eq!(bench.deliver().await, 1);
        assert_eq!(bench.outcomes(&event).await, [Outcome::Delivered], "{biz_id}");
    }
    assert_eq!(two.received().last().map(|r| r.connection), Some(2));
    // What closed in between is replaced in silence: no attempt is lost for it.
    one.answer_with(Reply::SuccessAndClose);
    for round in 3..6 {
        let event = bench.emit(&first, &format!("{round}")).await;
        assert_eq!(bench.deliver().await, 1);
        assert_eq!(bench.outcomes(&event).await, [Outcome::Delivered]);
        one.until_closed().await;
    }
}

#[tokio::test]
async fn an_endpoint_that_closes_behind_its_answers_loses_one_attempt_at_the_most() {
    // Several at once might each meet a connection that is closed.
    let bench = Bench::with(DispatchSettings { per_application: 1, ..settings() }).await;
    for reply in [Reply::SuccessAndClose, Reply::SuccessOnce] {
        let endpoint = receiver().await;
        endpoint.answer_with(reply.clone());
        let owner = bench.owner(Some(endpoint.url())).await;
        let mut events = Vec::new();
        for order in 0..40 {
            events.push(bench.emit(&owner, &format!("{order}")).await);
        }
        while bench.deliver().await > 0 {}
        let mut lost = 0;
        for event in &events {
            let outcomes = bench.outcomes(event).await;
            lost += usize::from(outcomes == [Outcome::ConnectFailed]);
            assert!(outcomes == [Outcome::Delivered] || lost == 1, "{reply:?}: {outcomes:?}");
        }
        // One that closes only when it is asked again is seen to keep its connections, where half a second has gone by.
        assert!(lost == 0 || reply == Reply::SuccessOnce, "{reply:?}");
        assert_eq!(endpoint.received().len() + lost, events.len());
    }
}

#[tokio::test]
async fn an_endpoint_that_closes_under_a_request_is_asked_over_new_connections_from_then_on() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.script([Reply::SuccessKeeping, Reply::SuccessOnce]);
    endpoint.answer_with(Reply::SuccessKeeping);
    let owner = bench.owner(Some(endpoint.url())).await;
    for (order, outcome) in [
        ("its connection is kept", Outcome::Delivered),
        ("it is used again", Outcome::Delivered),
        ("it is closed under this one", Outcome::ConnectFailed),
        ("a new one", Outcome::Delivered),
        ("another new one, whatever the endpoint says", Outcome::Delivered),
    ] {
        let event = bench.emit(&owner, order).await;
        assert_eq!(bench.deliver().await, 1);
        assert_eq!(bench.outcomes(&event).await, [outcome], "{order}");
    }
    assert_eq!(endpoint.received().iter().map(|came| came.connection).collect::<Vec<_>>(), [1, 1, 2, 3]);
}

#[tokio::test]
async fn roots_that_are_none_are_refused_at_the_start() {
    let bench = Bench::new().await;
    for pem in ["-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n", "no pem at all"] {
        let broken = DispatchSettings { extra_roots: pem.as_bytes().to_vec(), ..settings() };
        assert!(Dispatcher::new(bench.app.clone(), broken).is_err(), "{pem}");
    }
    let nothing = DispatchSettings { concurrency: 0, ..settings() };
    assert!(Dispatcher::new(bench.app.clone(), nothing).is_err());
}
