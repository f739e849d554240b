//! Fields of bodies that several calls share: read strictly, refused by name.

use countersign_domain::ids::is_name;
use countersign_domain::money::{Amount, Currency, TRANSACTION_MAX, transaction};
use countersign_domain::time::{UnixMillis, parse_rfc3339};
use countersign_protocol::body::Fields;
use countersign_protocol::code::Code;
use countersign_protocol::exact::Exact;
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, OneOf, OneOfBuilder, Schema, Type};

use super::problem::Problem;
use crate::visible::{is_seen, misleading};

/// Longest name for people, in characters.
pub const NAME_CHARS_MAX: usize = 100;

/// A text of `min` to `max` characters without control characters.
pub fn checked_text(name: &str, text: String, min: usize, max: usize) -> Result<String, Problem> {
    let length = text.chars().count();
    if (min..=max).contains(&length) && !text.chars().any(char::is_control) {
        Ok(text)
    } else {
        Err(Problem::field(name, format_args!("must be {min} to {max} characters without control characters")))
    }
}

/// A required text of 1 to `max` characters.
pub fn required(fields: &Fields<'_>, name: &str, max: usize) -> Result<String, Problem> {
    checked_text(name, fields.required_text(name)?, 1, max)
}

/// A name for people, not blank, that looks like what it is.
pub fn display_name(text: String) -> Result<String, Problem> {
    let text = checked_text("name", text, 1, NAME_CHARS_MAX)?;
    if !is_seen(&text) {
        return Err(Problem::field("name", "must not be blank"));
    }
    if misleading(&text).is_some() {
        let why = "must have no characters that are invisible or turn the direction of writing";
        return Err(Problem::field("name", why));
    }
    Ok(text)
}

/// A public id that the caller chooses.
pub fn chosen_id(fields: &Fields<'_>, name: &str) -> Result<Option<String>, Problem> {
    match fields.text(name)? {
        Some(id) if !is_name(&id) => Err(Problem::field(name, "must be 1 to 64 of A-Z a-z 0-9 _ -")),
        id => Ok(id),
    }
}

/// The ClientId that must be there. Whether there is one is for those who look it up.
pub fn client_id(fields: &Fields<'_>) -> Result<String, Problem> {
    chosen_id(fields, "client_id")?.ok_or_else(|| Problem::field("client_id", "is required"))
}

/// A whole number from `min` to `max`.
pub fn whole(fields: &Fields<'_>, name: &str, min: i64, max: i64) -> Result<Option<i64>, Problem> {
    Ok(fields.integer_within(name, min, max)?)
}

/// An instant as RFC 3339 writes it.
pub fn instant(name: &str, text: &str) -> Result<UnixMillis, Problem> {
    let refuse = || Problem::field(name, "must be an instant such as 2026-01-31T08:00:00Z (RFC 3339)");
    parse_rfc3339(text).ok_or_else(refuse)
}

/// `from` (in) and `to` (out), which must leave something between them.
pub fn in_order(
    from: Option<UnixMillis>,
    to: Option<UnixMillis>,
) -> Result<(Option<UnixMillis>, Option<UnixMillis>), Problem> {
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err(Problem::field("to", "must be later than from"));
    }
    Ok((from, to))
}

/// An amount: a text within the contract's limits, never rounded.
pub fn amount(fields: &Fields<'_>, name: &str) -> Result<Amount, Problem> {
    let refuse = |why: String| Problem::of_field(Code::InvalidAmount, name, why);
    let text = fields.text(name).map_err(|_| refuse("must be a text of plain digits such as \"12.5\"".to_owned()))?;
    let text = text.ok_or_else(|| Problem::field(name, "is required"))?;
    transaction(&text, TRANSACTION_MAX).map_err(|refused| refuse(refused.to_string()))
}

/// A currency's code.
pub fn currency(fields: &Fields<'_>, name: &str) -> Result<Currency, Problem> {
    let text = fields.required_text(name)?;
    Currency::parse(&text).ok_or_else(|| Problem::of_field(Code::InvalidCurrency, name, "must be 2 to 10 of A-Z 0-9"))
}

/// A rate: a number, or a text that is one; exact, greater than zero.
pub fn rate(fields: &Fields<'_>, name: &str) -> Result<Decimal, Problem> {
    let raw = given(fields, name)?;
    let refuse = || {
        Problem::field(
            name,
            "must be a number greater than 0, as a JSON number or a text of its form (1.5, not +1.5, 01.5 or .5), at most 20 digits, no exponent",
        )
    };
    let number = if raw.starts_with('"') {
        let text = fields.required_text(name)?;
        Exact::parse(&text).map_err(|_| refuse())?
    } else {
        Exact::parse(raw).map_err(|_| refuse())?
    };
    if number.0 > Decimal::ZERO { Ok(number.0.normalize()) } else { Err(refuse()) }
}

/// A field's value as it was written; null is absent.
pub fn given<'a>(fields: &Fields<'a>, name: &str) -> Result<&'a str, Problem> {
    let raw = fields.raw(name).map(RawValue::get).filter(|raw| *raw != "null");
    raw.ok_or_else(|| Problem::field(name, "is required"))
}

/// Longest rate as a text: 20 digits and a point.
const RATE_CHARS_MAX: usize = 21;

/// A rate in the API's document.
pub fn rate_schema() -> Schema {
    let number = ObjectBuilder::new().schema_type(Type::Number).exclusive_minimum(Some(0_u32));
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^(0\.[0-9]*[1-9][0-9]*|[1-9][0-9]*(\.[0-9]+)?)$"));
    let text = text.max_length(Some(RATE_CHARS_MAX));
    let about = "Quote coin per base coin, greater than 0: a number or a text, every digit kept. At most 20 digits, no exponent.";
    let kinds = [number, text].into_iter().fold(OneOf::builder(), OneOfBuilder::item);
    Schema::OneOf(kinds.description(Some(about)).build())
}

/// An amount in a request.
// For the documents only: nothing is read by it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a form for the documents; fields are read by hand")]
pub enum NumberOrText {
    /// Every digit is kept.
    Number(f64),
    /// The same as a text.
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_has_a_form_before_anybody_looks_for_it() {
        let read = |body: &str| client_id(&Fields::parse(body.as_bytes()).expect("an object"));
        assert_eq!(read(r#"{"client_id":"nobody-1_A"}"#).expect("a form"), "nobody-1_A");
        for body in [r#"{"client_id":""}"#, r#"{"client_id":" "}"#, r#"{"client_id":"a b"}"#] {
            let refused = read(body).expect_err(body).sentence;
            assert_eq!(refused, "field client_id: must be 1 to 64 of A-Z a-z 0-9 _ -");
        }
        assert_eq!(read("{}").expect_err("absent").sentence, "field client_id: is required");
    }

    #[test]
    fn a_name_looks_like_what_it_is() {
        // Words of many scripts, with the joiners that Persian, Hindi and emoji are written with.
        for good in ["Corner Shop", "می\u{200c}خواهم", "क्\u{200d}ष", "שלום", "東京", "👩\u{200d}🌾 farm", "Ünïcode—№ 5"]
        {
            assert_eq!(display_name(good.to_owned()).expect(good), good);
        }
        let misleading = [
            '\u{202a}',
            '\u{202b}',
            '\u{202c}',
            '\u{202d}',
            '\u{202e}',
            '\u{2066}',
            '\u{2067}',
            '\u{2068}',
            '\u{2069}',
            '\u{200b}',
            '\u{2060}',
            '\u{feff}',
            '\u{ad}',
            '\u{2028}',
            '\u{e0041}',
            '\u{1b}',
            '\n',
        ];
        for c in misleading {
            assert!(display_name(format!("Corner{c} Shop")).is_err(), "{c:?}");
        }
        assert!(display_name("\u{200c}\u{3164}".to_owned()).is_err(), "nothing is seen");
    }
}
