//! The fee of an amount under a markup: exact, rounded once, by a named rule.
//!
//! Invariant: no decimal type multiplies here (it would round in silence); everything is an integer of 128 bits.

use rust_decimal::Decimal;
use thiserror::Error;

use crate::ids::SortedId;
use crate::money::{AMOUNT_SCALE, Amount, Currency};
use crate::rules::{MARKUP_R_SCALE_MAX, Markup, RuleVersion};

/// How `r_markup` is read; one for the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkupUnit {
    /// 0.3 means 0.3 %: divided by 100.
    Percent,
    /// 0.3 means 30 %: not divided.
    Fraction,
}

impl MarkupUnit {
    /// Every unit.
    pub const ALL: [Self; 2] = [Self::Percent, Self::Fraction];

    /// Its name in the configuration and in stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Percent => "percent",
            Self::Fraction => "fraction",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|u| u.name() == name)
    }

    /// The most that a markup may add: the whole amount.
    pub const fn most(self) -> Decimal {
        match self {
            Self::Percent => Decimal::ONE_HUNDRED,
            Self::Fraction => Decimal::ONE,
        }
    }

    /// How many decimal places the division moves the point.
    const fn shift(self) -> u32 {
        match self {
            Self::Percent => 2,
            Self::Fraction => 0,
        }
    }
}

/// What an amount costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fee {
    /// The part that grows with the amount, in the amount's currency; rounded half up to 6 decimals.
    pub r_fee: Amount,
    /// The fixed part, in USDT; exact.
    pub f_fee: Amount,
}

/// Why there is no fee for an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FeeRefused {
    /// Orders carry no negative amount.
    #[error("a negative amount has no fee")]
    Negative,
    /// The fee has more digits than an amount can hold; it cannot happen within the limits of a transaction.
    #[error("the fee is too large")]
    TooLarge,
}

/// The fee on `amount`: `amount x r (/ 100) + f`. The first part is rounded once, half up, to 6 decimals.
pub fn fee(amount: Amount, markup: &Markup, unit: MarkupUnit) -> Result<Fee, FeeRefused> {
    let exact = Exact::of(amount, markup, unit)?;
    let r_fee = i64::try_from(exact.rounded_half_up()).map_err(|_| FeeRefused::TooLarge)?;
    Ok(Fee { r_fee: Amount::from_micros(r_fee), f_fee: markup.f() })
}

/// `amount x r (/ 100)` before it is rounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Every digit, without trailing zeros.
    pub text: String,
    /// Whether the product has more than six decimals, so that the fee is rounded from it.
    pub is_rounded: bool,
}

/// The product that the first part of a fee is rounded from.
pub fn product(amount: Amount, markup: &Markup, unit: MarkupUnit) -> Result<Product, FeeRefused> {
    let exact = Exact::of(amount, markup, unit)?;
    Ok(Product { text: exact.text(), is_rounded: exact.needs_rounding() })
}

/// The sum worked out as text with every figure in it, so that anybody can check it:
/// `10.5 GT x 0.3 / 100 = 0.0315 GT; plus 1 USDT fixed`.
pub fn worked_sum(
    amount: Amount,
    currency: &Currency,
    markup: &Markup,
    unit: MarkupUnit,
) -> Result<String, FeeRefused> {
    let exact = product(amount, markup, unit)?;
    let Fee { r_fee, f_fee } = fee(amount, markup, unit)?;
    let (coin, r) = (currency.as_str(), markup.r());
    let divided = match unit {
        MarkupUnit::Percent => " / 100",
        MarkupUnit::Fraction => "",
    };
    let product = if exact.is_rounded {
        format!("{} {coin}, rounded half up to {AMOUNT_SCALE} decimals: {r_fee} {coin}", exact.text)
    } else {
        format!("{r_fee} {coin}")
    };
    Ok(format!("{amount} {coin} x {r}{divided} = {product}; plus {f_fee} USDT fixed"))
}

/// The fee of an order, fixed when it was paid: whatever rule is made later, it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFee {
    /// The version in force at that instant; none where no version was in force.
    pub config_id: Option<SortedId>,
    /// Its number; none as above.
    pub version_no: Option<i64>,
    /// What it adds; nothing where there was none.
    pub markup: Markup,
    /// See [`Fee`].
    pub fee: Fee,
    /// See [`worked_sum`].
    pub worked_sum: String,
}

/// The fee of an amount under the version in force, if one is.
pub fn fix(
    amount: Amount,
    currency: &Currency,
    version: Option<&RuleVersion>,
    unit: MarkupUnit,
) -> Result<OrderFee, FeeRefused> {
    let markup = version.map_or(Markup::NONE, |version| version.markup);
    Ok(OrderFee {
        config_id: version.map(|version| version.config_id),
        version_no: version.map(|version| version.version_no),
        markup,
        fee: fee(amount, &markup, unit)?,
        worked_sum: worked_sum(amount, currency, &markup, unit)?,
    })
}

/// `digits x 10^-scale`, not negative, with at least the scale of an amount.
struct Exact {
    digits: u128,
    scale: u32,
}

/// `i64::MAX x 100 x 10^8`, the largest product, is far from the end of `u128`, also doubled.
const _: () = assert!(u128::MAX / 4 > i64::MAX as u128 * 100 * 10u128.pow(MARKUP_R_SCALE_MAX));

impl Exact {
    fn of(amount: Amount, markup: &Markup, unit: MarkupUnit) -> Result<Self, FeeRefused> {
        let amount = u128::try_from(amount.micros()).map_err(|_| FeeRefused::Negative)?;
        let r = markup.r().mantissa().unsigned_abs(); // A markup is never negative.
        Ok(Self { digits: amount * r, scale: AMOUNT_SCALE + markup.r().scale() + unit.shift() })
    }

    /// What one millionth is in `digits`.
    fn micro(&self) -> u128 {
        10u128.pow(self.scale - AMOUNT_SCALE)
    }

    fn needs_rounding(&self) -> bool {
        !self.digits.is_multiple_of(self.micro())
    }

    /// In millionths; a half goes up.
    fn rounded_half_up(&self) -> u128 {
        (2 * self.digits + self.micro()) / (2 * self.micro())
    }

    /// Every digit, without trailing zeros.
    fn text(&self) -> String {
        let width = self.scale as usize + 1;
        let padded = format!("{:0>width$}", self.digits);
        let (whole, fraction) = padded.split_at(padded.len() - self.scale as usize);
        format!("{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
