//! Strict reading of request bodies: one JSON object, every field once, numbers exact.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::code::Code;
use crate::exact::Exact;
pub use crate::query::Query;
use crate::sentence;

/// Deepest nesting of objects and arrays; the body itself is the first level.
pub const DEPTH_MAX: usize = 16;
/// The latest instant that a field may name, in Unix milliseconds: 9999-12-31T23:59:59.999Z.
pub const UNIX_MILLIS_MAX: i64 = 253_402_300_799_999;

/// Why a body or a query is refused: which field, and the rule that it breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.sentence())]
pub struct FieldRefused {
    /// The field's name; empty where the body as a whole is meant.
    pub field: String,
    /// `must be ...`
    pub why: String,
}

impl FieldRefused {
    /// A refusal of one field; an empty name means the body as a whole.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    /// The code on the wire.
    pub const fn code(&self) -> Code {
        Code::InvalidParameter
    }

    fn sentence(&self) -> String {
        if self.field.is_empty() { sentence::of_body(&self.why) } else { sentence::of_field(&self.field, &self.why) }
    }
}

/// The fields of a JSON object. A field that is `null` is as good as absent, except to [`Fields::has`].
#[derive(Clone, Debug)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// Reads the body: UTF-8, an object, at most 16 levels deep, no field given twice on any level.
    pub fn parse(body: &'a [u8]) -> Result<Self, FieldRefused> {
        let whole = |why: &str| FieldRefused::new("", why);
        let text = std::str::from_utf8(body).map_err(|_| whole("must be UTF-8"))?;
        if text.starts_with('\u{feff}') {
            return Err(whole("begins with a byte order mark: send it without"));
        }
        if !begins_object(text) {
            return Err(whole(if text.is_empty() {
                "must be a JSON object, and is empty"
            } else {
                "must be a JSON object"
            }));
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = json
            .deserialize_map(Object)
            .and_then(|fields| json.end().map(|()| fields))
            .map_err(|error| whole(&unreadable(&error)))?;
        if let Some(twice) = repeated(fields.iter().map(|(name, _)| name.as_ref()).collect()) {
            return Err(match &*twice {
                "" => whole("the field with the empty name \"\" must be given once"),
                twice => FieldRefused::new(twice, "must be given once"),
            });
        }
        for (name, value) in &fields {
            check_nested(value.get(), DEPTH_MAX - 1).map_err(|why| FieldRefused::new(name.as_ref(), why))?;
        }
        Ok(Self(fields))
    }

    /// The value as written, `null` included.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }

    /// The first field that is none of these; none: each is known. For calls in which a misspelt field would widen what is done.
    pub fn stranger(&self, known: &[&str]) -> Option<&str> {
        self.0.iter().map(|(name, _)| name.as_ref()).find(|name| !known.contains(name))
    }

    /// Whether the field is there with a value other than `null`.
    pub fn is_given(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Whether the field is there, be it `null`.
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// A string without U+0000, which not every database can keep.
    pub fn text(&self, name: &str) -> Result<Option<String>, FieldRefused> {
        let Some(token) = self.value(name) else { return Ok(None) };
        let text = serde_json::from_str(token).map_err(|_| FieldRefused::new(name, no_text(token)))?;
        without_nul(name, text).map(Some)
    }

    /// A string that must be there.
    pub fn required_text(&self, name: &str) -> Result<String, FieldRefused> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// A number, exact.
    pub fn number(&self, name: &str) -> Result<Option<Exact>, FieldRefused> {
        self.value(name)
            .map(|token| Exact::parse(token).map_err(|why| FieldRefused::new(name, why.to_string())))
            .transpose()
    }

    /// A number that must be there.
    pub fn required_number(&self, name: &str) -> Result<Exact, FieldRefused> {
        self.number(name)?.ok_or_else(|| missing(name))
    }

    /// A whole number of 64 bits, written without point and exponent.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, FieldRefused> {
        self.integer_within(name, i64::MIN, i64::MAX)
    }

    /// A whole number from `min` to `max`, written without point and exponent.
    pub fn integer_within(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, FieldRefused> {
        let Some(token) = self.value(name) else { return Ok(None) };
        // As JSON has it, -0 is 0; the library takes it for a float.
        let digits = if token == "-0" { "0" } else { token };
        let number = serde_json::from_str(digits).ok().filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| {
            let why = if is_whole(token) {
                format!("must be a whole number from {min} to {max}")
            } else {
                "must be a whole JSON number, written without point and exponent".to_owned()
            };
            FieldRefused::new(name, why)
        })
    }

    /// `true` or `false`.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, FieldRefused> {
        match self.value(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(FieldRefused::new(name, "must be true or false")),
        }
    }

    /// An object, and what is read of it. Its fields are named with its own name before them: `goods.goodsName`.
    pub fn object<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Fields<'_>) -> Result<T, FieldRefused>,
    ) -> Result<Option<T>, FieldRefused> {
        let Some(token) = self.value(name) else { return Ok(None) };
        let inside = |refused: FieldRefused| {
            let path = if refused.field.is_empty() { name.to_owned() } else { format!("{name}.{}", refused.field) };
            FieldRefused::new(path, refused.why)
        };
        Fields::parse(token.as_bytes()).and_then(|fields| read(&fields)).map(Some).map_err(inside)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.raw(name).map(RawValue::get).filter(|token| *token != "null")
    }
}

/// The text, unless it holds U+0000.
pub(crate) fn without_nul(name: &str, text: String) -> Result<String, FieldRefused> {
    if text.contains('\0') {
        return Err(FieldRefused::new(name, "must not hold the character U+0000"));
    }
    Ok(text)
}

/// Whether a text is a whole number, written without point and exponent, of any size.
pub(crate) fn is_whole(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Why a valid JSON value is not read as a text.
fn no_text(token: &str) -> &'static str {
    if token.starts_with('"') {
        "must be a JSON string of whole characters; it holds half of a surrogate pair"
    } else {
        "must be a JSON string"
    }
}

pub(crate) fn missing(name: &str) -> FieldRefused {
    FieldRefused::new(name, "is required")
}

/// Whether the first character that is not a blank of JSON opens an object.
pub(crate) fn begins_object(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{')
}

fn unreadable(error: &serde_json::Error) -> String {
    let place = format!("line {} column {}", error.line(), error.column());
    // The library's word for half of a surrogate pair, lone or followed by something else. Values are read later.
    if error.to_string().contains("hex escape") {
        return format!("must have field names of whole characters; one holds half of a surrogate pair, at {place}");
    }
    format!("must be a JSON object; it cannot be read at {place}")
}

/// A name that is there twice.
fn repeated<T: Ord + AsRef<str>>(mut names: Vec<T>) -> Option<String> {
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].as_ref().to_owned())
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some(name) = map.next_key_seed(Name)? {
            fields.push((name, map.next_value()?));
        }
        Ok(fields)
    }
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Refuses a name that is given twice on any level of a value whose syntax is known to be right: its readers would not agree on which one counts.
/// Where there is one, says which.
pub fn check_names(json: &str) -> Result<(), String> {
    check_nested(json, usize::MAX)
}

/// Walks one value whose syntax is known to be right, without recursion, and refuses more levels than these and repeated names.
fn check_nested(json: &str, levels_max: usize) -> Result<(), String> {
    let bytes = json.as_bytes();
    let mut open: Vec<Vec<Cow<'_, str>>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => {
                if open.len() >= levels_max {
                    return Err(format!("must not be nested deeper than {DEPTH_MAX} levels, the body itself counted"));
                }
                open.push(Vec::new());
            }
            b'}' | b']' => {
                if let Some(name) = open.pop().and_then(repeated) {
                    return Err(format!("must have {} once", quoted(&sentence::shown(&name))));
                }
            }
            b'"' => {
                let end = string_end(bytes, at);
                let after = bytes[end..].iter().find(|b| !b.is_ascii_whitespace());
                if let (Some(b':'), Some(names)) = (after, open.last_mut()) {
                    names.push(unescape(&json[at..end])?);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// A name as JSON writes it: whatever is in it, it is one line.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// The index after the quote that ends the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn unescape(quoted: &str) -> Result<Cow<'_, str>, String> {
    let inner = &quoted[1..quoted.len() - 1];
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(quoted)
        .map(Cow::Owned)
        .map_err(|_| "must have field names of whole characters; one holds half of a surrogate pair".to_owned())
}
