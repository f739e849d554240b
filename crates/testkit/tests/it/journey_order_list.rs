//! A merchant's payment orders by pages, end to end: `POST /v1/pay/order/list` (order_list).

use countersign_testkit::wire::Signer;
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_payment_orders::{CLOSE, CREATE, advance, order, with};
use crate::journey_rule_upgrade::{bank, call, good};

const LIST: &str = "/v1/pay/order/list";
const QUERY: &str = "/v1/pay/order/query";

async fn trade_nos(world: &World, signer: &Signer, asked: Value) -> Vec<String> {
    all_pages(world, signer, (LIST, "merchantTradeNo"), asked).await
}

/// All pages of a list of orders, each of at most two: what they say in this field, in order.
pub async fn all_pages(world: &World, signer: &Signer, (list, field): (&str, &str), mut asked: Value) -> Vec<String> {
    let mut told = Vec::new();
    asked["limit"] = json!(2);
    loop {
        let page = good(world, signer, "POST", list, &asked).await;
        let orders = page["orders"].as_array().expect("orders");
        assert!(orders.len() <= 2, "{page}");
        told.extend(orders.iter().map(|order| order[field].as_str().expect("a text").to_owned()));
        if page["next"].is_null() {
            return told;
        }
        asked["after"] = page["next"].clone();
    }
}

#[tokio::test]
async fn a_merchants_orders_are_told_newest_first_by_status_and_time_each_as_the_query_tells_it() {
    let (world, signer) = bank().await;
    let begun = world.clock.now().0;
    let mut ids = Vec::new();
    for no in ["T-0", "T-1", "T-2", "T-3", "T-4"] {
        let body = with(order(no), "orderExpireTime", json!(world.clock.now().0 + 60_000));
        ids.push(good(&world, &signer, "POST", CREATE, &body).await["prepayId"].clone());
        world.clock.advance_ms(1_000);
    }
    advance(&world, &ids[0], json!({"status": "PAID", "actualAmount": "9"})).await;
    advance(&world, &ids[1], json!({"status": "PROCESS"})).await;
    good(&world, &signer, "POST", CLOSE, &json!({"prepayId": ids[2]})).await;
    // T-3 expires now, T-4 in a second.
    world.clock.advance_ms(60_000 + begun + 3_000 - world.clock.now().0);

    let all = ["T-4", "T-3", "T-2", "T-1", "T-0"];
    assert_eq!(trade_nos(&world, &signer, json!({})).await, all);
    for (status, no) in [("PAID", "T-0"), ("PROCESS", "T-1"), ("CLOSED", "T-2"), ("EXPIRED", "T-3"), ("PENDING", "T-4")]
    {
        assert_eq!(trade_nos(&world, &signer, json!({"status": status})).await, [no], "{status}");
    }
    let made = |n: i64| begun + n * 1_000;
    for (from, to, told) in [
        (json!(made(1)), json!(null), &all[..4]),
        (json!(null), json!(made(3)), &all[2..]),
        (json!(made(1)), json!(made(3)), &all[2..4]),
        (json!(made(5)), json!(null), &[]),
        (json!(0), json!(made(0)), &[]),
    ] {
        let asked = json!({"createTimeFrom": from, "createTimeTo": to});
        assert_eq!(trade_nos(&world, &signer, asked.clone()).await, told, "{asked}");
    }
    let both = json!({"status": "PAID", "createTimeFrom": made(1)});
    assert!(trade_nos(&world, &signer, both).await.is_empty(), "the one that is paid was made before");

    let page = good(&world, &signer, "POST", LIST, &json!({})).await;
    for listed in page["orders"].as_array().expect("orders") {
        let asked = json!({"prepayId": listed["prepayId"]});
        assert_eq!(&good(&world, &signer, "POST", QUERY, &asked).await, listed);
    }
    // Another application of the same merchant is told the same.
    let other = world.access.application("bank", None).await.expect("made");
    assert_eq!(good(&world, &other, "POST", LIST, &json!({})).await, page);
}

#[tokio::test]
async fn nobody_is_told_another_merchants_orders_and_an_institution_its_sub_accounts_one_by_one() {
    let (world, signer) = bank().await;
    let with_order = async |merchant_id, trade_no| {
        let signer = world.access.application(merchant_id, None).await.expect("made");
        good(&world, &signer, "POST", CREATE, &order(trade_no)).await;
        signer
    };
    let (sub, stranger) = (with_order("bank-1", "S-1").await, with_order("bank-2", "S-2").await);
    good(&world, &signer, "POST", CREATE, &order("B-1")).await;
    for (signer, own) in [(&signer, "B-1"), (&sub, "S-1"), (&stranger, "S-2")] {
        assert_eq!(trade_nos(&world, signer, json!({})).await, [own]);
    }
    let for_whom = async |whom: &str| {
        let mut draft = world.draft(&signer, "POST", LIST, "{}");
        draft.headers.push(("X-Service-On-Behalf-Of".to_owned(), whom.to_owned()));
        world.send(&draft).await.expect("an answer").json()
    };
    let told = for_whom("bank-1").await;
    let orders = told["data"]["orders"].as_array().expect("orders");
    assert_eq!(orders.len(), 1, "{told}");
    assert_eq!((&orders[0]["merchantTradeNo"], &orders[0]["merchantId"]), (&json!("S-1"), &json!("bank-1")));
    assert_eq!(for_whom("bank").await["code"], "400203", "an institution is not its own sub-account");
}

#[tokio::test]
async fn a_place_in_the_list_that_no_page_gave_is_refused_and_one_of_another_merchant_shows_nothing_of_it() {
    let (world, signer) = bank().await;
    let stranger = world.access.institution("other", 0, None).await.expect("provisioned");
    for signer in [&stranger, &signer] {
        good(&world, signer, "POST", CREATE, &order("T-1")).await;
    }
    let theirs = good(&world, &stranger, "POST", CREATE, &order("T-2")).await["prepayId"].clone();
    good(&world, &signer, "POST", CREATE, &order("T-2")).await;
    for after in ["x", "0", "-1", "28837461923840192004217 ", "99999999999999999999999999"] {
        let refused = call(&world, &signer, "POST", LIST, &json!({"after": after})).await;
        let said = refused["errorMessage"].as_str().expect("a sentence");
        assert_eq!(
            (refused["code"].as_str(), said),
            (Some("400001"), "field after: must be the next of a page before")
        );
    }
    assert_eq!(
        trade_nos(&world, &signer, json!({"after": theirs})).await,
        ["T-1"],
        "the bank's own, made before that one"
    );
    assert_eq!(trade_nos(&world, &signer, json!({})).await, ["T-2", "T-1"]);
    assert_eq!(trade_nos(&world, &stranger, json!({})).await, ["T-2", "T-1"]);
}
