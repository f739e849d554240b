//! Paid orders tried on a rule that is not made yet: what they would have brought beside what they did.
//!
//! Orders are added one by one, in the order of their numbers; what is kept of them is sums, the few that stand out, and nothing else.
//!
//! Invariant: sums are integers of 128 bits, and each order is priced by [`fees::fee`], as it would really be.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::fees::{self, Fee, FeeRefused, MarkupUnit};
use crate::money::{Amount, Currency, FIXED_FEE_COIN, Total};
use crate::payment_order::PrepayId;
use crate::rules::Markup;
use crate::time::{Day, RuleZone, UnixMillis};

/// How many orders of each kind are named.
pub const NAMED_MAX: usize = 10;
/// Currencies of one what-if, at the most.
pub const CURRENCIES_MAX: usize = 200;
/// Days of one what-if, each counted once for each currency of it, at the most.
pub const DAYS_MAX: usize = 20_000;

/// An order that was paid.
#[derive(Clone, Copy, Debug)]
pub struct Paid<'a> {
    /// Its public number.
    pub prepay_id: PrepayId,
    /// The merchant's own number.
    pub trade_no: &'a str,
    /// What it was paid in.
    pub currency: &'a Currency,
    /// What was really paid.
    pub amount: Amount,
    /// When.
    pub paid_at: UnixMillis,
    /// The fee that was fixed then; none: it brought nothing.
    pub fee: Option<Fee>,
}

/// Why a what-if comes to nothing, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhatIfRefused {
    /// An order that the rule has no fee for.
    #[error("order {0}: {1}")]
    Fee(PrepayId, FeeRefused),
    /// More currencies than are told apart.
    #[error("these orders have more than {CURRENCIES_MAX} currencies: ask for a shorter time")]
    Currencies,
    /// More days than are told apart.
    #[error("these orders have more than {DAYS_MAX} days, each counted for each currency: ask for a shorter time")]
    Days,
}

/// Sums of the two parts of fees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fees {
    /// The part that grows with the amount, in the orders' currency.
    pub r: Total,
    /// The fixed part, in USDT.
    pub f: Total,
}

impl Fees {
    fn add(&mut self, fee: Fee) {
        self.r += fee.r_fee;
        self.f += fee.f_fee;
    }

    fn of(fee: Fee) -> Self {
        Self { r: fee.r_fee.into(), f: fee.f_fee.into() }
    }

    /// What `self` is more than `other`.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self { r: self.r - other.r, f: self.f - other.f }
    }
}

/// Sums of some orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub orders: u64,
    /// What was paid.
    pub amount: Total,
    /// What they brought.
    pub old: Fees,
    /// What they would have brought.
    pub new: Fees,
}

impl Tally {
    fn add(&mut self, amount: Amount, old: Fee, new: Fee) {
        self.orders += 1;
        self.amount += amount;
        self.old.add(old);
        self.new.add(new);
    }
}

/// How many orders would have brought more, and how many less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// More.
    pub more: u64,
    /// Less.
    pub less: u64,
    /// The same.
    pub same: u64,
    /// More of one part and less of the other, in two currencies.
    pub mixed: u64,
}

/// An order that stands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its public number.
    pub prepay_id: PrepayId,
    /// The merchant's own number.
    pub trade_no: String,
    /// When it was paid.
    pub paid_at: UnixMillis,
    /// What was paid.
    pub amount: Amount,
    /// What it brought.
    pub old: Fee,
    /// What it would have brought.
    pub new: Fee,
}

/// The first few orders by some measure. Of equal ones the earlier stand first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top(Vec<(Total, Named)>);

impl Top {
    fn offer(&mut self, measure: Total, order: &Paid<'_>, old: Fee, new: Fee) {
        let at = self.0.partition_point(|(kept, _)| *kept >= measure);
        if at >= NAMED_MAX {
            return;
        }
        self.0.truncate(NAMED_MAX - 1);
        let Paid { prepay_id, trade_no, paid_at, amount, .. } = *order;
        self.0.insert(at, (measure, Named { prepay_id, trade_no: trade_no.to_owned(), paid_at, amount, old, new }));
    }

    /// The orders, each with its measure, the largest first.
    pub fn orders(&self) -> &[(Total, Named)] {
        &self.0
    }
}

/// Orders whose fee would take the whole amount or more. The fixed part, which is USDT, counts where the amount is USDT, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How many under the new rule.
    pub orders: u64,
    /// How many of all were so already.
    pub before: u64,
    /// Orders of which nobody can say so without a rate: in another currency, with a fixed part, and the rest below the amount.
    pub not_comparable: u64,
    /// Those that take most beyond the amount; the measure is what they take beyond it, which may be nothing.
    pub worst: Top,
}

/// Orders whose fee would move most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Movers {
    /// `r_fee` up.
    pub r_up: Top,
    /// `r_fee` down.
    pub r_down: Top,
    /// `f_fee` up.
    pub f_up: Top,
    /// `f_fee` down.
    pub f_down: Top,
}

/// All orders of one currency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InCurrency {
    /// Their sums.
    pub tally: Tally,
    /// Whether they would have brought more.
    pub turns: Turns,
    /// Whether they would have cost more than they are worth.
    pub losses: Losses,
    /// Which of them move most.
    pub movers: Movers,
}

/// A rule that is not made yet, and what is known so far of the orders that it was tried on.
#[derive(Clone, Debug)]
pub struct WhatIf {
    markup: Markup,
    unit: MarkupUnit,
    zone: RuleZone,
    orders: u64,
    currencies: BTreeMap<Currency, InCurrency>,
    days: BTreeMap<Day, BTreeMap<Currency, Tally>>,
    day_count: usize,
}

impl WhatIf {
    /// Before the first order. Days are those of `zone`.
    pub const fn new(markup: Markup, unit: MarkupUnit, zone: RuleZone) -> Self {
        Self { markup, unit, zone, orders: 0, currencies: BTreeMap::new(), days: BTreeMap::new(), day_count: 0 }
    }

    /// Tries the rule on one order.
    pub fn add(&mut self, order: &Paid<'_>) -> Result<(), WhatIfRefused> {
        let new = fees::fee(order.amount, &self.markup, self.unit);
        let new = new.map_err(|refused| WhatIfRefused::Fee(order.prepay_id, refused))?;
        let old = order.fee.unwrap_or(Fee { r_fee: Amount::ZERO, f_fee: Amount::ZERO });
        if !self.currencies.contains_key(order.currency) && self.currencies.len() >= CURRENCIES_MAX {
            return Err(WhatIfRefused::Currencies);
        }
        let of_day = self.days.entry(self.zone.day(order.paid_at)).or_default();
        if !of_day.contains_key(order.currency) {
            if self.day_count >= DAYS_MAX {
                return Err(WhatIfRefused::Days);
            }
            self.day_count += 1;
        }
        self.orders += 1;
        of_day.entry(order.currency.clone()).or_default().add(order.amount, old, new);
        self.currencies.entry(order.currency.clone()).or_default().add(order, old, new);
        Ok(())
    }

    /// What the rule adds.
    pub const fn markup(&self) -> Markup {
        self.markup
    }

    /// How many orders it was tried on.
    pub const fn orders(&self) -> u64 {
        self.orders
    }

    /// By currency.
    pub const fn currencies(&self) -> &BTreeMap<Currency, InCurrency> {
        &self.currencies
    }

    /// By day and currency. A day without orders is not there.
    pub const fn days(&self) -> &BTreeMap<Day, BTreeMap<Currency, Tally>> {
        &self.days
    }

    /// The sum of a named order's new fee, worked out.
    pub fn worked_sum(&self, order: &Named, currency: &Currency) -> Result<String, FeeRefused> {
        fees::worked_sum(order.amount, currency, &self.markup, self.unit)
    }
}

/// What can be said of a fee beside its amount.
enum Taking {
    /// It leaves something.
    Part,
    /// It takes the amount, and so much beyond it.
    Whole(Total),
    /// Its fixed part is in another currency.
    NotComparable,
}

fn taking(order: &Paid<'_>, fee: Fee) -> Taking {
    let mut taken = Total::from(fee.r_fee);
    let is_one_coin = order.currency.as_str() == FIXED_FEE_COIN;
    if is_one_coin {
        taken += fee.f_fee;
    }
    if taken >= order.amount.into() {
        Taking::Whole(taken - order.amount.into())
    } else if is_one_coin || fee.f_fee <= Amount::ZERO {
        Taking::Part
    } else {
        Taking::NotComparable
    }
}

impl InCurrency {
    fn add(&mut self, order: &Paid<'_>, old: Fee, new: Fee) {
        self.tally.add(order.amount, old, new);
        let moved = Fees::of(new).less(Fees::of(old));
        self.turns.add(moved, order.currency.as_str() == FIXED_FEE_COIN);
        self.losses.add(order, old, new);
        let (down, movers) = (Fees::default().less(moved), &mut self.movers);
        for (top, measure) in [
            (&mut movers.r_up, moved.r),
            (&mut movers.r_down, down.r),
            (&mut movers.f_up, moved.f),
            (&mut movers.f_down, down.f),
        ] {
            if measure > Total::ZERO {
                top.offer(measure, order, old, new);
            }
        }
    }
}

impl Turns {
    /// `is_one_coin`: the two parts can be added up.
    fn add(&mut self, Fees { mut r, mut f }: Fees, is_one_coin: bool) {
        if is_one_coin {
            r += f;
            f = Total::ZERO;
        }
        let (is_more, is_less) = (r > Total::ZERO || f > Total::ZERO, r < Total::ZERO || f < Total::ZERO);
        let count = match (is_more, is_less) {
            (true, false) => &mut self.more,
            (false, true) => &mut self.less,
            (false, false) => &mut self.same,
            (true, true) => &mut self.mixed,
        };
        *count += 1;
    }
}

impl Losses {
    fn add(&mut self, order: &Paid<'_>, old: Fee, new: Fee) {
        if matches!(taking(order, old), Taking::Whole(_)) {
            self.before += 1;
        }
        match taking(order, new) {
            Taking::Part => {}
            Taking::NotComparable => self.not_comparable += 1,
            Taking::Whole(beyond) => {
                self.orders += 1;
                self.worst.offer(beyond, order, old, new);
            }
        }
    }
}
