//! What a walk over the audit log asks where lines cannot tell it: who has to have a chain, and what can be read of a line that cannot be
//! read back.

use std::future::Future;

use countersign_domain::ids::TenantNo;

use crate::AnyStore;
use crate::any::either;
use crate::chain::{ChainPlace, Link, UnreadableLine};
use crate::contract::{Cursor, StoreError};
use crate::read::{Columns, Fields};
use crate::words;

/// Reads of what is not in the audit log, across tenants.
pub trait AuditGaps {
    /// Who has a chain of their own, which begins with them in one transaction: institutions and plain merchants, by their number. In the places
    /// of operators' lists.
    fn chain_owners(&self, page: Cursor) -> impl Future<Output = Result<Vec<TenantNo>, StoreError>> + Send;

    /// The line that comes after a place in the order of the chain, as far as it can be told where its columns cannot be read. None: there is no
    /// line. In the places of operators' lists.
    fn unreadable_line(
        &self,
        after: Option<ChainPlace>,
    ) -> impl Future<Output = Result<Option<UnreadableLine>, StoreError>> + Send;
}

pub(crate) fn chain_owner<R: Columns>(row: &R) -> Result<TenantNo, StoreError> {
    Fields::new(row, "merchant", 0, 0).int().map(TenantNo)
}

pub(crate) fn unreadable_line<R: Columns>(row: &R) -> Result<UnreadableLine, StoreError> {
    let mut f = Fields::new(row, "audit", 0, 3);
    let place = ChainPlace(f.int()?, f.int()?);
    let (tenant, no) = (words::audit_tenant(f.int()?), f.int()?);
    let link: Option<Link> = f.opt_bytes().unwrap_or_default();
    Ok(UnreadableLine { place, tenant, no, link })
}

impl AuditGaps for AnyStore {
    async fn chain_owners(&self, page: Cursor) -> Result<Vec<TenantNo>, StoreError> {
        either!(self, store => store.chain_owners(page).await)
    }

    async fn unreadable_line(&self, after: Option<ChainPlace>) -> Result<Option<UnreadableLine>, StoreError> {
        either!(self, store => store.unreadable_line(after).await)
    }
}
