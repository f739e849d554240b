//! Why a batch was refused.

use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId};
use countersign_domain::lanes::Lane;
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;

/// Which guard did not hold. The use case reads again and decides again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The nonce was used before.
    NonceUsed,
    /// A key that had to be new is there.
    Taken(Key),
    /// A row that had to be at a revision is at another, or is not there.
    Moved(Key),
    /// An order of this sub-account was paid at this instant: a rule version is made later than that.
    PaidSince(MerchantNo, UnixMillis),
    /// Another node has taken this lane since: what was done under the older term is not recorded.
    Fenced(Lane),
    /// What was decided holds until this instant, and it has come.
    Late(UnixMillis),
    /// What was to be said holds from this instant on, and it has not come.
    Early(UnixMillis),
    /// As many conversions of this merchant wait as may.
    Crowded,
    /// The operator token by which the change was asked for is revoked, or is not there.
    TokenRevoked,
}

/// The row that a conflict was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A fee rule head.
    RuleHead(MerchantNo),
    /// A merchant.
    Merchant(String),
    /// An application.
    Application(String),
    /// A secret.
    Secret(String),
    /// An operator token.
    Token(String),
    /// A convert order.
    ConvertOrder(OrderId),
    /// A pair's rate.
    Rate(String),
    /// A quote of this merchant.
    Quote(String),
    /// The name of a request of this merchant.
    ConvertRequest(String),
    /// A payment order.
    PaymentOrder(PrepayId),
    /// A trade number of a merchant.
    TradeNo(MerchantNo, String),
    /// An event.
    Event(SortedId),
    /// An event's delivery.
    Delivery(EventNo),
    /// A redelivery of this application.
    Redelivery(ApplicationNo),
    /// An idempotency key.
    Idempotency,
    /// A deployment setting.
    Setting(String),
}
