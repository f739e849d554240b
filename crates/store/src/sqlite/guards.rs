//! The guard of each write: what must hold before anything is written.

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, TenantNo};
use countersign_domain::lanes::{Fence, Lane};
use countersign_domain::rules::RuleVersion;
use countersign_domain::time::UnixMillis;
use rusqlite::{OptionalExtension, Params, Row, params};

use super::apply::{Applier, Found, Stop};
use super::rows::Fields;
use super::statements::{Kept, Sql};
use crate::batch::{Conflict, Guard, Key, Write};
use crate::contract::{AttemptRow, ClaimKey, CommitError, StoreError};
use crate::payment_order::PaymentOrderWrite;
use crate::redelivery::RedeliveryWrite;
use crate::window::Seen;

/// A sub-account's rule head.
#[expect(clippy::struct_field_names, reason = "named as its columns are")]
#[derive(Clone, Copy, Debug)]
struct Head {
    version_no: i64,
    last_no: i64,
    base_version_no: Option<i64>,
    base_no: Option<i64>,
}

pub(super) fn guard(holds: bool, conflict: Conflict) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(Stop::Refused(CommitError::Conflict(conflict))) }
}

fn parent(there: bool, what: &str) -> Result<(), Stop> {
    if there { Ok(()) } else { Err(StoreError::Unfit(format!("a row refers to {what} that is not there")).into()) }
}

/// Nobody ever takes a lane from the one node of this store.
pub(super) fn lane_at(application: ApplicationNo, fence: Fence) -> Result<(), Stop> {
    guard(fence == Fence(0), Conflict::Fenced(Lane::of(application)))
}

fn is_pending(state: DeliveryState) -> bool {
    state == DeliveryState::Pending
}

impl Applier<'_> {
    /// Checks the guard of a write.
    pub(super) fn check(&mut self, write: &Write) -> Result<Found, Stop> {
        match write {
            Write::ClaimNonce(claim) => self.claim(claim)?,
            Write::AppendRule { tenant, merchant, version } => return self.check_rule(*tenant, *merchant, version),
            Write::InsertMerchant(row) => {
                let key = Key::Merchant(row.merchant_id.clone());
                self.fresh(Sql::MerchantTaken, params![row.no.0, row.merchant_id], key)?;
            }
            Write::UpdateMerchant(row) => {
                let stored = self.revision(Sql::MerchantRevision, "merchant", [row.no.0])?;
                guard(stored == Some(row.revision - 1), Conflict::Moved(Key::Merchant(row.merchant_id.clone())))?;
            }
            Write::InsertApplication(row) => {
                let key = Key::Application(row.client_id.clone());
                self.fresh(Sql::ApplicationTaken, params![row.no.0, row.client_id], key)?;
            }
            Write::UpdateApplication(row) => {
                let stored = self.revision(Sql::ApplicationRevision, "application", [row.no.0])?;
                guard(stored == Some(row.revision - 1), Conflict::Moved(Key::Application(row.client_id.clone())))?;
            }
            Write::InsertSecret(row) => {
                self.fresh(Sql::SecretThere, params![row.secret_id], Key::Secret(row.secret_id.clone()))?;
            }
            Write::UpdateSecret(row) => {
                self.there(Sql::SecretThere, params![row.secret_id], Key::Secret(row.secret_id.clone()))?;
            }
            Write::RewrapSecret { secret_id, from, .. } => {
                self.there(Sql::SecretUnder, params![secret_id, from], Key::Secret(secret_id.clone()))?;
            }
            Write::MoveSetting { name, from, .. } => self.check_setting(name, from.as_deref())?,
            Write::InsertToken(row) => {
                self.fresh(Sql::TokenTaken, params![row.token_id, row.digest], Key::Token(row.token_id.clone()))?;
            }
            Write::RevokeToken { token_id, .. } => {
                self.there(Sql::TokenLive, params![token_id], Key::Token(token_id.clone()))?;
            }
            Write::InsertConvertOrder { tenant, merchant, order } => self.check_order(*tenant, *merchant, order)?,
            Write::MoveConvertOrder { tenant, order, .. } => self.check_move(*tenant, order)?,
            Write::Convert(write) => self.check_convert(write)?,
            Write::PaymentOrder(write) => self.check_payment_order(write)?,
            Write::EnqueueEvent(row) => {
                let id = row.event_id;
                self.fresh(Sql::EventTaken, params![row.no.0, id.0.to_be_bytes()], Key::Event(id))?;
                self.application_of(row.tenant, row.application)?;
            }
            Write::RecordAttempt { tenant, application, attempt, .. } => {
                self.check_attempt(*tenant, *application, attempt)?;
            }
            Write::Defer { tenant, event, behind, .. } => self.check_waits(*tenant, *event, *behind)?,
            Write::Redeliver { .. } | Write::SendNow { .. } => self.check_sent_again(write)?,
            Write::Redelivery(write) => self.check_redeliveries(write)?,
            Write::RememberAnswer(new) => {
                let of = params![new.row.scope, new.row.key, new.ended_before.0];
                self.fresh(Sql::AnswerTaken, of, Key::Idempotency)?;
            }
            Write::Guard(rests_on) => self.check_alone(rests_on)?,
            Write::Turn { .. }
            | Write::ReleaseHeld { .. }
            | Write::HoldPending { .. }
            | Write::Reassess { .. }
            | Write::AddUses(_)
            | Write::ForgetAnswers { .. }
            | Write::ForgetBytes { .. }
            | Write::ForgetEvents { .. }
            | Write::RecordAudit(_)
            | Write::PutSetting { .. } => {}
        }
        Ok(Found::Nothing)
    }

    fn check_waits(&mut self, tenant: TenantNo, event: EventNo, behind: EventNo) -> Result<(), Stop> {
        self.check_stands(tenant, behind, |state| !state.is_over())?;
        self.check_stands(tenant, event, is_pending)
    }

    fn check_order(&mut self, tenant: TenantNo, merchant: MerchantNo, order: &ConvertOrder) -> Result<(), Stop> {
        self.fresh(Sql::OrderTaken, params![order.order_id.get()], Key::ConvertOrder(order.order_id))?;
        self.merchant_of(tenant, merchant)
    }

    fn check_move(&mut self, tenant: TenantNo, order: &ConvertOrder) -> Result<(), Stop> {
        let stored = self.revision(Sql::OrderRevision, "convert_order", [order.order_id.get(), tenant.0])?;
        guard(stored == Some(order.revision - 1), Conflict::Moved(Key::ConvertOrder(order.order_id)))
    }

    fn check_payment_order(&mut self, write: &PaymentOrderWrite) -> Result<(), Stop> {
        let (row, id) = (write.row(), write.row().order.prepay_id);
        match write {
            PaymentOrderWrite::Insert { .. } => {
                let trade_no = &row.order.trade_no;
                let key = Key::TradeNo(row.merchant, trade_no.clone());
                self.fresh(Sql::TradeNoTaken, params![trade_no, row.merchant.0], key)?;
                self.fresh(Sql::PaymentOrderTaken, [id.number()], Key::PaymentOrder(id))?;
                self.merchant_of(row.tenant, row.merchant)
            }
            PaymentOrderWrite::Move { .. } => {
                let of = [id.number(), row.tenant.0, row.merchant.0];
                let stored = self.revision(Sql::PaymentOrderRevision, "payment_order", of)?;
                guard(stored == Some(row.order.revision - 1), Conflict::Moved(Key::PaymentOrder(id)))
            }
        }
    }

    pub(super) fn check_attempt(
        &mut self,
        tenant: TenantNo,
        application: ApplicationNo,
        attempt: &AttemptRow,
    ) -> Result<(), Stop> {
        lane_at(application, attempt.fence)?;
        let delivery = self.delivery(tenant, attempt.event.0)?;
        let expected = delivery.is_some_and(|(attempts, _)| attempts == attempt.attempt - 1);
        guard(expected, Conflict::Moved(Key::Delivery(attempt.event)))
    }

    /// A guard of a row that its batch does not write.
    fn check_alone(&mut self, rests_on: &Guard) -> Result<(), Stop> {
        match rests_on {
            Guard::Lane { application, fence } => lane_at(*application, *fence),
            Guard::RuleHead { tenant, merchant, version_no } => {
                let stored = self.revision(Sql::HeadSelect, "fee_rule_head", [merchant.0, tenant.0])?;
                guard(stored.unwrap_or(0) == *version_no, Conflict::Moved(Key::RuleHead(*merchant)))
            }
            Guard::Application { application, client_id, revision, .. } => {
                let stored = self.revision(Sql::ApplicationRevision, "application", [application.0])?;
                guard(stored == Some(*revision), Conflict::Moved(Key::Application(client_id.clone())))
            }
            Guard::Token { token_id } => guard(self.kept.finds(Sql::TokenLive, [token_id])?, Conflict::TokenRevoked),
            // There is one writer, and this is its turn.
            Guard::TokenLetGo { .. } => Ok(()),
            Guard::Setting { name, value } => self.check_setting(name, Some(value)),
            Guard::PaymentOrder { tenant, merchant, id, revision } => {
                let of = [id.number(), tenant.0, merchant.0];
                let stored = self.revision(Sql::PaymentOrderRevision, "payment_order", of)?;
                guard(stored == Some(*revision), Conflict::Moved(Key::PaymentOrder(*id)))
            }
            Guard::UnusedQuote { tenant, merchant, quote_id } => self.check_unused(*tenant, *merchant, quote_id),
            Guard::Before { instant, time } => guard(time.now(None) < *instant, Conflict::Late(*instant)),
            Guard::Reached { instant, time } => guard(time.now(None) >= *instant, Conflict::Early(*instant)),
        }
    }

    fn check_setting(&mut self, name: &str, expected: Option<&str>) -> Result<(), Stop> {
        let read = |row: &Row<'_>| Fields::new(row, "setting", 0, 0).text();
        let stored = read_row(&mut self.kept, Sql::SettingGet, [name], read)?;
        guard(stored.as_deref() == expected, Conflict::Moved(Key::Setting(name.to_owned())))
    }

    /// That the delivery of an event stands as it must.
    fn check_stands(
        &mut self,
        tenant: TenantNo,
        event: EventNo,
        must: impl FnOnce(DeliveryState) -> bool,
    ) -> Result<(), Stop> {
        let stands = self.delivery(tenant, event.0)?.map(|(_, state)| state);
        guard(stands.is_some_and(must), Conflict::Moved(Key::Delivery(event)))
    }

    /// That an event that an operator sends again, or sooner, stands as it was read.
    fn check_sent_again(&mut self, write: &Write) -> Result<(), Stop> {
        let (holds, event) = match write {
            Write::Redeliver { tenant, event, attempts, .. } => {
                let stands = self.delivery(*tenant, event.0)?;
                (stands.is_some_and(|(had, state)| had == *attempts && state.is_over()), event)
            }
            Write::SendNow { tenant, event, attempts, was_due, .. } => {
                let of = [event.0, tenant.0, *attempts, was_due.0];
                (self.kept.finds(Sql::DeliveryAwaits, of)?, event)
            }
            _ => return Ok(()),
        };
        guard(holds, Conflict::Moved(Key::Delivery(*event)))
    }

    fn check_redeliveries(&mut self, write: &RedeliveryWrite) -> Result<(), Stop> {
        let (TenantNo(tenant), of @ ApplicationNo(application)) = write.of();
        let moved = Conflict::Moved(Key::Redelivery(of));
        match write {
            RedeliveryWrite::Start(row) => {
                let id = row.id.0.to_be_bytes();
                let is_there = self.kept.finds(Sql::ApplicationOfTenant, [application, tenant])?;
                let taken = self.kept.finds(Sql::RedeliveryTaken, params![tenant, application, id])?;
                guard(is_there && !taken, Conflict::Taken(Key::Redelivery(of)))
            }
            RedeliveryWrite::Advance { id, from, .. } | RedeliveryWrite::Stop { id, from, .. } => {
                let id = id.0.to_be_bytes();
                guard(self.kept.finds(Sql::RedeliveryAt, params![id, tenant, application, from])?, moved)
            }
        }
    }

    pub(super) fn fresh(&mut self, sql: Sql, params: impl Params, key: Key) -> Result<(), Stop> {
        guard(!self.kept.finds(sql, params)?, Conflict::Taken(key))
    }

    fn there(&mut self, sql: Sql, params: impl Params, key: Key) -> Result<(), Stop> {
        guard(self.kept.finds(sql, params)?, Conflict::Moved(key))
    }

    pub(super) fn merchant_of(&mut self, tenant: TenantNo, merchant: MerchantNo) -> Result<(), Stop> {
        parent(self.kept.finds(Sql::MerchantOfTenant, [merchant.0, tenant.0])?, "a merchant")
    }

    fn application_of(&mut self, tenant: TenantNo, application: ApplicationNo) -> Result<(), Stop> {
        parent(self.kept.finds(Sql::ApplicationOfTenant, [application.0, tenant.0])?, "an application")
    }

    fn claim(&mut self, claim: &ClaimKey) -> Result<(), Stop> {
        match self.nonces.claim(self.nonces.hash(claim), claim.stamped_at.0) {
            Ok(undo) => {
                self.claimed.push(undo);
                Ok(())
            }
            Err(Seen::Taken | Seen::Used | Seen::TooOld) => Err(Conflict::NonceUsed.into()),
            Err(Seen::Unknowable) => {
                let why = "the machine was restarted: whether this nonce was used cannot be known yet";
                Err(StoreError::Unavailable(why.to_owned()).into())
            }
        }
    }

    fn check_rule(&mut self, tenant: TenantNo, merchant: MerchantNo, version: &RuleVersion) -> Result<Found, Stop> {
        let head = read_row(&mut self.kept, Sql::HeadSelect, [merchant.0, tenant.0], |row| {
            let mut f = Fields::new(row, "fee_rule_head", 0, 1);
            Ok(Head { version_no: f.int()?, last_no: f.int()?, base_version_no: f.opt_int()?, base_no: f.opt_int()? })
        })?;
        let moved = Conflict::Moved(Key::RuleHead(merchant));
        guard(head.map_or(0, |h| h.version_no) == version.version_no - 1, moved)?;
        if let Some(paid_at) = self.revision(Sql::LastPaid, "last_paid", [merchant.0, tenant.0])?.map(UnixMillis) {
            guard(paid_at < version.created_at, Conflict::PaidSince(merchant, paid_at))?;
        }
        if head.is_none() {
            self.merchant_of(tenant, merchant)?;
        }
        let base_no = match (head, version.base_version_no) {
            (None, _) | (_, None) => None,
            (Some(head), Some(base)) => Some(self.base_no(head, base)?),
        };
        Ok(Found::Rule { previous_no: head.map(|h| h.last_no), base_no })
    }

    /// The row of version `base`: nearly always the newest, or the newest's own base.
    fn base_no(&mut self, head: Head, base: i64) -> Result<i64, Stop> {
        if base == head.version_no {
            return Ok(head.last_no);
        }
        if let (true, Some(no)) = (head.base_version_no == Some(base), head.base_no) {
            return Ok(no);
        }
        let found = self.kept.get(Sql::RuleFind)?.query_row([head.last_no, base], |row| row.get(0)).optional()?;
        found.ok_or_else(|| StoreError::Corrupt { table: "fee_rule", row: head.last_no.to_string() }.into())
    }

    pub(super) fn revision(&mut self, sql: Sql, table: &'static str, key: impl Params) -> Result<Option<i64>, Stop> {
        read_row(&mut self.kept, sql, key, |row| Fields::new(row, table, 0, 0).int())
    }

    fn delivery(&mut self, tenant: TenantNo, event: i64) -> Result<Option<(i64, DeliveryState)>, Stop> {
        read_row(&mut self.kept, Sql::DeliverySelect, [event, tenant.0], |row| {
            let mut f = Fields::new(row, "delivery", 0, 0);
            let (attempts, state) = (f.int()?, f.text()?);
            let state = DeliveryState::from_name(&state).ok_or_else(|| f.corrupt())?;
            Ok((attempts, state))
        })
    }
}

/// The row that a guard reads by its key, if it is there.
fn read_row<T>(
    kept: &mut Kept<'_>,
    sql: Sql,
    key: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, Stop> {
    let mut rows = kept.get(sql)?.query(key)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(read(row)?))
}
