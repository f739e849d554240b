//! A merchant's convert orders by pages, end to end: `POST /v1/pay/convert/order/list` (convert_order_list).

use countersign_testkit::wire::Signer;
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_order_list::all_pages;
use crate::journey_rule_upgrade::{bank, call, good};

const LIST: &str = "/v1/pay/convert/order/list";

async fn ids(world: &World, signer: &Signer, asked: Value) -> Vec<String> {
    all_pages(world, signer, (LIST, "order_id"), asked).await
}

#[tokio::test]
async fn a_merchants_convert_orders_are_told_by_number_and_status_each_as_the_query_tells_it() {
    let (world, signer) = bank().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.access.convert_order("bank").await.expect("an order"));
        world.clock.advance_ms(1_000);
    }
    for (order, status) in [(&made[0], 3), (&made[3], 3), (&made[1], 6)] {
        let path = format!("/convert-orders/{order}");
        world.access.provision("PATCH", &path, json!({"status": status})).await.expect("moved");
    }
    let newest_first = |of: &[usize]| of.iter().map(|n| made[*n].clone()).collect::<Vec<_>>();
    for (asked, told) in [
        (json!({}), &[4, 3, 2, 1, 0][..]),
        (json!({"status": 1}), &[4, 2]),
        (json!({"status": 3}), &[3, 0]),
        (json!({"status": 6}), &[1]),
        (json!({"after": made[2]}), &[1, 0]),
        (json!({"after": made[3], "status": 3}), &[0]),
        (json!({"after": made[0]}), &[]),
    ] {
        assert_eq!(ids(&world, &signer, asked.clone()).await, newest_first(told), "{asked}");
    }
    let page = good(&world, &signer, "POST", LIST, &json!({})).await;
    for listed in page["orders"].as_array().expect("orders") {
        let path = format!("/v1/pay/convert/order?orderId={}", listed["order_id"].as_str().expect("an ID"));
        assert_eq!(&good(&world, &signer, "GET", &path, &Value::Null).await, listed);
    }
    // Another application of the same merchant is told the same.
    let other = world.access.application("bank", None).await.expect("made");
    assert_eq!(good(&world, &other, "POST", LIST, &json!({})).await, page);
}

#[tokio::test]
async fn nobody_is_told_another_merchants_convert_orders_and_an_institution_its_sub_accounts_one_by_one() {
    let (world, signer) = bank().await;
    let with_order = async |merchant_id| {
        let order = world.access.convert_order(merchant_id).await.expect("an order");
        (world.access.application(merchant_id, None).await.expect("made"), order)
    };
    let (of_sub, of_other, (_, own)) =
        (with_order("bank-1").await, with_order("bank-2").await, with_order("bank").await);
    for (signer, order) in [(&signer, &own), (&of_sub.0, &of_sub.1), (&of_other.0, &of_other.1)] {
        assert_eq!(ids(&world, signer, json!({})).await, [order.as_str()]);
    }
    let for_whom = async |whom: &str| {
        let draft = world.draft(&signer, "POST", LIST, "{}").with("X-Service-On-Behalf-Of", whom);
        world.send(&draft).await.expect("an answer").json()
    };
    let told = for_whom("bank-1").await;
    let orders = told["data"]["orders"].as_array().expect("orders");
    assert_eq!((orders.len(), &orders[0]["order_id"]), (1, &json!(of_sub.1)), "{told}");
    assert_eq!(for_whom("bank").await["code"], "400203", "an institution is not its own sub-account");
    // Somebody else's place in the list is a place as any other, and shows nothing of it.
    assert_eq!(ids(&world, &of_sub.0, json!({"after": of_other.1})).await, [of_sub.1.as_str()]);
}

#[tokio::test]
async fn what_is_asked_wrong_is_refused_by_the_name_of_the_field() {
    let (world, signer) = bank().await;
    for after in ["x", "0", "-1", "01", "415628130304 ", "1234567890123456789"] {
        let refused = call(&world, &signer, "POST", LIST, &json!({"after": after})).await;
        let said = (refused["code"].as_str(), refused["errorMessage"].as_str());
        assert_eq!(said, (Some("400001"), Some("field after: must be the next of a page before")), "{after}");
    }
    for (body, says) in [
        (json!({"status": 2}), "field status: must be 1, 3 or 6"),
        (json!({"status": "3"}), "field status: must be a whole JSON number, written without point and exponent"),
        (json!({"limit": 0}), "field limit: must be a whole number from 1 to 100"),
    ] {
        let refused = call(&world, &signer, "POST", LIST, &body).await;
        assert_eq!(refused["code"], "400001", "{body}: {refused}");
        assert_eq!(refused["errorMessage"], says, "{body}");
    }
}
