//! The parts that vectors do not reach: prefixes, codes, endpoints, nonces of callbacks, the replay window.

use std::collections::BTreeSet;

use countersign_protocol::body::Fields;
use countersign_protocol::callback::{CallbackBody, callback_nonce};
use countersign_protocol::code::{Code, SUCCESS};
use countersign_protocol::endpoint::{Endpoint, payment_order, rule_list, time};
use countersign_protocol::envelope;
use countersign_protocol::headers::{Header, PrefixRefused, Prefixes, RESERVED_NONCE_PREFIX, is_nonce};
use countersign_protocol::query::Query;
use countersign_protocol::replay::{Window, WindowRefused};
use countersign_protocol::signing::{Encoding, SigningKey};

fn prefixes(texts: &[&str]) -> Result<Prefixes, PrefixRefused> {
    Prefixes::new(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

#[test]
fn prefixes_are_refused_when_headers_could_not_be_named_with_them() {
    for bad in ["", "-", "X Service-", "X-Service", "9-", "X-Sérvice-", "X-Service:-", "-X-"] {
        assert_eq!(prefixes(&[bad]), Err(PrefixRefused::Form(bad.to_owned())), "{bad:?}");
    }
    assert!(matches!(prefixes(&[&format!("{}-", "x".repeat(32))]), Err(PrefixRefused::Form(_))));
    assert!(prefixes(&[&format!("{}-", "x".repeat(31))]).is_ok());
    assert_eq!(prefixes(&[]), Err(PrefixRefused::Count));
    assert_eq!(prefixes(&["A-", "B-", "C-", "D-", "E-", "F-", "G-", "H-", "I-"]), Err(PrefixRefused::Count));
    assert_eq!(prefixes(&["X-Service-", "x-service-"]), Err(PrefixRefused::Twice("x-service-".to_owned())));
}

#[test]
fn names_are_shown_with_the_prefix_as_given_and_compared_in_lower_case() {
    let prefixes = prefixes(&["X-Service-", "X-Other-"]).expect("good prefixes");
    assert_eq!(prefixes.all().len(), 2);
    let names = prefixes.first();
    for (header, shown, lower) in [
        (Header::ClientId, "X-Service-Certificate-ClientId", &names.client_id),
        (Header::ClientIdAlias, "X-Service-Certificate-SN", &names.client_id_alias),
        (Header::Timestamp, "X-Service-Timestamp", &names.timestamp),
        (Header::Nonce, "X-Service-Nonce", &names.nonce),
        (Header::Signature, "X-Service-Signature", &names.signature),
        (Header::SignatureNext, "X-Service-Signature-Next", &names.signature_next),
        (Header::MerchantId, "X-Service-MerchantId", &names.merchant_id),
        (Header::OnBehalfOf, "X-Service-On-Behalf-Of", &names.on_behalf_of),
        (Header::RequestId, "X-Service-Request-Id", &names.request_id),
        (Header::EventId, "X-Service-Event-Id", &names.event_id),
        (Header::Attempt, "X-Service-Attempt", &names.attempt),
        (Header::Sequence, "X-Service-Sequence", &names.sequence),
    ] {
        assert_eq!(names.display(header), shown);
        assert_eq!(*lower, shown.to_ascii_lowercase());
    }
}

#[test]
fn signatures_and_secrets_do_not_show_in_debug() {
    let key = SigningKey::new(b"a-secret");
    assert_eq!(format!("{key:?}"), "SigningKey(..)");
    let prefixes = prefixes(&["X-Service-"]).expect("a good prefix");
    let sent: [(&str, &[u8]); 4] = [
        ("x-service-certificate-clientid", b"app_1"),
        ("x-service-timestamp", b"1767225600000"),
        ("x-service-nonce", b"n1"),
        ("x-service-signature", b"very-secret-signature"),
    ];
    let shown = format!("{:?}", prefixes.parse(sent.into_iter()).expect("good headers"));
    assert!(shown.contains("app_1") && !shown.contains("secret") && !shown.contains("118, 101"), "{shown}");
}

#[test]
fn both_names_of_client_id_are_named_when_both_are_sent() {
    let prefixes = prefixes(&["X-Service-"]).expect("a good prefix");
    let sent: [(&str, &[u8]); 2] =
        [("x-service-certificate-sn", b"app_1"), ("x-service-certificate-clientid", b"app_1")];
    let why = prefixes.parse(sent.into_iter()).expect_err("one of them is enough");
    assert_eq!(
        why.to_string(),
        "header X-Service-Certificate-ClientId: is another name of the header X-Service-Certificate-SN; send one of them"
    );
    assert_eq!(why.code(), Code::InvalidParameter);
}

#[test]
fn codes_and_labels_are_distinct_and_found_again() {
    let codes: BTreeSet<_> = Code::ALL.iter().map(|code| code.code()).collect();
    let labels: BTreeSet<_> = Code::ALL.iter().map(|code| code.label()).collect();
    assert_eq!((codes.len(), labels.len()), (Code::ALL.len(), Code::ALL.len()));
    assert!(!codes.contains(SUCCESS));
    for &code in Code::ALL {
        assert_eq!(Code::from_code(code.code()), Some(code));
        assert!(code.code().len() == 6 && code.http_status() >= 400, "{code}");
    }
    assert_eq!(Code::from_code("400000"), None);
    assert_eq!(Code::ALL.iter().filter(|code| code.is_operator_only()).count(), 5);
}

#[test]
fn endpoints_are_distinct_and_only_the_time_is_unsigned() {
    let doors: BTreeSet<_> = Endpoint::ALL.iter().map(|e| (e.method(), e.path())).collect();
    let names: BTreeSet<_> = Endpoint::ALL.iter().map(|e| e.name()).collect();
    assert_eq!((doors.len(), names.len()), (Endpoint::ALL.len(), Endpoint::ALL.len()));
    for endpoint in Endpoint::ALL {
        assert_eq!(endpoint.is_signed(), endpoint.path() != time::PATH, "{endpoint}");
        assert_eq!(endpoint.is_institution_only(), endpoint.path().starts_with("/rate/"), "{endpoint}");
        assert!(!endpoint.changes() || endpoint.method() == "POST", "{endpoint}");
    }
    assert_eq!(Endpoint::RuleUpgrade.to_string(), "POST /rate/commission_rule/upgrade");
}

#[test]
fn a_callbacks_nonce_has_the_reserved_prefix_and_32_characters() {
    assert_eq!(callback_nonce(0), "callback000000000000000000000000");
    assert_eq!(callback_nonce(u128::MAX), "callbackffffffffffffffffffffffff");
    let nonce = callback_nonce(0x0123_4567_89ab_cdef_0123_4567);
    assert_eq!(nonce, "callback0123456789abcdef01234567");
    assert!(nonce.len() == 32 && nonce.starts_with(RESERVED_NONCE_PREFIX) && is_nonce(&nonce));
}

#[test]
fn a_callbacks_body_is_written_in_the_contracts_order_and_read_back() {
    let body = CallbackBody {
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: "70023".to_owned(),
        biz_status: "SUCCESS".to_owned(),
        client_id: "app_1".to_owned(),
        data: r#"{"merchantTradeNo":"T-1"}"#.to_owned(),
    };
    let bytes = body.to_bytes();
    assert_eq!(
        String::from_utf8_lossy(&bytes),
        r#"{"bizType":"PAYMENT_ORDER","bizId":"70023","bizStatus":"SUCCESS","client_id":"app_1","data":"{\"merchantTradeNo\":\"T-1\"}"}"#
    );
    assert_eq!(serde_json::from_slice::<CallbackBody>(&bytes).expect("we read what we write"), body);
}

#[test]
fn an_encodings_name_is_read_back_and_no_other_is() {
    for encoding in [Encoding::Hex, Encoding::Base64] {
        assert_eq!(Encoding::from_name(encoding.name()), Some(encoding));
    }
    assert_eq!((Encoding::from_name("HEX"), Encoding::from_name("")), (None, None));
}

#[test]
fn the_time_is_answered_as_milliseconds() {
    let bytes = envelope::success(&time::Response { server_time: 1_767_225_600_000 }).expect("a number serializes");
    let expected =
        r#"{"status":"SUCCESS","code":"000000","label":"","errorMessage":"","data":{"serverTime":1767225600000}}"#;
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

#[test]
fn a_window_admits_a_nonce_once_and_forgets_it_when_its_time_is_over() {
    let mut window = Window::new(1_000, 10);
    assert_eq!(window.admit("a", 5_000, 5_000), Ok(()));
    assert_eq!(window.admit("a", 5_000, 5_500), Err(WindowRefused::Seen));
    assert_eq!(window.admit("a", 5_400, 5_500), Err(WindowRefused::Seen), "another timestamp is no other nonce");
    assert_eq!(window.admit("b", 5_000, 6_000), Ok(()), "exactly as old as allowed");
    assert_eq!(window.admit("a", 5_000, 6_000), Err(WindowRefused::Seen), "kept as long as it is acceptable");
    assert_eq!(window.admit("c", 5_000, 6_001), Err(WindowRefused::TooOld));
    assert!(window.is_empty(), "nothing is kept longer than it must be");
}

#[test]
fn a_window_whose_clock_is_set_back_refuses_what_it_may_have_forgotten() {
    let mut window = Window::new(1_000, 10);
    assert_eq!(window.admit("a", 5_000, 5_000), Ok(()));
    assert_eq!(window.admit("b", 9_000, 9_000), Ok(()));
    assert_eq!(window.admit("a", 5_000, 5_000), Err(WindowRefused::TooOld));
    assert_eq!(window.admit("c", 5_001, 5_001), Ok(()), "what is newer than all that was forgotten is good");
}

#[test]
fn a_full_window_refuses_rather_than_forget_and_has_room_again_later() {
    let mut window = Window::new(1_000, 2);
    assert_eq!(window.admit("a", 5_000, 5_000), Ok(()));
    assert_eq!(window.admit("b", 5_100, 5_100), Ok(()));
    assert_eq!(window.admit("c", 5_200, 5_200), Err(WindowRefused::Full));
    assert_eq!(window.len(), 2);
    assert_eq!(window.admit("a", 5_000, 5_200), Err(WindowRefused::Seen), "even then it knows what it has seen");
    assert_eq!(window.admit("c", 6_001, 6_001), Ok(()));
}

#[test]
fn a_released_nonce_is_good_again() {
    let mut window = Window::new(1_000, 10);
    assert_eq!(window.admit("a", 5_000, 5_000), Ok(()));
    window.release("a", 4_999);
    assert_eq!(window.admit("a", 5_000, 5_000), Err(WindowRefused::Seen), "released with another timestamp: kept");
    window.release("a", 5_000);
    assert_eq!(window.admit("a", 5_000, 5_000), Ok(()));
}

#[test]
fn a_text_with_half_a_character_is_refused_for_that() {
    let body = br#"{"half": "a\ud800", "other_half": "\udc00", "whole": "\ud83d\ude00", "number": 7}"#;
    let fields = Fields::parse(body).expect("a body");
    for name in ["half", "other_half"] {
        let refused = fields.text(name).expect_err("it is no text").to_string();
        assert_eq!(
            refused,
            format!("field {name}: must be a JSON string of whole characters; it holds half of a surrogate pair")
        );
    }
    assert_eq!(fields.text("whole").expect("a text").as_deref(), Some("\u{1f600}"));
    assert_eq!(fields.text("number").expect_err("it is none").to_string(), "field number: must be a JSON string");
}

#[test]
fn a_name_with_half_a_character_is_refused_for_that_at_whatever_depth() {
    let said = |body: &str| Fields::parse(body.as_bytes()).expect_err("which name it is cannot be told").to_string();
    for name in [r#""\ud800""#, r#""\ud800\u0041""#, r#""a\udc00""#] {
        let why = "must have field names of whole characters; one holds half of a surrogate pair";
        let top = said(&format!("{{{name}: 1}}"));
        assert!(top.starts_with(&format!("body: {why}, at line 1 column ")), "{top}");
        assert_eq!(said(&format!(r#"{{"x": [{{{name}: 1}}]}}"#)), format!("field x: {why}"));
    }
    let broken = said(r#"{"\uzzzz": 1}"#);
    assert!(broken.starts_with("body: must be a JSON object; it cannot be read at line 1 column "), "{broken}");
}

#[test]
fn a_name_that_is_as_long_as_a_body_is_cut_and_nothing_at_all_is_said_to_be_that() {
    let name = "\u{e9}".repeat(20_000);
    let twice = format!(r#"{{"{name}": 1, "{name}": 2}}"#);
    let said = Fields::parse(twice.as_bytes()).expect_err("twice").to_string();
    assert_eq!(said, format!("field {}...: must be given once", "\u{e9}".repeat(64)));
    let said = Fields::parse(format!(r#"{{"x": [{twice}]}}"#).as_bytes()).expect_err("twice").to_string();
    assert_eq!(said, format!(r#"field x: must have "{}..." once"#, "\u{e9}".repeat(64)));
    let said = Fields::parse(br#"{"x": {"a\"\n": 1, "a\"\u000a": 2}}"#).expect_err("twice").to_string();
    assert_eq!(said, r#"field x: must have "a\"\n" once"#, "one line");
    let whole = "x".repeat(64);
    let said = Fields::parse(format!(r#"{{"{whole}": 1, "{whole}": 2}}"#).as_bytes()).expect_err("twice").to_string();
    assert_eq!(said, format!("field {whole}: must be given once"));
    let said = Fields::parse(b"").expect_err("empty").to_string();
    assert_eq!(said, "body: must be a JSON object, and is empty");
}

#[test]
fn a_whole_number_that_is_out_of_range_is_told_the_range_however_long_it_is() {
    let body = br#"{"long": 99999999999999999999, "low": -99999999999999999999, "seven": 7, "half": 7.5, "power": 7e1, "text": "7"}"#;
    let fields = Fields::parse(body).expect("an object");
    let said = |name| fields.integer_within(name, 1, 9).map_err(|refused| refused.to_string());
    let range = |name| Err(format!("field {name}: must be a whole number from 1 to 9"));
    assert_eq!((said("long"), said("low")), (range("long"), range("low")));
    assert_eq!(said("seven"), Ok(Some(7)));
    assert_eq!(said("absent"), Ok(None));
    for name in ["half", "power", "text"] {
        assert_eq!(
            said(name),
            Err(format!("field {name}: must be a whole JSON number, written without point and exponent"))
        );
    }
    let zero = |body: &str, min| Fields::parse(body.as_bytes()).expect("an object").integer_within("n", min, 9);
    assert_eq!(zero(r#"{"n": -0}"#, 0), Ok(Some(0)), "JSON writes 0 so, too");
    let told = zero(r#"{"n": -0}"#, 1).expect_err("0 is not in the range").to_string();
    assert_eq!(told, "field n: must be a whole number from 1 to 9");
    assert!(zero(r#"{"n": -0.0}"#, 0).is_err() && zero(r#"{"n": -0e0}"#, 0).is_err());
    let any = fields.integer("long").expect_err("more than 64 bits").to_string();
    assert_eq!(any, "field long: must be a whole number from -9223372036854775808 to 9223372036854775807");
    let query = Query::parse("long=99999999999999999999&seven=7&low=-1&text=x");
    let said = |name| query.integer_within(name, 1, 9).map_err(|refused| refused.to_string());
    assert_eq!((said("long"), said("low"), said("text")), (range("long"), range("low"), range("text")));
    assert_eq!((said("seven"), said("absent")), (Ok(Some(7)), Ok(None)));
    let page = rule_list::Request::parse(br#"{"pageNum": 99999999999999999999}"#).expect_err("no such page");
    assert_eq!(page.sentence, "field pageNum: must be a whole number from 1 to 1000000000");
}

#[test]
fn an_order_is_named_by_either_number_and_an_empty_one_counts_as_absent() {
    let named = |prepay_id: Option<&str>, trade_no: Option<&str>| payment_order::Name {
        prepay_id: prepay_id.map(str::to_owned),
        merchant_trade_no: trade_no.map(str::to_owned),
    };
    for (body, wanted) in [
        (r#"{"prepayId": "", "merchantTradeNo": "Z"}"#, named(None, Some("Z"))),
        (r#"{"prepayId": "7", "merchantTradeNo": ""}"#, named(Some("7"), None)),
        (r#"{"prepayId": "7", "merchantTradeNo": "Z"}"#, named(Some("7"), Some("Z"))),
    ] {
        assert_eq!(payment_order::Name::parse(body.as_bytes()).expect("named"), wanted, "{body}");
    }
    for body in [r#"{"prepayId": "", "merchantTradeNo": ""}"#, r#"{"prepayId": null}"#, "{}"] {
        let refused = payment_order::Name::parse(body.as_bytes()).expect_err("nobody is named");
        assert_eq!(refused.sentence, "field prepayId: is required, or merchantTradeNo in its place", "{body}");
    }
}

#[test]
fn a_payer_is_a_short_text_or_a_whole_number_and_told_by_its_fault() {
    let payer = |value: &str| {
        let body = format!(r#"{{"merchantTradeNo":"T","currency":"USDT","orderAmount":"1","merchantUserId":{value}}}"#);
        payment_order::Request::parse(body.as_bytes()).map(|it| it.merchant_user_id).map_err(|refused| refused.sentence)
    };
    assert_eq!(payer("42"), Ok(Some("42".to_owned())));
    assert_eq!(payer("\"a\""), Ok(Some("a".to_owned())));
    let either = "field merchantUserId: must be a text of at most 64 characters, or a whole number from -9223372036854775808 to 9223372036854775807";
    for value in ["9223372036854775808", "1.5", "[1]", "true"] {
        assert_eq!(payer(value), Err(either.to_owned()), "{value}");
    }
    assert_eq!(payer(r#""a\u0000""#), Err("field merchantUserId: must not hold the character U+0000".to_owned()));
    let long = format!("\"{}\"", "x".repeat(65));
    assert_eq!(payer(&long), Err("field merchantUserId: must be at most 64 characters".to_owned()));
}

#[test]
fn a_number_with_an_exponent_is_told_how_to_be_written() {
    let fields = Fields::parse(br#"{"r_markup":5e-05,"written":0.00005}"#).expect("an object");
    let told = fields.required_number("r_markup").expect_err("an exponent").to_string();
    assert_eq!(told, "field r_markup: must be written without an exponent: 0.00005 and not 5e-05");
    assert_eq!(fields.required_number("written").expect("the same number").to_string(), "0.00005");
}
