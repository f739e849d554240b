//! The kinds of rows that grow old: whose they are, how they are looked for, and what frees them.

use std::future::Future;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{BytesPlace, OldRows as _, OldStretch};
use countersign_store::contract::{Asker, Cursor};
use countersign_store::{AnyStore, Store as _, StoreError, Write};

/// How much of a kind an owner has that is old.
pub(super) struct Old<O> {
    pub owner: O,
    /// Rows of the kind.
    pub rows: i64,
    /// Attempts: the rows themselves where the kind is attempts, or the attempts at delivering the rows where the kind is events.
    pub attempts: i64,
    pub bytes: i64,
}

pub(super) trait Kind {
    /// Whose rows are freed together.
    type Owner: Copy + Send + Sync;
    /// Where a row stands among the rows of its owner.
    type Place: Copy + Send;

    /// Owners that a round looks at in one read.
    const LOOKED_AT: u32;

    /// A page of owners with what each owner has, counted up to `most`. An owner that has nothing may be on the page.
    fn owners(
        store: &AnyStore,
        asker: Asker,
        before: UnixMillis,
        most: u32,
        page: Cursor<Self::Owner>,
    ) -> impl Future<Output = Result<Vec<Old<Self::Owner>>, StoreError>> + Send;

    /// The next old rows of one owner.
    fn stretch(
        store: &AnyStore,
        asker: Asker,
        owner: Self::Owner,
        before: UnixMillis,
        page: Cursor<Self::Place>,
    ) -> impl Future<Output = Result<OldStretch<Self::Place>, StoreError>> + Send;

    /// The write that frees a portion of one owner's rows.
    fn forget(owner: Self::Owner, before: UnixMillis) -> Write;
}

/// What went over the wire in attempts, by tenant.
pub(super) enum AttemptBytes {}

impl Kind for AttemptBytes {
    type Owner = TenantNo;
    type Place = BytesPlace;

    /// Each is counted by a look of its own.
    const LOOKED_AT: u32 = 64;

    async fn owners(
        store: &AnyStore,
        asker: Asker,
        before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> Result<Vec<Old<TenantNo>>, StoreError> {
        let page = store.old_bytes(asker, before, most, page).await?;
        let old =
            page.into_iter().map(|old| Old { owner: old.tenant, rows: old.rows, attempts: old.rows, bytes: old.bytes });
        Ok(old.collect())
    }

    async fn stretch(
        store: &AnyStore,
        asker: Asker,
        tenant: TenantNo,
        before: UnixMillis,
        page: Cursor<BytesPlace>,
    ) -> Result<OldStretch<BytesPlace>, StoreError> {
        store.old_bytes_of(asker, tenant, before, page).await
    }

    fn forget(tenant: TenantNo, begun_before: UnixMillis) -> Write {
        Write::ForgetBytes { tenant, begun_before }
    }
}

/// Events that are over, by application.
pub(super) enum Events {}

impl Kind for Events {
    type Owner = (TenantNo, ApplicationNo);
    type Place = i64;

    const LOOKED_AT: u32 = 1_000;

    async fn owners(
        store: &AnyStore,
        asker: Asker,
        before: UnixMillis,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Result<Vec<Old<(TenantNo, ApplicationNo)>>, StoreError> {
        let page = store.old_events(asker, before, most, page).await?;
        let old = page.into_iter().map(|old| Old {
            owner: (old.tenant, old.application),
            rows: old.events,
            attempts: old.attempts,
            bytes: old.bytes,
        });
        Ok(old.collect())
    }

    async fn stretch(
        store: &AnyStore,
        asker: Asker,
        application: (TenantNo, ApplicationNo),
        before: UnixMillis,
        page: Cursor<i64>,
    ) -> Result<OldStretch<i64>, StoreError> {
        store.old_events_of(asker, application, before, page).await
    }

    fn forget((tenant, application): (TenantNo, ApplicationNo), created_before: UnixMillis) -> Write {
        Write::ForgetEvents { tenant, application, created_before }
    }
}
