use std::time::Duration;

use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::convert_order;
use countersign_sdk::{Advice, Client, Error};

use crate::client::order;
use crate::stub::{Canned, Stub, failure};

async fn ask(client: &Client) -> Error {
    let request = convert_order::Request { order_id: "123".to_owned() };
    client.convert_order(&request).await.expect_err("it was told to refuse")
}

fn page(status: u16, body: &str) -> Canned {
    Canned { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
}

#[tokio::test]
async fn every_code_comes_out_typed_with_all_that_the_server_said() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    for code in Code::ALL.iter().copied() {
        let answer = failure(code, "say what to change").with("x-service-request-id", "req_1").with("retry-after", "7");
        let answers =
            if code == Code::TimestampOutOfRange { vec![answer.clone(), answer.clone(), answer] } else { vec![answer] };
        stub.answers(answers);
        let error = ask(&client).await;
        assert_eq!((error.code(), error.request_id()), (Some(code), Some("req_1")));
        let said = format!("{} ({}): say what to change (request req_1)", code.label(), code.code());
        assert_eq!(error.to_string(), said);
        let may_have_been_done = [Code::InternalError, Code::NonceReused].contains(&code);
        assert_eq!(error.may_have_been_done(), may_have_been_done, "{code:?}");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert_eq!((error.http_status(), error.label()), (Some(code.http_status()), Some(code.label())));
        assert_eq!((error.message(), error.retry_after()), (Some("say what to change"), Some(Duration::from_secs(7))));
        stub.seen();
    }
}

/// The table "What may be repeated" of docs/PROTOCOL.md, code by code.
#[tokio::test]
async fn each_code_has_the_advice_of_the_protocol() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    for code in Code::ALL.iter().copied() {
        let wanted = match code {
            Code::RateLimited | Code::ServiceUnavailable => Advice::RepeatLater,
            Code::InternalError | Code::NonceReused => Advice::RepeatOrFindOut,
            Code::TimestampOutOfRange => Advice::SetClock,
            _ => Advice::Change,
        };
        stub.answers(std::iter::repeat_n(failure(code, "no"), if code == Code::TimestampOutOfRange { 3 } else { 1 }));
        let error = ask(&client).await;
        assert_eq!((error.advice(), error.is_temporary()), (wanted, wanted != Advice::Change), "{code:?}");
    }
    let newly =
        |status| page(status, r#"{"status":"FAIL","code":"499999","label":"NEW","errorMessage":"no","data":null}"#);
    for (answer, wanted) in [
        (newly(429), Advice::RepeatLater),
        (newly(409), Advice::Change),
        (newly(500), Advice::RepeatOrFindOut),
        (newly(503), Advice::RepeatOrFindOut),
        (page(429, "<html>"), Advice::RepeatOrFindOut),
        (page(404, "<html>"), Advice::RepeatOrFindOut),
    ] {
        stub.answers([answer]);
        assert_eq!(ask(&client).await.advice(), wanted);
    }
    assert_eq!(Error::Usage("no".to_owned()).advice(), Advice::Change);
}

#[tokio::test]
async fn what_something_on_the_way_sent_twice_may_have_been_done() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    // The first copy was answered to a connection that had broken; the second one uses the same nonce.
    stub.answers([failure(Code::NonceReused, "this nonce was used before")]);
    let error = ask(&client).await;
    assert!(error.may_have_been_done(), "{error:?}");
    assert_eq!(stub.seen().len(), 1, "it is not for the client to ask again");
}

#[tokio::test]
async fn a_code_of_tomorrow_is_a_refusal_too() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    let body = r#"{"status":"FAIL","code":"499999","label":"BRAND_NEW","errorMessage":"not yet known","data":null}"#;
    stub.answers([page(409, body).with("retry-after", "7")]);
    let error = ask(&client).await;
    assert_eq!((error.code(), error.may_have_been_done()), (None, false));
    assert!(matches!(&error, Error::RefusedNewly { code, .. } if code == "499999"), "{error:?}");
    assert_eq!((error.http_status(), error.label()), (Some(409), Some("BRAND_NEW")));
    assert_eq!((error.message(), error.retry_after()), (Some("not yet known"), Some(Duration::from_secs(7))));
}

/// What looks like an answer of the service and is none.
fn not_of_this_service() -> Vec<(u16, String)> {
    let good = r#"{"status":"SUCCESS","code":"000000","label":"","errorMessage":"","data":"#;
    let fail = |code: &str, label: &str| {
        format!(r#"{{"status":"FAIL","code":"{code}","label":"{label}","errorMessage":"no","data":null}}"#)
    };
    let order = order().to_string();
    vec![
        (502, "<html>Bad Gateway</html>".to_owned()),
        (200, String::new()),
        (200, "[]".to_owned()),
        (200, format!(r#"["SUCCESS","000000","","",{order}]"#)),
        (200, format!("{good}null}}")),
        (200, format!(r#"{good}{{"order_id":"1"}}}}"#)),
        (500, format!("{good}{order}}}")),
        (302, format!("{good}{order}}}")),
        (200, format!("{good}{order}}}").replace("000000", "300001")),
        (200, format!("{good}{order}}}").replace(r#""label":"","#, "")),
        (200, format!("{good}{order}}}").replace(r#""errorMessage":"","#, "")),
        (200, format!("{good}{order}}}").replace("SUCCESS", "OK")),
        // Of gateways: nobody knows what they had sent on before.
        (504, r#"{"status":"error","code":"GATEWAY_TIMEOUT","message":"upstream timed out"}"#.to_owned()),
        (408, r#"{"status":"error","code":"UPSTREAM_TIMEOUT","message":"upstream timed out"}"#.to_owned()),
        (499, r#"{"status":"FAIL","code":"499","label":"X","errorMessage":"x","data":null}"#.to_owned()),
        (408, r#"{"status":"FAIL","code":"UPSTRM","label":"X","errorMessage":"x","data":null}"#.to_owned()),
        (408, r#"{"status":"FAIL","code":"499999","label":"X","errorMessage":"x"}"#.to_owned()),
        (408, fail("499999", "")),
        (408, fail("000000", "X")),
        (200, fail("499999", "BRAND_NEW")),
        (302, fail("499999", "BRAND_NEW")),
        (200, fail("400001", "INVALID_PARAMETER")),
        (502, fail("400001", "INVALID_PARAMETER")),
        (400, fail("400202", "ORDER_NOT_FOUND")),
    ]
}

#[tokio::test]
async fn what_is_not_to_the_letter_of_this_service_is_unreadable_and_may_have_been_done() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    for (status, body) in not_of_this_service() {
        stub.answers([page(status, &body)]);
        let error = ask(&client).await;
        assert!(matches!(&error, Error::Unreadable { http_status, .. } if *http_status == status), "{body}: {error:?}");
        assert!(error.may_have_been_done());
        assert_eq!((error.http_status(), error.code(), error.message()), (Some(status), None, None));
        assert_eq!(error.retry_after(), None);
        // Nor is a clock put right by it.
        stub.answers([page(status, &body)]);
        assert_eq!(client.call("GET", "/x", b"").await.expect("an answer").code(), None, "{body}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_says_what_it_is_and_when_to_come_again() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    let busy = page(503, "<html>\u{1b}[2Jbusy</html>").with("x-service-request-id", "req_3").with("retry-after", "7");
    stub.answers([busy.with("date", "Fri, 02 Jan 2026 00:00:00 GMT")]);
    let error = ask(&client).await;
    let said = "the answer (HTTP 503) cannot be read: it is no envelope: it is no JSON object; it begins with <html>\\u{1b}[2Jbusy</html> (request req_3)";
    assert_eq!(error.to_string(), said);
    assert_eq!((error.retry_after(), error.request_id()), (Some(Duration::from_secs(7)), Some("req_3")));
    assert!(matches!(error, Error::Unreadable { date_ms: Some(1_767_312_000_000), .. }), "{error:?}");
}

/// The second of them counts from the present as the client's clock has it, 2026-01-01 00:00:00.
#[tokio::test]
async fn a_retry_after_may_be_a_date_and_is_an_hour_at_most() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    let at = "Fri, 02 Jan 2026 00:00:05 GMT";
    for (date, retry_after, seconds) in [
        (Some("Fri, 02 Jan 2026 00:00:00 GMT"), at, Some(5)),
        (None, "Thu, 01 Jan 2026 00:00:03 GMT", Some(3)),
        (None, at, Some(3_600)),
        (None, "4294967295", Some(3_600)),
        (None, "soon", None),
    ] {
        for answer in [failure(Code::ServiceUnavailable, "later"), page(503, "<html>")] {
            // The stub's own server adds a date where there is none.
            let answer = answer.with("date", date.unwrap_or("-")).with("retry-after", retry_after);
            stub.answers([answer]);
            let wanted = seconds.map(Duration::from_secs);
            assert_eq!(ask(&client).await.retry_after(), wanted, "{date:?} {retry_after}");
        }
    }
}

const OWN_ID: &str = "0123456789abcdef0123456789ab";
/// As long as a trace's.
const LONGER_ID: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn the_request_id_is_found_under_the_prefix_that_the_deployment_answers_with() {
    let stub = Stub::start().await;
    let client = stub.client().header_prefix("X-Other-").build().expect("a client");
    let refusal = || failure(Code::OrderNotFound, "none");
    for (answer, wanted) in [
        (refusal().with("x-request-id", "of a balancer").with("x-service-request-id", "req_1"), Some("req_1")),
        (refusal().with("x-service-request-id", "of another").with("x-other-request-id", "req_2"), Some("req_2")),
        (refusal().with("x-request-id", "req_3"), Some("req_3")),
        // The service's own has a form that tells it from those of what lies between, whatever comes first.
        (refusal().with("x-amz-request-id", "2f1a").with("x-service-request-id", OWN_ID), Some(OWN_ID)),
        (refusal().with("x-service-request-id", OWN_ID).with("x-amz-request-id", "2f1a"), Some(OWN_ID)),
        (refusal().with("x-amz-request-id", LONGER_ID).with("x-service-request-id", OWN_ID), Some(OWN_ID)),
        // A deployment whose prefix is X- alone.
        (refusal().with("x-amz-request-id", "2f1a").with("x-request-id", OWN_ID), Some(OWN_ID)),
        (refusal(), None),
        (page(502, "<html>").with("x-request-id", "of a balancer"), None),
        (page(502, "<html>").with("x-other-request-id", "req_4"), Some("req_4")),
    ] {
        stub.answers([answer]);
        assert_eq!(ask(&client).await.request_id(), wanted);
    }
}

#[tokio::test]
async fn the_answer_of_a_raw_call_comes_byte_for_byte_refusals_too() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    let refusal = failure(Code::OrderNotFound, "none")
        .with("x-service-request-id", "req_2")
        .with("date", "Fri, 02 Jan 2026 00:00:00 GMT");
    stub.answers([refusal.clone(), page(200, "\u{0}not JSON")]);
    let answer = client.call("GET", "/x", b"").await.expect("an answer");
    assert_eq!((answer.http_status, &answer.body), (404, &refusal.body));
    assert_eq!((answer.request_id.as_deref(), answer.date_ms), (Some("req_2"), Some(1_767_312_000_000)));
    assert_eq!(answer.code(), Some(Code::OrderNotFound));
    assert_eq!(client.call("GET", "/x", b"").await.expect("an answer").body, b"\0not JSON");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    stub.answers([page(307, "").with("location", "/elsewhere")]);
    assert!(matches!(ask(&client).await, Error::Unreadable { http_status: 307, .. }));
    assert_eq!(stub.seen().len(), 1);
}
