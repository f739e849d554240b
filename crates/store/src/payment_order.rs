//! Payment orders: what is kept of them, how they change, and how they are found.
//!
//! An order is a row that is made once and moved by its revision; each move leaves a row of its own beside it. What came over the wire when it
//! was made has a row of its own, too, and is read only by who asks for it.

use std::future::Future;
use std::sync::Arc;

use countersign_domain::fees::{Fee, OrderFee};
use countersign_domain::ids::{ApplicationNo, MerchantNo, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::{Content, PaymentKind, PaymentOrder, PaymentStatus, PrepayId};
use countersign_domain::rules::Markup;
use countersign_domain::time::UnixMillis;

use crate::contract::{Asker, Cursor, MerchantRow, StoreError};
use crate::payment_listing::numbers;
use crate::read::{Columns, Fields, exact};

/// A payment order with all that is known of its making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentOrderRow {
    /// Tenant of the owner.
    pub tenant: TenantNo,
    /// Whose it is.
    pub merchant: MerchantNo,
    /// The application that made it, and gets its callbacks.
    pub application: ApplicationNo,
    /// Its ClientId.
    pub client_id: String,
    /// Who made it, as in the audit log.
    pub actor: String,
    /// By which request.
    pub request_id: String,
    /// The order.
    pub order: PaymentOrder,
}

/// What came over the wire when an order was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The request line and the headers that the signature rests on, each on a line.
    pub head: String,
    /// The body, byte for byte.
    pub body: Vec<u8>,
}

/// A move of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentMoveRow {
    /// The revision that the order has since: 2, 3, ...
    pub revision: i64,
    /// Where it stood.
    pub was: PaymentStatus,
    /// Where it stands since.
    pub status: PaymentStatus,
    /// When.
    pub at: UnixMillis,
    /// Who, as in the audit log.
    pub actor: String,
    /// By which request; empty where there was none.
    pub request_id: String,
}

/// What becomes of payment orders.
#[derive(Clone, Debug)]
pub enum PaymentOrderWrite {
    /// Adds an order. Guards: its trade number is new in its merchant, its number is new.
    Insert {
        /// The order, pending, at revision 1.
        row: PaymentOrderRow,
        /// The request, which may be long and is kept as it came.
        received: Arc<Received>,
    },
    /// Replaces what of an order changes, and appends to its history. Guard: the stored revision is `row.order.revision - 1`.
    Move {
        /// The order as it becomes.
        row: PaymentOrderRow,
        /// The move.
        entry: PaymentMoveRow,
    },
}

impl PaymentOrderWrite {
    /// The instant at which it makes an order paid whose fee rests on the rule in force then.
    pub(crate) const fn paid_by_rule(&self) -> Option<UnixMillis> {
        match self {
            Self::Move { row, .. } if row.order.fee.is_some() => row.order.paid_at,
            Self::Move { .. } | Self::Insert { .. } => None,
        }
    }

    /// The order as it becomes.
    pub(crate) const fn row(&self) -> &PaymentOrderRow {
        match self {
            Self::Insert { row, .. } | Self::Move { row, .. } => row,
        }
    }

    /// What is wrong with it, whatever the rows say.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Insert { row, .. } => {
                let begins = row.order.revision == 1 && row.order.status == PaymentStatus::Pending;
                (!begins || !is_sound(&row.order)).then_some("a payment order begins pending at revision 1")
            }
            Self::Move { row, entry } => {
                let is_next = row.order.revision == entry.revision && entry.revision > 1;
                let fits = is_next && entry.status == row.order.status && is_sound(&row.order);
                (!fits).then_some("a move leads to the revision and the status of its order")
            }
        }
    }
}

/// What a row must hold, whoever wrote it.
fn is_sound(order: &PaymentOrder) -> bool {
    let is_paid = order.status == PaymentStatus::Paid;
    order.paid_at.is_some() == is_paid && (is_paid || order.fee.is_none())
}

/// An order as a merchant names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderName {
    /// By our number.
    Prepay(PrepayId),
    /// By the merchant's own.
    TradeNo(String),
}

/// Which orders to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaymentOrderFilter {
    /// Only those that stand so at the time of the question.
    pub status: Option<PaymentStatus>,
    /// Only of this merchant.
    pub of: Option<(TenantNo, MerchantNo)>,
    /// Only with this trade number, whoever's.
    pub trade_no: Option<String>,
    /// Only those made at this instant or later.
    pub from: Option<UnixMillis>,
    /// Only those made before this instant.
    pub to: Option<UnixMillis>,
    /// Only with an `orderAmount` of this or more.
    pub amount_from: Option<Amount>,
    /// Only with an `orderAmount` of this or less.
    pub amount_to: Option<Amount>,
}

impl PaymentOrderFilter {
    /// Whether an order is one that the index leads to.
    fn is_led_to(&self, row: &PaymentOrderRow) -> bool {
        let ((least, most), number) = (numbers(self), row.order.prepay_id.number());
        self.of.is_none_or(|of| (row.tenant, row.merchant) == of)
            && self.trade_no.as_ref().is_none_or(|no| row.order.trade_no == *no)
            && least.is_none_or(|least| number >= least)
            && most.is_none_or(|most| number <= most)
    }

    /// Whether an order that the index leads to is meant.
    fn is_meant(&self, row: &PaymentOrderRow, now: UnixMillis) -> bool {
        self.from.is_none_or(|from| row.order.created_at >= from)
            && self.to.is_none_or(|to| row.order.created_at < to)
            && self.status.is_none_or(|status| row.order.status_at(now) == status)
            && self.amount_from.is_none_or(|least| row.order.content.amount >= least)
            && self.amount_to.is_none_or(|most| row.order.content.amount <= most)
    }

    /// Whether every order that the index leads to is meant, but for those that were made just outside of the time that is asked for.
    const fn takes_all(&self) -> bool {
        self.status.is_none() && self.amount_from.is_none() && self.amount_to.is_none()
    }

    /// The page of these rows, all of them, newest first: what the model answers.
    pub(crate) fn page<'r>(
        &self,
        rows: impl Iterator<Item = &'r PaymentOrderRow>,
        now: UnixMillis,
        cursor: &Cursor<PrepayId>,
        looked_max: u32,
    ) -> (Vec<&'r PaymentOrderRow>, Option<PrepayId>) {
        let limit = cursor.limit as usize;
        let before = |row: &&PaymentOrderRow| cursor.after.is_none_or(|after| row.order.prepay_id < after);
        let mut found: Vec<&PaymentOrderRow> = Vec::new();
        for (looked, row) in rows.filter(before).filter(|row| self.is_led_to(row)).enumerate() {
            if !self.takes_all() && looked >= looked_max as usize {
                return (found, Some(row.order.prepay_id.next()));
            }
            if self.is_meant(row, now) {
                if found.len() == limit {
                    let last = found.last().map(|last| last.order.prepay_id);
                    return (found, last);
                }
                found.push(row);
            }
        }
        (found, None)
    }
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaymentOrderPage {
    /// The orders, each with its owner's public id.
    pub orders: Vec<(String, PaymentOrderRow)>,
    /// Where the next page goes on; none: there is nothing more. A page may hold fewer orders than asked for, or none, and yet not be the last
    /// one: so many are looked at and no more.
    pub next: Option<PrepayId>,
}

/// Which of the expired orders come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredFirst {
    /// Those that expired longest ago.
    Oldest,
    /// Those that expired last.
    Newest,
}

/// What every store promises about payment orders.
pub trait PaymentOrders {
    /// An order of this merchant; another merchant's is not found by construction.
    fn payment_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        name: OrderName,
    ) -> impl Future<Output = Result<Option<PaymentOrderRow>, StoreError>> + Send;

    /// An order for the back end, with its owner, whoever that is.
    fn payment_order_owner(
        &self,
        id: PrepayId,
    ) -> impl Future<Output = Result<Option<(MerchantRow, PaymentOrderRow)>, StoreError>> + Send;

    /// The moves of an order, in order.
    fn payment_order_moves(
        &self,
        tenant: TenantNo,
        id: PrepayId,
    ) -> impl Future<Output = Result<Vec<PaymentMoveRow>, StoreError>> + Send;

    /// What came over the wire when this merchant's order was made.
    fn payment_order_received(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        id: PrepayId,
    ) -> impl Future<Output = Result<Option<Received>, StoreError>> + Send;

    /// Orders newest first, as they stand at `now`, of all tenants or of one merchant. Where the filter asks for a status or an amount, which no index
    /// leads to, so many are looked at for a page and no more.
    fn payment_orders(
        &self,
        asker: Asker,
        filter: PaymentOrderFilter,
        now: UnixMillis,
        page: Cursor<PrepayId>,
        looked_max: u32,
    ) -> impl Future<Output = Result<PaymentOrderPage, StoreError>> + Send;

    /// Orders of all tenants that are stored as pending and have expired by `now`, of applications in these lanes: at most `limit` of each lane,
    /// beginning at the end that `first` names. Stores of one node know no lanes: all. An order that cannot be read back is listed as its error, so
    /// that it does not keep the other orders waiting.
    fn payment_orders_expired(
        &self,
        lanes: LaneSet,
        now: UnixMillis,
        first: ExpiredFirst,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<Result<PaymentOrderRow, StoreError>>, StoreError>> + Send;
}

/// The columns that [`read`] reads, of a table `p`, in words of both dialects.
macro_rules! payment_order_columns {
    () => {
        "p.tenant_no, p.order_no, p.tail, p.merchant_no, p.application_no, p.client_id, p.trade_no, p.kind, p.currency, p.amount, \
         p.merchant_user_id, p.channel_id, p.goods_name, p.goods_detail, p.terminal_type, p.return_url, p.cancel_url, p.status, \
         p.created_at, p.expire_at, p.actual_amount, p.transact_at, p.paid_at, p.fee_config_id, p.fee_version_no, p.fee_r_markup, \
         p.fee_f_markup, p.r_fee, p.f_fee, p.worked_sum, p.revision, p.actor, p.request_id"
    };
}

pub(crate) use payment_order_columns;

/// An order as a row of either dialect has it, and where the next columns begin.
pub(crate) fn read<R: Columns>(row: &R) -> Result<(PaymentOrderRow, usize), StoreError> {
    let mut f = Fields::new(row, "payment_order", 0, 1);
    let tenant = TenantNo(f.int()?);
    let (number, tail) = (f.int()?, f.int()?);
    let prepay_id = PrepayId::from_parts(number, tail).ok_or_else(|| f.corrupt())?;
    let (merchant, application, client_id) = (MerchantNo(f.int()?), ApplicationNo(f.int()?), f.text()?);
    let trade_no = f.text()?;
    let content = Content {
        kind: f.word(PaymentKind::from_name)?,
        currency: f.word(Currency::parse)?,
        amount: f.amount()?,
        merchant_user_id: f.opt_text()?,
        channel_id: f.opt_text()?,
        goods_name: f.opt_text()?,
        goods_detail: f.opt_text()?,
    };
    let order = PaymentOrder {
        prepay_id,
        trade_no,
        content,
        terminal_type: f.opt_text()?,
        return_url: f.opt_text()?,
        cancel_url: f.opt_text()?,
        status: f.word(PaymentStatus::from_name)?,
        created_at: f.millis()?,
        expires_at: f.millis()?,
        actual_amount: f.opt_int()?.map(Amount::from_micros),
        transact_at: f.opt_millis()?,
        paid_at: f.opt_millis()?,
        fee: fee(&mut f)?,
        revision: f.count(1)?,
    };
    if !is_sound(&order)
        || order.content.amount <= Amount::ZERO
        || order.actual_amount.is_some_and(|a| a <= Amount::ZERO)
    {
        return Err(f.corrupt());
    }
    let (actor, request_id) = (f.text()?, f.text()?);
    Ok((PaymentOrderRow { tenant, merchant, application, client_id, actor, request_id, order }, f.next()))
}

/// The seven columns of a fee: the rule's two, then five that are there together or not at all.
pub(crate) fn fee<R: Columns>(f: &mut Fields<'_, R>) -> Result<Option<OrderFee>, StoreError> {
    let config_id = f.opt_bytes()?.map(|bytes| SortedId(u128::from_be_bytes(bytes)));
    let version_no = f.opt_int()?;
    let r = f.opt_text()?.map(|text| exact(&text).ok_or_else(|| f.corrupt())).transpose()?;
    let fixed = f.opt_int()?.map(Amount::from_micros);
    let (r_fee, f_fee) = (f.opt_int()?.map(Amount::from_micros), f.opt_int()?.map(Amount::from_micros));
    let worked_sum = f.opt_text()?;
    let is_sound = config_id.is_some() == version_no.is_some() && version_no.is_none_or(|no| no >= 1);
    match (r, fixed, r_fee, f_fee, worked_sum) {
        (Some(r), Some(fixed), Some(r_fee), Some(f_fee), Some(worked_sum)) if is_sound => {
            let markup = Markup::new(r, fixed.to_decimal()).map_err(|_| f.corrupt())?;
            if r_fee < Amount::ZERO || f_fee < Amount::ZERO {
                return Err(f.corrupt());
            }
            Ok(Some(OrderFee { config_id, version_no, markup, fee: Fee { r_fee, f_fee }, worked_sum }))
        }
        (None, None, None, None, None) if config_id.is_none() && version_no.is_none() => Ok(None),
        _ => Err(f.corrupt()),
    }
}

/// An order with its owner's public id behind it.
pub(crate) fn read_listed<R: Columns>(row: &R) -> Result<(String, PaymentOrderRow), StoreError> {
    let (order, next) = read(row)?;
    Ok((Fields::new(row, "payment_order", next, 1).text()?, order))
}

/// A move: number of the order, then its own columns.
pub(crate) fn read_move<R: Columns>(row: &R) -> Result<PaymentMoveRow, StoreError> {
    let mut f = Fields::new(row, "payment_order_move", 1, 0);
    Ok(PaymentMoveRow {
        revision: f.count(2)?,
        was: f.word(PaymentStatus::from_name)?,
        status: f.word(PaymentStatus::from_name)?,
        at: f.millis()?,
        actor: f.text()?,
        request_id: f.text()?,
    })
}

/// What came over the wire, behind the number of the order.
pub(crate) fn read_received<R: Columns>(row: &R) -> Result<Received, StoreError> {
    let mut f = Fields::new(row, "payment_order_request", 1, 0);
    Ok(Received { head: f.text()?, body: f.blob()?.to_vec() })
}
