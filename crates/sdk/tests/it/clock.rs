use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use countersign_sdk::Error;
use countersign_sdk::protocol::code::Code;
use serde_json::{Value, json};

use crate::stub::{Canned, NOW_MS, SECRET, Stub, failure, success};

fn refused() -> Canned {
    failure(Code::TimestampOutOfRange, "the timestamp is 90000 ms behind")
}

fn time(ms: i64) -> Canned {
    success(&json!({"serverTime": ms}))
}

fn done() -> Canned {
    success(&json!({"done": true}))
}

#[tokio::test]
async fn a_refused_timestamp_is_put_right_by_the_servers_time_and_the_call_repeated_once() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    stub.answers([refused(), time(NOW_MS + 90_000), done(), done()]);
    client.call("POST", "/x", b"{}").await.expect("an answer").data::<Value>().expect("done");
    client.clone().call("POST", "/x", b"{}").await.expect("an answer").data::<Value>().expect("done");

    assert_eq!((client.clock_offset_ms(), client.server_now_ms()), (90_000, NOW_MS + 90_000));
    let seen = stub.seen();
    let paths: Vec<_> = seen.iter().map(|s| s.uri.path()).collect();
    assert_eq!(paths, ["/x", "/v1/time", "/x", "/x"]);
    let stamps: Vec<_> = seen.iter().map(|s| s.header("x-service-timestamp")).collect();
    assert_eq!(stamps, [Some("1767225600000"), None, Some("1767225690000"), Some("1767225690000")]);
    assert!(
        seen.iter().filter(|s| s.uri.path() == "/x").all(|s| s.is_signed_with(SECRET, "X-Service-") && s.body == "{}")
    );
    assert_ne!(seen[0].header("x-service-nonce"), seen[2].header("x-service-nonce"));
}

#[tokio::test]
async fn who_asks_for_the_time_goes_by_it_before_the_first_call() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    stub.answers([time(NOW_MS + 90_000), time(0), failure(Code::ServiceUnavailable, "later")]);
    let clone = client.clone();
    assert_eq!(client.learn_clock().await.expect("told"), 90_000);
    assert!(
        matches!(client.learn_clock().await, Err(Error::Unreadable { http_status: 200, why, .. }) if why.contains("is no time"))
    );
    client.learn_clock().await.expect_err("not told");
    assert_eq!((clone.clock_offset_ms(), clone.server_now_ms()), (90_000, NOW_MS + 90_000));
}

#[tokio::test]
async fn a_call_is_repeated_no_more_than_once() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    stub.answers([refused(), time(NOW_MS + 1), refused(), done()]);
    let answer = client.call("GET", "/x", b"").await.expect("an answer");
    assert_eq!(answer.data::<Value>().expect_err("refused").code(), Some(Code::TimestampOutOfRange));
    assert_eq!(stub.seen().len(), 3);
}

#[tokio::test]
async fn the_date_of_the_refusal_must_do_where_the_time_cannot_be_asked() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    let not_there = failure(Code::NotFound, "no such path");
    stub.answers([refused().with("date", "Wed, 31 Dec 2025 23:00:00 GMT"), not_there, done()]);
    client.call("GET", "/x", b"").await.expect("an answer").data::<Value>().expect("done");
    assert_eq!(client.clock_offset_ms(), -3_600_000 + 500, "the middle of the second that a date names");
    assert_eq!(stub.seen()[2].header("x-service-timestamp"), Some("1767222000500"));
}

/// The first and the last time of 13 digits.
const FIRST_MS: i64 = 1_000_000_000_000;
const LAST_MS: i64 = 9_999_999_999_999;

/// The question took a minute, as where it ran into a generous time-out.
#[tokio::test]
async fn the_date_is_of_when_the_refusal_came_however_long_the_time_is_asked_for() {
    let stub = Stub::start().await;
    // Read for the first stamp, for the refusal, before and after the question, and for the second stamp.
    let reads = AtomicI64::new(0);
    let now = move || if reads.fetch_add(1, Ordering::Relaxed) < 3 { NOW_MS } else { NOW_MS + 60_000 };
    let client = stub.client().clock(now).build().expect("a client");
    let not_there = failure(Code::NotFound, "no such path");
    stub.answers([refused().with("date", "Wed, 31 Dec 2025 23:00:00 GMT"), not_there, done()]);
    client.call("GET", "/x", b"").await.expect("an answer").data::<Value>().expect("done");
    assert_eq!(client.clock_offset_ms(), -3_600_000 + 500);
}

#[tokio::test]
async fn a_time_that_no_timestamp_can_say_is_not_learned() {
    for absurd in [i64::MIN, -NOW_MS, 0, FIRST_MS - 1, LAST_MS + 1, i64::MAX] {
        let stub = Stub::start().await;
        let client = stub.client().build().expect("a client");
        // Its date is as absurd.
        let refused = refused().with("date", "Fri, 31 Dec 9999 23:59:59 GMT");
        stub.answers([refused, time(absurd), done()]);
        let answer = client.call("GET", "/x", b"").await.expect("an answer");
        assert_eq!((answer.code(), client.clock_offset_ms()), (Some(Code::TimestampOutOfRange), 0), "{absurd}");
        client.clone().call("GET", "/x", b"").await.expect("an answer").data::<Value>().expect("done");
        let stamps: Vec<_> = stub.seen().iter().map(|s| s.header("x-service-timestamp").map(str::to_owned)).collect();
        assert_eq!(stamps, [Some(NOW_MS.to_string()), None, Some(NOW_MS.to_string())], "{absurd}");
    }
    for far in [FIRST_MS, LAST_MS] {
        let stub = Stub::start().await;
        let client = stub.client().build().expect("a client");
        stub.answers([refused(), time(far), done()]);
        client.call("GET", "/x", b"").await.expect("an answer").data::<Value>().expect("done");
        assert_eq!(client.clock_offset_ms(), far - NOW_MS);
    }
}

#[tokio::test]
async fn where_the_time_that_was_told_is_absurd_the_date_of_the_refusal_must_do() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    stub.answers([refused().with("date", "Wed, 31 Dec 2025 23:00:00 GMT"), time(i64::MAX), done()]);
    client.call("GET", "/x", b"").await.expect("an answer").data::<Value>().expect("done");
    assert_eq!(client.clock_offset_ms(), -3_600_000 + 500);
}

#[tokio::test]
async fn a_stamp_that_is_none_is_put_right_like_one_that_is_out_of_range() {
    let stub = Stub::start().await;
    let clock = Arc::new(AtomicI64::new(0)); // A machine whose clock begins with 1970 at each start.
    let shown = clock.clone();
    let client = stub.client().clock(move || shown.load(Ordering::Relaxed)).build().expect("a client");
    let malformed = || failure(Code::InvalidParameter, "header X-Service-Timestamp: must be exactly 13 digits");
    stub.answers([malformed(), time(LAST_MS), done()]);
    client.call("POST", "/x", b"{}").await.expect("an answer").data::<Value>().expect("done");
    // What was learned was right in its form, and has 14 digits a moment later.
    clock.store(1, Ordering::Relaxed);
    stub.answers([malformed(), time(NOW_MS), done()]);
    client.call("POST", "/x", b"{}").await.expect("an answer").data::<Value>().expect("done");

    let stamps: Vec<_> = stub.seen().iter().filter_map(|s| Some(s.header("x-service-timestamp")?.to_owned())).collect();
    assert_eq!(stamps, ["0", "9999999999999", "10000000000000", "1767225600000"]);
}

#[tokio::test]
async fn other_refusals_are_not_repeated() {
    for code in [
        Code::InvalidParameter,
        Code::InvalidSignature,
        Code::NonceReused,
        Code::RateLimited,
        Code::ServiceUnavailable,
        Code::InternalError,
    ] {
        let stub = Stub::start().await;
        let client = stub.client().build().expect("a client");
        stub.answers([failure(code, "no"), done()]);
        let refused = client.call("POST", "/x", b"{}").await.expect("an answer").data::<Value>();
        assert!(matches!(refused, Err(Error::Refused { code: got, .. }) if got == code));
        assert_eq!((stub.seen().len(), client.clock_offset_ms()), (1, 0));
    }
}
