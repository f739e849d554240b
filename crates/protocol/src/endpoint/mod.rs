//! The operations of the signed API, one file each.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::body::FieldRefused;
use crate::code::Code;
use crate::sentence;

pub mod convert;
pub mod convert_currency;
pub mod convert_order;
pub mod convert_order_list;
pub mod convert_pair;
pub mod convert_preview;
pub mod events;
pub mod order_close;
pub mod order_create;
pub mod order_list;
pub mod order_native;
mod order_page;
pub mod order_query;
pub mod payment_order;
pub mod rule_create;
pub mod rule_list;
pub mod rule_query;
pub mod rule_upgrade;
pub mod time;

/// An operation that merchants call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The server's time, unsigned.
    Time,
    /// A new version of a fee rule.
    RuleUpgrade,
    /// The first version of a fee rule.
    RuleCreate,
    /// The fee rule in force at an instant.
    RuleQuery,
    /// Fee rules of all sub-accounts.
    RuleList,
    /// One convert order.
    ConvertOrder,
    /// Convert orders by pages.
    ConvertOrderList,
    /// What can be converted.
    ConvertCurrency,
    /// What a currency can be converted into, or from.
    ConvertPair,
    /// A price for a conversion.
    ConvertPreview,
    /// A conversion at such a price.
    Convert,
    /// A payment order.
    OrderCreate,
    /// A payment order by a QR code.
    OrderNative,
    /// One payment order, as it is.
    OrderQuery,
    /// Payment orders by pages.
    OrderList,
    /// The end of a pending payment order.
    OrderClose,
    /// Past events of the application.
    Events,
}

impl Endpoint {
    /// Every operation.
    pub const ALL: &'static [Self] = &[
        Self::Time,
        Self::RuleUpgrade,
        Self::RuleCreate,
        Self::RuleQuery,
        Self::RuleList,
        Self::ConvertOrder,
        Self::ConvertOrderList,
        Self::ConvertCurrency,
        Self::ConvertPair,
        Self::ConvertPreview,
        Self::Convert,
        Self::OrderCreate,
        Self::OrderNative,
        Self::OrderQuery,
        Self::OrderList,
        Self::OrderClose,
        Self::Events,
    ];

    /// The HTTP method.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Time => time::METHOD,
            Self::RuleUpgrade => rule_upgrade::METHOD,
            Self::RuleCreate => rule_create::METHOD,
            Self::RuleQuery => rule_query::METHOD,
            Self::RuleList => rule_list::METHOD,
            Self::ConvertOrder => convert_order::METHOD,
            Self::ConvertOrderList => convert_order_list::METHOD,
            Self::ConvertCurrency => convert_currency::METHOD,
            Self::ConvertPair => convert_pair::METHOD,
            Self::ConvertPreview => convert_preview::METHOD,
            Self::Convert => convert::METHOD,
            Self::OrderCreate => order_create::METHOD,
            Self::OrderNative => order_native::METHOD,
            Self::OrderQuery => order_query::METHOD,
            Self::OrderList => order_list::METHOD,
            Self::OrderClose => order_close::METHOD,
            Self::Events => events::METHOD,
        }
    }

    /// The path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Time => time::PATH,
            Self::RuleUpgrade => rule_upgrade::PATH,
            Self::RuleCreate => rule_create::PATH,
            Self::RuleQuery => rule_query::PATH,
            Self::RuleList => rule_list::PATH,
            Self::ConvertOrder => convert_order::PATH,
            Self::ConvertOrderList => convert_order_list::PATH,
            Self::ConvertCurrency => convert_currency::PATH,
            Self::ConvertPair => convert_pair::PATH,
            Self::ConvertPreview => convert_preview::PATH,
            Self::Convert => convert::PATH,
            Self::OrderCreate => order_create::PATH,
            Self::OrderNative => order_native::PATH,
            Self::OrderQuery => order_query::PATH,
            Self::OrderList => order_list::PATH,
            Self::OrderClose => order_close::PATH,
            Self::Events => events::PATH,
        }
    }

    /// A stable name for logs and metrics: the name of its file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::RuleUpgrade => "rule_upgrade",
            Self::RuleCreate => "rule_create",
            Self::RuleQuery => "rule_query",
            Self::RuleList => "rule_list",
            Self::ConvertOrder => "convert_order",
            Self::ConvertOrderList => "convert_order_list",
            Self::ConvertCurrency => "convert_currency",
            Self::ConvertPair => "convert_pair",
            Self::ConvertPreview => "convert_preview",
            Self::Convert => "convert",
            Self::OrderCreate => "order_create",
            Self::OrderNative => "order_native",
            Self::OrderQuery => "order_query",
            Self::OrderList => "order_list",
            Self::OrderClose => "order_close",
            Self::Events => "events",
        }
    }

    /// Whether requests must be signed.
    pub const fn is_signed(self) -> bool {
        match self {
            Self::Time => false,
            Self::RuleUpgrade
            | Self::RuleCreate
            | Self::RuleQuery
            | Self::RuleList
            | Self::ConvertOrder
            | Self::ConvertOrderList
            | Self::ConvertCurrency
            | Self::ConvertPair
            | Self::ConvertPreview
            | Self::Convert
            | Self::OrderCreate
            | Self::OrderNative
            | Self::OrderQuery
            | Self::OrderList
            | Self::OrderClose
            | Self::Events => true,
        }
    }

    /// Whether only an institution may call it, with its MerchantId.
    pub const fn is_institution_only(self) -> bool {
        match self {
            Self::RuleUpgrade | Self::RuleCreate | Self::RuleQuery | Self::RuleList => true,
            Self::Time
            | Self::ConvertOrder
            | Self::ConvertOrderList
            | Self::ConvertCurrency
            | Self::ConvertPair
            | Self::ConvertPreview
            | Self::Convert
            | Self::OrderCreate
            | Self::OrderNative
            | Self::OrderQuery
            | Self::OrderList
            | Self::OrderClose
            | Self::Events => false,
        }
    }

    /// Whether it changes anything.
    pub const fn changes(self) -> bool {
        match self {
            Self::RuleUpgrade
            | Self::RuleCreate
            | Self::ConvertPreview
            | Self::Convert
            | Self::OrderCreate
            | Self::OrderNative
            | Self::OrderClose => true,
            Self::Time
            | Self::RuleQuery
            | Self::RuleList
            | Self::ConvertOrder
            | Self::ConvertOrderList
            | Self::ConvertCurrency
            | Self::ConvertPair
            | Self::OrderQuery
            | Self::OrderList
            | Self::Events => false,
        }
    }
}

impl fmt::Display for Endpoint {
    /// Method and path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method(), self.path())
    }
}

/// Why a request is refused before anybody looks at what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub struct RequestRefused {
    /// The code on the wire.
    pub code: Code,
    /// The sentence for the caller: which field, and what to change.
    pub sentence: String,
}

impl RequestRefused {
    /// A refusal of one field with a code of its own.
    pub fn of_field(code: Code, name: &str, why: impl fmt::Display) -> Self {
        Self { code, sentence: sentence::of_field(name, why) }
    }
}

impl From<FieldRefused> for RequestRefused {
    fn from(refused: FieldRefused) -> Self {
        Self { code: refused.code(), sentence: refused.to_string() }
    }
}

/// What merchants see of a fee rule version's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub enum RuleStatus {
    /// In force.
    #[serde(rename = "EFFECTIVE")]
    Effective,
    /// Its time has not come.
    #[serde(rename = "PENDING_EFFECTIVE")]
    PendingEffective,
}

impl RuleStatus {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Effective => "EFFECTIVE",
            Self::PendingEffective => "PENDING_EFFECTIVE",
        }
    }

    /// From the wire.
    pub fn from_wire(text: &str) -> Option<Self> {
        [Self::Effective, Self::PendingEffective].into_iter().find(|status| status.as_str() == text)
    }
}

/// Refuses what cannot be the ID of a merchant or sub-account.
fn checked_name(field: &str, text: String) -> Result<String, FieldRefused> {
    if crate::headers::is_name(&text) {
        Ok(text)
    } else {
        Err(FieldRefused::new(field, "must be 1 to 64 of A-Z a-z 0-9 _ -"))
    }
}

/// Writes a decimal as the JSON number that [`crate::exact::Exact`] is.
fn as_exact<S: serde::Serializer>(value: &rust_decimal::Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    crate::exact::Exact(*value).serialize(serializer)
}

/// Reads such a number.
fn of_exact<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<rust_decimal::Decimal, D::Error> {
    <crate::exact::Exact as Deserialize>::deserialize(deserializer).map(|exact| exact.0)
}

/// The bytes of a request body of ours.
fn to_json<T: Serialize>(body: &T) -> Vec<u8> {
    serde_json::to_vec(body).expect("texts, numbers and truth values always serialize")
}
