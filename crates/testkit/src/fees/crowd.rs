//! Upgrades and payments of one sub-account at the same moment, on every node there is: whatever came first, each fee names the version that was in
//! force, by the rows, when its order was paid.
//!
//! Each node has a clock of its own, which whoever asks moves on by a millisecond at the most: so nearly everything of a round happens within a few
//! milliseconds, and the clocks of two nodes are as far apart as they may be.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::app::error::AppError;
use countersign::app::identity::find_merchant;
use countersign::app::rules::{Making, RuleChange, change};
use countersign::app::{App, payment_orders};
use countersign::clock::Clock;
use countersign_domain::ids::ApplicationNo;
use countersign_domain::payment_order::{PaymentStatus, PrepayId, Step};
use countersign_domain::rules::{Markup, RuleAsk, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{ClaimKey, Cursor, MerchantRow};
use countersign_store::payment_order::PaymentOrderWrite;
use countersign_store::{Batch, Store as _, Write};
use rust_decimal::Decimal;
use tokio::task::JoinSet;

use super::timeline::{Version, in_force};
use super::trading::{Till, actor, pending};
use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::one_order::nodes::Nodes;
use crate::wire::wall_ms;

/// How far the second node's clock is ahead, in ms.
const AHEAD_MS: i64 = 700;
/// Orders and upgrades of a round.
const PAYMENTS: usize = 12;
const UPGRADES: usize = 6;
/// Sub-accounts: one for so many rounds, so that the first version is often among those that are made.
const ROUNDS_OF_A_SUB: usize = 4;
/// Versions that are read at once.
const PAGE: u32 = 500;
/// How often one is asked for whose turn does not come soon: each time some seconds have gone by.
const ASKED_MAX: usize = 10;

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Rounds of upgrades and payments at once.
    pub rounds: usize,
    /// What chance is made of.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Orders whose fee names the version in force when they were paid.
    pub paid: usize,
    /// Of them, those before the first version or behind a due date.
    pub without: usize,
    /// Versions made.
    pub versions: usize,
    /// Versions that fees name.
    pub named: usize,
    /// Orders that were paid within the very millisecond in which a version was made, or the one before.
    pub close: usize,
}

/// One sub-account, and what is asked for it.
struct Round<'a> {
    apps: &'a [Arc<App>],
    bank: &'a MerchantRow,
    sub: &'a str,
    orders: Vec<PrepayId>,
}

/// Runs it on a fresh deployment; an error says which fee names another version.
pub async fn run(kind: StoreKind, plan: Crowd) -> Result<Seen> {
    let began = wall_ms();
    let nodes =
        Nodes::open(kind, |node| Clock::manual(UnixMillis(began + if node == 0 { 0 } else { AHEAD_MS }))).await?;
    let apps = nodes.apps();
    let app = apps.first().context("a node")?;
    nodes.access.institution("bank", plan.rounds.div_ceil(ROUNDS_OF_A_SUB), None).await?;
    let bank = find_merchant(app, "bank").await?;
    let (mut dice, mut seen) = (Dice::new(plan.seed), Seen::default());
    let mut till: Option<Till> = None;
    let mut paid = Vec::new();
    for round in 0..plan.rounds {
        let sub = format!("bank-{}", 1 + round / ROUNDS_OF_A_SUB);
        if round % ROUNDS_OF_A_SUB == 0 {
            let signer = nodes.access.application(&sub, None).await?;
            let by = app.store.application(&signer.client_id).await?.context("an application")?.application;
            till = Some(Till { owner: find_merchant(app, &sub).await?, by });
        }
        let till = till.as_ref().context("a sub-account")?;
        let orders = add(app, till, round).await?;
        let mut at_once = orders.clone();
        if round % ROUNDS_OF_A_SUB == 0 {
            // One is paid before the first version, since the node whose clock is behind has moved on before anybody makes it.
            pay(app, at_once.swap_remove(0)).await?;
            app.clock.advance_ms(1);
        }
        Round { apps: &apps, bank: &bank, sub: &sub, orders: at_once }.play(&mut dice).await?;
        paid.extend(orders);
        if (round + 1) % ROUNDS_OF_A_SUB == 0 || round + 1 == plan.rounds {
            compare(app, till, &std::mem::take(&mut paid), &mut seen).await?;
        }
    }
    nodes.stop().await?;
    Ok(seen)
}

/// Orders that wait to be paid.
async fn add(app: &App, till: &Till, round: usize) -> Result<Vec<PrepayId>> {
    let (mut writes, mut orders) = (Vec::new(), Vec::new());
    for n in 0..PAYMENTS {
        let row = pending(app, till, ("USDT", 100_000_000), round * PAYMENTS + n, app.clock.now())?;
        orders.push(row.order.prepay_id);
        writes.push(Write::PaymentOrder(Box::new(PaymentOrderWrite::Insert { row, received: Arc::default() })));
    }
    app.store.commit(Batch(writes)).await?;
    Ok(orders)
}

async fn pay(app: &App, id: PrepayId) -> Result<()> {
    let step = Step { to: PaymentStatus::Paid, actual_amount: None, transact_at: None };
    let (actor, key) = (actor(), |_: &_| None);
    until_not_busy(|| payment_orders::advance(app, id, step, &key, &actor)).await?;
    Ok(())
}

/// Asks again where its turn did not come soon, as on a busy machine: nothing was done.
async fn until_not_busy<T, F>(mut ask: impl FnMut() -> F) -> Result<T, AppError>
where
    F: Future<Output = Result<T, AppError>>,
{
    for _ in 1..ASKED_MAX {
        match ask().await {
            Err(AppError::Busy) => {}
            answer => return answer,
        }
    }
    ask().await
}

impl Round<'_> {
    /// Everything at once, as many orders as are left to pay; all that is asked for is done, but for rules whose time would be over before they are made.
    async fn play(self, dice: &mut Dice) -> Result<()> {
        let mut under_way: JoinSet<Result<()>> = JoinSet::new();
        let mut payments = self.orders.into_iter();
        for n in 0..PAYMENTS + UPGRADES {
            let app = self.apps[dice.below(self.apps.len())].clone();
            let moved = i64::from(dice.once_in(2));
            if n % 3 == 0 {
                let wanted = asked(&app, self.sub, dice)?;
                let nonce = format!("{}.{}", self.sub, dice.bits());
                let (bank, actor) = (self.bank.clone(), actor());
                under_way.spawn(async move {
                    app.clock.advance_ms(moved);
                    let stamped_at = app.clock.now();
                    let (tenant, application) = (bank.tenant, ApplicationNo(bank.no.0));
                    let claim = ClaimKey { tenant, application, nonce, stamped_at };
                    match until_not_busy(|| change(&app, &bank, &wanted, &claim, &actor)).await {
                        Ok(_) | Err(AppError::InvalidRulePeriod(_)) => Ok(()),
                        Err(error) => Err(error.into()),
                    }
                });
            } else {
                let Some(id) = payments.next() else { continue };
                under_way.spawn(async move {
                    app.clock.advance_ms(moved);
                    pay(&app, id).await
                });
            }
        }
        while let Some(done) = under_way.join_next().await {
            done??;
        }
        Ok(())
    }
}

/// A rule: in force at once, or in a few milliseconds, for ever or for a few more.
fn asked(app: &App, sub: &str, dice: &mut Dice) -> Result<RuleChange> {
    let now = app.clock.now();
    let effective_at = now.plus_ms(*dice.one_of(&[-1_000, 0, 1, 3, AHEAD_MS]).context("there are some")?);
    let due_at = dice.once_in(3).then(|| effective_at.max(now).plus_ms(dice.between(1, 5)));
    let markup = Markup::new(Decimal::new(dice.between(0, 99_999), 3), Decimal::ZERO)?;
    let ask = RuleAsk { markup, effective_at, due_at };
    Ok(RuleChange { making: Making::Upgrade, sub_merchant_id: sub.to_owned(), ask })
}

/// Reads the rows, and demands of each order the version in force.
async fn compare(app: &App, till: &Till, orders: &[PrepayId], seen: &mut Seen) -> Result<()> {
    let owner = &till.owner;
    let page = Cursor { after: None, limit: PAGE };
    let mut rows = app.store.rule_versions(owner.tenant, owner.no, page).await?;
    ensure!(rows.len() < PAGE as usize, "all versions of a sub-account");
    rows.reverse();
    let versions: Vec<Version> = rows.iter().map(as_asked).collect();
    let mut named = std::collections::BTreeSet::new();
    for id in orders {
        let row = payment_orders::show(app, *id).await?.row;
        let paid_at = row.order.paid_at.context("it is paid")?.0;
        let fee = row.order.fee.context("it has a fee")?;
        let expected = in_force(&versions, paid_at).map(|(number, _)| number);
        let found = fee.version_no.map(usize::try_from).transpose()?;
        ensure!(
            found == expected,
            "{id} of {} was paid at {paid_at} under version {found:?}, but {expected:?} was in force: {versions:?}",
            owner.merchant_id
        );
        seen.paid += 1;
        seen.without += usize::from(found.is_none());
        let is_close = |version: &Version| (0..=1).contains(&(version.made_at - paid_at));
        seen.close += usize::from(versions.iter().any(is_close));
        named.extend(found);
    }
    seen.versions += versions.len();
    seen.named += named.len();
    Ok(())
}

fn as_asked(row: &RuleVersion) -> Version {
    Version {
        r: row.markup.r().to_string(),
        f: row.markup.f().to_string(),
        made_at: row.created_at.0,
        effective_at: row.effective_at.0,
        due_at: row.due_at.map(|due| due.0),
    }
}
