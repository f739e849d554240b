//! Paid orders of the model.

use countersign_domain::payment_order::PrepayId;

use super::{ModelStore, page};
use crate::contract::{Cursor, StoreError};
use crate::paid_order::{PaidOrder, PaidOrders, PaidSpan, Payee};
use crate::payment_order::PaymentOrderRow;

impl PaidOrders for ModelStore {
    async fn paid_orders_settle(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn paid_orders(&self, span: PaidSpan, cursor: Cursor<PrepayId>) -> Result<Vec<PaidOrder>, StoreError> {
        let state = self.state();
        let is_of = |row: &PaymentOrderRow| match span.of {
            Payee::Merchant(tenant, merchant) => (row.tenant, row.merchant) == (tenant, merchant),
            Payee::Tenant(tenant) => row.tenant == tenant,
        };
        let paid = |row: &PaymentOrderRow| {
            let order = &row.order;
            let paid_at = order.paid_at.filter(|at| (span.from..span.to).contains(at))?;
            let owner = state.merchants.get(&row.merchant)?;
            Some(PaidOrder {
                prepay_id: order.prepay_id,
                merchant_id: owner.merchant_id.clone(),
                trade_no: order.trade_no.clone(),
                currency: order.content.currency.clone(),
                amount: order.content.amount,
                actual_amount: order.actual_amount.unwrap_or(order.content.amount),
                paid_at,
                fee: order.fee.clone(),
            })
        };
        let mut found: Vec<PaidOrder> = state.payment_order_rows().filter(|row| is_of(row)).filter_map(paid).collect();
        found.sort_by_key(|order| order.prepay_id);
        let behind = found.into_iter().filter(|order| cursor.after.is_none_or(|after| order.prepay_id > after));
        Ok(page(behind, cursor.limit))
    }
}
