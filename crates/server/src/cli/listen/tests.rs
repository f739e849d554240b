use super::*;

#[test]
fn whoever_goes_on_behind_a_gap_is_told_what_counts() {
    let gap = |last| Gap { first: 3, last, is_forgotten: true };
    assert_eq!(gone_on(&gap(Some(5)), None), "say --after 5");
    // A cursor that is there counts before --after.
    assert_eq!(gone_on(&gap(Some(5)), Some(Path::new("/tmp/seq"))), "remove /tmp/seq and say --after 5");
    assert_eq!(gone_on(&gap(None), None), "say --after with the last seq that is missing");
}

#[test]
fn what_an_event_is_called_moves_nothing_on_the_terminal() {
    let event = Event {
        seq: 7,
        event_id: "evt_1".to_owned(),
        biz_type: "A\u{1b}[2J".to_owned(),
        biz_id: "B\n2026 seq 8".to_owned(),
        biz_status: "C\u{202e}D".to_owned(),
        client_id: String::new(),
        data: String::new(),
        created_at: String::new(),
    };
    assert_eq!(name_of(&event), "seq 7 evt_1 A\u{fffd}[2J B\u{fffd}2026 seq 8 C\u{fffd}D");
}

#[test]
fn an_id_that_is_no_header_is_none_of_the_service() {
    assert!(is_id("evt_0192a8f0c4") && is_id(&"a".repeat(ID_CHARS_MAX)));
    for other in ["", "evt\nX", "evt\r\nX: y", "\u{1}", "\u{e9}", "a b", &"a".repeat(ID_CHARS_MAX + 1)] {
        assert!(!is_id(other), "{other:?}");
    }
}

/// What is said of an address whose every connection is answered with these bytes.
fn said_of(scheme: &str, answer: &'static [u8]) -> String {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("{scheme}://{}", listener.local_addr().expect("bound"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("one comes");
        let asked = stream.read(&mut [0; 4096]).expect("it asks");
        stream.write_all(answer).expect("it is answered");
        asked
    });
    let secret = "0123456789abcdef0123456789abcdef";
    let client = Client::builder(&url, "app", secret).build().expect("a client");
    let asked = async { client.events(&Request { after: 0, limit: 1 }).await.expect_err("nobody answers so") };
    let error = crate::cli::small_runtime().expect("a runtime").block_on(asked);
    assert!(server.join().expect("it ends") > 0);
    // A mistake in the address while nobody has answered there; later on it may be somebody in between.
    assert!(!may_pass(&error, Server::Unknown, 0) && may_pass(&error, Server::HasAnswered, 0), "{error:?}");
    causes(&error)
}

#[test]
fn a_scheme_that_is_not_the_ports_is_named() {
    let tls = said_of("https", b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    assert!(tls.ends_with(": the endpoint does not speak TLS on this port"), "{tls}");
    // An alert, as a listener for TLS answers what it cannot read.
    let plain = said_of("http", b"\x15\x03\x01\x00\x02\x02\x32");
    assert!(plain.ends_with(": does not answer in HTTP: where it speaks TLS, say https://"), "{plain}");
}

fn refused(code: Code, http_status: u16) -> Error {
    let (label, message) = (String::new(), String::new());
    Error::Refused { code, label, message, http_status, request_id: None, retry_after_s: None }
}

#[test]
fn a_clock_that_is_set_between_a_question_and_its_repeat_ends_nothing() {
    let refusal = refused(Code::TimestampOutOfRange, 401);
    assert!(may_pass(&refusal, Server::HasAnswered, 99) && !may_pass(&refusal, Server::Unknown, RESTORED_TRIES + 1));
    // A service that was restored just now takes nothing for a while.
    let mut waits = Waits::default();
    let waited: Duration = (0..RESTORED_TRIES).map(|_| waits.next()).sum();
    assert!(may_pass(&refusal, Server::Unknown, RESTORED_TRIES));
    assert!((35..60).contains(&waited.as_secs()), "{waited:?}");
    for server in [Server::Unknown, Server::HasAnswered] {
        assert!(!may_pass(&refused(Code::InvalidSignature, 401), server, 0), "another secret does not come by itself");
    }
}

#[test]
fn nobody_is_asked_sooner_than_he_wants_nor_than_the_waits_have_come_to() {
    let busy = |retry_after_s| {
        let (label, message) = (String::new(), String::new());
        let code = Code::ServiceUnavailable;
        Error::Refused { code, label, message, http_status: 503, request_id: None, retry_after_s }
    };
    let mut waits = Waits::default();
    let waited = [None, Some(30), Some(1), Some(3_600), Some(0), None].map(|s| waits.next_after(&busy(s)).as_millis());
    assert_eq!(waited, [500, 30_000, 2_000, 3_600_000, 10_000, 10_000]);
    let (why, body_begins) = (String::new(), String::new());
    let page = Error::Unreadable {
        http_status: 503,
        why,
        body_begins,
        request_id: None,
        date_ms: None,
        retry_after_s: Some(3_600),
    };
    assert_eq!(Waits::default().next_after(&page).as_secs(), 60, "the service did not say so");
}

#[test]
fn what_stands_in_between_ends_nothing_once_the_service_has_answered() {
    let unreadable = |http_status, request_id| {
        let (why, body_begins) = (String::new(), String::new());
        Error::Unreadable { http_status, why, body_begins, request_id, date_ms: None, retry_after_s: None }
    };
    let page = |http_status| unreadable(http_status, None);
    for server in [Server::Unknown, Server::HasAnswered] {
        // A balancer that sent the question a second time.
        assert!(may_pass(&refused(Code::NonceReused, 401), server, 0));
        assert!(may_pass(&refused(Code::ServiceUnavailable, 503), server, 0) && may_pass(&page(502), server, 0));
        assert!(!may_pass(&refused(Code::InvalidParameter, 400), server, 0));
    }
    assert!(may_pass(&page(200), Server::HasAnswered, 0) && may_pass(&page(302), Server::HasAnswered, 0));
    assert!(may_pass(&page(500), Server::HasAnswered, 0) && may_pass(&page(522), Server::Unknown, 0));
    for status in [200, 302, 404, 500, 501] {
        assert!(!may_pass(&page(status), Server::Unknown, 0), "it may be the wrong address");
    }
    let own = unreadable(200, Some("ab".to_owned()));
    assert!(!may_pass(&own, Server::HasAnswered, 0), "the service itself says what this program does not know");
}

#[test]
fn what_the_service_says_shows_that_it_is_there_but_for_what_is_out_of_time() {
    let said = |code| {
        let (label, message, request_id) = (String::new(), String::new(), Some("ab".to_owned()));
        Error::Refused { code, label, message, http_status: 400, request_id, retry_after_s: None }
    };
    assert!(is_of_the_service(&said(Code::EventsGone)) && is_of_the_service(&said(Code::ServiceUnavailable)));
    assert!(!is_of_the_service(&said(Code::TimestampOutOfRange)));
    assert!(!is_of_the_service(&refused(Code::EventsGone, 410)), "somebody else's, without a request id");
}
