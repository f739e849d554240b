//! What every store demands of a batch before it looks at a row.

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::TenantNo;
use countersign_domain::time::UnixMillis;

use crate::batch::{Batch, Guard, Write};
use crate::contract::StoreError;
use crate::words::of_audit_tenant;

/// Refuses a batch that no store could hold: the mistake of a caller, not of its caller's caller. The tenant that it touches.
pub(crate) fn well_formed(batch: &Batch) -> Result<Option<TenantNo>, StoreError> {
    let mut seen: Option<TenantNo> = None;
    for write in &batch.0 {
        if let Some(tenant) = tenant_of(write) {
            if seen.is_some_and(|other| other != tenant) {
                return unfit("a batch touches two tenants");
            }
            seen = Some(tenant);
        }
        one(write)?;
    }
    Ok(seen)
}

/// The tenant that a write belongs to; none for the small reference tables.
fn tenant_of(write: &Write) -> Option<TenantNo> {
    match write {
        Write::AppendRule { tenant, .. }
        | Write::Turn { tenant, .. }
        | Write::InsertConvertOrder { tenant, .. }
        | Write::MoveConvertOrder { tenant, .. }
        | Write::RecordAttempt { tenant, .. }
        | Write::ForgetBytes { tenant, .. }
        | Write::ForgetEvents { tenant, .. }
        | Write::ReleaseHeld { tenant, .. }
        | Write::HoldPending { tenant, .. }
        | Write::Defer { tenant, .. }
        | Write::Reassess { tenant, .. }
        | Write::Redeliver { tenant, .. }
        | Write::SendNow { tenant, .. }
        | Write::Guard(
            Guard::RuleHead { tenant, .. } | Guard::PaymentOrder { tenant, .. } | Guard::UnusedQuote { tenant, .. },
        ) => Some(*tenant),
        Write::Redelivery(write) => Some(write.of().0),
        Write::Convert(write) => write.tenant(),
        Write::PaymentOrder(write) => Some(write.row().tenant),
        Write::ClaimNonce(claim) => Some(claim.tenant),
        Write::EnqueueEvent(event) => Some(event.tenant),
        // The system's own lines are a tenant of their own.
        Write::RecordAudit(audit) => Some(TenantNo(of_audit_tenant(audit.tenant))),
        Write::InsertMerchant(_)
        | Write::UpdateMerchant(_)
        | Write::InsertApplication(_)
        | Write::UpdateApplication(_)
        | Write::InsertSecret(_)
        | Write::UpdateSecret(_)
        | Write::AddUses(_)
        | Write::InsertToken(_)
        | Write::RevokeToken { .. }
        | Write::RememberAnswer(_)
        | Write::ForgetAnswers { .. }
        | Write::PutSetting { .. }
        | Write::MoveSetting { .. }
        | Write::RewrapSecret { .. }
        | Write::Guard(
            Guard::Lane { .. }
            | Guard::Application { .. }
            | Guard::Token { .. }
            | Guard::TokenLetGo { .. }
            | Guard::Setting { .. }
            | Guard::Before { .. }
            | Guard::Reached { .. },
        ) => None,
    }
}

fn one(write: &Write) -> Result<(), StoreError> {
    match write {
        Write::AppendRule { version, .. } => {
            let no = version.version_no;
            demand(no >= 1, "a rule version is numbered from 1")?;
            demand((no == 1) == version.previous.is_none(), "every rule version but the first has a previous one")?;
            demand(
                version.base_version_no.is_none_or(|base| (1..no).contains(&base)),
                "the base of a rule version is an earlier one",
            )
        }
        Write::InsertMerchant(row) => demand(row.revision == 1, "a merchant begins at revision 1"),
        Write::UpdateMerchant(row) => demand(row.revision > 1, "a merchant's change has a revision above 1"),
        Write::AddUses(uses) => demand(uses.secrets.iter().all(|s| s.uses >= 1), "uses are counted from 1"),
        Write::InsertApplication(row) => demand(row.revision == 1, "an application begins at revision 1"),
        Write::UpdateApplication(row) => demand(row.revision > 1, "an application's change has a revision above 1"),
        Write::InsertConvertOrder { order, .. } => demand(order.revision == 1, "a convert order begins at revision 1"),
        Write::MoveConvertOrder { order, .. } => demand(order.revision > 1, "a move has a revision above 1"),
        Write::EnqueueEvent(row) => {
            demand(row.attempts >= 0, "attempts are counted from 0")?;
            due_iff_pending(row.state, row.due_at)
        }
        Write::RecordAttempt { attempt, bytes, state, due_at, .. } => {
            demand(attempt.attempt >= 1, "attempts are numbered from 1")?;
            demand(attempt.fence.0 >= 0, "fences are counted from 0")?;
            demand(bytes.as_ref().is_none_or(|bytes| bytes.answer_length >= 0), "bytes are counted from 0")?;
            due_iff_pending(*state, *due_at)
        }
        Write::Redelivery(write) => write.fault().map_or(Ok(()), unfit),
        Write::Convert(write) => write.fault().map_or(Ok(()), unfit),
        Write::PaymentOrder(write) => write.fault().map_or(Ok(()), unfit),
        Write::Defer { event, behind, .. } => demand(event != behind, "an event waits for another one"),
        Write::ClaimNonce(_)
        | Write::Reassess { .. }
        | Write::InsertSecret(_)
        | Write::UpdateSecret(_)
        | Write::InsertToken(_)
        | Write::RevokeToken { .. }
        | Write::Turn { .. }
        | Write::ReleaseHeld { .. }
        | Write::HoldPending { .. }
        | Write::Redeliver { .. }
        | Write::SendNow { .. }
        | Write::RememberAnswer(_)
        | Write::ForgetAnswers { .. }
        | Write::ForgetBytes { .. }
        | Write::ForgetEvents { .. }
        | Write::RecordAudit(_)
        | Write::PutSetting { .. }
        | Write::MoveSetting { .. }
        | Write::RewrapSecret { .. }
        | Write::Guard(_) => Ok(()),
    }
}

fn due_iff_pending(state: DeliveryState, due_at: Option<UnixMillis>) -> Result<(), StoreError> {
    demand(
        (state == DeliveryState::Pending) == due_at.is_some(),
        "a delivery has a due time exactly while it is pending",
    )
}

fn demand(holds: bool, otherwise: &str) -> Result<(), StoreError> {
    if holds { Ok(()) } else { unfit(otherwise) }
}

fn unfit<T>(why: &str) -> Result<T, StoreError> {
    Err(StoreError::Unfit(why.to_owned()))
}
