use std::time::Duration;

use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::convert_order;
use countersign_sdk::{Client, Error};

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
        assert_eq!(error.to_string(), format!("{} ({}): say what to change", code.label(), code.code()));
        let may_have_been_done = [Code::InternalError, Code::NonceReused].contains(&code);
        assert_eq!(error.may_have_been_done(), may_have_been_done, "{code:?}");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert_eq!((error.http_status(), error.label()), (Some(code.http_status()), Some(code.label())));
        assert_eq!((error.message(), error.retry_after()), (Some("say what to change"), Some(Duration::from_secs(7))));
        stub.seen();
    }
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

#[tokio::test]
async fn what_is_not_of_this_service_is_unreadable_and_never_a_success() {
    let good = r#"{"status":"SUCCESS","code":"000000","label":"","errorMessage":"","data":"#;
    let table = [
        (502, "<html>Bad Gateway</html>".to_owned()),
        (200, String::new()),
        (200, "[]".to_owned()),
        (200, format!("{good}null}}")),
        (200, format!(r#"{good}{{"order_id":"1"}}}}"#)),
        (500, format!("{good}{{}}}}")),
    ];
    let stub = Stub::start().await;
    let client = stub.client().build().expect("a client");
    for (status, body) in table {
        stub.answers([page(status, &body)]);
        let error = ask(&client).await;
        assert!(matches!(&error, Error::Unreadable { http_status, .. } if *http_status == status), "{body}: {error:?}");
        assert!(error.may_have_been_done());
        assert_eq!((error.http_status(), error.message(), error.retry_after()), (Some(status), None, None));
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
