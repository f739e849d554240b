//! Statements: a month's paid orders of a merchant, a sub-account or a whole institution, walked over page by page, with their sums.
//!
//! Sums are made of the very orders that are given out, so they always agree; what is kept meanwhile grows with the sub-accounts and
//! currencies that have orders in the month, never with the orders.

use std::collections::BTreeMap;

use countersign_domain::money::{Amount, Currency, Total};
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::{MONTH_MAX, MONTH_MIN, Month, UnixMillis};
use countersign_protocol::sentence::of_field;
use countersign_store::contract::{Cursor, MerchantKind};
use countersign_store::paid_order::{PaidOrder, PaidOrders as _, PaidSpan, Payee};

use super::App;
use super::error::AppError;
use super::identity::find_merchant;

/// Orders of a page: what is read, held and written at a time.
pub const PAGE: u32 = 500;
/// How long after its last instant a month is waited for, in ms: an order is paid at an instant, and is stored within half of that, or not at all.
pub const SETTLE_MS: i64 = 60_000;

/// Sums of some orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many.
    pub orders: u64,
    /// What was asked for, in the orders' currency.
    pub amount: Total,
    /// What was paid.
    pub actual_amount: Total,
    /// The part of the fees that grows with the amount, in the same currency.
    pub r_fee: Total,
    /// The fixed part, in USDT.
    pub f_fee: Total,
}

impl Sums {
    fn add(&mut self, order: &PaidOrder) {
        let fee = order.fee.as_ref().map(|fee| fee.fee);
        self.orders += 1;
        self.amount += order.amount;
        self.actual_amount += order.actual_amount;
        self.r_fee += fee.map_or(Amount::ZERO, |fee| fee.r_fee);
        self.f_fee += fee.map_or(Amount::ZERO, |fee| fee.f_fee);
    }

    fn join(&mut self, other: &Self) {
        self.orders += other.orders;
        self.amount += other.amount;
        self.actual_amount += other.actual_amount;
        self.r_fee += other.r_fee;
        self.f_fee += other.f_fee;
    }
}

/// What a statement is about.
#[derive(Clone, Debug)]
pub struct About {
    /// Whose.
    pub merchant_id: String,
    /// Of which month, in the deployment's zone.
    pub month: Month,
    /// The zone's name.
    pub zone: String,
    /// When the month begins.
    pub from: UnixMillis,
    /// Up to when orders are in it, exclusive: the month's end, or now.
    pub until: UnixMillis,
    /// Whether nothing can be added to the month any more.
    pub is_complete: bool,
}

/// A statement, as far as it is.
#[derive(Debug)]
pub struct Statement {
    about: About,
    of: Payee,
    after: Option<PrepayId>,
    /// Read ahead, so that what keeps a statement from being made is known before it begins.
    first: Option<Vec<PaidOrder>>,
    accounts: BTreeMap<(String, Currency), Sums>,
}

/// The month of a question.
fn month(text: &str) -> Result<Month, AppError> {
    let why = format_args!("must be a month from {MONTH_MIN} to {MONTH_MAX}, such as 2026-10");
    Month::parse(text).ok_or_else(|| AppError::InvalidParameter(of_field("month", why)))
}

/// Begins a statement. Who is not there and a month that is not a month, or has not begun, are refused here.
pub async fn begin(app: &App, merchant_id: &str, text: &str) -> Result<Statement, AppError> {
    let (month, zone, now) = (month(text)?, &app.policy.rule_zone, app.clock.now());
    let (from, to) = zone.month(month);
    if from > now {
        let why = format_args!("{month} has not begun, in the zone {} of this deployment", zone.name());
        return Err(AppError::InvalidParameter(of_field("month", why)));
    }
    let owner = find_merchant(app, merchant_id).await?;
    let of = match owner.kind {
        MerchantKind::Institution => Payee::Tenant(owner.tenant),
        MerchantKind::Merchant | MerchantKind::SubAccount => Payee::Merchant(owner.tenant, owner.no),
    };
    // A commit that nobody has answered, as where a synchronous standby is away, was decided long ago and may be seen later.
    let is_complete = now >= to.plus_ms(SETTLE_MS) && app.store.paid_orders_settle().await?;
    let about = About {
        merchant_id: owner.merchant_id,
        month,
        zone: zone.name().to_owned(),
        from,
        until: to.min(now),
        is_complete,
    };
    let mut statement = Statement { about, of, after: None, first: None, accounts: BTreeMap::new() };
    statement.first = Some(statement.page(app).await?);
    Ok(statement)
}

impl Statement {
    /// What it is about.
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// The next orders, in the order of their numbers; none: that was all.
    pub async fn next(&mut self, app: &App) -> Result<Vec<PaidOrder>, AppError> {
        let page = match self.first.take() {
            Some(first) => first,
            None => self.page(app).await?,
        };
        for order in &page {
            self.accounts.entry((order.merchant_id.clone(), order.currency.clone())).or_default().add(order);
        }
        Ok(page)
    }

    async fn page(&mut self, app: &App) -> Result<Vec<PaidOrder>, AppError> {
        let span = PaidSpan { of: self.of, from: self.about.from, to: self.about.until };
        let page = app.store.paid_orders(span, Cursor { after: self.after, limit: PAGE }).await?;
        self.after = page.last().map(|last| last.prepay_id).or(self.after);
        Ok(page)
    }

    /// Sums so far by sub-account and currency.
    pub const fn accounts(&self) -> &BTreeMap<(String, Currency), Sums> {
        &self.accounts
    }

    /// Sums so far by currency.
    pub fn currencies(&self) -> BTreeMap<&Currency, Sums> {
        let mut all: BTreeMap<&Currency, Sums> = BTreeMap::new();
        for ((_, currency), sums) in &self.accounts {
            all.entry(currency).or_default().join(sums);
        }
        all
    }
}
