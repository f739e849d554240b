//! Paid orders: how they are walked over.

use tokio_postgres::Row;

use super::PostgresStore;
use super::queries::many;
use super::session::Params;
use super::statements::Sql;
use crate::contract::{Cursor, StoreError};
use crate::paid_order::{PaidOrder, PaidOrders, PaidPlace, PaidSpan, Payee, read};

impl PaidOrders for PostgresStore {
    async fn paid_orders(&self, span: PaidSpan, page: Cursor<PaidPlace>) -> Result<Vec<PaidOrder>, StoreError> {
        let (PaidPlace(at, number), to) = (span.begin(page.after), span.to.0);
        let (limit, read) = (i64::from(page.limit), |row: &Row| read(row));
        match span.of {
            Payee::Merchant(tenant, merchant) => {
                let of: Params<'_> = &[&tenant.0, &merchant.0, &at.0, &number, &to, &limit];
                many(&self.readers, Sql::PaidOrdersOfMerchant, of, read).await
            }
            Payee::Tenant(tenant) => {
                let of: Params<'_> = &[&tenant.0, &at.0, &number, &to, &limit];
                many(&self.readers, Sql::PaidOrdersOfTenant, of, read).await
            }
        }
    }
}
