//! An attempt, as the line-up knows it.

use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_store::contract::EventRow;

/// An attempt in flight, or just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) event: EventNo,
    pub(super) tenant: TenantNo,
    pub(super) application: ApplicationNo,
    /// Somebody sends it again by hand.
    pub(super) by_hand: bool,
}

impl Flight {
    pub(super) const fn of(event: &EventRow) -> Self {
        Self { event: event.no, tenant: event.tenant, application: event.application, by_hand: event.by_hand }
    }
}
