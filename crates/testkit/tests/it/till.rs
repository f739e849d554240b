//! The example of a till against a real server, behind a proxy that loses every second answer.

use std::time::Duration;

use countersign_sdk::{Client, PaymentOrderStatus};
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::back_end::lossy;
use crate::journey_payment_orders::advance;

#[expect(dead_code, reason = "the example's own main reads the command line")]
#[path = "../../../sdk/examples/till.rs"]
mod example;

use example::{Patience, Till, exit_code, is_paid_right, verdict};

#[tokio::test]
async fn the_example_of_a_till_sells_once_though_answers_are_lost_and_closes_what_is_not_paid() {
    let world = World::start().await.expect("a world starts");
    let access = &world.access;
    access.provision("POST", "/merchants", json!({"name": "M", "merchant_id": "m"})).await.expect("a merchant");
    let ask = json!({"name": "till"});
    let made = access.provision("POST", "/merchants/m/applications", ask).await.expect("an application");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    let way = format!("http://{}", lossy(world.listen()).await);
    let clock = world.clock.clone();
    let client = Client::builder(way, text("client_id"), text("payment_api_secret")).clock(move || clock.now().0);
    let client = client.build().expect("a client");
    let till = |looks_max| {
        let (between_looks, between_tries) = (Duration::from_millis(5), Duration::from_millis(1));
        Till { client: client.clone(), patience: Patience { looks_max, between_looks, between_tries } }
    };

    let first = till(1).sell("T-1", "USDT", "12.5").await.expect("made");
    assert_eq!((first.order.status.as_str(), first.order.order_amount.as_str()), ("PENDING", "12.5"));
    assert!(first.qr_content.ends_with(&first.order.prepay_id), "{first:?}");
    let other = till(1).sell("T-1", "USDT", "12").await.expect_err("another amount");
    assert!(format!("{other:#}").contains("DUPLICATE_TRADE_NO"), "{other:#}");
    // It is paid while the till looks.
    let payer = async {
        let paid = json!({"status": "PAID", "actualAmount": "12.4"});
        assert_eq!(advance(&world, &Value::from(first.order.prepay_id.clone()), paid).await.0, 200);
    };
    let patient = till(1_000);
    let (found, ()) = tokio::join!(patient.outcome("T-1"), payer);
    let found = found.expect("found");
    assert_eq!((found.order.status.as_str(), found.actual_amount.as_deref()), ("PAID", Some("12.4")));
    assert_eq!(verdict(&found), "paid, but 12.4 of 12.5 USDT: hand nothing out, settle it with the payer");
    assert_eq!(exit_code(&PaymentOrderStatus::Paid, is_paid_right(&found)), 3);

    till(1).sell("T-2", "USDT", "1").await.expect("made");
    assert_eq!(till(2).outcome("T-2").await.expect("found").order.status, "CLOSED", "nobody has paid");

    let third = till(1).sell("T-3", "USDT", "1").await.expect("made");
    let (status, _) = advance(&world, &Value::from(third.order.prepay_id), json!({"status": "PROCESS"})).await;
    assert_eq!(status, 200);
    assert_eq!(till(2).outcome("T-3").await.expect("found").order.status, "PROCESS", "paid, and not confirmed");

    let all = access.call("GET", "/operator/v1/payment-orders?limit=500", None).await.expect("an answer").json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(3), "each was made once: {all}");
}
