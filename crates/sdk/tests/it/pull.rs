//! Events page after page: in order, without a gap, and whoever misses some is told which.

use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::events::gone;
use countersign_sdk::{Error, EventWalk, Gap, PullError};
use serde_json::{Value, json};

use crate::stub::{Stub, failure, success};

fn page(seqs: &[i64]) -> Value {
    let event = |seq: &i64| {
        json!({"seq": seq, "event_id": format!("evt_{seq}"), "bizType": "T", "bizId": "b", "bizStatus": "S", "client_id": "app_01",
            "data": "{}", "created_at": "2026-01-01T00:00:00.000Z"})
    };
    json!({"events": seqs.iter().map(event).collect::<Vec<_>>(), "next": seqs.last().copied().unwrap_or(0)})
}

async fn pulled(walk: &mut EventWalk) -> Result<Vec<i64>, PullError> {
    walk.pull().await.map(|events| events.iter().map(|event| event.seq).collect())
}

async fn missing(walk: &mut EventWalk) -> Gap {
    match pulled(walk).await {
        Err(PullError::Missing(gap)) => gap,
        other => panic!("nothing is missing: {other:?}"),
    }
}

#[tokio::test]
async fn a_walk_asks_behind_the_last_event_that_it_handed_out() {
    let stub = Stub::start().await;
    let mut walk = EventWalk::new(stub.client().build().expect("a client"), 4).limit(2);
    stub.answers([success(&page(&[5, 6])), success(&page(&[])), success(&page(&[7]))]);
    assert_eq!(pulled(&mut walk).await.expect("events"), [5, 6]);
    assert_eq!(pulled(&mut walk).await.expect("nothing new"), [] as [i64; 0]);
    assert_eq!((pulled(&mut walk).await.expect("events"), walk.after()), (vec![7], 7));
    let asked: Vec<String> = stub.seen().iter().map(|seen| seen.uri.query().expect("a query").to_owned()).collect();
    assert_eq!(asked, ["after=4&limit=2", "after=6&limit=2", "after=6&limit=2"]);
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
    assert!(!walk.step_over(&elsewhere) && walk.after() == 2, "another gap is not stepped over");
    assert!(walk.step_over(&gap));
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
    assert!(!walk.step_over(&endless) && walk.after() == 1);
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
