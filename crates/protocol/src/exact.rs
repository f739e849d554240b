//! Numbers of JSON without floating point: what goes in comes out, digit for digit.

use std::borrow::Cow;
use std::fmt;

use rust_decimal::Decimal;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// Most digits that a number may be written with, before and after the point together.
pub const DIGITS_MAX: usize = 20;

/// Why a text is no number here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NumberRefused {
    /// Not a number of JSON.
    #[error("must be a JSON number")]
    Form,
    /// Written with an exponent.
    #[error("must be written without an exponent: 0.00005 and not 5e-05")]
    Exponent,
    /// More than 20 digits.
    #[error("must have at most 20 digits")]
    TooManyDigits,
}

/// An exact decimal that is a JSON number on the wire: no exponent, no trailing zeros, never through a float.
///
/// Store its text (`to_string`, or JSON text as `serde_json::to_string` writes it), and read it by [`Exact::parse`] or from that text. A
/// `serde_json::Value` on the way would make floating point of it, and a field under `#[serde(flatten)]` goes through one: digits are lost there, or
/// reading fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exact(pub Decimal);

impl Exact {
    /// Reads one number of JSON: `-`? digits without leading zero, then perhaps a point and digits; at most 20 digits.
    pub fn parse(text: &str) -> Result<Self, NumberRefused> {
        check_form(text.as_bytes())?;
        // The form and the length are known to be good, so only the digits of 20 are left to read.
        Decimal::from_str_exact(text).map(Self).map_err(|_| NumberRefused::Form)
    }
}

fn check_form(text: &[u8]) -> Result<(), NumberRefused> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let (mantissa, exponent) = match unsigned.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.iter().position(|&b| b == b'.') {
        Some(at) => (&mantissa[..at], Some(&mantissa[at + 1..])),
        None => (mantissa, None),
    };
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !digits(whole) || (whole.len() > 1 && whole[0] == b'0') || fraction.is_some_and(|part| !digits(part)) {
        return Err(NumberRefused::Form);
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
        return Err(if digits(unsigned) { NumberRefused::Exponent } else { NumberRefused::Form });
    }
    if whole.len() + fraction.map_or(0, <[u8]>::len) > DIGITS_MAX {
        return Err(NumberRefused::TooManyDigits);
    }
    Ok(())
}

impl From<Decimal> for Exact {
    fn from(value: Decimal) -> Self {
        Self(value)
    }
}

impl fmt::Display for Exact {
    /// Without exponent and trailing zeros; zero is `0`, never `-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.normalize())
    }
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.to_string()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(D::Error::custom)
    }
}

impl PartialSchema for Exact {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .format(Some(SchemaFormat::Custom("decimal".to_owned())))
            .description(Some(
                "An exact decimal: at most 20 digits, no exponent. Read it with a decimal type: a client that reads it as a binary float loses digits.",
            ))
            .into()
    }
}

impl ToSchema for Exact {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Exact")
    }
}
