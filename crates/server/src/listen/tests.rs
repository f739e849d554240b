//! Nobody holds a place for ever: each peer here takes the only one and leaves it to the head timeout to end it.

use bytes::Bytes;
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;

/// More than the kernel's buffers take for a peer that does not read.
const LARGE: usize = 64 * 1024 * 1024;

async fn narrow() -> SocketAddr {
    narrow_for(Duration::from_millis(100)).await
}

/// A listener with one place, where a head may take so long; `/large` answers with [`LARGE`] bytes, every other path with two.
async fn narrow_for(head_timeout: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let settings = ListenSettings {
        connections_max: 1,
        head_timeout,
        request_timeout: Duration::from_millis(300),
        ..ListenSettings::default()
    };
    let large = Bytes::from(vec![b'x'; LARGE]);
    let service_for = move |_| {
        let large = large.clone();
        service_fn(move |request: Request<Upload>| {
            let body = if request.uri().path() == "/large" { large.clone() } else { Bytes::from_static(b"ok") };
            async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
        })
    };
    let (ends, ended) = watch::channel(false);
    tokio::spawn(async move {
        serve(listener, settings, service_for, ended).await;
        drop(ends);
    });
    address
}

async fn place_is_given_up_by(hog: &[u8]) {
    let address = narrow().await;
    let mut first = TcpStream::connect(address).await.expect("connects");
    first.write_all(hog).await.expect("is sent");
    let asked = async {
        let mut second = TcpStream::connect(address).await.expect("connects");
        second.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("is sent");
        let mut answer = String::new();
        second.read_to_string(&mut answer).await.expect("is read");
        answer
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), asked).await;
    assert!(answer.expect("the place becomes free").ends_with("ok"));
    drop(first);
}

#[tokio::test]
async fn a_peer_that_says_nothing_loses_its_place() {
    place_is_given_up_by(b"").await;
}

#[tokio::test]
async fn a_peer_that_stops_in_the_preface_of_http_2_loses_its_place() {
    place_is_given_up_by(b"PRI * HTTP/2.0\r\n").await;
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_loses_its_place() {
    place_is_given_up_by(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await;
}

#[tokio::test]
async fn a_peer_that_asks_on_without_reading_loses_its_place() {
    place_is_given_up_by(&b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3)).await;
}

#[tokio::test]
async fn for_who_comes_when_all_places_are_taken_one_that_asks_for_nothing_is_closed_and_one_that_waits_is_not() {
    const NEVER: Duration = Duration::from_secs(3600);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let settings =
        ListenSettings { connections_max: 3, head_timeout: NEVER, request_timeout: NEVER, ..ListenSettings::default() };
    let (let_go, may_go) = watch::channel(false);
    let service_for = move |_| {
        let may_go = may_go.clone();
        service_fn(move |request: Request<Upload>| {
            let mut may_go = may_go.clone();
            async move {
                if request.uri().path() == "/waits" {
                    let _ = may_go.wait_for(|may| *may).await;
                }
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            }
        })
    };
    let (ends, ended) = watch::channel(false);
    tokio::spawn(serve(listener, settings, service_for, ended));
    let connect = async |sent: &'static [u8]| {
        let mut peer = TcpStream::connect(address).await.expect("connects");
        peer.write_all(sent).await.expect("is sent");
        peer
    };
    let read = async |peer: &mut TcpStream| {
        let mut answer = vec![0; 1024];
        let read = tokio::time::timeout(Duration::from_secs(20), peer.read(&mut answer)).await;
        read.expect("something comes of it").unwrap_or(0) > 0
    };
    let mut waits = connect(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut idle = connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(read(&mut idle).await);
    let mut silent = connect(b"").await;
    for other in [&mut silent, &mut idle] {
        let mut comes = connect(b"GET / HTTP/1.0\r\n\r\n").await;
        assert!(read(&mut comes).await, "a place becomes free");
        assert!(!read(other).await, "it is closed");
        // Its place is taken again.
        std::mem::swap(other, &mut comes);
        *other = connect(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n").await;
    }
    let_go.send(true).expect("they wait");
    assert!(read(&mut waits).await && read(&mut idle).await && read(&mut silent).await, "whoever waited is answered");
    drop(ends);
}

#[tokio::test]
async fn while_nobody_comes_a_full_listener_closes_nobody() {
    let address = narrow_for(Duration::from_secs(3600)).await;
    let mut silent = TcpStream::connect(address).await.expect("connects");
    // For longer than whoever is silent is left in peace when others come.
    let longer = crowd::GRACE + 5 * crowd::LOOK_EVERY;
    assert!(tokio::time::timeout(longer, silent.read(&mut [0])).await.is_err(), "it was closed for nobody");
    silent.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("is sent");
    let mut answer = String::new();
    silent.read_to_string(&mut answer).await.expect("is read");
    assert!(answer.ends_with("ok"), "{answer}");
}

/// So many parts, a pause before each but the first.
struct InParts {
    left: u32,
    pause: tokio::time::Interval,
}

impl Body for InParts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return std::task::Poll::Ready(None);
        }
        std::task::ready!(self.pause.poll_tick(context));
        self.left -= 1;
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(b"part ")))))
    }
}

#[tokio::test]
async fn a_long_answer_that_is_read_goes_on_to_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (head_timeout, request_timeout) = (Duration::from_millis(60), Duration::from_millis(120));
    let settings = ListenSettings { head_timeout, request_timeout, ..ListenSettings::default() };
    let service_for = |_| {
        service_fn(|_: Request<Upload>| async {
            let pause = tokio::time::interval(Duration::from_millis(20));
            Ok::<_, Infallible>(Response::new(InParts { left: 40, pause }))
        })
    };
    let (ends, ended) = watch::channel(false);
    tokio::spawn(serve(listener, settings, service_for, ended));
    let mut peer = TcpStream::connect(address).await.expect("connects");
    peer.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("is sent");
    let mut answer = String::new();
    peer.read_to_string(&mut answer).await.expect("is read");
    assert_eq!(answer.matches("part ").count(), 40, "it takes longer than a request may");
    drop(ends);
}

#[tokio::test]
async fn the_date_of_answers_is_the_clocks_and_goes_back_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let clock = Clock::manual(countersign_domain::time::UnixMillis(1_790_003_600_000));
    let settings = ListenSettings { clock: clock.clone(), ..ListenSettings::default() };
    let (ends, ended) = watch::channel(false);
    let service =
        |_| service_fn(|_: Request<Upload>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    tokio::spawn(serve(listener, settings, service, ended));
    for wanted in ["Mon, 21 Sep 2026 15:13:20 GMT", "Mon, 21 Sep 2026 14:13:20 GMT"] {
        let mut peer = TcpStream::connect(address).await.expect("connects");
        peer.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("is sent");
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.expect("is read");
        let dates: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("date: ")).collect();
        assert_eq!(dates, [wanted], "{answer}");
        clock.advance_ms(-3_600_000);
    }
    drop(ends);
}

#[tokio::test]
async fn who_has_not_shaken_hands_yet_holds_up_no_stop() {
    const NEVER: Duration = Duration::from_secs(3600);
    let folder = tempfile::tempdir().expect("a folder");
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    std::fs::write(&chain, made.cert.pem()).expect("is written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("is written");
    let tls = tls::Certificate::read(&chain, &key).and_then(|pair| pair.server_config()).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let settings = ListenSettings {
        tls: Some(tls),
        plain_too: true,
        handshake_timeout: NEVER,
        drain: NEVER,
        ..ListenSettings::default()
    };
    let (end, ended) = watch::channel(false);
    let service =
        |_| service_fn(|_: Request<Upload>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let serving = tokio::spawn(serve(listener, settings, service, ended));
    let mut peers = Vec::new();
    // One is silent, one has begun a handshake. The answer to the last one says that those before it were let in.
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.0\r\n\r\n"] {
        let mut peer = TcpStream::connect(address).await.expect("connects");
        peer.write_all(sent).await.expect("is sent");
        peers.push(peer);
    }
    let mut answer = String::new();
    peers.pop().expect("the last one").read_to_string(&mut answer).await.expect("is answered");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    end.send(true).expect("it listens");
    tokio::time::timeout(Duration::from_secs(20), serving).await.expect("nobody holds it up").expect("it ends");
    for mut peer in peers {
        assert!(!matches!(peer.read(&mut [0]).await, Ok(1..)), "it is told nothing and closed");
    }
}

/// A listener that answers everything with nothing; its address, what ends it, and its task.
async fn at_peace() -> (SocketAddr, watch::Sender<bool>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (end, ended) = watch::channel(false);
    (address, end, tokio::spawn(serve(listener, ListenSettings::default(), |_| nothing(), ended)))
}

fn nothing()
-> impl Service<Request<Upload>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send + 'static>
+ Send
+ 'static {
    service_fn(|_: Request<Upload>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) })
}

const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Reads one answer without a body.
async fn answer(peer: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(peer.read_u8().await.expect("an answer"));
    }
    String::from_utf8(head).expect("text")
}

async fn is_answered_for_the_last_time(peer: &mut TcpStream) {
    let head = answer(peer).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("\r\nconnection: close\r\n"), "{head}");
    let after = peer.read(&mut [0]).await;
    assert!(matches!(after, Ok(0)), "closed in order: {after:?}");
}

#[tokio::test]
async fn what_the_system_has_accepted_at_the_end_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let mut peers = Vec::new();
    for _ in 0..5 {
        let mut peer = TcpStream::connect(address).await.expect("the system accepts it");
        peer.write_all(ASKED).await.expect("is sent");
        peers.push(peer);
    }
    let (end, ended) = watch::channel(true);
    serve(listener, ListenSettings::default(), |_| nothing(), ended).await;
    for peer in &mut peers {
        is_answered_for_the_last_time(peer).await;
    }
    drop(end);
}

#[tokio::test]
async fn who_asks_again_when_the_end_comes_is_told_by_an_answer() {
    let (address, end, serving) = at_peace().await;
    let mut silent = TcpStream::connect(address).await.expect("connects");
    let mut busy = TcpStream::connect(address).await.expect("connects");
    busy.write_all(ASKED).await.expect("is sent");
    let first = answer(&mut busy).await;
    assert!(!first.contains("connection:"), "nothing ends yet, and the silent one before it was let in: {first}");
    let mut late = TcpStream::connect(address).await.expect("the system accepts it");
    end.send(true).expect("it listens");
    // Before the listener has its turn: what it has of time is not what is tested.
    for peer in [&busy, &silent, &late] {
        assert_eq!(peer.try_write(ASKED).expect("is sent"), ASKED.len());
    }
    for peer in [&mut busy, &mut silent, &mut late] {
        is_answered_for_the_last_time(peer).await;
    }
    serving.await.expect("it ends");
}

#[tokio::test]
async fn what_is_busy_at_the_end_of_the_drain_is_closed_with_the_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let settings = ListenSettings { drain: Duration::from_millis(20), ..ListenSettings::default() };
    let (end, ended) = watch::channel(false);
    let (begun, mut asked) = watch::channel(false);
    // Never answered.
    let service = move |_| {
        let begun = begun.clone();
        service_fn(move |_: Request<Upload>| {
            begun.send_replace(true);
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        })
    };
    let serving = tokio::spawn(serve(listener, settings, service, ended));
    let mut peer = TcpStream::connect(address).await.expect("connects");
    peer.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("is sent");
    asked.wait_for(|asked| *asked).await.expect("it listens");
    end.send(true).expect("it listens");
    serving.await.expect("it ends");
    let closed = tokio::time::timeout(Duration::from_secs(20), peer.read(&mut [0])).await.expect("it is closed");
    assert!(!matches!(closed, Ok(1..)), "without an answer");
}
