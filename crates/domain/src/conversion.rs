//! What a conversion comes to: pairs, their limits, quotes, and the two amounts of one, in whole numbers.
//!
//! A rate says how much of the quote coin one base coin is. The amount that the caller gives is never changed; the other one is computed
//! and rounded once, to 6 decimals, so that nobody gets more than the rate says: what is bought is rounded down, what is sold up.

use std::fmt;

use rust_decimal::Decimal;
use thiserror::Error;

use crate::ids::OrderId;
use crate::money::{Amount, Currency, TRANSACTION_MAX, TRANSACTION_MIN};
use crate::time::{CLOCKS_APART_MS_MAX, UnixMillis};

/// Two currencies that are dealt in: `GT_USDT` is the base `GT`, priced in the quote coin `USDT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// What is priced.
    pub base: Currency,
    /// What it is priced in.
    pub quote: Currency,
}

impl Pair {
    /// Reads `BASE_QUOTE`: two different currencies.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, quote) = text.split_once('_')?;
        Self::of(Currency::parse(base)?, Currency::parse(quote)?)
    }

    /// The pair of two different currencies.
    pub fn of(base: Currency, quote: Currency) -> Option<Self> {
        (base != quote).then_some(Self { base, quote })
    }

    /// The same two currencies the other way round, which is another pair with a price of its own.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { base: self.quote.clone(), quote: self.base.clone() }
    }

    /// Which of the two is sold, where `sell` is sold for `buy`; none where that is another pair.
    pub fn direction(&self, sell: &Currency, buy: &Currency) -> Option<Direction> {
        match (*sell == self.base, *sell == self.quote) {
            (true, _) if *buy == self.quote => Some(Direction::SellsBase),
            (_, true) if *buy == self.base => Some(Direction::SellsQuote),
            (_, _) => None,
        }
    }

    /// What is sold and what is bought.
    pub const fn sides(&self, direction: Direction) -> (&Currency, &Currency) {
        match direction {
            Direction::SellsBase => (&self.base, &self.quote),
            Direction::SellsQuote => (&self.quote, &self.base),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.base.as_str(), self.quote.as_str())
    }
}

/// Which way a pair is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The base coin is sold for the quote coin.
    SellsBase,
    /// The quote coin is sold for the base coin.
    SellsQuote,
}

/// How much of either coin one conversion may move, as the back end says; where it says nothing, what every transaction may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Least of the base coin.
    pub base_min: Option<Amount>,
    /// Most of the base coin.
    pub base_max: Option<Amount>,
    /// Least of the quote coin.
    pub quote_min: Option<Amount>,
    /// Most of the quote coin.
    pub quote_max: Option<Amount>,
}

/// From, to: both are allowed.
pub type Range = (Amount, Amount);

impl Limits {
    /// Of the base coin. Never wider than what every transaction may: 0.0001 to 5,000,000.
    pub fn base(&self) -> Range {
        narrowed(self.base_min, self.base_max)
    }

    /// Of the quote coin; as [`Limits::base`].
    pub fn quote(&self) -> Range {
        narrowed(self.quote_min, self.quote_max)
    }

    /// Of what is sold and of what is bought.
    pub fn sides(&self, direction: Direction) -> (Range, Range) {
        match direction {
            Direction::SellsBase => (self.base(), self.quote()),
            Direction::SellsQuote => (self.quote(), self.base()),
        }
    }
}

fn narrowed(min: Option<Amount>, max: Option<Amount>) -> Range {
    (
        min.map_or(TRANSACTION_MIN, |min| min.max(TRANSACTION_MIN)),
        max.map_or(TRANSACTION_MAX, |max| max.min(TRANSACTION_MAX)),
    )
}

/// One of the two amounts of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is sold.
    Sell,
    /// What is bought.
    Buy,
}

impl Side {
    /// Its field on the wire.
    const fn field(self) -> &'static str {
        match self {
            Self::Sell => "sellAmount",
            Self::Buy => "buyAmount",
        }
    }
}

/// What the caller can do about the amount that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// Give more.
    More,
    /// Give less.
    Less,
    /// Nothing: at this rate no amount is within the limits of both sides.
    None,
}

/// Why there is no price for an amount. The text is what the amount of its side must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PriceRefused {
    /// The amount that the caller gave is not within its limits.
    #[error("must be from {min} to {max}, and is {found}")]
    Outside {
        /// Which one.
        side: Side,
        /// Least.
        min: Amount,
        /// Most.
        max: Amount,
        /// What it is.
        found: Amount,
    },
    /// The other one, which is computed, is not within its limits.
    #[error("must be from {min} to {max}, and comes to {}; {}", found_in_words(*.found), way_out_in_words(*.side, *.way_out))]
    ComesOutside {
        /// Which one.
        side: Side,
        /// Least.
        min: Amount,
        /// Most.
        max: Amount,
        /// What it is; none: more than an amount can be.
        found: Option<Amount>,
        /// What can be done about it.
        way_out: WayOut,
    },
}

impl PriceRefused {
    /// The field whose amount it is.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Outside { side, .. } | Self::ComesOutside { side, .. } => side.field(),
        }
    }
}

fn found_in_words(found: Option<Amount>) -> String {
    match found {
        Some(Amount::ZERO) => "less than 0.000001".to_owned(),
        Some(found) => found.to_string(),
        None => "more than can be counted".to_owned(),
    }
}

/// `computed`: the side that the caller did not give.
const fn way_out_in_words(computed: Side, way_out: WayOut) -> &'static str {
    match (way_out, computed) {
        (WayOut::More, Side::Buy) => "sell more",
        (WayOut::More, Side::Sell) => "buy more",
        (WayOut::Less, Side::Buy) => "sell less",
        (WayOut::Less, Side::Sell) => "buy less",
        (WayOut::None, Side::Buy | Side::Sell) => {
            "at the present rate of this pair no amount is within the limits of both"
        }
    }
}

/// The amount that the caller fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// So much is sold; what it buys is computed.
    Sell(Amount),
    /// So much is bought; what it costs is computed.
    Buy(Amount),
}

/// Both amounts of a conversion: what is sold, and what is bought.
pub fn price(
    rate: Decimal,
    direction: Direction,
    limits: &Limits,
    given: Given,
) -> Result<(Amount, Amount), PriceRefused> {
    let (of_sale, of_purchase) = limits.sides(direction);
    match given {
        Given::Sell(sold) => {
            within(Side::Sell, of_sale, sold)?;
            let found = worth(rate, direction, sold);
            comes_within(Side::Buy, of_purchase, found, || {
                sale_exists(rate, direction, of_sale, of_purchase).unwrap_or(false)
            })
            .map(|bought| (sold, bought))
        }
        Given::Buy(bought) => {
            within(Side::Buy, of_purchase, bought)?;
            let found = cost(rate, direction, bought);
            comes_within(Side::Sell, of_sale, found, || {
                purchase_exists(rate, direction, of_sale, of_purchase).unwrap_or(false)
            })
            .map(|sold| (sold, bought))
        }
    }
}

/// Refuses an amount that no rate could make right: one outside what every transaction may be. The sentence says the pair's own limits.
pub fn possible(direction: Direction, limits: &Limits, given: Given) -> Result<(), PriceRefused> {
    let (of_sale, of_purchase) = limits.sides(direction);
    let (side, range, found) = match given {
        Given::Sell(amount) => (Side::Sell, of_sale, amount),
        Given::Buy(amount) => (Side::Buy, of_purchase, amount),
    };
    within(side, (TRANSACTION_MIN, TRANSACTION_MAX), found).or_else(|_| within(side, range, found))
}

fn within(side: Side, (min, max): Range, found: Amount) -> Result<(), PriceRefused> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(PriceRefused::Outside { side, min, max, found }) }
}

/// The computed amount, if it is within its limits. `exists`: whether there is an amount that the caller could give in its place.
fn comes_within(
    side: Side,
    (min, max): Range,
    found: Option<Amount>,
    exists: impl FnOnce() -> bool,
) -> Result<Amount, PriceRefused> {
    if let Some(found) = found.filter(|found| (min..=max).contains(found)) {
        return Ok(found);
    }
    let way_out = match (exists(), found) {
        (false, _) => WayOut::None,
        (true, Some(found)) if found < min => WayOut::More,
        (true, Some(_) | None) => WayOut::Less,
    };
    Err(PriceRefused::ComesOutside { side, min, max, found, way_out })
}

/// What a sale buys, rounded down; none where it is too large.
fn worth(rate: Decimal, direction: Direction, sold: Amount) -> Option<Amount> {
    match direction {
        Direction::SellsBase => times(sold, rate, Rounding::Down),
        Direction::SellsQuote => over(sold, rate, Rounding::Down),
    }
}

/// What a purchase costs, rounded up; none where it is too large.
fn cost(rate: Decimal, direction: Direction, bought: Amount) -> Option<Amount> {
    match direction {
        Direction::SellsBase => over(bought, rate, Rounding::Up),
        Direction::SellsQuote => times(bought, rate, Rounding::Up),
    }
}

/// Whether any sale within its limits buys something within the others: the least sale that buys enough is tried.
fn sale_exists(rate: Decimal, direction: Direction, of_sale: Range, of_purchase: Range) -> Option<bool> {
    let least = cost(rate, direction, of_purchase.0)?.max(of_sale.0);
    Some(least <= of_sale.1 && worth(rate, direction, least)? <= of_purchase.1)
}

/// Whether any purchase within its limits costs something within the others: the least purchase that costs enough is tried.
fn purchase_exists(rate: Decimal, direction: Direction, of_sale: Range, of_purchase: Range) -> Option<bool> {
    let too_cheap = worth(rate, direction, Amount::from_micros(of_sale.0.micros() - 1))?;
    let least = Amount::from_micros(too_cheap.micros().checked_add(1)?).max(of_purchase.0);
    Some(least <= of_purchase.1 && cost(rate, direction, least)? <= of_sale.1)
}

/// What becomes of the part behind the sixth decimal.
#[derive(Clone, Copy, Debug)]
enum Rounding {
    Down,
    Up,
}

/// `amount` x `rate`; none where it is too large.
fn times(amount: Amount, rate: Decimal, rounding: Rounding) -> Option<Amount> {
    let whole = i128::from(amount.micros()).checked_mul(rate.mantissa())?;
    divided(whole, 10_i128.checked_pow(rate.scale())?, rounding)
}

/// `amount` / `rate`; none where it is too large.
fn over(amount: Amount, rate: Decimal, rounding: Rounding) -> Option<Amount> {
    let whole = i128::from(amount.micros()).checked_mul(10_i128.checked_pow(rate.scale())?)?;
    divided(whole, rate.mantissa(), rounding)
}

fn divided(whole: i128, by: i128, rounding: Rounding) -> Option<Amount> {
    let (quotient, rest) = (whole.checked_div_euclid(by)?, whole.checked_rem_euclid(by)?);
    let rounded = match rounding {
        Rounding::Up if rest != 0 => quotient.checked_add(1)?,
        Rounding::Up | Rounding::Down => quotient,
    };
    i64::try_from(rounded).ok().map(Amount::from_micros)
}

/// A price that was promised to a merchant for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// `PAY-` and 8 hex digits.
    pub quote_id: String,
    /// The pair whose rate it was.
    pub pair: Pair,
    /// What is sold.
    pub sell_currency: Currency,
    /// What is bought.
    pub buy_currency: Currency,
    /// How much is sold.
    pub sell_amount: Amount,
    /// How much is bought.
    pub buy_amount: Amount,
    /// Quote coin per base coin of the pair, every digit kept.
    pub rate: Decimal,
    /// When it was promised.
    pub created_at: UnixMillis,
    /// It is good before this instant.
    pub expires_at: UnixMillis,
    /// The order that used it up.
    pub order: Option<OrderId>,
}

/// What a conversion was asked to be: part of what its `clientReqId` stands for, and what a quote is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Which quote.
    pub quote_id: String,
    /// What is sold.
    pub sell_currency: Currency,
    /// What is bought.
    pub buy_currency: Currency,
    /// How much is sold.
    pub sell_amount: Amount,
    /// How much is bought.
    pub buy_amount: Amount,
}

/// Why a quote is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuoteRefused {
    /// It was used, or its time is over.
    #[error("the quote is used up or its time is over; ask for a new one with POST /v1/pay/convert/preview")]
    Expired,
    /// It was given for other currencies.
    #[error("fields sellCurrency and buyCurrency: must be those of the quote")]
    Currencies,
    /// It was given for other amounts.
    #[error("fields sellAmount and buyAmount: must be those of the quote")]
    Amounts,
}

impl Quote {
    /// Whether it may be carried out now on these terms.
    pub fn accepts(&self, terms: &Terms, now: UnixMillis) -> Result<(), QuoteRefused> {
        // One that was promised by a clock that was ahead is not good for as long as that was.
        let is_of_a_clock_ahead = self.created_at > now.plus_ms(CLOCKS_APART_MS_MAX);
        if self.order.is_some() || now >= self.expires_at || is_of_a_clock_ahead {
            return Err(QuoteRefused::Expired);
        }
        if (&terms.sell_currency, &terms.buy_currency) != (&self.sell_currency, &self.buy_currency) {
            return Err(QuoteRefused::Currencies);
        }
        if (terms.sell_amount, terms.buy_amount) != (self.sell_amount, self.buy_amount) {
            return Err(QuoteRefused::Amounts);
        }
        Ok(())
    }
}
