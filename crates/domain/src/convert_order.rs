//! Convert orders: a currency exchange that the platform's back end carries out.

use rust_decimal::Decimal;
use thiserror::Error;

use crate::ids::OrderId;
use crate::money::{Amount, Currency};
use crate::time::UnixMillis;

/// Where a convert order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertStatus {
    /// Made, not yet carried out: 1.
    Created,
    /// Carried out: 3. Final.
    Success,
    /// Not carried out: 6. Final.
    Failed,
}

impl ConvertStatus {
    /// The number on the wire.
    pub const fn code(self) -> i64 {
        match self {
            Self::Created => 1,
            Self::Success => 3,
            Self::Failed => 6,
        }
    }

    /// From the number on the wire.
    pub const fn from_code(code: i64) -> Option<Self> {
        match code {
            1 => Some(Self::Created),
            3 => Some(Self::Success),
            6 => Some(Self::Failed),
            _ => None,
        }
    }

    /// Whether an order may go from here to `next`.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Created => match next {
                Self::Success | Self::Failed => true,
                Self::Created => false,
            },
            Self::Success | Self::Failed => false,
        }
    }
}

/// A convert order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertOrder {
    /// Its number.
    pub order_id: OrderId,
    /// The user it was made for.
    pub user_id: i64,
    /// Currency sold.
    pub sell_currency: Currency,
    /// Currency bought.
    pub buy_currency: Currency,
    /// Amount sold.
    pub sell_amount: Amount,
    /// Amount bought.
    pub buy_amount: Amount,
    /// Where it stands.
    pub status: ConvertStatus,
    /// Quote coin per base coin of the pair, every digit kept.
    pub rate: Decimal,
    /// `PAY-` + 8 hex digits, or what the back end gave.
    pub quote_id: String,
    /// When it was made.
    pub created_at: UnixMillis,
    /// Grows by one with each move; 1 at creation.
    pub revision: i64,
}

/// A move that the machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a convert order of status {from} cannot take status {to}: {why}", from = .from.code(), to = .to.code(), why = self.why())]
pub struct MoveRefused {
    /// Where it stands.
    pub from: ConvertStatus,
    /// Where it was to go.
    pub to: ConvertStatus,
}

impl MoveRefused {
    const fn why(self) -> &'static str {
        match (self.from, self.to) {
            (ConvertStatus::Created, ConvertStatus::Created)
            | (ConvertStatus::Success, ConvertStatus::Success)
            | (ConvertStatus::Failed, ConvertStatus::Failed) => "it has it already",
            (ConvertStatus::Created, ConvertStatus::Success | ConvertStatus::Failed) => "it may take 3 or 6",
            (ConvertStatus::Success | ConvertStatus::Failed, _) => "3 and 6 are final",
        }
    }
}

/// The order after a move to `next`.
pub fn advance(order: &ConvertOrder, next: ConvertStatus) -> Result<ConvertOrder, MoveRefused> {
    if !order.status.may_become(next) {
        return Err(MoveRefused { from: order.status, to: next });
    }
    Ok(ConvertOrder { status: next, revision: order.revision + 1, ..order.clone() })
}
