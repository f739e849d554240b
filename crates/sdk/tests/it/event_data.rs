//! The data of the events that the service emits by itself. A journey in `crates/testkit` holds it against what a real server emits.

use countersign_sdk::event_data::{PAYMENT_ORDER, PAYMENT_ORDER_FAMILY, TEST};
use countersign_sdk::protocol::callback::{CallbackBody, callback_nonce};
use countersign_sdk::{CallbackVerifier, Decimal, EventData, PaymentOrderData, PaymentOrderStatus};
use serde_json::{Value, json};

use crate::callback::{Request, body};
use crate::stub::{CLIENT_ID, NOW_MS, SECRET};

const PROTOCOL: &str = include_str!("../../../../docs/PROTOCOL.md");

/// The data of the callback that the page of the protocol shows, to the letter.
fn shown() -> String {
    let line = PROTOCOL.lines().find(|line| line.starts_with(r#"{"bizType""#)).expect("the callback is there");
    serde_json::from_str::<CallbackBody>(line).expect("a callback's body").data
}

/// An order that was never paid, to the letter as the server tells of it.
const EXPIRED: &str = r#"{"merchantTradeNo":"T-2","prepayId":"28837461923840192004218","currency":"USDT","orderAmount":"5000000","actualAmount":null,"status":"EXPIRED","createTime":1767225600000,"transactTime":null}"#;

fn read(data: &str) -> PaymentOrderData {
    match EventData::read(PAYMENT_ORDER, data) {
        Ok(EventData::PaymentOrder(order)) => order,
        other => panic!("{data}: {other:?}"),
    }
}

fn decimal(text: &str) -> Decimal {
    Decimal::from_str_exact(text).expect("a number")
}

#[test]
fn the_data_of_a_payment_order_is_read_whole_and_written_as_it_came() {
    let paid = read(&shown());
    let wanted = PaymentOrderData {
        merchant_trade_no: "T-1".to_owned(),
        prepay_id: "28837461923840192004217".to_owned(),
        currency: "USDT".to_owned(),
        order_amount: decimal("10.5"),
        actual_amount: Some(decimal("10.5")),
        status: PaymentOrderStatus::Paid,
        create_time: 1_767_225_600_000,
        transact_time: Some(1_767_225_660_000),
    };
    assert_eq!(paid, wanted);
    let expired = read(EXPIRED);
    assert_eq!((expired.actual_amount, expired.transact_time), (None, None), "what is not known is null");
    assert_eq!((expired.order_amount, &expired.status), (decimal("5000000"), &PaymentOrderStatus::Expired));
    for (data, order) in [(shown(), paid), (EXPIRED.to_owned(), expired)] {
        assert_eq!(serde_json::to_string(&order).expect("JSON"), data, "no field is left out");
    }
}

#[test]
fn an_amount_keeps_its_digits_and_what_is_none_is_refused() {
    let with = |amount: &Value| {
        let mut data: Value = serde_json::from_str(&shown()).expect("JSON");
        data["actualAmount"] = amount.clone();
        EventData::read(PAYMENT_ORDER, &data.to_string())
    };
    for text in ["0.0001", "4999999.999999", "5000000", "0.000008"] {
        let Ok(EventData::PaymentOrder(order)) = with(&json!(text)) else { panic!("{text}") };
        assert_eq!(order.actual_amount.map(|amount| amount.to_string()).as_deref(), Some(text));
    }
    let padded = PaymentOrderData { order_amount: decimal("12.500000"), ..read(&shown()) };
    assert_eq!(serde_json::to_value(&padded).expect("JSON")["orderAmount"], "12.5", "written without trailing zeros");
    for refused in
        [json!(10.5), json!(""), json!("."), json!("1e3"), json!("1_000"), json!("+1"), json!("-1"), json!([])]
    {
        let error = with(&refused).expect_err("no amount").to_string();
        assert!(error.contains("is no amount") || error.contains("invalid type"), "{refused}: {error}");
    }
}

#[test]
fn what_is_newer_than_the_sdk_is_ignored_or_kept() {
    let mut data: Value = serde_json::from_str(&shown()).expect("JSON");
    data["refundedAmount"] = json!({"of": "tomorrow"});
    data["status"] = json!("REFUNDED");
    let order = read(&data.to_string());
    assert_eq!(order.status, PaymentOrderStatus::Other("REFUNDED".to_owned()));
    assert!(!order.status.is_final(), "nobody knows");
    assert_eq!(serde_json::to_value(&order).expect("JSON")["status"], "REFUNDED");
    for nullable in ["actualAmount", "transactTime"] {
        data.as_object_mut().expect("an object").remove(nullable);
    }
    let order = read(&data.to_string());
    assert_eq!((order.actual_amount, order.transact_time), (None, None), "absent is null");
}

#[test]
fn each_state_of_an_order_has_its_word_and_three_are_final() {
    let table = [
        ("PENDING", PaymentOrderStatus::Pending, false),
        ("PROCESS", PaymentOrderStatus::Process, false),
        ("PAID", PaymentOrderStatus::Paid, true),
        ("EXPIRED", PaymentOrderStatus::Expired, true),
        ("CLOSED", PaymentOrderStatus::Closed, true),
        ("paid", PaymentOrderStatus::Other("paid".to_owned()), false),
    ];
    for (word, status, is_final) in table {
        assert_eq!(PaymentOrderStatus::from(word), status);
        assert_eq!((status.as_str(), status.to_string().as_str(), status.is_final()), (word, word, is_final));
    }
}

#[test]
fn the_kind_of_an_event_says_what_its_data_is() {
    let data = shown();
    let told = |biz_type: &str, data: &str| {
        let body = CallbackBody { biz_type: biz_type.to_owned(), data: data.to_owned(), ..body() };
        let request = Request::signed(SECRET, NOW_MS, &callback_nonce(1), body.to_bytes());
        let verifier = CallbackVerifier::new(CLIENT_ID, SECRET).expect("a secret");
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        verifier.verify(header, &request.body, NOW_MS).expect("genuine").event_data()
    };
    for kind in [PAYMENT_ORDER, PAYMENT_ORDER_FAMILY] {
        assert_eq!(told(kind, &data).ok(), Some(EventData::PaymentOrder(read(&data))), "{kind}");
        // A back end can emit such an event by itself, with data of its own.
        told(kind, r#"{"merchantTradeNo":"T-1"}"#).expect_err("not what the service writes");
    }
    assert_eq!(told(TEST, "{}").ok(), Some(EventData::Test));
    for other in ["TRANSFER_ADDRESS", "KIND_OF_TOMORROW", "payment_order"] {
        assert_eq!(told(other, "no JSON").ok(), Some(EventData::Other), "{other}");
    }
}
