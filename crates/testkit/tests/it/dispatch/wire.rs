//! What an attempt leaves behind of its connection: phases, and the bytes of both sides.

use countersign_store::attempt_log::AttemptBytes;
use countersign_testkit::receiver::Reply;
use countersign_testkit::refusing::Refusing;

use super::*;

/// What is kept of an attempt, 1, 2, ...
async fn bytes(bench: &Bench, event: &EventRow, number: usize) -> Option<AttemptBytes> {
    let (event, attempts) = bench.read(event.event_id).await;
    let attempt = &attempts[number - 1];
    let found = bench.app.store.attempt_bytes(event.tenant, event.no, attempt.attempt, attempt.at).await;
    found.expect("the store reads")
}

#[tokio::test]
async fn the_head_is_kept_as_it_went_out_and_the_answer_as_it_came_in_on_new_and_kept_connections() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::SuccessKeeping);
    let owner = bench.owner(Some(endpoint.url())).await;
    for number in 0..3 {
        let event = bench.emit(&owner, &format!("order {number}")).await;
        assert_eq!(bench.deliver().await, 1);
        let kept = bytes(&bench, &event, 1).await.expect("something went over the wire");
        let came = endpoint.received().pop().expect("it came");
        assert_eq!(String::from_utf8_lossy(&kept.sent_head), String::from_utf8_lossy(&came.head));
        assert!(kept.sent_head.starts_with(b"POST /callbacks HTTP/1.1\r\n"));
        let head = "HTTP/1.1 200 Scripted\r\nContent-Type: application/json\r\nKeep-Alive: timeout=60\r\nContent-Length: 43\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&kept.answer_head), head);
        assert_eq!(kept.answer_body, br#"{"returnCode":"SUCCESS","returnMessage":""}"#);
        assert_eq!((kept.answer_length, kept.is_cut), (43, false));

        let phases = bench.read(event.event_id).await.1[0].phases;
        assert_eq!(phases.reused, Some(number > 0));
        assert_eq!(phases.connect_us.is_some(), number == 0, "a kept connection needs none");
        assert_eq!((phases.dns_us, phases.tls_us), (None, None), "an address, and no TLS");
        let (first, total) = (phases.first_byte_us.expect("it came"), phases.total_us.expect("it ended"));
        assert!(first + phases.connect_us.unwrap_or(0) <= total, "{phases:?}");
    }
    assert_eq!(endpoint.received().last().map(|came| came.connection), Some(1));
}

#[tokio::test]
async fn over_tls_the_clear_bytes_are_kept_and_every_phase_is_timed() {
    let endpoint = Receiver::start_tls().await.expect("a loopback port");
    let bench = Bench::with(DispatchSettings { extra_roots: endpoint.ca_pem(), ..settings() }).await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    let kept = bytes(&bench, &event, 1).await.expect("something went over the wire");
    assert_eq!(kept.sent_head, endpoint.received()[0].head);
    assert!(kept.answer_head.starts_with(b"HTTP/1.1 200 "));
    let phases = bench.read(event.event_id).await.1[0].phases;
    let all = [phases.dns_us, phases.connect_us, phases.tls_us, phases.first_byte_us, phases.total_us];
    let parts: i64 = all[..4].iter().map(|us| us.expect("it happened")).sum();
    assert!(parts <= phases.total_us.expect("it ended"), "{phases:?}");
}

#[tokio::test]
async fn the_body_of_a_refusal_is_kept_up_to_its_bound_and_decides_nothing() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let answer = |body: usize, said: usize| {
        [format!("HTTP/1.1 503 Busy\r\nContent-Length: {said}\r\n\r\n").into_bytes(), vec![b'x'; body]].concat()
    };
    let replies = [
        (Reply::Raw(answer(5, 5)), 5, false),
        (Reply::Raw(answer(16 * 1024, 16 * 1024)), 16 * 1024, false),
        (Reply::Raw(answer(1_000_000, 1_000_000)), 16 * 1024, true),
        // It breaks off, or nothing more comes.
        (Reply::Raw(answer(5, 500)), 5, false),
        (Reply::HangAfter(answer(5, 500)), 5, true),
    ];
    for (at, (reply, length, is_cut)) in replies.into_iter().enumerate() {
        endpoint.script([reply]);
        let event = bench.emit(&owner, &format!("order {at}")).await;
        assert_eq!(bench.deliver().await, 1);
        let attempt = bench.read(event.event_id).await.1.remove(0);
        assert_eq!((attempt.outcome, attempt.http_status), (Outcome::HttpStatus, Some(503)));
        assert_eq!(attempt.detail, "answered 503");
        let kept = bytes(&bench, &event, 1).await.expect("something went over the wire");
        assert_eq!((kept.answer_body.len(), kept.is_cut), (length, is_cut));
        assert!(kept.answer_length >= i64::try_from(length).expect("small"));
    }
}

#[tokio::test]
async fn of_a_large_answer_the_beginning_is_kept_and_its_length_so_far() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::Padded(60_000), Reply::Padded(16 * 1024)]);
    for (length, is_cut) in [(60_000, true), (16 * 1024, false)] {
        let event = bench.emit(&owner, &length.to_string()).await;
        assert_eq!(bench.deliver().await, 1);
        assert_eq!(bench.state(&event).await, DeliveryState::Delivered);
        let kept = bytes(&bench, &event, 1).await.expect("something went over the wire");
        assert_eq!((kept.answer_length, kept.is_cut, kept.answer_body.len()), (length, is_cut, 16 * 1024));
    }
}

#[tokio::test]
async fn where_time_runs_out_in_the_middle_of_an_answer_there_may_be_more_of_it() {
    let mut bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let begun = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 500\r\n\r\nbegun").into_bytes();
    for (status, outcome) in [("200 OK", Outcome::Timeout), ("503 Busy", Outcome::HttpStatus)] {
        endpoint.answer_with(Reply::HangAfter(begun(status)));
        let (event, attempt, _) = bench.run_out(&owner, status, |attempt| attempt.http_status.is_some()).await;
        assert_eq!(attempt.outcome, outcome);
        let kept = bytes(&bench, &event, 1).await.expect("something went over the wire");
        assert_eq!((kept.answer_body.as_slice(), kept.is_cut), (&b"begun"[..], true), "{status}");
    }
}

#[tokio::test]
async fn where_large_answers_are_many_little_of_each_is_kept_and_they_count_all_the_same() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    // 15 KiB more than is kept in any case, and 4 MiB of that at once.
    endpoint.answer_with(Reply::Padded(16 * 1024));
    let mut events = Vec::new();
    for no in 0..600 {
        events.push(bench.emit(&owner, &no.to_string()).await);
    }
    while bench.deliver().await > 0 {}
    let mut kept = Vec::new();
    for event in &events {
        assert_eq!(bench.state(event).await, DeliveryState::Delivered);
        let bytes = bytes(&bench, event, 1).await.expect("something went over the wire");
        assert_eq!(bytes.answer_length, 16 * 1024);
        kept.push((bytes.answer_body.len(), bytes.is_cut));
    }
    let whole = kept.iter().filter(|kept| **kept == (16 * 1024, false)).count();
    let cut = kept.iter().filter(|kept| **kept == (1024, true)).count();
    assert_eq!(whole + cut, 600);
    assert!(whole >= 273 && cut > 0, "{whole} whole, {cut} cut");
}

#[tokio::test]
async fn what_came_is_kept_also_where_it_is_no_http_or_only_a_part() {
    let mut bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let cases = [
        (Reply::Garbage, Outcome::Unreadable, "\0\u{1}\u{2} this is not HTTP\r\n\r\n".to_owned()),
        (
            Reply::Raw(b"HTTP/1.1 200 OK\r\nConte".to_vec()),
            Outcome::ConnectFailed,
            "HTTP/1.1 200 OK\r\nConte".to_owned(),
        ),
        (Reply::Raw(format!("{hints}{last}{{}}").into_bytes()), Outcome::Unreadable, format!("{hints}{last}")),
    ];
    for (at, (reply, outcome, head)) in cases.into_iter().enumerate() {
        endpoint.script([reply]);
        let event = bench.emit(&owner, &format!("order {at}")).await;
        assert_eq!(bench.deliver().await, 1);
        assert_eq!(bench.read(event.event_id).await.1[0].outcome, outcome, "{head:?}");
        came(&bench, &event, &head).await;
    }
    for (reply, head) in [(Reply::HangAfter(b"HTTP/1.1 2".to_vec()), "HTTP/1.1 2"), (Reply::Hang, "")] {
        endpoint.answer_with(reply);
        let has_come = |attempt: &AttemptRow| {
            attempt.phases.first_byte_us.is_some()
                || head.is_empty() && attempt.detail.ends_with("the head of the answer")
        };
        let (event, attempt, _) = bench.run_out(&owner, &format!("{head:?}"), has_come).await;
        assert_eq!(attempt.outcome, Outcome::Timeout, "{head:?}");
        came(&bench, &event, head).await;
    }
}

/// The request was sent, and this is kept of what came.
async fn came(bench: &Bench, event: &EventRow, head: &str) {
    let phases = bench.read(event.event_id).await.1[0].phases;
    assert_eq!(phases.first_byte_us.is_some(), !head.is_empty(), "{head:?}");
    let kept = bytes(bench, event, 1).await.expect("something went over the wire");
    assert!(kept.sent_head.starts_with(b"POST "), "{head:?}");
    assert_eq!(String::from_utf8_lossy(&kept.answer_head), head);
}

#[tokio::test]
async fn where_nothing_went_over_the_wire_nothing_is_kept() {
    let bench = Bench::new().await;
    let refusing = Refusing::take().expect("a loopback port");
    let url = format!("http://{}/", refusing.address().expect("has one"));
    let owner = bench.owner(Some(url)).await;
    let event = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.outcomes(&event).await, [Outcome::ConnectFailed]);
    assert_eq!(bytes(&bench, &event, 1).await, None);
    let phases = bench.read(event.event_id).await.1[0].phases;
    assert_eq!((phases.reused, phases.first_byte_us), (None, None));
    assert!(phases.connect_us.is_some() && phases.total_us.is_some(), "it was tried");
}

#[tokio::test]
async fn interim_answers_without_end_are_cut_off_by_their_size() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::HangAfter("HTTP/1.1 100 Continue\r\n\r\n".repeat(4_000).into_bytes())]);
    let event = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    let attempt = bench.read(event.event_id).await.1.remove(0);
    assert_eq!(
        (attempt.outcome, attempt.detail.as_str()),
        (Outcome::Unreadable, "the head of the answer is too large")
    );
    assert_eq!(bytes(&bench, &event, 1).await.expect("something came").answer_head.len(), 32 * 1024);
}
