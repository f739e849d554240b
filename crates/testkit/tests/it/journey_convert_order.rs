//! `GET /v1/pay/convert/order`, end to end.

use countersign_testkit::wire::Signer;
use serde_json::{Value, json};

use crate::journey_rule_upgrade::{bank, call, good};

fn target(order: &str) -> String {
    format!("/v1/pay/convert/order?orderId={order}")
}

#[tokio::test]
async fn a_merchant_sees_its_order_digit_for_digit_and_sees_it_move() {
    let (world, signer) = bank().await;
    let body = json!({
        "order_id": "4711", "userId": 99, "sellCurrency": "USDT", "buyCurrency": "EUR", "sellAmount": "100.10", "buyAmount": "91.5",
        "rate": "0.9149999999999999", "quoteId": "PAY-0a1b2c3d", "createTime": 1_767_225_600_123_i64
    });
    world.access.provision("POST", "/merchants/bank/convert-orders", body).await.expect("an order");
    let answer = world.send(&world.draft(&signer, "GET", &target("4711"), "")).await.expect("an answer");
    let text = String::from_utf8(answer.body).expect("text");
    assert_eq!(
        text,
        concat!(
            r#"{"status":"SUCCESS","code":"000000","label":"","errorMessage":"","data":{"order_id":"4711","userId":99,"#,
            r#""sellCurrency":"USDT","buyCurrency":"EUR","sellAmount":"100.1","buyAmount":"91.5","status":1,"#,
            r#""rate":0.9149999999999999,"quoteId":"PAY-0a1b2c3d","createTime":1767225600123}}"#
        )
    );
    world.access.provision("PATCH", "/convert-orders/4711", json!({"status": 3})).await.expect("moved");
    let alias = good(&world, &signer, "GET", "/v1/pay/convert/order?order_id=4711", &Value::Null).await;
    assert_eq!(alias["status"], 3);
    let refused = world
        .access
        .call("PATCH", "/operator/v1/convert-orders/4711", Some(json!({"status": 6})))
        .await
        .expect("an answer");
    assert_eq!((refused.status, refused.code().as_str()), (409, "400204"), "3 is final");
}

#[tokio::test]
async fn an_order_that_is_not_there_and_one_that_is_not_yours_are_one_answer() {
    let (world, signer) = bank().await;
    let theirs = world.access.institution("other", 1, None).await.expect("provisioned");
    let order = world.access.convert_order("other").await.expect("an order");
    let foreign = call(&world, &signer, "GET", &target(&order), &Value::Null).await;
    let absent = call(&world, &signer, "GET", &target("999999999999999999"), &Value::Null).await;
    assert_eq!(foreign["code"], "400202");
    assert_eq!(foreign, absent);
    assert_eq!(good(&world, &theirs, "GET", &target(&order), &Value::Null).await["order_id"], json!(order));
    for bad in ["", "0", "01", "-1", "1e3", "1234567890123456789", "١٢", "4711%20"] {
        assert_eq!(call(&world, &signer, "GET", &target(bad), &Value::Null).await["code"], "400001", "{bad}");
    }
    for bad in [
        "/v1/pay/convert/order",
        "/v1/pay/convert/order?orderId=1&orderId=2",
        "/v1/pay/convert/order?orderId=1&order_id=1",
    ] {
        assert_eq!(call(&world, &signer, "GET", bad, &Value::Null).await["code"], "400001", "{bad}");
    }
}

#[tokio::test]
async fn an_institution_sees_a_sub_accounts_order_on_its_behalf_and_nobody_elses() {
    let (world, signer) = bank().await;
    let order = world.access.convert_order("bank-1").await.expect("an order");
    let on_behalf = async |signer: &Signer, of: &str| {
        let draft = world.draft(signer, "GET", &target(&order), "").with("X-Service-On-Behalf-Of", of);
        world.send(&draft).await.expect("an answer").code()
    };
    let refused = call(&world, &signer, "GET", &target(&order), &Value::Null).await;
    assert_eq!(refused["code"], "400202", "not its own order");
    let said =
        "no convert order of this merchant has this orderId; for one of a sub-account send X-Service-On-Behalf-Of";
    assert_eq!(refused["errorMessage"], said);
    assert_eq!(on_behalf(&signer, "bank-1").await, "000000");
    assert_eq!(on_behalf(&signer, "bank-2").await, "400202");
    for nobody in ["bank", "nobody", "other-1"] {
        assert_eq!(on_behalf(&signer, nobody).await, "400203", "{nobody}");
    }
    let sub = world.access.application("bank-1", None).await.expect("an application");
    let refused = call(&world, &sub, "GET", &target("999999999999999999"), &Value::Null).await;
    assert_eq!(
        refused["errorMessage"], "no convert order of this merchant has this orderId",
        "it acts for nobody else"
    );
    assert_eq!(call(&world, &sub, "GET", &target(&order), &Value::Null).await["code"], "000000", "its own order");
    assert_eq!(on_behalf(&sub, "bank-1").await, "400203", "a sub-account has no sub-accounts");
    let named = Signer { merchant_id: Some("bank".to_owned()), ..sub };
    assert_eq!(
        call(&world, &named, "GET", &target(&order), &Value::Null).await["code"],
        "000000",
        "its institution may be named"
    );
    let posing = Signer { merchant_id: Some("bank-2".to_owned()), ..named };
    assert_eq!(call(&world, &posing, "GET", &target(&order), &Value::Null).await["code"], "400203");
}
