//! The ids that others know things by, without the rest of their rows: a page of them costs one read, however many secrets belong to it.

use std::collections::BTreeMap;
use std::future::Future;

use countersign_domain::ids::{ApplicationNo, TenantNo};

use crate::AnyStore;
use crate::any::either;
use crate::contract::{Cursor, StoreError};
use crate::read::{Columns, Fields};

/// Reads of public ids, across tenants.
pub trait PublicIds {
    /// ClientIds by the number of their application. `after` is an [`ApplicationNo`]. In the server's places of lists.
    fn client_ids(&self, page: Cursor)
    -> impl Future<Output = Result<Vec<(ApplicationNo, String)>, StoreError>> + Send;

    /// The `merchant_id` of each of these tenants that is there. In the places of operators' lists.
    fn tenant_ids(
        &self,
        tenants: Vec<TenantNo>,
    ) -> impl Future<Output = Result<BTreeMap<TenantNo, String>, StoreError>> + Send;

    /// The `merchant_id` of one tenant. It waits for no list.
    fn tenant_id(&self, tenant: TenantNo) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;
}

pub(crate) fn client_id<R: Columns>(row: &R) -> Result<(ApplicationNo, String), StoreError> {
    let mut f = Fields::new(row, "application", 0, 0);
    Ok((ApplicationNo(f.int()?), f.text()?))
}

pub(crate) fn numbered_tenant_id<R: Columns>(row: &R) -> Result<(TenantNo, String), StoreError> {
    let mut f = Fields::new(row, "merchant", 0, 0);
    Ok((TenantNo(f.int()?), f.text()?))
}

impl PublicIds for AnyStore {
    async fn client_ids(&self, page: Cursor) -> Result<Vec<(ApplicationNo, String)>, StoreError> {
        either!(self, store => store.client_ids(page).await)
    }

    async fn tenant_ids(&self, tenants: Vec<TenantNo>) -> Result<BTreeMap<TenantNo, String>, StoreError> {
        either!(self, store => store.tenant_ids(tenants).await)
    }

    async fn tenant_id(&self, tenant: TenantNo) -> Result<Option<String>, StoreError> {
        either!(self, store => store.tenant_id(tenant).await)
    }
}
