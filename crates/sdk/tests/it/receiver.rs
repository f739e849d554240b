//! The example `receiver`, by the statuses of its answers.

use countersign_sdk::CallbackVerifier;
use countersign_sdk::protocol::callback::callback_nonce;
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
