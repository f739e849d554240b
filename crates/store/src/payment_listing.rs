//! How lists of payment orders are asked for: the words behind `SELECT ... FROM payment_order p WHERE true`, in both dialects.

use countersign_domain::ids::time_ordered;
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;

use crate::payment_order::{PaymentOrderFilter, PaymentOrderPage, PaymentOrderRow};

/// Numbers are drawn before the time of making is noted, and go on for a while where a clock is set back: so far a number may lie from its
/// order's time, in ms.
const NUMBER_SLACK_MS: i64 = 10_000;
/// The order of one merchant's orders, of which a walk begins and ends by the number. On PostgreSQL the tenant is one of a list, which is no constant,
/// and the range is one of the merchant's index: else a plan may take the order of the numbers of all for as good.
const OF_MERCHANT: [&str; 2] =
    ["p.merchant_no DESC, p.order_no DESC", "p.tenant_no DESC, p.merchant_no DESC, p.order_no DESC"];
const IN_TENANT: [&str; 2] = ["p.tenant_no = #", "p.tenant_no = ANY(ARRAY[#])"];
const BY_MERCHANT: [&str; 2] =
    ["p.merchant_no = #", "p.merchant_no = # AND (p.merchant_no, p.order_no) <= (#, 9223372036854775807)"];
/// The lower end. PostgreSQL takes a range of two ends for so small that any index will do, but not one with an end that is a pair's.
const LEAST: [&str; 2] = ["p.order_no >= #", "(p.order_no, p.tail) >= (#, 0)"];
/// What begins a parameter of PostgreSQL.
const POSTGRES: char = '$';

/// What a list is asked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
}

/// The two statements of a page behind `SELECT ... FROM payment_order p WHERE true`: where the look ends, and what is found before that.
/// What is not asked for is not in them, so that the plan fits.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// Conditions that an index leads to, each with its value: what is within them is what is looked at.
    led: Vec<(&'static str, Value)>,
    /// Of what was made just outside of the time that is asked for, and has a number within.
    made: Vec<(&'static str, Value)>,
    /// The others.
    meant: Vec<(String, Option<Value>)>,
    /// One order of its own for each index, which no other index has.
    order: &'static str,
    sign: char,
}

/// A statement's end and its values, in order.
pub(crate) type StatementEnd = (String, Vec<Value>);

impl Listing {
    /// `sign` begins a parameter: `?` or `$`.
    pub(crate) fn new(filter: &PaymentOrderFilter, now: UnixMillis, after: Option<PrepayId>, sign: char) -> Self {
        let mut led = Vec::new();
        let before = after.unwrap_or_else(|| PrepayId::new(i64::MAX, 0));
        let (least, most) = numbers(filter);
        let dialect = usize::from(sign == POSTGRES);
        let order = if let Some(trade_no) = &filter.trade_no {
            led.push(("p.trade_no = #", Value::Text(trade_no.clone())));
            // Few have it, and an index by number must not look for them.
            "p.order_no + 0 DESC, p.tail DESC"
        } else if filter.of.is_some() {
            OF_MERCHANT[dialect]
        } else {
            "p.order_no DESC, p.tail DESC"
        };
        let top = before.number().min(most.unwrap_or(i64::MAX));
        if let Some((tenant, merchant)) = filter.of {
            led.push((IN_TENANT[dialect], Value::Int(tenant.0)));
            led.push((BY_MERCHANT[dialect], Value::Int(merchant.0)));
        }
        led.push(("p.order_no <= #", Value::Int(top)));
        led.extend(least.map(|least| (LEAST[dialect], Value::Int(least))));
        if after.is_some() {
            led.push(("(p.order_no, p.tail) < (#", Value::Int(before.number())));
            led.push((", #)", Value::Int(before.tail())));
        }
        let from = filter.from.map(|from| ("p.created_at >= #", Value::Int(from.0)));
        let to = filter.to.map(|to| ("p.created_at < #", Value::Int(to.0)));
        Self { led, made: from.into_iter().chain(to).collect(), meant: meant(filter, now), order, sign }
    }

    /// The first order that is not looked at; none: all are.
    pub(crate) fn edge(&self, looked_max: u32) -> Option<StatementEnd> {
        if self.meant.is_empty() {
            return None;
        }
        let mut asked = self.led();
        self.close(&mut asked, " LIMIT 1 OFFSET #", i64::from(looked_max));
        Some(asked)
    }

    /// What is meant of what is looked at.
    pub(crate) fn rows(&self, edge: Option<PrepayId>, limit: u32) -> StatementEnd {
        let mut asked = self.led();
        for (condition, value) in &self.made {
            self.also(&mut asked, " AND ", condition, Some(value.clone()));
        }
        for (condition, value) in &self.meant {
            self.also(&mut asked, " AND ", condition, value.clone());
        }
        if let Some(edge) = edge {
            // Where the walk ends: the pair behind it is looked at row by row.
            self.also(&mut asked, " AND ", LEAST[usize::from(self.sign == POSTGRES)], Some(Value::Int(edge.number())));
            self.also(&mut asked, " AND ", "(p.order_no, p.tail) > (#", Some(Value::Int(edge.number())));
            self.also(&mut asked, "", ", #)", Some(Value::Int(edge.tail())));
        }
        self.close(&mut asked, " LIMIT #", i64::from(limit) + 1);
        asked
    }

    /// The index that SQLite walks along for the orders of one merchant. By itself it may take the order of the numbers of all for as good.
    pub(crate) fn walks(&self) -> &'static str {
        if self.order == OF_MERCHANT[0] { " INDEXED BY payment_order_by_merchant" } else { "" }
    }

    fn led(&self) -> StatementEnd {
        let mut asked = (String::new(), Vec::new());
        for (condition, value) in &self.led {
            let and = if condition.starts_with(',') { "" } else { " AND " };
            self.also(&mut asked, and, condition, Some(value.clone()));
        }
        asked
    }

    fn close(&self, asked: &mut StatementEnd, end: &str, value: i64) {
        asked.0.push_str(" ORDER BY ");
        asked.0.push_str(self.order);
        self.also(asked, "", end, Some(Value::Int(value)));
    }

    /// Adds a condition; `#` stands for its value.
    fn also(&self, (sql, values): &mut StatementEnd, and: &str, condition: &str, value: Option<Value>) {
        values.extend(value);
        sql.push_str(and);
        sql.push_str(&condition.replace('#', &format!("{}{}", self.sign, values.len())));
    }
}

/// The least and the greatest number of what may have been made in the time that is asked for.
pub(crate) fn numbers(filter: &PaymentOrderFilter) -> (Option<i64>, Option<i64>) {
    let slack = |at: UnixMillis, ms| time_ordered(at.plus_ms(ms), 0);
    (filter.from.map(|from| slack(from, -NUMBER_SLACK_MS)), filter.to.map(|to| slack(to, NUMBER_SLACK_MS)))
}

fn meant(filter: &PaymentOrderFilter, now: UnixMillis) -> Vec<(String, Option<Value>)> {
    let mut all = Vec::new();
    match filter.status {
        None => {}
        Some(PaymentStatus::Pending) => {
            // `|| ''`: else a plan may gather all that are pending by the index of their ends, and sort them.
            all.push(("p.status || '' = 'PENDING' AND p.expire_at > #".to_owned(), Some(Value::Int(now.0))));
        }
        Some(PaymentStatus::Expired) => {
            let condition = "(p.status = 'EXPIRED' OR p.status = 'PENDING' AND p.expire_at <= #)";
            all.push((condition.to_owned(), Some(Value::Int(now.0))));
        }
        Some(other @ (PaymentStatus::Process | PaymentStatus::Paid | PaymentStatus::Closed)) => {
            all.push((format!("p.status = '{}'", other.name()), None));
        }
    }
    let amount = |amount: Amount| Some(Value::Int(amount.micros()));
    all.extend(filter.amount_from.map(|least| ("p.amount >= #".to_owned(), amount(least))));
    all.extend(filter.amount_to.map(|most| ("p.amount <= #".to_owned(), amount(most))));
    all
}

/// The page of what the two statements found: one more than `limit` was asked for.
pub(crate) fn page(mut orders: Vec<(String, PaymentOrderRow)>, limit: u32, edge: Option<PrepayId>) -> PaymentOrderPage {
    let limit = limit as usize;
    let has_more = orders.len() > limit;
    orders.truncate(limit);
    let last = orders.last().map(|(_, last)| last.order.prepay_id);
    PaymentOrderPage { orders, next: if has_more { last } else { edge.map(PrepayId::next) } }
}
