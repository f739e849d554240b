//! Public ids.

use std::collections::BTreeMap;

use countersign_domain::ids::{ApplicationNo, TenantNo};

use super::PostgresStore;
use super::queries::{Found, many, one};
use super::statements::Sql;
use crate::asker::Asker;
use crate::contract::Cursor;
use crate::public_ids::{PublicIds, client_id, numbered_tenant_id};

impl PublicIds for PostgresStore {
    async fn client_ids(&self, page: Cursor) -> Found<Vec<(ApplicationNo, String)>> {
        let (after, limit) = (page.after.unwrap_or(i64::MIN), i64::from(page.limit));
        many(self.lists(Asker::Server), Sql::ClientIds, &[&after, &limit], client_id).await
    }

    async fn tenant_ids(&self, tenants: Vec<TenantNo>) -> Found<BTreeMap<TenantNo, String>> {
        let tenants: Vec<i64> = tenants.into_iter().map(|tenant| tenant.0).collect();
        let found = many(self.lists(Asker::Operator), Sql::TenantIds, &[&tenants], numbered_tenant_id).await?;
        Ok(found.into_iter().collect())
    }

    async fn tenant_id(&self, tenant: TenantNo) -> Found<Option<String>> {
        let found = one(&self.readers, Sql::TenantIds, &[&[tenant.0].as_slice()], numbered_tenant_id).await?;
        Ok(found.map(|(_, id)| id))
    }
}
