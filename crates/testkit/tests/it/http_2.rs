//! What only frames show: HTTP/2 without TLS, by hand.

use std::net::SocketAddr;
use std::time::Duration;

use countersign_testkit::patience::until;
use countersign_testkit::wire::{Draft, once};
use countersign_testkit::world::World;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::journey_rule_upgrade::{UPGRADE, bank, call, date};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW: u8 = 8;
/// Of both kinds: nothing follows on this stream. Of headers: they are whole.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const SOON: Duration = Duration::from_secs(20);

fn frame(kind: u8, flags: u8, stream: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], content].concat()
}

/// Preface and settings.
fn begin(settings: &[u8]) -> Vec<u8> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(SETTINGS, 0, 0, settings)].concat()
}

/// A request without a body.
fn asked(stream: u8, method: &str, path: &str) -> Vec<u8> {
    let text = |name: u8, text: &str| [&[name, u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    // :method, :scheme http, :authority, :path; names of the static table, values as they are.
    let head = [text(2, method), vec![0x86], text(1, "localhost"), text(4, path)].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)
}

/// The next frame of a stream: kind, flags, content.
async fn next_on(peer: &mut TcpStream, stream: u8) -> (u8, u8, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        peer.read_exact(&mut head).await.expect("a frame");
        let mut content = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        peer.read_exact(&mut content).await.expect("all of it");
        if head[8] == stream {
            return (head[3], head[4], content);
        }
    }
}

/// The frames of the answer: kind, flags, bytes.
async fn answer(world: &World, method: &str, path: &str) -> Vec<(u8, u8, usize)> {
    let mut peer = TcpStream::connect(world.listen()).await.expect("connects");
    peer.write_all(&[begin(&[]), asked(1, method, path)].concat()).await.expect("is sent");
    let mut frames = Vec::new();
    while frames.last().is_none_or(|(_, flags, _)| flags & END_STREAM == 0) {
        let (kind, flags, content) = next_on(&mut peer, 1).await;
        frames.push((kind, flags, content.len()));
    }
    frames
}

#[tokio::test]
async fn an_answer_to_head_has_no_content() {
    let world = World::start().await.expect("a world");
    for path in ["/v1/time", "/nowhere"] {
        let frames = timeout(SOON, answer(&world, "HEAD", path)).await.expect("an answer");
        let [(HEADERS, flags, _)] = frames[..] else { panic!("{path}: {frames:?}") };
        assert_eq!(flags & END_STREAM, END_STREAM, "{path}");
        let with_content = timeout(SOON, answer(&world, "PUT", path)).await.expect("an answer");
        assert!(with_content.iter().any(|(kind, _, bytes)| *kind == DATA && *bytes > 0), "{path}: {with_content:?}");
    }
    // Over HTTP/1 its length is said all the same.
    let raw = b"HEAD /v1/time HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut peer = TcpStream::connect(world.listen()).await.expect("connects");
    peer.write_all(raw).await.expect("is sent");
    let mut text = String::new();
    timeout(SOON, peer.read_to_string(&mut text)).await.expect("an end").expect("text");
    let put = once(world.listen(), b"POST /v1/time HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let length = put.expect("an answer").body.len();
    let (head, content) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.to_ascii_lowercase().contains(&format!("content-length: {length}")), "{head}");
    assert_eq!((head.split(' ').nth(1), content), (Some("405"), ""));
}

#[tokio::test]
async fn an_answer_that_nobody_reads_keeps_its_place_among_those_under_way() {
    /// `:status` 200 of the static table.
    const OK: u8 = 0x88;
    /// The setting that says how much of an answer may be sent unasked.
    const NOTHING_UNASKED: [u8; 6] = [0, 4, 0, 0, 0, 0];
    let world = World::start_with(|config| {
        config.limit_loopback = true;
        config.limits.connections_per_address = 3;
    });
    let world = world.await.expect("a world");
    let mut peer = TcpStream::connect(world.listen()).await.expect("connects");
    peer.write_all(&begin(&NOTHING_UNASKED)).await.expect("is sent");
    let statuses = async |peer: &mut TcpStream, streams: &[u8]| {
        let mut statuses = Vec::new();
        for stream in streams {
            peer.write_all(&asked(*stream, "GET", "/v1/time")).await.expect("is sent");
            let (kind, _, head) = timeout(SOON, next_on(peer, *stream)).await.expect("an answer");
            assert_eq!(kind, HEADERS);
            statuses.push(head[0] == OK);
        }
        statuses
    };
    assert_eq!(statuses(&mut peer, &[1, 3, 5, 7]).await, [true, true, true, false]);
    peer.write_all(&frame(WINDOW, 0, 1, &[0, 1, 0, 0])).await.expect("is sent");
    let (kind, flags, _) = timeout(SOON, next_on(&mut peer, 1)).await.expect("the rest");
    assert_eq!((kind, flags), (DATA, END_STREAM));
    assert_eq!(statuses(&mut peer, &[9, 11]).await, [true, false], "one was read");
}

/// The head of a request whose body follows. Header names are given as they are, none of the dynamic table.
fn begun(stream: u8, draft: &Draft) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("short");
        // A length of 7 bits, the rest of it in a byte behind.
        let length = if length < 127 { vec![length] } else { vec![127, length - 127] };
        [length, text.as_bytes().to_vec()].concat()
    };
    let mut head =
        [vec![2], text(&draft.method), vec![0x86, 1], text("localhost"), vec![4], text(&draft.target)].concat();
    for (name, value) in &draft.headers {
        head.extend([vec![0], text(&name.to_ascii_lowercase()), text(value)].concat());
    }
    frame(HEADERS, END_HEADERS, stream, &head)
}

/// Sends what was begun and resets it, once with each code. Something `other` is asked before the reset and behind it: each is taken in by then.
async fn reset_within(address: SocketAddr, other: &str, make: impl Fn(u8) -> Vec<u8>) {
    let mut peer = TcpStream::connect(address).await.expect("connects");
    peer.write_all(&begin(&[])).await.expect("is sent");
    // NO_ERROR, INTERNAL_ERROR, CANCEL.
    for (stream, code) in [(1, 0), (7, 2), (13, 8)] {
        peer.write_all(&make(stream)).await.expect("is sent");
        for (stream, behind) in [(stream + 2, frame(RESET, 0, stream, &[0, 0, 0, code])), (stream + 4, Vec::new())] {
            peer.write_all(&asked(stream, "GET", other)).await.expect("is sent");
            timeout(SOON, next_on(&mut peer, stream)).await.expect("an answer");
            peer.write_all(&behind).await.expect("is sent");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_stream_is_reset_before_its_end_is_not_done_whatever_the_reset_says() {
    let (world, signer) = bank().await;
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
    reset_within(world.listen(), "/v1/time", |stream| {
        let draft = world.draft(&signer, "POST", UPGRADE, &rule);
        [begun(stream, &draft), frame(DATA, 0, stream, rule.as_bytes())].concat()
    })
    .await;
    let cut_off = async || {
        let lines = world.heard.lines();
        Ok((lines.iter().filter(|line| line["reason"] == "body_cut_off").count() == 3).then_some(()))
    };
    until("each is told as cut off", SOON, cut_off).await.expect("they are");
    let done = call(&world, &signer, "POST", UPGRADE, &serde_json::from_str(&rule).expect("JSON")).await;
    assert_eq!(done["data"]["version_no"], 1, "{done}");

    // Nothing is signed there, and a body that may be left out looks like none.
    let secrets = format!("/operator/v1/applications/{}/secrets", signer.client_id);
    let draft = world.access.draft("POST", &secrets, Some(&json!({"overlap_s": 0})));
    let draft = draft.clone().with("Content-Length", &draft.body.len().to_string());
    reset_within(world.access.address, "/healthz", |stream| begun(stream, &draft)).await;
    let refused = async || {
        let is_one = |line: &Value| line["path"] == secrets.as_str() && line["status"] == 400;
        Ok((world.heard.lines().iter().filter(|line| is_one(line)).count() == 3).then_some(()))
    };
    until("each is refused", SOON, refused).await.expect("they are");
    let kept = world.access.call("GET", &secrets, None).await.expect("an answer").json();
    assert_eq!(kept["items"].as_array().map(Vec::len), Some(1), "{kept}");
}
