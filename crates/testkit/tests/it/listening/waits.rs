//! What it says while a server has no events for it, and how long it leaves it alone.

use axum::Router;
use axum::http::StatusCode;
use countersign_protocol::code::Code;
use countersign_protocol::envelope;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_busy_is_asked_when_he_wants_it_and_what_he_says_moves_nothing_on_the_terminal() {
    const LATER_S: u64 = 3;
    let (asked, mut questions) = mpsc::unbounded_channel();
    let busy = move || {
        let _ = asked.send(Instant::now());
        let said = envelope::failure(Code::ServiceUnavailable, "no\nevents \u{1b}[2J");
        async move { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", LATER_S.to_string())], said) }
    };
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = server.local_addr().expect("has one");
    tokio::spawn(async move { axum::serve(server, Router::new().fallback(busy)).await });
    let mut command = bare();
    command
        .args(["listen", "--after", "0", "--forward", "http://127.0.0.1:9/callback"])
        .args(["--url", &format!("http://{address}")])
        .env("COUNTERSIGN_CLIENT_ID", "app_1")
        .env("COUNTERSIGN_SECRET", "sk_1");
    let mut listener = Listener::of(&mut command);
    let mut question = async || timeout(WITHIN, questions.recv()).await.expect("comes in time").expect("comes");
    let (first, second) = (question().await, question().await);
    assert!(second - first >= Duration::from_secs(LATER_S), "{:?}", second - first);
    let lines = tokio::task::block_in_place(|| [listener.line(), listener.line()]);
    assert!(lines[0].contains("bringing events after seq 0 to "), "{lines:?}");
    assert!(lines[1].contains(": no\u{fffd}events \u{fffd}[2J; asking again\n"), "{lines:?}");
}
