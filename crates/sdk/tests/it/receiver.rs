//! The example `receiver`: the statuses of its answers, and what it does once.

use countersign_sdk::CallbackVerifier;
use countersign_sdk::protocol::callback::{CallbackBody, callback_nonce};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::callback::{Request, body};
use crate::stub::{NOW_MS, SECRET};

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

#[tokio::test]
async fn the_receiver_that_is_shown_answers_503_where_it_cannot_remember_more_and_401_to_what_is_not_genuine() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    // It asks the wall clock: with this tolerance nothing is too old.
    let verifier = CallbackVerifier::new(SECRET).expect("a secret").tolerance_ms(i64::MAX).nonces_max(1);
    tokio::spawn(async move { axum::serve(listener, example::routes(verifier)).await });
    let signed = |secret, nonce| Request::signed(secret, NOW_MS, &callback_nonce(nonce), body().to_bytes());
    for (request, status) in [
        (signed("another-secret", 1), 401),
        (signed(SECRET, 1), 200),
        (signed(SECRET, 1), 401),
        (signed(SECRET, 2), 503),
    ] {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(&wire(&request)).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn the_receiver_that_is_shown_goes_by_what_is_signed_and_not_by_the_event_id() {
    let receiver = example::Receiver::new(CallbackVerifier::new(SECRET).expect("a secret"));
    let verifier = CallbackVerifier::new(SECRET).expect("a secret");
    let mut nonces = 0..;
    let mut is_first = |event_id: &str, change: fn(&mut CallbackBody)| {
        let mut body = body();
        change(&mut body);
        let nonce = callback_nonce(nonces.next().expect("endless"));
        let mut request = Request::signed(SECRET, NOW_MS, &nonce, body.to_bytes());
        request.headers.insert("x-service-event-id".to_owned(), event_id.to_owned());
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        receiver.is_first(&verifier.verify(header, &request.body, NOW_MS).expect("genuine"))
    };
    assert!(is_first("evt_1", |_| ()));
    assert!(!is_first("evt_1", |_| ()), "another attempt");
    assert!(!is_first("evt_2", |_| ()), "captured and renamed, or told of again after a restore");
    assert!(is_first("evt_1", |body| body.biz_status = "CLOSED".to_owned()), "other news under an id that was seen");
    assert!(is_first("evt_1", |body| body.biz_id = "78".to_owned()));
    assert!(is_first("evt_1", |body| body.biz_type = "TRANSFER_ADDRESS".to_owned()));
    assert!(!is_first("evt_3", |body| body.biz_status = "CLOSED".to_owned()));
}
