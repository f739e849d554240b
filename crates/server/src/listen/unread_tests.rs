//! Bodies that nobody reads: the answer arrives all the same, and nobody keeps a place by sending on.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Longer than anything here takes, and shorter than every limit that a test is not about.
const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// An answer of several parts.
static LONG: [u8; 5 * PART_BYTES_MAX] = [b'x'; 5 * PART_BYTES_MAX];

/// A listener that waits for an hour wherever it waits.
async fn listener() -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    let throws_away = ThrowsAway { http_1: HOUR, http_2: HOUR, at_the_end: HOUR };
    listening(ListenSettings { throws_away, ..patient() }).await
}

/// An hour for everything, but for what nobody reads only as long as ever.
fn patient() -> ListenSettings {
    let [head_timeout, request_timeout, handshake_timeout, drain] = [HOUR; 4];
    ListenSettings { head_timeout, request_timeout, handshake_timeout, drain, ..ListenSettings::default() }
}

/// `/read` reads its body and says whether it could, `/late` answers after 2 s, `/long` at length, and every other path answers at once and leaves its
/// body.
async fn listening(settings: ListenSettings) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let service_for = |_| {
        service_fn(|request: Request<Upload>| async {
            let path = request.uri().path().to_owned();
            let said: &[u8] = match path.as_str() {
                "/read" if request.into_body().collect().await.is_err() => b"broken",
                "/late" => {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    b"late"
                }
                "/long" => &LONG,
                _ => b"ok",
            };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(said))))
        })
    };
    let (tells, told) = watch::channel(false);
    (address, tells, tokio::spawn(serve(listener, settings, service_for, told)))
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("connects")
}

fn post(path: &str, length: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// What comes to the end of the connection.
async fn rest_of(stream: &mut TcpStream) -> String {
    let mut said = String::new();
    let read = tokio::time::timeout(SOON, stream.read_to_string(&mut said)).await;
    read.expect("the connection ends").expect("it is not reset");
    said
}

#[tokio::test]
async fn an_answer_to_five_megabytes_that_nobody_reads_arrives_and_says_that_the_connection_ends() {
    const LENGTH: usize = 5 * 1024 * 1024;
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    peer.write_all(&post("/", LENGTH)).await.expect("is sent");
    peer.write_all(&vec![b'x'; LENGTH]).await.expect("all of it is taken");
    let said = rest_of(&mut peer).await;
    assert!(said.contains("connection: close\r\n") && said.ends_with("ok"), "{said}");
}

#[tokio::test]
async fn what_is_sent_after_the_answer_meets_no_reset() {
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    peer.write_all(&post("/", 5 * 1024 * 1024)).await.expect("is sent");
    let said = rest_of(&mut peer).await;
    assert!(said.contains("connection: close\r\n") && said.ends_with("ok"), "{said}");
    // The listener has ended its side, and nothing of ours was on its way.
    for n in 0..64 {
        let sent = peer.write_all(&[b'x'; 16 * 1024]).await;
        assert!(sent.is_ok(), "piece {n}: {sent:?}");
    }
}

#[tokio::test]
async fn a_long_body_in_chunks_is_not_read_to_keep_its_connection() {
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    let chunk = [b"4000\r\n".as_slice(), &[b'x'; 0x4000], b"\r\n"].concat();
    let body = [chunk.repeat(8).as_slice(), b"0\r\n\r\n"].concat();
    peer.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await.expect("is sent");
    peer.write_all(&body).await.expect("all of it is taken");
    let said = rest_of(&mut peer).await;
    assert!(said.contains("connection: close\r\n") && said.contains("200 OK"), "{said}");
}

#[tokio::test]
async fn an_answer_to_a_body_in_chunks_that_cannot_be_read_says_that_the_connection_ends() {
    let (address, _tells, _) = listener().await;
    for path in ["/", "/read"] {
        let mut peer = connect(address).await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n");
        peer.write_all(head.as_bytes()).await.expect("is sent");
        let said = rest_of(&mut peer).await;
        assert!(said.contains("connection: close\r\n"), "{path} {said}");
    }
}

#[tokio::test]
async fn a_short_body_that_nobody_reads_costs_no_connection() {
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    for path in ["/", "/read"] {
        peer.write_all(&post(path, 4)).await.expect("is sent");
        peer.write_all(b"body").await.expect("is sent");
    }
    peer.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("is sent");
    let said = rest_of(&mut peer).await;
    assert_eq!(said.matches("HTTP/1.1 200").count(), 3, "{said}");
    assert_eq!(said.matches("connection: close").count(), 1, "{said}");
}

#[tokio::test]
async fn a_client_that_waits_for_a_word_before_its_body_gets_the_answer_instead() {
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    peer.write_all(head).await.expect("is sent");
    let said = rest_of(&mut peer).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("connection: close\r\n"), "{said}");
}

/// Sends `begin`, then `piece` again and again, into the only place; somebody else gets it within [`SOON`].
async fn place_is_given_up_by(begin: Vec<u8>, piece: Vec<u8>, pause: Duration) {
    let (address, _tells, _) = listening(ListenSettings { connections_max: 1, ..patient() }).await;
    let mut hog = connect(address).await;
    hog.write_all(&begin).await.expect("is sent");
    let sends_on = tokio::spawn(async move {
        while hog.write_all(&piece).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
        hog
    });
    let mut second = connect(address).await;
    second.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("is sent");
    assert!(rest_of(&mut second).await.ends_with("ok"));
    drop(sends_on);
}

#[tokio::test]
async fn a_peer_that_sends_a_refused_body_without_end_loses_its_place() {
    place_is_given_up_by(post("/", usize::MAX >> 8), vec![b'x'; 64 * 1024], Duration::ZERO).await;
}

#[tokio::test]
async fn a_peer_that_sends_a_refused_body_byte_by_byte_loses_its_place() {
    place_is_given_up_by(post("/", 60_000), vec![b'x'], Duration::from_millis(20)).await;
    place_is_given_up_by(post("/", usize::MAX >> 8), vec![b'x'], Duration::from_millis(20)).await;
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW: u8 = 8;
const END: u8 = 1;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], content].concat()
}

/// A request with this method (of the static table) that may have a body.
fn request(stream: u8, method: u8, path: &str, flags: u8) -> Vec<u8> {
    let text = |name: u8, text: &str| [&[name, u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    // :method, :scheme http, :authority, :path.
    let head = [vec![0x80 | method, 0x86], text(1, "x"), text(4, path)].concat();
    frame(HEADERS, 4 | flags, stream, &head)
}

/// Preface, settings, a request and a ping.
fn begin_of_http_2(method: u8, path: &str, flags: u8) -> Vec<u8> {
    begin_with(&[], request(1, method, path, flags))
}

fn begin_with(settings: &[u8], request: Vec<u8>) -> Vec<u8> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(SETTINGS, 0, 0, settings), request, frame(PING, 0, 0, &[7; 8])].concat()
}

/// The next frame: its kind, its flags, its stream.
async fn next(peer: &mut TcpStream) -> io::Result<(u8, u8, u8)> {
    let mut head = [0; 9];
    peer.read_exact(&mut head).await?;
    let mut content = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    peer.read_exact(&mut content).await?;
    Ok((head[3], head[4], head[8]))
}

/// Reads until `wanted`, and gives the kinds that came with it.
async fn until(peer: &mut TcpStream, wanted: impl Fn(u8, u8) -> bool) -> Vec<u8> {
    until_on(peer, |_, kind, flags| wanted(kind, flags)).await
}

/// The same, by the stream of a frame, too.
async fn until_on(peer: &mut TcpStream, wanted: impl Fn(u8, u8, u8) -> bool) -> Vec<u8> {
    let read = async {
        let mut kinds = Vec::new();
        loop {
            let (kind, flags, stream) = next(peer).await.expect("a frame");
            kinds.push(kind);
            if wanted(stream, kind, flags) {
                return kinds;
            }
        }
    };
    tokio::time::timeout(SOON, read).await.expect("it comes")
}

const POST: u8 = 3;
const GET: u8 = 2;

#[tokio::test]
async fn over_http_2_a_body_that_nobody_reads_is_taken_to_its_end_and_the_stream_is_not_reset() {
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    peer.write_all(&begin_of_http_2(POST, "/", 0)).await.expect("is sent");
    // What answers the ping has seen the head.
    until(&mut peer, |kind, flags| kind == PING && flags == ACK).await;
    for n in 0..8 {
        let end = if n == 7 { END } else { 0 };
        peer.write_all(&frame(DATA, end, 1, &[b'x'; 15_000])).await.expect("is sent");
        if n == 3 {
            // More than is read of a body over HTTP/1, and than a stream may send before somebody reads.
            until_on(&mut peer, |stream, kind, _| (stream, kind) == (1, WINDOW)).await;
        }
    }
    peer.write_all(&frame(PING, 0, 0, &[8; 8])).await.expect("is sent");
    let mut kinds = until(&mut peer, |kind, flags| kind == DATA && flags == END).await;
    peer.write_all(&frame(PING, 0, 0, &[9; 8])).await.expect("is sent");
    while kinds.iter().map(|kind| u32::from(*kind == PING)).sum::<u32>() < 2 {
        kinds.extend(until(&mut peer, |kind, flags| kind == PING && flags == ACK).await);
    }
    assert!(!kinds.contains(&RESET), "{kinds:?}");
}

#[tokio::test]
async fn over_http_2_a_body_that_never_ends_does_not_keep_the_answer() {
    let (address, _tells, _) = listening(patient()).await;
    let mut peer = connect(address).await;
    peer.write_all(&begin_of_http_2(POST, "/", 0)).await.expect("is sent");
    let kinds = until(&mut peer, |kind, _| kind == RESET).await;
    assert!(kinds.contains(&HEADERS) && kinds.contains(&DATA), "{kinds:?}");
}

#[tokio::test]
async fn an_idle_connection_of_http_2_whose_peer_does_not_read_is_not_waited_for() {
    let (address, tells, ends) = listener().await;
    let mut peer = connect(address).await;
    peer.write_all(&begin_of_http_2(GET, "/", END)).await.expect("is sent");
    until(&mut peer, |kind, flags| kind == DATA && flags == END).await;
    let mut mute = connect(address).await;
    mute.write_all(&begin_of_http_2(GET, "/", END)[..33]).await.expect("is sent");
    until(&mut mute, |kind, flags| kind == SETTINGS && flags == ACK).await;
    let began = Instant::now();
    tells.send(true).expect("it listens");
    tokio::time::timeout(SOON, ends).await.expect("it ends soon").expect("it does not panic");
    assert!(began.elapsed() >= LAST_WORDS, "a request may be on its way");
    drop((peer, mute));
}

#[tokio::test]
async fn a_request_of_http_2_that_is_under_way_at_the_end_is_answered() {
    let (address, tells, ends) = listener().await;
    let mut peer = connect(address).await;
    peer.write_all(&begin_of_http_2(GET, "/late", END)).await.expect("is sent");
    until(&mut peer, |kind, flags| kind == PING && flags == ACK).await;
    tells.send(true).expect("it listens");
    until(&mut peer, |kind, flags| kind == DATA && flags == END).await;
    tokio::time::timeout(SOON, ends).await.expect("it ends").expect("it does not panic");
}

/// A setting of HTTP/2: how much of an answer may be sent unasked. Enough for a short one, and for none.
const LITTLE_UNASKED: [u8; 6] = [0, 4, 0, 0, 0, 9];
const NOTHING_UNASKED: [u8; 6] = [0, 4, 0, 0, 0, 0];

#[tokio::test]
async fn an_answer_of_http_2_that_nobody_reads_ends_its_connection_whatever_else_is_asked() {
    let [head_timeout, request_timeout] = [100, 200].map(Duration::from_millis);
    // What comes of the others, which end meanwhile or are not read either.
    for (unasked, path, comes) in [(&LITTLE_UNASKED, "/long", DATA), (&NOTHING_UNASKED, "/", HEADERS)] {
        let settings = ListenSettings { head_timeout, request_timeout, ..ListenSettings::default() };
        let (address, _tells, _) = listening(settings).await;
        let mut peer = connect(address).await;
        let began = Instant::now();
        peer.write_all(&begin_with(unasked, request(1, GET, path, END))).await.expect("is sent");
        let mut answered = 0;
        let asking = async {
            for stream in (3..).step_by(2) {
                let asked = [request(stream, GET, "/", END), frame(PING, ACK, 0, &[7; 8])].concat();
                if peer.write_all(&asked).await.is_err() {
                    return;
                }
                loop {
                    match next(&mut peer).await {
                        Ok((kind, _, of)) if (kind, of) == (comes, stream) => break,
                        Ok(_) => {}
                        Err(_) => return,
                    }
                }
                answered += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, asking).await.expect("it ends");
        assert!(began.elapsed() >= request_timeout, "not before its time: {:?}", began.elapsed());
        assert!(answered >= 1, "{answered}: others were answered meanwhile");
    }
}

#[tokio::test]
async fn a_long_answer_of_http_2_arrives_whole_when_its_peer_reads_on() {
    let (address, _tells, _) = listener().await;
    let mut peer = connect(address).await;
    peer.write_all(&begin_with(&LITTLE_UNASKED, request(1, GET, "/long", END))).await.expect("is sent");
    let mut read = 0;
    let reading = async {
        while read < LONG.len() {
            let mut head = [0; 9];
            peer.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            peer.read_exact(&mut vec![0; length]).await.expect("all of it");
            if head[3] == DATA {
                assert_eq!(head[4] & END == END, read + length == LONG.len(), "the last one says so");
                read += length;
                peer.write_all(&frame(WINDOW, 0, 1, &[0, 0, 8, 0])).await.expect("is sent");
            }
        }
    };
    tokio::time::timeout(SOON, reading).await.expect("it comes");
    assert_eq!(read, LONG.len());
}
