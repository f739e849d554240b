use std::collections::BTreeSet;

use countersign_sdk::protocol::endpoint::convert_currency::Side;
use countersign_sdk::protocol::endpoint::convert_preview::Fixed;
use countersign_sdk::protocol::endpoint::payment_order::Status;
use countersign_sdk::protocol::endpoint::{
    Endpoint, convert, convert_currency, convert_order, convert_order_list, convert_pair, convert_preview, events,
    order_create, order_list, order_query, rule_create, rule_list, rule_query, rule_upgrade,
};
use countersign_sdk::{CallbackVerifier, Client, Decimal, Error, Secret, SecretRefused};
use serde_json::{Value, json};

use crate::stub::{CLIENT_ID, NOW_MS, SECRET, Stub, success};

fn upgrade() -> rule_upgrade::Request {
    let r_markup = Decimal::from_str_exact("12.34567891").expect("a number");
    rule_upgrade::Request::new("10002", r_markup, "2026-01-02 00:00:00")
}

fn rule() -> Value {
    json!({
        "config_id": "cfg_01", "previous_config_id": null, "version_no": 1, "sub_merchant_id": "10002",
        "r_markup": 0.3, "f_markup": 0, "status": "PENDING_EFFECTIVE", "effective_date": "2026-01-02 00:00:00", "due_date": null,
        "created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z",
    })
}

fn record() -> Value {
    json!({
        "sub_merchant_id": "10002", "has_markup": false, "config_id": null, "version_no": null, "r_markup": null, "f_markup": null,
        "status": null, "effective_date": null, "due_date": null, "expired_date": null,
        "actual_rate": {"r_total": 0.25, "f_total": 1}, "updated_at": null,
    })
}

pub fn order() -> Value {
    json!({
        "order_id": "123", "userId": 7, "sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "3", "buyAmount": "8.5",
        "status": 3, "rate": 2.625, "quoteId": "PAY-0a1b2c3d", "createTime": 1_767_225_600_000_i64,
    })
}

/// The four calls of a conversion, each made of what the one before answered.
async fn conversions(client: &Client) {
    let failed = convert_order_list::Request { status: Some(6), ..convert_order_list::Request::default() };
    assert_eq!(
        convert_order_list::Request::parse(&failed.to_body()),
        Ok(failed.clone()),
        "what is sent is what is read"
    );
    let page = client.convert_order_list(&failed).await.expect("a page");
    assert_eq!((page.orders.len(), page.next.as_deref()), (1, Some("123")));
    let sold = convert_currency::Request { side: Some(Side::Sell) };
    assert_eq!(client.convert_currency(&sold).await.expect("currencies"), ["GT", "USDT"]);
    let of = convert_pair::Request::new("GT");
    assert_eq!(client.convert_pair(&of).await.expect("pairs")[0].buy_currency_max, "4");
    let (sell_currency, buy_currency) = ("GT".to_owned(), "USDT".to_owned());
    let ask = convert_preview::Request { sell_currency, buy_currency, fixed: Fixed::Sell("3".to_owned()) };
    let quote = client.convert_preview(&ask).await.expect("a quote");
    assert_eq!((quote.buy_amount.as_str(), quote.expire_time), ("8.5", 1_767_225_630_000));
    let request = convert::Request::of("r-1", &quote);
    let sent = r#"{"clientReqId":"r-1","quoteId":"PAY-0a1b2c3d","sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"3","buyAmount":"8.5"}"#;
    assert_eq!(request.to_body(), sent.as_bytes());
    assert_eq!(convert::Request::parse(&request.to_body()), Ok(request.clone()), "what is sent is what is read");
    let order = client.convert(&request).await.expect("an order");
    assert_eq!((order.order_id.as_str(), order.status()), ("123", convert_order::Status::Success));
}

fn payment() -> Value {
    json!({
        "prepayId": "1000001", "merchantTradeNo": "T-1", "currency": "USDT", "orderAmount": "10.5", "status": "PAID", "terminalType": null,
        "createTime": 1_767_225_600_000_i64, "expireTime": 1_767_229_200_000_i64,
    })
}

fn payment_in_full() -> Value {
    let mut order = payment();
    let more = json!({
        "merchantId": "10002", "transactTime": null, "goodsName": null, "channelId": null, "actualAmount": "10.5",
        "fee": {
            "config_id": null, "version_no": null, "r_markup": 0, "f_markup": 0, "r_fee": "0", "f_fee": "0", "worked_sum": "no rule",
        },
        "qrContent": null, "location": null,
    });
    order.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    order
}

fn native() -> Value {
    let mut order = payment();
    order["qrContent"] = json!("https://pay.example/1000001");
    order["location"] = json!("https://pay.example/1000001");
    order
}

/// The four calls about payment orders.
async fn payments(client: &Client) {
    let request = order_create::Request {
        goods: Some(order_create::Goods { goods_name: Some("Tea".to_owned()), goods_detail: None }),
        ..order_create::Request::new("T-1", Decimal::new(1050, 2), "USDT")
    };
    assert_eq!(order_create::Request::parse(&request.to_body()), Ok(request.clone()), "what is sent is what is read");
    assert!(String::from_utf8(request.to_body()).expect("JSON").contains(r#""orderAmount":"10.5""#));
    assert_eq!(client.order_create(&request).await.expect("an order").0.prepay_id, "1000001");
    assert_eq!(client.order_native(&request).await.expect("an order").qr_content, "https://pay.example/1000001");
    let name = order_query::Request::trade_no("T-1");
    assert_eq!(order_query::Request::parse(&name.to_body()), Ok(name.clone()), "what is sent is what is read");
    assert_eq!(order_query::Request::prepay_id("1000001").to_body(), br#"{"prepayId":"1000001"}"#);
    let found = client.order_query(&name).await.expect("an order");
    assert_eq!((found.order.order_amount.as_str(), found.fee.expect("it is paid").r_fee.as_str()), ("10.5", "0"));
    let paid = order_list::Request { status: Some(Status::Paid), ..order_list::Request::default() };
    assert_eq!(order_list::Request::parse(&paid.to_body()), Ok(paid.clone()), "what is sent is what is read");
    let page = client.order_list(&paid).await.expect("a page");
    assert_eq!((page.orders.len(), page.next.as_deref()), (1, Some("1000001")));
    assert_eq!(client.order_close(&name).await.expect("closed").result, "SUCCESS");
}

#[tokio::test]
async fn there_is_a_method_for_every_endpoint_and_what_is_signed_is_signed_right() {
    let stub = Stub::start().await;
    let client = stub.client().merchant_id("main").build().expect("a client");
    stub.answers([
        success(&json!({"serverTime": 1_767_225_600_123_i64})),
        success(&rule()),
        success(&rule()),
        success(&record()),
        success(&json!({"records": [record()], "total": 1, "size": 20, "current": 1, "pages": 1})),
        success(&order()),
        success(&json!({"orders": [order()], "next": "123"})),
        success(&json!(["GT", "USDT"])),
        success(&json!([{
            "pair": "GT_USDT", "sellCurrency": "GT", "buyCurrency": "USDT", "sellCurrencyMin": "1", "sellCurrencyMax": "2",
            "buyCurrencyMin": "3", "buyCurrencyMax": "4",
        }])),
        success(&json!({
            "sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "3", "buyAmount": "8.5", "rate": 2.625,
            "quoteId": "PAY-0a1b2c3d", "expireTime": 1_767_225_630_000_i64,
        })),
        success(&order()),
        success(&payment()),
        success(&native()),
        success(&payment_in_full()),
        success(&json!({"orders": [payment_in_full()], "next": "1000001"})),
        success(&json!({"result": "SUCCESS"})),
        success(&json!({"events": [], "next": 5})),
    ]);
    let query =
        rule_query::Request { query_time: Some("2026-01-02 00:00:00".to_owned()), ..rule_query::Request::new("10002") };
    let list = rule_list::Request::default();

    assert_eq!(client.time().await.expect("time").server_time, 1_767_225_600_123);
    assert_eq!(client.rule_upgrade(&upgrade()).await.expect("upgrade").r_markup.to_string(), "0.3");
    let create = rule_create::Request(upgrade());
    assert_eq!(client.rule_create(&create).await.expect("create").version_no, 1);
    assert!(!client.rule_query(&query).await.expect("query").has_markup);
    assert_eq!(client.rule_list(&list).await.expect("list").records.len(), 1);
    let wanted = client.convert_order(&convert_order::Request { order_id: "123".to_owned() }).await.expect("order");
    assert_eq!((wanted.order_id.as_str(), wanted.rate.to_string().as_str()), ("123", "2.625"));
    conversions(&client).await;
    payments(&client).await;
    assert_eq!(client.events(&events::Request { after: 3, limit: 2 }).await.expect("events").next, 5);

    let seen = stub.seen();
    let asked: BTreeSet<_> = seen.iter().map(|s| (s.method.as_str(), s.uri.path())).collect();
    let all: BTreeSet<_> = Endpoint::ALL.iter().map(|e| (e.method(), e.path())).collect();
    assert_eq!(asked, all);
    for request in &seen {
        let endpoint =
            Endpoint::ALL.iter().find(|e| (e.method(), e.path()) == (request.method.as_str(), request.uri.path()));
        let is_signed = endpoint.expect("an endpoint").is_signed();
        assert!(!is_signed || request.is_signed_with(SECRET, "X-Service-"), "{request:?}");
        assert_eq!(request.header("x-service-certificate-clientid"), is_signed.then_some(CLIENT_ID));
        assert_eq!(request.header("x-service-merchantid"), is_signed.then_some("main"));
        assert_eq!(request.header("x-service-on-behalf-of"), None);
        assert_eq!(request.header("content-type"), Some("application/json"));
    }
    assert_eq!(
        seen[1].body,
        r#"{"sub_merchant_id":"10002","r_markup":12.34567891,"f_markup":0,"effective_date":"2026-01-02 00:00:00"}"#
    );
    assert_eq!(seen[5].uri.query(), Some("orderId=123"));
}

/// `printf '1767225600000\n0000000000000000000000000000abc0\n\n' | openssl dgst -sha512 -hmac "$SECRET"`
#[tokio::test]
async fn a_known_request_has_its_known_signature() {
    let stub = Stub::start().await;
    stub.answers([success(&order())]);
    let client = stub.client().build().expect("a client");
    client.call("GET", "/v1/pay/convert/order?orderId=123", b"").await.expect("an answer");
    let seen = stub.seen().remove(0);
    assert_eq!(seen.header("x-service-timestamp"), Some("1767225600000"));
    assert_eq!(seen.header("x-service-nonce"), Some("0000000000000000000000000000abc0"));
    assert_eq!(seen.header("x-service-signature"), Some(KNOWN_SIGNATURE));
}

const KNOWN_SIGNATURE: &str = "7b63e3cc93750ec4105419a3efb5b139c3a0da9ed9233a477aaaa924718652098e65957ce64fa1154c91cc6a89546056ceb8950fb3c1b9a529d7850e4982bfd3";

#[tokio::test]
async fn every_request_has_a_nonce_of_its_own() {
    let stub = Stub::start().await;
    let client = Client::builder(format!("http://{}", stub.address), CLIENT_ID, SECRET).build().expect("a client");
    stub.answers(std::iter::repeat_n(success(&json!({})), 20));
    for _ in 0..20 {
        client.call("GET", "/", b"").await.expect("an answer");
    }
    let seen = stub.seen();
    let nonces: BTreeSet<_> = seen.iter().filter_map(|s| s.header("x-service-nonce")).collect();
    assert_eq!(nonces.len(), 20);
    assert!(nonces.iter().all(|n| n.len() == 32 && n.bytes().all(|b| b.is_ascii_hexdigit())));
}

#[tokio::test]
async fn prefix_and_identity_are_sent_as_they_were_set() {
    let stub = Stub::start().await;
    stub.answers(std::iter::repeat_n(success(&json!({})), 2));
    let client = stub.client().header_prefix("X-Other-").on_behalf_of("10002").build().expect("a client");
    client.call("POST", "/v1/pay/x", b"{}").await.expect("an answer");
    client.on_behalf_of("10003").call("POST", "/v1/pay/x", b"{}").await.expect("an answer");
    let seen = stub.seen();
    assert!(seen.iter().all(|s| s.is_signed_with(SECRET, "X-Other-")));
    let names: Vec<_> = seen.iter().map(|s| s.header("x-other-on-behalf-of")).collect();
    assert_eq!(names, [Some("10002"), Some("10003")]);
}

#[test]
fn a_request_that_was_written_down_is_the_same_again() {
    let order = order_create::Request {
        order_expire_time: Some(NOW_MS),
        merchant_user_id: Some("7".to_owned()),
        env: Some(order_create::Env { terminal_type: Some("APP".to_owned()) }),
        goods: Some(order_create::Goods::default()),
        ..order_create::Request::new("T-1", Decimal::new(105, 1), "USDT")
    };
    let kept = serde_json::to_string(&order).expect("JSON");
    assert_eq!(serde_json::from_str::<order_create::Request>(&kept).expect("read"), order);
    let plain = order_create::Request::new("T-1", Decimal::new(105, 1), "USDT");
    assert_eq!(serde_json::from_slice::<order_create::Request>(&plain.to_body()).expect("read"), plain);
    let due_date = Some("2027-01-02 00:00:00".to_owned());
    let rule = rule_upgrade::Request { f_markup: Decimal::new(1_000_001, 6), due_date, ..upgrade() };
    let kept = serde_json::to_string(&rule).expect("JSON");
    assert_eq!(serde_json::from_str::<rule_upgrade::Request>(&kept).expect("read"), rule, "all digits: {kept}");
    let first = rule_create::Request(upgrade());
    let kept = serde_json::to_string(&first).expect("JSON");
    assert_eq!(serde_json::from_str::<rule_create::Request>(&kept).expect("read"), first);
    let name = order_query::Request::trade_no("T-1");
    assert_eq!(serde_json::from_slice::<order_query::Request>(&name.to_body()).expect("read"), name);
    let text = |text: &str| text.to_owned();
    let convert = convert::Request {
        client_req_id: text("r-1"),
        quote_id: text("PAY-1"),
        sell_currency: text("GT"),
        buy_currency: text("USDT"),
        sell_amount: text("3"),
        buy_amount: text("8.5"),
    };
    assert_eq!(serde_json::from_slice::<convert::Request>(&convert.to_body()).expect("read"), convert);
}

#[test]
fn a_client_is_refused_before_it_could_leak_anything() {
    let refused = |url: &str| match Client::builder(url, CLIENT_ID, SECRET).build() {
        Err(Error::Usage(why)) => why,
        other => panic!("{url}: {other:?}"),
    };
    assert!(refused("http://pay.example.com").contains("https"));
    assert!(refused("http://127.0.0.1.example.com").contains("https"));
    assert!(refused("ftp://127.0.0.1").contains("https"));
    let with_password = refused("https://user:password@pay.example.com");
    assert!(with_password.contains("only") && !with_password.contains("password@"), "{with_password}");
    assert!(refused("https://pay.example.com/?x=1").contains("only"));
    assert!(refused("pay.example.com").contains("cannot be read"));
    for local in ["http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]:8080/base/", "http://localhost"] {
        Client::builder(local, CLIENT_ID, SECRET).build().expect("a machine's own address");
    }
    let prefix = Client::builder("http://127.0.0.1", CLIENT_ID, SECRET).header_prefix("X Service ").build();
    assert!(matches!(prefix, Err(Error::Usage(_))));
}

#[test]
fn no_proxy_reads_what_is_sent_in_the_clear() {
    let to = |base_url| Client::builder(base_url, CLIENT_ID, SECRET).proxy("http://127.0.0.1:3128").build();
    assert!(
        matches!(to("http://127.0.0.1:8080"), Err(Error::Usage(why)) if why.starts_with("a proxy needs a base URL"))
    );
    to("https://127.0.0.1:8080").expect("through a tunnel");
}

#[test]
fn a_client_without_a_secret_or_a_name_is_refused() {
    let refused = |client_id: &str, secret: &str| match Client::builder("http://127.0.0.1", client_id, secret).build() {
        Err(Error::Usage(why)) => why,
        other => panic!("{client_id:?} {secret:?}: {other:?}"),
    };
    for nothing in ["", " ", "\n"] {
        assert!(refused(CLIENT_ID, nothing).starts_with("the secret is empty"), "{nothing:?}");
        assert!(refused(nothing, SECRET).starts_with("the ClientId is empty"), "{nothing:?}");
    }
    assert!(refused(CLIENT_ID, "\0").starts_with("the secret is empty"));
}

/// As they come out of files and variables, and what is said of each.
#[test]
fn what_can_be_no_secret_is_refused_with_what_to_change() {
    const SECRET_OF_32: &str = "sk_456789012345678901234567890ab";
    for (text, wanted, said) in [
        ("app_01JGFJJZ00EXAMPLE0000000000123456", SecretRefused::ClientId, "begins with app_"),
        ("app_01\n", SecretRefused::ClientId, "begins with app_"),
        ("${COUNTERSIGN_SECRET}", SecretRefused::Placeholder, "in ${...}"),
        ("sk_${COUNTERSIGN_SECRET_OF_PRODUCTION}", SecretRefused::Placeholder, "in ${...}"),
        (&format!("{SECRET}\n"), SecretRefused::Invisible, "cut it off"),
        (&format!(" {SECRET}"), SecretRefused::Invisible, "cut it off"),
        (&format!("{SECRET} {SECRET}"), SecretRefused::Invisible, "cut it off"),
        (&format!("\u{feff}{SECRET}"), SecretRefused::Invisible, "cut it off"),
        (&format!("{SECRET}\u{200b}"), SecretRefused::Invisible, "cut it off"),
        (&format!("{SECRET}\0"), SecretRefused::Invisible, "cut it off"),
        (&SECRET_OF_32[1..], SecretRefused::TooShort, "fewer than 32 characters"),
        ("null", SecretRefused::TooShort, "fewer than 32 characters"),
    ] {
        let refused = Secret::new(text).expect_err(text);
        assert_eq!(refused, wanted, "{text:?}");
        assert!(refused.to_string().contains(said) && !refused.to_string().contains(text), "{refused}");
        let built = Client::builder("http://127.0.0.1", CLIENT_ID, text).build();
        assert!(matches!(&built, Err(Error::Usage(why)) if *why == refused.to_string()), "{text:?}: {built:?}");
        Secret::of_any_form(text).expect("of any form");
    }
    let client = Client::builder("http://127.0.0.1", CLIENT_ID, SECRET_OF_32).build().expect("32 are enough");
    assert!(matches!(client.set_secret("null"), Err(Error::Usage(_))));
}

#[test]
fn a_secret_in_the_place_of_the_client_id_is_refused_and_shown_nowhere() {
    let builder = Client::builder("http://127.0.0.1", "sk_this_is_a_secret", SECRET);
    assert!(!format!("{builder:?}").contains("sk_"), "{builder:?}");
    let refused = builder.build().expect_err("it is no ClientId");
    assert!(refused.to_string().starts_with("the ClientId begins with sk_, as secrets do"), "{refused}");
    assert!(!refused.to_string().contains("sk_this"), "{refused}");
    let refused = CallbackVerifier::new("sk_this_is_a_secret", SECRET).expect_err("it is no ClientId");
    assert!(refused.to_string().starts_with("the ClientId begins with sk_"), "{refused}");
    let shown = format!("{:?}", Client::builder("http://127.0.0.1", CLIENT_ID, SECRET));
    assert!(shown.contains(CLIENT_ID), "{shown}");
    assert_eq!(format!("{:?}", Secret::new(SECRET).expect("a secret")), "Secret(..)");
}

#[tokio::test]
async fn a_new_secret_signs_from_then_on_for_clones_too() {
    const NEW: &str = "demo-secret-that-follows-the-other-9876543210fedcbaFEDCBA";
    let stub = Stub::start().await;
    stub.answers(std::iter::repeat_n(success(&json!({})), 3));
    let client = stub.client().build().expect("a client");
    let clone = client.on_behalf_of("10003");
    clone.call("GET", "/x", b"").await.expect("an answer");
    client.set_secret(NEW).expect("a secret");
    clone.call("GET", "/x", b"").await.expect("an answer");
    assert!(client.set_secret("").is_err());
    client.call("GET", "/x", b"").await.expect("an answer");
    let signed: Vec<_> =
        stub.seen().iter().map(|s| [SECRET, NEW].map(|secret| s.is_signed_with(secret, "X-Service-"))).collect();
    assert_eq!(signed, [[true, false], [false, true], [false, true]]);
}

#[tokio::test]
async fn a_name_that_no_header_can_hold_is_refused_by_its_field_and_never_repeated() {
    let stub = Stub::start().await;
    let id_form = "it must be 1 to 128 visible ASCII characters, and nothing is trimmed";
    let name_form = "it must be 1 to 64 of A-Z a-z 0-9 _ -, and nothing is trimmed";
    let long = "x".repeat(129);
    let usage = |error: Error| match error {
        Error::Usage(why) => why,
        other => panic!("{other:?}"),
    };
    // Each text as it comes out of a file or a variable, or is in the wrong one.
    for (text, fault) in [
        ("demo\n", "has a line feed in it"),
        ("demo\r\n", "has a carriage return in it"),
        ("demo ", "has white space in it"),
        ("de\0mo", "has a control character in it"),
        ("d\u{e9}mo", "has a character in it that none has"),
        (&long, "is too long"),
    ] {
        let refused = Client::builder("http://127.0.0.1", text, SECRET).build().expect_err("no header can hold it");
        assert_eq!(usage(refused), format!("the ClientId {fault}: {id_form}"));
        let refused = stub.client().merchant_id(text).build().expect_err("no header can hold it");
        assert_eq!(usage(refused), format!("the MerchantId {fault}: {name_form}"));
        let refused = stub.client().on_behalf_of(text).build().expect_err("no header can hold it");
        assert_eq!(usage(refused), format!("the On-Behalf-Of {fault}: {name_form}"));
        let client = stub.client().build().expect("a client").on_behalf_of(text);
        let refused = client.call("GET", "/x", b"").await.expect_err("no header can hold it");
        assert_eq!(usage(refused), format!("the On-Behalf-Of {fault}: {name_form}"));
    }
    let refused = stub.client().merchant_id("").build().expect_err("it is empty");
    assert_eq!(usage(refused), "the MerchantId is empty: is the variable set that it comes from?");
    assert!(stub.seen().is_empty(), "nothing was sent");
}

#[test]
fn a_secret_is_printed_nowhere() {
    let builder =
        Client::builder("https://127.0.0.1", CLIENT_ID, SECRET).proxy("http://user:demo-secret@127.0.0.1:3128");
    assert!(!format!("{builder:?}").contains("demo-secret"));
    let client = builder.build().expect("a client");
    let text = format!("{client:?} {client:#?}");
    assert!(text.contains(CLIENT_ID) && !text.contains("demo-secret"), "{text}");
}

#[tokio::test]
async fn a_path_goes_behind_the_base_url() {
    let stub = Stub::start().await;
    stub.answers([success(&json!({}))]);
    let client =
        Client::builder(format!("http://{}/base/", stub.address), CLIENT_ID, SECRET).build().expect("a client");
    client.call("GET", "/v1/time?a=%2F&b", b"").await.expect("an answer");
    assert_eq!(stub.seen()[0].uri.to_string(), "/base/v1/time?a=%2F&b");
    assert!(matches!(client.call("GET", "v1/time", b"").await, Err(Error::Usage(_))));
    assert!(matches!(client.call("GE T", "/v1/time", b"").await, Err(Error::Usage(_))));
    assert!(stub.seen().is_empty());
}
