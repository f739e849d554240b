//! Answers that came before the endpoint had the request, or all of it, as a limiter gives that says 503 to each new connection. The HTTP library gives
//! up such a connection and what was answered with it; a refusal, and how long it asks to wait, counts all the same.

use countersign_domain::delivery::Outcome;
use countersign_domain::time::UnixMillis;
use httparse::{EMPTY_HEADER, Status};

use super::retry_after::retry_after_ms;

/// As many headers as the HTTP library reads of an answer.
const HEADERS_MAX: usize = 100;

/// What an endpoint answered too early.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub(super) outcome: Outcome,
    pub(super) http_status: u16,
    pub(super) retry_after_ms: Option<i64>,
    pub(super) detail: String,
}

/// Reads the heads that came; none: the last of them is not whole, or no answer.
pub(super) fn early(mut heard: &[u8], now: UnixMillis) -> Option<Early> {
    loop {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let Ok(Status::Complete(length)) = head.parse(heard) else { return None };
        let status = head.code?;
        if (100..200).contains(&status) && status != 101 {
            heard = &heard[length..];
            continue;
        }
        let retry_after = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("retry-after"));
        return Some(Early {
            // It is about a request that it has not read: it takes no callback, and ends none for good. That it has no time now may well be so.
            outcome: if matches!(status, 200..300 | 410) { Outcome::Unreadable } else { Outcome::HttpStatus },
            http_status: status,
            retry_after_ms: retry_after.and_then(|header| retry_after_ms(header.value, now)),
            detail: format!("answered {status} before it had the request"),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::Full;
    use hyper::Request;
    use hyper::body::Bytes;
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;
    use crate::dispatch::attempt::{broken, within};
    use crate::dispatch::connect::{Spelling, handshake};
    use crate::dispatch::tape::Taped;

    #[test]
    fn a_refusal_counts_with_what_it_asks_for_and_a_success_is_none() {
        let now = UnixMillis(0);
        let refused = early(b"HTTP/1.1 503 X\r\nretry-AFTER: 600\r\n\r\n", now).expect("is whole");
        assert_eq!(
            (refused.outcome, refused.http_status, refused.retry_after_ms),
            (Outcome::HttpStatus, 503, Some(600_000))
        );
        assert_eq!(
            early(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 X\r\n\r\n", now).expect("is whole").http_status,
            404
        );
        let gone = early(b"HTTP/1.1 410 Gone\r\n\r\n", now).expect("is whole");
        assert_eq!(gone.outcome, Outcome::Unreadable, "nothing is disabled by it");
        let success = early(b"HTTP/1.1 200 OK\r\n\r\n", now).expect("is whole");
        assert_eq!((success.outcome, success.http_status), (Outcome::Unreadable, 200));
    }

    #[tokio::test]
    async fn an_answer_that_is_there_before_the_first_byte_of_the_request_is_one_to_it() {
        let (ours, mut theirs) = duplex(1_024);
        let refusal = b"HTTP/1.1 503 X\r\nContent-Length: 4\r\nRetry-After: 600\r\n\r\nbusy";
        theirs.write_all(refusal).await.expect("there is room");
        let report = within(Duration::from_secs(60), async |progress, _| {
            let tape = progress.begin_alone();
            let (mut sender, mut works) = handshake(Taped::new(ours, tape), Spelling::Title).await?;
            let request = Request::new(Full::new(Bytes::from_static(b"{}")));
            let error = works.until(sender.send_request(request)).await.expect_err("the connection is given up");
            Err(broken(&error, UnixMillis(0), progress))
        })
        .await;
        assert_eq!(
            (report.outcome, report.http_status, report.retry_after_ms, report.detail.as_str()),
            (Outcome::HttpStatus, Some(503), Some(600_000), "answered 503 before it had the request")
        );
        let bytes = report.bytes.expect("something came");
        assert!(refusal.starts_with(&bytes.answer_head) && bytes.answer_head.ends_with(b"\r\n\r\n"));
        assert_eq!((bytes.sent_head.len(), bytes.is_cut), (0, true), "nobody has read the rest");
    }

    #[test]
    fn what_is_not_whole_or_no_answer_says_nothing() {
        for heard in
            [&b""[..], b"HTTP/1.1 503 X\r\nRetry-Af", b"HTTP/1.1 100 Continue\r\n\r\n", b"SSH-2.0-OpenSSH\r\n\r\n"]
        {
            assert_eq!(early(heard, UnixMillis(0)), None, "{heard:?}");
        }
    }
}
