//! Payment orders: listed, shown with their history, and moved by the platform's back end.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::payment_order::{PaymentStatus, PrepayId, Step, is_trade_no};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::body::{Fields, UNIX_MILLIS_MAX};
use countersign_protocol::endpoint::order_query::Response as OrderInFull;
use countersign_store::payment_order::{PaymentMoveRow, PaymentOrderFilter, PaymentOrderRow};
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::fields::{amount, whole};
use super::filters::Filters;
use super::paging::{Asked, Mark, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::error::AppError;
use crate::app::{App, payment_orders};
use crate::edges;

/// Where a payment order goes.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct PaymentOrderMove {
    /// `PROCESS`, `PAID` or `CLOSED`. Orders expire by themselves.
    pub status: String,
    /// What was really paid: a text, 0.0001 to 5000000, at most 6 decimals; absent: what an earlier move said, or else the order's amount.
    pub actual_amount: Option<String>,
    /// When the payer paid, Unix milliseconds; absent: what an earlier move said, or else the instant of `PAID`. It is only recorded.
    pub transact_time: Option<i64>,
}

/// A payment order as operators see it.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaymentOrderView {
    /// As its merchant sees it.
    #[serde(flatten)]
    pub order: OrderInFull,
    /// The application that made it, and gets its callbacks.
    pub client_id: String,
    /// `order` or `native`.
    pub kind: &'static str,
    /// The merchant's own name for the payer, as it was given.
    #[serde(rename = "merchantUserId")]
    pub merchant_user_id: Option<String>,
    /// More about the goods, as it was given.
    #[serde(rename = "goodsDetail")]
    pub goods_detail: Option<String>,
    /// Where the payer is to go after paying, as the merchant gave it: nobody has checked it.
    #[serde(rename = "returnUrl")]
    pub return_url: Option<String>,
    /// Where the payer is to go after giving up; likewise.
    #[serde(rename = "cancelUrl")]
    pub cancel_url: Option<String>,
    /// When it became `PAID`, RFC 3339; null before.
    pub paid_at: Option<String>,
    /// Grows by one with each move; 1 at creation.
    pub revision: i64,
}

/// A move of an order, or its making.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaymentOrderEntry {
    /// 1 is the making.
    pub seq: i64,
    /// Where it stood; null: it was made.
    pub from: Option<&'static str>,
    /// Where it stands since.
    pub to: &'static str,
    /// When, RFC 3339.
    pub at: String,
    /// Who: `application:app_...`, `token:tok_...`, or `system` where its time was over.
    pub actor: String,
    /// By which request; empty where there was none.
    pub request_id: String,
}

/// A payment order with its history.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaymentOrderWithHistory {
    /// The order.
    #[serde(flatten)]
    pub order: PaymentOrderView,
    /// From its making to its last move.
    pub history: Vec<PaymentOrderEntry>,
}

fn view(app: &App, merchant_id: &str, row: &PaymentOrderRow) -> PaymentOrderView {
    PaymentOrderView {
        order: edges::payment_orders::in_full(app, merchant_id, &row.order),
        client_id: row.client_id.clone(),
        kind: row.order.content.kind.name(),
        merchant_user_id: row.order.content.merchant_user_id.clone(),
        goods_detail: row.order.content.goods_detail.clone(),
        return_url: row.order.return_url.clone(),
        cancel_url: row.order.cancel_url.clone(),
        paid_at: row.order.paid_at.map(rfc3339),
        revision: row.order.revision,
    }
}

fn history(row: &PaymentOrderRow, moves: &[PaymentMoveRow]) -> Vec<PaymentOrderEntry> {
    let made = PaymentOrderEntry {
        seq: 1,
        from: None,
        to: PaymentStatus::Pending.name(),
        at: rfc3339(row.order.created_at),
        actor: row.actor.clone(),
        request_id: row.request_id.clone(),
    };
    let moved = moves.iter().map(|entry| PaymentOrderEntry {
        seq: entry.revision,
        from: Some(entry.was.name()),
        to: entry.status.name(),
        at: rfc3339(entry.at),
        actor: entry.actor.clone(),
        request_id: entry.request_id.clone(),
    });
    std::iter::once(made).chain(moved).collect()
}

const MARK: Mark<PrepayId> = Mark { read: PrepayId::parse, write: PrepayId::to_string };

pub(super) fn prepay_id(text: &str) -> Result<PrepayId, AppError> {
    PrepayId::parse(text).ok_or(AppError::OrderNotFound)
}

const STATUS_RULE: &str = "must be PENDING, PROCESS, PAID, EXPIRED or CLOSED";
/// Of these two no order is moved to: it begins with the one, and the other comes by itself.
const MOVE_RULE: &str = "must be PROCESS, PAID or CLOSED";

fn status(text: &str) -> Result<PaymentStatus, Problem> {
    PaymentStatus::from_name(text).ok_or_else(|| Problem::field("status", MOVE_RULE))
}

fn step(body: &[u8]) -> Result<Step, Problem> {
    let fields = Fields::parse(body)?;
    let is_given = |name| fields.raw(name).is_some_and(|raw| raw.get() != "null");
    Ok(Step {
        to: status(&fields.required_text("status")?)?,
        actual_amount: if is_given("actualAmount") { Some(amount(&fields, "actualAmount")?) } else { None },
        transact_at: whole(&fields, "transactTime", 0, UNIX_MILLIS_MAX)?.map(UnixMillis),
    })
}

async fn filter(app: &App, filters: &Filters) -> Result<PaymentOrderFilter, Problem> {
    let status = filters.status(PaymentStatus::from_name, STATUS_RULE)?;
    let known = |text: &str| is_trade_no(text).then(|| text.to_owned());
    let trade_no = filters.read("merchantTradeNo", known, "must be 1 to 100 of A-Z a-z 0-9 _ -")?;
    let (from, to) = filters.span()?;
    let (amount_from, amount_to) = filters.amounts()?;
    // Last: what is malformed comes before what is not there.
    let of = match filters.id("merchant_id")? {
        Some(merchant_id) => Some(payment_orders::owner_of(app, &merchant_id).await?),
        None => None,
    };
    Ok(PaymentOrderFilter { status, of, trade_no, from, to, amount_from, amount_to })
}

/// Payment orders, newest first. A page may hold fewer orders than `limit` and yet have a `next`: so many are looked at for a page, and no more.
#[utoipa::path(get, path = "/operator/v1/payment-orders", tag = "Payment orders", operation_id = "list_payment_orders",
    params(("state" = Option<String>, Query, description = "Only in this state: PENDING, PROCESS, PAID, EXPIRED or CLOSED"),
        ("merchant_id" = Option<String>, Query, description = "Only of this merchant or sub-account"),
        ("merchantTradeNo" = Option<String>, Query, description = "Only with this trade number, whoever's"),
        ("from" = Option<String>, Query, description = "Only those made at this instant or later, RFC 3339"),
        ("to" = Option<String>, Query, description = "Only those made before this instant, RFC 3339"),
        ("amount_from" = Option<String>, Query, description = "Only with an orderAmount of this or more"),
        ("amount_to" = Option<String>, Query, description = "Only with an orderAmount of this or less"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<PaymentOrderView>), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let after = asked.after(&MARK)?;
    let filter = filter(&desk.app, &asked.filters).await?;
    let page = payment_orders::list(&desk.app, filter, after, asked.limit).await?;
    let items = page.orders.iter().map(|(owner, row)| view(&desk.app, owner, row)).collect();
    Ok(json(&Page { items, next: page.next.as_ref().map(MARK.write) }))
}

/// One payment order with its history.
#[utoipa::path(get, path = "/operator/v1/payment-orders/{prepayId}", tag = "Payment orders", operation_id = "show_payment_order",
    params(("prepayId" = String, Path, description = "The order")),
    responses((status = 200, body = PaymentOrderWithHistory), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(id): Named<String>) -> Reply {
    let shown = payment_orders::show(&desk.app, prepay_id(&id)?).await?;
    let order = view(&desk.app, &shown.owner.merchant_id, &shown.row);
    Ok(json(&PaymentOrderWithHistory { order, history: history(&shown.row, &shown.moves) }))
}

/// Moves a payment order. `PENDING` to `PROCESS`, `PAID` or `CLOSED`; `PROCESS` to `PAID` or `CLOSED`. Each move emits one callback; `PAID` fixes the fee.
#[utoipa::path(patch, path = "/operator/v1/payment-orders/{prepayId}", tag = "Payment orders", operation_id = "move_payment_order",
    params(("prepayId" = String, Path, description = "The order")), request_body = PaymentOrderMove,
    responses((status = 200, body = PaymentOrderView), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn advance(Named(id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let (id, step) = (prepay_id(&id)?, step(&call.body)?);
        let seen = |made: &(_, PaymentOrderRow)| {
            let (owner, row): &(countersign_store::contract::MerchantRow, PaymentOrderRow) = made;
            view(call.app(), &owner.merchant_id, row)
        };
        let keep = |made: &_| call.keep(&seen(made));
        let made = Box::pin(payment_orders::advance(call.app(), id, step, &keep, &call.actor)).await?;
        Ok(seen(&made))
    })
    .await
}
