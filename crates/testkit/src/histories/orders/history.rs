//! One trade number: what was asked of it, what the oracle says, and whether the answers are the same.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use countersign::app::error::AppError;
use countersign::app::payment_orders::{
    Named, Receivers, Shown, Wanted, advance, amount, close, create, currency, expire, find, show,
};
use countersign::app::{Actor, App};
use countersign_domain::payment_order::{Content, PaymentKind, PaymentStatus, PrepayId, Step};
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::batch::{Conflict, Guard, Key};
use countersign_store::contract::{ApplicationRow, ClaimKey, Claimed, CommitError, Cursor, EventFilter, MerchantRow};
use countersign_store::payment_order::{PaymentOrderRow, PaymentOrders as _};

use super::oracle::{Making, Moving, TradeNo};
use super::{Counts, STATES};
use crate::dice::Dice;

/// Most questions of one step.
const QUESTIONS_MAX: usize = 3;
/// Looks of a sweep that meets numbers that are taken.
const LOOKS_MAX: usize = 10;
const AMOUNTS: [&str; 2] = ["10.5", "4999999.999999"];
const MONTH_MS: i64 = 30 * 86_400_000;

/// One trade number of a world.
#[derive(Debug)]
pub(super) struct History {
    pub(super) trade_no: String,
    /// What was compared.
    pub(super) counts: Counts,
    owner: MerchantRow,
    by: ApplicationRow,
    oracle: TradeNo,
    prepay_id: Option<PrepayId>,
    story: String,
    claims: u64,
    dice: Dice,
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Create { amount: &'static str, expires: Option<i64> },
    Close,
    Advance { to: &'static str, actual: Option<&'static str>, transact: Option<i64> },
    Look,
    Sweep,
}

impl History {
    pub(super) fn new(trade_no: String, (owner, by): (&MerchantRow, &ApplicationRow), dice: Dice) -> Self {
        Self {
            trade_no,
            counts: Counts { histories: 1, ..Counts::default() },
            owner: owner.clone(),
            by: by.clone(),
            oracle: TradeNo::default(),
            prepay_id: None,
            story: String::new(),
            claims: 0,
            dice,
        }
    }

    /// When its order's time is over.
    pub(super) fn expires(&self) -> Option<i64> {
        self.oracle.order.as_ref().map(|order| order.expires)
    }

    /// Asks up to [`QUESTIONS_MAX`] questions, one after the other, and compares the answers.
    pub(super) async fn step(&mut self, app: &App) -> Result<()> {
        for _ in 0..self.dice.below(QUESTIONS_MAX + 1) {
            let clock = app.clock.now().0;
            let question = self.question(clock);
            let _ = writeln!(self.story, "at {clock}: {question:?}");
            let held = self.compare(app, question, clock).await;
            held.with_context(|| format!("the trade number {} was asked:\n{}", self.trade_no, self.story))?;
        }
        Ok(())
    }

    /// Compares all moves, and all that its merchant was told.
    pub(super) async fn end(&mut self, app: &App) -> Result<()> {
        let held = self.compare_end(app).await;
        held.with_context(|| format!("the trade number {} was asked:\n{}and then looked at", self.trade_no, self.story))
    }

    fn question(&mut self, clock: i64) -> Question {
        let dice = &mut self.dice;
        match dice.below(100) {
            0..30 => {
                let amount = AMOUNTS[usize::from(dice.once_in(4))];
                let expires = match dice.below(8) {
                    0..2 => None,
                    2 => Some(clock + dice.between(-1, 0)),
                    3 => Some(clock + MONTH_MS + dice.between(0, 1)),
                    _ => Some(clock + dice.between(1, 120_000)),
                };
                Question::Create { amount, expires }
            }
            30..45 => Question::Close,
            45..75 => {
                let to = STATES[[0, 1, 1, 2, 2, 3, 4, 4][dice.below(8)]];
                let actual = dice.once_in(3).then_some("10.4");
                let transact = if dice.once_in(3) { Some(clock - dice.between(0, 9_000)) } else { None };
                Question::Advance { to, actual, transact }
            }
            75..90 => Question::Look,
            _ => Question::Sweep,
        }
    }

    async fn compare(&mut self, app: &App, question: Question, clock: i64) -> Result<()> {
        match question {
            Question::Create { amount, expires } => self.compare_create(app, (amount, expires), clock).await,
            Question::Close => self.compare_close(app, clock).await,
            Question::Advance { to, actual, transact } => {
                self.compare_advance(app, (to, actual, transact), clock).await
            }
            Question::Look => self.compare_look(app, clock).await,
            Question::Sweep => self.compare_sweep(app, clock).await,
        }
    }

    async fn compare_create(&mut self, app: &App, asked: (&'static str, Option<i64>), clock: i64) -> Result<()> {
        let content = Content {
            kind: PaymentKind::Order,
            currency: currency("currency", "USDT")?,
            amount: amount("orderAmount", asked.0, PaymentKind::Order)?,
            merchant_user_id: None,
            channel_id: None,
            goods_name: None,
            goods_detail: None,
        };
        let wanted = Wanted {
            trade_no: self.trade_no.clone(),
            content,
            terminal_type: None,
            return_url: None,
            cancel_url: None,
            expires_at: asked.1.map(UnixMillis),
            received: Arc::default(),
        };
        let claim = self.fresh_claim(app).await?;
        let answer = create(app, &self.owner, &self.by, &wanted, &claim, &actor()).await;
        match (answer, self.oracle.ask(asked.0, asked.1, clock)) {
            (Ok(row), Making::Made) => {
                self.prepay_id = Some(row.order.prepay_id);
                self.counts.made += 1;
                self.same(&row, clock)
            }
            (Ok(row), Making::There) => {
                self.counts.found += 1;
                self.same(&row, clock)
            }
            (Err(AppError::DuplicateTradeNo { .. }), Making::Duplicate) => {
                self.counts.duplicates += 1;
                settle(app, &claim).await
            }
            (Err(AppError::InvalidParameter(_)), Making::Refused) => {
                self.counts.refused_expiry += 1;
                settle(app, &claim).await
            }
            (answer, wanted) => bail!("answered {answer:?}, but the oracle says {wanted:?}"),
        }
    }

    async fn compare_close(&mut self, app: &App, clock: i64) -> Result<()> {
        let claim = self.fresh_claim(app).await?;
        let named = Named { prepay_id: None, trade_no: Some(&self.trade_no) };
        let answer = close(app, &self.owner, &named, &claim, &actor()).await;
        match (answer, self.oracle.close(clock)) {
            (Ok(()), Moving::Moved) => self.counts.moved += 1,
            (Ok(()), Moving::Already) => self.counts.closed_again += 1,
            (Err(AppError::OrderNotFound), Moving::Nowhere) => {
                self.counts.nowhere += 1;
                settle(app, &claim).await?;
            }
            (Err(AppError::InvalidPaymentOrderStatus(_)), Moving::Refused) => {
                self.counts.refused_moves += 1;
                settle(app, &claim).await?;
            }
            (answer, wanted) => bail!("answered {answer:?}, but the oracle says {wanted:?}"),
        }
        ensure!(app.store.reserve(&claim).await? != Claimed::Fresh || app.store.is_shared(), "its nonce is used");
        Ok(())
    }

    async fn compare_advance(
        &mut self,
        app: &App,
        (to, actual, transact): (&'static str, Option<&'static str>, Option<i64>),
        clock: i64,
    ) -> Result<()> {
        let step = Step {
            to: PaymentStatus::from_name(to).context("a state")?,
            actual_amount: actual.map(|text| amount("actualAmount", text, PaymentKind::Order)).transpose()?,
            transact_at: transact.map(UnixMillis),
        };
        let id = self.prepay_id.unwrap_or_else(|| PrepayId::new(404, 0));
        let answer = advance(app, id, step, &|_| None, &actor()).await;
        match (answer, self.oracle.advance(to, actual, transact, clock)) {
            (Ok((_, row)), Moving::Moved) => {
                self.counts.moved += 1;
                self.same(&row, clock)
            }
            (Err(AppError::InvalidPaymentOrderStatus(_)), Moving::Refused) => {
                self.counts.refused_moves += 1;
                Ok(())
            }
            (Err(AppError::OrderNotFound), Moving::Nowhere) => {
                self.counts.nowhere += 1;
                Ok(())
            }
            (answer, wanted) => bail!("answered {answer:?}, but the oracle says {wanted:?}"),
        }
    }

    async fn compare_look(&mut self, app: &App, clock: i64) -> Result<()> {
        self.oracle.time_comes(clock);
        let named = Named { prepay_id: None, trade_no: Some(&self.trade_no) };
        match find(app, &self.owner, &named).await {
            Ok(row) => self.same(&row, clock),
            Err(AppError::OrderNotFound) if self.oracle.order.is_none() => Ok(()),
            Err(error) => bail!("answered {error:?}, but the oracle has {:?}", self.oracle.order),
        }
    }

    async fn compare_sweep(&mut self, app: &App, clock: i64) -> Result<()> {
        let is_told = self.oracle.sweep(clock);
        let Some(id) = self.prepay_id else { return Ok(()) };
        // As it is noted: what the sweep finds.
        let (_, before) = app.store.payment_order_owner(id).await?.context("it is there")?;
        let (application, client_id) = (self.by.no, self.by.client_id.clone());
        let rests_on = Guard::Application { application, client_id, revision: self.by.revision, holds_changes: true };
        // After a restart within a millisecond that stands, an event's number may be one that was drawn before: the next look draws another.
        for _ in 0..LOOKS_MAX {
            match expire(app, &before, &Receivers::default(), rests_on.clone()).await {
                Err(CommitError::Conflict(Conflict::Taken(Key::Event(_)))) => {}
                ended => {
                    ended?;
                    break;
                }
            }
        }
        let after = show(app, id).await?.row;
        let noted = after.order.revision - before.order.revision;
        ensure!(noted == i64::from(is_told), "{noted} were noted as expired, but the oracle says {is_told}");
        self.counts.swept += usize::from(is_told);
        self.same(&after, clock)
    }

    /// Demands that the order is as the oracle has it.
    fn same(&self, row: &PaymentOrderRow, clock: i64) -> Result<()> {
        let order = self.oracle.order.as_ref().context("the oracle has no order")?;
        let seen = (
            row.order.status_at(UnixMillis(clock)).name(),
            row.order.content.amount.to_string(),
            (row.order.created_at.0, row.order.expires_at.0),
            row.order.actual_amount.map(|amount| amount.to_string()),
            row.order.transact_at.map(|at| at.0),
        );
        let wanted = (
            order.state,
            order.amount.to_owned(),
            (order.created, order.expires),
            order.actual.map(str::to_owned),
            order.transact,
        );
        ensure!(seen == wanted, "the order is {seen:?}, but the oracle says {wanted:?}");
        ensure!(self.prepay_id == Some(row.order.prepay_id), "it has another number");
        ensure!(row.order.revision == i64::try_from(order.moves.len())? + 1, "its revision is {}", row.order.revision);
        ensure!(row.order.paid_at.is_some() == (order.state == "PAID"), "paid at {:?}", row.order.paid_at);
        Ok(())
    }

    async fn compare_end(&mut self, app: &App) -> Result<()> {
        let clock = app.clock.now().0;
        self.oracle.time_comes(clock);
        let (Some(id), Some(order)) = (self.prepay_id, self.oracle.order.clone()) else {
            ensure!(self.prepay_id.is_none() && self.oracle.order.is_none(), "one of both has an order");
            return Ok(());
        };
        let Shown { row, moves, .. } = show(app, id).await?;
        self.same(&row, clock)?;
        let seen: Vec<_> = moves.iter().map(|entry| (entry.was.name(), entry.status.name(), entry.at.0)).collect();
        ensure!(seen == order.moves, "its moves are {seen:?}, but the oracle says {:?}", order.moves);
        let filter = EventFilter { biz_id: Some(id.to_string()), ..EventFilter::default() };
        let mut events = app.store.events(filter, Cursor { after: None, limit: 50 }, u32::MAX).await?.events;
        // By the order of delivery: of one millisecond, numbers of events are of chance where the process is another one.
        events.sort_by_key(|event| event.sequence);
        let told: Vec<&str> = events.iter().map(|event| event.biz_status.as_str()).collect();
        ensure!(told == order.told, "its merchant was told {told:?}, but the oracle says {:?}", order.told);
        let end = STATES.iter().position(|state| *state == order.state).context("a state")?;
        self.counts.ends[end] += 1;
        Ok(())
    }

    async fn fresh_claim(&mut self, app: &App) -> Result<ClaimKey> {
        self.claims += 1;
        let claim = ClaimKey {
            tenant: self.owner.tenant,
            application: self.by.no,
            nonce: format!("{}.{}", self.trade_no, self.claims),
            stamped_at: app.clock.now(),
        };
        let known = app.store.reserve(&claim).await?;
        ensure!(known == Claimed::Fresh, "a nonce that was never used is {known:?}");
        Ok(claim)
    }
}

fn actor() -> Actor {
    Actor::named("application:history")
}

async fn settle(app: &App, claim: &ClaimKey) -> Result<()> {
    let settled = app.store.settle(claim.clone()).await?;
    ensure!(settled == Claimed::Fresh, "the nonce of what was refused is {settled:?} when it is settled");
    Ok(())
}
