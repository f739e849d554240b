//! What is wrong with an answer that is no acknowledgement, in words: none of them repeats what the endpoint sent.

use std::borrow::Cow;
use std::fmt;

use hyper::header::{CONTENT_ENCODING, HeaderMap};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Blanks of JSON.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// Whether a body came in an encoding, which nobody has asked for and nobody here reads.
pub(super) fn is_encoded(head: &HeaderMap) -> bool {
    head.get_all(CONTENT_ENCODING).iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    })
}

/// What is wrong with the body of an answer, the first fault that applies.
pub(super) fn words(body: &[u8], is_encoded: bool) -> &'static str {
    if is_encoded {
        return "the answer has a Content-Encoding, and is not decoded";
    }
    let Ok(text) = std::str::from_utf8(body) else { return "the answer is not UTF-8" };
    if text.starts_with('\u{feff}') {
        return "the answer begins with a byte order mark";
    }
    let text = text.trim_matches(BLANKS);
    if text.is_empty() {
        return "the answer is empty";
    }
    if !text.starts_with('{') {
        return "the answer is no JSON object with a returnCode";
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let codes = match Codes::deserialize(&mut json) {
        Ok(codes) => codes,
        Err(error) if error.is_eof() => return "the answer's JSON ends in the middle",
        Err(_) => return "the answer's JSON cannot be read",
    };
    if json.end().is_err() {
        return "the answer has something behind its JSON object";
    }
    match codes.0 {
        0 => "the answer has no returnCode",
        1 => "the answer's returnCode is not a text",
        _ => "the answer has more than one returnCode",
    }
}

/// How often an object has a `returnCode`.
struct Codes(usize);

impl<'de> Deserialize<'de> for Codes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Codes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Codes, A::Error> {
        let mut count = 0;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            count += usize::from(name == "returnCode");
            members.next_value::<IgnoredAny>()?;
        }
        Ok(Codes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_an_answer_has_its_own_words() {
        for (body, wanted) in [
            ("", "the answer is empty"),
            (" \r\n", "the answer is empty"),
            ("\u{feff}{\"returnCode\":\"SUCCESS\"}", "the answer begins with a byte order mark"),
            ("SUCCESS", "the answer is no JSON object with a returnCode"),
            ("\"SUCCESS\"", "the answer is no JSON object with a returnCode"),
            ("<html>", "the answer is no JSON object with a returnCode"),
            ("{}", "the answer has no returnCode"),
            (r#"{"returncode":"SUCCESS","data":{"returnCode":"SUCCESS"}}"#, "the answer has no returnCode"),
            (r#"{"returnCode":0}"#, "the answer's returnCode is not a text"),
            (r#"{"returnCode":null}"#, "the answer's returnCode is not a text"),
            (r#"{"returnCode":"SUCCESS","returnCode":"SUCCESS"}"#, "the answer has more than one returnCode"),
            (r#"{"returnCode":"SUCCESS","\u0072eturnCode":1}"#, "the answer has more than one returnCode"),
            (r#"{"returnCode":"SUCCESS"} and more"#, "the answer has something behind its JSON object"),
            ("{\"returnCode\":\"SUCCESS\"}\0", "the answer has something behind its JSON object"),
            (r#"{"returnCode":"SUCCESS""#, "the answer's JSON ends in the middle"),
            (r#"{"returnCode":'SUCCESS'}"#, "the answer's JSON cannot be read"),
        ] {
            assert_eq!(words(body.as_bytes(), false), wanted, "{body}");
            assert_eq!(words(body.as_bytes(), true), "the answer has a Content-Encoding, and is not decoded", "{body}");
        }
        assert_eq!(words(b"{\"returnCode\":\"\xff\"}", false), "the answer is not UTF-8");
    }

    #[test]
    fn identity_is_no_encoding() {
        for (values, wanted) in [
            (&[][..], false),
            (&["identity"], false),
            (&["Identity", ""], false),
            (&["gzip"], true),
            (&["identity", "br"], true),
        ] {
            let mut head = HeaderMap::new();
            for value in values {
                head.append(CONTENT_ENCODING, value.parse().expect("a value"));
            }
            assert_eq!(is_encoded(&head), wanted, "{values:?}");
        }
    }
}
