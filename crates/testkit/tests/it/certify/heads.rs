//! What `certify` and `listen` send is what the server sends, to the letter: a receiver that takes the one takes the other.

use std::process::Stdio;
use std::time::Duration;

use countersign_testkit::receiver::{Received, Receiver, Reply};
use countersign_testkit::world::World;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::bounds::{answer, head_of};
use super::*;

const WITHIN: Duration = Duration::from_secs(30);

/// Line by line, without what is another each time.
fn head(request: &Received) -> Vec<String> {
    let text = String::from_utf8(request.head.clone()).expect("ASCII");
    let changes = ["signature", "timestamp", "nonce", "event-id", "content-length"];
    let line = |line: &str| match line.split_once(": ") {
        Some((name, _)) if changes.iter().any(|end| name.to_ascii_lowercase().ends_with(end)) => format!("{name}: ..."),
        _ => line.to_owned(),
    };
    text.split("\r\n").map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_head_of_a_callback_is_the_server_s_whoever_sends_it() {
    let world = World::start().await.expect("starts");
    let receiver = Receiver::start().await.expect("starts");
    let url = format!("http://{}/callback", receiver.address());
    let shop = json!({"name": "shop", "merchant_id": "shop"});
    world.access.provision("POST", "/merchants", shop).await.expect("is made");
    let till = json!({"name": "till", "callback_url": url});
    let made = world.access.provision("POST", "/merchants/shop/applications", till).await.expect("is made");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    let event = json!({"client_id": text("client_id"), "bizType": "PAYMENT_ORDER", "bizId": "order-1",
        "bizStatus": "SUCCESS", "data": {}});
    world.access.provision("POST", "/events", event).await.expect("is written");
    let server = head(&receiver.wait_for(1, WITHIN).await.expect("comes")[0]);
    assert_eq!(server[0], "POST /callback HTTP/1.1");
    for wanted in ["X-Service-Signature: ...", "X-Service-Sequence: 1", "User-Agent: Countersign"] {
        assert!(server.iter().any(|line| line == wanted), "{wanted}: {server:?}");
    }

    certify(receiver.address(), &[]).await;
    let received = receiver.received();
    assert_eq!(head(&received[1]), server, "the good one");
    let in_pieces = received.iter().filter(|request| (2 * 1024..8 * 1024).contains(&request.body.len()));
    let in_pieces: Vec<_> = in_pieces.map(head).collect();
    assert_eq!(in_pieces, [server.clone(), server.clone()], "the one that is cut within letters, and the slow one");
    let lower: Vec<&Received> =
        received.iter().filter(|one| one.head.windows(10).any(|at| at == b"x-service-")).collect();
    let [lower] = lower[..] else { panic!("one has its names in lower case") };
    let names = |lines: &[String]| lines.iter().map(|line| line.to_ascii_lowercase()).collect::<Vec<_>>();
    assert_eq!(names(&head(lower)), names(&server), "and is the same but for that");

    let so_far = received.len();
    let mut listener = bare()
        .args(["listen", "--after", "0", "--forward", &url, "--url", &format!("http://{}", world.listen())])
        .env("COUNTERSIGN_CLIENT_ID", text("client_id"))
        .env("COUNTERSIGN_SECRET", text("payment_api_secret"))
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    let received = receiver.wait_for(so_far + 1, WITHIN).await;
    listener.kill().expect("runs");
    listener.wait().expect("ends");
    let without_sequence: Vec<String> = server.into_iter().filter(|line| line != "X-Service-Sequence: 1").collect();
    assert_eq!(head(&received.expect("comes")[so_far]), without_sequence);
}

/// A receiver that knows names of headers in one spelling alone.
async fn receive(mut stream: TcpStream, verifier: &CallbackVerifier, prefix: &str) -> Option<()> {
    let head = head_of(&mut stream).await?;
    let lines: Vec<(&str, &str)> = head.lines().filter_map(|line| line.split_once(": ")).collect();
    let header = |name: &str| lines.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let length = header("content-length").and_then(|length| length.parse::<usize>().ok());
    let Some(length) = length.filter(|length| *length < 1024 * 1024) else {
        return answer(&mut stream, "413 Content Too Large", b"").await;
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let ours = |name: &str| lines.iter().find(|(n, _)| n.starts_with(prefix) && n.eq_ignore_ascii_case(name));
    if header("user-agent") != Some("Countersign") {
        return answer(&mut stream, "403 Forbidden", b"").await;
    }
    match verifier.verify_now(|name| ours(name).map(|(_, value)| *value), &body) {
        Ok(_) => answer(&mut stream, "200 OK", &callback::processed()).await,
        Err(refused) => answer(&mut stream, "401 Unauthorized", &callback::failed(&refused.to_string())).await,
    }
}

async fn found_of(prefix: &'static str) -> (Vec<(String, String)>, Option<i32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("has one");
    let accepting = tokio::spawn(async move {
        let verifier = Arc::new(verifier());
        loop {
            let (stream, _) = listener.accept().await.expect("comes");
            let verifier = Arc::clone(&verifier);
            tokio::spawn(async move { receive(stream, &verifier, prefix).await });
        }
    });
    let found = found_at(address).await;
    accepting.abort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_knows_one_spelling_of_names_is_judged_by_the_server_s_and_advised() {
    assert_eq!(found_of("X-Service-").await, (vec![pair("lower-case", "advice")], Some(0)));
    let (found, code) = found_of("x-service-").await;
    assert_eq!((&found[0], found.len(), code), (&pair("good", "fail"), 27, Some(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_server_cannot_read_is_read_by_nobody() {
    let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 24\r\n\r\n", "a".repeat(40_000));
    for (reply, wanted) in [
        (
            Reply::Body(b"{\"returnCode\":\"SUCCESS\",\"returnMessage\":\"re\xe7u\"}".to_vec()),
            "not taken: status 200, and the answer is not UTF-8",
        ),
        (
            Reply::Raw([head.as_bytes(), br#"{"returnCode":"SUCCESS"}"#].concat()),
            "not taken: the head of the answer is too large",
        ),
        (Reply::Padded(70_000), "not taken: status 200, and the answer is larger than 64 KiB"),
        (Reply::Garbage, "not tried: the answer is not HTTP\n"),
        (Reply::Raw(vec![0x15, 3, 1, 0, 2, 2, 70]), "not tried: the answer is not HTTP but TLS: say https://\n"),
    ] {
        let receiver = Receiver::start().await.expect("starts");
        receiver.answer_with(reply);
        let output = certify(receiver.address(), &[]).await;
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).expect("a text")).concat();
        assert!(said.contains(wanted), "{wanted}: {said}");
        assert_eq!(output.status.code(), Some(1));
    }
}
