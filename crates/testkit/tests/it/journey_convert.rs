//! `POST /v1/pay/convert/preview` and `POST /v1/pay/convert`, end to end: convert_currency, convert_pair, convert_preview, convert.

use countersign_testkit::wire::{Signer, once_served};
use countersign_testkit::world::World;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::journey_rule_upgrade::{bank, call, good};

pub const PREVIEW: &str = "/v1/pay/convert/preview";
pub const CONVERT: &str = "/v1/pay/convert";

/// Puts the rate of a pair, and its limits.
pub async fn put_rate(world: &World, pair: &str, body: Value) -> Value {
    world.access.provision("PUT", &format!("/rates/{pair}"), body).await.expect("a rate")
}

/// A world with the institution `bank`, whose back end has put two rates.
async fn market() -> (World, Signer) {
    let (world, signer) = bank().await;
    put_rate(&world, "GT_USDT", json!({"rate": "22.38741462", "base_min": "0.01", "quote_max": "1980000"})).await;
    put_rate(&world, "BTC_USDT", json!({"rate": 67_234.57})).await;
    (world, signer)
}

fn selling(amount: &str) -> Value {
    json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": amount})
}

/// The request that carries a quote out.
pub fn carry_out(client_req_id: &str, quote: &Value) -> Value {
    json!({
        "clientReqId": client_req_id, "quoteId": quote["quoteId"], "sellCurrency": quote["sellCurrency"],
        "buyCurrency": quote["buyCurrency"], "sellAmount": quote["sellAmount"], "buyAmount": quote["buyAmount"],
    })
}

async fn code(world: &World, signer: &Signer, target: &str, body: &Value) -> String {
    call(world, signer, "POST", target, body).await["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn what_can_be_converted_is_listed_by_side() {
    let (world, signer) = market().await;
    let get = async |target: &str| good(&world, &signer, "GET", target, &Value::Null).await;
    assert_eq!(get("/v1/pay/convert/currency").await, json!(["BTC", "GT", "USDT"]));
    assert_eq!(get("/v1/pay/convert/currency?side=sell").await, json!(["BTC", "GT", "USDT"]));
    let base = json!({
        "pair": "GT_USDT", "sellCurrency": "GT", "buyCurrency": "USDT", "sellCurrencyMin": "0.01", "sellCurrencyMax": "5000000",
        "buyCurrencyMin": "0.0001", "buyCurrencyMax": "1980000",
    });
    let back = json!({
        "pair": "GT_USDT", "sellCurrency": "USDT", "buyCurrency": "GT", "sellCurrencyMin": "0.0001", "sellCurrencyMax": "1980000",
        "buyCurrencyMin": "0.01", "buyCurrencyMax": "5000000",
    });
    assert_eq!(get("/v1/pay/convert/pair?currency=GT").await, json!([base, back]));
    assert_eq!(get("/v1/pay/convert/pair?currency=GT&side=sell").await, json!([base]));
    assert_eq!(get("/v1/pay/convert/pair?currency=GT&side=buy").await, json!([back]));
    assert_eq!(get("/v1/pay/convert/pair?currency=USDT&side=sell").await.as_array().map(Vec::len), Some(2));
    assert_eq!(get("/v1/pay/convert/pair?currency=DOGE").await, json!([]));
    for (bad, expected) in [
        ("/v1/pay/convert/pair", "400001"),
        ("/v1/pay/convert/pair?currency=gt", "400205"),
        ("/v1/pay/convert/pair?currency=GT&side=both", "400001"),
        ("/v1/pay/convert/currency?side=SELL", "400001"),
    ] {
        assert_eq!(call(&world, &signer, "GET", bad, &Value::Null).await["code"], expected, "{bad}");
    }
}

#[tokio::test]
async fn a_quote_is_carried_out_once_and_its_order_is_the_merchants() {
    let (world, signer) = market().await;
    let quote = good(&world, &signer, "POST", PREVIEW, &selling("0.044667")).await;
    assert_eq!((&quote["sellAmount"], &quote["buyAmount"]), (&json!("0.044667"), &json!("0.999978")), "rounded down");
    assert_eq!(quote["rate"].to_string(), "22.38741462", "a number with every digit");
    assert_eq!(quote["expireTime"], json!(world.clock.now().0 + 30_000));
    let id = quote["quoteId"].as_str().and_then(|id| id.strip_prefix("PAY-")).expect("a quote's id").to_owned();
    assert!(id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()), "{id}");
    let order = good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &quote)).await;
    assert_eq!((&order["status"], &order["quoteId"]), (&json!(1), &quote["quoteId"]));
    for name in ["sellCurrency", "buyCurrency", "sellAmount", "buyAmount", "rate"] {
        assert_eq!(order[name], quote[name], "{name}");
    }
    let target = format!("/v1/pay/convert/order?orderId={}", order["order_id"].as_str().expect("an id"));
    assert_eq!(good(&world, &signer, "GET", &target, &Value::Null).await, order, "the described query shows it");
    assert_eq!(code(&world, &signer, CONVERT, &carry_out("r-2", &quote)).await, "400622", "a quote is used once");
    // The same request again stands for its order as it is now, also long after the quote's end.
    world
        .access
        .provision(
            "PATCH",
            &format!("/convert-orders/{}", order["order_id"].as_str().expect("an id")),
            json!({"status": 3}),
        )
        .await
        .expect("moved");
    world.clock.advance_ms(600_000);
    let again = good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &quote)).await;
    assert_eq!((&again["order_id"], &again["status"]), (&order["order_id"], &json!(3)));
    // As numbers: what is written otherwise is the same content.
    let mut written = carry_out("r-1", &quote);
    written["sellAmount"] = json!("00.044667");
    assert_eq!(good(&world, &signer, "POST", CONVERT, &written).await, again);
    for (name, value) in
        [("sellAmount", "0.05"), ("buyAmount", "1"), ("quoteId", "PAY-00000000"), ("buyCurrency", "BTC")]
    {
        let mut other = carry_out("r-1", &quote);
        other[name] = json!(value);
        let refused = call(&world, &signer, "POST", CONVERT, &other).await;
        let said = format!(
            "field clientReqId: stands for another request, whose {name} is not the same; send the same content again, or another clientReqId"
        );
        assert_eq!((&refused["code"], &refused["errorMessage"]), (&json!("400201"), &json!(said)));
    }
}

#[tokio::test]
async fn the_same_request_after_a_restart_is_answered_with_its_order() {
    let (world, signer) = market().await;
    let quote = good(&world, &signer, "POST", PREVIEW, &selling("2")).await;
    let used = good(&world, &signer, "POST", PREVIEW, &selling("3")).await;
    let order = good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &used)).await;
    let world = world.restart().await.expect("starts again");
    assert_eq!(good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &used)).await, order);
    assert_eq!(code(&world, &signer, CONVERT, &carry_out("r-2", &used)).await, "400622");
    good(&world, &signer, "POST", CONVERT, &carry_out("r-2", &quote)).await;
}

#[tokio::test]
async fn a_quote_is_good_until_its_exact_millisecond() {
    let (world, signer) = market().await;
    let (one, other) = (
        good(&world, &signer, "POST", PREVIEW, &selling("1")).await,
        good(&world, &signer, "POST", PREVIEW, &selling("1")).await,
    );
    world.clock.advance_ms(29_999);
    good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &one)).await;
    world.clock.advance_ms(1);
    assert_eq!(code(&world, &signer, CONVERT, &carry_out("r-2", &other)).await, "400622");
    // A name that was refused stands for nothing.
    let fresh = good(&world, &signer, "POST", PREVIEW, &selling("2")).await;
    good(&world, &signer, "POST", CONVERT, &carry_out("r-2", &fresh)).await;
}

#[tokio::test]
async fn a_pair_without_a_young_rate_is_answered_503_and_leaves_nothing() {
    let (world, signer) = bank().await;
    let preview = async || call(&world, &signer, "POST", PREVIEW, &selling("1")).await;
    assert_eq!(preview().await["code"], "300503", "no rate was ever put");
    put_rate(&world, "GT_USDT", json!({"rate": 2})).await;
    world.clock.advance_ms(59_999);
    let quote = preview().await;
    assert_eq!(quote["code"], "000000", "as old as it may be");
    world.clock.advance_ms(1);
    let draft = world.draft(&signer, "POST", PREVIEW, &selling("1").to_string());
    let refused = world.send(&draft).await.expect("an answer");
    assert_eq!((refused.status, refused.code().as_str()), (503, "300503"));
    assert!(refused.header("Retry-After").is_some());
    put_rate(&world, "GT_USDT", json!({"rate": "2.5"})).await;
    let same = world.send(&draft).await.expect("an answer");
    assert_eq!(same.code(), "000000", "its nonce was left open: {}", same.json());
    // What was promised stays promised.
    assert_eq!(code(&world, &signer, CONVERT, &carry_out("r-1", &quote["data"])).await, "000000");
}

#[tokio::test]
async fn an_amount_that_no_rate_could_make_right_is_refused_before_the_rate_and_the_quote_are_looked_at() {
    let (world, signer) = bank().await;
    let said = async |target: &str, body: &Value| {
        let envelope = call(&world, &signer, "POST", target, body).await;
        (
            envelope["code"].as_str().expect("a code").to_owned(),
            envelope["errorMessage"].as_str().expect("a text").to_owned(),
        )
    };
    let refused = |sentence: &str| ("400621".to_owned(), sentence.to_owned());
    put_rate(&world, "GT_USDT", json!({"rate": 2, "base_min": "0.5"})).await;
    let quote = good(&world, &signer, "POST", PREVIEW, &selling("1")).await;
    let order = carry_out("r-1", &quote);
    good(&world, &signer, "POST", CONVERT, &order).await;
    world.clock.advance_ms(60_001);
    for amount in ["0", "0.00009", "5000000.000001", "9000000000000"] {
        let range = format!("field sellAmount: must be from 0.5 to 5000000, and is {amount}");
        assert_eq!(said(PREVIEW, &selling(amount)).await, refused(&range), "its rate is too old");
        let mut other = selling(amount);
        other["sellCurrency"] = json!("DOGE");
        let range = format!("field sellAmount: must be from 0.0001 to 5000000, and is {amount}");
        assert_eq!(said(PREVIEW, &other).await, refused(&range), "there is no pair");
        let mut other = carry_out("r-2", &quote);
        other["sellAmount"] = json!(amount);
        assert_eq!(said(CONVERT, &other).await, refused(&range), "its quote is over");
        // What is known is answered first.
        let mut other = order.clone();
        other["sellAmount"] = json!(amount);
        assert_eq!(code(&world, &signer, CONVERT, &other).await, "400201");
    }
    let long = "field sellAmount: must be from 0.0001 to 5000000";
    assert_eq!(said(PREVIEW, &selling(&"9".repeat(40))).await, refused(long));
    assert_eq!(
        said(PREVIEW, &selling("1.0000001")).await,
        refused("field sellAmount: must have at most 6 decimal places")
    );
    let mut other = carry_out("r-2", &quote);
    other["buyAmount"] = json!("0");
    assert_eq!(said(CONVERT, &other).await, refused("field buyAmount: must be from 0.0001 to 5000000, and is 0"));
    // The limits of the pair itself come with its rate, and go with it.
    assert_eq!(code(&world, &signer, PREVIEW, &selling("0.4")).await, "300503");
    assert_eq!(code(&world, &signer, CONVERT, &carry_out("r-2", &quote)).await, "400622");
    assert_eq!(code(&world, &signer, CONVERT, &order).await, "000000");
}

#[tokio::test]
async fn of_two_pairs_of_the_same_currencies_the_one_whose_base_is_sold_is_listed_and_quoted_alone() {
    let (world, signer) = bank().await;
    let preview = async |sell: &str, buy: &str| {
        let body = json!({"sellCurrency": sell, "buyCurrency": buy, "sellAmount": "6"});
        let envelope = call(&world, &signer, "POST", PREVIEW, &body).await;
        (envelope["code"].as_str().expect("a code").to_owned(), envelope["data"]["buyAmount"].clone())
    };
    let of = |code: &str, bought: Value| (code.to_owned(), bought);
    put_rate(&world, "AAA_BBB", json!({"rate": 2, "base_min": "5"})).await;
    put_rate(&world, "BBB_AAA", json!({"rate": 3})).await;
    put_rate(&world, "AAA_CCC", json!({"rate": 4})).await;
    let listed = good(&world, &signer, "GET", "/v1/pay/convert/pair?currency=AAA", &Value::Null).await;
    let ways: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|way| [&way["pair"], &way["sellCurrency"], &way["sellCurrencyMin"]])
        .collect();
    let way = |pair: &str, sell: &str, min: &str| [json!(pair), json!(sell), json!(min)];
    let expected = [
        way("AAA_BBB", "AAA", "5"),
        way("AAA_CCC", "AAA", "0.0001"),
        way("AAA_CCC", "CCC", "0.0001"),
        way("BBB_AAA", "BBB", "0.0001"),
    ];
    assert_eq!(ways, expected.each_ref().map(<[Value; 3]>::each_ref), "{listed}");
    assert_eq!(preview("AAA", "BBB").await, of("000000", json!("12")));
    assert_eq!(preview("BBB", "AAA").await, of("000000", json!("18")));
    // One that nobody keeps up is not replaced by the other, which has another price.
    world.clock.advance_ms(60_001);
    put_rate(&world, "BBB_AAA", json!({"rate": 3})).await;
    assert_eq!(preview("AAA", "BBB").await, of("300503", Value::Null));
    assert_eq!(preview("BBB", "AAA").await, of("000000", json!("18")));
    world.clock.advance_ms(60_001);
    put_rate(&world, "AAA_BBB", json!({"rate": 2})).await;
    assert_eq!(preview("AAA", "BBB").await, of("000000", json!("12")));
    assert_eq!(preview("BBB", "AAA").await, of("300503", Value::Null));
}

#[tokio::test]
async fn a_preview_that_is_not_right_is_told_what_is_wrong() {
    let (world, signer) = market().await;
    let body = |sell: &str, buy: &str, name: &str, amount: Value| {
        let mut body = json!({"sellCurrency": sell, "buyCurrency": buy});
        body[name] = amount;
        body
    };
    let gt = |amount: Value| body("GT", "USDT", "sellAmount", amount);
    for amount in ["0", "0.009999", "5000000.000001", "0.0000001", "1e3", "+1", "-1", " 1", "١", "1,5", "NaN", "88500"]
    {
        assert_eq!(code(&world, &signer, PREVIEW, &gt(json!(amount))).await, "400621", "{amount}");
    }
    for amount in [json!(1), json!(1.5), json!(true), json!({}), json!(["1"])] {
        assert_eq!(code(&world, &signer, PREVIEW, &gt(amount.clone())).await, "400621", "{amount}");
    }
    for (body, expected) in [
        (gt(json!("")), "400001"),
        (gt(Value::Null), "400001"),
        (json!({"sellCurrency": "GT", "buyCurrency": "USDT"}), "400001"),
        (json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "1", "buyAmount": "1"}), "400001"),
        (json!({"buyCurrency": "USDT", "sellAmount": "1"}), "400001"),
        (json!({"sellCurrency": 7, "buyCurrency": "USDT", "sellAmount": "1"}), "400001"),
        (body("gt", "USDT", "sellAmount", json!("1")), "400205"),
        (body("GT", "GT", "sellAmount", json!("1")), "400205"),
        (body("GT", "DOGE", "sellAmount", json!("1")), "300503"),
        (body("GT", "BTC", "sellAmount", json!("1")), "300503"),
        (body("USDT", "BTC", "sellAmount", json!("0.0001")), "400621"),
    ] {
        assert_eq!(code(&world, &signer, PREVIEW, &body).await, expected, "{body}");
    }
    // An empty text is as good as none.
    let mut both = body("USDT", "GT", "buyAmount", json!("1"));
    both["sellAmount"] = json!("");
    let quote = good(&world, &signer, "POST", PREVIEW, &both).await;
    assert_eq!((&quote["sellAmount"], &quote["buyAmount"]), (&json!("22.387415"), &json!("1")), "rounded up");
    for (name, value, expected) in [
        ("clientReqId", json!("a b"), "400001"),
        ("clientReqId", json!("x".repeat(101)), "400001"),
        ("clientReqId", Value::Null, "400001"),
        ("quoteId", Value::Null, "400001"),
        ("sellAmount", json!(1), "400621"),
        ("sellAmount", json!("22.387414"), "400621"),
        ("buyAmount", json!("2"), "400621"),
        ("buyAmount", json!(""), "400001"),
        ("sellCurrency", json!("GT"), "400205"),
        ("buyCurrency", json!("B"), "400205"),
        ("quoteId", json!("PAY-ffffffff"), "400622"),
    ] {
        let mut spoiled = carry_out("r-1", &quote);
        spoiled[name] = value;
        assert_eq!(code(&world, &signer, CONVERT, &spoiled).await, expected, "{name} {spoiled}");
    }
    good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &quote)).await;
}

#[tokio::test]
async fn quotes_and_requests_are_their_merchants_and_an_institution_acts_for_its_sub_accounts() {
    let (world, signer) = market().await;
    let on_behalf = async |signer: &Signer, of: &str, target: &str, body: &Value| {
        let draft = world.draft(signer, "POST", target, &body.to_string()).with("X-Service-On-Behalf-Of", of);
        world.send(&draft).await.expect("an answer").json()
    };
    let quote = on_behalf(&signer, "bank-1", PREVIEW, &selling("1")).await["data"].clone();
    let request = carry_out("r-1", &quote);
    let sub = world.access.application("bank-1", None).await.expect("an application");
    let stranger = world.access.institution("other", 1, None).await.expect("provisioned");
    assert_eq!(code(&world, &signer, CONVERT, &request).await, "400622", "the institution's own is another merchant");
    assert_eq!(code(&world, &stranger, CONVERT, &request).await, "400622");
    assert_eq!(on_behalf(&signer, "bank-2", CONVERT, &request).await["code"], "400622");
    assert_eq!(on_behalf(&stranger, "bank-1", CONVERT, &request).await["code"], "400203");
    let made = on_behalf(&signer, "bank-1", CONVERT, &request).await;
    assert_eq!(made["code"], "000000", "{made}");
    assert_eq!(good(&world, &sub, "POST", CONVERT, &request).await, made["data"], "whichever application asks");
    // The same name is another merchant's own.
    let own = good(&world, &signer, "POST", PREVIEW, &selling("1")).await;
    let other = good(&world, &signer, "POST", CONVERT, &carry_out("r-1", &own)).await;
    assert_ne!(other["order_id"], made["data"]["order_id"]);
}

#[tokio::test]
async fn of_64_equal_requests_at_once_all_are_answered_with_one_order() {
    let (world, signer) = market().await;
    let quote = good(&world, &signer, "POST", PREVIEW, &selling("1")).await;
    let mut all = JoinSet::new();
    for _ in 0..64 {
        let draft = world.draft(&signer, "POST", CONVERT, &carry_out("r-1", &quote).to_string());
        let listen = world.listen();
        all.spawn(async move { once_served(listen, &draft.bytes()).await.expect("an answer").json() });
    }
    let answers = all.join_all().await;
    for answer in &answers {
        assert_eq!(answer["code"], "000000", "{answer}");
        assert_eq!(answer, &answers[0], "the same order, digit for digit");
    }
}
