//! What a conversion comes to: pairs, their limits, quotes, and the two amounts of one, in whole numbers.
//!
//! A rate says how much of the quote coin one base coin is. The amount that the caller gives is never changed; the other one is computed
//! and rounded once, to 6 decimals, so that nobody gets more than the rate says: what is bought is rounded down, what is sold up.

use std::fmt;

use rust_decimal::Decimal;
use thiserror::Error;

use crate::ids::OrderId;
use crate::money::{Amount, Currency, TRANSACTION_MAX, TRANSACTION_MIN};
use crate::time::UnixMillis;

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

/// The amount that the caller fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// So much is sold; what it buys is computed.
    Sell(Amount),
    /// So much is bought; what it costs is computed.
    Buy(Amount),
}

/// Why there is no price for an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PriceRefused {
    /// What is sold is not within its limits.
    #[error("sellAmount: must be from {min} to {max}, and is {found}")]
    SellOutside {
        /// Least.
        min: Amount,
        /// Most.
        max: Amount,
        /// What it is.
        found: Amount,
    },
    /// What is bought is not within its limits.
    #[error("buyAmount: must be from {min} to {max}, and is {found}")]
    BuyOutside {
        /// Least.
        min: Amount,
        /// Most.
        max: Amount,
        /// What it is.
        found: Amount,
    },
    /// What is bought rounds down to nothing.
    #[error("buyAmount: comes to less than 0.000001; sell more")]
    Nothing,
    /// More digits than an amount can have.
    #[error("the other amount comes to more than can be converted; ask for less")]
    TooLarge,
}

/// Both amounts of a conversion: what is sold, and what is bought.
pub fn price(
    rate: Decimal,
    direction: Direction,
    limits: &Limits,
    given: Given,
) -> Result<(Amount, Amount), PriceRefused> {
    let (of_sale, of_purchase) = limits.sides(direction);
    let (sold, bought) = match given {
        Given::Sell(amount) => {
            sale_within(of_sale, amount)?;
            let bought = match direction {
                Direction::SellsBase => times(amount, rate, Rounding::Down),
                Direction::SellsQuote => over(amount, rate, Rounding::Down),
            };
            (amount, bought.ok_or(PriceRefused::TooLarge)?)
        }
        Given::Buy(amount) => {
            purchase_within(of_purchase, amount)?;
            let sold = match direction {
                Direction::SellsBase => over(amount, rate, Rounding::Up),
                Direction::SellsQuote => times(amount, rate, Rounding::Up),
            };
            (sold.ok_or(PriceRefused::TooLarge)?, amount)
        }
    };
    if bought == Amount::ZERO {
        return Err(PriceRefused::Nothing);
    }
    sale_within(of_sale, sold)?;
    purchase_within(of_purchase, bought)?;
    Ok((sold, bought))
}

fn sale_within((min, max): Range, found: Amount) -> Result<(), PriceRefused> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(PriceRefused::SellOutside { min, max, found }) }
}

fn purchase_within((min, max): Range, found: Amount) -> Result<(), PriceRefused> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(PriceRefused::BuyOutside { min, max, found }) }
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
    #[error("sellCurrency and buyCurrency: must be those of the quote")]
    Currencies,
    /// It was given for other amounts.
    #[error("sellAmount and buyAmount: must be those of the quote")]
    Amounts,
}

impl Quote {
    /// Whether it may be carried out now on these terms.
    pub fn accepts(&self, terms: &Terms, now: UnixMillis) -> Result<(), QuoteRefused> {
        if self.order.is_some() || now >= self.expires_at {
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
