//! Receivers that give no answer, some of them to nobody, and some to bad callbacks alone: neither is a refusal.

use std::time::Duration;

use countersign_testkit::receiver::{Receiver, Reply};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::*;

/// It looks at each callback that has a signature, and for ever at one that has none.
async fn hang(State(verifier): State<Arc<CallbackVerifier>>, headers: HeaderMap, body: Bytes) -> Response {
    if !headers.contains_key("x-service-signature") {
        std::future::pending::<()>().await;
    }
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match verifier.verify_now(header, &body) {
        Ok(_) => (StatusCode::OK, callback::processed()).into_response(),
        Err(refused) => (StatusCode::UNAUTHORIZED, callback::failed(&refused.to_string())).into_response(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_on_a_forgery_has_not_refused_it() {
    let state = Arc::new(verifier());
    let address = listens(Router::new().route("/callback", post(hang)).with_state(state)).await;
    let output = certify(address, &["--timeout", "5"]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let at = lines.iter().position(|line| line.trim_start().starts_with("FAIL")).expect("one fails");
    assert!(lines[at].contains("no-signature") && lines[at].contains("the deadline of 5s passed"), "{said}");
    assert!(lines[at + 2].contains("Why it matters: a verifier refuses at once"), "{said}");
    assert!(said.ends_with("26 of 27 checks passed, 1 failed.\n"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_never_answers_is_asked_once_and_for_as_long_as_is_said() {
    let receiver = Receiver::start().await.expect("starts");
    receiver.answer_with(Reply::Hang);
    let output = certify(receiver.address(), &["--timeout", "1"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let wanted = "countersign: the receiver gave no answer to a good callback, and the other 26 checks were not tried: \
                  the deadline of 1s passed while ";
    // What it was about then goes by how soon this process took its connection.
    assert!(said.starts_with(wanted) && said.ends_with('\n') && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(receiver.wait_for(1, Duration::from_secs(60)).await.expect("it was sent").len(), 1);
    let (found, code) = found_with(receiver.address(), &["--json", "--timeout", "1"]).await;
    assert_eq!((&found[0], found.len(), code), (&pair("good", "fail"), 27, Some(1)));
    assert!(found[1..].iter().all(|(_, verdict)| verdict == "untold"), "{found:?}");
}

/// Its queue is full: who knocks gets no word, as at a wall that drops what comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_cannot_be_connected_to_was_not_reached() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let listener = socket.listen(1).expect("listens");
    let address = listener.local_addr().expect("has one");
    let mut waiting = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        waiting.push(connected.expect("waits in the queue"));
    }
    let (found, code) = found_at(address).await;
    assert_eq!((found.len(), code), (27, Some(1)));
    assert!(found.iter().all(|(_, verdict)| verdict == "untold"), "{found:?}");
    let output = certify(address, &[]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with(&format!("{address}: connecting took too long\n")), "{said}");
}
