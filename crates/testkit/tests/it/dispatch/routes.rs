//! The way out: through a proxy, and from an address of ours.

use countersign::dispatch::route::{Proxy, Route, Sources};
use countersign_testkit::connect_proxy::{ConnectProxy, Does};
use countersign_testkit::receiver::Reply;

use super::*;

async fn proxy() -> ConnectProxy {
    ConnectProxy::start().await.expect("a loopback port")
}

async fn tls() -> Receiver {
    Receiver::start_tls().await.expect("a loopback port")
}

fn say(text: &str) -> Does {
    Does::Say(text.as_bytes().to_vec())
}

fn through(proxy: &ConnectProxy) -> Route {
    Route { proxy: Some(Proxy::parse(&proxy.url()).expect("a proxy")), sources: Sources::default() }
}

fn from(addresses: &[&str]) -> Sources {
    let addresses: Vec<_> = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    Sources::of(&addresses).expect("one of each family")
}

impl Bench {
    async fn routed(route: Route, endpoint: &Receiver) -> Self {
        Self::with(DispatchSettings { route, extra_roots: endpoint.ca_pem(), ..settings() }).await
    }

    /// A new event waits, and nothing is charged to its endpoint.
    async fn waits(&self, endpoint: &Receiver, name: &str, words: &str) {
        let owner = self.owner(Some(format!("https://{}/callbacks", endpoint.address()))).await;
        let event = self.emit(&owner, "1").await;
        assert_eq!(self.deliver().await, 0, "{words}");
        let row = self.row(&event).await;
        assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 0), "{words}");
        let tried = self.dispatcher.try_out(&owner.client_id, &|_| None, &actor()).await.expect_err("is refused");
        let said = tried.to_string();
        assert!(said.contains(name) && said.contains(words), "{said}");
        let found = identity::find_application(&self.app, &owner.client_id).await.expect("the application");
        let view = self.dispatcher.view(&found.application).await.expect("this node delivers");
        assert_eq!((view.breaker, view.last), (countersign::dispatch::BreakerState::Closed, None));
    }

    /// The one attempt at a new event.
    async fn attempt(&self, owner: &Owner, biz_id: &str) -> AttemptRow {
        let event = self.emit(owner, biz_id).await;
        assert_eq!(self.deliver().await, 1);
        self.read(event.event_id).await.1.remove(0)
    }
}

#[tokio::test]
async fn a_proxy_is_told_the_vetted_address_and_the_certificate_is_checked_for_the_name() {
    let (proxy, endpoint) = (proxy().await, tls().await);
    endpoint.answer_with(Reply::SuccessKeeping);
    let bench = Bench::routed(through(&proxy), &endpoint).await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let attempt = bench.attempt(&owner, "1").await;
    assert_eq!(attempt.outcome, Outcome::Delivered, "{}", attempt.detail);
    // `localhost` may have an address of each family; nobody listens at that of IPv6.
    let asked = proxy.asked();
    assert!(asked.iter().all(|asked| asked.target().parse::<std::net::SocketAddr>().is_ok()), "{asked:?}");
    assert_eq!(asked.last().expect("it was asked").target(), endpoint.address().to_string());
    assert_eq!(attempt.address, Some(endpoint.address().to_string()));
    let phases = attempt.phases;
    assert!(phases.dns_us.is_some() && phases.connect_us.is_some() && phases.tls_us.is_some(), "{phases:?}");
    assert_eq!(phases.reused, Some(false));

    let before = proxy.asked().len();
    let again = bench.attempt(&owner, "2").await;
    assert_eq!((again.outcome, again.phases.reused), (Outcome::Delivered, Some(true)), "the tunnel is kept");
    assert_eq!(proxy.asked().len(), before);

    let misnamed = Receiver::start_tls_as(vec!["other.example".to_owned()]).await.expect("a loopback port");
    let bench = Bench::routed(through(&proxy), &misnamed).await;
    let owner = bench.owner(Some(misnamed.url())).await;
    let attempt = bench.attempt(&owner, "3").await;
    assert_eq!(
        (attempt.outcome, attempt.detail.contains("for another name")),
        (Outcome::TlsFailed, true),
        "{}",
        attempt.detail
    );
}

#[tokio::test]
async fn a_proxy_is_never_asked_for_a_forbidden_address() {
    let (proxy, endpoint) = (proxy().await, tls().await);
    let settings = DispatchSettings {
        route: through(&proxy),
        allow_private: false,
        allowed_ports: vec![endpoint.address().port()],
        extra_roots: endpoint.ca_pem(),
        ..settings()
    };
    let bench = Bench::with(settings).await;
    for url in [endpoint.url(), "https://127.0.0.1/".to_owned(), "https://no-such-name.invalid/".to_owned()] {
        let owner = bench.owner(Some(url.clone())).await;
        let attempt = bench.attempt(&owner, "1").await;
        let wanted = if url.contains("invalid") { Outcome::DnsFailed } else { Outcome::RefusedAddress };
        assert_eq!(attempt.outcome, wanted, "{url}: {}", attempt.detail);
    }
    assert_eq!(proxy.asked(), []);
    assert!(endpoint.received().is_empty());
}

fn is_named(attempt: &AttemptRow, words: &str, name: &str) {
    let AttemptRow { outcome, detail, phases, .. } = attempt;
    assert_eq!(*outcome, Outcome::ConnectFailed, "{words}: {detail}");
    assert!(detail.contains(words) && detail.contains(name), "{words}: {detail}");
    assert!(phases.connect_us.is_some() && phases.tls_us.is_none(), "{words}: {phases:?}");
}

#[tokio::test]
async fn what_a_proxy_makes_of_an_endpoint_is_an_attempt_and_told_with_its_name() {
    let (proxy, endpoint) = (proxy().await, tls().await);
    let bench = Bench::routed(through(&proxy), &endpoint).await;
    let url = format!("https://{}/callbacks", endpoint.address());
    let name = format!("the proxy {}", proxy.address());
    for (does, words) in [
        (say("HTTP/1.1 403 Forbidden\r\n\r\n"), "makes no connection to 127.0.0.1:"),
        (say("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "it answered 502"),
        (say("HTTP/1.1 200 OK\r\n\r\nand more"), "sent more than the answer to CONNECT"),
        (say("HTTP/1.1 20"), "closed the connection within its answer"),
        (say("HTTP/1.1 200 OK\r\n"), "closed the connection within its answer"),
        (say(""), "closed the connection without an answer"),
    ] {
        proxy.does(does.clone());
        let owner = bench.owner(Some(url.clone())).await;
        is_named(&bench.attempt(&owner, "1").await, words, &name);
    }
    proxy.does(Does::SayAndHang(b"HTTP/1.1 200 OK\r\n".to_vec()));
    let mut connect_timeout = Duration::from_millis(500);
    let attempt = loop {
        let (route, extra_roots) = (through(&proxy), endpoint.ca_pem());
        let bench = Bench::with(DispatchSettings { connect_timeout, route, extra_roots, ..settings() }).await;
        let owner = bench.owner(Some(url.clone())).await;
        let event = bench.emit(&owner, "1").await;
        // Where this process stood still, the proxy itself was not reached in time, and that is no attempt.
        if bench.deliver().await == 1 || connect_timeout >= SOON {
            break bench.read(event.event_id).await.1.remove(0);
        }
        connect_timeout *= 2;
    };
    is_named(&attempt, "connecting took too long", &name);
    assert!(endpoint.accepted().is_empty());
}

#[tokio::test]
async fn what_is_wrong_with_the_proxy_itself_is_told_with_its_name_and_charged_to_no_endpoint() {
    let (proxy, endpoint) = (proxy().await, tls().await);
    let bench = Bench::routed(through(&proxy), &endpoint).await;
    for (text, words) in [
        ("HTTP/1.1 407 Who are you?\r\n\r\n", "wants credentials (407)"),
        ("SSH-2.0-x\r\n\r\n", "gave an answer that is not HTTP"),
        ("SSH-2.0-x\r\n", "gave an answer that is not HTTP"),
        ("HTTP/1.1 405 Method Not Allowed\r\n\r\n", "knows no CONNECT: it answered 405"),
        (&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(20_000)), "whose head is too large"),
    ] {
        proxy.does(say(text));
        bench.waits(&endpoint, &format!("the proxy {}", proxy.address()), words).await;
    }
    for (url, name, words) in [
        ("http://127.0.0.1:1", "the proxy 127.0.0.1:1", "the connection was refused"),
        ("http://no-such-name.invalid:1", "the proxy no-such-name.invalid:1", "cannot be looked up"),
    ] {
        let route = Route { proxy: Some(Proxy::parse(url).expect("a proxy")), ..Route::default() };
        Bench::routed(route, &endpoint).await.waits(&endpoint, name, words).await;
    }
    assert!(endpoint.accepted().is_empty());
    // It is over, and what waited goes out as a first attempt.
    let owner = bench.owner(Some(format!("https://{}/callbacks", endpoint.address()))).await;
    let event = bench.emit(&owner, "1").await;
    assert_eq!(bench.deliver().await, 0);
    proxy.does(Does::Connect);
    bench.clock.advance_ms(60_000);
    assert!(bench.deliver().await > 0);
    let (row, attempts) = bench.read(event.event_id).await;
    assert_eq!((row.state, row.attempts, attempts.len()), (DeliveryState::Delivered, 1, 1));
}

#[tokio::test]
async fn credentials_go_to_the_proxy_and_nowhere_else() {
    let (proxy, endpoint) = (proxy().await, tls().await);
    let known = Proxy::parse(&proxy.url()).and_then(|it| it.with_credentials("me:canary")).expect("a proxy");
    let bench = Bench::routed(Route { proxy: Some(known), ..Route::default() }, &endpoint).await;
    let owner = bench.owner(Some(format!("https://{}/callbacks", endpoint.address()))).await;
    // It does not ask first: a name and a password are for this one proxy.
    assert_eq!(bench.attempt(&owner, "1").await.outcome, Outcome::Delivered);
    assert_eq!(proxy.asked()[0].header("Proxy-Authorization"), Some("Basic bWU6Y2FuYXJ5"));
    let heads: Vec<u8> = endpoint.received().into_iter().flat_map(|received| received.head).collect();
    assert!(!String::from_utf8_lossy(&heads).to_lowercase().contains("authorization"));

    proxy.does(Does::Say(b"HTTP/1.1 407 No\r\n\r\n".to_vec()));
    // By another name, since the first tunnel is kept.
    let other = bench.owner(Some(endpoint.url())).await;
    let refused = bench.dispatcher.try_out(&other.client_id, &|_| None, &actor()).await.expect_err("is refused");
    assert!(refused.to_string().contains("does not take our credentials (407)"), "{refused}");
    let shown = format!("{refused:?} {:?}", bench.dispatcher);
    assert!(!shown.contains("canary") && !shown.contains("bWU6"), "{shown}");
}

#[tokio::test]
async fn callbacks_come_from_the_address_that_the_settings_name() {
    let endpoint = receiver().await;
    let five = Route { sources: from(&["127.0.0.5"]), ..Route::default() };
    let bench = Bench::routed(five.clone(), &endpoint).await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::SuccessAndClose]);
    for biz_id in ["1", "2"] {
        assert_eq!(bench.attempt(&owner, biz_id).await.outcome, Outcome::Delivered);
    }
    let peers: Vec<String> = endpoint.accepted().iter().map(|accepted| accepted.peer.ip().to_string()).collect();
    assert_eq!(peers, ["127.0.0.5", "127.0.0.5"]);

    let proxy = proxy().await;
    let both = Route { sources: from(&["127.0.0.6"]), ..through(&proxy) };
    let bench = Bench::routed(both, &endpoint).await;
    let owner = bench.owner(Some(endpoint.url())).await;
    assert_eq!(bench.attempt(&owner, "1").await.outcome, Outcome::Delivered);
    assert_eq!(proxy.asked()[0].peer.ip().to_string(), "127.0.0.6");

    // What was given for one family says nothing of the other, and nothing goes out from an address that nobody chose.
    let bench = Bench::routed(five, &endpoint).await;
    let owner = bench.owner(Some("http://[::1]:1/".to_owned())).await;
    let attempt = bench.attempt(&owner, "1").await;
    assert_eq!(attempt.outcome, Outcome::ConnectFailed);
    assert!(attempt.detail.contains("callback_source_address has no address of its family"), "{}", attempt.detail);
}

#[tokio::test]
async fn without_its_source_address_a_callback_waits_and_its_endpoint_is_charged_with_nothing() {
    let meters = countersign::meters::install().expect("meters");
    let endpoint = receiver().await;
    // Of a range for documentation: it has left this machine since the start, as one that a pair of machines shares does.
    let gone = Route { proxy: None, sources: from(&["192.0.2.77"]) };
    let bench = Bench::routed(gone, &endpoint).await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "1").await;
    assert_eq!(bench.deliver().await, 0);
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 0));
    let tried = bench.dispatcher.try_out(&owner.client_id, &|_| None, &actor()).await.expect_err("is refused");
    let said = tried.to_string();
    assert!(said.contains("callback_source_address is none of this machine now"), "{said}");
    let found = identity::find_application(&bench.app, &owner.client_id).await.expect("the application");
    let view = bench.dispatcher.view(&found.application).await.expect("this node delivers");
    assert_eq!((view.breaker, view.in_flight, view.last), (countersign::dispatch::BreakerState::Closed, 0, None));
    assert!(endpoint.received().is_empty());
    assert!(meters.render().contains("countersign_callback_lacks_total 1"), "whoever is on call is told");
}
