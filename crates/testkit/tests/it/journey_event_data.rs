//! What a real server tells of by itself, read by the types that the SDK has for it.

use countersign_sdk::event_data::{PAYMENT_ORDER, PAYMENT_ORDER_FAMILY};
use countersign_sdk::{EventData, PaymentOrderData, PaymentOrderStatus};
use countersign_testkit::receiver::Receiver;
use countersign_testkit::wire::Signer;
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_payment_orders::{CLOSE, CREATE, advance, order, pulled, told, with};
use crate::journey_rule_upgrade::{bank, good};

/// What the server writes, field for field: what is read and written again is what came.
fn read(event: &Value) -> PaymentOrderData {
    let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("{name} of {event}"));
    let order = match EventData::read(text("bizType"), text("data")) {
        Ok(EventData::PaymentOrder(order)) => order,
        other => panic!("{event}: {other:?}"),
    };
    let sent: Value = serde_json::from_str(text("data")).expect("JSON");
    assert_eq!(serde_json::to_value(&order).expect("JSON"), sent, "the type has every field");
    assert_eq!(order.prepay_id, text("bizId"));
    order
}

/// One order for each way to an end.
async fn all_that_happens_to_orders(world: &World, signer: &Signer, round: &str) {
    let mut ids = Vec::new();
    for end in ["paid", "returned", "given-up", "late"] {
        let body = order(&format!("{round}-{end}"));
        let body = with(body, "orderExpireTime", json!(world.clock.now().0 + 60_000));
        ids.push(good(world, signer, "POST", CREATE, &body).await["prepayId"].clone());
    }
    let moves = [
        (&ids[0], json!({"status": "PAID"})),
        (&ids[1], json!({"status": "PROCESS", "actualAmount": "10.400001", "transactTime": 7})),
        (&ids[1], json!({"status": "CLOSED"})),
    ];
    for (id, body) in moves {
        let (status, answer) = advance(world, id, body).await;
        assert_eq!(status, 200, "{answer}");
    }
    good(world, signer, "POST", CLOSE, &json!({"prepayId": ids[2]})).await;
    world.clock.advance_ms(60_000);
}

#[tokio::test]
async fn whatever_the_server_tells_of_payment_orders_the_sdk_has_a_type_for() {
    let (world, signer) = bank().await;
    all_that_happens_to_orders(&world, &signer, "standard").await;
    told(&world, &signer, 5).await;
    let path = format!("/operator/v1/applications/{}", signer.client_id);
    let family = json!({"callback_vocabulary": "family"});
    assert_eq!(world.access.call("PATCH", &path, Some(family)).await.expect("an answer").status, 200);
    all_that_happens_to_orders(&world, &signer, "family").await;
    told(&world, &signer, 10).await;

    let events = pulled(&world, &signer).await;
    let found: Vec<_> = events
        .iter()
        .map(|event| {
            let order = read(event);
            let amount = order.actual_amount.map(|amount| amount.to_string());
            (event["bizType"].clone(), event["bizStatus"].clone(), order.status, amount)
        })
        .collect();
    let wanted = [
        (PAYMENT_ORDER, ["SUCCESS", "PROCESS", "CLOSED", "CLOSED", "EXPIRED"]),
        (PAYMENT_ORDER_FAMILY, ["PAY_SUCCESS", "PAY_PROCESS", "PAY_CLOSE", "PAY_CLOSE", "PAY_EXPIRED"]),
    ];
    let is = [
        (PaymentOrderStatus::Paid, Some("10.5")),
        (PaymentOrderStatus::Process, Some("10.400001")),
        (PaymentOrderStatus::Closed, Some("10.400001")),
        (PaymentOrderStatus::Closed, None),
        (PaymentOrderStatus::Expired, None),
    ];
    let wanted: Vec<_> = wanted
        .iter()
        .flat_map(|(kind, words)| {
            let of_one = words.iter().zip(is.clone());
            of_one.map(move |(word, (status, amount))| (json!(kind), json!(word), status, amount.map(str::to_owned)))
        })
        .collect();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn a_test_callback_is_known_as_one() {
    let receiver = Receiver::start().await.expect("a loopback port");
    let world = World::start().await.expect("a world starts");
    let signer = world.access.institution("bank", 0, Some(&receiver.url())).await.expect("provisioned");
    let path = format!("/applications/{}/callbacks/test", signer.client_id);
    let tried = world.access.provision("POST", &path, json!({})).await.expect("tried");
    let body: Value = serde_json::from_str(tried["body"].as_str().expect("a text")).expect("JSON");
    let text = |name: &str| body[name].as_str().expect("a text");
    assert_eq!(EventData::read(text("bizType"), text("data")).ok(), Some(EventData::Test), "{body}");
}
