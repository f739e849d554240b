//! What is not in the audit log.

use std::collections::BTreeSet;

use countersign_domain::ids::TenantNo;

use super::ModelStore;
use crate::audit_gaps::AuditGaps;
use crate::chain::{ChainPlace, UnreadableLine};
use crate::contract::{Cursor, StoreError};

impl AuditGaps for ModelStore {
    async fn chain_owners(&self, page: Cursor) -> Result<Vec<TenantNo>, StoreError> {
        let state = self.state();
        let own = state.merchants.values().filter(|merchant| merchant.no.0 == merchant.tenant.0);
        let owners: BTreeSet<i64> = own.map(|merchant| merchant.no.0).collect();
        let behind = owners.into_iter().filter(|no| page.after.is_none_or(|after| *no > after));
        Ok(behind.take(page.limit as usize).map(TenantNo).collect())
    }

    async fn unreadable_line(&self, after: Option<ChainPlace>) -> Result<Option<UnreadableLine>, StoreError> {
        let state = self.state();
        let mut lines = (0_i64..).zip(&state.audit).map(|(place, line)| (ChainPlace(place, 0), line));
        let next = lines.find(|(place, _)| after.is_none_or(|after| *place > after));
        Ok(next.map(|(place, (row, link))| UnreadableLine { place, tenant: row.tenant, no: row.no, link: *link }))
    }
}
