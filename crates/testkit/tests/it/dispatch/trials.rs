//! A callback that tells of nothing: it goes the way of every other, and leaves nothing behind.

use countersign::app::error::AppError;
use countersign::dispatch::{BIZ_TYPE, Tried};
use countersign::meters;
use countersign_store::contract::{Cursor, EventFilter};
use countersign_testkit::receiver::Reply;

use super::*;

async fn try_out(bench: &Bench, owner: &Owner) -> Result<Tried, AppError> {
    bench.dispatcher.try_out(&owner.client_id, &|_| None, &actor()).await
}

/// How often the audit log says that one was sent.
async fn told(bench: &Bench) -> usize {
    let lines = bench.app.store.audit(Cursor { after: None, limit: 100 }).await.expect("the audit log");
    lines.iter().filter(|line| line.action == "application.test_callback").count()
}

#[tokio::test]
async fn a_test_is_signed_and_sent_as_every_callback_and_leaves_no_event_and_counts_nowhere() {
    let meters = meters::install().expect("meters");
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let tried = try_out(&bench, &owner).await.expect("it is sent");
    let came_to = (tried.outcome, tried.http_status, tried.address.as_deref());
    assert_eq!(came_to, (Outcome::Delivered, Some(200), Some(&*endpoint.address().to_string())));
    let received = endpoint.received();
    let [callback] = &received[..] else { panic!("one callback, not {}", received.len()) };
    assert!(bench.is_signed_by(callback, &owner.secret));
    assert_eq!(callback.body, tried.body.as_bytes());
    let body: callback::CallbackBody = serde_json::from_slice(&callback.body).expect("a callback's body");
    assert_eq!((body.biz_type.as_str(), &body.client_id), (BIZ_TYPE, &owner.client_id));
    // What is told of the headers is what came, but for the signature.
    let names: Vec<&str> = tried.headers.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = ["attempt", "event-id", "nonce", "sequence", "signature", "timestamp"];
    assert_eq!(names, wanted.map(|name| format!("x-service-{name}")));
    for (name, value) in &tried.headers {
        let is_shown = !name.ends_with("signature");
        assert_eq!(value == callback.need(name), is_shown, "{name}: {value}");
    }

    let all = EventFilter { client_id: None, biz_id: None, state: None };
    let events =
        bench.app.store.events(all, Cursor { after: None, limit: 10 }, u32::MAX).await.expect("the store reads").events;
    assert_eq!((events.len(), bench.deliver().await), (0, 0));
    let meters = meters.render();
    let counted: Vec<_> =
        meters.lines().filter(|line| line.starts_with("countersign_callback_attempts_total{")).collect();
    assert_eq!(counted, [r#"countersign_callback_attempts_total{outcome="delivered"} 0"#]);
    assert_eq!(told(&bench).await, 1);
}

#[tokio::test]
async fn what_is_wrong_with_a_receiver_is_told_also_while_paused_and_changes_nothing() {
    let mut bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.enable(&owner, false).await;
    let event = bench.emit(&owner, "order").await;
    let before = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    for (reply, outcome, status) in [
        (Reply::Fail, Outcome::Fail, Some(200)),
        (Reply::Status(410), Outcome::HttpStatus, Some(410)),
        (Reply::Garbage, Outcome::Unreadable, None),
        (Reply::Hang, Outcome::Timeout, None),
        (Reply::Success, Outcome::Delivered, Some(200)),
    ] {
        bench.give(if reply == Reply::Hang { Duration::from_millis(500) } else { LONG });
        endpoint.answer_with(reply);
        let tried = try_out(&bench, &owner).await.expect("it is sent");
        assert_eq!((tried.outcome, tried.http_status), (outcome, status), "{tried:?}");
        assert_eq!(tried.detail.is_empty(), tried.outcome == Outcome::Delivered, "{tried:?}");
    }
    let after = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    assert_eq!(after, before);
    assert_eq!((bench.state(&event).await, bench.row(&event).await.attempts), (DeliveryState::Held, 0));
}

#[tokio::test]
async fn a_test_that_cannot_be_sent_is_refused_with_what_to_do_and_nothing_leaves() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let (homeless, owner) = (bench.owner(None).await, bench.owner(Some(endpoint.url())).await);
    let nobody = Owner { client_id: "app_nobody".to_owned(), secret: String::new() };
    let said = async |owner: &Owner| try_out(&bench, owner).await.expect_err("it is refused").to_string();
    assert!(said(&nobody).await.contains("app_nobody"));
    assert!(said(&homeless).await.contains("no callback_url"));
    // As after a restore.
    bench.app.bell.set_paused(true);
    assert!(said(&owner).await.contains("/delivery/release"));
    bench.app.bell.set_paused(false);
    let secrets = identity::list_secrets(&bench.app, &owner.client_id).await.expect("they are listed");
    let secret_id = &secrets[0].row.secret_id;
    let revoked = identity::revoke_secret(&bench.app, &owner.client_id, secret_id, &|_| None, &actor()).await;
    revoked.expect("it is revoked");
    assert!(said(&owner).await.contains("no live secret"));
    assert!(endpoint.received().is_empty());
    assert_eq!(told(&bench).await, 0);
}

#[tokio::test]
async fn of_one_application_one_test_is_under_way_at_a_time_and_others_do_not_wait_for_it() {
    let bench = Arc::new(Bench::new().await);
    let (slow, quick) = (receiver().await, receiver().await);
    slow.script([Reply::Held]);
    let (owner, neighbour) = (bench.owner(Some(slow.url())).await, bench.owner(Some(quick.url())).await);
    let client_id = owner.client_id.clone();
    let first = tokio::spawn({
        let bench = bench.clone();
        async move { bench.dispatcher.try_out(&client_id, &|_| None, &actor()).await }
    });
    slow.wait_for(1, SOON).await.expect("it comes");
    assert!(try_out(&bench, &owner).await.expect_err("it is refused").to_string().contains("under way"));
    assert_eq!(try_out(&bench, &neighbour).await.expect("it is sent").outcome, Outcome::Delivered);
    slow.release(1);
    assert_eq!(first.await.expect("it ends").expect("it is sent").outcome, Outcome::Delivered);
    assert_eq!(try_out(&bench, &owner).await.expect("it is sent").outcome, Outcome::Delivered);
}

#[tokio::test]
async fn a_test_goes_to_no_address_that_callbacks_may_not_go_to() {
    let bench = Bench::with(DispatchSettings { allow_private: false, ..settings() }).await;
    let owner = bench.owner(Some("https://localhost/callbacks".to_owned())).await;
    let tried = try_out(&bench, &owner).await.expect("it is tried");
    assert_eq!((tried.outcome, tried.address), (Outcome::RefusedAddress, None));
    let (name, why) = (tried.detail.starts_with("localhost leads to "), tried.detail.ends_with("range: loopback"));
    assert!(
        name && why && (tried.detail.contains(" 127.0.0.1,") || tried.detail.contains(" ::1,")),
        "{}",
        tried.detail
    );
}
