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

    assert_eq!(client.clock_offset_ms(), 90_000);
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

#[tokio::test]
async fn other_refusals_are_not_repeated() {
    for code in
        [Code::InvalidSignature, Code::NonceReused, Code::RateLimited, Code::ServiceUnavailable, Code::InternalError]
    {
        let stub = Stub::start().await;
        let client = stub.client().build().expect("a client");
        stub.answers([failure(code, "no"), done()]);
        let refused = client.call("POST", "/x", b"{}").await.expect("an answer").data::<Value>();
        assert!(matches!(refused, Err(Error::Refused { code: got, .. }) if got == code));
        assert_eq!((stub.seen().len(), client.clock_offset_ms()), (1, 0));
    }
}
