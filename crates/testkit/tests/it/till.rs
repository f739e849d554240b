//! The example of a till against a real server, behind a proxy that loses every second answer.

use std::time::Duration;

use countersign_sdk::{Client, Decimal, PaymentOrderStatus};
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::back_end::lossy;
use crate::journey_payment_orders::advance;

#[expect(dead_code, reason = "the example's own main reads the command line")]
#[path = "../../../sdk/examples/till.rs"]
mod example;

use example::{Patience, Sale, Till, exit_code, verdict};

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
        let patience = Patience { looks_max, between_looks, between_tries, ..Patience::default() };
        Till { client: client.clone(), patience }
    };
    let sale = |trade_no: &str, amount| Sale { trade_no: trade_no.to_owned(), currency: "USDT".to_owned(), amount };
    let (first_sale, of_one) = (sale("T-1", Decimal::new(125, 1)), |trade_no| sale(trade_no, Decimal::ONE));

    let first = till(1).sell(&first_sale).await.expect("made");
    assert_eq!((first.order.status.as_str(), first.order.order_amount.as_str()), ("PENDING", "12.5"));
    assert!(first.qr_content.ends_with(&first.order.prepay_id), "{first:?}");
    let other = till(1).sell(&sale("T-1", Decimal::from(12))).await.expect_err("another amount");
    assert!(format!("{other:#}").contains("DUPLICATE_TRADE_NO"), "{other:#}");
    // It is paid while the till looks.
    let payer = async {
        let paid = json!({"status": "PAID", "actualAmount": "12.4"});
        assert_eq!(advance(&world, &Value::from(first.order.prepay_id.clone()), paid).await.0, 200);
    };
    let patient = till(1_000);
    let (found, ()) = tokio::join!(patient.outcome(&first_sale), payer);
    let found = found.expect("found");
    assert_eq!((found.order.status.as_str(), found.actual_amount.as_deref()), ("PAID", Some("12.4")));
    assert_eq!(verdict(&first_sale, &found), "paid, but 12.4 of 12.5 USDT: hand nothing out, settle it with the payer");
    assert_eq!(exit_code(&PaymentOrderStatus::Paid, first_sale.is_paid_right(&found)), 3);

    till(1).sell(&of_one("T-2")).await.expect("made");
    assert_eq!(till(2).outcome(&of_one("T-2")).await.expect("found").order.status, "CLOSED", "nobody has paid");

    let third = till(1).sell(&of_one("T-3")).await.expect("made");
    let (status, _) = advance(&world, &Value::from(third.order.prepay_id), json!({"status": "PROCESS"})).await;
    assert_eq!(status, 200);
    assert_eq!(
        till(2).outcome(&of_one("T-3")).await.expect("found").order.status,
        "PROCESS",
        "paid, and not confirmed"
    );

    let all = access.call("GET", "/operator/v1/payment-orders?limit=500", None).await.expect("an answer").json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(3), "each was made once: {all}");
}
