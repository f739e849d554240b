//! What becomes of payment orders in the model, and how they are found.

use std::collections::BTreeMap;

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;

use super::state::{State, guard, parent};
use super::{ModelStore, page};
use crate::batch::{Conflict, Key};
use crate::contract::{Asker, CommitError, Cursor, MerchantRow, StoreError};
use crate::payment_order::{
    ExpiredFirst, OrderName, PaymentMoveRow, PaymentOrderFilter, PaymentOrderPage, PaymentOrderRow, PaymentOrderWrite,
    PaymentOrders, Received,
};

/// An order with its request and its moves.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    row: PaymentOrderRow,
    received: Received,
    moves: Vec<PaymentMoveRow>,
}

/// Orders by the part of their number that is unique here.
pub(super) type Orders = BTreeMap<i64, Kept>;

fn owned_by(row: &PaymentOrderRow, tenant: TenantNo, merchant: MerchantNo) -> bool {
    (row.tenant, row.merchant) == (tenant, merchant)
}

impl State {
    pub(super) fn payment_order(&mut self, write: &PaymentOrderWrite) -> Result<(), CommitError> {
        match write {
            PaymentOrderWrite::Insert { row, received } => self.insert_payment_order(row, received),
            PaymentOrderWrite::Move { row, entry } => self.move_payment_order(row, entry),
        }
    }

    fn insert_payment_order(&mut self, row: &PaymentOrderRow, received: &Received) -> Result<(), CommitError> {
        let (id, trade_no) = (row.order.prepay_id, &row.order.trade_no);
        let mut others = self.payment_orders.values().map(|kept| &kept.row);
        let taken = others.any(|other| (other.merchant, &other.order.trade_no) == (row.merchant, trade_no));
        guard(!taken, || Conflict::Taken(Key::TradeNo(row.merchant, trade_no.clone())))?;
        guard(!self.payment_orders.contains_key(&id.number()), || Conflict::Taken(Key::PaymentOrder(id)))?;
        parent(self.is_of(row.merchant, row.tenant), "a merchant")?;
        let kept = Kept { row: row.clone(), received: received.clone(), moves: Vec::new() };
        self.payment_orders.insert(id.number(), kept);
        Ok(())
    }

    fn move_payment_order(&mut self, row: &PaymentOrderRow, entry: &PaymentMoveRow) -> Result<(), CommitError> {
        let moved = || CommitError::Conflict(Conflict::Moved(Key::PaymentOrder(row.order.prepay_id)));
        let kept = self.payment_orders.get_mut(&row.order.prepay_id.number());
        let kept = kept.filter(|kept| owned_by(&kept.row, row.tenant, row.merchant)).ok_or_else(moved)?;
        if kept.row.order.revision != row.order.revision - 1 {
            return Err(moved());
        }
        let stored = &mut kept.row.order;
        let PaymentOrder { status, actual_amount, transact_at, paid_at, fee, revision, .. } = row.order.clone();
        (stored.status, stored.revision, stored.fee) = (status, revision, fee);
        (stored.actual_amount, stored.transact_at, stored.paid_at) = (actual_amount, transact_at, paid_at);
        kept.moves.push(entry.clone());
        Ok(())
    }

    /// Every order as it stands.
    pub(super) fn payment_order_rows(&self) -> impl Iterator<Item = &PaymentOrderRow> {
        self.payment_orders.values().map(|kept| &kept.row)
    }

    fn kept(&self, id: PrepayId) -> Option<&Kept> {
        self.payment_orders.get(&id.number()).filter(|kept| kept.row.order.prepay_id == id)
    }
}

impl PaymentOrders for ModelStore {
    async fn payment_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        name: OrderName,
    ) -> Result<Option<PaymentOrderRow>, StoreError> {
        let state = self.state();
        let mut own = state.payment_orders.values().map(|kept| &kept.row).filter(|row| owned_by(row, tenant, merchant));
        let found = own.find(|row| match &name {
            OrderName::Prepay(id) => row.order.prepay_id == *id,
            OrderName::TradeNo(no) => row.order.trade_no == *no,
        });
        Ok(found.cloned())
    }

    async fn payment_order_owner(&self, id: PrepayId) -> Result<Option<(MerchantRow, PaymentOrderRow)>, StoreError> {
        let state = self.state();
        let with_owner = |kept: &Kept| Some((state.merchants.get(&kept.row.merchant)?.clone(), kept.row.clone()));
        Ok(state.kept(id).and_then(with_owner))
    }

    async fn payment_order_moves(&self, tenant: TenantNo, id: PrepayId) -> Result<Vec<PaymentMoveRow>, StoreError> {
        let state = self.state();
        let kept = state.kept(id).filter(|kept| kept.row.tenant == tenant);
        Ok(kept.map(|kept| kept.moves.clone()).unwrap_or_default())
    }

    async fn payment_order_received(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        id: PrepayId,
    ) -> Result<Option<Received>, StoreError> {
        let state = self.state();
        let kept = state.kept(id).filter(|kept| owned_by(&kept.row, tenant, merchant));
        Ok(kept.map(|kept| kept.received.clone()))
    }

    async fn payment_orders(
        &self,
        _asker: Asker,
        filter: PaymentOrderFilter,
        now: UnixMillis,
        cursor: Cursor<PrepayId>,
        looked_max: u32,
    ) -> Result<PaymentOrderPage, StoreError> {
        let state = self.state();
        let newest_first = state.payment_orders.values().rev().map(|kept| &kept.row);
        let (found, next) = filter.page(newest_first, now, &cursor, looked_max);
        let named = |row: &PaymentOrderRow| {
            let owner = state.merchants.get(&row.merchant).map(|owner| owner.merchant_id.clone());
            (owner.unwrap_or_default(), row.clone())
        };
        Ok(PaymentOrderPage { orders: found.into_iter().map(named).collect(), next })
    }

    async fn payment_orders_expired(
        &self,
        _lanes: LaneSet,
        now: UnixMillis,
        first: ExpiredFirst,
        limit: u32,
    ) -> Result<Vec<Result<PaymentOrderRow, StoreError>>, StoreError> {
        let state = self.state();
        let has_expired =
            |row: &&PaymentOrderRow| row.order.status == PaymentStatus::Pending && row.order.expires_at <= now;
        let mut found: Vec<_> = state.payment_orders.values().map(|kept| &kept.row).filter(has_expired).collect();
        found.sort_by_key(|row| (row.order.expires_at, row.order.prepay_id));
        if first == ExpiredFirst::Newest {
            found.reverse();
        }
        Ok(page(found.into_iter().cloned().map(Ok), limit))
    }
}
