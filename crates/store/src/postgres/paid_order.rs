//! Paid orders: how they are walked over.

use std::time::Duration;

use countersign_domain::payment_order::PrepayId;
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;

use super::PostgresStore;
use super::queries::many;
use super::session::Params;
use super::statements::Sql;
use crate::asker::Asker;
use crate::contract::{Cursor, StoreError};
use crate::paid_order::{self, Numbers, PaidOrder, PaidOrders, PaidSpan, Payee, SETTLE_WITHIN, read};
use crate::read::Fields;

/// Between two looks at what is under way.
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

impl PaidOrders for PostgresStore {
    async fn paid_orders(&self, span: PaidSpan, page: Cursor<PrepayId>) -> Result<Vec<PaidOrder>, StoreError> {
        let [soon, late] = match span.of {
            Payee::Merchant(..) => [Sql::PaidOrdersOfMerchant, Sql::LateOrdersOfMerchant],
            Payee::Tenant(_) => [Sql::PaidOrdersOfTenant, Sql::LateOrdersOfTenant],
        };
        let (after, limit) = (paid_order::after(&page), page.limit);
        let soon = self.walk(soon, &span, span.soon(after), limit).await?;
        let late = self.walk(late, &span, paid_order::late(after, &soon), limit).await?;
        Ok(paid_order::join(soon, late, limit))
    }

    /// Whoever has written to the table holds a lock on it until its commit is over and seen, also while it waits for a standby.
    async fn paid_orders_settle(&self) -> Result<bool, StoreError> {
        let read = |row: &Row| Fields::new(row, "payment_order", 0, 0).text();
        let under_way = async |of: Option<&Vec<String>>| {
            many(self.lists(Asker::Operator), Sql::PaymentOrdersUnderWay, &[&"payment_order", &of], read).await
        };
        let deadline = Instant::now() + SETTLE_WITHIN;
        let mut left = under_way(None).await?;
        while !left.is_empty() {
            if Instant::now() + SETTLE_PAUSE > deadline {
                return Ok(false);
            }
            sleep(SETTLE_PAUSE).await;
            left = under_way(Some(&left)).await?;
        }
        Ok(true)
    }
}

impl PostgresStore {
    async fn walk(&self, sql: Sql, span: &PaidSpan, among: Numbers, limit: u32) -> Result<Vec<PaidOrder>, StoreError> {
        let PaidSpan { of, from, to } = span;
        let (Numbers { after, end }, limit) = (among, i64::from(limit));
        let read = |row: &Row| read(row);
        match of {
            Payee::Merchant(tenant, merchant) => {
                let of: Params<'_> = &[&tenant.0, &merchant.0, &after, &end, &from.0, &to.0, &limit];
                many(self.lists(Asker::Operator), sql, of, read).await
            }
            Payee::Tenant(tenant) => {
                let of: Params<'_> = &[&tenant.0, &after, &end, &from.0, &to.0, &limit];
                many(self.lists(Asker::Operator), sql, of, read).await
            }
        }
    }
}
