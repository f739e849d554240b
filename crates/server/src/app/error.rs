//! Why a use case was refused or failed: one enum for both edges, one exhaustive match makes the code.

use countersign_domain::conversion::QuoteRefused;
use countersign_domain::convert_order::MoveRefused;
use countersign_domain::payment_order;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::events::gone;
use countersign_protocol::sentence::of_field;
use countersign_store::batch::Conflict;
use countersign_store::{CommitError, StoreError};
use thiserror::Error;

/// What is said of a fault of ours: without detail.
pub(crate) const INTERNAL: &str = "something went wrong on our side; quote the request id when you ask about it";
/// What is said where the store is away.
pub(crate) const UNAVAILABLE: &str = "the service cannot answer now and has done nothing; repeat the request later";

/// Why a use case did not do what was asked.
#[derive(Debug, Error)]
pub enum AppError {
    /// A field is missing, malformed or out of range; the text names it and says what to change.
    #[error("{0}")]
    InvalidParameter(String),
    /// An amount is not within the contract's limits; the text names it.
    #[error("{0}")]
    InvalidAmount(String),
    /// A currency is none.
    #[error("{0}")]
    InvalidCurrency(String),
    /// A quote that cannot be carried out as it is asked.
    #[error(transparent)]
    Quote(#[from] QuoteRefused),
    /// A name that stands for something else for ever.
    #[error("{}", of_field(.name, format_args!("stands for another request, whose {differs} is not the same; send the same content again, or another {name}")))]
    DuplicateTradeNo {
        /// The field of the name.
        name: &'static str,
        /// The first field of the content that differs.
        differs: &'static str,
    },
    /// No rate is fresh enough for a price.
    #[error(
        "there is no current rate for this pair now, and nothing was done; GET /v1/pay/convert/pair says which pairs there are, and a rate may come later"
    )]
    NoRate,
    /// A rule's dates exclude each other.
    #[error("{0}")]
    InvalidRulePeriod(String),
    /// Creation where a rule is effective or pending.
    #[error("a fee rule is effective or pending for this sub-account; use the upgrade operation to replace it")]
    FeeRuleExists,
    /// Not there, or another institution's.
    #[error("no sub-account of this institution has this sub_merchant_id")]
    SubMerchantNotFound,
    /// Not there, or not yours.
    #[error("no order of this merchant has this number")]
    OrderNotFound,
    /// `MerchantId` or `On-Behalf-Of` names somebody this key does not speak for.
    #[error("{0}")]
    MerchantNotAllowed(String),
    /// The state machine has no such move.
    #[error(transparent)]
    InvalidOrderStatus(#[from] MoveRefused),
    /// The same for payment orders.
    #[error(transparent)]
    InvalidPaymentOrderStatus(#[from] payment_order::MoveRefused),
    /// The same nonce was used before.
    #[error("this nonce was used before; send a new one with every request")]
    NonceReused,
    /// Something operators asked for is not there; the text names it.
    #[error("{0}")]
    NotFound(String),
    /// Something operators wanted to add is there; the text names it.
    #[error("{0}")]
    AlreadyExists(String),
    /// The same `Idempotency-Key` came with another body.
    #[error("this Idempotency-Key was used with another body; send a new key with a new request")]
    IdempotencyKeyReused,
    /// A secret that somebody may still use was to be retired, or a master key to be replaced that a node has; the text says who.
    #[error("{0}")]
    SecretInUse(String),
    /// An event that is not in a state to be sent again; the text says which it is in.
    #[error("{0}")]
    NotRedeliverable(String),
    /// A callback that tells of nothing cannot be sent now; the text says what to do about it.
    #[error("{0}")]
    CallbackNotTestable(String),
    /// Events were asked for that are no longer kept.
    #[error("{}", gone(*oldest))]
    EventsGone {
        /// The oldest `seq` that is kept.
        oldest: i64,
    },
    /// Others changed the same rows until the time was up.
    #[error("others are changing the same record; repeat the request")]
    Busy,
    /// As much of its kind is done as may be at once; the text says when to come again.
    #[error("{0}")]
    Crowded(String),
    /// The same, where it is known when there is room again.
    #[error("{why} in {room_in_s} seconds")]
    CrowdedFor {
        /// What is under way, and what to do.
        why: String,
        /// How long until there is room.
        room_in_s: u64,
    },
    /// The operator token by which it was asked for was revoked before it was done.
    #[error(
        "the token was revoked while this was under way, and what was left of it was not done: send another operator token"
    )]
    TokenRevoked,
    /// The deployment seals under a master key that this node was not given; its id. Only operators meet it.
    #[error(
        "this node was not given the master key {0}, which this deployment seals under now: start it again with that key (and with the one it has as master_key_previous, while a re-wrap runs)"
    )]
    LacksMasterKey(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Lost in the commit.
    #[error("outcome unknown: query before repeating")]
    OutcomeUnknown,
}

impl AppError {
    /// The code on the wire.
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidParameter(_) => Code::InvalidParameter,
            Self::InvalidAmount(_) | Self::Quote(QuoteRefused::Amounts) => Code::InvalidAmount,
            Self::InvalidCurrency(_) | Self::Quote(QuoteRefused::Currencies) => Code::InvalidCurrency,
            Self::Quote(QuoteRefused::Expired) => Code::QuoteExpired,
            Self::DuplicateTradeNo { .. } => Code::DuplicateTradeNo,
            Self::InvalidRulePeriod(_) => Code::InvalidRulePeriod,
            Self::FeeRuleExists => Code::FeeRuleExists,
            Self::SubMerchantNotFound => Code::SubMerchantNotFound,
            Self::OrderNotFound => Code::OrderNotFound,
            Self::MerchantNotAllowed(_) => Code::MerchantNotAllowed,
            Self::InvalidOrderStatus(_)
            | Self::InvalidPaymentOrderStatus(_)
            | Self::NotRedeliverable(_)
            | Self::CallbackNotTestable(_) => Code::InvalidOrderStatus,
            Self::NonceReused => Code::NonceReused,
            Self::NotFound(_) => Code::NotFound,
            Self::AlreadyExists(_) => Code::AlreadyExists,
            Self::SecretInUse(_) => Code::SecretInUse,
            Self::IdempotencyKeyReused => Code::IdempotencyKeyReused,
            Self::EventsGone { .. } => Code::EventsGone,
            Self::TokenRevoked => Code::Unauthenticated,
            Self::NoRate
            | Self::Busy
            | Self::Crowded(_)
            | Self::CrowdedFor { .. }
            | Self::LacksMasterKey(_)
            | Self::Store(StoreError::Unavailable(_)) => Code::ServiceUnavailable,
            Self::Store(StoreError::Corrupt { .. } | StoreError::Unfit(_)) | Self::OutcomeUnknown => {
                Code::InternalError
            }
        }
    }

    /// The seconds after which to repeat the request, where they are known.
    pub const fn room_in_s(&self) -> Option<u64> {
        if let Self::CrowdedFor { room_in_s, .. } = self { Some(*room_in_s) } else { None }
    }

    /// The sentence for the caller: what to change, never internal detail.
    pub fn sentence(&self) -> String {
        match self {
            Self::Store(StoreError::Unavailable(_)) => UNAVAILABLE.to_owned(),
            Self::Store(StoreError::Corrupt { .. } | StoreError::Unfit(_)) => INTERNAL.to_owned(),
            other => other.to_string(),
        }
    }
}

impl From<CommitError> for AppError {
    /// For commits whose conflicts the use case has dealt with: what is left of them is contention.
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict(Conflict::TokenRevoked) => Self::TokenRevoked,
            CommitError::Conflict(_) => Self::Busy,
            CommitError::Store(error) => Self::Store(error),
            CommitError::Unknown => Self::OutcomeUnknown,
        }
    }
}
