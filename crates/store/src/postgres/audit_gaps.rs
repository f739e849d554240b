//! What is not in the audit log.

use countersign_domain::ids::TenantNo;

use super::PostgresStore;
use super::queries::{Found, many, one};
use super::statements::Sql;
use crate::asker::Asker;
use crate::audit_gaps::{AuditGaps, chainless, unreadable_line};
use crate::chain::{ChainPlace, UnreadableLine};

impl AuditGaps for PostgresStore {
    async fn chainless(&self, most: u32) -> Found<Vec<Option<TenantNo>>> {
        many(self.lists(Asker::Operator), Sql::Chainless, &[&i64::from(most)], chainless).await
    }

    async fn unreadable_line(&self, after: Option<ChainPlace>) -> Found<Option<UnreadableLine>> {
        let ChainPlace(tenant, no) = after.unwrap_or(ChainPlace(i64::MIN, i64::MIN));
        one(self.lists(Asker::Operator), Sql::UnreadableLine, &[&tenant, &no], unreadable_line).await
    }
}
