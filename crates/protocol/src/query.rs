//! Strict reading of a query string. What is not known is ignored, what is known may be there once.

use std::borrow::Cow;

use crate::body::{FieldRefused, is_whole, missing, without_nul};

/// The parameters of a raw query string, decoded when asked for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// From what stands after the `?`, as sent; empty where there is none. Nothing is refused before it is asked for.
    pub const fn parse(raw: &'a str) -> Self {
        Self(raw)
    }

    /// Whether the parameter is there, once or more.
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// The decoded value: `%XX` is a byte of UTF-8, `+` a blank, U+0000 is refused.
    pub fn text(&self, name: &str) -> Result<Option<String>, FieldRefused> {
        let mut values = self.values(name);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(FieldRefused::new(name, "must be given once"));
        }
        let text = decode(value).ok_or_else(|| FieldRefused::new(name, "must be percent-encoded UTF-8"))?;
        without_nul(name, text.into_owned()).map(Some)
    }

    /// The decoded value, which must be there.
    pub fn required_text(&self, name: &str) -> Result<String, FieldRefused> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// A whole number from `min` to `max`: an optional `-` and digits.
    pub fn integer_within(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, FieldRefused> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = if is_whole(&text) { text.parse().ok() } else { None };
        let number = number.filter(|number| (min..=max).contains(number));
        let why = || format!("must be a whole number from {min} to {max}");
        number.map(Some).ok_or_else(|| FieldRefused::new(name, why()))
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .filter(move |(known, _)| decode(known).is_some_and(|known| known == name))
            .map(|(_, value)| value)
    }
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (pair, after) = rest.split_at_checked(2)?;
                rest = after;
                (hex_digit(pair[0])? << 4) | hex_digit(pair[1])?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Writes a value so that [`Query`] reads it back: everything but `A-Z a-z 0-9 - . _ ~` as `%XX`.
pub fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&crate::signing::to_hex(&[byte]).to_ascii_uppercase());
        }
    }
    out
}
