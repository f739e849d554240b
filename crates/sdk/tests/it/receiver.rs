//! The example `receiver`: the statuses of its answers, and what it does once.

use std::time::Duration;

use countersign_sdk::protocol::callback::{CallbackBody, callback_nonce};
use countersign_sdk::protocol::code::Code;
use countersign_sdk::{Callback, CallbackVerifier, Error};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::callback::{Request, body};
use crate::stub::{CLIENT_ID, Canned, NOW_MS, SECRET, Stub, failure, success};

#[expect(dead_code, reason = "the example's own main reads the command line")]
#[path = "../../examples/receiver.rs"]
mod example;

/// What is sent for a request, on a connection of its own.
fn wire(request: &Request) -> Vec<u8> {
    let headers: String = request.headers.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect();
    let length = request.body.len();
    let head = format!(
        "POST /callback HTTP/1.1\r\nhost: receiver\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), &request.body].concat()
}

fn receiver(stub: &Stub) -> example::Receiver {
    let verifier = CallbackVerifier::new(CLIENT_ID, SECRET).expect("a secret");
    example::Receiver::new(verifier, stub.client().build().expect("a client"))
}

/// What the server says of the order.
fn order(status: &str, paid: Option<&str>) -> Canned {
    success(&json!({
        "prepayId": "77", "merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "12.5", "status": status, "terminalType": null,
        "createTime": NOW_MS, "expireTime": NOW_MS + 3_600_000, "merchantId": "m", "transactTime": null, "goodsName": null, "channelId": null,
        "actualAmount": paid, "fee": null, "qrContent": null, "location": null
    }))
}

/// A genuine callback that says so.
fn genuine(biz_type: &str, biz_status: &str, data: &str) -> Callback {
    let (biz_type, biz_status, data) = (biz_type.to_owned(), biz_status.to_owned(), data.to_owned());
    let body = CallbackBody { biz_type, biz_status, data, ..body() };
    let request = Request::signed(SECRET, NOW_MS, &callback_nonce(1), body.to_bytes());
    let verifier = CallbackVerifier::new(CLIENT_ID, SECRET).expect("a secret");
    verifier.verify(|name| request.headers.get(name).map(String::as_str), &request.body, NOW_MS).expect("genuine")
}

#[tokio::test]
async fn the_receiver_that_is_shown_answers_503_where_it_cannot_remember_more_and_401_to_what_is_not_genuine() {
    let stub = Stub::start().await;
    stub.answers([order("PENDING", None)]);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    // It asks the wall clock: with this tolerance nothing is too old.
    let verifier = CallbackVerifier::new(CLIENT_ID, SECRET).expect("a secret").tolerance(Duration::MAX).nonces_max(1);
    let receiver = example::Receiver::new(verifier, stub.client().build().expect("a client"));
    tokio::spawn(async move { axum::serve(listener, example::routes(receiver)).await });
    let signed = |secret, nonce| Request::signed(secret, NOW_MS, &callback_nonce(nonce), body().to_bytes());
    for (request, status) in [
        (signed("another-secret", 1), 401),
        (signed(SECRET, 1), 200),
        (signed(SECRET, 1), 401),
        (signed(SECRET, 2), 503),
        (Request::signed(SECRET, NOW_MS, &callback_nonce(3), vec![b' '; 1024 * 1024 + 1]), 413),
    ] {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(&wire(&request)).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert_eq!(stub.seen().len(), 1, "nothing is asked for what is not genuine");
}

#[tokio::test]
async fn an_order_is_delivered_once_when_the_query_says_that_it_is_paid_as_asked_for() {
    let stub = Stub::start().await;
    let receiver = receiver(&stub);
    let says = |biz_status: &'static str| genuine("PAYMENT_ORDER", biz_status, "{}");
    // Emitted by hand: the order is not paid. The true one says the same, and is no repeat of it.
    for (answer, wanted) in [
        (order("PENDING", None), "PENDING, an unknown amount of 12.5 USDT: nothing is delivered"),
        (order("PAID", Some("12.4")), "PAID, 12.4 of 12.5 USDT: nothing is delivered"),
        (order("PAID", None), "PAID, an unknown amount of 12.5 USDT: nothing is delivered"),
        (failure(Code::OrderNotFound, "none"), "nothing is delivered: ORDER_NOT_FOUND (400202): none"),
        (order("PAID", Some("12.50")), "PAID, 12.50 of 12.5 USDT: DELIVER T-1"),
        (order("PAID", Some("12.5")), "PAID, 12.5 of 12.5 USDT: delivered before"),
    ] {
        stub.answers([answer]);
        assert_eq!(receiver.process(&says("SUCCESS")).await.expect("answered"), wanted);
        let asked = stub.seen();
        assert_eq!((asked.len(), asked[0].body.as_ref()), (1, br#"{"prepayId":"77"}"#.as_slice()));
    }
    stub.answers([order("PAID", Some("12.5"))]);
    let again = receiver.process(&genuine("PAY", "PAY_SUCCESS", "")).await.expect("answered");
    assert_eq!(again, "PAID, 12.5 of 12.5 USDT: delivered before", "in the words of the family, without data");
}

/// All codes but the one of an order that is not there: the order may be paid, and a callback that is acknowledged does not come again.
#[tokio::test]
async fn where_the_query_does_not_say_how_the_order_stands_the_callback_is_to_come_again() {
    let event = genuine("PAYMENT_ORDER", "SUCCESS", "{}");
    for code in Code::ALL.iter().copied().filter(|code| *code != Code::OrderNotFound) {
        let stub = Stub::start().await;
        let receiver = receiver(&stub);
        // A timestamp is refused, the time asked for, and refused again.
        stub.answers(std::iter::repeat_n(failure(code, "no"), if code == Code::TimestampOutOfRange { 3 } else { 1 }));
        stub.answers([order("PAID", Some("12.5"))]);
        let error = receiver.process(&event).await.expect_err("it is not known");
        assert_eq!(error.downcast_ref().and_then(Error::code), Some(code));
        assert!(receiver.process(&event).await.expect("answered").ends_with("DELIVER T-1"), "{code:?}");
    }
    let stub = Stub::start().await;
    stub.answers([Canned { status: 404, headers: Vec::new(), body: b"<html>".to_vec() }]);
    receiver(&stub).process(&event).await.expect_err("nothing of this service has answered");
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_given_up_before_the_server_stops_waiting() {
    let stub = Stub::start().await;
    let mut receiver = receiver(&stub);
    assert!(receiver.query_timeout < Duration::from_secs(15), "the server waits no longer");
    // The server may still see to the one that was given up.
    stub.answers(std::iter::repeat_n(order("PAID", Some("12.5")), 2));
    stub.answer_at_all(false);
    let event = genuine("PAYMENT_ORDER", "SUCCESS", "{}");
    let patience = std::mem::replace(&mut receiver.query_timeout, Duration::from_millis(1));
    let error = receiver.process(&event).await.expect_err("nobody answers");
    assert!(format!("{error:#}").starts_with("the query took too long"), "{error:#}");
    receiver.query_timeout = patience;
    stub.answer_at_all(true);
    assert!(receiver.process(&event).await.expect("answered").ends_with("DELIVER T-1"));
}

#[tokio::test]
async fn the_servers_time_is_learned_again_and_again_also_after_a_question_that_failed() {
    let stub = Stub::start().await;
    let time = |ms: i64| success(&json!({"serverTime": ms}));
    stub.answers([time(NOW_MS + 90_000), failure(Code::ServiceUnavailable, "later"), time(NOW_MS + 7)]);
    let client = stub.client().build().expect("a client");
    client.learn_clock().await.expect("told");
    // Somebody has set this machine's clock right: what was learned is wrong now.
    let until_learned = async {
        while client.clock_offset_ms() != 7 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = example::follow_clock(client.clone(), Duration::ZERO) => unreachable!("it has no end"),
        () = until_learned => {}
    }
}

#[tokio::test]
async fn an_event_of_another_kind_is_taken_once_and_other_data_under_the_same_three_is_not_swallowed() {
    let stub = Stub::start().await;
    let receiver = receiver(&stub);
    let take = async |biz_status: &str, data: &str| {
        receiver.process(&genuine("TRANSFER_ADDRESS", biz_status, data)).await.expect("nothing is asked")
    };
    assert_eq!(take("DELAY", r#"{"a":1}"#).await, r#"taken: {"a":1}"#);
    assert_eq!(take("DELAY", r#"{"a":1}"#).await, "taken before");
    let other = r#"taken before with other data, a person has to look: {"a":2} and before {"a":1}"#;
    assert_eq!(take("DELAY", r#"{"a":2}"#).await, other);
    assert_eq!(take("DONE", r#"{"a":2}"#).await, r#"taken: {"a":2}"#);
    let test = receiver.process(&genuine("CALLBACK_TEST", "TEST", "{}")).await.expect("nothing is asked");
    assert_eq!((test.as_str(), stub.seen().len()), ("a test", 0));
}
