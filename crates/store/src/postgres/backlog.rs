//! What waits, and what the dead ones died of.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::lanes::LaneSet;

use super::PostgresStore;
use super::nodes::numbers;
use super::queries::{many, one};
use super::session::Params;
use super::statements::Sql;
use crate::asker::Asker;
use crate::backlog::{self, Backlog, Backlogs, DeadRow, NodeBacklog, WithDead};
use crate::contract::{Cursor, StoreError};

impl Backlogs for PostgresStore {
    async fn backlog(&self, tenant: TenantNo, of: ApplicationNo, most: u32) -> Result<Backlog, StoreError> {
        let found =
            one(self.lists(Asker::Operator), Sql::Backlog, &[&tenant.0, &of.0, &i64::from(most)], backlog::read)
                .await?;
        Ok(found.unwrap_or_default())
    }

    async fn dead(&self, of: Option<(TenantNo, ApplicationNo)>, page: Cursor) -> Result<Vec<DeadRow>, StoreError> {
        let (before, limit) = (page.after.unwrap_or(i64::MAX), i64::from(page.limit));
        match of {
            Some((tenant, of)) => {
                many(self.lists(Asker::Operator), Sql::DeadOf, &[&tenant.0, &of.0, &before, &limit], backlog::dead)
                    .await
            }
            None => many(self.lists(Asker::Operator), Sql::DeadOfAll, &[&before, &limit], backlog::dead).await,
        }
    }

    async fn with_dead(
        &self,
        after: Option<(TenantNo, ApplicationNo)>,
        limit: u32,
    ) -> Result<Vec<WithDead>, StoreError> {
        let (TenantNo(tenant), ApplicationNo(of)) = after.unwrap_or((TenantNo(i64::MIN), ApplicationNo(i64::MIN)));
        let asked: Params<'_> = &[&tenant, &of, &i64::from(limit)];
        many(self.lists(Asker::Operator), Sql::WithDead, asked, backlog::with_dead).await
    }

    async fn place_of(&self, client_id: &str) -> Result<Option<(TenantNo, ApplicationNo)>, StoreError> {
        one(&self.readers, Sql::ApplicationPlace, &[&client_id], backlog::place).await
    }

    async fn waiting(&self, lanes: LaneSet, most: u32) -> Result<NodeBacklog, StoreError> {
        let asked: Params<'_> = &[&numbers(lanes), &i64::from(most)];
        Ok(one(self.lists(Asker::Server), Sql::Waiting, asked, backlog::read_waiting).await?.unwrap_or_default())
    }
}
