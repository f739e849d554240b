//! What a fee rule that is not made yet would have brought. Nothing is written.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{ACCEPT, HeaderMap};
use countersign_domain::fees::{Fee, FeeRefused, MarkupUnit};
use countersign_domain::money::{Currency, Total};
use countersign_domain::rules::Markup;
use countersign_domain::time::rfc3339;
use countersign_domain::what_if::{Fees, InCurrency, Named, Tally, Top, WhatIf};
use countersign_protocol::code::Code;
use countersign_protocol::exact::{Exact, NumberRefused};
use rust_decimal::Decimal;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Reply, json};
use super::filters::{Filters, needed};
use super::problem::{Problem, ProblemDocument};
use super::streaming::{Pages, stream};
use crate::app::App;
use crate::app::error::AppError;
use crate::app::rules::within_unit;
use crate::app::what_if::{self, Question, Trying, begin};

/// What-ifs under way at once.
pub const WHAT_IFS_MAX: usize = 2;
/// Orders of a what-if that is answered whole. Whoever has more lets it be streamed.
pub const WHOLE_ORDERS_MAX: u64 = 1_000_000;
/// How an answer with its progress is asked for.
const LINES: &str = "application/x-ndjson";

/// A line of an answer that is streamed: how far it is, or, last, what it came to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WhatIfLine {
    /// Not at its end.
    Progress(WhatIfProgress),
    /// The last line.
    Report(Box<WhatIfReport>),
    /// The last line, where it comes to nothing: what to change.
    Refused(WhatIfRefusal),
}

/// Why a what-if comes to nothing.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfRefusal {
    /// Six digits, as in a problem document.
    code: &'static str,
    /// What to change.
    detail: String,
}

/// How far a what-if is.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfProgress {
    /// Orders that the rule was tried on.
    orders: u64,
    /// Thousandths of the time from the making of the first order to the end that it has walked over.
    per_mille: i64,
}

/// What paid orders brought, and what they would have brought. Amounts are texts.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfReport {
    /// Whose orders.
    sub_merchant_id: String,
    /// Percent (or a fraction), as it would be.
    r_markup: Exact,
    /// USDT, as it would be.
    f_markup: Exact,
    /// Orders that were paid at this instant or later, RFC 3339; null: all.
    from: Option<String>,
    /// And before this, RFC 3339.
    to: String,
    /// The zone of the days.
    time_zone: String,
    /// How many orders.
    orders: u64,
    /// Fixed parts of all orders, in USDT.
    f_fee: WhatIfChange,
    /// By currency.
    currencies: Vec<WhatIfCurrency>,
    /// By day and currency. Days without orders are not there.
    days: Vec<WhatIfDay>,
}

/// A sum as it was, as it would have been, and the difference.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfChange {
    /// As it was.
    old: String,
    /// As it would have been.
    new: String,
    /// How much more that is.
    difference: String,
}

/// The orders of one currency.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfCurrency {
    /// Which.
    currency: String,
    /// How many.
    orders: u64,
    /// What was paid.
    amount: String,
    /// In the currency.
    r_fee: WhatIfChange,
    /// In USDT.
    f_fee: WhatIfChange,
    /// Orders that would have brought more.
    more: u64,
    /// Orders that would have brought less.
    less: u64,
    /// Orders that would have brought the same.
    same: u64,
    /// Orders that would have brought more of one part and less of the other, in two currencies.
    mixed: u64,
    /// Orders whose fee would take the whole amount or more.
    at_loss: WhatIfLosses,
    /// The ten orders at the most whose `r_fee` goes up most, and so on.
    movers: WhatIfMovers,
}

/// Orders whose fee would take the whole amount or more. `f_fee` counts where the order is in USDT, too.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfLosses {
    /// How many.
    orders: u64,
    /// How many of all were so with the fee that they have.
    before: u64,
    /// Orders of another currency with an `f_fee`, whose `r_fee` alone does not take the amount: nobody can say without a rate.
    not_comparable: u64,
    /// The ten at the most that take most beyond the amount.
    worst: Vec<WhatIfOrder>,
}

/// The orders that move most, ten at the most of each kind.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfMovers {
    /// `r_fee` up.
    r_up: Vec<WhatIfOrder>,
    /// `r_fee` down.
    r_down: Vec<WhatIfOrder>,
    /// `f_fee` up.
    f_up: Vec<WhatIfOrder>,
    /// `f_fee` down.
    f_down: Vec<WhatIfOrder>,
}

/// An order that stands out.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfOrder {
    /// Its number.
    #[serde(rename = "prepayId")]
    prepay_id: String,
    /// The merchant's own.
    #[serde(rename = "merchantTradeNo")]
    trade_no: String,
    /// When it was paid, RFC 3339.
    paid_at: String,
    /// What was paid.
    #[serde(rename = "actualAmount")]
    actual_amount: String,
    /// By how much it stands out: the change of that part of the fee, or what the fee takes beyond the amount.
    by: String,
    /// What it brought.
    old: WhatIfFee,
    /// What it would have brought.
    new: WhatIfFee,
    /// That sum worked out.
    worked_sum: String,
}

/// Both parts of a fee.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfFee {
    /// In the order's currency.
    r_fee: String,
    /// In USDT.
    f_fee: String,
}

/// The orders of one day and currency.
#[derive(Debug, Serialize, ToSchema)]
struct WhatIfDay {
    /// `2026-10-31`.
    day: String,
    /// Which currency.
    currency: String,
    /// How many.
    orders: u64,
    /// What they brought.
    old: WhatIfFee,
    /// What they would have brought.
    new: WhatIfFee,
}

impl WhatIfChange {
    fn of(old: Total, new: Total) -> Self {
        Self { old: old.to_string(), new: new.to_string(), difference: (new - old).to_string() }
    }
}

impl From<Fees> for WhatIfFee {
    fn from(fees: Fees) -> Self {
        Self { r_fee: fees.r.to_string(), f_fee: fees.f.to_string() }
    }
}

impl From<Fee> for WhatIfFee {
    fn from(fee: Fee) -> Self {
        Self { r_fee: fee.r_fee.to_string(), f_fee: fee.f_fee.to_string() }
    }
}

impl WhatIfOrder {
    fn of(what_if: &WhatIf, currency: &Currency, by: String, order: &Named) -> Result<Self, FeeRefused> {
        Ok(Self {
            prepay_id: order.prepay_id.to_string(),
            trade_no: order.trade_no.clone(),
            paid_at: rfc3339(order.paid_at),
            actual_amount: order.amount.to_string(),
            by,
            old: order.old.into(),
            new: order.new.into(),
            worked_sum: what_if.worked_sum(order, currency)?,
        })
    }
}

impl WhatIfCurrency {
    fn of(what_if: &WhatIf, currency: &Currency, all: &InCurrency) -> Result<Self, FeeRefused> {
        let (Tally { orders, amount, old, new }, turns, losses) = (all.tally, all.turns, &all.losses);
        let list = |top: &Top, is_down: bool| -> Result<Vec<WhatIfOrder>, FeeRefused> {
            let by = |measure: Total| if is_down { Total::ZERO - measure } else { measure }.to_string();
            top.orders()
                .iter()
                .map(|(measure, order)| WhatIfOrder::of(what_if, currency, by(*measure), order))
                .collect()
        };
        let movers = &all.movers;
        Ok(Self {
            currency: currency.as_str().to_owned(),
            orders,
            amount: amount.to_string(),
            r_fee: WhatIfChange::of(old.r, new.r),
            f_fee: WhatIfChange::of(old.f, new.f),
            more: turns.more,
            less: turns.less,
            same: turns.same,
            mixed: turns.mixed,
            at_loss: WhatIfLosses {
                orders: losses.orders,
                before: losses.before,
                not_comparable: losses.not_comparable,
                worst: list(&losses.worst, false)?,
            },
            movers: WhatIfMovers {
                r_up: list(&movers.r_up, false)?,
                r_down: list(&movers.r_down, true)?,
                f_up: list(&movers.f_up, false)?,
                f_down: list(&movers.f_down, true)?,
            },
        })
    }
}

impl WhatIfReport {
    fn of(app: &App, question: &Question, trying: &Trying) -> Result<Self, AppError> {
        let what_if = trying.what_if();
        let (mut old, mut new) = (Total::ZERO, Total::ZERO);
        for all in what_if.currencies().values() {
            old += all.tally.old.f;
            new += all.tally.new.f;
        }
        let currencies = what_if.currencies().iter().map(|(coin, all)| WhatIfCurrency::of(what_if, coin, all));
        let days = what_if.days().iter().flat_map(|(day, of)| {
            of.iter().map(move |(currency, tally)| WhatIfDay {
                day: day.to_string(),
                currency: currency.as_str().to_owned(),
                orders: tally.orders,
                old: tally.old.into(),
                new: tally.new.into(),
            })
        });
        Ok(Self {
            sub_merchant_id: question.sub_merchant_id.clone(),
            r_markup: Exact(question.markup.r()),
            f_markup: Exact(question.markup.f().to_decimal()),
            from: question.from.map(rfc3339),
            to: rfc3339(trying.to()),
            time_zone: app.policy.rule_zone.name().to_owned(),
            orders: what_if.orders(),
            f_fee: WhatIfChange::of(old, new),
            currencies: currencies.collect::<Result<_, _>>().map_err(|refused| what_if::refused(&refused))?,
            days: days.collect(),
        })
    }
}

/// The markup that is asked for, within the limits of rules that are made.
fn markup(filters: &Filters, unit: MarkupUnit) -> Result<Markup, Problem> {
    let number = |name: &str| -> Result<Option<Decimal>, Problem> {
        let Some(text) = filters.text(name)? else { return Ok(None) };
        Exact::parse(&text).map(|number| Some(number.0)).map_err(|refused| match refused {
            NumberRefused::Form => Problem::field(name, "must be a number, such as 0.3"),
            refused => Problem::field(name, refused),
        })
    };
    let r = needed("r_markup", number("r_markup")?)?;
    let f = number("f_markup")?.unwrap_or_default();
    Markup::new(r, f).map_err(|refused| Problem::field(refused.field(), refused.must(unit)))
}

fn question(filters: &Filters, unit: MarkupUnit) -> Result<Question, Problem> {
    let sub = needed("sub_merchant_id", filters.id("sub_merchant_id")?)?;
    let (markup, (from, to)) = (markup(filters, unit)?, filters.span()?);
    Ok(Question { sub_merchant_id: sub, markup, from, to })
}

/// A what-if that says how far it is.
struct WhatIfInProgress {
    app: Arc<App>,
    question: Question,
    trying: Trying,
}

impl WhatIfInProgress {
    async fn line(&mut self) -> Result<WhatIfLine, AppError> {
        if !self.trying.go_on(&self.app).await? {
            return Ok(WhatIfLine::Report(Box::new(WhatIfReport::of(&self.app, &self.question, &self.trying)?)));
        }
        let (orders, per_mille) = (self.trying.what_if().orders(), self.trying.per_mille());
        Ok(WhatIfLine::Progress(WhatIfProgress { orders, per_mille }))
    }
}

impl Pages for WhatIfInProgress {
    async fn next(mut self) -> Result<(Bytes, Option<Self>), AppError> {
        let line = match self.line().await {
            // The head is out: the refusal is a line.
            Err(AppError::InvalidParameter(detail)) => {
                WhatIfLine::Refused(WhatIfRefusal { code: Code::InvalidParameter.code(), detail })
            }
            other => other?,
        };
        let is_over = !matches!(line, WhatIfLine::Progress(_));
        let mut text = serde_json::to_string(&line).expect("texts, numbers and lists of them");
        text.push('\n');
        Ok((Bytes::from(text), (!is_over).then_some(self)))
    }
}

async fn whole(app: &App, question: &Question, mut trying: Trying) -> Reply {
    while trying.go_on(app).await? {
        if trying.what_if().orders() > WHOLE_ORDERS_MAX {
            let why = format!(
                "these are more than {WHOLE_ORDERS_MAX} orders: ask for a shorter time by from and to, or with Accept: {LINES}"
            );
            return Err(Problem::field("to", why));
        }
        tokio::task::yield_now().await;
    }
    Ok(json(&WhatIfReport::of(app, question, &trying)?))
}

fn wants_lines(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_lines = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(LINES));
        is_lines && !parts.any(is_none_of)
    })
}

/// Whether a parameter of `Accept` is the weight of what is not wanted at all: `q=0`, with zeros behind a point or without (RFC 9110, 12.4.2).
fn is_none_of(parameter: &str) -> bool {
    let weight = parameter.split_once('=').filter(|(name, _)| name.trim_end().eq_ignore_ascii_case("q"));
    let weight = weight.map_or("", |(_, weight)| weight.trim_start());
    weight.starts_with('0') && weight.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}

/// Tries a fee rule that is not made yet on the paid orders of a sub-account. What they brought, beside what they would have brought. Nothing is written.
/// Whoever accepts `application/x-ndjson` gets lines, of which those that say how far it is come first; all others get the report.
#[utoipa::path(get, path = "/operator/v1/fee-rules/what-if", tag = "Fee rules", operation_id = "try_fee_rule",
    params(("sub_merchant_id" = String, Query, description = "Whose orders"),
        ("r_markup" = String, Query, description = "Percent (or a fraction), as in a rule: 0 to 100, at most 8 decimals"),
        ("f_markup" = Option<String>, Query, description = "USDT, as in a rule: 0 to 5,000,000, at most 6 decimals; 0 where absent"),
        ("from" = Option<String>, Query, description = "Only orders that were paid at this instant or later, RFC 3339"),
        ("to" = Option<String>, Query, description = "Only orders that were paid before this instant, RFC 3339; absent or still to come: up to now")),
    responses((status = 200, content((WhatIfReport = "application/json"), (WhatIfLine = "application/x-ndjson"))),
        (status = 404, body = ProblemDocument)))]
pub async fn show(
    State(desk): State<Arc<Desk>>,
    caller: Extension<Caller>,
    headers: HeaderMap,
    filters: Filters,
) -> Reply {
    let question = question(&filters, desk.app.policy.markup_unit)?;
    within_unit(&desk.app, "r_markup", question.markup.r())?;
    let place = desk.what_ifs.take(&caller.actor.name)?;
    let (app, trying) = (desk.app.clone(), begin(&desk.app, &question).await?);
    if !wants_lines(&headers) {
        let answer = whole(&app, &question, trying).await;
        drop(place);
        return answer;
    }
    Ok(stream(app.clone(), place, LINES, WhatIfInProgress { app, question, trying }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_who_accepts_them_and_a_weight_of_nothing_is_no_acceptance() {
        let wants = |accept: &str| {
            let value = accept.parse().expect("a header's value");
            wants_lines(&HeaderMap::from_iter([(ACCEPT, value)]))
        };
        for accept in [
            LINES,
            "application/json, application/x-ndjson",
            "Application/X-NDJSON ; q=0.001",
            "application/x-ndjson;v=0",
        ] {
            assert!(wants(accept), "{accept}");
        }
        for refused in ["q=0", "Q=0", " q = 0.000", "v=1;q=0.", "q=0.0"] {
            assert!(!wants(&format!("{LINES};{refused}")), "{refused}");
            assert!(wants(&format!("application/json;{refused}, {LINES}")), "{refused}");
        }
        assert!(!wants("*/*") && !wants("application/json"));
    }
}
