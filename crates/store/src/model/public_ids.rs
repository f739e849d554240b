//! Public ids.

use std::collections::BTreeMap;

use countersign_domain::ids::{ApplicationNo, TenantNo};

use super::{ModelStore, page};
use crate::contract::{Cursor, StoreError};
use crate::public_ids::PublicIds;

impl PublicIds for ModelStore {
    async fn client_ids(&self, cursor: Cursor) -> Result<Vec<(ApplicationNo, String)>, StoreError> {
        let state = self.state();
        let rest = state.applications.values().filter(|a| cursor.after.is_none_or(|after| a.no.0 > after));
        Ok(page(rest.map(|a| (a.no, a.client_id.clone())), cursor.limit))
    }

    async fn tenant_ids(&self, tenants: Vec<TenantNo>) -> Result<BTreeMap<TenantNo, String>, StoreError> {
        let state = self.state();
        let own = state.merchants.values().filter(|m| m.no.0 == m.tenant.0 && tenants.contains(&m.tenant));
        Ok(own.map(|m| (m.tenant, m.merchant_id.clone())).collect())
    }

    async fn tenant_id(&self, tenant: TenantNo) -> Result<Option<String>, StoreError> {
        Ok(self.tenant_ids(vec![tenant]).await?.remove(&tenant))
    }
}
