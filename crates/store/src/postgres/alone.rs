//! A batch in a transaction of its own, write by write: each guard is judged against what the writes before it did.

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{EventNo, MerchantNo, TenantNo};
use countersign_domain::time::{CLOCKS_APART_MS_MAX, UnixMillis};
use tokio_postgres::{Error, Row};

use super::attempt_log;
use super::group::{Ask, Judge};
use super::nonces::Nonces;
use super::plan::{read_numbers, step};
use super::redelivery;
use super::rows::Fields;
use super::session::{Params, Session};
use super::statements::Sql;
use crate::batch::{
    ANSWERS_FORGOTTEN_MAX, Batch, Committed, Conflict, DELIVERIES_TURNED_MAX, Guard, Key, USES_FORGOTTEN_MAX, Write,
};
use crate::chain::ChainKey;
use crate::contract::{ApplicationRow, CommitError, MerchantRow, NewAnswer, SecretRow, StoreError, TokenRow, Uses};
use crate::window::Undo;
use crate::words;

/// Why a batch was not applied.
#[derive(Debug)]
pub(super) enum Stop {
    /// For a reason of its own.
    Refused(CommitError),
    /// The database failed.
    Broken(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

impl From<CommitError> for Stop {
    fn from(why: CommitError) -> Self {
        Self::Refused(why)
    }
}

impl From<StoreError> for Stop {
    fn from(why: StoreError) -> Self {
        Self::Refused(CommitError::Store(why))
    }
}

/// A batch that is being applied.
#[derive(Debug)]
pub(super) struct Alone<'a> {
    session: &'a Session,
    nonces: &'a Nonces,
    /// What lines of the audit log are linked with.
    chain: Option<ChainKey>,
    /// How to give back its nonces in this process.
    pub(super) claims: Vec<Undo>,
    pub(super) committed: Committed,
    /// Applications whose merchants have changed.
    touched: Vec<i64>,
    /// Whether their revisions move at once, since writes of the batch name applications and may rest on them. Else they move with the
    /// directory's: an institution may have a hundred thousand, and each row is then written once.
    touches_at_once: bool,
}

pub(super) fn guard(found: &[Row], conflict: Conflict) -> Result<(), Stop> {
    if found.is_empty() { Err(Stop::Refused(CommitError::Conflict(conflict))) } else { Ok(()) }
}

fn turned_max() -> i64 {
    i64::try_from(DELIVERIES_TURNED_MAX).unwrap_or(i64::MAX)
}

/// Whether other nodes may have in memory what a batch changes.
pub(super) fn changes_directory(batch: &Batch) -> bool {
    batch.0.iter().any(|write| matches!(write, Write::Reassess { .. })) || !directory_of(batch).is_empty()
}

/// The applications that a batch names and changes, or whose secrets.
fn directory_of(batch: &Batch) -> Vec<i64> {
    let changed = batch.0.iter().filter_map(|write| match write {
        Write::InsertApplication(row) | Write::UpdateApplication(row) => Some(row.no.0),
        Write::InsertSecret(row) | Write::UpdateSecret(row) => Some(row.application.0),
        Write::ClaimNonce(_)
        | Write::AppendRule { .. }
        | Write::InsertMerchant(_)
        | Write::UpdateMerchant(_)
        | Write::Reassess { .. }
        | Write::AddUses(_)
        | Write::InsertToken(_)
        | Write::RevokeToken { .. }
        | Write::InsertConvertOrder { .. }
        | Write::MoveConvertOrder { .. }
        | Write::Convert(_)
        | Write::PaymentOrder(_)
        | Write::EnqueueEvent(_)
        | Write::RecordAttempt { .. }
        | Write::Turn { .. }
        | Write::ReleaseHeld { .. }
        | Write::HoldPending { .. }
        | Write::Defer { .. }
        | Write::Redeliver { .. }
        | Write::SendNow { .. }
        | Write::Redelivery(_)
        | Write::RememberAnswer(_)
        | Write::ForgetAnswers { .. }
        | Write::ForgetBytes { .. }
        | Write::ForgetEvents { .. }
        | Write::RecordAudit(_)
        | Write::PutSetting { .. }
        | Write::MoveSetting { .. }
        // The same secret in another dress: who has it in memory has the right one.
        | Write::RewrapSecret { .. }
        | Write::Guard(_) => None,
    });
    changed.collect()
}

/// The writes of a batch in the order in which groups take their locks: last the log, to which all changes of a tenant append. Two nodes of which one
/// held on to it while it asked for what the other has would wait for each other. No guard reads what the lines of the log write. Whether an
/// instant has come is looked at behind all that may have to wait.
fn in_order(batch: &Batch) -> impl Iterator<Item = &Write> {
    const fn place(write: &Write) -> u8 {
        match write {
            Write::RecordAudit(_) => 1,
            Write::Guard(Guard::Before { .. } | Guard::Reached { .. }) => 2,
            _ => 0,
        }
    }
    (0..3).flat_map(|at| batch.0.iter().filter(move |write| place(write) == at))
}

impl<'a> Alone<'a> {
    pub(super) const fn new(session: &'a Session, nonces: &'a Nonces, chain: Option<ChainKey>) -> Self {
        Self {
            session,
            nonces,
            chain,
            claims: Vec::new(),
            committed: Committed::NONE,
            touched: Vec::new(),
            touches_at_once: false,
        }
    }

    /// Applies the batch inside the open transaction.
    pub(super) async fn apply(&mut self, batch: &Batch) -> Result<(), Stop> {
        let mut changed = directory_of(batch);
        // Each of two counts for an application that both touch.
        let touches = batch.0.iter().filter(|write| matches!(write, Write::Reassess { .. })).count();
        self.touches_at_once = !changed.is_empty() || touches > 1;
        for write in in_order(batch) {
            self.write(write).await?;
        }
        if self.touches_at_once {
            changed.append(&mut self.touched);
            self.run(Sql::DirectoryStamp, &[&changed]).await?;
        } else if !self.touched.is_empty() {
            self.run(Sql::DirectoryTouch, &[&self.touched]).await?;
        }
        Ok(())
    }

    pub(super) async fn run(&self, sql: Sql, params: Params<'_>) -> Result<Vec<Row>, Stop> {
        Ok(self.session.run(sql, params).await?)
    }

    /// A write that groups do, done as a group of one.
    async fn grouped(&mut self, write: &Write) -> Result<(), Stop> {
        let ask = Ask::of(std::iter::once(write), self.nonces);
        let mut found = Vec::new();
        for statement in &ask.statements() {
            found.push(step(self.session, statement).await?);
        }
        let mut judge = Judge::new(self.nonces, ask.read(found.into_iter())?);
        judge.batch(std::slice::from_ref(write))?;
        self.claims.append(&mut judge.claims);
        for statement in &judge.plan.statements(self.chain.as_ref()) {
            let rows = step(self.session, statement).await?;
            if matches!(statement.0, Sql::EventsInsert) {
                self.committed.events.extend(read_numbers(&rows)?.into_values());
            }
        }
        Ok(())
    }

    async fn write(&mut self, write: &Write) -> Result<(), Stop> {
        match write {
            Write::InsertMerchant(row) => self.insert_merchant(row).await,
            Write::UpdateMerchant(row) => self.update_merchant(row).await,
            Write::Reassess { tenant, merchant, due_at } => self.reassess(*tenant, *merchant, *due_at).await,
            Write::InsertApplication(row) => self.insert_application(row).await,
            Write::UpdateApplication(row) => self.update_application(row).await,
            Write::InsertSecret(row) => self.insert_secret(row).await,
            Write::UpdateSecret(row) => {
                let (not_after, revoked_at) = (row.not_after.map(|t| t.0), row.revoked_at.map(|t| t.0));
                let found = self
                    .run(Sql::SecretUpdate, &[&row.secret_id, &not_after, &revoked_at, &row.signs_callbacks])
                    .await?;
                guard(&found, Conflict::Moved(Key::Secret(row.secret_id.clone())))
            }
            Write::AddUses(uses) => self.add_uses(uses).await,
            Write::InsertToken(row) => self.insert_token(row).await,
            Write::RevokeToken { token_id, at } => {
                let found = self.run(Sql::TokenRevoke, &[token_id, &at.0]).await?;
                guard(&found, Conflict::Moved(Key::Token(token_id.clone())))
            }
            Write::InsertConvertOrder { tenant, merchant, order } => self.insert_order(*tenant, *merchant, order).await,
            Write::MoveConvertOrder { tenant, order, at } => self.move_order(*tenant, order, *at).await,
            Write::Convert(write) => self.convert(write).await,
            Write::Turn { tenant, application, due_at } => {
                self.run(Sql::DeliveryTurn, &[&tenant.0, &application.0, &due_at.0]).await.map(|_| ())
            }
            Write::ReleaseHeld { tenant, application, due_at } => {
                let of: Params<'_> = &[&tenant.0, &application.0];
                self.run(Sql::DeliveryRelease, &[of[0], of[1], &due_at.0, &turned_max()]).await?;
                self.run(Sql::TurnReleased, of).await.map(|_| ())
            }
            Write::HoldPending { tenant, application } => {
                let of: Params<'_> = &[&tenant.0, &application.0];
                self.run(Sql::DeliveryHold, &[of[0], of[1], &turned_max()]).await?;
                self.run(Sql::TurnHeld, of).await.map(|_| ())
            }
            Write::Defer { tenant, event, behind, until } => self.defer(*tenant, *event, *behind, *until).await,
            Write::Redeliver { .. } | Write::SendNow { .. } => self.send_again(write).await,
            Write::Redelivery(write) => redelivery::write(self.session, write).await,
            Write::RememberAnswer(row) => self.remember(row).await,
            Write::ForgetAnswers { kept_before } => self.forget_answers(*kept_before).await,
            Write::ForgetBytes { .. } | Write::ForgetEvents { .. } => {
                self.committed.events_forgotten += attempt_log::forget(self.session, write).await?;
                Ok(())
            }
            Write::PutSetting { name, value } => self.run(Sql::SettingPut, &[name, value]).await.map(|_| ()),
            Write::MoveSetting { name, from, to } => self.move_setting(name, from.as_deref(), to).await,
            Write::RewrapSecret { secret_id, from, key_id, sealed } => {
                let found = self.run(Sql::SecretRewrap, &[secret_id, from, key_id, sealed]).await?;
                guard(&found, Conflict::Moved(Key::Secret(secret_id.clone())))
            }
            Write::Guard(about) => match self.rests_on(about).await {
                Some(holds) => holds,
                None => self.grouped(write).await,
            },
            Write::ClaimNonce(_)
            | Write::AppendRule { .. }
            | Write::PaymentOrder(_)
            | Write::EnqueueEvent(_)
            | Write::RecordAttempt { .. }
            | Write::RecordAudit(_) => self.grouped(write).await,
        }
    }

    async fn forget_answers(&mut self, kept_before: UnixMillis) -> Result<(), Stop> {
        let most = i64::try_from(ANSWERS_FORGOTTEN_MAX).unwrap_or(i64::MAX);
        self.committed.answers_forgotten += self.run(Sql::AnswersForget, &[&kept_before.0, &most]).await?.len();
        Ok(())
    }

    async fn move_setting(&self, name: &str, from: Option<&str>, to: &str) -> Result<(), Stop> {
        let found = match from {
            None => self.run(Sql::SettingAdd, &[&name, &to]).await?,
            Some(from) => self.run(Sql::SettingMove, &[&name, &from, &to]).await?,
        };
        guard(&found, Conflict::Moved(Key::Setting(name.to_owned())))
    }

    async fn update_merchant(&self, row: &MerchantRow) -> Result<(), Stop> {
        let (base_r, base_f) = (row.base_r.to_string(), row.base_f.micros());
        let values: Params<'_> = &[&row.no.0, &row.name, &row.enabled, &row.revision, &base_r, &base_f];
        let found = self.run(Sql::MerchantUpdate, values).await?;
        guard(&found, Conflict::Moved(Key::Merchant(row.merchant_id.clone())))
    }

    async fn insert_merchant(&self, row: &MerchantRow) -> Result<(), Stop> {
        let (kind, base_r) = (words::of_kind(row.kind), row.base_r.to_string());
        let (tenant, no, base_f, at) = (row.tenant.0, row.no.0, row.base_f.micros(), row.created_at.0);
        let params: Params<'_> = &[
            &tenant,
            &no,
            &row.merchant_id,
            &kind,
            &row.name,
            &base_r,
            &base_f,
            &row.user_id,
            &row.enabled,
            &row.revision,
            &at,
        ];
        guard(&self.run(Sql::MerchantInsert, params).await?, Conflict::Taken(Key::Merchant(row.merchant_id.clone())))
    }

    async fn reassess(
        &mut self,
        tenant: TenantNo,
        merchant: Option<MerchantNo>,
        due_at: UnixMillis,
    ) -> Result<(), Stop> {
        let found = match merchant {
            None => self.run(Sql::ApplicationsLock, &[&tenant.0]).await?,
            Some(merchant) => self.run(Sql::ApplicationsLockOf, &[&tenant.0, &merchant.0]).await?,
        };
        let locked = found.iter().map(|row| Fields::new(row, "application", 0, 0).int());
        let locked = locked.collect::<Result<Vec<_>, StoreError>>()?;
        if self.touches_at_once {
            self.run(Sql::ApplicationsTouch, &[&locked]).await?;
        }
        self.touched.extend(locked);
        match merchant {
            None => self.run(Sql::DeliveriesTurn, &[&tenant.0, &due_at.0]).await?,
            Some(merchant) => self.run(Sql::DeliveriesTurnOf, &[&tenant.0, &merchant.0, &due_at.0]).await?,
        };
        Ok(())
    }

    async fn add_uses(&self, uses: &Uses) -> Result<(), Stop> {
        let ids: Vec<&str> = uses.secrets.iter().map(|s| s.secret_id.as_str()).collect();
        let last: Vec<i64> = uses.secrets.iter().map(|s| s.last_used_at.0).collect();
        let minutes: Vec<i64> = uses.secrets.iter().map(|s| s.minute).collect();
        let counts: Vec<i64> = uses.secrets.iter().map(|s| s.uses).collect();
        let noted_at = uses.noted_at.map_or(i64::MAX, |now| now.0);
        if !ids.is_empty() {
            self.run(Sql::SecretsUsed, &[&ids, &last, &noted_at, &CLOCKS_APART_MS_MAX]).await?;
            self.run(Sql::SecretUsesAdd, &[&ids, &minutes, &counts]).await?;
        }
        if !uses.tokens.is_empty() {
            let ids: Vec<&str> = uses.tokens.iter().map(|t| t.token_id.as_str()).collect();
            let last: Vec<i64> = uses.tokens.iter().map(|t| t.last_used_at.0).collect();
            self.run(Sql::TokensUsed, &[&ids, &last, &noted_at, &CLOCKS_APART_MS_MAX]).await?;
        }
        let most = i64::try_from(USES_FORGOTTEN_MAX).unwrap_or(i64::MAX);
        self.run(Sql::SecretUsesForget, &[&uses.forget_before, &most]).await.map(|_| ())
    }

    async fn insert_application(&self, row: &ApplicationRow) -> Result<(), Stop> {
        let params: Params<'_> = &[
            &row.tenant.0,
            &row.no.0,
            &row.client_id,
            &row.merchant.0,
            &row.name,
            &row.enabled,
            &row.callback_url,
            &row.callback_enabled,
            &row.callback_gone_at.map(|t| t.0),
            &words::of_encoding(row.callback_encoding),
            &words::of_vocabulary(row.callback_vocabulary),
            &row.timestamp_tolerance_ms,
            &row.tolerance_before_ms,
            &row.tolerance_raised_at.map(|t| t.0),
            &row.rate_limit_per_s.map(i64::from),
            &row.endpoint.rate_per_s.map(i64::from),
            &row.endpoint.concurrency.map(i64::from),
            &row.endpoint.schedule.as_ref().map(ToString::to_string),
            &row.revision,
            &row.created_at.0,
        ];
        guard(
            &self.run(Sql::ApplicationInsert, params).await?,
            Conflict::Taken(Key::Application(row.client_id.clone())),
        )
    }

    async fn update_application(&self, row: &ApplicationRow) -> Result<(), Stop> {
        let params: Params<'_> = &[
            &row.no.0,
            &row.name,
            &row.enabled,
            &row.callback_url,
            &row.callback_enabled,
            &row.callback_gone_at.map(|t| t.0),
            &words::of_encoding(row.callback_encoding),
            &words::of_vocabulary(row.callback_vocabulary),
            &row.timestamp_tolerance_ms,
            &row.tolerance_before_ms,
            &row.tolerance_raised_at.map(|t| t.0),
            &row.rate_limit_per_s.map(i64::from),
            &row.endpoint.rate_per_s.map(i64::from),
            &row.endpoint.concurrency.map(i64::from),
            &row.endpoint.schedule.as_ref().map(ToString::to_string),
            &row.revision,
        ];
        guard(
            &self.run(Sql::ApplicationUpdate, params).await?,
            Conflict::Moved(Key::Application(row.client_id.clone())),
        )
    }

    async fn insert_secret(&self, row: &SecretRow) -> Result<(), Stop> {
        let params: Params<'_> = &[
            &row.application.0,
            &row.secret_id,
            &row.key_id,
            &row.sealed,
            &row.fingerprint,
            &row.last4,
            &row.signs_callbacks,
            &row.created_at.0,
            &row.not_after.map(|t| t.0),
            &row.revoked_at.map(|t| t.0),
        ];
        guard(&self.run(Sql::SecretInsert, params).await?, Conflict::Taken(Key::Secret(row.secret_id.clone())))
    }

    async fn insert_token(&self, row: &TokenRow) -> Result<(), Stop> {
        let params: Params<'_> = &[
            &row.token_id,
            &row.name,
            &row.digest.as_slice(),
            &words::of_role(row.role),
            &row.created_at.0,
            &row.expires_at.map(|t| t.0),
            &row.revoked_at.map(|t| t.0),
        ];
        guard(&self.run(Sql::TokenInsert, params).await?, Conflict::Taken(Key::Token(row.token_id.clone())))
    }

    /// An order and the first row of its history.
    pub(super) async fn insert_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        order: &ConvertOrder,
    ) -> Result<(), Stop> {
        let (id, status) = (order.order_id.get(), order.status.code());
        let params: Params<'_> = &[
            &tenant.0,
            &id,
            &merchant.0,
            &order.user_id,
            &order.sell_currency.as_str(),
            &order.buy_currency.as_str(),
            &order.sell_amount.micros(),
            &order.buy_amount.micros(),
            &status,
            &order.rate.to_string(),
            &order.quote_id,
            &order.created_at.0,
            &order.revision,
        ];
        let taken = || Conflict::Taken(Key::ConvertOrder(order.order_id));
        guard(&self.run(Sql::OrderDirectoryInsert, &[&id, &tenant.0]).await?, taken())?;
        guard(&self.run(Sql::OrderInsert, params).await?, taken())?;
        self.run(Sql::OrderMove, &[&tenant.0, &id, &order.revision, &status, &order.created_at.0]).await.map(|_| ())
    }

    async fn move_order(&self, tenant: TenantNo, order: &ConvertOrder, at: UnixMillis) -> Result<(), Stop> {
        let (id, status) = (order.order_id.get(), order.status.code());
        let found = self.run(Sql::OrderUpdate, &[&tenant.0, &id, &status, &order.revision]).await?;
        guard(&found, Conflict::Moved(Key::ConvertOrder(order.order_id)))?;
        self.run(Sql::OrderMove, &[&tenant.0, &id, &order.revision, &status, &at.0]).await.map(|_| ())
    }

    /// The delivery that `event` waits behind is locked until the commit. A transaction that ends it comes before, and is seen here, or after, and
    /// then sees that `event` waits.
    async fn defer(&self, tenant: TenantNo, event: EventNo, behind: EventNo, until: UnixMillis) -> Result<(), Stop> {
        let ahead = self.run(Sql::DeliveryAhead, &[&tenant.0, &behind.0]).await?;
        guard(&ahead, Conflict::Moved(Key::Delivery(behind)))?;
        let found = self.run(Sql::DeliveryDefer, &[&tenant.0, &event.0, &behind.0, &until.0]).await?;
        guard(&found, Conflict::Moved(Key::Delivery(event)))
    }

    async fn send_again(&self, write: &Write) -> Result<(), Stop> {
        match write {
            Write::Redeliver { tenant, event, attempts, due_at } => {
                self.redeliver(*tenant, *event, *attempts, *due_at).await
            }
            Write::SendNow { tenant, event, attempts, was_due, due_at } => {
                let soon: Params<'_> = &[&tenant.0, &event.0, &due_at.0, attempts, &was_due.0];
                guard(&self.run(Sql::DeliverySoon, soon).await?, Conflict::Moved(Key::Delivery(*event)))
            }
            _ => Ok(()),
        }
    }

    async fn redeliver(&self, tenant: TenantNo, event: EventNo, attempts: i64, due_at: UnixMillis) -> Result<(), Stop> {
        let moved = || Stop::Refused(CommitError::Conflict(Conflict::Moved(Key::Delivery(event))));
        let found = self.run(Sql::DeliveriesLock, &[&vec![tenant.0], &vec![event.0]]).await?;
        let Some(row) = found.first() else { return Err(moved()) };
        let mut f = Fields::new(row, "delivery", 2, 1);
        let had = f.int()?;
        match DeliveryState::from_name(&f.text()?) {
            Some(state) if state.is_over() && had == attempts => {}
            Some(_) => return Err(moved()),
            None => return Err(f.corrupt().into()),
        }
        self.run(Sql::DeliveryAgain, &[&tenant.0, &event.0, &due_at.0]).await.map(|_| ())
    }

    async fn remember(&self, NewAnswer { row, ended_before }: &NewAnswer) -> Result<(), Stop> {
        let (digest, status, at) = (row.body_digest.as_slice(), i64::from(row.status), row.created_at.0);
        let answer: Params<'_> = &[&row.scope, &row.key, &digest, &status, &row.answer, &at, &ended_before.0];
        let found = self.run(Sql::AnswerInsert, answer).await?;
        guard(&found, Conflict::Taken(Key::Idempotency))
    }
}
