//! The kinds of rows that grow old: whose they are, how they are looked for, and what frees them.

use std::future::Future;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{
    BYTES_FORGOTTEN_MAX, BytesPlace, EVENTS_FORGOTTEN_MAX, OldRows as _, OldStretch, TooOld,
};
use countersign_store::contract::{Asker, Cursor};
use countersign_store::{AnyStore, Store as _, StoreError, Write};

/// How much of a kind an owner has that is too old.
pub(super) struct Old<O> {
    pub owner: O,
    /// Rows of the kind.
    pub rows: i64,
    /// Events among them that are held.
    pub held: i64,
    /// Attempts: the rows themselves where the kind is attempts, or the attempts at delivering the rows where the kind is events.
    pub attempts: i64,
    pub bytes: i64,
}

pub(super) trait Kind {
    /// Whose rows are freed together.
    type Owner: Copy + Send + Sync;
    /// Where a row stands among the rows of its owner.
    type Place: Copy + Send;
    /// Which rows are too old.
    type Age: Copy + Send + Sync;

    /// Owners that a round looks at in one read.
    const LOOKED_AT: u32;
    /// Rows that are freed at once.
    const PORTION: usize;
    /// Whether the store tells how many were freed.
    const IS_COUNTED: bool;

    /// A page of owners with what each owner has, counted up to `most`. An owner that has nothing may be on the page.
    fn owners(
        store: &AnyStore,
        asker: Asker,
        age: Self::Age,
        most: u32,
        page: Cursor<Self::Owner>,
    ) -> impl Future<Output = Result<Vec<Old<Self::Owner>>, StoreError>> + Send;

    /// The next old rows of one owner.
    fn stretch(
        store: &AnyStore,
        asker: Asker,
        owner: Self::Owner,
        age: Self::Age,
        page: Cursor<Self::Place>,
    ) -> impl Future<Output = Result<OldStretch<Self::Place>, StoreError>> + Send;

    /// The ClientId of the application, where the owner is one: that of its first event, of which there is one at any time.
    fn name(store: &AnyStore, owner: Self::Owner) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// The write that frees a portion of one owner's rows.
    fn forget(owner: Self::Owner, age: Self::Age) -> Write;
}

/// What went over the wire in attempts, by tenant.
pub(super) enum AttemptBytes {}

impl Kind for AttemptBytes {
    type Owner = TenantNo;
    type Place = BytesPlace;
    /// Attempts that began before.
    type Age = UnixMillis;

    /// Each is counted by a look of its own.
    const LOOKED_AT: u32 = 64;
    const PORTION: usize = BYTES_FORGOTTEN_MAX;
    const IS_COUNTED: bool = false;

    async fn owners(
        store: &AnyStore,
        asker: Asker,
        before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> Result<Vec<Old<TenantNo>>, StoreError> {
        let page = store.old_bytes(asker, before, most, page).await?;
        let old = page.into_iter().map(|old| Old {
            owner: old.tenant,
            rows: old.rows,
            held: 0,
            attempts: old.rows,
            bytes: old.bytes,
        });
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

    async fn name(_store: &AnyStore, _tenant: TenantNo) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    fn forget(tenant: TenantNo, begun_before: UnixMillis) -> Write {
        Write::ForgetBytes { tenant, begun_before }
    }
}

/// Events that are over or held, by application.
pub(super) enum Events {}

impl Kind for Events {
    type Owner = (TenantNo, ApplicationNo);
    type Place = i64;
    type Age = TooOld;

    const LOOKED_AT: u32 = 1_000;
    const PORTION: usize = EVENTS_FORGOTTEN_MAX;
    const IS_COUNTED: bool = true;

    async fn owners(
        store: &AnyStore,
        asker: Asker,
        old: TooOld,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Result<Vec<Old<(TenantNo, ApplicationNo)>>, StoreError> {
        let page = store.old_events(asker, old, most, page).await?;
        let found = page.into_iter().map(|of| Old {
            owner: (of.tenant, of.application),
            rows: of.events,
            held: of.held,
            attempts: of.attempts,
            bytes: of.bytes,
        });
        Ok(found.collect())
    }

    async fn stretch(
        store: &AnyStore,
        asker: Asker,
        application: (TenantNo, ApplicationNo),
        old: TooOld,
        page: Cursor<i64>,
    ) -> Result<OldStretch<i64>, StoreError> {
        store.old_events_of(asker, application, old, page).await
    }

    async fn name(
        store: &AnyStore,
        (tenant, application): (TenantNo, ApplicationNo),
    ) -> Result<Option<String>, StoreError> {
        let first = store.events_after(tenant, application, 0, 1).await?;
        Ok(first.into_iter().next().map(|event| event.client_id))
    }

    fn forget((tenant, application): (TenantNo, ApplicationNo), old: TooOld) -> Write {
        Write::ForgetEvents { tenant, application, old }
    }
}
