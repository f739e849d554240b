//! What a what-if came to, as the operator API says it, and in words.

use std::fmt::Write as _;

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A report.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// Whose orders.
    pub sub_merchant_id: String,
    r_markup: Box<RawValue>,
    f_markup: Box<RawValue>,
    from: Option<String>,
    to: String,
    /// The zone of the days.
    pub time_zone: String,
    orders: u64,
    f_fee: Change,
    /// By currency.
    pub currencies: Vec<InCurrency>,
    /// By day and currency, in order.
    pub days: Vec<InDay>,
}

/// A sum as it was, as it would have been, and the difference.
#[derive(Debug, Deserialize)]
struct Change {
    old: String,
    new: String,
    difference: String,
}

/// The orders of one currency.
#[derive(Debug, Deserialize)]
pub struct InCurrency {
    /// Which.
    pub currency: String,
    orders: u64,
    amount: String,
    r_fee: Change,
    f_fee: Change,
    more: u64,
    less: u64,
    same: u64,
    mixed: u64,
    at_loss: Losses,
    movers: Movers,
}

#[derive(Debug, Deserialize)]
struct Losses {
    orders: u64,
    before: u64,
    not_comparable: u64,
    worst: Vec<Order>,
}

#[derive(Debug, Deserialize)]
struct Movers {
    r_up: Vec<Order>,
    r_down: Vec<Order>,
    f_up: Vec<Order>,
    f_down: Vec<Order>,
}

#[derive(Debug, Deserialize)]
struct Order {
    #[serde(rename = "prepayId")]
    prepay_id: String,
    #[serde(rename = "merchantTradeNo")]
    trade_no: String,
    by: String,
    worked_sum: String,
}

/// The orders of one day and currency.
#[derive(Debug, Deserialize)]
pub struct InDay {
    /// `2026-10-31`.
    pub day: String,
    /// Which currency.
    pub currency: String,
    /// What they brought.
    pub old: Fees,
    /// What they would have brought.
    pub new: Fees,
}

/// Both parts of fees.
#[derive(Debug, Deserialize)]
pub struct Fees {
    /// In the currency of the orders.
    pub r_fee: String,
    /// In USDT.
    pub f_fee: String,
}

impl Report {
    /// Reads the report's JSON.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("the report cannot be read")
    }

    /// What the rule would be: `0.35 % + 1 USDT` where markups are percent.
    pub fn rule(&self) -> String {
        format!("r_markup {}, f_markup {} USDT", self.r_markup, self.f_markup)
    }

    /// When the orders were paid.
    fn time(&self) -> String {
        let from = self.from.as_ref().map(|from| format!("from {from} ")).unwrap_or_default();
        format!("{from}up to {}", self.to)
    }

    /// For people.
    pub fn in_words(&self) -> String {
        let mut out = format!(
            "{} tried on {} paid orders of {}, {}.\nNothing was changed.\n",
            self.rule(),
            self.orders,
            self.sub_merchant_id,
            self.time()
        );
        if self.orders == 0 {
            return out;
        }
        let _ = writeln!(out, "\n{}", self.sums());
        let _ = writeln!(out, "\n{}", self.turns());
        for of in &self.currencies {
            of.losses(&mut out);
        }
        for of in &self.currencies {
            of.movers(&mut out);
        }
        out
    }

    fn sums(&self) -> Table {
        let mut table = table(
            &["", "orders", "paid", "r_fee old", "new", "difference", "f_fee old (USDT)", "new", "difference"],
            1,
        );
        for of in &self.currencies {
            let (r, f) = (&of.r_fee, &of.f_fee);
            let cells = [
                &of.currency,
                &of.orders.to_string(),
                &of.amount,
                &r.old,
                &r.new,
                &r.difference,
                &f.old,
                &f.new,
                &f.difference,
            ];
            table.add_row(cells);
        }
        if self.currencies.len() > 1 {
            let (none, f) = (String::new(), &self.f_fee);
            let all = "all".to_owned();
            table.add_row([&all, &self.orders.to_string(), &none, &none, &none, &none, &f.old, &f.new, &f.difference]);
        }
        table
    }

    fn turns(&self) -> Table {
        let mut table =
            table(&["orders that bring", "more", "less", "the same", "more of one part, less of the other"], 1);
        for of in &self.currencies {
            let counts = [of.more, of.less, of.same, of.mixed].map(|count| count.to_string());
            table.add_row(std::iter::once(&of.currency).chain(&counts));
        }
        table
    }
}

impl InCurrency {
    fn losses(&self, out: &mut String) {
        let Losses { orders, before, not_comparable, worst } = &self.at_loss;
        let _ = writeln!(
            out,
            "\n{}: {orders} orders at a loss, whose fee takes the whole amount or more; {before} are so already.",
            self.currency
        );
        if *not_comparable > 0 {
            let _ = writeln!(
                out,
                "{}: of {not_comparable} orders nobody can say so without a rate, since f_fee is in USDT.",
                self.currency
            );
        }
        named(out, "takes beyond the amount", worst);
    }

    fn movers(&self, out: &mut String) {
        let Movers { r_up, r_down, f_up, f_down } = &self.movers;
        for (list, part, way) in [
            (r_up, "r_fee", "up"),
            (r_down, "r_fee", "down"),
            (f_up, "f_fee (USDT)", "up"),
            (f_down, "f_fee (USDT)", "down"),
        ] {
            if !list.is_empty() {
                let _ = writeln!(out, "\n{}, {part} most {way}:", self.currency);
                named(out, "by", list);
            }
        }
    }
}

fn named(out: &mut String, by: &str, orders: &[Order]) {
    if orders.is_empty() {
        return;
    }
    let mut table = table(&["prepayId", "merchantTradeNo", by, "new fee"], 2);
    if let Some(column) = table.column_mut(3) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for order in orders {
        table.add_row([&order.prepay_id, &order.trade_no, &order.by, &order.worked_sum]);
    }
    let _ = writeln!(out, "{table}");
}

/// A table whose columns from `first` on are figures.
fn table(header: &[&str], first: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
