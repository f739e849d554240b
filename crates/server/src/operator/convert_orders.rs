//! Convert orders: made and moved by the platform's back end.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::OrderId;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::body::{Fields, UNIX_MILLIS_MAX};
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::convert_order::Response as ConvertOrderAnswer;
use countersign_protocol::exact::Exact;
use countersign_store::contract::MerchantRow;
use countersign_store::conversion::{ConvertMove, ConvertOrderFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::fields::{amount, checked_text, currency, rate, rate_schema, whole};
use super::merchants::USER_ID_MAX;
use super::paging::{Asked, Mark, Page, digits};
use super::problem::{Problem, ProblemDocument};
use crate::app::error::AppError;
use crate::app::{App, convert_orders, identity};
use crate::edges;

/// Longest quote id.
pub(crate) const QUOTE_ID_CHARS_MAX: usize = 64;

/// A convert order to be added.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ConvertOrderRequest {
    /// 1 to 18 digits without leading zero; absent: made.
    #[schema(rename = "order_id")]
    pub order_id: Option<String>,
    /// Absent: the merchant's.
    pub user_id: Option<i64>,
    /// Currency sold, 2 to 10 of `A-Z 0-9`.
    pub sell_currency: String,
    /// Currency bought.
    pub buy_currency: String,
    /// Amount sold: a text, 0.0001 to 5000000, at most 6 decimals.
    pub sell_amount: String,
    /// Amount bought.
    pub buy_amount: String,
    /// Quote coin per base coin: a number or a text, every digit kept.
    #[schema(schema_with = rate_schema)]
    pub rate: Exact,
    /// Absent: `PAY-` and 8 hex digits.
    pub quote_id: Option<String>,
    /// Milliseconds since 1970; absent: now.
    pub create_time: Option<i64>,
    /// 1 created (default), 3 success, 6 failed.
    pub status: Option<i64>,
}

/// Where a convert order goes.
#[derive(Debug, ToSchema)]
pub struct ConvertOrderMove {
    /// 3 success, 6 failed.
    pub status: i64,
}

fn parse(app: &App, owner: &MerchantRow, body: &[u8]) -> Result<ConvertOrder, Problem> {
    let fields = Fields::parse(body)?;
    let (sell_currency, buy_currency) = (currency(&fields, "sellCurrency")?, currency(&fields, "buyCurrency")?);
    if sell_currency == buy_currency {
        let why = "must be another currency than sellCurrency";
        return Err(Problem::of_field(Code::InvalidCurrency, "buyCurrency", why));
    }
    let now = app.clock.now();
    Ok(ConvertOrder {
        order_id: order_id(app, &fields, now)?,
        user_id: whole(&fields, "userId", 1, USER_ID_MAX)?.unwrap_or(owner.user_id),
        sell_currency,
        buy_currency,
        sell_amount: amount(&fields, "sellAmount")?,
        buy_amount: amount(&fields, "buyAmount")?,
        status: status(&fields, STATUS_RULE)?.unwrap_or(ConvertStatus::Created),
        rate: rate(&fields, "rate")?,
        quote_id: match fields.text("quoteId")? {
            Some(text) => checked_text("quoteId", text, 1, QUOTE_ID_CHARS_MAX)?,
            None => app.chance.quote_id(),
        },
        created_at: whole(&fields, "createTime", 0, UNIX_MILLIS_MAX)?.map_or(now, UnixMillis),
        revision: 1,
    })
}

fn order_id(app: &App, fields: &Fields<'_>, now: UnixMillis) -> Result<OrderId, Problem> {
    match fields.text("order_id")? {
        Some(text) => OrderId::parse(&text)
            .ok_or_else(|| Problem::field("order_id", "must be 1 to 18 digits without a leading zero")),
        None => OrderId::new(app.chance.order_number(now)).ok_or_else(Problem::internal),
    }
}

const STATUS_RULE: &str = "must be 1 (created), 3 (success) or 6 (failed)";
/// To the other one no order is moved: it begins with it.
const MOVE_RULE: &str = "must be 3 (success) or 6 (failed)";

fn status(fields: &Fields<'_>, rule: &str) -> Result<Option<ConvertStatus>, Problem> {
    let Some(code) = fields.integer("status")? else { return Ok(None) };
    ConvertStatus::from_code(code).map(Some).ok_or_else(|| Problem::field("status", rule))
}

/// Adds a convert order of a merchant.
#[utoipa::path(post, path = "/operator/v1/merchants/{merchant_id}/convert-orders", tag = "Convert orders", operation_id = "create_convert_order",
    params(("merchant_id" = String, Path, description = "A merchant_id or sub_merchant_id")), request_body = ConvertOrderRequest,
    responses((status = 200, body = ConvertOrderAnswer), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn create(Named(merchant_id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let owner = identity::find_merchant(call.app(), &merchant_id).await?;
        let order = parse(call.app(), &owner, &call.body)?;
        let answer = edges::convert_order(&order);
        convert_orders::insert(call.app(), &owner, &order, call.keep(&answer), &call.actor).await?;
        Ok(answer)
    })
    .await
}

/// Moves a convert order: 1 to 3 or 6, which are final.
#[utoipa::path(patch, path = "/operator/v1/convert-orders/{order_id}", tag = "Convert orders", operation_id = "move_convert_order",
    params(("order_id" = String, Path, description = "The order")), request_body = ConvertOrderMove,
    responses((status = 200, body = ConvertOrderAnswer), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn advance(Named(order_id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let next = status(&Fields::parse(&call.body)?, MOVE_RULE)?;
        let next = next.ok_or_else(|| Problem::field("status", format_args!("is required, and {MOVE_RULE}")))?;
        let order = OrderId::parse(&order_id).ok_or(AppError::OrderNotFound)?;
        let keep = |_: &MerchantRow, order: &ConvertOrder| call.keep(&edges::convert_order(order));
        let (_, moved) = convert_orders::advance(call.app(), order, next, keep, &call.actor).await?;
        Ok(edges::convert_order(&moved))
    })
    .await
}

/// A convert order and every state that it came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConvertOrderHistory {
    /// The order as it is now.
    #[serde(flatten)]
    pub order: ConvertOrderAnswer,
    /// Whose it is.
    pub merchant_id: String,
    /// Its states, the oldest first.
    pub moves: Vec<ConvertOrderState>,
}

/// A state that a convert order came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConvertOrderState {
    /// 1 created, 3 success, 6 failed.
    pub status: i64,
    /// When, RFC 3339.
    pub at: String,
}

impl From<&ConvertMove> for ConvertOrderState {
    fn from(came_to: &ConvertMove) -> Self {
        Self { status: came_to.status.code(), at: rfc3339(came_to.at) }
    }
}

/// A convert order as operators see it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConvertOrderView {
    /// As its merchant sees it.
    #[serde(flatten)]
    pub order: ConvertOrderAnswer,
    /// Whose it is.
    pub merchant_id: String,
}

const MARK: Mark<OrderId> = Mark { read: OrderId::parse, write: OrderId::to_string };

fn status_of(code: &str) -> Option<ConvertStatus> {
    digits(code).and_then(ConvertStatus::from_code)
}

/// Convert orders, in the descending order of their numbers. Those that were made by the server stand newest first. `state=1` are those that the
/// back end has not carried out yet. A page may hold fewer orders than `limit` and yet have a `next`: so many are looked at for a page, and no more.
#[utoipa::path(get, path = "/operator/v1/convert-orders", tag = "Convert orders", operation_id = "list_convert_orders",
    params(("state" = Option<String>, Query, description = "Only in this state: 1 created, 3 success, 6 failed"),
        ("merchant_id" = Option<String>, Query, description = "Only of this merchant or sub-account"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<ConvertOrderView>), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let status = asked.filters.status(status_of, STATUS_RULE)?;
    let after = asked.after(&MARK)?;
    let of = match asked.filters.id("merchant_id")? {
        Some(merchant_id) => Some(identity::find_merchant(&desk.app, &merchant_id).await?),
        None => None,
    };
    let filter = ConvertOrderFilter { status, of: of.map(|of| (of.tenant, of.no)) };
    let page = convert_orders::list(&desk.app, filter, after, asked.limit).await?;
    let view = |(merchant_id, order): (String, ConvertOrder)| ConvertOrderView {
        order: edges::convert_order(&order),
        merchant_id,
    };
    let items = page.orders.into_iter().map(view).collect();
    Ok(json(&Page { items, next: page.next.as_ref().map(MARK.write) }))
}

/// A convert order, whoever's, and its history.
#[utoipa::path(get, path = "/operator/v1/convert-orders/{order_id}", tag = "Convert orders", operation_id = "show_convert_order",
    params(("order_id" = String, Path, description = "The order")),
    responses((status = 200, body = ConvertOrderHistory), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(order_id): Named<String>) -> Reply {
    let order = OrderId::parse(&order_id).ok_or(AppError::OrderNotFound)?;
    let (owner, order, moves) = convert_orders::history(&desk.app, order).await?;
    let moves = moves.iter().map(ConvertOrderState::from).collect();
    Ok(json(&ConvertOrderHistory { order: edges::convert_order(&order), merchant_id: owner.merchant_id, moves }))
}
