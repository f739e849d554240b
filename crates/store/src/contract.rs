//! The contract that every store keeps; its named cases are in `tests/contract`.

use std::future::Future;

use countersign_domain::convert::ConvertOrder;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::money::Amount;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;
use thiserror::Error;

use crate::batch::{Batch, Committed, Conflict};

/// What kind of merchant it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MerchantKind {
    /// A main merchant with sub-accounts.
    Institution,
    /// A plain merchant.
    Merchant,
    /// A sub-account of an institution.
    SubAccount,
}

/// A merchant of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MerchantRow {
    /// Inside number.
    pub no: MerchantNo,
    /// Public id; one namespace for merchants and sub-accounts.
    pub merchant_id: String,
    /// Its tenant: itself, or the institution over it.
    pub tenant: TenantNo,
    /// Which kind.
    pub kind: MerchantKind,
    /// A name for people.
    pub name: String,
    /// Institutions: the base rate in percent (or as a fraction). Others: zero.
    pub base_r: Decimal,
    /// Institutions: the base fee in USDT. Others: zero.
    pub base_f: Amount,
    /// The user id of conversions that this merchant makes.
    pub user_id: i64,
    /// When it was made.
    pub created_at: UnixMillis,
}

/// How the server writes signatures on callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureEncoding {
    /// Lowercase hexadecimal.
    Hex,
    /// Base64.
    Base64,
}

/// The words of `bizType` and `bizStatus` on callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// As the service description shows.
    Standard,
    /// As the wider API family uses.
    Family,
}

/// An application: the holder of a ClientId.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationRow {
    /// Inside number.
    pub no: ApplicationNo,
    /// Public id, the ClientId.
    pub client_id: String,
    /// Its merchant's tenant.
    pub tenant: TenantNo,
    /// Its merchant.
    pub merchant: MerchantNo,
    /// A name for people.
    pub name: String,
    /// Whether requests are accepted.
    pub enabled: bool,
    /// Where callbacks go.
    pub callback_url: Option<String>,
    /// Whether callbacks go out.
    pub callback_enabled: bool,
    /// How callbacks are signed.
    pub callback_encoding: SignatureEncoding,
    /// Which words they use.
    pub callback_vocabulary: Vocabulary,
    /// A limit lower than the deployment's, in ms.
    pub timestamp_tolerance_ms: Option<i64>,
    /// Requests per second; `None` is the deployment's default, 0 is off.
    pub rate_limit_per_s: Option<u32>,
    /// Grows by one with each change of the application or its secrets; 1 at creation.
    pub revision: i64,
    /// When it was made.
    pub created_at: UnixMillis,
}

/// A Payment API Secret, sealed under the master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    /// Public id.
    pub secret_id: String,
    /// Whose.
    pub application: ApplicationNo,
    /// Which master key sealed it.
    pub key_id: String,
    /// Nonce, ciphertext and tag. Bound to `secret_id` and the ClientId.
    pub sealed: Vec<u8>,
    /// First 16 hex digits of SHA-256 over the secret: tells two apart, tells nothing else.
    pub fingerprint: String,
    /// Last four characters, for people.
    pub last4: String,
    /// Whether callbacks are signed with it.
    pub signs_callbacks: bool,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it ends, if it does.
    pub not_after: Option<UnixMillis>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<UnixMillis>,
}

impl SecretRow {
    /// Whether requests may be signed with it at `now`.
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.revoked_at.is_none() && self.not_after.is_none_or(|end| now < end)
    }
}

/// An application, its merchant, and its secrets that are not revoked, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationView {
    /// The application.
    pub application: ApplicationRow,
    /// Its merchant.
    pub merchant: MerchantRow,
    /// The `merchant_id` of its tenant (the institution's for a sub-account, else its own).
    pub tenant_id: String,
    /// Its secrets.
    pub secrets: Vec<SecretRow>,
}

/// What an operator token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read.
    Viewer,
    /// Read and run the daily business.
    Operator,
    /// All, with identities, secrets and tokens.
    Security,
}

/// An operator's bearer token, hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Public id.
    pub token_id: String,
    /// A name for people.
    pub name: String,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// What it may do.
    pub role: Role,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it ends.
    pub expires_at: Option<UnixMillis>,
    /// When it was revoked.
    pub revoked_at: Option<UnixMillis>,
}

/// One use of a nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimKey {
    /// Whose nonce.
    pub application: ApplicationNo,
    /// The nonce, 1 to 64 ASCII characters.
    pub nonce: String,
    /// The request's own timestamp. Equal nonces with different timestamps are one nonce.
    pub stamped_at: UnixMillis,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is yours; nobody else will get it.
    Fresh,
    /// Somebody had it before.
    Used,
    /// Stamped at or before the durable purge horizon: it cannot be known, so it is refused.
    TooOld,
    /// Stamped before a crash of the whole machine, so that it cannot be known for some seconds: say 503.
    Unknowable,
}

/// A callback event and where its delivery stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Inside number, time-ordered.
    pub no: EventNo,
    /// Its tenant.
    pub tenant: TenantNo,
    /// Whose callback.
    pub application: ApplicationNo,
    /// Its ClientId.
    pub client_id: String,
    /// Its public id is `evt_` + this.
    pub event_id: SortedId,
    /// Per application, from 1; given by the store.
    pub seq: i64,
    /// Per application and `biz_id`, from 1; given by the store.
    pub sequence: i64,
    /// What kind of business.
    pub biz_type: String,
    /// Of which payment order or transaction.
    pub biz_id: String,
    /// What became of it.
    pub biz_status: String,
    /// Business data, a JSON text.
    pub data: String,
    /// The exact bytes that are signed and sent on each attempt.
    pub body: Vec<u8>,
    /// When it was written.
    pub created_at: UnixMillis,
    /// Where its delivery stands.
    pub state: DeliveryState,
    /// Attempts made.
    pub attempts: i64,
    /// When the next one is due; `None` unless `Pending`.
    pub due_at: Option<UnixMillis>,
}

/// One attempt at delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// Which event.
    pub event: EventNo,
    /// 1, 2, ...
    pub attempt: i64,
    /// When it began.
    pub at: UnixMillis,
    /// How it ended.
    pub outcome: Outcome,
    /// The status, where an answer came.
    pub http_status: Option<u16>,
    /// How long it took.
    pub duration_ms: i64,
    /// The address that was connected to, if one was.
    pub address: Option<String>,
    /// What went wrong, in words, without the merchant's answer.
    pub detail: String,
}

/// An answer kept for an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// Token and route.
    pub scope: String,
    /// The key.
    pub key: String,
    /// SHA-256 of the body.
    pub body_digest: [u8; 32],
    /// Status of the answer.
    pub status: u16,
    /// The answer, its secrets null.
    pub answer: String,
    /// When.
    pub created_at: UnixMillis,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number; given by the store.
    pub no: i64,
    /// Its tenant; none for the system's own.
    pub tenant: Option<TenantNo>,
    /// When.
    pub at: UnixMillis,
    /// Who: `token:tok_...`, `application:app_...`, `system`.
    pub actor: String,
    /// From where: an address, or empty.
    pub source: String,
    /// What was done: `fee_rule.upgrade`, `application.create`, ...
    pub action: String,
    /// To what.
    pub subject: String,
    /// JSON before, or empty.
    pub before: String,
    /// JSON after, or empty. Never a secret.
    pub after: String,
    /// The request.
    pub request_id: String,
}

/// One record of an institution's list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRecord {
    /// The sub-account's public id.
    pub sub_merchant_id: String,
    /// A version that is in force or pending now; none where the sub-account has neither.
    pub version: Option<RuleVersion>,
    /// Whether that version is pending.
    pub is_pending: bool,
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFilter {
    /// Only records with, or without, a markup.
    pub has_markup: Option<bool>,
    /// Only pending (`true`) or only effective (`false`) versions.
    pub pending: Option<bool>,
    /// Only this sub-account.
    pub sub_merchant_id: Option<String>,
}

/// A page of a numbered list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePage {
    /// The records of the page.
    pub records: Vec<RuleRecord>,
    /// How many there are in all.
    pub total: i64,
}

/// Which events to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only of this application.
    pub client_id: Option<String>,
    /// Only of this business id.
    pub biz_id: Option<String>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
}

/// What the store could not do.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store is away, full or too busy; nothing was done. Say 503.
    #[error("the store cannot answer: {0}")]
    Unavailable(String),
    /// A row that cannot be read back as a value of the domain. Say 500.
    #[error("row {row} of table {table} cannot be read back")]
    Corrupt {
        /// Which table.
        table: &'static str,
        /// Which row.
        row: String,
    },
    /// The schema, the file or the program is not what it should be.
    #[error("{0}")]
    Unfit(String),
}

/// Why a batch was not applied.
#[derive(Debug, Error)]
pub enum CommitError {
    /// A guard did not hold; nothing was done.
    #[error("a guard did not hold: {0:?}")]
    Conflict(Conflict),
    /// The store could not; nothing was done.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The connection was lost in the commit: nobody knows yet whether it was done.
    #[error("the fate of the commit is unknown")]
    Unknown,
}

/// A page of a list by cursor: ask for rows after `after`, at most `limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The last one seen; none begins.
    pub after: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// What every store does. `model` is the oracle, `sqlite` the store of one machine.
pub trait Store: Send + Sync + 'static {
    /// Applies the batch whole, durably, or not at all.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<Committed, CommitError>> + Send;

    /// Takes a nonce in memory, atomically against every other request of this process: a replay is refused before any work is
    /// done. What follows is exactly one of three: a batch with its `ClaimNonce` commits; [`Store::settle`]; [`Store::release`].
    /// Costs no IO on SQLite, and no thread hop.
    fn reserve(&self, claim: &ClaimKey) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Makes a reserved nonce last: for reads, and for writes that were refused. When it has answered `Fresh`, the claim
    /// survives a kill of the process (on SQLite: written to the journal, not synced). The last word: another node may have been first.
    fn settle(&self, claim: ClaimKey) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Gives a reserved nonce back, since the answer is 429 or 503.
    fn release(&self, claim: &ClaimKey);

    /// Forgets nonces stamped before `horizon`, durably noting the horizon first; from then on they are `TooOld`.
    fn purge_nonces(&self, horizon: UnixMillis) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// An application by its ClientId.
    fn application(&self, client_id: &str) -> impl Future<Output = Result<Option<ApplicationView>, StoreError>> + Send;

    /// Every application, by number. `after` is an `ApplicationNo`.
    fn applications(
        &self,
        merchant: Option<MerchantNo>,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<ApplicationView>, StoreError>> + Send;

    /// A merchant of any kind by its public id.
    fn merchant(&self, merchant_id: &str) -> impl Future<Output = Result<Option<MerchantRow>, StoreError>> + Send;

    /// Merchants by number, all or of one tenant. `after` is a `MerchantNo`.
    fn merchants(
        &self,
        tenant: Option<TenantNo>,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<MerchantRow>, StoreError>> + Send;

    /// An operator token by its digest.
    fn token(&self, digest: &[u8; 32]) -> impl Future<Output = Result<Option<TokenRow>, StoreError>> + Send;

    /// The last rule version of a sub-account that was made at or before `made_by` (`None`: at all), with its base.
    fn rule_head(
        &self,
        merchant: MerchantNo,
        made_by: Option<UnixMillis>,
    ) -> impl Future<Output = Result<Option<RuleHead>, StoreError>> + Send;

    /// All versions of a sub-account, newest first. `after` is a `version_no`.
    fn rule_versions(
        &self,
        merchant: MerchantNo,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<RuleVersion>, StoreError>> + Send;

    /// A page of an institution's records at `now`: by `sub_merchant_id`, then version. `offset` records are skipped.
    fn rule_page(
        &self,
        tenant: TenantNo,
        filter: RuleFilter,
        now: UnixMillis,
        offset: u64,
        limit: u32,
    ) -> impl Future<Output = Result<RulePage, StoreError>> + Send;

    /// A convert order of this merchant; another merchant's is not found by construction.
    fn convert_order(
        &self,
        merchant: MerchantNo,
        order: OrderId,
    ) -> impl Future<Output = Result<Option<ConvertOrder>, StoreError>> + Send;

    /// A convert order for the back end, with its owner.
    fn convert_order_owner(
        &self,
        order: OrderId,
    ) -> impl Future<Output = Result<Option<(MerchantRow, ConvertOrder)>, StoreError>> + Send;

    /// Deliveries that are pending and due by `now`, oldest due first.
    fn due_events(&self, now: UnixMillis, limit: u32)
    -> impl Future<Output = Result<Vec<EventRow>, StoreError>> + Send;

    /// When the next pending delivery after `after` is due.
    fn next_due_at(&self, after: UnixMillis) -> impl Future<Output = Result<Option<UnixMillis>, StoreError>> + Send;

    /// An event with all its attempts.
    fn event(
        &self,
        event_id: SortedId,
    ) -> impl Future<Output = Result<Option<(EventRow, Vec<AttemptRow>)>, StoreError>> + Send;

    /// Events for the operator, newest first. `after` is an `EventNo`.
    fn events(
        &self,
        filter: EventFilter,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<EventRow>, StoreError>> + Send;

    /// An application's events with `seq` greater than `after`, in order.
    fn events_after(
        &self,
        application: ApplicationNo,
        after: i64,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<EventRow>, StoreError>> + Send;

    /// The answer kept for an idempotency key.
    fn remembered(
        &self,
        scope: &str,
        key: &str,
    ) -> impl Future<Output = Result<Option<IdempotencyRow>, StoreError>> + Send;

    /// The audit log, newest first. `after` is an audit number.
    fn audit(&self, page: Cursor) -> impl Future<Output = Result<Vec<AuditRow>, StoreError>> + Send;

    /// A deployment setting.
    fn setting(&self, name: &str) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// Whether the store answers; cheap, for readiness.
    fn ping(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}
