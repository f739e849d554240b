//! Statements: a month's paid orders of a merchant, a sub-account or a whole institution, walked over page by page, with their sums.
//!
//! Sums are made of the very orders that are given out, so they always agree; what is kept meanwhile grows with the sub-accounts and
//! currencies that have orders in the month, never with the orders.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Instant;

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
/// A month that ended so long ago, in ms, is over by whatever the clock shows: also right after a start, when nobody knows yet how long the clock
/// has stood so. One that is ahead by a day has spoilt more than a statement (`RUNBOOK.md`, "A clock that was ahead").
const LONG_OVER_MS: i64 = 86_400_000;

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

/// A sub-account, or a merchant, and a currency of its orders.
pub type Account = (String, Currency);

/// A statement, as far as it is.
#[derive(Debug)]
pub struct Statement {
    about: About,
    of: Payee,
    after: Option<PrepayId>,
    /// Read ahead, so that what keeps a statement from being made is known before it begins.
    first: Option<Vec<PaidOrder>>,
    accounts: BTreeMap<Account, Sums>,
}

/// The month of a question.
fn month(text: &str) -> Result<Month, AppError> {
    let why = format_args!("must be a month from {MONTH_MIN} to {MONTH_MAX}, such as 2026-10");
    Month::parse(text).ok_or_else(|| AppError::InvalidParameter(of_field("month", why)))
}

/// Whether nothing is paid any more in a month that ends at `to`: by a clock that has stood right for some minutes, since one that is ahead goes back
/// into the month; or by far.
fn is_over(to: UnixMillis, now: UnixMillis, settled: Option<UnixMillis>) -> bool {
    settled.is_some_and(|settled| settled >= to.plus_ms(SETTLE_MS)) || now >= to.plus_ms(LONG_OVER_MS)
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
    let settled = app.settled.look(Instant::now(), now);
    // A commit that nobody has answered, as where a synchronous standby is away, was decided long ago and may be seen later.
    let is_complete = is_over(to, now, settled) && app.store.paid_orders_settle().await?;
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

    /// Sums so far by sub-account and currency, behind one of them.
    pub fn accounts(&self, after: Option<&Account>) -> impl Iterator<Item = (&Account, &Sums)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.accounts.range::<Account, _>((begin, Bound::Unbounded))
    }

    /// As if so many sub-accounts had orders.
    #[cfg(test)]
    pub fn pretend_accounts(&mut self, count: usize) {
        let currency = Currency::parse("USD").expect("a currency");
        let account = |number| ((format!("sub-{number:05}"), currency.clone()), Sums { orders: 1, ..Sums::default() });
        self.accounts = (0..count).map(account).collect();
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

#[cfg(test)]
mod tests {
    use countersign_domain::payment_order::{PaymentStatus, Step};

    use super::*;
    use crate::app::fixtures::{Deployment, application, nobody, ordered};
    use crate::app::identity::find_application;
    use crate::app::payment_orders::advance;

    const MONTH: &str = "2031-01";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_month_is_complete_by_a_clock_that_is_ahead_and_goes_back_into_it() {
        for deployment in Deployment::on_each_store().await {
            let app = deployment.open().await;
            let (from, to) = app.policy.rule_zone.month(Month::parse(MONTH).expect("a month"));
            let clock_to = |at: UnixMillis| app.clock.advance_ms(at.0 - app.clock.now().0);
            clock_to(from);
            let client_id = application(&app, "till", None).await;
            let of = find_application(&app, &client_id).await.expect("is there");
            let statement = async || begin(&app, "till", MONTH).await.expect("begins");
            let is_complete = async || statement().await.about().is_complete;

            clock_to(to.plus_ms(-60_000));
            let order = ordered(&app, &of, "late").await.order;
            app.settled.believe(Instant::now(), app.clock.now());
            app.clock.advance_ms(300_000);
            assert!(!is_complete().await, "it has shown so for a moment only");
            app.clock.advance_ms(-300_000);
            let step = Step { to: PaymentStatus::Paid, actual_amount: None, transact_at: None };
            advance(&app, order.prepay_id, step, &|_| None, &nobody()).await.expect("is paid");

            clock_to(to.plus_ms(SETTLE_MS - 1));
            app.settled.believe(Instant::now(), app.clock.now());
            assert!(!is_complete().await);
            clock_to(to.plus_ms(SETTLE_MS));
            app.settled.believe(Instant::now(), app.clock.now());
            assert!(is_complete().await);
            assert_eq!(statement().await.next(&app).await.expect("reads").len(), 1);
            Deployment::close(&app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_month_that_ended_a_day_ago_is_complete_at_once_after_a_start() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        application(&app, "till", None).await;
        let (_, to) = app.policy.rule_zone.month(Month::parse(MONTH).expect("a month"));
        for (since_ms, is_complete) in [(SETTLE_MS, false), (LONG_OVER_MS - 1, false), (LONG_OVER_MS, true)] {
            app.clock.advance_ms(to.plus_ms(since_ms).0 - app.clock.now().0);
            let statement = begin(&app, "till", MONTH).await.expect("begins");
            assert_eq!(statement.about().is_complete, is_complete, "{since_ms}");
        }
        Deployment::close(&app);
    }
}
