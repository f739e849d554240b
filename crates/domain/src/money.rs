//! Amounts as integers of one millionth, and exact decimals for rates and markups.

use std::fmt;
use std::ops::{AddAssign, Sub};

use rust_decimal::Decimal;
use thiserror::Error;

/// An amount of some currency in millionths of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

/// Decimal places of an amount.
pub const AMOUNT_SCALE: u32 = 6;
/// 0.0001, the smallest transaction.
pub const TRANSACTION_MIN: Amount = Amount(100);
/// 5,000,000, the largest transaction.
pub const TRANSACTION_MAX: Amount = Amount(5_000_000_000_000);
/// 10,000, the largest collection by a personal QR code.
pub const QR_MAX: Amount = Amount(10_000_000_000);

/// Why a text is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AmountRefused {
    /// Not digits with at most one point between digits.
    #[error("must be a plain number such as 12.5, without sign, exponent or blanks")]
    Form,
    /// More than six decimal places. Never rounded.
    #[error("must have at most 6 decimal places")]
    TooFine,
    /// More digits than can be held.
    #[error("must be at most {MOST}")]
    TooLarge,
}

/// The largest number of millionths that is held.
const MOST: Amount = Amount(i64::MAX);

/// Why a text is no amount of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransactionRefused {
    /// No amount at all.
    #[error(transparent)]
    Amount(AmountRefused),
    /// Smaller or larger than a transaction may be; the largest that it may be.
    #[error("must be from {TRANSACTION_MIN} to {0}")]
    Outside(Amount),
}

/// Reads the amount of a transaction, from 0.0001 to `max`.
pub fn transaction(text: &str, max: Amount) -> Result<Amount, TransactionRefused> {
    let amount = transaction_digits(text, max)?;
    if (TRANSACTION_MIN..=max).contains(&amount) { Ok(amount) } else { Err(TransactionRefused::Outside(max)) }
}

/// Reads what could be the amount of a transaction, but for its size. One that is larger than any can be is told the range all the same.
pub fn transaction_digits(text: &str, max: Amount) -> Result<Amount, TransactionRefused> {
    Amount::parse(text).map_err(|refused| match refused {
        AmountRefused::TooLarge => TransactionRefused::Outside(max),
        AmountRefused::Form | AmountRefused::TooFine => TransactionRefused::Amount(refused),
    })
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// From millionths.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// In millionths.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Reads `12`, `12.5`; ASCII digits only, at most 6 decimals, no sign, no exponent, nothing rounded.
    pub fn parse(text: &str) -> Result<Self, AmountRefused> {
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || fraction.is_some_and(|f| !digits(f)) {
            return Err(AmountRefused::Form);
        }
        let fraction = fraction.unwrap_or("");
        if fraction.len() > AMOUNT_SCALE as usize {
            return Err(AmountRefused::TooFine);
        }
        format!("{whole}{fraction:0<6}").parse().map(Self).map_err(|_| AmountRefused::TooLarge)
    }

    /// From an exact decimal with at most six places that fits.
    pub fn from_decimal(value: Decimal) -> Option<Self> {
        let value = value.normalize();
        if value.scale() > AMOUNT_SCALE {
            return None;
        }
        let factor = 10i128.pow(AMOUNT_SCALE - value.scale());
        value.mantissa().checked_mul(factor).and_then(|m| i64::try_from(m).ok()).map(Self)
    }

    /// As an exact decimal without trailing zeros.
    pub fn to_decimal(self) -> Decimal {
        Decimal::new(self.0, AMOUNT_SCALE).normalize()
    }
}

impl fmt::Display for Amount {
    /// Without trailing zeros: `12.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_decimal())
    }
}

/// A sum of amounts in millionths, or the difference of two. Of 2^63 amounts, more than there can be, it does not overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Total(i128);

impl Total {
    /// Of nothing.
    pub const ZERO: Self = Self(0);

    /// In millionths.
    pub const fn micros(self) -> i128 {
        self.0
    }
}

impl From<Amount> for Total {
    fn from(amount: Amount) -> Self {
        Self(i128::from(amount.0))
    }
}

impl<T: Into<Self>> AddAssign<T> for Total {
    fn add_assign(&mut self, other: T) {
        self.0 += other.into().0;
    }
}

impl Sub for Total {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Total {
    /// Without trailing zeros: `-12.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (micro, sign) = (10u128.pow(AMOUNT_SCALE), if self.0 < 0 { "-" } else { "" });
        let (whole, fraction) = (self.0.unsigned_abs() / micro, self.0.unsigned_abs() % micro);
        let fraction = format!("{fraction:06}");
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            fraction => write!(f, "{sign}{whole}.{fraction}"),
        }
    }
}

/// The coin of the fixed part of a fee.
pub const FIXED_FEE_COIN: &str = "USDT";

/// A currency's code: 2 to 10 of `A-Z 0-9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency(String);

impl Currency {
    /// Reads a code.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (2..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        fits.then(|| Self(text.to_owned()))
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
