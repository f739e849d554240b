//! A month's orders and fees, streamed: CSV for spreadsheets, JSON lines for programs.
//!
//! The last record says that it is the last, what the sums are and whether the month is over. What has none broke off.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, HeaderValue};
use countersign_domain::ids::config_id;
use countersign_domain::money::{Currency, FIXED_FEE_COIN, Total};
use countersign_domain::time::rfc3339;
use countersign_protocol::exact::Exact;
use countersign_store::paid_order::PaidOrder;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::Reply;
use super::filters::{Filters, needed};
use super::problem::{Problem, ProblemDocument};
use super::streaming::{Pages, stream};
use crate::app::App;
use crate::app::error::AppError;
use crate::app::statements::{self, About, Account, Statement, Sums};

/// Statements under way at once.
pub const STATEMENTS_MAX: usize = 4;
/// Sub-accounts whose sums are written at a time.
const ACCOUNTS_MAX: usize = 500;

/// How a statement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Jsonl,
}

impl Format {
    fn of(text: Option<&str>) -> Result<Self, Problem> {
        match text {
            None | Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::Jsonl),
            Some(_) => Err(Problem::field("format", "must be csv or jsonl")),
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Jsonl => "application/x-ndjson",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }
}

/// A line of a statement in JSON: an order, the sums of a sub-account in a currency, or, last, the sums of all.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StatementLine<'a> {
    /// An order, in the order of `prepayId`.
    Order(StatementOrder<'a>),
    /// Sums of a sub-account in one currency.
    Account(StatementSums<'a>),
    /// The last line.
    Totals(StatementTotals<'a>),
}

/// A paid order with its fee. Amounts are texts.
#[derive(Debug, Serialize, ToSchema)]
struct StatementOrder<'a> {
    /// Its number.
    #[serde(rename = "prepayId")]
    prepay_id: String,
    /// The merchant's own.
    #[serde(rename = "merchantTradeNo")]
    trade_no: &'a str,
    /// Whose.
    merchant_id: &'a str,
    /// When it became `PAID`, RFC 3339.
    paid_at: String,
    /// What it was paid in.
    currency: &'a str,
    /// What was asked for.
    amount: String,
    /// What was paid.
    #[serde(rename = "actualAmount")]
    actual_amount: String,
    /// In its currency; null for merchants without fee rules, as all that follows.
    r_fee: Option<String>,
    /// In USDT.
    f_fee: Option<String>,
    /// `USDT`.
    f_fee_currency: Option<&'static str>,
    /// The version in force then; null where there was none.
    config_id: Option<String>,
    /// Its number.
    version_no: Option<i64>,
    /// What it added.
    r_markup: Option<Exact>,
    /// USDT.
    f_markup: Option<Exact>,
    /// The sum worked out.
    worked_sum: Option<&'a str>,
}

/// Sums of orders in one currency. Amounts are texts.
#[derive(Debug, Serialize, ToSchema)]
struct StatementSums<'a> {
    /// Whose; not there in the sums of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    merchant_id: Option<&'a str>,
    /// In which currency.
    currency: &'a str,
    /// How many orders.
    orders: u64,
    /// What was asked for.
    amount: String,
    /// What was paid.
    #[serde(rename = "actualAmount")]
    actual_amount: String,
    /// In the currency.
    r_fee: String,
    /// In USDT.
    f_fee: String,
}

/// The end of a statement.
#[derive(Debug, Serialize, ToSchema)]
struct StatementTotals<'a> {
    /// Whose.
    merchant_id: &'a str,
    /// `2026-10`.
    month: String,
    /// The zone whose month it is.
    time_zone: &'a str,
    /// When it begins, RFC 3339.
    from: String,
    /// Orders that were paid before this are in it, RFC 3339.
    until: String,
    /// Whether the month is over, so that nothing can be added any more.
    complete: bool,
    /// How many orders.
    orders: u64,
    /// Fixed parts of all fees, in USDT.
    f_fee: String,
    /// By currency.
    currencies: Vec<StatementSums<'a>>,
}

impl<'a> StatementOrder<'a> {
    fn of(order: &'a PaidOrder) -> Self {
        let fee = order.fee.as_ref();
        Self {
            prepay_id: order.prepay_id.to_string(),
            trade_no: &order.trade_no,
            merchant_id: &order.merchant_id,
            paid_at: rfc3339(order.paid_at),
            currency: order.currency.as_str(),
            amount: order.amount.to_string(),
            actual_amount: order.actual_amount.to_string(),
            r_fee: fee.map(|fee| fee.fee.r_fee.to_string()),
            f_fee: fee.map(|fee| fee.fee.f_fee.to_string()),
            f_fee_currency: fee.map(|_| FIXED_FEE_COIN),
            config_id: fee.and_then(|fee| fee.config_id).map(config_id),
            version_no: fee.and_then(|fee| fee.version_no),
            r_markup: fee.map(|fee| Exact(fee.markup.r())),
            f_markup: fee.map(|fee| Exact(fee.markup.f().to_decimal())),
            worked_sum: fee.map(|fee| fee.worked_sum.as_str()),
        }
    }
}

impl<'a> StatementSums<'a> {
    fn of(merchant_id: Option<&'a str>, currency: &'a Currency, sums: &Sums) -> Self {
        Self {
            merchant_id,
            currency: currency.as_str(),
            orders: sums.orders,
            amount: sums.amount.to_string(),
            actual_amount: sums.actual_amount.to_string(),
            r_fee: sums.r_fee.to_string(),
            f_fee: sums.f_fee.to_string(),
        }
    }
}

impl<'a> StatementTotals<'a> {
    fn of(statement: &'a Statement) -> Self {
        let (About { merchant_id, month, zone, from, until, is_complete }, all) =
            (statement.about(), statement.currencies());
        let (mut orders, mut f_fee) = (0, Total::ZERO);
        for sums in all.values() {
            orders += sums.orders;
            f_fee += sums.f_fee;
        }
        Self {
            merchant_id,
            month: month.to_string(),
            time_zone: zone,
            from: rfc3339(*from),
            until: rfc3339(*until),
            complete: *is_complete,
            orders,
            f_fee: f_fee.to_string(),
            currencies: all.iter().map(|(currency, sums)| StatementSums::of(None, currency, sums)).collect(),
        }
    }
}

/// The names of the columns. What a record is of stands first.
const COLUMNS: [&str; 17] = [
    "record",
    "prepayId",
    "merchantTradeNo",
    "merchant_id",
    "paid_at",
    "currency",
    "amount",
    "actualAmount",
    "r_fee",
    "f_fee",
    "f_fee_currency",
    "config_id",
    "version_no",
    "r_markup",
    "f_markup",
    "worked_sum",
    "orders",
];

/// One record: quoted where it must be (RFC 4180). A text that a spreadsheet would take for a formula gets `'` before it.
fn record(out: &mut String, fields: &[&str; COLUMNS.len()]) {
    for (at, field) in fields.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { "," });
        let guard = if field.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
        if field.contains(['"', ',', '\r', '\n']) {
            let _ = write!(out, "\"{guard}{}\"", field.replace('"', "\"\""));
        } else {
            let _ = write!(out, "{guard}{field}");
        }
    }
    out.push_str("\r\n");
}

impl StatementLine<'_> {
    fn json(&self, out: &mut String) {
        out.push_str(&serde_json::to_string(self).expect("texts, numbers and lists of them"));
        out.push('\n');
    }

    fn csv(&self, out: &mut String) {
        let text = |number: Option<Exact>| number.map(|number| number.0.to_string()).unwrap_or_default();
        match self {
            Self::Order(order) => {
                let version_no = order.version_no.map(|no| no.to_string()).unwrap_or_default();
                let (r_markup, f_markup) = (text(order.r_markup), text(order.f_markup));
                record(
                    out,
                    &[
                        "order",
                        &order.prepay_id,
                        order.trade_no,
                        order.merchant_id,
                        &order.paid_at,
                        order.currency,
                        &order.amount,
                        &order.actual_amount,
                        order.r_fee.as_deref().unwrap_or_default(),
                        order.f_fee.as_deref().unwrap_or_default(),
                        order.f_fee_currency.unwrap_or_default(),
                        order.config_id.as_deref().unwrap_or_default(),
                        &version_no,
                        &r_markup,
                        &f_markup,
                        order.worked_sum.unwrap_or_default(),
                        "1",
                    ],
                );
            }
            Self::Account(sums) => sums.csv("account", out),
            Self::Totals(totals) => {
                for sums in &totals.currencies {
                    sums.csv("currency", out);
                }
                let mut fields = [""; COLUMNS.len()];
                let orders = totals.orders.to_string();
                fields[0] = if totals.complete { "complete" } else { "incomplete" };
                (fields[3], fields[4]) = (totals.merchant_id, &totals.until);
                (fields[9], fields[10], fields[16]) = (&totals.f_fee, FIXED_FEE_COIN, &orders);
                record(out, &fields);
            }
        }
    }
}

impl StatementSums<'_> {
    fn csv(&self, what: &str, out: &mut String) {
        let mut fields = [""; COLUMNS.len()];
        let orders = self.orders.to_string();
        (fields[0], fields[3], fields[5]) = (what, self.merchant_id.unwrap_or_default(), self.currency);
        (fields[6], fields[7], fields[8]) = (&self.amount, &self.actual_amount, &self.r_fee);
        (fields[9], fields[10], fields[16]) = (&self.f_fee, FIXED_FEE_COIN, &orders);
        record(out, &fields);
    }
}

/// A statement on its way out.
struct Sheet {
    app: Arc<App>,
    statement: Statement,
    format: Format,
    part: Part,
}

/// What is written next.
enum Part {
    /// What stands above all.
    Begin,
    Orders,
    /// Sums of sub-accounts, behind this one.
    Accounts(Option<Account>),
}

impl Sheet {
    fn line(&self, line: &StatementLine<'_>, out: &mut String) {
        match self.format {
            Format::Csv => line.csv(out),
            Format::Jsonl => line.json(out),
        }
    }
}

impl Pages for Sheet {
    async fn next(mut self) -> Result<(Bytes, Option<Self>), AppError> {
        let mut out = String::new();
        if matches!(self.part, Part::Begin) && self.format == Format::Csv {
            record(&mut out, &COLUMNS);
        }
        if matches!(self.part, Part::Begin | Part::Orders) {
            self.part = Part::Orders;
            let page = self.statement.next(&self.app).await?;
            for order in &page {
                self.line(&StatementLine::Order(StatementOrder::of(order)), &mut out);
            }
            if !page.is_empty() {
                return Ok((Bytes::from(out), Some(self)));
            }
        }
        let after = match &self.part {
            Part::Accounts(after) => after.as_ref(),
            Part::Begin | Part::Orders => None,
        };
        let page: Vec<_> = self.statement.accounts(after).take(ACCOUNTS_MAX).collect();
        for ((merchant_id, currency), sums) in &page {
            self.line(&StatementLine::Account(StatementSums::of(Some(merchant_id), currency, sums)), &mut out);
        }
        if let Some((last, _)) = page.last() {
            let last = (*last).clone();
            return Ok((Bytes::from(out), Some(Self { part: Part::Accounts(Some(last)), ..self })));
        }
        self.line(&StatementLine::Totals(StatementTotals::of(&self.statement)), &mut out);
        Ok((Bytes::from(out), None))
    }
}

/// A month's paid orders, with their fees and the sums. Those of a merchant, a sub-account, or an institution with all its sub-accounts, in the order of their `prepayId`. It is streamed: an answer without its last record (`totals`; in CSV `complete` or `incomplete`) broke off.
#[utoipa::path(get, path = "/operator/v1/statements", tag = "Payment orders", operation_id = "get_statement",
    params(("merchant_id" = String, Query, description = "Whose: an institution's has all its sub-accounts in it"),
        ("month" = String, Query, description = "Which month: `yyyy-MM`, in the zone of the rules. One that is not over is given up to now"),
        ("format" = Option<String>, Query, description = "`csv` (the default) or `jsonl`")),
    responses((status = 200, content((String = "text/csv"), (StatementLine = "application/x-ndjson"))),
        (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, caller: Extension<Caller>, filters: Filters) -> Reply {
    let merchant_id = needed("merchant_id", filters.id("merchant_id")?)?;
    let month = needed("month", filters.text("month")?)?;
    let format = Format::of(filters.text("format")?.as_deref())?;
    let place = desk.statements.take(&caller.actor.name)?;
    let app = desk.app.clone();
    let statement = statements::begin(&app, &merchant_id, &month).await?;
    let name = format!("attachment; filename=\"statement-{merchant_id}-{month}.{}\"", format.extension());
    let sheet = Sheet { app: app.clone(), statement, format, part: Part::Begin };
    let mut response = stream(app, place, format.kind(), sheet);
    // Ids and months are letters, digits, `_` and `-`.
    response.headers_mut().extend(HeaderValue::from_str(&name).ok().map(|name| (CONTENT_DISPOSITION, name)));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{Deployment, application};
    use countersign_domain::time::Month;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sums_of_many_sub_accounts_are_made_a_page_at_a_time_each_of_them_once() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        application(&app, "till", None).await;
        let (from, _) = app.policy.rule_zone.month(Month::parse("2031-01").expect("a month"));
        app.clock.advance_ms(from.0 - app.clock.now().0);
        let mut statement = statements::begin(&app, "till", "2031-01").await.expect("begins");
        statement.pretend_accounts(1_001);
        let mut sheet = Some(Sheet { app: app.clone(), statement, format: Format::Csv, part: Part::Begin });
        let mut pages = Vec::new();
        while let Some(rest) = sheet {
            let (page, more) = rest.next().await.expect("is made");
            pages.push(String::from_utf8(page.to_vec()).expect("a text"));
            sheet = more;
        }
        let accounts = |page: &String| page.lines().filter(|line| line.starts_with("account,")).count();
        assert_eq!(pages.iter().map(accounts).collect::<Vec<_>>(), [500, 500, 1, 0]);
        let all = pages.concat();
        for number in 0..1_001 {
            assert_eq!(all.matches(&format!("sub-{number:05},")).count(), 1, "{number}");
        }
        assert!(all.trim_end().lines().next_back().expect("has lines").starts_with("incomplete,"));
        Deployment::close(&app);
    }

    #[test]
    fn a_text_that_a_spreadsheet_would_run_is_made_harmless_and_quotes_are_doubled() {
        let mut out = String::new();
        let mut fields = [""; COLUMNS.len()];
        fields[..8].copy_from_slice(&["order", "=1+1", "-5", "+a", "@b", "a,b", "say \"so\"", "=a,\"b\""]);
        record(&mut out, &fields);
        assert_eq!(out, "order,'=1+1,'-5,'+a,'@b,\"a,b\",\"say \"\"so\"\"\",\"'=a,\"\"b\"\"\",,,,,,,,,\r\n");
    }
}
