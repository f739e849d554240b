//! A rule that is not made yet, tried on a sub-account's paid orders. Nothing is written.

use countersign_domain::ids::time_ordered;
use countersign_domain::payment_order::PrepayId;
use countersign_domain::rules::Markup;
use countersign_domain::time::UnixMillis;
use countersign_domain::what_if::{Paid, WhatIf};
use countersign_protocol::sentence::of_field;
use countersign_store::contract::Cursor;
use countersign_store::paid_order::{PaidOrder, PaidOrders as _, PaidSpan, Payee};

use super::App;
use super::error::AppError;
use super::identity::find_sub_account;

/// Orders of a page: what is read and held at a time, and priced without a break.
const PAGE: u32 = 500;

/// What is to be tried on what.
#[derive(Clone, Debug)]
pub struct Question {
    /// The sub-account's public id.
    pub sub_merchant_id: String,
    /// What the rule would add.
    pub markup: Markup,
    /// Orders that were paid at this instant or later; none: all.
    pub from: Option<UnixMillis>,
    /// And before this, at most up to now; none: up to now.
    pub to: Option<UnixMillis>,
}

/// A what-if, as far as it is.
#[derive(Debug)]
pub struct Trying {
    what_if: WhatIf,
    span: PaidSpan,
    first: Option<PrepayId>,
    after: Option<PrepayId>,
}

/// Begins a what-if. Who is not there is refused here.
pub async fn begin(app: &App, question: &Question) -> Result<Trying, AppError> {
    let sub = find_sub_account(app, &question.sub_merchant_id).await?;
    let now = app.clock.now();
    if question.from.is_some_and(|from| from >= now) {
        let why = "must be before now, since it is tried on orders that were paid";
        return Err(AppError::InvalidParameter(of_field("from", why)));
    }
    let span = PaidSpan {
        of: Payee::Merchant(sub.tenant, sub.no),
        from: question.from.unwrap_or(UnixMillis(i64::MIN)),
        // What is paid while it is walked over would be in it or not by its number.
        to: question.to.map_or(now, |to| to.min(now)),
    };
    let what_if = WhatIf::new(question.markup, app.policy.markup_unit, app.policy.rule_zone.clone());
    Ok(Trying { what_if, span, first: None, after: None })
}

impl Trying {
    /// Tries the next orders. Whether there were any.
    pub async fn go_on(&mut self, app: &App) -> Result<bool, AppError> {
        let page = app.store.paid_orders(self.span, Cursor { after: self.after, limit: PAGE }).await?;
        let Some(last) = page.last() else { return Ok(false) };
        self.after = Some(last.prepay_id);
        self.first = self.first.or_else(|| page.first().map(|first| first.prepay_id));
        for order in &page {
            self.what_if.add(&paid(order)).map_err(|why| refused(&why))?;
        }
        Ok(true)
    }

    /// How far it is, by the time at which orders were made, in thousandths.
    pub fn per_mille(&self) -> i64 {
        let (Some(first), Some(last)) = (self.first, self.after) else { return 0 };
        let whole = i128::from(time_ordered(self.span.to, 0)) - i128::from(first.number());
        let done = (i128::from(last.number()) - i128::from(first.number())) * 1_000;
        i64::try_from(done / whole.max(1)).unwrap_or(1_000).clamp(0, 1_000)
    }

    /// What is known so far.
    pub const fn what_if(&self) -> &WhatIf {
        &self.what_if
    }

    /// Which orders: those that were paid before this.
    pub const fn to(&self) -> UnixMillis {
        self.span.to
    }
}

fn paid(order: &PaidOrder) -> Paid<'_> {
    Paid {
        prepay_id: order.prepay_id,
        trade_no: &order.trade_no,
        currency: &order.currency,
        amount: order.actual_amount,
        paid_at: order.paid_at,
        fee: order.fee.as_ref().map(|fee| fee.fee),
    }
}

/// What can be asked otherwise is the time: the orders are as they are.
pub fn refused(refused: &impl std::fmt::Display) -> AppError {
    AppError::InvalidParameter(format!("fields from and to: must be of orders that can be tried; {refused}"))
}
