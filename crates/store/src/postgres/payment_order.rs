//! Payment orders: what a group must see of them, what it writes, and how they are found.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::money::Amount;
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::PostgresStore;
use super::nodes::numbers;
use super::payment_sql::{PAYMENT_ORDERS, PAYMENT_ORDERS_EDGE};
use super::plan::{Column, Statement, columns};
use super::queries::{Found, many, one};
use super::readers::Readers;
use super::rows::{self, Fields};
use super::session::Params;
use super::statements::Sql;
use crate::asker::Asker;
use crate::batch::{Conflict, Key};
use crate::contract::{CommitError, Cursor, MerchantRow, StoreError};
use crate::payment_listing::{Listing, StatementEnd, Value, page};
use crate::payment_order::{
    ExpiredFirst, OrderName, PaymentMoveRow, PaymentOrderFilter, PaymentOrderPage, PaymentOrderRow, PaymentOrderWrite,
    PaymentOrders, Received, read, read_listed, read_move, read_received,
};

/// The orders that the guards of a group are about.
#[derive(Debug, Default)]
pub(super) struct OrderAsk {
    /// Tenant, merchant, number, trade number.
    added: Vec<(i64, i64, i64, String)>,
    /// Tenant, merchant, number.
    moved: Vec<(i64, i64, i64)>,
    /// Those that must be as they were read.
    guarded: Vec<(i64, i64, i64)>,
}

impl OrderAsk {
    pub(super) fn add(&mut self, write: &PaymentOrderWrite) {
        let row = write.row();
        let (tenant, merchant, number) = (row.tenant.0, row.merchant.0, row.order.prepay_id.number());
        match write {
            PaymentOrderWrite::Insert { .. } => {
                self.added.push((tenant, merchant, number, row.order.trade_no.clone()));
            }
            PaymentOrderWrite::Move { .. } => self.moved.push((tenant, merchant, number)),
        }
    }

    /// An order that must be as it was read. Where somebody else is moving it, it counts as moved: nobody waits for that.
    pub(super) fn add_guarded(&mut self, tenant: TenantNo, merchant: MerchantNo, id: PrepayId) {
        self.guarded.push((tenant.0, merchant.0, id.number()));
    }

    pub(super) fn statements(&self) -> Vec<Statement<'_>> {
        let mut all: Vec<Statement<'_>> = Vec::new();
        for (sql, of) in [(Sql::PaymentOrdersLock, &self.moved), (Sql::PaymentOrdersShare, &self.guarded)] {
            if !of.is_empty() {
                let mut of = of.clone();
                of.sort_unstable();
                of.dedup();
                all.push((sql, columns![of; |of| of.0, |of| of.1, |of| of.2]));
            }
        }
        if !self.added.is_empty() {
            let of = columns![self.added; |of| of.0, |of| of.1, |of| of.3.as_str(), |of| of.2];
            all.push((Sql::PaymentOrdersTaken, of));
        }
        all
    }

    /// What those statements found.
    pub(super) fn read(&self, next: &mut impl FnMut() -> Vec<Row>) -> Result<OrderRows, StoreError> {
        let mut seen = OrderRows::default();
        for of in [&self.moved, &self.guarded] {
            let found = if of.is_empty() { Vec::new() } else { next() };
            for row in found {
                let mut f = Fields::new(&row, "payment_order", 0, 2);
                seen.revisions.insert((f.int()?, f.int()?, f.int()?), f.int()?);
            }
        }
        if !self.added.is_empty() {
            for row in next() {
                let mut f = Fields::new(&row, "payment_order", 0, 2);
                let (tenant, merchant) = (f.int()?, f.int()?);
                seen.numbers.insert((tenant, f.int()?));
                seen.trade_nos.insert((merchant, f.text()?));
            }
        }
        Ok(seen)
    }
}

/// Orders that guards look at.
#[derive(Debug, Default)]
pub(super) struct OrderRows {
    /// By merchant.
    trade_nos: HashSet<(i64, String)>,
    /// By tenant.
    numbers: HashSet<(i64, i64)>,
    /// Of an order, by tenant, merchant and number.
    revisions: HashMap<(i64, i64, i64), i64>,
}

/// Refuses with this conflict what a guard does not let through.
pub(super) fn guard(holds: bool, conflict: Conflict) -> Result<(), CommitError> {
    if holds { Ok(()) } else { Err(CommitError::Conflict(conflict)) }
}

impl OrderRows {
    /// Judges a write by what there was and what its batch has changed, and notes what it changes.
    pub(super) fn judge(&self, turn: &mut Self, write: &PaymentOrderWrite) -> Result<(), CommitError> {
        let (row, id) = (write.row(), write.row().order.prepay_id);
        let (key, own) = ((row.tenant.0, id.number()), (row.tenant.0, row.merchant.0, id.number()));
        match write {
            PaymentOrderWrite::Insert { .. } => {
                let trade_no = (row.merchant.0, row.order.trade_no.clone());
                let is_new = !self.trade_nos.contains(&trade_no) && !turn.trade_nos.contains(&trade_no);
                guard(is_new, Conflict::Taken(Key::TradeNo(row.merchant, trade_no.1.clone())))?;
                let is_new = !self.numbers.contains(&key) && !turn.numbers.contains(&key);
                guard(is_new, Conflict::Taken(Key::PaymentOrder(id)))?;
                turn.trade_nos.insert(trade_no);
                turn.numbers.insert(key);
            }
            PaymentOrderWrite::Move { .. } => {
                let is_next = self.revision(turn, own).is_some_and(|stored| stored + 1 == row.order.revision);
                guard(is_next, Conflict::Moved(Key::PaymentOrder(id)))?;
            }
        }
        turn.revisions.insert(own, row.order.revision);
        Ok(())
    }

    /// The revision of an order, by tenant, merchant and number, as its batch has changed it so far.
    pub(super) fn revision(&self, turn: &Self, own: (i64, i64, i64)) -> Option<i64> {
        turn.revisions.get(&own).or_else(|| self.revisions.get(&own)).copied()
    }

    /// What a batch that was let through has changed is so for the next one.
    pub(super) fn extend(&mut self, turn: Self) {
        self.trade_nos.extend(turn.trade_nos);
        self.numbers.extend(turn.numbers);
        self.revisions.extend(turn.revisions);
    }
}

/// Writes of orders whose guards held.
#[derive(Debug, Default)]
pub(super) struct OrderPlan<'a> {
    added: Vec<(&'a PaymentOrderRow, &'a Received)>,
    moved: Vec<(&'a PaymentOrderRow, &'a PaymentMoveRow)>,
}

impl<'a> OrderPlan<'a> {
    pub(super) fn add(&mut self, write: &'a PaymentOrderWrite) {
        match write {
            PaymentOrderWrite::Insert { row, received } => self.added.push((row, received)),
            PaymentOrderWrite::Move { row, entry } => self.moved.push((row, entry)),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.moved.is_empty()
    }

    pub(super) fn statements(&self) -> Vec<Statement<'a>> {
        let mut all = Vec::new();
        if !self.added.is_empty() {
            all.extend([self.orders(), self.requests()]);
        }
        if !self.moved.is_empty() {
            all.extend(self.last_paid());
            all.extend([self.latest(), self.moves()]);
        }
        all
    }

    /// By key, as everywhere.
    fn orders(&self) -> Statement<'a> {
        let mut added = self.added.clone();
        added.sort_by_key(|(row, _)| (&row.order.trade_no, row.tenant, row.merchant));
        let columns = columns![added;
            |(row, _)| row.tenant.0,
            |(row, _)| row.order.prepay_id.number(),
            |(row, _)| row.order.prepay_id.tail(),
            |(row, _)| row.merchant.0,
            |(row, _)| row.application.0,
            |(row, _)| row.client_id.as_str(),
            |(row, _)| row.order.trade_no.as_str(),
            |(row, _)| row.order.content.kind.name(),
            |(row, _)| row.order.content.currency.as_str(),
            |(row, _)| row.order.content.amount.micros(),
            |(row, _)| row.order.content.merchant_user_id.as_deref(),
            |(row, _)| row.order.content.channel_id.as_deref(),
            |(row, _)| row.order.content.goods_name.as_deref(),
            |(row, _)| row.order.content.goods_detail.as_deref(),
            |(row, _)| row.order.terminal_type.as_deref(),
            |(row, _)| row.order.return_url.as_deref(),
            |(row, _)| row.order.cancel_url.as_deref(),
            |(row, _)| row.order.status.name(),
            |(row, _)| row.order.created_at.0,
            |(row, _)| row.order.expires_at.0,
            |(row, _)| row.order.revision,
            |(row, _)| row.actor.as_str(),
            |(row, _)| row.request_id.as_str(),
        ];
        (Sql::PaymentOrdersInsert, columns)
    }

    /// What came over the wire, by key.
    fn requests(&self) -> Statement<'a> {
        let mut added = self.added.clone();
        added.sort_by_key(|(row, _)| (row.tenant, row.order.prepay_id.number()));
        let columns = columns![added;
            |(row, _)| row.tenant.0,
            |(row, _)| row.order.prepay_id.number(),
            |(_, received)| received.head.as_str(),
            |(_, received)| received.body.as_slice(),
        ];
        (Sql::PaymentOrderRequestsInsert, columns)
    }

    /// When an order of each sub-account was paid last; none: no order becomes paid that has a fee.
    fn last_paid(&self) -> Option<Statement<'a>> {
        let mut last: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for (row, _) in self.moved.iter().filter(|(row, _)| row.order.fee.is_some()) {
            let paid_at = row.order.paid_at.map_or(i64::MIN, |at| at.0);
            let stored = last.entry((row.tenant.0, row.merchant.0)).or_insert(paid_at);
            *stored = paid_at.max(*stored);
        }
        (!last.is_empty())
            .then(|| (Sql::LastPaidPut, columns![last; |(key, _)| key.0, |(key, _)| key.1, |(_, at)| *at]))
    }

    /// Each order as its last move leaves it.
    fn latest(&self) -> Statement<'a> {
        let mut latest: BTreeMap<(i64, i64), &'a PaymentOrderRow> = BTreeMap::new();
        for (row, _) in &self.moved {
            latest.insert((row.tenant.0, row.order.prepay_id.number()), row);
        }
        let columns = columns![latest;
            |(_, row)| row.tenant.0,
            |(_, row)| row.merchant.0,
            |(_, row)| row.order.prepay_id.number(),
            |(_, row)| row.order.status.name(),
            |(_, row)| row.order.actual_amount.map(Amount::micros),
            |(_, row)| row.order.transact_at.map(|at| at.0),
            |(_, row)| row.order.paid_at.map(|at| at.0),
            |(_, row)| row.order.fee.as_ref().and_then(|fee| fee.config_id).map(|id| id.0.to_be_bytes().to_vec()),
            |(_, row)| row.order.fee.as_ref().and_then(|fee| fee.version_no),
            |(_, row)| row.order.fee.as_ref().map(|fee| fee.markup.r().to_string()),
            |(_, row)| row.order.fee.as_ref().map(|fee| fee.markup.f().micros()),
            |(_, row)| row.order.fee.as_ref().map(|fee| fee.fee.r_fee.micros()),
            |(_, row)| row.order.fee.as_ref().map(|fee| fee.fee.f_fee.micros()),
            |(_, row)| row.order.fee.as_ref().map(|fee| fee.worked_sum.as_str()),
            |(_, row)| row.order.revision,
        ];
        (Sql::PaymentOrdersMove, columns)
    }

    fn moves(&self) -> Statement<'a> {
        let columns = columns![self.moved;
            |(row, _)| row.tenant.0,
            |(row, _)| row.order.prepay_id.number(),
            |(_, entry)| entry.revision,
            |(_, entry)| entry.was.name(),
            |(_, entry)| entry.status.name(),
            |(_, entry)| entry.at.0,
            |(_, entry)| entry.actor.as_str(),
            |(_, entry)| entry.request_id.as_str(),
        ];
        (Sql::PaymentOrderMovesInsert, columns)
    }
}

fn whole(row: &Row) -> Found<PaymentOrderRow> {
    Ok(read(row)?.0)
}

fn typed(value: &Value) -> (&(dyn ToSql + Sync), Type) {
    match value {
        Value::Int(value) => (value, Type::INT8),
        Value::Text(value) => (value, Type::TEXT),
    }
}

/// The rows of a list's statement, whose end was made for what is asked.
pub(super) async fn listed(from: &Readers, begin: &str, (end, values): StatementEnd) -> Found<Vec<Row>> {
    let (sql, values) = (Arc::new(format!("{begin}{end}")), Arc::new(values));
    let found = from.read(|session| {
        let (sql, values) = (Arc::clone(&sql), Arc::clone(&values));
        async move {
            let params: Vec<(&(dyn ToSql + Sync), Type)> = values.iter().map(typed).collect();
            session.client().query_typed(&sql, &params).await
        }
    });
    found.await
}

impl PaymentOrders for PostgresStore {
    async fn payment_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        name: OrderName,
    ) -> Result<Option<PaymentOrderRow>, StoreError> {
        match name {
            OrderName::Prepay(id) => {
                let of: Params<'_> = &[&tenant.0, &merchant.0, &id.number(), &id.tail()];
                one(&self.readers, Sql::PaymentOrder, of, whole).await
            }
            OrderName::TradeNo(no) => {
                one(&self.readers, Sql::PaymentOrderByTradeNo, &[&tenant.0, &merchant.0, &no], whole).await
            }
        }
    }

    async fn payment_order_owner(&self, id: PrepayId) -> Result<Option<(MerchantRow, PaymentOrderRow)>, StoreError> {
        one(&self.readers, Sql::PaymentOrderOwner, &[&id.number(), &id.tail()], |row| {
            let (order, next) = read(row)?;
            Ok((rows::merchant(row, next)?.0, order))
        })
        .await
    }

    async fn payment_order_moves(&self, tenant: TenantNo, id: PrepayId) -> Result<Vec<PaymentMoveRow>, StoreError> {
        many(&self.readers, Sql::PaymentOrderMoves, &[&tenant.0, &id.number()], read_move).await
    }

    async fn payment_order_received(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        id: PrepayId,
    ) -> Result<Option<Received>, StoreError> {
        let of: Params<'_> = &[&tenant.0, &merchant.0, &id.number(), &id.tail()];
        one(&self.readers, Sql::PaymentOrderReceived, of, read_received).await
    }

    async fn payment_orders(
        &self,
        asker: Asker,
        filter: PaymentOrderFilter,
        now: UnixMillis,
        cursor: Cursor<PrepayId>,
        looked_max: u32,
    ) -> Result<PaymentOrderPage, StoreError> {
        let listing = Listing::new(&filter, now, cursor.after, '$');
        let mut edge = None;
        if let Some(asked) = listing.edge(looked_max) {
            let found = listed(self.lists(asker), PAYMENT_ORDERS_EDGE, asked).await?;
            let read = |row: &Row| {
                let mut f = Fields::new(row, "payment_order", 0, 0);
                PrepayId::from_parts(f.int()?, f.int()?).ok_or_else(|| f.corrupt())
            };
            edge = found.first().map(read).transpose()?;
        }
        let found = listed(self.lists(asker), PAYMENT_ORDERS, listing.rows(edge, cursor.limit)).await?;
        let orders = found.iter().map(read_listed).collect::<Result<_, _>>()?;
        Ok(page(orders, cursor.limit, edge))
    }

    async fn payment_orders_expired(
        &self,
        lanes: LaneSet,
        now: UnixMillis,
        first: ExpiredFirst,
        limit: u32,
    ) -> Result<Vec<Result<PaymentOrderRow, StoreError>>, StoreError> {
        let of: Params<'_> = &[&numbers(lanes), &now.0, &i64::from(limit)];
        let sql = match first {
            ExpiredFirst::Oldest => Sql::PaymentOrdersExpired,
            ExpiredFirst::Newest => Sql::PaymentOrdersExpiredLast,
        };
        many(&self.readers, sql, of, |row| Ok(whole(row))).await
    }
}
