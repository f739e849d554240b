//! What each write does once its guard held.

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::rules::RuleVersion;
use countersign_domain::time::{CLOCKS_APART_MS_MAX, UnixMillis};
use rusqlite::{Params, params};

use super::apply::Found;
use super::attempt_log;
use super::conversion;
use super::heads::{AuditEnd, Heads};
use super::nonces::Nonces;
use super::statements::{Kept, Sql};
use super::{payment_order, redelivery};
use crate::attempt_log::AttemptBytes;
use crate::batch::{ANSWERS_FORGOTTEN_MAX, Committed, DELIVERIES_TURNED_MAX, EventNumbers, USES_FORGOTTEN_MAX, Write};
use crate::contract::{ApplicationRow, AttemptRow, AuditRow, EventRow, MerchantRow, SecretRow, TokenRow, Uses};
use crate::words;

/// Does a write whose guard held.
pub(super) fn write(
    kept: &mut Kept<'_>,
    heads: &mut Heads,
    nonces: &Nonces,
    write: &Write,
    found: Found,
    committed: &mut Committed,
) -> rusqlite::Result<()> {
    match write {
        Write::ClaimNonce(claim) => {
            kept.run(Sql::NonceInsert, params![nonces.hash(claim).to_bytes(), claim.stamped_at.0])?;
        }
        Write::AppendRule { tenant, merchant, version } => append_rule(kept, *tenant, *merchant, version, found)?,
        Write::InsertMerchant(row) => insert_merchant(kept, row)?,
        Write::UpdateMerchant(row) => update_merchant(kept, row)?,
        Write::Reassess { tenant, merchant, due_at } => reassess(kept, *tenant, *merchant, *due_at)?,
        Write::InsertApplication(row) => insert_application(kept, row)?,
        Write::UpdateApplication(row) => update_application(kept, row)?,
        Write::InsertSecret(row) => insert_secret(kept, row)?,
        Write::UpdateSecret(row) => {
            let (not_after, revoked_at) = (row.not_after.map(|t| t.0), row.revoked_at.map(|t| t.0));
            kept.run(Sql::SecretUpdate, params![row.secret_id, not_after, revoked_at, row.signs_callbacks])?;
        }
        Write::AddUses(uses) => add_uses(kept, uses)?,
        Write::InsertToken(row) => insert_token(kept, row)?,
        Write::RevokeToken { token_id, at } => {
            kept.run(Sql::TokenRevoke, params![token_id, at.0])?;
        }
        Write::InsertConvertOrder { tenant, merchant, order } => insert_order(kept, *tenant, *merchant, order)?,
        Write::MoveConvertOrder { tenant, order, at } => move_order(kept, *tenant, order, *at)?,
        Write::Convert(write) => conversion::write(kept, write)?,
        Write::PaymentOrder(write) => payment_order::write(kept, write)?,
        Write::EnqueueEvent(row) => committed.events.push(enqueue(kept, heads, row)?),
        Write::RecordAttempt { tenant, attempt, bytes, state, due_at, .. } => {
            // Its guard held: what does not find it now breaks the whole.
            if !record_attempt(kept, *tenant, attempt, bytes.as_deref(), *state, *due_at)? {
                return Err(rusqlite::Error::StatementChangedRows(0));
            }
        }
        Write::Turn { tenant, application, due_at } => note_turn(kept, *tenant, *application, *due_at)?,
        Write::ReleaseHeld { tenant, application, due_at } => turn(kept, (*tenant, *application), Some(*due_at))?,
        Write::HoldPending { tenant, application } => turn(kept, (*tenant, *application), None)?,
        Write::Defer { event, behind, until, .. } => run(kept, Sql::DeliveryDefer, [event.0, behind.0, until.0])?,
        Write::Redeliver { event, due_at, .. } => run(kept, Sql::DeliveryAgain, [event.0, due_at.0])?,
        Write::SendNow { event, due_at, .. } => run(kept, Sql::DeliverySoon, [event.0, due_at.0])?,
        Write::Redelivery(write) => redelivery::write(kept, heads, write)?,
        Write::RememberAnswer(new) => {
            let row = &new.row;
            let answer = params![row.scope, row.key, row.body_digest, row.status, row.answer, row.created_at.0];
            kept.run(Sql::AnswerInsert, answer)?;
        }
        Write::ForgetAnswers { kept_before } => {
            let most = i64::try_from(ANSWERS_FORGOTTEN_MAX).unwrap_or(i64::MAX);
            committed.answers_forgotten += kept.run(Sql::AnswersForget, [kept_before.0, most])?;
        }
        Write::ForgetBytes { .. } | Write::ForgetEvents { .. } => {
            committed.events_forgotten += attempt_log::forget(kept, write)?;
        }
        Write::RecordAudit(row) => record_audit(kept, heads, row)?,
        Write::RewrapSecret { secret_id, key_id, sealed, .. } => {
            run(kept, Sql::SecretRewrap, params![secret_id, key_id, sealed])?;
        }
        Write::PutSetting { name, value } | Write::MoveSetting { name, to: value, .. } => {
            run(kept, Sql::SettingPut, [name, value])?;
        }
        Write::Guard(_) => {}
    }
    Ok(())
}

/// A statement whose rows the guard has looked at.
fn run(kept: &mut Kept<'_>, sql: Sql, params: impl Params) -> rusqlite::Result<()> {
    kept.run(sql, params).map(|_| ())
}

fn insert_merchant(kept: &mut Kept<'_>, row: &MerchantRow) -> rusqlite::Result<()> {
    kept.run(
        Sql::MerchantInsert,
        params![
            row.tenant.0,
            row.no.0,
            row.merchant_id,
            words::of_kind(row.kind),
            row.name,
            row.base_r.to_string(),
            row.base_f.micros(),
            row.user_id,
            row.enabled,
            row.revision,
            row.created_at.0
        ],
    )?;
    Ok(())
}

fn update_merchant(kept: &mut Kept<'_>, row: &MerchantRow) -> rusqlite::Result<()> {
    let (base_r, base_f) = (row.base_r.to_string(), row.base_f.micros());
    kept.run(Sql::MerchantUpdate, params![row.no.0, row.name, row.enabled, row.revision, base_r, base_f])?;
    Ok(())
}

fn reassess(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    merchant: Option<MerchantNo>,
    due_at: UnixMillis,
) -> rusqlite::Result<()> {
    if let Some(merchant) = merchant {
        kept.run(Sql::ApplicationsTouchOf, [tenant.0, merchant.0])?;
        kept.run(Sql::DeliveriesTurnOf, [tenant.0, merchant.0, due_at.0])?;
    } else {
        kept.run(Sql::ApplicationsTouch, [tenant.0])?;
        kept.run(Sql::DeliveriesTurn, [tenant.0, due_at.0])?;
    }
    Ok(())
}

fn note_turn(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    application: ApplicationNo,
    due_at: UnixMillis,
) -> rusqlite::Result<()> {
    kept.run(Sql::DeliveryTurn, [tenant.0, application.0, due_at.0]).map(|_| ())
}

/// A portion, released at `due_at` or held, and the end of its note.
fn turn(
    kept: &mut Kept<'_>,
    (TenantNo(tenant), ApplicationNo(application)): (TenantNo, ApplicationNo),
    due_at: Option<UnixMillis>,
) -> rusqlite::Result<()> {
    let most = i64::try_from(DELIVERIES_TURNED_MAX).unwrap_or(i64::MAX);
    if let Some(due_at) = due_at {
        kept.run(Sql::DeliveryRelease, [tenant, application, due_at.0, most])?;
        kept.run(Sql::TurnReleased, [tenant, application])?;
    } else {
        kept.run(Sql::DeliveryHold, [tenant, application, most])?;
        kept.run(Sql::TurnHeld, [tenant, application])?;
    }
    Ok(())
}

fn add_uses(kept: &mut Kept<'_>, uses: &Uses) -> rusqlite::Result<()> {
    let noted_at = uses.noted_at.map_or(i64::MAX, |now| now.0);
    let believed = noted_at.saturating_add(CLOCKS_APART_MS_MAX);
    for of in &uses.secrets {
        kept.run(Sql::SecretUsed, params![of.secret_id, of.last_used_at.0, believed, noted_at])?;
        kept.run(Sql::SecretUseAdd, params![of.secret_id, of.minute, of.uses])?;
    }
    for of in &uses.tokens {
        kept.run(Sql::TokenUsed, params![of.token_id, of.last_used_at.0, believed, noted_at])?;
    }
    let most = i64::try_from(USES_FORGOTTEN_MAX).unwrap_or(i64::MAX);
    kept.run(Sql::SecretUsesForget, [uses.forget_before, most])?;
    Ok(())
}

fn insert_secret(kept: &mut Kept<'_>, row: &SecretRow) -> rusqlite::Result<()> {
    kept.run(
        Sql::SecretInsert,
        params![
            row.application.0,
            row.secret_id,
            row.key_id,
            row.sealed,
            row.fingerprint,
            row.last4,
            row.signs_callbacks,
            row.created_at.0,
            row.not_after.map(|t| t.0),
            row.revoked_at.map(|t| t.0)
        ],
    )?;
    Ok(())
}

fn insert_token(kept: &mut Kept<'_>, row: &TokenRow) -> rusqlite::Result<()> {
    kept.run(
        Sql::TokenInsert,
        params![
            row.token_id,
            row.name,
            row.digest,
            words::of_role(row.role),
            row.created_at.0,
            row.expires_at.map(|t| t.0),
            row.revoked_at.map(|t| t.0)
        ],
    )?;
    Ok(())
}

/// An order and the first row of its history.
pub(super) fn insert_order(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    merchant: MerchantNo,
    order: &ConvertOrder,
) -> rusqlite::Result<()> {
    let (id, status) = (order.order_id.get(), order.status.code());
    kept.run(
        Sql::OrderInsert,
        params![
            tenant.0,
            id,
            merchant.0,
            order.user_id,
            order.sell_currency.as_str(),
            order.buy_currency.as_str(),
            order.sell_amount.micros(),
            order.buy_amount.micros(),
            status,
            order.rate.to_string(),
            order.quote_id,
            order.created_at.0,
            order.revision
        ],
    )?;
    kept.run(Sql::OrderMove, params![tenant.0, id, order.revision, status, order.created_at.0])?;
    Ok(())
}

fn move_order(kept: &mut Kept<'_>, tenant: TenantNo, order: &ConvertOrder, at: UnixMillis) -> rusqlite::Result<()> {
    let (id, status) = (order.order_id.get(), order.status.code());
    kept.run(Sql::OrderUpdate, params![id, status, order.revision])?;
    kept.run(Sql::OrderMove, params![tenant.0, id, order.revision, status, at.0])?;
    Ok(())
}

/// A line, with the number and the link that only the store can give.
fn record_audit(kept: &mut Kept<'_>, heads: &mut Heads, row: &AuditRow) -> rusqlite::Result<()> {
    let tenant = words::of_audit_tenant(row.tenant);
    let AuditEnd { no, link } = heads.next_line(kept, row)?;
    kept.run(
        Sql::AuditInsert,
        params![
            tenant,
            no,
            row.at.0,
            row.actor,
            row.source,
            row.action,
            row.subject,
            row.before,
            row.after,
            row.request_id,
            link
        ],
    )?;
    Ok(())
}

fn append_rule(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    merchant: MerchantNo,
    version: &RuleVersion,
    found: Found,
) -> rusqlite::Result<()> {
    let (previous_no, base_no) = match found {
        Found::Rule { previous_no, base_no } => (previous_no, base_no),
        Found::Nothing => (None, None),
    };
    kept.run(
        Sql::RuleInsert,
        params![
            tenant.0,
            merchant.0,
            version.version_no,
            previous_no,
            base_no,
            version.config_id.0.to_be_bytes(),
            version.previous.map(|id| id.0.to_be_bytes()),
            version.base_version_no,
            version.markup.r().to_string(),
            version.markup.f().micros(),
            version.effective_at.0,
            version.due_at.map(|t| t.0),
            version.created_at.0
        ],
    )?;
    let (last_no, base) = (kept.conn().last_insert_rowid(), version.base_version_no);
    if previous_no.is_some() {
        kept.run(Sql::HeadUpdate, params![merchant.0, version.version_no, last_no, base, base_no])?;
    } else {
        kept.run(Sql::HeadInsert, params![tenant.0, merchant.0, version.version_no, last_no, base, base_no])?;
    }
    Ok(())
}

fn insert_application(kept: &mut Kept<'_>, row: &ApplicationRow) -> rusqlite::Result<()> {
    kept.run(
        Sql::ApplicationInsert,
        params![
            row.tenant.0,
            row.no.0,
            row.client_id,
            row.merchant.0,
            row.name,
            row.enabled,
            row.callback_url,
            row.callback_enabled,
            row.callback_gone_at.map(|at| at.0),
            words::of_encoding(row.callback_encoding),
            words::of_vocabulary(row.callback_vocabulary),
            row.timestamp_tolerance_ms,
            row.tolerance_before_ms,
            row.tolerance_raised_at.map(|at| at.0),
            row.rate_limit_per_s,
            row.endpoint.rate_per_s,
            row.endpoint.concurrency,
            row.endpoint.schedule.as_ref().map(ToString::to_string),
            row.revision,
            row.created_at.0
        ],
    )?;
    Ok(())
}

fn update_application(kept: &mut Kept<'_>, row: &ApplicationRow) -> rusqlite::Result<()> {
    kept.run(
        Sql::ApplicationUpdate,
        params![
            row.no.0,
            row.name,
            row.enabled,
            row.callback_url,
            row.callback_enabled,
            row.callback_gone_at.map(|at| at.0),
            words::of_encoding(row.callback_encoding),
            words::of_vocabulary(row.callback_vocabulary),
            row.timestamp_tolerance_ms,
            row.tolerance_before_ms,
            row.tolerance_raised_at.map(|at| at.0),
            row.rate_limit_per_s,
            row.endpoint.rate_per_s,
            row.endpoint.concurrency,
            row.endpoint.schedule.as_ref().map(ToString::to_string),
            row.revision
        ],
    )?;
    Ok(())
}

/// Writes an event and that it is owed, with the numbers that only the store can give.
fn enqueue(kept: &mut Kept<'_>, heads: &mut Heads, row: &EventRow) -> rusqlite::Result<EventNumbers> {
    let (tenant, application) = (row.tenant.0, row.application.0);
    let seq = heads.next_event(kept, row.tenant, row.application)?;
    let sequence = next_of_biz(kept, tenant, application, &row.biz_id)?;
    kept.run(
        Sql::EventInsert,
        params![
            tenant,
            row.no.0,
            application,
            row.client_id,
            row.event_id.0.to_be_bytes(),
            seq,
            sequence,
            row.biz_type,
            row.biz_id,
            row.biz_status,
            row.data,
            row.body,
            row.created_at.0
        ],
    )?;
    let due_at = row.due_at.map(|t| t.0);
    kept.run(Sql::DeliveryInsert, params![tenant, row.no.0, application, row.state.name(), row.attempts, due_at])?;
    Ok(EventNumbers { seq, sequence })
}

/// The number of a business's next event: nearly always its first. A statement that also returned what it wrote would make a table for it.
fn next_of_biz(kept: &mut Kept<'_>, tenant: i64, application: i64, biz_id: &str) -> rusqlite::Result<i64> {
    if kept.run(Sql::BizCountInsert, params![tenant, application, biz_id])? == 1 {
        return Ok(1);
    }
    kept.run(Sql::BizCountUpdate, params![tenant, application, biz_id])?;
    kept.get(Sql::BizCounted)?.query_row(params![application, biz_id], |row| row.get(0))
}

/// Records an attempt. Where the event is over by this attempt, deliveries that wait for the event become due. Writes nothing and returns false where
/// the attempt is not its event's next one.
pub(super) fn record_attempt(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    attempt: &AttemptRow,
    bytes: Option<&AttemptBytes>,
    state: DeliveryState,
    due_at: Option<UnixMillis>,
) -> rusqlite::Result<bool> {
    let due_at = due_at.map(|t| t.0);
    let verdict = params![attempt.event.0, state.name(), attempt.attempt, due_at, tenant.0];
    if kept.run(Sql::DeliveryUpdate, verdict)? == 0 {
        return Ok(false);
    }
    if state.is_over() {
        let waiting = kept.get(Sql::DeliveryFollowers)?.query_map([attempt.event.0], |row| row.get::<_, i64>(0))?;
        for event in waiting.collect::<Result<Vec<_>, _>>()? {
            kept.run(Sql::DeliveryFollow, [event, attempt.at.0])?;
        }
    }
    attempt_log::insert_attempt(kept, tenant, attempt, bytes)?;
    Ok(true)
}
