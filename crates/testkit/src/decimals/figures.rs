//! Random figures as people and programs write them: with zeros that say nothing, at both ends of what is allowed, and halves.

use crate::dice::Dice;
use crate::on_paper::canonical;

/// 20 digits, the one before the point included.
const SMALLEST_RATE: &str = "0.0000000000000000001";

/// The figures of one case, as written in a request.
#[derive(Clone, Debug)]
pub struct Figures {
    /// `r_markup`: 0 to 100, at most 8 decimals.
    pub r: String,
    /// `f_markup`: 0 to 5,000,000, at most 6 decimals.
    pub f: String,
    /// `sellAmount`: 0.0001 to 5,000,000, at most 6 decimals. Fees are computed on it.
    pub sell: String,
    /// `buyAmount`: the same.
    pub buy: String,
    /// `rate`: more than 0, at most 20 digits.
    pub rate: String,
}

impl Figures {
    /// Some figures.
    pub fn throw(dice: &mut Dice) -> Self {
        Self { r: percentage(dice), f: fixed(dice), sell: amount(dice), buy: amount(dice), rate: rate(dice) }
    }
}

fn end(dice: &mut Dice, ends: &[&str]) -> String {
    dice.one_of(ends).map(|end| (*end).to_owned()).unwrap_or_default()
}

fn percentage(dice: &mut Dice) -> String {
    match dice.below(8) {
        0 => end(dice, &["0", "0.0", "0.00000001", "99.99999999", "100", "100.00000000"]),
        // With small amounts these make exact halves of a millionth.
        1 => end(dice, &["0.5", "0.05", "2.5", "50"]),
        _ => dice.number(2, 8),
    }
}

fn fixed(dice: &mut Dice) -> String {
    match dice.below(8) {
        0 => end(dice, &["0", "0.000000", "0.000001", "4999999.999999", "5000000", "5000000.000000"]),
        1 => format!("{}.{:06}", dice.between(1_000_000, 4_999_999), dice.between(0, 999_999)),
        _ => dice.number(6, 6),
    }
}

fn amount(dice: &mut Dice) -> String {
    let written = match dice.below(8) {
        0 => end(dice, &["0.0001", "0.000100", "4999999.999999", "5000000", "5000000.00"]),
        1 | 2 => format!("0.{:06}", dice.between(100, 9_999)),
        _ => dice.number(6, 6),
    };
    // Less than the least: all in front of the fifth decimal is zero.
    let too_little = canonical(&written) == "0" || canonical(&written).starts_with("0.0000");
    if too_little { "0.0001".to_owned() } else { written }
}

fn rate(dice: &mut Dice) -> String {
    let whole = 1 + dice.below(10);
    let written = dice.number(whole, 20 - whole);
    if canonical(&written) == "0" { SMALLEST_RATE.to_owned() } else { written }
}
