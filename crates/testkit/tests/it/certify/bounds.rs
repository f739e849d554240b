//! Receivers with a bound, by hand and to the byte: however one stops at a huge body, `certify` calls it good, and one that reads to the
//! end it tells what to do instead.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;

/// What no callback has.
const BOUND: usize = 1024 * 1024;

/// How it stops.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// It answers, and keeps the connection without reading on.
    Answers,
    /// It answers and closes, with all the rest unread.
    AnswersAndCloses,
    /// It answers, and throws away what comes until the other side is done, as some proxies do.
    AnswersAndDrains,
    /// It closes without a word.
    Closes,
}

/// When it stops.
#[derive(Clone, Copy, Debug)]
enum When {
    /// When it has read the head.
    AtTheHead,
    /// When it has read as much as its bound.
    AtTheBound,
}

/// As it came.
pub(super) async fn head_of(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn head(stream: &mut TcpStream) -> Option<(HeaderMap, usize)> {
    let head = head_of(stream).await?;
    let mut headers = HeaderMap::new();
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        headers.insert(name.parse::<axum::http::HeaderName>().ok()?, value.parse().ok()?);
    }
    // In chunks nothing good comes here.
    let length = headers.get("content-length").map_or(Some(usize::MAX), |length| length.to_str().ok()?.parse().ok())?;
    Some((headers, length))
}

pub(super) async fn answer(stream: &mut TcpStream, status: &str, body: &[u8]) -> Option<()> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await.ok()
}

/// One request. The connection, where it is to be kept.
async fn receive(mut stream: TcpStream, verifier: &CallbackVerifier, when: When, stop: Stop) -> Option<TcpStream> {
    let (headers, length) = head(&mut stream).await?;
    if length <= BOUND {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (status, said) = match verifier.verify_now(header, &body) {
            Ok(_) => ("200 OK", callback::processed()),
            Err(refused) => ("401 Unauthorized", callback::failed(&refused.to_string())),
        };
        answer(&mut stream, status, &said).await?;
        return None;
    }
    match when {
        When::AtTheHead => {}
        When::AtTheBound => drop(stream.read_exact(&mut vec![0; BOUND]).await.ok()?),
    }
    match stop {
        Stop::Answers => {
            answer(&mut stream, "413 Content Too Large", b"").await?;
            Some(stream)
        }
        Stop::AnswersAndCloses => {
            answer(&mut stream, "413 Content Too Large", b"").await?;
            None
        }
        Stop::AnswersAndDrains => {
            answer(&mut stream, "413 Content Too Large", b"").await?;
            copy(&mut stream, &mut sink()).await.ok()?;
            None
        }
        Stop::Closes => None,
    }
}

async fn found_of(when: When, stop: Stop) -> (When, Stop, Vec<(String, String)>, Option<i32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("has one");
    let accepting = tokio::spawn(async move {
        let verifier = Arc::new(verifier());
        loop {
            let (stream, _) = listener.accept().await.expect("comes");
            let verifier = Arc::clone(&verifier);
            tokio::spawn(async move {
                if let Some(kept) = receive(stream, &verifier, when, stop).await {
                    std::future::pending::<()>().await;
                    drop(kept);
                }
            });
        }
    });
    let (found, code) = found_at(address).await;
    accepting.abort();
    (when, stop, found, code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_stops_at_a_huge_body_passes_however_it_does_so() {
    let mut all = JoinSet::new();
    for when in [When::AtTheHead, When::AtTheBound] {
        for stop in [Stop::Answers, Stop::AnswersAndCloses, Stop::AnswersAndDrains, Stop::Closes] {
            all.spawn(found_of(when, stop));
        }
    }
    for (when, stop, found, code) in all.join_all().await {
        assert_eq!((found, code), (vec![], Some(0)), "{when:?} {stop:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_reads_to_the_end_is_told_what_to_do_instead() {
    let verifier = example::verifier(CLIENT_ID, Some(SECRET.to_owned()), None).expect("has a secret");
    let routes = example::unbounded(receiver(verifier).await).layer(axum::extract::DefaultBodyLimit::disable());
    let output = certify(listens(routes).await, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find(|line| line.trim_start().starts_with("advice  huge")).expect("is named");
    let (stated, chunks) = line.split_once("; in chunks: ").expect("both are told");
    for form in [stated, chunks] {
        assert!(form.contains("not taken: status 401") && form.contains("when all 16 MiB had been sent"), "{line}");
    }
    assert!(chunks.contains("; the good one after it taken: SUCCESS"), "{line}");
    assert!(said.contains("Read up to a bound such as 1 MiB"), "{said}");
    assert!(said.ends_with("26 of 27 checks passed, 1 could be better.\n"), "{said}");
    assert_eq!(output.status.code(), Some(0));
}
