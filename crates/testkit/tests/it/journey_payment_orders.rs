//! Payment orders, end to end: `POST /v1/pay/order` (order_create), `POST /v1/pay/transactions/native` (order_native),
//! `POST /v1/pay/order/query` (order_query), `POST /v1/pay/order/close` (order_close), and the back end's moves.

use std::time::Duration;

use countersign_domain::time::rfc3339;
use countersign_testkit::patience::until;
use countersign_testkit::wire::{Signer, once_served};
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_rule_upgrade::{UPGRADE, bank, call, date, good};

pub const CREATE: &str = "/v1/pay/order";
const NATIVE: &str = "/v1/pay/transactions/native";
const QUERY: &str = "/v1/pay/order/query";
pub const CLOSE: &str = "/v1/pay/order/close";
const HOUR_MS: i64 = 3_600_000;
/// Codes of refusals.
const PARAMETER: &str = "400001";
const DUPLICATE: &str = "400201";
const NOT_FOUND: &str = "400202";
const STATUS: &str = "400204";
const CURRENCY: &str = "400205";
const AMOUNT: &str = "400621";

pub fn order(trade_no: &str) -> Value {
    json!({"merchantTradeNo": trade_no, "currency": "USDT", "orderAmount": "10.50"})
}

pub fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

async fn refused(world: &World, signer: &Signer, target: &str, body: &Value, code: &str) {
    let answer = call(world, signer, "POST", target, body).await;
    assert_eq!(answer["code"], code, "{target} {body}: {answer}");
    assert!(answer["data"].is_null() && answer["errorMessage"].as_str().is_some_and(|text| !text.is_empty()));
}

async fn query(world: &World, signer: &Signer, trade_no: &str) -> Value {
    good(world, signer, "POST", QUERY, &json!({"merchantTradeNo": trade_no})).await
}

/// A move by the back end; its status and answer.
pub async fn advance(world: &World, prepay_id: &Value, body: Value) -> (u16, Value) {
    let path = format!("/operator/v1/payment-orders/{}", prepay_id.as_str().expect("a number"));
    let answer = world.access.call("PATCH", &path, Some(body)).await.expect("an answer");
    (answer.status, answer.json())
}

pub async fn pulled(world: &World, signer: &Signer) -> Vec<Value> {
    let page = good(world, signer, "GET", "/v1/pay/events?after=0&limit=500", &Value::Null).await;
    page["events"].as_array().expect("events").clone()
}

/// Waits until so many callbacks were written.
pub async fn told(world: &World, signer: &Signer, count: usize) {
    let written = async || Ok((pulled(world, signer).await.len() == count).then_some(()));
    until("callbacks are written", Duration::from_secs(60), written).await.expect("they are");
}

async fn count(world: &World) -> usize {
    let page = world.access.call("GET", "/operator/v1/payment-orders?limit=500", None).await.expect("an answer").json();
    page["items"].as_array().expect("items").len()
}

#[tokio::test]
async fn an_order_is_made_queried_paid_and_told_of() {
    let (world, signer) = bank().await;
    let now = world.clock.now().0;
    let body = json!({"merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "10.500", "env": {"terminalType": "APP"},
        "goods": {"goodsName": "Tea", "goodsDetail": "green"}, "channelId": "c", "merchantUserId": 42,
        "returnUrl": "https://shop.example/thanks", "cancelUrl": "https://shop.example/basket", "unknown": [1]});
    let made = good(&world, &signer, "POST", CREATE, &body).await;
    let id = made["prepayId"].clone();
    assert!(id.as_str().is_some_and(|id| id.bytes().all(|b| b.is_ascii_digit()) && !id.starts_with('0')), "{made}");
    let expected = json!({"prepayId": id, "merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "10.5", "status": "PENDING",
        "terminalType": "APP", "createTime": now, "expireTime": now + HOUR_MS});
    assert_eq!(made, expected);
    let found = good(&world, &signer, "POST", QUERY, &json!({"prepayId": id})).await;
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[name], value, "{name}");
    }
    assert_eq!(
        (&found["merchantId"], &found["goodsName"], &found["channelId"]),
        (&json!("bank"), &json!("Tea"), &json!("c"))
    );
    for name in ["transactTime", "actualAmount", "fee", "qrContent", "location"] {
        assert!(found[name].is_null(), "{name} in {found}");
    }
    assert!(pulled(&world, &signer).await.is_empty(), "creation emits no callback");
    world.clock.advance_ms(1_000);
    let (status, paid) = advance(&world, &id, json!({"status": "PAID"})).await;
    assert_eq!((status, &paid["status"], &paid["actualAmount"]), (200, &json!("PAID"), &json!("10.5")), "{paid}");
    // What the back end's own page needs, and nobody else is told.
    for (name, value) in [
        ("goodsDetail", "green"),
        ("merchantUserId", "42"),
        ("returnUrl", "https://shop.example/thanks"),
        ("cancelUrl", "https://shop.example/basket"),
    ] {
        assert_eq!((&paid[name], found.get(name)), (&json!(value), None), "{name}");
    }
    assert_eq!(
        (&paid["transactTime"], &paid["fee"]),
        (&json!(now + 1_000), &Value::Null),
        "an institution has no rule of its own"
    );
    let events = pulled(&world, &signer).await;
    let [event] = &events[..] else { panic!("one callback: {events:?}") };
    assert_eq!(
        (&event["bizType"], &event["bizStatus"], &event["bizId"]),
        (&json!("PAYMENT_ORDER"), &json!("SUCCESS"), &id)
    );
    let data: Value = serde_json::from_str(event["data"].as_str().expect("a text")).expect("JSON");
    let told = json!({"merchantTradeNo": "T-1", "prepayId": id, "currency": "USDT", "orderAmount": "10.5", "actualAmount": "10.5",
        "status": "PAID", "createTime": now, "transactTime": now + 1_000});
    assert_eq!(data, told);
    for next in ["PAID", "PROCESS", "CLOSED", "PENDING", "EXPIRED"] {
        let (status, problem) = advance(&world, &id, json!({"status": next})).await;
        assert_eq!((status, &problem["code"]), (409, &json!(STATUS)), "{next}: {problem}");
    }
    refused(&world, &signer, CLOSE, &json!({"prepayId": id}), STATUS).await;
    assert_eq!(pulled(&world, &signer).await.len(), 1);
}

#[tokio::test]
async fn the_same_number_is_the_same_order_for_ever_and_other_content_is_a_duplicate() {
    let (world, signer) = bank().await;
    let near = with(order("T-1"), "orderExpireTime", json!(world.clock.now().0 + 60_000));
    let made = good(&world, &signer, "POST", CREATE, &near).await;
    // Nothing else counts: not the terminal, the addresses, nor a time that is over by then.
    let mut again = with(near, "orderAmount", json!("10.5"));
    again["returnUrl"] = json!("https://shop.example/thanks");
    world.clock.advance_ms(59_999);
    assert_eq!(good(&world, &signer, "POST", CREATE, &again).await, made);
    world.clock.advance_ms(1);
    let expired = good(&world, &signer, "POST", CREATE, &again).await;
    assert_eq!(expired, with(made.clone(), "status", json!("EXPIRED")), "as it is now");
    let other_app = world.access.application("bank", None).await.expect("made");
    assert_eq!(good(&world, &other_app, "POST", CREATE, &again).await["prepayId"], made["prepayId"]);
    let differs = async |path: &str, other: &Value| {
        let refused = call(&world, &signer, "POST", path, other).await;
        assert_eq!(refused["code"], DUPLICATE, "{refused}");
        let said = refused["errorMessage"].as_str().expect("a sentence").to_owned();
        let named = said.strip_prefix("field merchantTradeNo: stands for another request, whose ");
        named.and_then(|named| named.split_once(" is not the same; ")).expect("it says what differs").0.to_owned()
    };
    for (field, value, named) in [
        ("orderAmount", json!("10.500001"), "orderAmount"),
        ("currency", json!("GT"), "currency"),
        ("channelId", json!("c"), "channelId"),
        ("channelId", json!(""), "channelId"),
        ("merchantUserId", json!("7"), "merchantUserId"),
        ("goods", json!({"goodsName": "Tea"}), "goods.goodsName"),
        ("goods", json!({"goodsDetail": ""}), "goods.goodsDetail"),
    ] {
        assert_eq!(differs(CREATE, &with(again.clone(), field, value)).await, named);
    }
    let both = with(with(again.clone(), "currency", json!("GT")), "channelId", json!("c"));
    assert_eq!(differs(CREATE, &both).await, "currency", "the first of them");
    assert_eq!(differs(NATIVE, &order("T-1")).await, "operation");
    // Of another merchant it is another number.
    let plain = {
        world.access.provision("POST", "/merchants", json!({"name": "m", "merchant_id": "m"})).await.expect("made");
        world.access.application("m", None).await.expect("made")
    };
    let theirs = good(&world, &plain, "POST", CREATE, &order("T-1")).await;
    assert_ne!(theirs["prepayId"], made["prepayId"]);
    refused(&world, &plain, QUERY, &json!({"prepayId": made["prepayId"]}), NOT_FOUND).await;
    refused(&world, &plain, CLOSE, &json!({"prepayId": made["prepayId"]}), NOT_FOUND).await;
    let both = json!({"prepayId": theirs["prepayId"], "merchantTradeNo": "T-2"});
    refused(&world, &plain, QUERY, &both, NOT_FOUND).await;
    refused(&world, &plain, QUERY, &json!({}), PARAMETER).await;
}

#[tokio::test]
async fn amounts_are_taken_exactly_as_the_limits_say_and_nothing_else_is_stored() {
    let (world, signer) = bank().await;
    let good_ones = [
        (CREATE, "0.0001", "0.0001"),
        (CREATE, "5000000", "5000000"),
        (CREATE, "5000000.000000", "5000000"),
        (CREATE, "0001.500000", "1.5"),
        (NATIVE, "10000", "10000"),
        (NATIVE, "10000.000000", "10000"),
        (NATIVE, "0.0001", "0.0001"),
    ];
    for (at, (target, amount, shown)) in good_ones.into_iter().enumerate() {
        let body = with(order(&format!("good-{at}")), "orderAmount", json!(amount));
        assert_eq!(good(&world, &signer, "POST", target, &body).await["orderAmount"], shown, "{amount}");
    }
    let stored = count(&world).await;
    assert_eq!(stored, good_ones.len());
    let none = [
        "0.00009",
        "0.000099",
        "0",
        "0.0",
        "5000000.000001",
        "5000001",
        "0.1000000",
        "1.0000000",
        "1e3",
        "1E3",
        "1e-2",
        "+1",
        "-1",
        " 1",
        "1 ",
        "1 000",
        "1,5",
        "1_000",
        "",
        ".",
        ".5",
        "5.",
        "0x10",
        "NaN",
        "Infinity",
        "\u{661}\u{662}",
        "\u{ff11}",
        "1\u{a0}",
        "99999999999999999999999",
    ];
    for (at, amount) in none.into_iter().enumerate() {
        for target in [CREATE, NATIVE] {
            let body = with(order(&format!("bad-{at}")), "orderAmount", json!(amount));
            refused(&world, &signer, target, &body, AMOUNT).await;
        }
    }
    for amount in ["10000.000001", "10001", "5000000"] {
        refused(&world, &signer, NATIVE, &with(order("qr"), "orderAmount", json!(amount)), AMOUNT).await;
    }
    for amount in [json!(10), json!(10.5), json!(true), json!(["1"])] {
        refused(&world, &signer, CREATE, &with(order("typed"), "orderAmount", amount), AMOUNT).await;
    }
    refused(&world, &signer, CREATE, &with(order("none"), "orderAmount", Value::Null), PARAMETER).await;
    assert_eq!(count(&world).await, stored, "nothing of it was stored");
}

#[tokio::test]
async fn each_field_that_is_wrong_is_refused_with_its_code_and_leaves_nothing() {
    let (world, signer) = bank().await;
    let now = world.clock.now().0;
    let long = |chars: usize| json!("\u{8336}".repeat(chars));
    for (field, value, code) in [
        ("merchantTradeNo", json!(""), PARAMETER),
        ("merchantTradeNo", json!("a b"), PARAMETER),
        ("merchantTradeNo", json!("a.b"), PARAMETER),
        ("merchantTradeNo", json!("x".repeat(101)), PARAMETER),
        ("merchantTradeNo", json!(7), PARAMETER),
        ("currency", json!("usdt"), CURRENCY),
        ("currency", json!("U"), CURRENCY),
        ("currency", json!("U".repeat(11)), CURRENCY),
        ("currency", Value::Null, PARAMETER),
        ("orderExpireTime", json!(now), PARAMETER),
        ("orderExpireTime", json!(now - 1), PARAMETER),
        ("orderExpireTime", json!(now + 30 * 24 * HOUR_MS + 1), PARAMETER),
        ("orderExpireTime", json!("soon"), PARAMETER),
        ("goods", json!("tea"), PARAMETER),
        ("goods", json!({"goodsName": long(161)}), PARAMETER),
        ("goods", json!({"goodsDetail": long(257)}), PARAMETER),
        ("channelId", long(51), PARAMETER),
        ("env", json!({"terminalType": 1}), PARAMETER),
        ("merchantUserId", json!([1]), PARAMETER),
    ] {
        refused(&world, &signer, CREATE, &with(order("T-1"), field, value), code).await;
    }
    let over = with(order("T-1"), "orderExpireTime", json!(now + HOUR_MS + 1));
    refused(&world, &signer, NATIVE, &over, PARAMETER).await;
    for (target, at, said) in [
        (CREATE, json!(now / 1_000 + 600), "must be in the future, in Unix milliseconds (13 digits)"),
        (CREATE, json!(now + 31 * 24 * HOUR_MS), "must be at most 30 days ahead, in Unix milliseconds (13 digits)"),
        (NATIVE, json!(now + 2 * HOUR_MS), "must be at most 1 hour ahead, in Unix milliseconds (13 digits)"),
        (CREATE, json!(10_000_000_000_000_000_000_u64), "must be a whole number from 0 to 253402300799999"),
    ] {
        let envelope = call(&world, &signer, "POST", target, &with(order("T-1"), "orderExpireTime", at)).await;
        let sentence = format!("field orderExpireTime: {said}");
        assert_eq!((&envelope["code"], &envelope["errorMessage"]), (&json!(PARAMETER), &json!(sentence)));
    }
    assert_eq!(count(&world).await, 0);
    let most = json!({"merchantTradeNo": "x".repeat(100), "currency": "USDT", "orderAmount": "1", "channelId": long(50),
        "goods": {"goodsName": long(160), "goodsDetail": long(256)}, "orderExpireTime": now + 30 * 24 * HOUR_MS});
    good(&world, &signer, "POST", CREATE, &most).await;
    let native =
        good(&world, &signer, "POST", NATIVE, &with(order("qr"), "orderExpireTime", json!(now + HOUR_MS))).await;
    let address = format!("countersign://pay/{}", native["prepayId"].as_str().expect("a number"));
    assert_eq!((&native["qrContent"], &native["location"]), (&json!(address), &json!(address)));
    assert_eq!(query(&world, &signer, "qr").await["qrContent"], address);
}

#[tokio::test]
async fn a_merchant_closes_what_is_pending_and_nothing_else() {
    let (world, signer) = bank().await;
    let closes = json!({"merchantTradeNo": "T-1"});
    refused(&world, &signer, CLOSE, &closes, NOT_FOUND).await;
    let made = good(&world, &signer, "POST", CREATE, &order("T-1")).await;
    for _ in 0..3 {
        assert_eq!(good(&world, &signer, "POST", CLOSE, &closes).await, json!({"result": "SUCCESS"}));
    }
    assert_eq!(query(&world, &signer, "T-1").await["status"], "CLOSED");
    // A name that is empty is none.
    let both = |id: &Value, no: &str| json!({"prepayId": id, "merchantTradeNo": no});
    for name in [both(&json!(""), "T-1"), both(&made["prepayId"], "")] {
        assert_eq!(good(&world, &signer, "POST", QUERY, &name).await["status"], "CLOSED");
        good(&world, &signer, "POST", CLOSE, &name).await;
    }
    for target in [QUERY, CLOSE] {
        refused(&world, &signer, target, &both(&json!(""), ""), PARAMETER).await;
    }
    let (status, problem) = advance(&world, &made["prepayId"], json!({"status": "EXPIRED"})).await;
    assert_eq!((status, &problem["code"]), (409, &json!(STATUS)));
    assert_eq!(problem["detail"], "a payment order that is CLOSED cannot become EXPIRED: that is final");
    let events = pulled(&world, &signer).await;
    assert_eq!(events.iter().map(|event| event["bizStatus"].clone()).collect::<Vec<_>>(), ["CLOSED"], "told once");
    assert_eq!(good(&world, &signer, "POST", CREATE, &order("T-1")).await, with(made, "status", json!("CLOSED")));
    let made = good(&world, &signer, "POST", CREATE, &order("T-2")).await;
    let (status, _) =
        advance(&world, &made["prepayId"], json!({"status": "PROCESS", "transactTime": 7, "actualAmount": "10.4"}))
            .await;
    assert_eq!(status, 200);
    refused(&world, &signer, CLOSE, &json!({"merchantTradeNo": "T-2"}), STATUS).await;
    world.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(query(&world, &signer, "T-2").await["status"], "PROCESS", "paid in time, it does not expire");
    let (_, paid) = advance(&world, &made["prepayId"], json!({"status": "PAID"})).await;
    assert_eq!(
        (&paid["status"], &paid["actualAmount"], &paid["transactTime"]),
        (&json!("PAID"), &json!("10.4"), &json!(7)),
        "{paid}"
    );
}

#[tokio::test]
async fn an_order_that_is_closed_many_times_at_once_is_closed_once_and_all_are_told_so() {
    let (world, signer) = bank().await;
    for round in 0..8 {
        let no = format!("T-{round}");
        good(&world, &signer, "POST", CREATE, &order(&no)).await;
        let body = json!({"merchantTradeNo": no});
        let close = async || {
            let draft = world.draft(&signer, "POST", CLOSE, &body.to_string());
            once_served(world.listen(), &draft.bytes()).await.expect("an answer").json()["data"].clone()
        };
        let (one, two, three, four) = tokio::join!(close(), close(), close(), close());
        assert_eq!([one, two, three, four], ["SUCCESS"; 4].map(|result| json!({"result": result})));
    }
    let events = pulled(&world, &signer).await;
    assert_eq!(events.len(), 8, "each is told of once: {events:?}");
}

#[tokio::test]
async fn an_order_expires_at_its_exact_instant_and_is_told_of_once_also_with_no_process_running() {
    let (world, signer) = bank().await;
    for no in ["T-1", "T-2"] {
        let body = with(order(no), "orderExpireTime", json!(world.clock.now().0 + 60_000));
        good(&world, &signer, "POST", CREATE, &body).await;
    }
    let (first, second) = (query(&world, &signer, "T-1").await, query(&world, &signer, "T-2").await);
    world.clock.advance_ms(59_999);
    assert_eq!(query(&world, &signer, "T-1").await["status"], "PENDING");
    let (status, _) = advance(&world, &second["prepayId"], json!({"status": "PAID"})).await;
    assert_eq!(status, 200, "in time");
    world.clock.advance_ms(1);
    assert_eq!(query(&world, &signer, "T-1").await["status"], "EXPIRED");
    let (status, problem) = advance(&world, &first["prepayId"], json!({"status": "PAID"})).await;
    assert_eq!((status, &problem["code"]), (409, &json!(STATUS)), "{problem}");
    refused(&world, &signer, CLOSE, &json!({"merchantTradeNo": "T-1"}), STATUS).await;
    told(&world, &signer, 2).await;
    let expired = pulled(&world, &signer).await.pop().expect("two");
    assert_eq!((&expired["bizStatus"], &expired["bizId"]), (&json!("EXPIRED"), &first["prepayId"]));
    let path = format!("/operator/v1/payment-orders/{}", first["prepayId"].as_str().expect("a text"));
    let shown = world.access.call("GET", &path, None).await.expect("an answer").json();
    let ends: Vec<_> =
        shown["history"].as_array().expect("a history").iter().map(|entry| entry["to"].clone()).collect();
    assert_eq!(ends, ["PENDING", "EXPIRED"], "{shown}");
    assert_eq!(shown["history"][1]["actor"], "system");

    // While nothing runs, time passes all the same.
    let body = with(order("T-3"), "orderExpireTime", json!(world.clock.now().0 + 60_000));
    good(&world, &signer, "POST", CREATE, &body).await;
    world.clock.advance_ms(60_000);
    let world = world.restart().await.expect("it starts again");
    assert_eq!(query(&world, &signer, "T-3").await["status"], "EXPIRED");
    told(&world, &signer, 3).await;
    world.clock.advance_ms(1_000);
    let world = world.restart().await.expect("it starts again");
    assert_eq!(pulled(&world, &signer).await.len(), 3, "told once");
}

#[tokio::test]
async fn a_sub_accounts_order_is_its_institutions_to_make_and_its_fee_is_fixed_when_it_is_paid() {
    let (world, signer) = bank().await;
    let sub = |body: &Value, target: &str| {
        let mut draft = world.draft(&signer, "POST", target, &body.to_string());
        draft.headers.push(("X-Service-On-Behalf-Of".to_owned(), "bank-1".to_owned()));
        draft
    };
    let for_sub = async |target: &str, body: Value| world.send(&sub(&body, target)).await.expect("an answer").json();
    let rule =
        json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "f_markup": 1, "effective_date": date(&world, -10)});
    let rule = good(&world, &signer, "POST", UPGRADE, &rule).await;
    let mut ids = Vec::new();
    for no in ["T-1", "T-2", "T-3"] {
        let made = for_sub(CREATE, order(no)).await;
        assert_eq!(made["code"], "000000", "{made}");
        ids.push(made["data"]["prepayId"].clone());
    }
    refused(&world, &signer, QUERY, &json!({"merchantTradeNo": "T-1"}), NOT_FOUND).await;
    let (_, paid) = advance(&world, &ids[0], json!({"status": "PAID"})).await;
    let fee = json!({"config_id": rule["config_id"], "version_no": 1, "r_markup": 0.3, "f_markup": 1, "r_fee": "0.0315", "f_fee": "1",
        "worked_sum": "10.5 USDT x 0.3 / 100 = 0.0315 USDT; plus 1 USDT fixed"});
    assert_eq!(paid["fee"], fee, "{paid}");
    // A rule of later, also one that is dated back, changes nothing that is paid.
    let later = json!({"sub_merchant_id": "bank-1", "r_markup": 5, "effective_date": date(&world, -1_000)});
    let later = good(&world, &signer, "POST", UPGRADE, &later).await;
    // The clock stands where it stood when the order was paid: the version is of the next millisecond, and says so.
    let next = json!(rfc3339(world.clock.now().plus_ms(1)));
    assert_eq!((&later["created_at"], &later["status"]), (&next, &json!("EFFECTIVE")), "{later}");
    let (_, second) = advance(&world, &ids[1], json!({"status": "PAID", "actualAmount": "0.00015"})).await;
    assert_eq!(
        (&second["fee"]["version_no"], &second["fee"]["r_fee"]),
        (&json!(2), &json!("0.000008")),
        "half up: {second}"
    );
    let found = for_sub(QUERY, json!({"merchantTradeNo": "T-1"})).await;
    assert_eq!((&found["data"]["fee"], &found["data"]["merchantId"]), (&fee, &json!("bank-1")));
    let pending = json!({"sub_merchant_id": "bank-1", "r_markup": 7, "effective_date": date(&world, 3_600), "due_date": date(&world, 3_660)});
    good(&world, &signer, "POST", UPGRADE, &pending).await;
    let (_, third) = advance(&world, &ids[2], json!({"status": "PAID"})).await;
    assert_eq!(third["fee"]["version_no"], 2, "what is pending is not in force: {third}");

    let plain_sub = world.access.application("bank-2", None).await.expect("made");
    let made = good(&world, &plain_sub, "POST", CREATE, &order("T-1")).await;
    let (_, paid) = advance(&world, &made["prepayId"], json!({"status": "PAID"})).await;
    let none = json!({"config_id": null, "version_no": null, "r_markup": 0, "f_markup": 0, "r_fee": "0", "f_fee": "0",
        "worked_sum": "10.5 USDT x 0 / 100 = 0 USDT; plus 0 USDT fixed"});
    assert_eq!(paid["fee"], none, "without a rule: {paid}");
}

#[tokio::test]
async fn of_64_clients_with_one_trade_number_all_get_the_one_order() {
    let (world, signer) = bank().await;
    let mut under_way = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (draft, listen) = (world.draft(&signer, "POST", CREATE, &order("T-1").to_string()), world.listen());
        under_way.spawn(async move { once_served(listen, &draft.bytes()).await.expect("an answer").json() });
    }
    let mut answers = under_way.join_all().await;
    let first = answers.pop().expect("64");
    assert_eq!(first["code"], "000000", "{first}");
    assert!(answers.iter().all(|answer| *answer == first), "{answers:?}");
    assert_eq!(count(&world).await, 1);
    refused(&world, &signer, CREATE, &with(order("T-1"), "orderAmount", json!("1")), DUPLICATE).await;
}
