//! What is asked next: chance, with a preference for the instants at which something changes.

use super::oracle::{Ask, SubAccount};
use crate::dice::Dice;
use crate::on_paper::canonical;

const SECOND_MS: i64 = 1_000;
const DAY_MS: i64 = 86_400_000;
/// Largest `f_markup`.
const F_MAX: &str = "5000000";

/// One thing to ask of one sub-account.
#[derive(Clone, Debug)]
pub enum Question {
    /// An upgrade or a creation.
    Change(Ask),
    /// The same with a nonce that was used before.
    Replay(Ask),
    /// A change and a query of a sub-account that this institution does not have.
    Stranger(Ask),
    /// Which rule is in force; none asks about now.
    InForce(Option<i64>),
    /// Versions and states, as operators see them: so many, after skipping so many.
    Versions(u32, usize),
}

/// Something to ask of `sub` when the clock shows `clock`.
pub fn question(dice: &mut Dice, sub: &SubAccount, clock: i64) -> Question {
    match dice.below(100) {
        0..36 => Question::Change(change(dice, sub, clock, false)),
        36..50 => Question::Change(change(dice, sub, clock, true)),
        50..54 => Question::Replay(change(dice, sub, clock, false)),
        54..57 => Question::Stranger(change(dice, sub, clock, false)),
        57..69 => Question::InForce(None),
        69..92 => Question::InForce(Some(instant(dice, sub, clock))),
        _ => Question::Versions(u32::try_from(1 + dice.below(4)).expect("few"), dice.below(4)),
    }
}

fn change(dice: &mut Dice, sub: &SubAccount, clock: i64, creation: bool) -> Ask {
    let effective = instant(dice, sub, clock);
    let due = match dice.below(8) {
        0..4 => None,
        4 => Some(effective + dice.between(-1, 1)),
        5 => Some(instant(dice, sub, clock)),
        _ => Some(effective.max(clock) + dice.between(1, 30 * SECOND_MS)),
    };
    Ask { creation, r: percentage(dice), f: fixed(dice), effective, due }
}

fn percentage(dice: &mut Dice) -> String {
    let ends = ["0", "100", "99.99999999", "0.00000001"].map(str::to_owned);
    if dice.once_in(8) { dice.one_of(&ends).expect("four").clone() } else { canonical(&dice.number(2, 8)) }
}

fn fixed(dice: &mut Dice) -> String {
    match dice.below(8) {
        0..3 => "0".to_owned(),
        3 => F_MAX.to_owned(),
        _ => canonical(&dice.number(6, 6)),
    }
}

/// An instant in the past, the present or the future; often one at which something changes, or the millisecond beside it.
fn instant(dice: &mut Dice, sub: &SubAccount, clock: i64) -> i64 {
    let turning = turning_points(sub);
    match dice.below(8) {
        0 | 1 => dice.one_of(&turning).copied().unwrap_or(clock) + dice.between(-1, 1),
        2 => clock + dice.between(-1, 1),
        3 => clock.div_euclid(SECOND_MS) * SECOND_MS + dice.between(-5, 20) * SECOND_MS,
        4 => clock + dice.between(-400, 400) * DAY_MS,
        _ => clock + dice.between(-15 * SECOND_MS, 40 * SECOND_MS),
    }
}

/// Every instant at which something was made, starts or ends.
fn turning_points(sub: &SubAccount) -> Vec<i64> {
    sub.versions.iter().flat_map(|v| [Some(v.created), Some(v.effective), v.due]).flatten().collect()
}

/// How far the clock moves: often exactly to the next instant at which something starts or ends somewhere, now and then a little
/// back, as clocks of machines do.
pub fn move_clock<'a>(dice: &mut Dice, subs: impl Iterator<Item = &'a SubAccount>, clock: i64) -> i64 {
    let ahead: Vec<i64> = subs.flat_map(turning_points).filter(|instant| *instant > clock).collect();
    match dice.below(16) {
        0 => 0,
        1 => 1,
        2 => -dice.between(1, 50),
        3 => DAY_MS + dice.between(0, DAY_MS),
        4..6 => dice.between(1, 10 * SECOND_MS),
        6..8 => ahead.iter().min().map_or(SECOND_MS, |next| next - clock),
        _ => dice
            .one_of(&ahead)
            .filter(|at| **at - clock < DAY_MS)
            .map_or(999, |at| at - clock + dice.between(-1, 1).min(0)),
    }
}
