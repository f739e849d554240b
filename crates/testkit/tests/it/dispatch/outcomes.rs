//! Every way an attempt can end, and what the schedule makes of it.

use std::time::Instant;

use countersign_domain::time::UnixMillis;
use countersign_testkit::receiver::Reply;
use countersign_testkit::refusing::Refusing;

use super::*;

/// What an attempt at a new event comes to where the endpoint does this.
async fn comes_to(bench: &Bench, (endpoint, owner): (&Receiver, &Owner), reply: Reply, wanted: (Outcome, Option<u16>)) {
    let name = format!("{reply:.40?}");
    endpoint.script([reply]);
    let event = bench.emit(owner, &name).await;
    assert_eq!(bench.deliver().await, 1, "{name}");
    let (row, attempts) = bench.read(event.event_id).await;
    assert_eq!(attempts.len(), 1, "{name}");
    assert_eq!((attempts[0].outcome, attempts[0].http_status), wanted, "{name}");
    let is_delivered = wanted.0 == Outcome::Delivered;
    let state = if is_delivered { DeliveryState::Delivered } else { DeliveryState::Pending };
    assert_eq!((row.state, row.attempts, row.due_at.is_some()), (state, 1, !is_delivered), "{name}");
}

#[tokio::test]
async fn every_answer_has_the_outcome_of_the_contract() {
    use Outcome::{ConnectFailed, Delivered, Fail, HttpStatus, Timeout, Unreadable};
    let elsewhere = receiver().await;
    let body = |text: &str| Reply::Body(text.as_bytes().to_vec());
    let mut bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    for (reply, outcome, status) in [
        (Reply::Success, Delivered, Some(200)),
        (Reply::Status(201), Delivered, Some(201)),
        (Reply::Padded(64 * 1024), Delivered, Some(200)),
        (body(r#" {"returnMessage":7,"returnCode":"SUCCESS"} "#), Delivered, Some(200)),
        (Reply::Fail, Fail, Some(200)),
        (body(r#"{"returnCode":"success"}"#), Fail, Some(200)),
        (body(r#"{"returnCode":"SUCCESS "}"#), Fail, Some(200)),
        (Reply::Status(500), HttpStatus, Some(500)),
        (Reply::Status(404), HttpStatus, Some(404)),
        (Reply::Redirect(elsewhere.url()), HttpStatus, Some(302)),
        (Reply::Padded(64 * 1024 + 1), Unreadable, Some(200)),
        (body(""), Unreadable, Some(200)),
        (body("SUCCESS"), Unreadable, Some(200)),
        (body(r#"["SUCCESS"]"#), Unreadable, Some(200)),
        (body(r#"{"code":"SUCCESS"}"#), Unreadable, Some(200)),
        (body(r#"{"returnCode":true}"#), Unreadable, Some(200)),
        (Reply::BrokenOff, Unreadable, Some(200)),
        (Reply::Garbage, Unreadable, None),
        (Reply::Reset, ConnectFailed, None),
    ] {
        comes_to(&bench, (&endpoint, &owner), reply, (outcome, status)).await;
    }
    bench.give(Duration::from_millis(500));
    for reply in [Reply::Hang, Reply::Drip(Duration::from_millis(50))] {
        comes_to(&bench, (&endpoint, &owner), reply, (Timeout, None)).await;
    }
    assert!(elsewhere.received().is_empty(), "no redirect is followed");
}

#[tokio::test]
async fn what_went_wrong_is_told_apart_by_its_words_and_by_the_stage_that_took_too_long() {
    let mut bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let raw = |text: &str| Reply::Raw(text.as_bytes().to_vec());
    let cases = [
        (Reply::Reset, "the connection was reset before an answer"),
        (raw(""), "the connection was closed before an answer"),
        (raw("HTTP/1.1 200 OK\r\nContent-"), "the connection was closed in the middle of the head of the answer"),
        (Reply::Garbage, "the answer is not HTTP"),
        (raw(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(200_000))), "the head of the answer is too large"),
        (Reply::BrokenOff, "the answer broke off before its end"),
        (raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnothing\r\n"), "the body of the answer is not HTTP"),
        (Reply::Redirect(endpoint.url()), "answered 302; redirects are not followed"),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n{\"returnCode\""), "the answer broke off before its end"),
        (Reply::Padded(64 * 1024 + 1), "the answer is larger than 64 KiB"),
        (Reply::Fail, "the answer's returnCode is not SUCCESS"),
    ];
    for (at, (reply, words)) in cases.into_iter().enumerate() {
        endpoint.script([reply]);
        let event = bench.emit(&owner, &format!("order {at}")).await;
        assert_eq!(bench.deliver().await, 1, "{words}");
        let (_, attempts) = bench.read(event.event_id).await;
        assert_eq!(attempts[0].detail, words);
    }
    let begun = Reply::HangAfter(b"HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n{".to_vec());
    for (reply, stage) in
        [(Reply::Hang, "waiting for the head of the answer"), (begun, "reading the body of the answer")]
    {
        endpoint.answer_with(reply);
        let (_, attempt, deadline) = bench.run_out(&owner, stage, |attempt| attempt.detail.ends_with(stage)).await;
        assert_eq!(attempt.detail, format!("the deadline of {deadline:?} passed while {stage}"));
    }
}

#[tokio::test]
async fn an_endpoint_that_is_not_reached_says_why() {
    let old = Receiver::start_tls_expired().await.expect("a loopback port");
    let misnamed = Receiver::start_tls_as(vec!["other.example".to_owned()]).await.expect("a loopback port");
    let strange = Receiver::start_tls().await.expect("a loopback port");
    let picky = Receiver::start_tls_for_known_clients().await.expect("a loopback port");
    let roots = [old.ca_pem(), misnamed.ca_pem(), picky.ca_pem()].concat();
    let bench = Bench::with(DispatchSettings { extra_roots: roots, ..settings() }).await;
    let plain = receiver().await;
    let refusing = Refusing::take().expect("a loopback port");
    let nobody = format!("http://{}/", refusing.address().expect("has one"));
    for (url, outcome, words) in [
        (nobody, Outcome::ConnectFailed, "the connection was refused; nobody listens there"),
        (plain.url().replace("http://", "https://"), Outcome::TlsFailed, "TLS failed: the endpoint "),
        (old.url(), Outcome::TlsFailed, "TLS failed: the certificate has expired"),
        (misnamed.url(), Outcome::TlsFailed, "TLS failed: the certificate is for another name"),
        (strange.url(), Outcome::TlsFailed, "TLS failed: the signature of the certificate is not its authority's"),
        (picky.url(), Outcome::TlsFailed, "the alert certificate required: it wants a certificate of its client"),
        ("http://no-such-name.invalid/".to_owned(), Outcome::DnsFailed, "the name cannot be looked up"),
        (
            "http://169.254.169.254/".to_owned(),
            Outcome::RefusedAddress,
            "the address is in a forbidden range: link-local and metadata",
        ),
        ("http://2130706433/".to_owned(), Outcome::RefusedAddress, "the host of the callback URL must be a name"),
    ] {
        let owner = bench.owner(Some(url.clone())).await;
        let event = bench.emit(&owner, "order").await;
        assert_eq!(bench.deliver().await, 1, "{url}");
        let (_, attempts) = bench.read(event.event_id).await;
        assert_eq!(attempts[0].outcome, outcome, "{url}: {}", attempts[0].detail);
        assert!(attempts[0].detail.contains(words), "{url}: {}", attempts[0].detail);
        assert_eq!(
            attempts[0].address.is_some(),
            outcome == Outcome::TlsFailed,
            "{url}: who has that certificate is known"
        );
    }
    let trusts_nobody = Bench::new().await;
    let owner = trusts_nobody.owner(Some(strange.url())).await;
    let event = trusts_nobody.emit(&owner, "order").await;
    trusts_nobody.deliver().await;
    let detail = trusts_nobody.read(event.event_id).await.1[0].detail.clone();
    assert!(detail.contains("from no authority that is trusted here"), "{detail}");
}

#[tokio::test]
async fn an_endpoint_that_is_silent_in_the_handshake_is_told_with_its_address() {
    // It takes connections, as the system does for whoever listens, and never says anything.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let address = silent.local_addr().expect("an address").to_string();
    let mut bench = Bench::new().await;
    let owner = bench.owner(Some(format!("https://{address}/"))).await;
    let stage = "in the TLS handshake";
    let (_, attempt, deadline) = bench.run_out(&owner, "order", |attempt| attempt.detail.ends_with(stage)).await;
    assert_eq!(attempt.detail, format!("the deadline of {deadline:?} passed while {stage}"));
    assert_eq!((attempt.outcome, attempt.address), (Outcome::Timeout, Some(address)));
}

#[tokio::test]
async fn an_endpoint_that_is_not_reached_has_its_own_outcome() {
    use Outcome::{ConnectFailed, DnsFailed, RefusedAddress, TlsFailed};
    let bench = Bench::new().await;
    let plain = receiver().await;
    let tls_to_plain = plain.url().replace("http://", "https://");
    let refusing = Refusing::take().expect("a loopback port");
    let nobody = format!("http://{}/", refusing.address().expect("has one"));
    for (url, outcome) in [
        (nobody, ConnectFailed),
        (tls_to_plain, TlsFailed),
        ("http://no-such-name.invalid/".to_owned(), DnsFailed),
        ("http://169.254.169.254/latest/meta-data".to_owned(), RefusedAddress),
        ("http://2852039166/".to_owned(), RefusedAddress),
        ("http://[::ffff:127.0.0.1]:80/".to_owned(), RefusedAddress),
        ("gopher://127.0.0.1/".to_owned(), RefusedAddress),
    ] {
        let owner = bench.owner(Some(url.clone())).await;
        let event = bench.emit(&owner, "order").await;
        assert_eq!(bench.deliver().await, 1, "{url}");
        let (row, attempts) = bench.read(event.event_id).await;
        assert_eq!((attempts[0].outcome, attempts[0].http_status), (outcome, None), "{url}: {}", attempts[0].detail);
        assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 1), "{url}");
    }
    assert!(plain.received().is_empty());
}

#[tokio::test]
async fn private_addresses_are_refused_unless_they_are_allowed_and_nothing_is_sent() {
    let endpoint = Receiver::start_tls().await.expect("a loopback port");
    let ports = vec![endpoint.address().port()];
    let bench = Bench::with(DispatchSettings {
        allow_private: false,
        allowed_ports: ports,
        extra_roots: endpoint.ca_pem(),
        ..settings()
    })
    .await;
    // By name, so that only the lookup tells: the form of the URL is right.
    for url in [endpoint.url(), format!("https://127.0.0.1:{}/", endpoint.address().port())] {
        let owner = bench.owner(Some(url)).await;
        let event = bench.emit(&owner, "order").await;
        assert_eq!(bench.deliver().await, 1);
        assert_eq!(bench.outcomes(&event).await, [Outcome::RefusedAddress]);
    }
    assert!(endpoint.received().is_empty());
}

#[tokio::test]
async fn an_attempt_is_recorded_with_its_instant_duration_and_address_and_without_the_answer() {
    let mut bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.answer_with(Reply::Hang);
    let began = Instant::now();
    let (event, _, deadline) = bench.run_out(&owner, "order", |attempt| attempt.address.is_some()).await;
    let at_most = began.elapsed().as_millis();
    bench.give(LONG);
    endpoint.answer_with(Reply::Fail);
    bench.deliver_next(&event).await;
    let (_, attempts) = bench.read(event.event_id).await;
    assert_eq!(attempts.iter().map(|a| a.attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(attempts[0].at, START);
    assert!(attempts[1].at.0 >= START.0 + 5_000);
    let took = u128::try_from(attempts[0].duration_ms).expect("it took some time");
    assert!((deadline.as_millis()..=at_most).contains(&took), "{took} ms");
    assert!(attempts.iter().all(|a| a.address == Some(endpoint.address().to_string())));
    assert!(attempts.iter().all(|a| !a.detail.is_empty() && !a.detail.contains("not today")));
}

#[tokio::test]
async fn failed_attempts_follow_the_schedule_and_the_last_one_parks_the_event_as_dead() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(500));
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    let delays_s = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 72_000, 86_400];
    for delay_s in delays_s {
        let failed_at = bench.clock.now();
        bench.clock.advance_ms(delay_s * 1_000 - 1);
        assert_eq!(bench.deliver().await, 0, "never early");
        let due_at = bench.row(&event).await.due_at.expect("pending");
        let waits_ms = due_at.0 - failed_at.0;
        assert!((delay_s * 1_000..=delay_s * 1_200).contains(&waits_ms), "{waits_ms} ms for {delay_s} s");
        assert_eq!(bench.deliver_next(&event).await, 1);
    }
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts, row.due_at), (DeliveryState::Dead, 13, None));
    bench.clock.advance_ms(30 * 86_400_000);
    assert_eq!(bench.deliver().await, 0, "the dead stay parked");
    endpoint.answer_with(Reply::Success);
    of_one::redeliver(&bench.app, event.event_id, &|_| None, &actor()).await.expect("the dead are redeliverable");
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
    assert_eq!(endpoint.received().last().expect("one").need("x-service-attempt"), "14");
}

#[tokio::test]
async fn retry_after_of_429_and_503_moves_the_next_attempt_later_by_at_most_an_hour() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let at = |ms: i64| UnixMillis(START.0 + ms);
    for (reply, earliest, latest) in [
        (Reply::RetryAfter(429, "120".to_owned()), at(120_000), at(120_000)),
        (Reply::RetryAfter(503, "Thu, 01 Jan 2026 00:02:00 GMT".to_owned()), at(120_000), at(120_000)),
        (Reply::RetryAfter(503, "1".to_owned()), at(5_000), at(6_000)),
        (Reply::RetryAfter(429, "999999".to_owned()), at(3_605_000), at(3_606_000)),
        (Reply::RetryAfter(503, "never".to_owned()), at(5_000), at(6_000)),
        (Reply::RetryAfter(500, "120".to_owned()), at(5_000), at(6_000)),
    ] {
        endpoint.script([reply.clone()]);
        let event = bench.emit(&owner, &format!("{reply:?}")).await;
        assert_eq!(bench.deliver().await, 1);
        let due_at = bench.row(&event).await.due_at.expect("pending");
        assert!((earliest..=latest).contains(&due_at), "{reply:?}: {} ms", due_at.0 - START.0);
    }
}

/// A limiter that refuses each connection before it reads anything, and reads on until the caller goes.
async fn refusing_at_once() -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let url = format!("http://{}/", listener.local_addr().expect("has one"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let refusal = b"HTTP/1.1 503 X\r\nContent-Length: 4\r\nRetry-After: 600\r\n\r\nbusy";
                drop(stream.write_all(refusal).await);
                drop(stream.shutdown().await);
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_may_come_before_the_request_is_one_and_its_retry_after_counts() {
    let bench = Bench::new().await;
    let owner = bench.owner(Some(refusing_at_once().await)).await;
    // Whether the answer is there before the first byte of the request is a race: what it comes to is the same.
    let data = serde_json::json!({"a": "\"".repeat(20_000)}).to_string();
    for n in 0..5 {
        let event = bench.emit_data(&owner, &format!("order-{n}"), &data).await;
        assert_eq!(bench.deliver().await, 1);
        let (row, attempts) = bench.read(event.event_id).await;
        assert_eq!(
            (attempts[0].outcome, attempts[0].http_status),
            (Outcome::HttpStatus, Some(503)),
            "{:?}",
            attempts[0]
        );
        assert_eq!(row.due_at, Some(UnixMillis(START.0 + 600_000)));
    }
}
