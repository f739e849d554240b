//! Receivers that look at what is told: one that reads it as the service writes it, and one that takes only what it knows.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_sdk::event_data::EventData;

use super::*;

struct Reader {
    verifier: CallbackVerifier,
    /// Whether it was told of an order that is not paid yet.
    has_begun: AtomicBool,
}

/// Of a payment order it takes only what the service itself could say.
async fn read(State(reader): State<Arc<Reader>>, headers: HeaderMap, body: Bytes) -> Response {
    const IN_ORDER: [&str; 8] = [
        "merchantTradeNo",
        "prepayId",
        "currency",
        "orderAmount",
        "actualAmount",
        "status",
        "createTime",
        "transactTime",
    ];
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let event = match reader.verifier.verify_now(header, &body) {
        Ok(event) => event,
        Err(refused) => return (StatusCode::UNAUTHORIZED, callback::failed(&refused.to_string())).into_response(),
    };
    let is_read = match event.event_data() {
        Ok(EventData::PaymentOrder(order)) => {
            let word = if order.status.as_str() == "PAID" { "SUCCESS" } else { order.status.as_str() };
            reader.has_begun.fetch_or(word == "PROCESS", Ordering::SeqCst);
            let places = IN_ORDER.map(|name| event.data.find(&format!("\"{name}\":")));
            order.prepay_id == event.biz_id
                && (20..=24).contains(&event.biz_id.len())
                && event.biz_id.bytes().all(|digit| digit.is_ascii_digit())
                && event.biz_status == word
                && (order.actual_amount.is_some() && order.transact_time.is_some()) == (word == "SUCCESS")
                && places.iter().all(Option::is_some)
                && places.is_sorted()
        }
        Ok(_) => event.biz_type == "KIND_OF_TOMORROW",
        Err(_) => false,
    };
    let said = if is_read { callback::processed() } else { callback::failed("nobody says such a thing") };
    (StatusCode::OK, said).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_reads_each_word_of_the_data_passes() {
    let reader = Arc::new(Reader { verifier: verifier(), has_begun: AtomicBool::new(false) });
    let routes = Router::new().route("/callback", post(read)).with_state(Arc::clone(&reader));
    assert_eq!(found(routes).await, (vec![], Some(0)));
    assert!(reader.has_begun.load(Ordering::SeqCst), "the first event of an order that is told of in two");
}

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
    // Its first event has come long ago: that none comes without it cannot be shown.
    let output = certify(address, &words[1..]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("\n26 of 26 checks passed.\n") && !said.contains("first-missing"), "{said}");
    // Of an order that nobody made it says so.
    let output = certify(address, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("0 of 27 checks passed, 1 failed, 26 could not be told.\n"), "{said}");
    assert!(said.contains("returnCode that is not SUCCESS: no such order"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
