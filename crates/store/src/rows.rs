//! What the rows of the tables mean, as values: the store reads and writes these, the use cases make and judge them.

use countersign_domain::delivery::{DeliveryState, Outcome, Schedule};
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, SortedId, TenantNo};
use countersign_domain::lanes::Fence;
use countersign_domain::money::Amount;
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;

use crate::attempt_log::Phases;

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
    /// Whether requests of its applications are accepted, and their callbacks go out. An institution's counts for its sub-accounts too.
    pub enabled: bool,
    /// Grows by one with each change; 1 at creation.
    pub revision: i64,
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

/// How callbacks go to the endpoint of an application; `None` is the deployment's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Attempts in a second; 0: as many as there are, whatever the deployment says.
    pub rate_per_s: Option<u32>,
    /// Attempts at once, at least 1.
    pub concurrency: Option<u32>,
    /// When failed attempts are repeated.
    pub schedule: Option<Schedule>,
}

/// Which applications are meant; what is `None` is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationFilter {
    /// Only those of this merchant.
    pub merchant: Option<MerchantNo>,
    /// Only those whose callbacks are turned on, or off.
    pub callback_enabled: Option<bool>,
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
    /// When the endpoint answered 410, if that turned callbacks off: see [`Self::gone_at`].
    pub callback_gone_at: Option<UnixMillis>,
    /// How callbacks are signed.
    pub callback_encoding: SignatureEncoding,
    /// Which words they use.
    pub callback_vocabulary: Vocabulary,
    /// A limit lower than the deployment's, in ms.
    pub timestamp_tolerance_ms: Option<i64>,
    /// The limit before it was last raised, in ms: it still judges what was stamped at or before the raise.
    pub tolerance_before_ms: Option<i64>,
    /// When it was last raised; set together with `tolerance_before_ms`.
    pub tolerance_raised_at: Option<UnixMillis>,
    /// Requests per second; `None` is the deployment's default, 0 is off.
    pub rate_limit_per_s: Option<u32>,
    /// How its callbacks go out.
    pub endpoint: EndpointSettings,
    /// Grows by one with each change of the application or its secrets; 1 at creation.
    pub revision: i64,
    /// When it was made.
    pub created_at: UnixMillis,
}

impl ApplicationRow {
    /// When the endpoint answered 410, if that is why callbacks do not go out. A node of an older version turns them on and leaves the time.
    pub fn gone_at(&self) -> Option<UnixMillis> {
        self.callback_gone_at.filter(|_| !self.callback_enabled)
    }
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
    /// When a request was last signed with it, as far as it was noted; given by the store.
    pub last_used_at: Option<UnixMillis>,
}

/// Requests that were signed with a secret in one minute, to be added to what others have noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUses {
    /// Which secret; one that is not there is passed over.
    pub secret_id: String,
    /// The minute, counted from 1970.
    pub minute: i64,
    /// How many requests, at least 1.
    pub uses: i64,
    /// The last one of them.
    pub last_used_at: UnixMillis,
}

/// A call that was made with an operator token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUse {
    /// Which token; one that is not there is passed over.
    pub token_id: String,
    /// When.
    pub last_used_at: UnixMillis,
}

/// What was used since it was last noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Secrets, each once, by id.
    pub secrets: Vec<SecretUses>,
    /// Tokens, each once, by id.
    pub tokens: Vec<TokenUse>,
    /// Minutes before this one are forgotten.
    pub forget_before: i64,
    /// When they are noted. A last use that is stored and lies farther ahead of that, and of a shared store's own time, than clocks are apart
    /// ([`countersign_domain::time::CLOCKS_APART_MS_MAX`]) was noted by a clock that was ahead: it counts as one of now. None: all are believed.
    pub noted_at: Option<UnixMillis>,
}

/// A secret, whatever its state, and the ClientId that its sealed form is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    /// The ClientId.
    pub client_id: String,
    /// The secret.
    pub row: SecretRow,
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
    /// Whether its tenant is enabled.
    pub tenant_enabled: bool,
    /// Its secrets.
    pub secrets: Vec<SecretRow>,
}

impl ApplicationView {
    /// Whether its merchant and the institution over that are enabled.
    pub const fn merchant_is_enabled(&self) -> bool {
        self.merchant.enabled && self.tenant_enabled
    }

    /// Whether requests are accepted: neither the application is disabled, nor its merchant, nor the institution over that.
    pub const fn is_enabled(&self) -> bool {
        self.application.enabled && self.merchant_is_enabled()
    }

    /// Whether callbacks go out at once; else its events are held.
    pub const fn goes_out(&self) -> bool {
        self.application.callback_url.is_some() && self.application.callback_enabled && self.merchant_is_enabled()
    }
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
    /// When a call was last made with it, as far as it was noted; given by the store.
    pub last_used_at: Option<UnixMillis>,
}

impl TokenRow {
    /// Whether calls may be made with it at `now`.
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
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
    /// When the next one is due; `None` unless `Pending`. Of one that waits behind another: the end of its patience.
    pub due_at: Option<UnixMillis>,
    /// The earlier event of its `biz_id` that it waits for; `None` unless `Pending`.
    pub behind: Option<EventNo>,
    /// Whether it is sent again by hand; that it fails then says nothing about its endpoint.
    pub by_hand: bool,
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
    /// The term of its lane under which it was made; 0 in stores of one node.
    pub fence: Fence,
    /// How long its phases took.
    pub phases: Phases,
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

/// An answer that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAnswer {
    /// The answer.
    pub row: IdempotencyRow,
    /// An answer under the same key that was kept before this instant has ended, and is replaced.
    pub ended_before: UnixMillis,
}

/// Where a line stands in the audit log: in this order, the last one is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditKey {
    /// When.
    pub at: UnixMillis,
    /// Its tenant; none, which comes first, for the system's own.
    pub tenant: Option<TenantNo>,
    /// Its number in the tenant.
    pub no: i64,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number: from 1 without gap in its tenant, and among the system's own; given by the store.
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

impl AuditRow {
    /// Where it stands in the log.
    pub const fn key(&self) -> AuditKey {
        AuditKey { at: self.at, tenant: self.tenant, no: self.no }
    }
}
