//! Requests that are wrong below the protocol: each is told what is wrong, and hears it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use countersign_protocol::code::Code;
use countersign_testkit::wire::{Answer, Connection, once};
use countersign_testkit::world::World;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

fn sentence(answer: &Answer) -> String {
    let json = answer.json();
    json["errorMessage"].as_str().or(json["detail"].as_str()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_host_that_is_none_is_told_by_name_on_both_listeners() {
    let world = World::start().await.expect("a world starts");
    for (address, path) in [(world.listen(), "/v1/time"), (world.access.address, "/healthz")] {
        for (version, host, fits) in [
            ("1.1", "", true),
            ("1.1", "Host:\r\n", true),
            ("1.1", "Host: a b/@\r\n", false),
            ("1.1", "Host: a, b\r\n", false),
            ("1.1", "Host: a\r\nHost: a\r\n", false),
            ("1.1", "Host: a.example:8080\r\n", true),
            ("1.1", "Host: [::1]:8080\r\n", true),
            ("1.0", "", true),
            ("1.0", "Host: a b\r\n", false),
        ] {
            let request = format!("GET {path} HTTP/{version}\r\n{host}\r\n");
            let mut connection = Connection::open(address).await.expect("connects");
            let answer = connection.send(request.as_bytes()).await.expect("an answer");
            assert_eq!(answer.status == 200, fits, "{version} {host:?}: {}", answer.head);
            if !fits {
                assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some(Code::InvalidParameter.code())));
                assert!(sentence(&answer).contains("header Host"), "{}", sentence(&answer));
                assert_eq!(answer.header("connection"), Some("close"));
                assert!(connection.send(request.as_bytes()).await.is_err(), "it is closed");
            }
        }
    }
}

#[tokio::test]
async fn a_body_of_five_megabytes_gets_its_413_on_both_listeners() {
    const LENGTH: usize = 5 * 1024 * 1024;
    let world = World::start().await.expect("a world starts");
    let token = world.access.draft("POST", "/operator/v1/merchants", None);
    let token = token.headers.iter().find(|(name, _)| name == "Authorization").expect("a token").1.clone();
    for (address, path) in [(world.listen(), "/v1/pay/order/query"), (world.access.address, "/operator/v1/merchants")] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Type: application/json\r\nContent-Length: {LENGTH}\r\n\r\n"
        );
        let answer = sent(address, &head, LENGTH).await;
        assert_eq!(answer.status, 413, "{}", answer.head);
        assert_eq!(answer.header("connection"), Some("close"));
    }
}

/// The answer to a head and so many blanks, all of which are to be taken. Who is refused has a second for the rest: whoever took longer asks anew.
async fn sent(address: SocketAddr, head: &str, blanks: usize) -> Answer {
    const REST: Duration = Duration::from_secs(1);
    let mut tried = 0;
    loop {
        let began = Instant::now();
        let asked = async {
            let mut connection = Connection::open(address).await?;
            connection.write(head.as_bytes()).await?;
            connection.write(&vec![b' '; blanks]).await?;
            connection.read().await
        };
        match asked.await {
            Ok(answer) => return answer,
            Err(error) => assert!(began.elapsed() >= REST && tried < 20, "not all of it is taken: {error}"),
        }
        tried += 1;
    }
}

#[tokio::test]
async fn chunks_that_cannot_be_read_are_told_from_a_body_that_broke_off() {
    let world = World::start().await.expect("a world starts");
    let head = "POST /v1/pay/order/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n";
    for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "1\r\n{}\r\n0\r\n\r\n", "2\r\n{}\n0\r\n\r\n"] {
        let answer = once(world.listen(), format!("{head}{chunks}").as_bytes()).await.expect("an answer");
        assert_eq!(answer.code(), Code::InvalidParameter.code());
        assert!(sentence(&answer).starts_with("body: has chunks that cannot be read"), "{}", sentence(&answer));
        assert_eq!(answer.header("connection"), Some("close"), "{}", answer.head);
    }
    let mut peer = TcpStream::connect(world.listen()).await.expect("connects");
    tokio::io::AsyncWriteExt::write_all(&mut peer, format!("{head}2\r\n{{").as_bytes()).await.expect("is sent");
    tokio::io::AsyncWriteExt::shutdown(&mut peer).await.expect("is ended");
    let mut said = String::new();
    peer.read_to_string(&mut said).await.expect("it ends");
    assert!(said.is_empty() || said.contains("body: broke off"), "{said}");
}

#[tokio::test]
async fn what_is_nearly_right_is_told_by_what_is_wrong() {
    let world = World::start().await.expect("a world starts");
    let signer = world.access.institution("bank", 0, None).await.expect("provisioned");
    for (body, said) in [
        ("\u{feff}{}", "body: begins with a byte order mark"),
        (r#"{"":1,"":2}"#, "body: the field with the empty name \"\" must be given once"),
    ] {
        let answer = world.send(&world.draft(&signer, "POST", "/v1/pay/order/query", body)).await.expect("an answer");
        assert_eq!(answer.code(), Code::InvalidParameter.code());
        assert!(sentence(&answer).starts_with(said), "{}", sentence(&answer));
    }
    let untyped = world.draft(&signer, "POST", "/v1/pay/order/query", "{}").without("Content-Type");
    let answer = world.send(&untyped).await.expect("an answer");
    assert_eq!((answer.status, sentence(&answer).contains("Content-Type: is missing")), (415, true));
    for (path, said) in [
        ("/v1/time/", "but /v1/time is one"),
        ("/V1/Time", "but /v1/time is one"),
        ("/v1/nothing", "the section Operations of the protocol lists them"),
    ] {
        let answer = world.send(&world.draft(&signer, "GET", path, "")).await.expect("an answer");
        assert_eq!((answer.status, sentence(&answer).contains(said)), (404, true), "{}", sentence(&answer));
    }
}

#[tokio::test]
async fn a_head_is_counted_to_its_last_byte() {
    let world = World::start().await.expect("a world starts");
    for (length, status) in [(32 * 1024, 200), (32 * 1024 + 1, 431)] {
        let begin = "GET /v1/time HTTP/1.1\r\nHost: x\r\nX-Long: ";
        let long = "a".repeat(length - begin.len() - 4);
        let request = format!("{begin}{long}\r\n\r\n");
        assert_eq!(request.len(), length);
        assert_eq!(once(world.listen(), request.as_bytes()).await.expect("an answer").status, status);
    }
}
