//! Every code that an answer can carry. Codes are stable and never reused.

use std::fmt;

/// What an answer says when it does not say SUCCESS: one code, one label, one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A header, query or body field is missing, malformed, out of range or given twice.
    InvalidParameter,
    /// Unknown ClientId, disabled application or wrong signature: one answer for all three.
    InvalidSignature,
    /// The timestamp is further from the server's time than the limit.
    TimestampOutOfRange,
    /// The body is not declared as plain `application/json`.
    UnsupportedContentType,
    /// The nonce is empty, too long, has a bad character or the reserved prefix.
    InvalidNonce,
    /// The nonce was used before.
    NonceReused,
    /// The same merchantTradeNo with other content.
    DuplicateTradeNo,
    /// No such order of this merchant.
    OrderNotFound,
    /// MerchantId or On-Behalf-Of names somebody this key does not speak for.
    MerchantNotAllowed,
    /// The order's status does not allow this.
    InvalidOrderStatus,
    /// Not a currency, or the same one twice.
    InvalidCurrency,
    /// Not a numeric string, too many decimals, or outside the limits.
    InvalidAmount,
    /// The quote is used up or too old.
    QuoteExpired,
    /// Creation of a rule where one is effective or pending.
    FeeRuleExists,
    /// No such sub-account of this institution.
    SubMerchantNotFound,
    /// The rule's dates are impossible or exclude each other.
    InvalidRulePeriod,
    /// An upgrade that carries `config_id`.
    ConfigIdNotAccepted,
    /// No such path.
    NotFound,
    /// The path exists, with another method.
    MethodNotAllowed,
    /// Events before the oldest one kept were asked for.
    EventsGone,
    /// The body is over 64 KiB.
    BodyTooLarge,
    /// The request line or the headers are too large or too many.
    HeadersTooLarge,
    /// Too many requests.
    RateLimited,
    /// Something went wrong on our side.
    InternalError,
    /// The service cannot answer now and has done nothing.
    ServiceUnavailable,
    /// Operators: no valid bearer token.
    Unauthenticated,
    /// Operators: the token's role does not allow this.
    RoleNotAllowed,
    /// Operators: what was to be added is there.
    AlreadyExists,
    /// Operators: the idempotency key was used with another body.
    IdempotencyKeyReused,
    /// Operators: the secret to be retired is in use, or the master key that is to be replaced.
    SecretInUse,
}

/// `code` of every successful answer.
pub const SUCCESS: &str = "000000";

impl Code {
    /// Every code, in the order of the contract's table.
    pub const ALL: &'static [Self] = &[
        Self::InvalidParameter,
        Self::InvalidSignature,
        Self::TimestampOutOfRange,
        Self::UnsupportedContentType,
        Self::InvalidNonce,
        Self::NonceReused,
        Self::DuplicateTradeNo,
        Self::OrderNotFound,
        Self::MerchantNotAllowed,
        Self::InvalidOrderStatus,
        Self::InvalidCurrency,
        Self::InvalidAmount,
        Self::QuoteExpired,
        Self::FeeRuleExists,
        Self::SubMerchantNotFound,
        Self::InvalidRulePeriod,
        Self::ConfigIdNotAccepted,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::EventsGone,
        Self::BodyTooLarge,
        Self::HeadersTooLarge,
        Self::RateLimited,
        Self::InternalError,
        Self::ServiceUnavailable,
        Self::Unauthenticated,
        Self::RoleNotAllowed,
        Self::AlreadyExists,
        Self::IdempotencyKeyReused,
        Self::SecretInUse,
    ];

    /// The six digits in the field `code`.
    pub const fn code(self) -> &'static str {
        self.row().0
    }

    /// The text in the field `label`.
    pub const fn label(self) -> &'static str {
        self.row().1
    }

    /// The HTTP status.
    pub const fn http_status(self) -> u16 {
        self.row().2
    }

    /// The code with these six digits.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.code() == code)
    }

    /// Whether only the operator API answers with it.
    pub const fn is_operator_only(self) -> bool {
        matches!(
            self,
            Self::Unauthenticated
                | Self::RoleNotAllowed
                | Self::AlreadyExists
                | Self::IdempotencyKeyReused
                | Self::SecretInUse
        )
    }

    const fn row(self) -> (&'static str, &'static str, u16) {
        match self {
            Self::InvalidParameter => ("400001", "INVALID_PARAMETER", 400),
            Self::InvalidSignature => ("400002", "INVALID_SIGNATURE", 401),
            Self::TimestampOutOfRange => ("400003", "TIMESTAMP_OUT_OF_RANGE", 401),
            Self::UnsupportedContentType => ("400007", "UNSUPPORTED_CONTENT_TYPE", 415),
            Self::InvalidNonce => ("400020", "INVALID_NONCE", 400),
            Self::NonceReused => ("400021", "NONCE_REUSED", 401),
            Self::DuplicateTradeNo => ("400201", "DUPLICATE_TRADE_NO", 409),
            Self::OrderNotFound => ("400202", "ORDER_NOT_FOUND", 404),
            Self::MerchantNotAllowed => ("400203", "MERCHANT_NOT_ALLOWED", 403),
            Self::InvalidOrderStatus => ("400204", "INVALID_ORDER_STATUS", 409),
            Self::InvalidCurrency => ("400205", "INVALID_CURRENCY", 400),
            Self::InvalidAmount => ("400621", "INVALID_AMOUNT", 400),
            Self::QuoteExpired => ("400622", "QUOTE_EXPIRED", 409),
            Self::FeeRuleExists => ("400701", "FEE_RULE_EXISTS", 409),
            Self::SubMerchantNotFound => ("400702", "SUB_MERCHANT_NOT_FOUND", 404),
            Self::InvalidRulePeriod => ("400703", "INVALID_RULE_PERIOD", 400),
            Self::ConfigIdNotAccepted => ("400704", "CONFIG_ID_NOT_ACCEPTED", 400),
            Self::NotFound => ("400404", "NOT_FOUND", 404),
            Self::MethodNotAllowed => ("400405", "METHOD_NOT_ALLOWED", 405),
            Self::EventsGone => ("400410", "EVENTS_GONE", 410),
            Self::BodyTooLarge => ("400413", "BODY_TOO_LARGE", 413),
            Self::HeadersTooLarge => ("400431", "HEADERS_TOO_LARGE", 431),
            Self::RateLimited => ("400429", "RATE_LIMITED", 429),
            Self::InternalError => ("300001", "INTERNAL_ERROR", 500),
            Self::ServiceUnavailable => ("300503", "SERVICE_UNAVAILABLE", 503),
            Self::Unauthenticated => ("400801", "UNAUTHENTICATED", 401),
            Self::RoleNotAllowed => ("400802", "ROLE_NOT_ALLOWED", 403),
            Self::AlreadyExists => ("400803", "ALREADY_EXISTS", 409),
            Self::IdempotencyKeyReused => ("400804", "IDEMPOTENCY_KEY_REUSED", 409),
            Self::SecretInUse => ("400805", "SECRET_IN_USE", 409),
        }
    }
}

impl fmt::Display for Code {
    /// Digits and label: `400021 NONCE_REUSED`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code(), self.label())
    }
}
