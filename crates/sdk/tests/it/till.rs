//! The example `till`, against a server that answers what it was told to. A journey in `crates/testkit` shows it against a real one.

use std::time::Duration;

use countersign_sdk::protocol::code::Code;
use countersign_sdk::protocol::endpoint::{order_close, order_native, order_query};
use countersign_sdk::{Decimal, PaymentOrderStatus};
use serde_json::{Value, json};

use crate::stub::{Canned, Seen, Stub, failure, success};

#[expect(dead_code, reason = "the example's own main reads the command line")]
#[path = "../../examples/till.rs"]
mod example;

use example::{Patience, Sale, Till, exit_code, verdict};

/// So many looks, without a pause.
fn till(stub: &Stub, looks_max: u32) -> Till {
    let (between_looks, between_tries) = (Duration::ZERO, Duration::ZERO);
    let patience = Patience { looks_max, between_looks, between_tries, ..Patience::default() };
    Till { client: stub.client().build().expect("a client"), patience }
}

fn sale() -> Sale {
    Sale { trade_no: "T-1".to_owned(), currency: "USDT".to_owned(), amount: Decimal::new(125, 1) }
}

/// What the server says of an order.
fn order(status: &str) -> Canned {
    let is_paid = status == "PAID";
    success(&json!({
        "prepayId": "28837461923840192004217", "merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "12.5", "status": status,
        "terminalType": null, "createTime": 1_767_225_600_000_i64, "expireTime": 1_767_229_200_000_i64, "merchantId": "m",
        "transactTime": is_paid.then_some(1_767_225_660_000_i64), "goodsName": null, "channelId": null,
        "actualAmount": is_paid.then_some("12.5"), "fee": null, "qrContent": "https://pay.example/1", "location": "https://pay.example/1"
    }))
}

fn closed() -> Canned {
    success(&json!({"result": "SUCCESS"}))
}

/// No envelope: what a proxy says whose connection to the service broke.
fn lost() -> Canned {
    Canned { status: 502, headers: Vec::new(), body: b"<html>".to_vec() }
}

/// What it asked for: paths, each once for what came in a row.
fn paths(seen: &[Seen]) -> Vec<&str> {
    let mut paths: Vec<&str> = seen.iter().map(|seen| seen.uri.path()).collect();
    paths.dedup();
    paths
}

#[tokio::test]
async fn an_order_whose_answer_was_lost_is_asked_for_again_under_the_same_number_and_another_nonce() {
    let stub = Stub::start().await;
    let busy = failure(Code::ServiceUnavailable, "later").with("retry-after", "0");
    stub.answers([
        lost(),
        failure(Code::InternalError, "outcome unknown"),
        failure(Code::NonceReused, "sent twice on the way"),
        busy,
        failure(Code::RateLimited, "slower"),
        order("PENDING"),
    ]);
    let made = till(&stub, 1).sell(&sale()).await.expect("made");
    assert_eq!((made.qr_content.as_str(), made.order.status.as_str()), ("https://pay.example/1", "PENDING"));
    let seen = stub.seen();
    assert_eq!((seen.len(), paths(&seen)), (6, vec![order_native::PATH]));
    let wanted = json!({"merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "12.5"});
    let mut nonces = Vec::new();
    for seen in &seen {
        assert_eq!(serde_json::from_slice::<Value>(&seen.body).expect("JSON"), wanted);
        nonces.push(seen.header("x-service-nonce").expect("signed").to_owned());
    }
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), 6, "signed afresh each time");
}

#[tokio::test]
async fn what_is_refused_for_good_is_not_repeated_and_what_is_never_answered_has_an_end() {
    let stub = Stub::start().await;
    stub.answers([failure(Code::DuplicateTradeNo, "another amount")]);
    let refused = till(&stub, 1).sell(&sale()).await.expect_err("refused");
    assert!(format!("{refused:#}").contains("DUPLICATE_TRADE_NO"), "{refused:#}");
    assert_eq!(stub.seen().len(), 1);
    stub.answers(std::iter::repeat_n(lost(), 20));
    till(&stub, 1).sell(&sale()).await.expect_err("nobody answers");
    assert_eq!(stub.seen().len(), 8);
}

#[tokio::test]
async fn a_till_that_is_asked_to_wait_beyond_its_patience_gives_up_at_once() {
    let stub = Stub::start().await;
    let busy = || failure(Code::ServiceUnavailable, "later").with("retry-after", "61");
    stub.answers([busy(), order("PENDING")]);
    let refused = till(&stub, 1).sell(&sale()).await.expect_err("a minute is its bound");
    assert!(format!("{refused:#}").contains("SERVICE_UNAVAILABLE"), "{refused:#}");
    assert_eq!(stub.seen().len(), 1);
}

#[tokio::test]
async fn a_till_can_be_spawned() {
    let stub = Stub::start().await;
    stub.answers([lost(), order("PENDING"), order("PAID")]);
    let till = till(&stub, 10);
    let sold = tokio::spawn(async move {
        till.sell(&sale()).await?;
        till.outcome(&sale()).await
    });
    assert_eq!(sold.await.expect("it ends").expect("found").order.status, "PAID");
}

#[tokio::test]
async fn the_till_looks_until_the_order_is_final() {
    let stub = Stub::start().await;
    for (last, paid) in [("PAID", Some("12.5")), ("EXPIRED", None), ("CLOSED", None)] {
        stub.answers([order("PENDING"), lost(), order("PROCESS"), order(last)]);
        let found = till(&stub, 10).outcome(&sale()).await.expect("found");
        assert_eq!((found.order.status.as_str(), found.actual_amount.as_deref()), (last, paid));
        let seen = stub.seen();
        assert_eq!((seen.len(), paths(&seen)), (4, vec![order_query::PATH]), "and not once more");
        assert_eq!(seen[0].body.as_ref(), br#"{"merchantTradeNo":"T-1"}"#);
    }
}

#[tokio::test]
async fn a_till_that_nobody_answers_for_longer_than_a_call_looks_on() {
    let stub = Stub::start().await;
    let mut answers = vec![order("PENDING")];
    answers.extend((0..20).map(|_| lost()));
    answers.push(order("PAID"));
    stub.answers(answers);
    let found = till(&stub, 10).outcome(&sale()).await.expect("found");
    assert_eq!((found.order.status.as_str(), stub.seen().len()), ("PAID", 22));
}

#[tokio::test]
async fn what_is_not_paid_in_time_is_closed_and_the_answer_is_how_it_stands_then() {
    let stub = Stub::start().await;
    let looked_closed_looked = vec![order_query::PATH, order_close::PATH, order_query::PATH];
    let too_late = || failure(Code::InvalidOrderStatus, "it is PAID");
    for (close, last) in [(vec![closed()], "CLOSED"), (vec![lost(), closed()], "CLOSED"), (vec![too_late()], "PAID")] {
        stub.answers(std::iter::repeat_n(order("PENDING"), 3));
        stub.answers(close);
        stub.answers([order(last)]);
        assert_eq!(till(&stub, 3).outcome(&sale()).await.expect("found").order.status, last);
        assert_eq!(paths(&stub.seen()), looked_closed_looked);
    }
    // What was paid and is not confirmed cannot be closed; of a word of tomorrow's nobody knows.
    for undecided in ["PROCESS", "REFUNDING"] {
        stub.answers(std::iter::repeat_n(order(undecided), 3));
        assert_eq!(till(&stub, 3).outcome(&sale()).await.expect("found").order.status, undecided);
        let seen = stub.seen();
        assert_eq!((seen.len(), paths(&seen)), (3, vec![order_query::PATH]));
    }
}

#[test]
fn no_two_numbers_are_the_same_and_each_is_one_that_the_service_takes() {
    let numbers = [(); 2].map(|()| example::fresh_trade_no().expect("chance"));
    assert_ne!(numbers[0], numbers[1]);
    for number in numbers {
        assert!((1..=100).contains(&number.len()), "{number}");
        assert!(number.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{number}");
    }
}

#[test]
fn a_till_ends_with_not_paid_only_where_that_is_final_and_with_paid_only_where_the_amount_is_right() {
    for (word, right, wrong) in [
        ("PAID", 0, 3),
        ("EXPIRED", 2, 2),
        ("CLOSED", 2, 2),
        ("PROCESS", 1, 1),
        ("PENDING", 1, 1),
        ("A_NEWER_WORD", 1, 1),
    ] {
        let status = PaymentOrderStatus::from(word);
        assert_eq!((exit_code(&status, true), exit_code(&status, false)), (right, wrong), "{word}");
    }
}

#[tokio::test]
async fn what_was_paid_is_compared_with_what_was_asked_for_as_exact_numbers() {
    let stub = Stub::start().await;
    stub.answers([order("PAID")]);
    let mut found = till(&stub, 1).outcome(&sale()).await.expect("found");
    assert_eq!(verdict(&sale(), &found), "PAID: 12.5 of 12.5 USDT");
    for same in ["12.50", "12.500000"] {
        found.actual_amount = Some(same.to_owned());
        assert!(sale().is_paid_right(&found), "{same}");
    }
    for other in ["12.4", "12.6", "12.500000000000000001", "-12.5", "12,5", ""] {
        found.actual_amount = Some(other.to_owned());
        let wanted = format!("paid, but {other} of 12.5 USDT: hand nothing out, settle it with the payer");
        assert_eq!((sale().is_paid_right(&found), verdict(&sale(), &found)), (false, wanted));
    }
    found.actual_amount = None;
    assert!(
        !sale().is_paid_right(&found)
            && verdict(&sale(), &found).starts_with("paid, but an unknown amount of 12.5 USDT")
    );
    found.actual_amount = Some("12.5".to_owned());
    // Its own record counts, whatever the answer says that was asked for.
    found.order.order_amount = "1".to_owned();
    assert!(sale().is_paid_right(&found));
    for (currency, status) in [("USDC", "PAID"), ("USDT", "PROCESS"), ("USDT", "paid")] {
        let mut other = found.clone();
        (other.order.currency, other.order.status) = (currency.to_owned(), status.to_owned());
        assert!(!sale().is_paid_right(&other), "{currency} {status}");
    }
}
