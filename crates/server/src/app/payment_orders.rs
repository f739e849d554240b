//! Payment orders: made and closed by merchants, moved by the back end, expired by their time.
//!
//! Every change is one batch: the order, its history, its callback, the audit line and the used nonce stand or fall together. A trade number
//! is looked up before anything that depends on the time, so a request that is repeated gets its order whatever the hour.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::fees;
use countersign_domain::ids::TenantNo;
use countersign_domain::money::{Amount, Currency, transaction};
use countersign_domain::payment_order::{
    self as machine, Content, Mover, PaymentKind, PaymentOrder, PaymentStatus, PrepayId, Step,
};
use countersign_domain::rules;
use countersign_domain::time::UnixMillis;
use countersign_protocol::sentence::of_field;
use countersign_store::Store as _;
use countersign_store::batch::{Conflict, Guard, Key, Write};
use countersign_store::contract::{
    ApplicationRow, Asker, ClaimKey, Claimed, CommitError, Cursor, MerchantKind, MerchantRow,
};
use countersign_store::payment_order::{
    OrderName, PaymentMoveRow, PaymentOrderFilter, PaymentOrderPage, PaymentOrderRow, PaymentOrderWrite,
    PaymentOrders as _, Received,
};
use tokio::time::sleep;

use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::turns::TurnKey;
use super::{Actor, App, events, fresh};

mod expiry;
mod listed;
mod standing;
mod telling;

pub use expiry::{Receivers, expire, expired};
pub use listed::of_merchant;
use standing::{as_it_stands, back_end_of, has_lapsed, in_time};
pub(crate) use telling::{OrderData, callback_words};

/// Before an order is made anew that had expired by the time it was to be written.
const LATE_PAUSE: Duration = Duration::from_millis(100);
/// Orders that are looked at for a page of a list where no index leads to what is asked.
pub const LOOKED_MAX: u32 = 5_000;

/// An order that a merchant asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The merchant's own number.
    pub trade_no: String,
    /// What makes it the same order.
    pub content: Content,
    /// The payer's terminal.
    pub terminal_type: Option<String>,
    /// Where the payer goes afterwards.
    pub return_url: Option<String>,
    /// Where the payer goes who gives up.
    pub cancel_url: Option<String>,
    /// When it shall expire; none: as usual.
    pub expires_at: Option<UnixMillis>,
    /// What came over the wire.
    pub received: Arc<Received>,
}

/// An order as somebody names it: by either number, or by both.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// Our number.
    pub prepay_id: Option<&'a str>,
    /// The merchant's own.
    pub trade_no: Option<&'a str>,
}

/// The amount of an order: within the limits of its kind, never rounded.
pub fn amount(field: &str, text: &str, kind: PaymentKind) -> Result<Amount, AppError> {
    transaction(text, kind.amount_max()).map_err(|refused| AppError::InvalidAmount(of_field(field, refused)))
}

/// An order's currency.
pub fn currency(field: &str, text: &str) -> Result<Currency, AppError> {
    let refuse = || AppError::InvalidCurrency(of_field(field, "must be 2 to 10 of A-Z 0-9"));
    Currency::parse(text).ok_or_else(refuse)
}

/// Makes an order, or finds the one that has this trade number and the same content. The nonce is used up either way.
pub async fn create(
    app: &App,
    owner: &MerchantRow,
    by: &ApplicationRow,
    wanted: &Wanted,
    claim: &ClaimKey,
    actor: &Actor,
) -> Result<PaymentOrderRow, AppError> {
    let _turn = app.turns.take_soon(TurnKey::TradeNo(owner.no, wanted.trade_no.clone())).await?;
    let arrived = app.clock.now();
    loop {
        actor.may_still(app).await?;
        let name = OrderName::TradeNo(wanted.trade_no.clone());
        if let Some(there) = app.store.payment_order(owner.tenant, owner.no, name).await? {
            if let Some(differs) = first_difference(&there.order.content, &wanted.content) {
                return Err(AppError::DuplicateTradeNo { name: "merchantTradeNo", differs });
            }
            // Before the nonce is used up: what fails may be repeated.
            let (there, _) = as_it_stands(app, there).await?;
            settle(app, claim).await?;
            return Ok(there);
        }
        let row = new_order(app, owner, by, wanted, actor)?;
        // Else it would be told as pending, and be expired for whoever knows the time better.
        let in_time = Guard::Before { instant: row.order.expires_at, time: app.clock.source() };
        let writes = vec![
            Write::ClaimNonce(claim.clone()),
            telling::made(&row, actor),
            Write::PaymentOrder(Box::new(PaymentOrderWrite::Insert {
                row: row.clone(),
                received: Arc::clone(&wanted.received),
            })),
            Write::Guard(in_time),
        ];
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => return Ok(row),
            Err(lost) if actor.has_lost(&lost) => return Err(lost.into()),
            Err(CommitError::Conflict(Conflict::NonceUsed)) => return Err(AppError::NonceReused),
            // It has expired by the database's time, as where this node has slept: the next measurement sets it right.
            Err(CommitError::Conflict(Conflict::Late(_))) if app.may_decide_anew(arrived) => sleep(LATE_PAUSE).await,
            // Another node was first, or drew the same number: look again.
            Err(CommitError::Conflict(_)) if app.may_decide_anew(arrived) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The first field in which two contents differ; none where they are the same.
fn first_difference(one: &Content, other: &Content) -> Option<&'static str> {
    let Content { kind, currency, amount, merchant_user_id, channel_id, goods_name, goods_detail } = one;
    [
        (*kind == other.kind, "operation"),
        (*currency == other.currency, "currency"),
        (*amount == other.amount, "orderAmount"),
        (*merchant_user_id == other.merchant_user_id, "merchantUserId"),
        (*channel_id == other.channel_id, "channelId"),
        (*goods_name == other.goods_name, "goods.goodsName"),
        (*goods_detail == other.goods_detail, "goods.goodsDetail"),
    ]
    .into_iter()
    .find_map(|(is_same, name)| (!is_same).then_some(name))
}

fn new_order(
    app: &App,
    owner: &MerchantRow,
    by: &ApplicationRow,
    wanted: &Wanted,
    actor: &Actor,
) -> Result<PaymentOrderRow, AppError> {
    let now = app.clock.now();
    let expires_at = machine::expiry(wanted.content.kind, wanted.expires_at, now)
        .map_err(|refused| AppError::InvalidParameter(of_field("orderExpireTime", refused)))?;
    let order = PaymentOrder {
        prepay_id: PrepayId::new(app.chance.order_number(now), app.chance.bits64()),
        trade_no: wanted.trade_no.clone(),
        content: wanted.content.clone(),
        terminal_type: wanted.terminal_type.clone(),
        return_url: wanted.return_url.clone(),
        cancel_url: wanted.cancel_url.clone(),
        status: PaymentStatus::Pending,
        created_at: now,
        expires_at,
        actual_amount: None,
        transact_at: None,
        paid_at: None,
        fee: None,
        revision: 1,
    };
    Ok(PaymentOrderRow {
        tenant: owner.tenant,
        merchant: owner.no,
        application: by.no,
        client_id: by.client_id.clone(),
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
        order,
    })
}

/// Uses a nonce up where nothing is to be changed: as a read does.
async fn settle(app: &App, claim: &ClaimKey) -> Result<(), AppError> {
    match app.store.settle(claim.clone()).await? {
        Claimed::Fresh => Ok(()),
        Claimed::Used | Claimed::TooOld | Claimed::Unknowable => Err(AppError::NonceReused),
        Claimed::InDoubt => Err(AppError::OutcomeUnknown),
    }
}

/// A merchant's own order as it stands; another merchant's is not found by construction.
pub async fn find(app: &App, owner: &MerchantRow, named: &Named<'_>) -> Result<PaymentOrderRow, AppError> {
    Ok(as_it_stands(app, read(app, owner, named).await?).await?.0)
}

/// A merchant's own order as it was noted last.
async fn read(app: &App, owner: &MerchantRow, named: &Named<'_>) -> Result<PaymentOrderRow, AppError> {
    let name = match (named.prepay_id, named.trade_no) {
        (Some(id), _) => OrderName::Prepay(PrepayId::parse(id).ok_or(AppError::OrderNotFound)?),
        (None, Some(no)) => OrderName::TradeNo(no.to_owned()),
        (None, None) => return Err(AppError::OrderNotFound),
    };
    let found = app.store.payment_order(owner.tenant, owner.no, name).await?;
    let is_it = |row: &PaymentOrderRow| named.trade_no.is_none_or(|no| row.order.trade_no == no);
    found.filter(is_it).ok_or(AppError::OrderNotFound)
}

/// Gives a merchant's own pending order up. One that is closed already stays so, and nobody is told again.
pub async fn close(
    app: &App,
    owner: &MerchantRow,
    named: &Named<'_>,
    claim: &ClaimKey,
    actor: &Actor,
) -> Result<(), AppError> {
    let mut before = read(app, owner, named).await?;
    let id = before.order.prepay_id;
    let _turn = app.turns.take_soon(TurnKey::PaymentOrder(id)).await?;
    let arrived = app.clock.now();
    loop {
        actor.may_still(app).await?;
        (before, _) = as_it_stands(app, before).await?;
        if before.order.status == PaymentStatus::Closed {
            return settle(app, claim).await;
        }
        let step = Step { to: PaymentStatus::Closed, actual_amount: None, transact_at: None };
        let now = app.clock.now();
        let moved = match machine::advance(&before.order, Mover::Merchant, step, now) {
            Err(_) if has_lapsed(app, &before.order) => continue,
            moved => moved?,
        };
        let receiver = events::receiver(app, &before.client_id).await?;
        let mut change = telling::change(app, &receiver, &before, moved, now, actor);
        change.writes.push(Write::ClaimNonce(claim.clone()));
        change.writes.extend(in_time(app, &before.order, Mover::Merchant, step.to, now));
        if commit(app, change, arrived, actor).await? {
            return Ok(());
        }
        // It has moved since it was read.
        let found = app.store.payment_order(owner.tenant, owner.no, OrderName::Prepay(id)).await?;
        before = found.ok_or(AppError::OrderNotFound)?;
    }
}

/// Moves an order for the back end. `keep` makes the answer to keep of the order as it becomes.
pub async fn advance(
    app: &App,
    id: PrepayId,
    step: Step,
    keep: &Keep<'_, (MerchantRow, PaymentOrderRow)>,
    actor: &Actor,
) -> Result<(MerchantRow, PaymentOrderRow), AppError> {
    let _turn = app.turns.take_soon(TurnKey::PaymentOrder(id)).await?;
    let arrived = app.clock.now();
    loop {
        let found = app.store.payment_order_owner(id).await?;
        let (owner, before) = found.ok_or(AppError::OrderNotFound)?;
        let (by, held) = back_end_of(app, &before.order).await?;
        let before = if by == Mover::BackEnd { as_it_stands(app, before).await?.0 } else { before };
        let (moved, now, rests_on) = match decide(app, &owner, &before, by, step).await {
            Err(_) if by == Mover::BackEnd && has_lapsed(app, &before.order) => continue,
            decided => decided?,
        };
        let receiver = events::receiver(app, &before.client_id).await?;
        let mut change = telling::change(app, &receiver, &before, moved, now, actor);
        change.writes.extend(rests_on.into_iter().chain(held).map(Write::Guard));
        let made = (owner, change.row.clone());
        change.writes.extend(kept(keep, &made));
        change.writes.extend(in_time(app, &before.order, by, step.to, now));
        if commit(app, change, arrived, actor).await? {
            return Ok(made);
        }
    }
}

/// The order after the step, the instant of it, and what the fee rests on. Of merchants with rules a fee is fixed when the order is paid.
async fn decide(
    app: &App,
    owner: &MerchantRow,
    before: &PaymentOrderRow,
    by: Mover,
    step: Step,
) -> Result<(PaymentOrder, UnixMillis, Option<Guard>), AppError> {
    let has_rules = owner.kind == MerchantKind::SubAccount;
    if step.to != PaymentStatus::Paid || !has_rules {
        let now = app.clock.now();
        return Ok((machine::advance(&before.order, by, step, now)?, now, None));
    }
    let head = app.store.rule_head(owner.tenant, owner.no, None).await?;
    let clock = app.clock.now();
    // By the clock, as whoever asks is told: an order does not expire sooner for a version that a clock made which was ahead.
    let mut moved = machine::advance(&before.order, by, step, clock)?;
    // A node whose clock is behind must not miss a version that was acknowledged.
    let paid_at = head.as_ref().map_or(clock, |head| clock.max(head.last.created_at));
    moved.paid_at = Some(paid_at);
    let version = head.as_ref().and_then(|head| rules::in_force(head, paid_at));
    let amount = moved.actual_amount.unwrap_or(moved.content.amount);
    let fee = fees::fix(amount, &moved.content.currency, version, app.policy.markup_unit);
    moved.fee = Some(fee.map_err(|refused| AppError::InvalidAmount(of_field("actualAmount", refused)))?);
    let version_no = head.map_or(0, |head| head.last.version_no);
    Ok((moved, clock, Some(Guard::RuleHead { tenant: owner.tenant, merchant: owner.no, version_no })))
}

/// False: somebody else was first, and there is time to decide anew.
async fn commit(app: &App, change: telling::Change, arrived: UnixMillis, actor: &Actor) -> Result<bool, AppError> {
    match fresh::commit(app, change.event, actor.batch(change.writes)).await {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict(Conflict::NonceUsed)) => Err(AppError::NonceReused),
        Err(CommitError::Conflict(Conflict::Taken(Key::Idempotency))) => Err(AppError::Busy),
        Err(lost) if actor.has_lost(&lost) => Err(lost.into()),
        Err(CommitError::Conflict(_)) if app.may_decide_anew(arrived) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An order with its owner and its moves.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Whose it is.
    pub owner: MerchantRow,
    /// The order, with the status that it had at `at`.
    pub row: PaymentOrderRow,
    /// Its moves as they are noted, oldest first.
    pub moves: Vec<PaymentMoveRow>,
    /// When it stood so.
    pub at: UnixMillis,
}

/// An order for operators.
pub async fn show(app: &App, id: PrepayId) -> Result<Shown, AppError> {
    let (owner, row) = app.store.payment_order_owner(id).await?.ok_or(AppError::OrderNotFound)?;
    let (row, at) = as_it_stands(app, row).await?;
    let moves = app.store.payment_order_moves(row.tenant, id).await?;
    Ok(Shown { owner, row, moves, at })
}

/// Orders for operators, newest first, each with the status that it has by what is noted and the time.
pub async fn list(
    app: &App,
    filter: PaymentOrderFilter,
    after: Option<PrepayId>,
    limit: u32,
) -> Result<PaymentOrderPage, AppError> {
    let now = app.clock.now();
    let mut page = app.store.payment_orders(Asker::Operator, filter, now, Cursor { after, limit }, LOOKED_MAX).await?;
    for (_, row) in &mut page.orders {
        row.order.status = row.order.status_at(now);
    }
    Ok(page)
}

/// The tenant and number of the merchant that a list is filtered by.
pub async fn owner_of(
    app: &App,
    merchant_id: &str,
) -> Result<(TenantNo, countersign_domain::ids::MerchantNo), AppError> {
    let found = super::identity::find_merchant(app, merchant_id).await?;
    Ok((found.tenant, found.no))
}

/// What the QR code of an order holds, and where its payer can pay without it.
pub fn checkout(app: &App, order: &PaymentOrder) -> Option<String> {
    match order.content.kind {
        PaymentKind::Order => None,
        PaymentKind::Native => Some(format!("{}/{}", app.policy.checkout_url, order.prepay_id)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Instant;

    use countersign_domain::lanes::Fence;

    use super::*;
    use crate::app::fixtures::{Deployment, application, claim, nobody, ordered, wanted};
    use crate::app::identity::find_application;
    use crate::clock::Clock;

    /// Else the merchant would hear of it at the dispatcher's own next look.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_moves_an_order_rings_for_its_application_and_what_expires_did_so_at_its_time() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let client_id = application(&app, "till", Some("https://till.example/callback")).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let (tenant, no) = (of.application.tenant, of.application.no);
        let rung = || {
            let written = app.bell.written().events.into_iter().map(|event| (event.application, event.tenant));
            written.chain(app.bell.take().applications).collect::<HashMap<_, _>>()
        };
        let [paid, closed, late] =
            [ordered(&app, &of, "paid").await, ordered(&app, &of, "closed").await, ordered(&app, &of, "late").await];
        rung();

        let step = Step { to: PaymentStatus::Paid, actual_amount: None, transact_at: None };
        advance(&app, paid.order.prepay_id, step, &|_| None, &nobody()).await.expect("is paid");
        assert_eq!(rung(), HashMap::from([(no, tenant)]), "paid");
        let named = Named { prepay_id: None, trade_no: Some("closed") };
        let claim = claim(&of.application, "close", app.clock.now());
        close(&app, &of.merchant, &named, &claim, &nobody()).await.expect("is closed");
        assert_eq!(rung(), HashMap::from([(no, tenant)]), "closed");

        app.clock.advance_ms(late.order.expires_at.0 - app.clock.now().0 + 5_000);
        expire(&app, &late, &Receivers::default(), Guard::Lane { application: no, fence: Fence(0) })
            .await
            .expect("is noted");
        assert_eq!(rung(), HashMap::from([(no, tenant)]), "expired");
        let moves = show(&app, late.order.prepay_id).await.expect("is there").moves;
        assert_eq!(moves.iter().map(|step| step.at).collect::<Vec<_>>(), [late.order.expires_at]);
        let moves = show(&app, closed.order.prepay_id).await.expect("is there").moves;
        assert_eq!(moves.len(), 1);
        Deployment::close(&app);
    }

    /// Its clock is put right by the next measurement, and until then the merchant is told to come again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_has_slept_makes_no_order_that_has_expired() {
        let deployment = Deployment::on_postgres().await.in_real_time();
        let app = deployment.open().await;
        let Clock::Shared(time) = &app.clock else { panic!("nodes share a clock") };
        let client_id = application(&app, "till", None).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let right = app.clock.now();
        time.measured(Instant::now(), right.plus_ms(-2 * 3_600_000), Duration::ZERO);
        let wanted = wanted("slept");
        let claim = claim(&of.application, "slept", right);
        let made = async || create(&app, &of.merchant, &of.application, &wanted, &claim, &nobody()).await;
        // By its own clock, as it waits: another one may be some ms before it.
        let began = app.clock.now();
        let refused = made().await;
        assert!(matches!(refused, Err(AppError::Busy)), "{refused:?}");
        assert!(app.clock.now() >= began.plus_ms(2_000), "it waits for the next measurement");
        let by_no = Named { prepay_id: None, trade_no: Some("slept") };
        assert!(matches!(find(&app, &of.merchant, &by_no).await, Err(AppError::OrderNotFound)));

        time.measured(Instant::now(), right, Duration::ZERO);
        let order = made().await.expect("neither its number nor its nonce is used up").order;
        assert_eq!((order.status, order.created_at >= right), (PaymentStatus::Pending, true));
        Deployment::close(&app);
    }
}
