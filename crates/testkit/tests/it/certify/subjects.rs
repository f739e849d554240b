//! A receiver that takes only what it knows: it is told of an order of its own, in words of its own.

use std::io::Write as _;

use super::*;

async fn receive(State(verifier): State<Arc<CallbackVerifier>>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let event = match verifier.verify_now(header, &body) {
        Ok(event) => event,
        Err(refused) => return (StatusCode::UNAUTHORIZED, callback::failed(&refused.to_string())).into_response(),
    };
    let data: Value = serde_json::from_str(&event.data).expect("JSON");
    let is_known = match event.biz_type.as_str() {
        "PAY" => event.biz_id == "order-7" && event.biz_status == "PAY_SUCCESS" && data["trade"] == "T-7",
        "PAYMENT_ORDER" => false,
        _ => true,
    };
    let said = if is_known { callback::processed() } else { callback::failed("no such order") };
    (StatusCode::OK, said).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_looks_orders_up_is_told_of_one_that_it_has() {
    let verifier = Arc::new(verifier());
    let address = listens(Router::new().route("/callback", post(receive)).with_state(verifier)).await;
    let mut data = tempfile::NamedTempFile::new().expect("is made");
    writeln!(data, r#"{{"trade": "T-7"}}"#).expect("is written");
    let data = data.path().to_str().expect("a path");
    let words = ["--json", "--biz-type", "PAY", "--biz-status", "PAY_SUCCESS", "--biz-id", "order-7", "--data", data];
    assert_eq!(found_with(address, &words).await, (vec![], Some(0)));
    // Of an order that nobody made it says so.
    let output = certify(address, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("returnCode that is not SUCCESS: no such order"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
