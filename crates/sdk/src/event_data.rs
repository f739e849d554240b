//! What the service itself writes as the `data` of callbacks and events.
//!
//! Two kinds of events are its own: moves of payment orders, and test callbacks. All others, such as `TRANSFER_ADDRESS`, are emitted by the
//! platform's back end, which alone knows what is in them: read those by [`Callback::data_as`] into a type of yours. Conversions have no events.
//!
//! Source: docs/PROTOCOL.md, "POST /v1/pay/order" for payment orders, "Callbacks" for the rest. What these may gain later is ignored or kept:
//! fields that are not known are left out, and a word of a status that is not known is [`PaymentOrderStatus::Other`].

pub use countersign_protocol::endpoint::payment_order::Status as PaymentOrderStatus;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::callback::Callback;

/// `bizType` of a move of a payment order.
pub const PAYMENT_ORDER: &str = "PAYMENT_ORDER";
/// The same, for an application whose words are those of the wider family.
pub const PAYMENT_ORDER_FAMILY: &str = "PAY";
/// `bizType` of a test callback: it tells of nothing.
pub const TEST: &str = "CALLBACK_TEST";

/// The business data of a callback, or of an event that was pulled, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventData {
    /// A payment order has moved, as is claimed: query it before you deliver.
    PaymentOrder(PaymentOrderData),
    /// An operator looks whether callbacks are taken. Nothing has happened, and its data is empty.
    Test,
    /// A kind that the service does not emit by itself, or that is newer than this SDK: acknowledge it, whether you use it or not.
    Other,
}

impl EventData {
    /// Reads the `data` of an event of this `bizType`: of a [`Callback`], or of one that was [pulled](crate::EventWalk).
    ///
    /// It fails where the data is not what the service writes: a back end that emits events of payment orders by itself may have said
    /// something else. Then ask for the order; to have the callback sent again would not help.
    pub fn read(biz_type: &str, data: &str) -> Result<Self, serde_json::Error> {
        match biz_type {
            PAYMENT_ORDER | PAYMENT_ORDER_FAMILY => serde_json::from_str(data).map(Self::PaymentOrder),
            TEST => Ok(Self::Test),
            _ => Ok(Self::Other),
        }
    }
}

impl Callback {
    /// The business data by its kind: see [`EventData::read`].
    pub fn event_data(&self) -> Result<EventData, serde_json::Error> {
        EventData::read(&self.biz_type, &self.data)
    }
}

/// What a callback, or an event that was pulled, claims of a payment order. It is no proof that anything was paid: the platform may emit such an event
/// by hand, whatever the order is. Query the order: see [`Callback`]. Source: docs/PROTOCOL.md, "POST /v1/pay/order".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentOrderData {
    /// The merchant's own number, `merchantTradeNo`.
    pub merchant_trade_no: String,
    /// The service's number, digits: the callback's `bizId`.
    pub prepay_id: String,
    /// In which the two amounts are: 2 to 10 of `A-Z 0-9`.
    pub currency: String,
    /// What was asked for, in units of `currency`, with at most 6 decimals.
    #[serde(with = "numeric_text")]
    pub order_amount: Decimal,
    /// What was paid, as is claimed, in units of `currency`, with at most 6 decimals; it may differ from what was asked for. None where that is not
    /// known, as of an order that was never paid.
    #[serde(default, with = "numeric_text::or_null")]
    pub actual_amount: Option<Decimal>,
    /// The order's own state: [`PaymentOrderStatus::Paid`] where `bizStatus` is `SUCCESS`, or `PAY_SUCCESS`.
    pub status: PaymentOrderStatus,
    /// When it was made, in Unix milliseconds.
    pub create_time: i64,
    /// When the payer paid, in Unix milliseconds. None where that is not known.
    pub transact_time: Option<i64>,
}

/// An amount as the wire has it: a text of plain digits, perhaps with a point; never through floating point.
mod numeric_text {
    use rust_decimal::Decimal;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(amount: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&amount.normalize())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let amount = Decimal::from_str_exact(&text).ok().filter(|_| is_plain);
        amount.ok_or_else(|| D::Error::custom(format!("{text:?} is no amount")))
    }

    /// The same, or null.
    pub mod or_null {
        use rust_decimal::Decimal;
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        struct Text(#[serde(with = "super")] Decimal);

        #[expect(clippy::ref_option, reason = "serde calls it so")]
        pub fn serialize<S: Serializer>(amount: &Option<Decimal>, serializer: S) -> Result<S::Ok, S::Error> {
            amount.map(Text).serialize(serializer)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Decimal>, D::Error> {
            Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(amount)| amount))
        }
    }
}
