//! Runs every case of `vectors/*.json`. The count of each file is pinned, so that no case can get lost.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_protocol::body::Fields;
use countersign_protocol::callback::{self, Acknowledgement, CallbackRefused};
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::events::oldest_kept;
use countersign_protocol::endpoint::{
    RequestRefused, convert, convert_currency, convert_order, convert_order_list, convert_pair, convert_preview,
    events, order_list, payment_order, rule_create, rule_list, rule_query, rule_upgrade,
};
use countersign_protocol::envelope::{self, Envelope};
use countersign_protocol::headers::Prefixes;
use countersign_protocol::signing::{Encoding, SigningKey, decode_signature, encode_signature};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<T> {
    about: String,
    cases: Vec<T>,
}

fn cases<T: DeserializeOwned>(json: &str, count: usize) -> Vec<T> {
    let file: File<T> = serde_json::from_str(json).expect("the vectors have the form that their README describes");
    assert!(!file.about.is_empty(), "a file of vectors says what it is about");
    assert_eq!(file.cases.len(), count, "cases in the file that begins {:?}", file.about);
    file.cases
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    text: String,
    times: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signing {
    name: String,
    secret: String,
    timestamp: String,
    nonce: String,
    body: Option<String>,
    body_base64: Option<String>,
    body_repeat: Option<Repeat>,
    signature_hex: String,
    signature_base64: String,
}

fn bytes(text: Option<String>, base64: Option<String>, repeat: Option<Repeat>) -> Vec<u8> {
    match (text, base64, repeat) {
        (Some(text), None, None) => text.into_bytes(),
        (None, Some(base64), None) => STANDARD.decode(base64).expect("body_base64 is Base64"),
        (None, None, Some(repeat)) => repeat.text.repeat(repeat.times).into_bytes(),
        _ => panic!("a case has one of body, body_base64 and body_repeat"),
    }
}

#[test]
fn every_signing_vector_is_signed_and_verified() {
    for case in cases::<Signing>(include_str!("../../vectors/signing.json"), 35) {
        let body = bytes(case.body, case.body_base64, case.body_repeat);
        let key = SigningKey::new(case.secret.as_bytes());
        let signature = key.sign(&case.timestamp, &case.nonce, &body);
        assert_eq!(encode_signature(&signature, Encoding::Hex), case.signature_hex, "{}", case.name);
        assert_eq!(encode_signature(&signature, Encoding::Base64), case.signature_base64, "{}", case.name);
        for text in [case.signature_hex, case.signature_base64] {
            let sent = decode_signature(text.as_bytes()).expect("what we write, we read");
            assert!(key.verify(&case.timestamp, &case.nonce, &body, &sent), "{}", case.name);
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verify {
    name: String,
    secret: String,
    timestamp: String,
    nonce: String,
    body: String,
    signature: String,
    verdict: String,
}

#[test]
fn every_verify_vector_gets_its_verdict() {
    for case in cases::<Verify>(include_str!("../../vectors/verify.json"), 56) {
        let key = SigningKey::new(case.secret.as_bytes());
        let verdict = match decode_signature(case.signature.as_bytes()) {
            None => "undecodable",
            Some(sent) if key.verify(&case.timestamp, &case.nonce, case.body.as_bytes(), &sent) => "right",
            Some(_) => "wrong",
        };
        assert_eq!(verdict, case.verdict, "{}", case.name);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderCase {
    name: String,
    prefixes: Vec<String>,
    headers: Vec<(String, String)>,
    accepted: Option<HeadersAccepted>,
    refused: Option<HeadersRefused>,
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct HeadersAccepted {
    client_id: String,
    timestamp: String,
    nonce: String,
    signature: String,
    merchant_id: Option<String>,
    on_behalf_of: Option<String>,
    prefix_index: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadersRefused {
    code: String,
    header: String,
}

#[test]
fn every_header_vector_is_accepted_or_refused() {
    for case in cases::<HeaderCase>(include_str!("../../vectors/headers.json"), 96) {
        let prefixes = Prefixes::new(&case.prefixes).expect("the prefixes of vectors are good");
        let lower: Vec<_> = case.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        let headers = lower.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        match (prefixes.parse(headers), case.accepted, case.refused) {
            (Ok(read), Some(accepted), None) => {
                let signature = std::str::from_utf8(read.signature).expect("values of vectors are UTF-8");
                let read_back = HeadersAccepted {
                    client_id: read.client_id.to_owned(),
                    timestamp: read.timestamp.to_owned(),
                    nonce: read.nonce.to_owned(),
                    signature: signature.to_owned(),
                    merchant_id: read.merchant_id.map(str::to_owned),
                    on_behalf_of: read.on_behalf_of.map(str::to_owned),
                    prefix_index: read.prefix_index,
                };
                assert_eq!(read_back, accepted, "{}", case.name);
                assert_eq!(read.timestamp_ms.to_string(), read.timestamp, "{}", case.name);
            }
            (Err(why), None, Some(refused)) => {
                assert_eq!(why.code().code(), refused.code, "{}: {why}", case.name);
                assert!(why.to_string().starts_with(&format!("header {}: ", refused.header)), "{}: {why}", case.name);
            }
            (outcome, ..) => panic!("{}: {outcome:?}", case.name),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeCase {
    name: String,
    http: u16,
    data: Option<String>,
    code: Option<String>,
    label: Option<String>,
    message: Option<String>,
    oldest_seq: Option<String>,
    bytes: String,
}

#[test]
fn every_envelope_vector_is_written_byte_for_byte_and_every_code_has_one() {
    let mut codes = BTreeSet::new();
    for case in cases::<EnvelopeCase>(include_str!("../../vectors/envelope.json"), 42) {
        let written = if let Some(data) = case.data {
            assert_eq!(case.http, 200, "{}", case.name);
            let data: Box<RawValue> = serde_json::from_str(&data).expect("data is JSON");
            envelope::success(&data).expect("JSON is written as it is")
        } else {
            let code = Code::from_code(&case.code.expect("a failure has a code")).expect("the code is known");
            assert_eq!(code.http_status(), case.http, "{}", case.name);
            assert_eq!(Some(code.label()), case.label.as_deref(), "{}", case.name);
            codes.insert(code);
            let message = case.message.expect("a failure has a message");
            let told = oldest_kept(&message).map(|oldest| oldest.to_string());
            assert_eq!(told, case.oldest_seq, "{}", case.name);
            envelope::failure(code, &message)
        };
        assert_eq!(String::from_utf8(written).expect("answers are UTF-8"), case.bytes, "{}", case.name);
        let read: Envelope<Box<RawValue>> = serde_json::from_str(&case.bytes).expect("clients can read every answer");
        assert_eq!(read.is_success(), case.http == 200, "{}", case.name);
    }
    assert_eq!(codes, Code::ALL.iter().copied().collect(), "every code has a vector");
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    name: String,
    text: String,
    value: Option<String>,
}

#[test]
fn every_number_vector_is_read_exactly_or_refused() {
    for case in cases::<Number>(include_str!("../../vectors/numbers.json"), 45) {
        let body = format!("{{\"n\":{}}}", case.text);
        let read = Fields::parse(body.as_bytes()).and_then(|fields| fields.required_number("n"));
        match (read, case.value) {
            (Ok(number), Some(value)) => {
                assert_eq!(number.to_string(), value, "{}", case.name);
                assert_eq!(serde_json::to_string(&number).expect("numbers serialize"), value, "{}", case.name);
            }
            (Err(_), None) => {}
            (outcome, value) => panic!("{}: {outcome:?}, not {value:?}", case.name),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyCase {
    name: String,
    body: Option<String>,
    body_base64: Option<String>,
    accepted: bool,
    field: Option<String>,
}

#[test]
fn every_body_vector_is_accepted_or_refused() {
    for case in cases::<BodyCase>(include_str!("../../vectors/bodies.json"), 42) {
        let body = bytes(case.body, case.body_base64, None);
        match Fields::parse(&body) {
            Ok(_) => assert!(case.accepted, "{}", case.name),
            Err(why) => {
                assert!(!case.accepted, "{}: {why}", case.name);
                assert_eq!(Some(&why.field), case.field.as_ref(), "{}: {why}", case.name);
                assert_eq!(why.code(), Code::InvalidParameter, "{}", case.name);
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestCase {
    name: String,
    endpoint: String,
    input: String,
    canonical: Option<String>,
    refused: Option<RequestCaseRefused>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestCaseRefused {
    code: String,
    field: String,
}

/// Reads a request and writes it again as our clients do. Endpoints have the names that the OpenAPI document gives operations.
fn rewrite(endpoint: &str, input: &str) -> Result<String, RequestRefused> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("bodies are UTF-8");
    match endpoint {
        "rule_upgrade" => rule_upgrade::Request::parse(input.as_bytes()).map(|request| text(request.to_body())),
        "rule_create" => rule_create::Request::parse(input.as_bytes()).map(|request| text(request.to_body())),
        "rule_list" => rule_list::Request::parse(input.as_bytes()).map(|request| text(request.to_body())),
        "rule_query" => rule_query::Request::parse(input).map(|request| request.to_query()),
        "convert_order" => convert_order::Request::parse(input).map(|request| request.to_query()),
        "events" => events::Request::parse(input).map(|request| request.to_query()),
        "convert_currency" => convert_currency::Request::parse(input).map(|request| request.to_query()),
        "convert_pair" => convert_pair::Request::parse(input).map(|request| request.to_query()),
        "convert_preview" => convert_preview::Request::parse(input.as_bytes()).map(|request| text(request.to_body())),
        "convert" => convert::Request::parse(input.as_bytes()).map(|request| text(request.to_body())),
        "order_create" | "order_native" => {
            payment_order::Request::parse(input.as_bytes()).map(|request| text(request.to_body()))
        }
        "convert_order_list" => {
            convert_order_list::Request::parse(input.as_bytes()).map(|request| text(request.to_body()))
        }
        "order_list" => order_list::Request::parse(input.as_bytes()).map(|request| text(request.to_body())),
        "order_query" | "order_close" => {
            payment_order::Name::parse(input.as_bytes()).map(|request| text(request.to_body()))
        }
        other => panic!("{other} has no requests"),
    }
}

#[test]
fn every_endpoint_that_is_asked_something_has_request_vectors() {
    let cases = cases::<RequestCase>(include_str!("../../vectors/requests.json"), 283);
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.endpoint.as_str()).collect();
    let document: Value = serde_json::from_str(include_str!("../../../../docs/openapi/merchant.json")).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|path| path.as_object().expect("methods").values());
    let asked = operations.filter_map(|operation| operation["operationId"].as_str()).filter(|id| *id != "time");
    assert_eq!(covered, asked.collect());
}

#[test]
fn every_request_vector_is_accepted_or_refused() {
    for case in cases::<RequestCase>(include_str!("../../vectors/requests.json"), 283) {
        match (rewrite(&case.endpoint, &case.input), case.canonical, case.refused) {
            // Well-formed. Where it is refused all the same, the server's tests see to that: this crate knows no meanings.
            (Ok(written), Some(canonical), _) => {
                assert_eq!(written, canonical, "{}", case.name);
                assert_eq!(rewrite(&case.endpoint, &canonical), Ok(canonical), "{}", case.name);
            }
            (Err(why), None, Some(refused)) => {
                assert_eq!(why.code.code(), refused.code, "{}: {why}", case.name);
                let named = why.sentence.starts_with(&format!("field {}: ", refused.field))
                    || (refused.field == "body" && why.sentence.starts_with("body: "));
                assert!(named, "{}: {why}", case.name);
            }
            (outcome, ..) => panic!("{}: {outcome:?}", case.name),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Callback {
    name: String,
    secret: String,
    second_secret: Option<String>,
    timestamp: String,
    nonce: String,
    body: String,
    signature: String,
    signature_next: Option<String>,
    now_ms: i64,
    tolerance_ms: i64,
    verdict: String,
}

#[test]
fn every_callback_vector_gets_its_verdict() {
    for case in cases::<Callback>(include_str!("../../vectors/callbacks.json"), 32) {
        let keys: Vec<SigningKey> = std::iter::once(&case.secret)
            .chain(&case.second_secret)
            .map(|secret| SigningKey::new(secret.as_bytes()))
            .collect();
        let (timestamp, nonce, body) = (&case.timestamp, &case.nonce, case.body.as_bytes());
        let judge = |signature: &String, key: &SigningKey| {
            callback::verify(key, timestamp, nonce, body, signature, case.now_ms, case.tolerance_ms)
        };
        let signatures = std::iter::once(&case.signature).chain(&case.signature_next);
        let each: Vec<_> = signatures.flat_map(|signature| keys.iter().map(|key| judge(signature, key))).collect();
        // Any that fits is enough; else what is wrong with the first.
        let verdict = match each.iter().find(|one| one.is_ok()).unwrap_or(&each[0]) {
            Ok(()) => "accepted",
            Err(CallbackRefused::TimestampMalformed) => "timestamp_malformed",
            Err(CallbackRefused::NonceMalformed) => "nonce_malformed",
            Err(CallbackRefused::NotACallbackNonce) => "not_a_callback_nonce",
            Err(CallbackRefused::TimestampOutOfRange { .. }) => "timestamp_out_of_range",
            Err(CallbackRefused::SignatureMalformed) => "signature_malformed",
            Err(CallbackRefused::SignatureMismatch) => "signature_mismatch",
        };
        assert_eq!(verdict, case.verdict, "{}", case.name);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcknowledgementCase {
    name: String,
    body: String,
    verdict: String,
    return_message: Option<String>,
}

#[test]
fn every_acknowledgement_vector_gets_its_verdict() {
    for case in cases::<AcknowledgementCase>(include_str!("../../vectors/acknowledgements.json"), 24) {
        let (verdict, message) = match callback::read_acknowledgement(case.body.as_bytes()) {
            Acknowledgement::Success => ("success", None),
            Acknowledgement::Fail { return_message } => ("fail", Some(return_message)),
            Acknowledgement::Unreadable => ("unreadable", None),
        };
        assert_eq!((verdict, message), (case.verdict.as_str(), case.return_message), "{}", case.name);
    }
}
