//! What a callback carries, and which secret signs it.

use std::collections::HashSet;

use countersign::app::redelivery::{self, Wish};
use countersign_domain::ids::prefix;
use countersign_protocol::headers::Prefixes;
use countersign_protocol::signing::decode_signature;
use countersign_store::contract::SignatureEncoding;
use countersign_testkit::receiver::Reply;

use super::*;

#[tokio::test]
async fn a_callback_carries_the_headers_of_the_contract_and_a_signature_that_verifies() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(format!("{}?shop=7", endpoint.url()))).await;
    let event = bench.emit(&owner, "order").await;
    bench.deliver().await;
    let received = endpoint.received();
    let [callback] = &received[..] else { panic!("one callback, not {}", received.len()) };
    assert_eq!(callback.target, "/callbacks?shop=7");
    assert_eq!(callback.need("host"), endpoint.address().to_string());
    assert_eq!(callback.need("content-type"), "application/json");
    assert_eq!(callback.need("user-agent"), "Countersign");
    assert_eq!(callback.need("x-service-timestamp"), START.0.to_string());
    assert_eq!(callback.need("x-service-event-id"), format!("{}{}", prefix::EVENT, event.event_id));
    assert_eq!((callback.need("x-service-attempt"), callback.need("x-service-sequence")), ("1", "1"));
    let nonce = callback.need("x-service-nonce");
    assert!(nonce.starts_with("callback") && nonce.len() == 32, "{nonce}");
    let signature = callback.need("x-service-signature");
    assert!(signature.len() == 128 && !signature.contains(|c: char| c.is_ascii_uppercase()), "{signature}");
    assert!(bench.is_signed_by(callback, &owner.secret));
    assert!(!bench.is_signed_by(callback, "another secret"));
    assert_eq!(callback.header("x-service-signature-next"), None);
    let wanted = format!(
        r#"{{"bizType":"PAYMENT_ORDER","bizId":"order","bizStatus":"SUCCESS","client_id":"{}","data":"{{\"merchantTradeNo\":\"M-1\"}}"}}"#,
        owner.client_id
    );
    assert_eq!(String::from_utf8_lossy(&callback.body), wanted);
}

#[tokio::test]
async fn each_attempt_is_signed_afresh_over_the_same_bytes() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.script([Reply::Fail, Reply::Reset, Reply::Success]);
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "order").await;
    bench.deliver().await;
    for attempt in 2..=3 {
        bench.deliver_next(&event).await;
        let received = endpoint.received();
        let last = received.last().expect("an attempt");
        assert_eq!(last.need("x-service-attempt"), attempt.to_string());
        assert_eq!(last.need("x-service-timestamp"), bench.clock.now().0.to_string());
        assert!(bench.is_signed_by(last, &owner.secret), "within a tolerance of nothing");
    }
    let received = endpoint.received();
    assert_eq!(received.len(), 3);
    let distinct = |of: &dyn Fn(&Received) -> Vec<u8>| received.iter().map(of).collect::<HashSet<_>>().len();
    let header = |name: &'static str| move |r: &Received| r.need(name).as_bytes().to_vec();
    assert_eq!((distinct(&|r| r.body.clone()), distinct(&header("x-service-event-id"))), (1, 1));
    assert_eq!((distinct(&header("x-service-nonce")), distinct(&header("x-service-signature"))), (3, 3));
}

#[tokio::test]
async fn an_application_may_have_its_signatures_in_base64() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let change =
        ApplicationChange { callback_encoding: Some(SignatureEncoding::Base64), ..ApplicationChange::default() };
    bench.change(&owner, change).await;
    bench.emit(&owner, "order").await;
    bench.deliver().await;
    let received = endpoint.received();
    let signature = received[0].need("x-service-signature");
    assert_eq!(signature.len(), 88);
    assert!(decode_signature(signature.as_bytes()).is_some() && bench.is_signed_by(&received[0], &owner.secret));
}

#[tokio::test]
async fn the_first_prefix_is_the_one_that_is_sent() {
    let prefixes = Prefixes::new(&["X-Other-".to_owned(), "X-Service-".to_owned()]).expect("two prefixes");
    let bench = Bench::with(DispatchSettings { prefixes, ..settings() }).await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.emit(&owner, "order").await;
    bench.deliver().await;
    let received = endpoint.received();
    for name in ["timestamp", "nonce", "signature", "event-id", "attempt", "sequence"] {
        received[0].need(&format!("x-other-{name}"));
        assert_eq!(received[0].header(&format!("x-service-{name}")), None);
    }
}

#[tokio::test]
async fn during_an_overlap_the_other_secret_signs_too_and_the_newest_takes_over_at_the_end() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.clock.advance_ms(1);
    let made =
        identity::rotate_secret(&bench.app, &owner.client_id, 3_600, &|_| None, &actor()).await.expect("a secret");
    let newer = made.plain.expose().to_owned();
    bench.emit(&owner, "during").await;
    bench.deliver().await;
    let during = endpoint.received().remove(0);
    assert!(bench.is_signed_by(&during, &owner.secret) && !bench.is_signed_by(&during, &newer));
    assert!(bench.verified_by(&during, "x-service-signature-next", &newer));

    bench.clock.advance_ms(3_600_000);
    bench.emit(&owner, "after").await;
    bench.deliver().await;
    let after = endpoint.received().remove(1);
    assert!(bench.is_signed_by(&after, &newer), "the signing secret has ended: the newest live one signs");
    assert_eq!(after.header("x-service-signature-next"), None);
}

#[tokio::test]
async fn without_a_live_secret_deliveries_wait_and_no_attempt_is_counted() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let earlier = bench.emit(&owner, "earlier").await;
    assert_eq!(bench.deliver().await, 1);
    let secrets = identity::list_secrets(&bench.app, &owner.client_id).await.expect("secrets");
    let revoked =
        identity::revoke_secret(&bench.app, &owner.client_id, &secrets[0].row.secret_id, &|_| None, &actor()).await;
    revoked.expect("a secret is revoked at once, always");
    let event = bench.emit(&owner, "order").await;
    for _ in 0..3 {
        assert_eq!(bench.deliver().await, 0);
        bench.clock.advance_ms(10_000);
    }
    let row = bench.row(&event).await;
    assert_eq!((row.state, row.attempts), (DeliveryState::Pending, 0));
    assert_eq!(bench.deliver().await, 0, "it rests");
    let no_secret = "the application has no live secret to sign with: make one, and ask again";
    let one = of_one::redeliver(&bench.app, earlier.event_id, &|_| None, &actor()).await;
    assert_eq!(one.expect_err("nothing signs it").to_string(), no_secret);
    let wish = Wish::every(DeliveryState::Delivered, 10);
    let many = redelivery::start(&bench.app, &owner.client_id, &wish, &|_| None, &actor()).await;
    assert_eq!(many.expect_err("nothing signs them").to_string(), no_secret);
    assert_eq!(bench.state(&earlier).await, DeliveryState::Delivered);

    let made = identity::rotate_secret(&bench.app, &owner.client_id, 0, &|_| None, &actor()).await.expect("a secret");
    assert_eq!(bench.deliver().await, 1, "at once, its rest is over");
    assert!(bench.is_signed_by(&endpoint.received()[1], made.plain.expose()));
    let begin = async || redelivery::start(&bench.app, &owner.client_id, &wish, &|_| None, &actor()).await;
    let (one, other) = tokio::join!(begin(), begin());
    let told = one.and(other).expect_err("one at a time").to_string();
    assert!(told.starts_with("a redelivery of this application is running (rdl_"), "{told}");
    of_one::redeliver(&bench.app, earlier.event_id, &|_| None, &actor()).await.expect("now it may go");
}
