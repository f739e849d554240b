//! What is not in the audit log.

use countersign_domain::ids::TenantNo;

use super::PostgresStore;
use super::queries::{Found, many, one};
use super::statements::Sql;
use crate::asker::Asker;
use crate::audit_gaps::{AuditGaps, chain_owner, unreadable_line};
use crate::chain::{ChainPlace, UnreadableLine};
use crate::contract::Cursor;

impl AuditGaps for PostgresStore {
    async fn chain_owners(&self, page: Cursor) -> Found<Vec<TenantNo>> {
        let after = page.after.unwrap_or(i64::MIN);
        many(self.lists(Asker::Operator), Sql::ChainOwners, &[&after, &i64::from(page.limit)], chain_owner).await
    }

    async fn unreadable_line(&self, after: Option<ChainPlace>) -> Found<Option<UnreadableLine>> {
        let ChainPlace(tenant, no) = after.unwrap_or(ChainPlace(i64::MIN, i64::MIN));
        one(self.lists(Asker::Operator), Sql::UnreadableLine, &[&tenant, &no], unreadable_line).await
    }
}
