//! Sums of orders, added up on paper.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::reading::Listed;
use crate::on_paper::Figure;

/// How many orders of each kind a what-if names.
const NAMED: usize = 10;

/// Sums of some orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) orders: u64,
    /// What was paid.
    pub(super) amount: Figure,
    pub(super) r_fee: Figure,
    pub(super) f_fee: Figure,
}

impl Default for Sums {
    fn default() -> Self {
        let zero = || Figure::read("0");
        Self { orders: 0, amount: zero(), r_fee: zero(), f_fee: zero() }
    }
}

impl Sums {
    /// The same figures without zeros that say nothing, so that equal ones are equal.
    pub(super) fn plain(self) -> Self {
        let plain = |figure: &Figure| Figure::read(&figure.text());
        Self { orders: self.orders, amount: plain(&self.amount), r_fee: plain(&self.r_fee), f_fee: plain(&self.f_fee) }
    }

    fn join(&mut self, other: &Self) {
        let Self { orders, amount, r_fee, f_fee } = &*self;
        *self = Self {
            orders: orders + other.orders,
            amount: amount.plus(&other.amount),
            r_fee: r_fee.plus(&other.r_fee),
            f_fee: f_fee.plus(&other.f_fee),
        }
        .plain();
    }
}

/// What is known of some orders.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    by_account: BTreeMap<(String, String), Sums>,
    by_day: BTreeMap<(String, String), Sums>,
    /// Both parts of each fee in millionths, in the order of the orders' numbers: by currency, then trade number.
    fees: BTreeMap<String, Vec<(String, [i128; 2])>>,
}

impl Books {
    pub(super) fn add(&mut self, order: &Listed) -> Result<()> {
        let sums = Sums {
            orders: 1,
            amount: Figure::read(&order.actual_amount),
            r_fee: Figure::read(&order.r_fee),
            f_fee: Figure::read(&order.f_fee),
        };
        let coin = order.currency.clone();
        let day = order.paid_at.get(..10).context("an instant")?.to_owned();
        self.by_account.entry((order.merchant_id.clone(), coin.clone())).or_default().join(&sums);
        self.by_day.entry((day, coin.clone())).or_default().join(&sums);
        let fee = [micros(&order.r_fee)?, micros(&order.f_fee)?];
        self.fees.entry(coin).or_default().push((order.trade_no.clone(), fee));
        Ok(())
    }

    pub(super) const fn by_account(&self) -> &BTreeMap<(String, String), Sums> {
        &self.by_account
    }

    pub(super) const fn by_day(&self) -> &BTreeMap<(String, String), Sums> {
        &self.by_day
    }

    pub(super) fn by_coin(&self) -> BTreeMap<String, Sums> {
        let mut all: BTreeMap<String, Sums> = BTreeMap::new();
        for ((_, coin), sums) in &self.by_account {
            all.entry(coin.clone()).or_default().join(sums);
        }
        all
    }

    /// By how much each order's fee of a currency would move, where the other books have the same orders, in the same order.
    pub(super) fn changes(&self, coin: &str, other: &Self) -> Result<Vec<(String, [i128; 2])>> {
        let (was, is) = (self.fees.get(coin).context("a currency")?, other.fees.get(coin).context("a currency")?);
        ensure!(was.len() == is.len(), "both have the same orders");
        let pairs = was.iter().zip(is).map(|((no, was), (same, is))| {
            ensure!(no == same, "both have the same orders");
            Ok((no.clone(), [is[0] - was[0], is[1] - was[1]]))
        });
        pairs.collect()
    }
}

/// An amount in millionths.
pub(super) fn micros(text: &str) -> Result<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    ensure!(fraction.len() <= 6, "{text} has too many decimals");
    Ok(format!("{whole}{fraction:0<6}").parse()?)
}

/// The orders that a what-if names are the first ones of all, sorted by how much they move; of equals the earlier stand first.
pub(super) fn compare_movers(movers: &Value, changes: &[(String, [i128; 2])]) -> Result<()> {
    for (name, part, sign) in [("r_up", 0, 1), ("r_down", 0, -1), ("f_up", 1, 1), ("f_down", 1, -1)] {
        let mut moved: Vec<(i128, &str)> = changes.iter().map(|(no, by)| (sign * by[part], no.as_str())).collect();
        moved.retain(|(by, _)| *by > 0);
        moved.sort_by_key(|(by, _)| -by);
        moved.truncate(NAMED);
        let found: Result<Vec<(i128, &str)>> = movers[name]
            .as_array()
            .context("a list")?
            .iter()
            .map(|order| {
                let by = order["by"].as_str().context("a text")?;
                let by = by.strip_prefix('-').map_or_else(|| micros(by), |by| micros(by).map(|by| -by))?;
                Ok((sign * by, order["merchantTradeNo"].as_str().context("a text")?))
            })
            .collect();
        ensure!(found? == moved, "{name}: {moved:?} were expected, found {}", movers[name]);
    }
    Ok(())
}
