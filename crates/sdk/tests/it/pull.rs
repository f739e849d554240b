//! Events page after page: in order, without a gap, and whoever misses some is told which.

use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::events::gone;
use countersign_sdk::{Error, EventCursor, EventWalk, Gap, NotMoved, PullError};
use serde_json::{Value, json};

use crate::stub::{Stub, failure, success};

fn page(seqs: &[i64]) -> Value {
    let event = |seq: &i64| {
        json!({"seq": seq, "event_id": format!("evt_{seq}"), "bizType": "T", "bizId": "b", "bizStatus": "S", "client_id": "app_01",
            "data": "{}", "created_at": "2026-01-01T00:00:00.000Z"})
    };
    json!({"events": seqs.iter().map(event).collect::<Vec<_>>(), "next": seqs.last().copied().unwrap_or(0)})
}

/// The next events, each done.
async fn pulled(walk: &mut EventWalk) -> Result<Vec<i64>, PullError> {
    let events = walk.pull().await?;
    Ok(events.iter().map(|event| walk.done(event).map(|()| event.seq).expect("in order")).collect())
}

async fn missing(walk: &mut EventWalk) -> Gap {
    match pulled(walk).await {
        Err(PullError::Missing(gap)) => gap,
        other => panic!("nothing is missing: {other:?}"),
    }
}

#[tokio::test]
async fn a_walk_asks_behind_the_last_event_that_is_done() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 4).limit(2);
    stub.answers([success(&page(&[5, 6])), success(&page(&[])), success(&page(&[7]))]);
    assert_eq!(pulled(&mut walk).await.expect("events"), [5, 6]);
    assert_eq!(pulled(&mut walk).await.expect("nothing new"), [] as [i64; 0]);
    assert_eq!((pulled(&mut walk).await.expect("events"), walk.after()), (vec![7], 7));
    let asked: Vec<String> = stub.seen().iter().map(|seen| seen.uri.query().expect("a query").to_owned()).collect();
    assert_eq!(asked, ["after=4&limit=2", "after=6&limit=2", "after=6&limit=2"]);
}

/// Handles them one after the other, the first time until one fails.
async fn handled(walk: &mut EventWalk, fails: Option<i64>) -> Vec<i64> {
    let mut handled = Vec::new();
    for event in walk.pull().await.expect("events") {
        if fails == Some(event.seq) {
            break;
        }
        handled.push(event.seq);
        walk.done(&event).expect("in order");
    }
    handled
}

#[tokio::test]
async fn an_event_whose_handler_failed_comes_again() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 0);
    stub.answers([success(&page(&[1, 2, 3])), success(&page(&[2, 3]))]);
    assert_eq!(handled(&mut walk, Some(2)).await, [1]);
    assert_eq!(walk.after(), 1);
    assert_eq!((handled(&mut walk, None).await, walk.after()), (vec![2, 3], 3));
    let asked: Vec<String> = stub.seen().iter().map(|seen| seen.uri.query().expect("a query").to_owned()).collect();
    assert_eq!(asked, ["after=0&limit=100", "after=1&limit=100"]);
}

#[tokio::test]
async fn events_are_done_in_order_and_each_once() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 4);
    stub.answers([success(&page(&[5, 6]))]);
    let events = walk.pull().await.expect("events");
    assert_eq!(walk.done(&events[1]), Err(NotMoved::OutOfOrder { next: 5, came: 6 }));
    walk.done(&events[0]).expect("the next one");
    assert_eq!(walk.done(&events[0]), Err(NotMoved::OutOfOrder { next: 6, came: 5 }));
    assert_eq!(walk.after(), 5);
    assert_eq!(walk.done(&events[1]), Ok(()));
}

#[tokio::test]
async fn a_cursor_is_kept_with_its_client_id_and_good_for_no_other() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    let cursor = EventWalk::new(client.clone(), 7).cursor();
    let kept = r#"{"client_id":"app_01","after":7}"#;
    assert_eq!(serde_json::to_string(&cursor).expect("JSON"), kept);
    let walk = EventWalk::resume(client.clone(), &serde_json::from_str(kept).expect("a cursor")).expect("its own");
    assert_eq!((walk.after(), walk.cursor()), (7, cursor.clone()));
    let other = EventCursor { client_id: "app_02".to_owned(), ..cursor };
    let refused = EventWalk::resume(client, &other).expect_err("another application's");
    assert!(matches!(&refused, Error::Usage(why) if why.contains("another ClientId")), "{refused}");
}

#[tokio::test]
async fn who_speaks_for_a_sub_account_is_told_that_events_are_the_applications_own() {
    let stub = Stub::start().await;
    let client = stub.client().on_behalf_of("10002").build().expect("a client");
    let refused = EventWalk::new(client, 0).pull().await.expect_err("it has none");
    assert!(matches!(&refused, PullError::Call(Error::Usage(why)) if why.contains("on behalf of nobody")), "{refused}");
    assert!(stub.seen().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_gap_in_an_answer_is_told_with_its_numbers_behind_the_events_before_it() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 0);
    stub.answers([success(&page(&[1, 2, 5, 6])), success(&page(&[5, 6])), success(&page(&[5, 6]))]);
    assert_eq!(pulled(&mut walk).await.expect("what comes before the gap"), [1, 2]);
    let gap = missing(&mut walk).await;
    assert_eq!(gap, Gap { first: 3, last: Some(4), is_forgotten: false });
    assert_eq!(
        (gap.to_string().as_str(), walk.after()),
        ("events of seq 3 to 4 are missing in the server's answer", 2)
    );
    let elsewhere = Gap { first: 9, ..gap };
    assert_eq!(walk.step_over(&elsewhere), Err(NotMoved::OutOfOrder { next: 3, came: 9 }));
    assert_eq!(walk.step_over(&Gap { last: Some(2), ..gap }), Err(NotMoved::OutOfOrder { next: 3, came: 3 }));
    assert_eq!(walk.after(), 2, "another gap is not stepped over");
    walk.step_over(&gap).expect("its end is known");
    assert_eq!(pulled(&mut walk).await.expect("what comes behind the gap"), [5, 6]);
}

#[tokio::test]
async fn events_that_are_no_longer_kept_are_told_with_their_numbers() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 1);
    stub.answers([failure(Code::EventsGone, &gone(8)), failure(Code::EventsGone, "in the words of another version")]);
    assert_eq!(missing(&mut walk).await, Gap { first: 2, last: Some(7), is_forgotten: true });
    let endless = missing(&mut walk).await;
    assert_eq!(endless, Gap { first: 2, last: None, is_forgotten: true });
    let said =
        "events from seq 2 on are not there: the server no longer keeps them, or a restore left their numbers out";
    assert_eq!(endless.to_string(), said);
    let refused = walk.step_over(&endless).expect_err("nobody knows where it ends");
    assert_eq!((refused, walk.after()), (NotMoved::EndlessGap { first: 2 }, 1));
    let said = "the server does not say where the gap that begins with seq 2 ends: ask its operator, and begin a new walk behind it";
    assert_eq!(refused.to_string(), said);
}

#[tokio::test]
async fn an_answer_that_goes_back_and_a_refusal_leave_the_walk_where_it_was() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 3);
    stub.answers([success(&page(&[3, 4])), failure(Code::ServiceUnavailable, "later"), success(&page(&[4]))]);
    assert!(matches!(pulled(&mut walk).await, Err(PullError::Call(Error::Unreadable { .. }))));
    let refused = pulled(&mut walk).await;
    assert!(matches!(refused, Err(PullError::Call(Error::Refused { code: Code::ServiceUnavailable, .. }))));
    assert_eq!(pulled(&mut walk).await.expect("events"), [4]);
}
