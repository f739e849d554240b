//! A change as a value: a list of writes, each with its own guard.

use std::fmt;
use std::sync::Arc;

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, TenantNo};
use countersign_domain::lanes::Fence;
use countersign_domain::payment_order::PrepayId;
use countersign_domain::rules::RuleVersion;
use countersign_domain::time::UnixMillis;

use crate::attempt_log::{AttemptBytes, Forgotten, TooOld};
pub use crate::attempt_log::{BYTES_FORGOTTEN_MAX, EVENTS_FORGOTTEN_MAX};
pub use crate::conflict::{Conflict, Key};
use crate::contract::{
    ApplicationRow, AttemptRow, AuditRow, ClaimKey, EventRow, MerchantRow, NewAnswer, SecretRow, TokenRow, Uses,
};
use crate::conversion::ConvertWrite;
use crate::payment_order::PaymentOrderWrite;
use crate::redelivery::RedeliveryWrite;

/// Answers that one [`Write::ForgetAnswers`] forgets at the most, so that no change waits long behind it.
pub const ANSWERS_FORGOTTEN_MAX: usize = 5_000;
/// Deliveries that one [`Write::ReleaseHeld`] or [`Write::HoldPending`] turns at the most, so that a backlog of any size keeps nobody waiting.
pub const DELIVERIES_TURNED_MAX: usize = 2_000;
/// Counts of minutes that one [`Write::AddUses`] forgets at the most.
pub const USES_FORGOTTEN_MAX: usize = 5_000;

/// One change, applied whole or not at all. Writes are applied in order; the first guard that does not hold refuses the batch,
/// and a refused batch leaves no trace. A batch touches one tenant, or the system's own audit lines, or reference tables only. A row of a
/// different tenant than the write names counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Batch(pub Vec<Write>);

impl Batch {
    /// The nonces it uses up.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ClaimKey> {
        self.0.iter().filter_map(|write| if let Write::ClaimNonce(claim) = write { Some(claim) } else { None })
    }
}

/// One row to write and the guard that makes it safe.
#[derive(Clone, Debug)]
pub enum Write {
    /// Uses up a nonce. Guard: never claimed before, by any batch or by [`crate::Store::settle`]; an own reservation
    /// ([`crate::Store::reserve`]) does not count, and a refused batch leaves it reserved.
    ClaimNonce(ClaimKey),
    /// Appends a version and moves the sub-account's rule head. Guards: the head's version is `version.version_no - 1` (none: 0), and every
    /// order of the sub-account that has a fee was paid before `version.created_at`.
    AppendRule {
        /// Tenant of the sub-account.
        tenant: TenantNo,
        /// The sub-account.
        merchant: MerchantNo,
        /// The version.
        version: Box<RuleVersion>,
    },
    /// Adds a merchant. Guard: its `merchant_id` and number are new.
    InsertMerchant(Box<MerchantRow>),
    /// Replaces a merchant's changeable fields: `name`, `enabled` and the base rate. Guard: the stored revision is `row.revision - 1`.
    UpdateMerchant(Box<MerchantRow>),
    /// What applications may do has changed with their merchants. Raises the revision of each application, so that every node reads the application
    /// anew, and does [`Write::Turn`] for each application with open events. Guard: none.
    Reassess {
        /// The tenant.
        tenant: TenantNo,
        /// Only the applications of this merchant; none: of the whole tenant.
        merchant: Option<MerchantNo>,
        /// When released events are due.
        due_at: UnixMillis,
    },
    /// Adds an application. Guard: its `client_id` and number are new.
    InsertApplication(Box<ApplicationRow>),
    /// Replaces an application's changeable fields (all but number, client_id, tenant, merchant, created_at).
    /// Guard: the stored revision is `row.revision - 1`.
    UpdateApplication(Box<ApplicationRow>),
    /// Adds a secret. Guard: its `secret_id` is new. Raises nothing on the application: send `UpdateApplication` beside it.
    InsertSecret(Box<SecretRow>),
    /// Replaces `not_after`, `revoked_at` and `signs_callbacks` of a secret. Guard: it exists.
    UpdateSecret(Box<SecretRow>),
    /// Adds uses of secrets and tokens to what is known, and forgets old minutes, at most [`USES_FORGOTTEN_MAX`]. Guard: none.
    AddUses(Box<Uses>),
    /// Adds an operator token. Guard: its `token_id` is new.
    InsertToken(Box<TokenRow>),
    /// Revokes an operator token. Guard: it exists and is not revoked.
    RevokeToken {
        /// Which.
        token_id: String,
        /// When.
        at: UnixMillis,
    },
    /// Adds a convert order and the first row of its history. Guard: its number is new in the deployment. `revision` must be 1.
    InsertConvertOrder {
        /// Tenant of the owner.
        tenant: TenantNo,
        /// The owner.
        merchant: MerchantNo,
        /// The order.
        order: Box<ConvertOrder>,
    },
    /// Moves a convert order to `order.status` and appends to its history. Guard: the stored revision is `order.revision - 1`.
    MoveConvertOrder {
        /// Tenant of the owner.
        tenant: TenantNo,
        /// The order as it becomes.
        order: Box<ConvertOrder>,
        /// When.
        at: UnixMillis,
    },
    /// Sets a rate, adds a quote, or makes an order of one. Guards: see there.
    Convert(Box<ConvertWrite>),
    /// Adds or moves a payment order. Guards: see there.
    PaymentOrder(Box<PaymentOrderWrite>),
    /// Writes an event to the outbox: what happened and that it is owed. Guard: number and event id are new in the tenant.
    /// The store itself gives `seq` (per application) and `sequence` (per application and biz_id), both from 1 without gap:
    /// what the row carries in these two fields is ignored.
    EnqueueEvent(Arc<EventRow>),
    /// Records an attempt and its verdict together. Guards: the application's lane is at `attempt.fence` (see [`Guard::Lane`]), and the
    /// delivery's `attempts` is `attempt.attempt - 1`.
    RecordAttempt {
        /// Tenant of the event.
        tenant: TenantNo,
        /// Whose event.
        application: ApplicationNo,
        /// The attempt.
        attempt: Arc<AttemptRow>,
        /// What went over the wire; none where nothing did.
        bytes: Option<Arc<AttemptBytes>>,
        /// Where the delivery goes.
        state: DeliveryState,
        /// When it is due next; `None` unless `Pending`.
        due_at: Option<UnixMillis>,
    },
    /// Notes that open events of an application are to be held or released, as its callbacks go out or not: [`crate::Store::turning`] names it
    /// until that is done. Guard: none.
    Turn {
        /// Tenant of the application.
        tenant: TenantNo,
        /// Whose.
        application: ApplicationNo,
        /// When released events are due.
        due_at: UnixMillis,
    },
    /// Makes held events of an application pending and due at `due_at`, at most [`DELIVERIES_TURNED_MAX`]; what somebody else has locked is
    /// left. Where none is left, the note of [`Write::Turn`] is taken away. Guard: none.
    ReleaseHeld {
        /// Tenant of the application.
        tenant: TenantNo,
        /// Whose.
        application: ApplicationNo,
        /// When they are due.
        due_at: UnixMillis,
    },
    /// Makes pending events of an application held: as many, and with the same end, as [`Write::ReleaseHeld`]. Guard: none.
    HoldPending {
        /// Tenant of the application.
        tenant: TenantNo,
        /// Whose.
        application: ApplicationNo,
    },
    /// Makes one delivered or dead event pending again. Its attempts go on counting. Guard: it exists and is delivered or dead, and no attempt was made
    /// since it was read.
    Redeliver {
        /// Tenant of the event.
        tenant: TenantNo,
        /// Which.
        event: EventNo,
        /// Attempts that it had.
        attempts: i64,
        /// When it is due.
        due_at: UnixMillis,
    },
    /// Makes a pending event due by then, if it was due later. Guard: it is pending and waits for no other one, no attempt was made since it was read,
    /// and it is due when it was then.
    SendNow {
        /// Tenant of the event.
        tenant: TenantNo,
        /// Which.
        event: EventNo,
        /// Attempts that it had.
        attempts: i64,
        /// When it was due.
        was_due: UnixMillis,
        /// When it is due, at the latest.
        due_at: UnixMillis,
    },
    /// Begins, advances or stops the redelivery of many events of an application. Guards: see there.
    Redelivery(Box<RedeliveryWrite>),
    /// Makes a pending event wait for an earlier one of its `biz_id`, but not beyond an instant. When [`Write::RecordAttempt`] ends that one
    /// (delivered or dead), it is due. Guard: it is pending, and the earlier one pending or held.
    Defer {
        /// Tenant of both.
        tenant: TenantNo,
        /// Which waits.
        event: EventNo,
        /// For which.
        behind: EventNo,
        /// How long at the most.
        until: UnixMillis,
    },
    /// Forgets what went over the wire in attempts that began before an instant, oldest first, at most [`BYTES_FORGOTTEN_MAX`]. Guard: none.
    ForgetBytes {
        /// Whose attempts.
        tenant: TenantNo,
        /// The instant.
        begun_before: UnixMillis,
    },
    /// Forgets the first events of an application by `seq`, with all that belongs to the events: at most [`EVENTS_FORGOTTEN_MAX`], and only up to the
    /// first event that has to stay. An event has to stay that is pending, that is not [`TooOld`], or that a running redelivery has yet to come to. The
    /// application's last event stays too. Counters go on. Where somebody else changes one of the events, no event is forgotten. Guard: none.
    ForgetEvents {
        /// Tenant of the application.
        tenant: TenantNo,
        /// Whose.
        application: ApplicationNo,
        /// Which.
        old: TooOld,
    },
    /// Remembers the answer to an `Idempotency-Key`. Guard: scope and key are new, or were used last so long ago that that has ended.
    RememberAnswer(Box<NewAnswer>),
    /// Forgets answers that were kept before an instant, oldest first, at most [`ANSWERS_FORGOTTEN_MAX`]. Guard: none.
    ForgetAnswers {
        /// The instant.
        kept_before: UnixMillis,
    },
    /// Appends to the audit log. The store itself gives its number: from 1 without gap in its tenant, or among the system's own.
    /// Guard: none.
    RecordAudit(Box<AuditRow>),
    /// Sets a deployment setting. Guard: none.
    PutSetting {
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
    /// Sets a deployment setting that two may want to set. Guard: its value is `from`; none: it is not there.
    MoveSetting {
        /// Name.
        name: String,
        /// The value it had.
        from: Option<String>,
        /// The value it gets.
        to: String,
    },
    /// Replaces the sealed form of a secret by the same secret sealed under another master key. Guard: it is sealed under `from`.
    RewrapSecret {
        /// Which.
        secret_id: String,
        /// The id of the master key it was sealed under.
        from: String,
        /// The id of the one it is sealed under now.
        key_id: String,
        /// As [`SecretRow::sealed`].
        sealed: Vec<u8>,
    },
    /// Writes nothing: names a row that the decision rests on and that no other write of the batch guards.
    Guard(Guard),
}

impl Write {
    /// The number of a row of no tenant that it is about, where many writes may be about it.
    pub(crate) const fn row_of(&self) -> Option<i64> {
        match self {
            Self::InsertMerchant(row) | Self::UpdateMerchant(row) => Some(row.tenant.0),
            Self::InsertApplication(row) | Self::UpdateApplication(row) => Some(row.no.0),
            Self::InsertSecret(row) | Self::UpdateSecret(row) => Some(row.application.0),
            Self::Guard(Guard::Lane { application, .. } | Guard::Application { application, .. }) => {
                Some(application.0)
            }
            Self::ClaimNonce(_)
            | Self::AppendRule { .. }
            | Self::InsertConvertOrder { .. }
            | Self::MoveConvertOrder { .. }
            | Self::Convert(_)
            | Self::PaymentOrder(_)
            | Self::EnqueueEvent(_)
            | Self::RecordAttempt { .. }
            | Self::Turn { .. }
            | Self::ReleaseHeld { .. }
            | Self::HoldPending { .. }
            | Self::Defer { .. }
            | Self::Reassess { .. }
            | Self::Redeliver { .. }
            | Self::SendNow { .. }
            | Self::Redelivery(_)
            | Self::AddUses(_)
            | Self::InsertToken(_)
            | Self::RevokeToken { .. }
            | Self::RememberAnswer(_)
            | Self::ForgetBytes { .. }
            | Self::ForgetEvents { .. }
            | Self::ForgetAnswers { .. }
            | Self::RecordAudit(_)
            | Self::PutSetting { .. }
            | Self::MoveSetting { .. }
            | Self::RewrapSecret { .. }
            | Self::Guard(
                Guard::Token { .. }
                | Guard::TokenLetGo { .. }
                | Guard::Setting { .. }
                | Guard::RuleHead { .. }
                | Guard::PaymentOrder { .. }
                | Guard::UnusedQuote { .. }
                | Guard::Before { .. }
                | Guard::Reached { .. },
            ) => None,
        }
    }
}

/// What must still be so when a batch is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Whoever decided is still the one who delivers for this application: its lane has not been taken by another node since.
    Lane {
        /// Whose lane.
        application: ApplicationNo,
        /// The term under which it was decided. Stores of one node: 0.
        fence: Fence,
    },
    /// The application is as it was read.
    Application {
        /// Which.
        application: ApplicationNo,
        /// Its `client_id`, for the conflict.
        client_id: String,
        /// The revision it had.
        revision: i64,
        /// Whether a change of it waits for the commit. One that does not may be committed on another node between the look and the commit.
        holds_changes: bool,
    },
    /// A sub-account's newest rule version is this one.
    RuleHead {
        /// Tenant of the sub-account.
        tenant: TenantNo,
        /// The sub-account.
        merchant: MerchantNo,
        /// Its number; 0: there is none.
        version_no: i64,
    },
    /// The operator token by which the change was asked for is not revoked.
    Token {
        /// Its id.
        token_id: String,
    },
    /// Nothing that rests on the operator token is on its way to be committed. Waits for nobody.
    TokenLetGo {
        /// Its id.
        token_id: String,
    },
    /// The deployment setting has this value.
    Setting {
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
    /// The payment order is as it was read. A batch of this alone is answered behind every move of the order that was applied before it.
    PaymentOrder {
        /// Tenant of the owner.
        tenant: TenantNo,
        /// The owner.
        merchant: MerchantNo,
        /// Which.
        id: PrepayId,
        /// The revision it had.
        revision: i64,
    },
    /// The quote is the merchant's and not used, and no batch is about to use it.
    UnusedQuote {
        /// Tenant of the merchant.
        tenant: TenantNo,
        /// Whom it is promised.
        merchant: MerchantNo,
        /// Which.
        quote_id: String,
    },
    /// An instant has not come yet: what was decided does not hold from that instant on. The guard belongs behind the writes that it is about, so
    /// that the time is read when those writes wait for nobody any more.
    Before {
        /// The instant.
        instant: UnixMillis,
        /// What time it is when the batch is applied.
        time: TimeSource,
    },
    /// An instant has come: what is said does not hold before it.
    Reached {
        /// The instant.
        instant: UnixMillis,
        /// What time it is when the batch is applied.
        time: TimeSource,
    },
}

impl Guard {
    /// Whether this guard asks for the database's own time, so that nodes whose clocks differ decide alike.
    pub(crate) fn asks_the_database(&self) -> bool {
        matches!(self, Self::Before { time, .. } | Self::Reached { time, .. } if time.is_the_database)
    }
}

/// Who tells the time that decides. The store reads no clock by itself.
#[derive(Clone)]
pub struct TimeSource {
    now: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    is_the_database: bool,
}

impl TimeSource {
    /// The time as this function tells it.
    pub fn new(now: impl Fn() -> UnixMillis + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), is_the_database: false }
    }

    /// The time of the database itself, where it has one; else as this function tells it.
    pub fn of_the_database(now: impl Fn() -> UnixMillis + Send + Sync + 'static) -> Self {
        Self { is_the_database: true, ..Self::new(now) }
    }

    /// What time it is. `database`: what the database says.
    pub(crate) fn now(&self, database: Option<UnixMillis>) -> UnixMillis {
        database.filter(|_| self.is_the_database).unwrap_or_else(|| (self.now)())
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = (self.now)();
        f.debug_struct("TimeSource").field("now", &now).field("is_the_database", &self.is_the_database).finish()
    }
}

/// The same source, not one that tells the same.
impl PartialEq for TimeSource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.now, &other.now)
    }
}

impl Eq for TimeSource {}

/// What the store itself gave to a batch, in the order of the writes that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// For each `EnqueueEvent`: its `(seq, sequence)`.
    pub events: Vec<EventNumbers>,
    /// How many answers its [`Write::ForgetAnswers`] forgot: fewer than [`ANSWERS_FORGOTTEN_MAX`] where none is left that is so old.
    pub answers_forgotten: usize,
    /// What its [`Write::ForgetEvents`] forgot together.
    pub events_forgotten: Forgotten,
}

impl Committed {
    /// Nothing.
    pub(crate) const NONE: Self = Self { events: Vec::new(), answers_forgotten: 0, events_forgotten: Forgotten::NONE };
}

/// Numbers that only the store can give to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventNumbers {
    /// Per application, from 1, no gap.
    pub seq: i64,
    /// Per application and `biz_id`, from 1, no gap.
    pub sequence: i64,
}
