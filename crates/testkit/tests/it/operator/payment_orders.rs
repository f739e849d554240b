//! Payment orders: listed by filter and page, shown, moved once under a key, told in the words of the application.

use std::sync::Arc;

use countersign::app::Actor;
use countersign::app::payment_orders::{Wanted, amount, create, currency};
use countersign_domain::ids::ApplicationNo;
use countersign_domain::payment_order::{Content, PaymentKind};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::Store as _;
use countersign_store::contract::ClaimKey;
use serde_json::{Value, json};

use super::listener::{House, START, all_pages};

/// Makes an order of a merchant as its application would; its number.
pub async fn made(house: &House, by: (&str, &str), trade_no: &str, of: &str) -> String {
    made_in(house, by, trade_no, (of, "USDT")).await
}

/// The same in another currency.
pub async fn made_in(
    house: &House,
    (merchant_id, client_id): (&str, &str),
    trade_no: &str,
    (of, coin): (&str, &str),
) -> String {
    let owner = house.app.store.merchant(merchant_id).await.expect("reads").expect("is there");
    let by = house.app.store.application(client_id).await.expect("reads").expect("is there").application;
    let content = Content {
        kind: PaymentKind::Order,
        currency: currency("currency", coin).expect("a code"),
        amount: amount("orderAmount", of, PaymentKind::Order).expect("an amount"),
        merchant_user_id: None,
        channel_id: None,
        goods_name: None,
        goods_detail: None,
    };
    let wanted = Wanted {
        trade_no: trade_no.to_owned(),
        content,
        terminal_type: None,
        return_url: None,
        cancel_url: None,
        expires_at: None,
        received: Arc::default(),
    };
    let claim = ClaimKey {
        tenant: owner.tenant,
        application: ApplicationNo(by.no.0),
        nonce: format!("{merchant_id}.{trade_no}"),
        stamped_at: house.app.clock.now(),
    };
    let actor = Actor {
        name: format!("application:{client_id}"),
        source: String::new(),
        request_id: "req".to_owned(),
        right: None,
    };
    let row = create(&house.app, &owner, &by, &wanted, &claim, &actor).await.expect("it is made");
    row.order.prepay_id.to_string()
}

fn trade_nos(items: &[Value]) -> Vec<String> {
    items.iter().map(|item| item["merchantTradeNo"].as_str().expect("a text").to_owned()).collect()
}

#[tokio::test]
async fn orders_are_listed_newest_first_by_filter_and_page() {
    let house = House::open().await;
    let (first, second) = (house.application("m", None).await, house.application("n", None).await);
    for n in 1..=5 {
        let of = if n % 2 == 0 { ("n", second.as_str()) } else { ("m", first.as_str()) };
        made(&house, of, &format!("T-{n}"), &format!("{n}")).await;
        house.app.clock.advance_ms(60_000);
    }
    let third = made(&house, ("n", &second), "T-1", "9").await;
    house.patch(&format!("/payment-orders/{third}"), json!({"status": "PAID"})).await.ok();
    let list = async |query: &str| trade_nos(&all_pages(&house, &format!("/payment-orders{query}"), 2).await);
    assert_eq!(list("").await, ["T-1", "T-5", "T-4", "T-3", "T-2", "T-1"]);
    assert_eq!(list("?merchant_id=m").await, ["T-5", "T-3", "T-1"]);
    assert_eq!(list("?state=PAID").await, ["T-1"]);
    assert_eq!(list("?status=PAID").await, ["T-1"], "the member's own name");
    house.get("/payment-orders?status=PAID&state=PAID").await.refused(400, "400001", "status");
    assert_eq!(list("?state=PENDING&merchant_id=n").await, ["T-4", "T-2"]);
    assert_eq!(list("?merchantTradeNo=T-1").await, ["T-1", "T-1"]);
    assert_eq!(list("?amount_from=2&amount_to=4").await, ["T-4", "T-3", "T-2"]);
    assert_eq!(list("?from=2026-01-01T00:01:00Z&to=2026-01-01T00:03:00Z").await, ["T-3", "T-2"]);
    assert_eq!(list("?state=EXPIRED").await, [] as [&str; 0]);
    house.app.clock.advance_ms(START.0 + 3_600_000 - house.app.clock.now().0);
    assert_eq!(list("?state=EXPIRED").await, ["T-1"], "at its exact instant, though nobody has noted it yet");
    for (query, word) in [
        ("state=paid", "state"),
        ("from=yesterday", "from"),
        ("amount_from=x", "amount_from"),
        ("after=7", "after"),
        ("limit=0", "limit"),
    ] {
        let answer = house.get(&format!("/payment-orders?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
        assert!(answer.text.contains(word), "{query}: {}", answer.text);
    }
    house.get("/payment-orders?merchant_id=nobody").await.refused(404, "400404", "nobody");
    house.get("/payment-orders/17").await.refused(404, "400202", "order");
}

#[tokio::test]
async fn a_move_is_made_once_under_its_key_and_has_its_history_its_audit_line_and_its_callback() {
    let house = House::open().await;
    let client = house.application("m", None).await;
    house.patch(&format!("/applications/{client}"), json!({"callback_vocabulary": "family"})).await.ok();
    let id = made(&house, ("m", &client), "T-1", "10.5").await;
    let path = format!("/payment-orders/{id}");
    let ask = |status: &str| {
        let body = json!({"status": status, "actualAmount": "10.4"}).to_string();
        house.request("PATCH", &path, Some(&body), &[("idempotency-key", "move")])
    };
    let first = house.send(ask("PROCESS")).await.ok();
    assert_eq!(house.send(ask("PROCESS")).await.ok().text, first.text);
    house.send(ask("PAID")).await.refused(409, "400804", "Idempotency-Key");
    house.patch(&path, json!({"status": "PROCESS"})).await.refused(409, "400204", "PROCESS");
    for wrong in [json!({}), json!({"status": "LOST"}), json!({"status": "PAID", "transactTime": -1})] {
        let answer = house.patch(&path, wrong.clone()).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text);
    }
    house.patch(&path, json!({"status": "PAID", "actualAmount": "5000000.000001"})).await.refused(
        400,
        "400621",
        "actualAmount",
    );
    let paid = house.patch(&path, json!({"status": "PAID"})).await.ok().json();
    assert_eq!((&paid["actualAmount"], &paid["revision"], &paid["kind"]), (&json!("10.4"), &json!(3), &json!("order")));
    let shown = house.get(&path).await.ok().json();
    let history: Vec<_> =
        shown["history"].as_array().expect("a history").iter().map(|e| (&e["seq"], &e["from"], &e["to"])).collect();
    let (pending, process) = (json!("PENDING"), json!("PROCESS"));
    let expected =
        [(&json!(1), &Value::Null, &pending), (&json!(2), &pending, &process), (&json!(3), &process, &json!("PAID"))];
    assert_eq!(history, expected, "{shown}");
    assert!(shown["history"][2]["actor"].as_str().is_some_and(|actor| actor.starts_with("token:")));
    let events = house.get(&format!("/events?bizId={id}")).await.ok().json();
    let told: Vec<_> =
        events["items"].as_array().expect("items").iter().map(|e| (&e["bizType"], &e["bizStatus"])).collect();
    let pay = json!("PAY");
    assert_eq!(told, [(&pay, &json!("PAY_SUCCESS")), (&pay, &json!("PAY_PROCESS"))]);
    let lines = house.audit().await;
    let about: Vec<_> =
        lines.iter().filter(|line| line["subject"] == id.as_str()).map(|line| line["action"].clone()).collect();
    assert_eq!(about, ["payment_order.move", "payment_order.move", "payment_order.create"]);
    let made = lines.iter().find(|line| line["action"] == "payment_order.create").expect("its making");
    let expire_at = rfc3339(UnixMillis(shown["expireTime"].as_i64().expect("a time")));
    assert_eq!((&made["after"]["expire_at"], &made["after"]["expireTime"]), (&json!(expire_at), &Value::Null));
    assert_eq!(UnixMillis(shown["createTime"].as_i64().expect("a time")), START);
}
