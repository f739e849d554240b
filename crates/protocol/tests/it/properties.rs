//! Properties that hold for any input.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_protocol::body::Fields;
use countersign_protocol::exact::{DIGITS_MAX, Exact};
use countersign_protocol::headers::Prefixes;
use countersign_protocol::query::{Query, encode};
use countersign_protocol::signing::{Encoding, SigningKey, decode_signature, encode_signature, signed_text};
use proptest::prelude::*;

fn signature() -> impl Strategy<Value = [u8; 64]> {
    prop::collection::vec(any::<u8>(), 64).prop_map(|bytes| bytes.try_into().expect("64 bytes were drawn"))
}

/// A number of JSON as people write it, of up to 20 digits.
fn number() -> impl Strategy<Value = String> {
    ("-?", "0|[1-9][0-9]{0,12}", prop::option::of("[0-9]{1,7}")).prop_map(|(sign, whole, fraction)| {
        fraction.map_or_else(|| format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}"))
    })
}

/// The same number as this crate promises to write it, found with texts alone.
fn trimmed(number: &str) -> String {
    let short = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// A small JSON value without repeated names.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(".*", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_signed_verifies_and_is_the_hmac_of_the_signed_text(
        secret in ".{1,200}", timestamp in "[1-9][0-9]{12}", nonce in "[A-Za-z0-9._-]{1,64}",
        body in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        let key = SigningKey::new(secret.as_bytes());
        let signature = key.sign(&timestamp, &nonce, &body);
        prop_assert_eq!(signature, key.hmac(&signed_text(&timestamp, &nonce, &body)));
        prop_assert!(key.verify(&timestamp, &nonce, &body, &signature));
    }

    #[test]
    fn one_changed_bit_anywhere_does_not_verify(
        body in prop::collection::vec(any::<u8>(), 1..700), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let key = SigningKey::new(b"secret");
        let signature = key.sign("1767225600000", "n", &body);
        let mut changed_body = body.clone();
        changed_body[at.index(body.len())] ^= 1 << bit;
        prop_assert!(!key.verify("1767225600000", "n", &changed_body, &signature));
        let mut changed = signature;
        changed[at.index(64)] ^= 1 << bit;
        prop_assert!(!key.verify("1767225600000", "n", &body, &changed));
    }

    #[test]
    fn signatures_are_read_as_written_in_either_letter_case(signature in signature()) {
        let hex = encode_signature(&signature, Encoding::Hex);
        prop_assert_eq!(hex.len(), 128);
        prop_assert_eq!(decode_signature(hex.as_bytes()), Some(signature));
        prop_assert_eq!(decode_signature(hex.to_uppercase().as_bytes()), Some(signature));
        let base64 = encode_signature(&signature, Encoding::Base64);
        prop_assert_eq!(base64.len(), 88);
        prop_assert_eq!(decode_signature(base64.as_bytes()), Some(signature));
    }

    #[test]
    fn a_signature_with_any_byte_replaced_is_none_or_another_one(
        signature in signature(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        for (encoding, case_matters) in [(Encoding::Hex, false), (Encoding::Base64, true)] {
            let text = encode_signature(&signature, encoding).into_bytes();
            let mut changed = text.clone();
            let at = at.index(text.len());
            changed[at] = byte;
            let same = text[at] == byte || (!case_matters && text[at].eq_ignore_ascii_case(&byte));
            prop_assert_eq!(decode_signature(&changed) == Some(signature), same);
        }
    }

    #[test]
    fn a_signature_of_another_length_is_none(text in "[0-9a-f]{0,300}") {
        prop_assume!(text.len() != 128 && text.len() != 88);
        prop_assert_eq!(decode_signature(text.as_bytes()), None);
    }

    #[test]
    fn only_canonical_base64_is_read(text in "[A-Za-z0-9+/]{86}==") {
        let canonical = STANDARD.decode(&text).is_ok_and(|bytes| bytes.len() == 64 && STANDARD.encode(&bytes) == text);
        prop_assert_eq!(decode_signature(text.as_bytes()).is_some(), canonical);
    }

    #[test]
    fn numbers_come_out_digit_for_digit(number in number()) {
        let body = format!("{{\"n\": {number} }}");
        let fields = Fields::parse(body.as_bytes()).expect("an object");
        let exact = fields.required_number("n").expect("at most 20 digits");
        prop_assert_eq!(serde_json::to_string(&exact).expect("numbers serialize"), trimmed(&number));
        prop_assert_eq!(serde_json::from_str::<Exact>(&number).expect("at most 20 digits"), exact);
    }

    #[test]
    fn numbers_with_too_many_digits_are_refused_not_rounded(whole in "[1-9][0-9]{12}", fraction in "[0-9]{8,30}") {
        prop_assume!(whole.len() + fraction.len() > DIGITS_MAX);
        let number = format!("{whole}.{fraction}");
        prop_assert!(Exact::parse(&number).is_err());
    }

    #[test]
    fn what_is_read_as_a_number_is_one_of_json(text in "[-+0-9.eE_ ]{0,24}") {
        if Exact::parse(&text).is_ok() {
            prop_assert!(serde_json::from_str::<serde_json::Number>(&text).is_ok(), "{}", text);
        }
    }

    #[test]
    fn any_bytes_at_all_are_read_or_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(fields) = Fields::parse(&bytes) {
            let _ = fields.text("a");
        }
    }

    #[test]
    fn bytes_that_look_like_json_are_read_or_refused_without_panic(text in r#"\{[\{\}\[\]",:\\ua01e.\-nulltrfs ]{0,120}\}?"#) {
        if let Ok(fields) = Fields::parse(text.as_bytes()) {
            prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok(), "{}", text);
            let _ = (fields.text(""), fields.number("a"), fields.integer("a"), fields.boolean("a"));
        }
    }

    #[test]
    fn any_object_without_repeated_names_is_read_field_by_field(
        map in prop::collection::btree_map(".*", json(), 0..6), pretty in any::<bool>(),
    ) {
        let text = if pretty { serde_json::to_string_pretty(&map) } else { serde_json::to_string(&map) }.expect("JSON");
        let fields = Fields::parse(text.as_bytes()).expect("a good object");
        for (name, value) in &map {
            let raw = fields.raw(name).expect("the field is there");
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(raw.get()).expect("JSON"), value);
        }
    }

    #[test]
    fn a_name_repeated_at_any_depth_is_refused(name in ".*", levels in 0usize..12, array in any::<bool>()) {
        let name = serde_json::to_string(&name).expect("text");
        let (open, close) = if array { ("[", "]") } else { ("{\"x\":", "}") };
        let inner = format!("{{{name}:1, \"other\\n\":2,{name} :3}}");
        let text = format!("{{\"deep\":{}{inner}{}}}", open.repeat(levels), close.repeat(levels));
        prop_assert!(Fields::parse(text.as_bytes()).is_err(), "{}", text);
        prop_assert!(Fields::parse(inner.as_bytes()).is_err(), "{}", inner);
    }

    #[test]
    fn a_query_value_is_read_as_written_whatever_stands_around_it(value in ".*", before in "[ -~]{0,40}") {
        let before = before.replace("wanted", "");
        let raw = format!("{before}&wanted={}&x=1", encode(&value));
        prop_assume!(!before.contains('%'));
        let has_nul = value.contains('\0');
        match Query::parse(&raw).text("wanted") {
            Ok(found) => prop_assert!(!has_nul && found == Some(value), "{:?}", found),
            Err(refused) => prop_assert!(has_nul && refused.field == "wanted", "{:?}", refused),
        }
    }

    #[test]
    fn any_query_at_all_is_read_or_refused_without_panic(raw in ".*") {
        let query = Query::parse(&raw);
        let _ = (query.text("a"), query.integer_within("", 0, 9), query.has("a"));
    }

    #[test]
    fn any_headers_at_all_are_read_or_refused_without_panic(
        headers in prop::collection::vec(
            ("(x-service-)?(timestamp|nonce|signature|certificate-clientid|certificate-sn|merchantid|on-behalf-of|[a-z-]{0,9})",
             prop::collection::vec(any::<u8>(), 0..70)),
            0..12,
        ),
    ) {
        let prefixes = Prefixes::new(&["X-Service-".to_owned()]).expect("a good prefix");
        let read = prefixes.parse(headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())));
        if let Err(why) = read {
            prop_assert!(why.to_string().contains("header X-Service-"), "{}", why);
        }
    }
}
