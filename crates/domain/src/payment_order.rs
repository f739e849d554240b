//! Payment orders: what a merchant wants to be paid, and where it stands.
//!
//! Invariant: that an order has expired is computed from its expire time (`status_at`). The stored status follows, so that a callback can tell
//! of it; no answer waits for that. The back end of a restored deployment alone moves by what is stored ([`Mover::BackEndOfRestored`]).

use std::fmt;

use thiserror::Error;

use crate::fees::OrderFee;
use crate::money::{Amount, Currency, QR_MAX, TRANSACTION_MAX};
use crate::time::UnixMillis;

/// How long an order waits to be paid where nothing is said, and a QR order at the most, in ms.
pub const LIFE_MS_DEFAULT: i64 = 3_600_000;
/// How long an order may wait to be paid, in ms.
pub const LIFE_MS_MAX: i64 = 30 * 86_400_000;
/// Longest trade number of a merchant.
pub const TRADE_NO_LEN_MAX: usize = 100;

/// Where a payment order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PaymentStatus {
    /// Waits to be paid.
    Pending,
    /// Paid in time, not yet confirmed.
    Process,
    /// Paid. Final.
    Paid,
    /// Not paid in time. Final.
    Expired,
    /// Given up. Final.
    Closed,
}

impl PaymentStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Process, Self::Paid, Self::Expired, Self::Closed];

    /// Its name in answers and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Process => "PROCESS",
            Self::Paid => "PAID",
            Self::Expired => "EXPIRED",
            Self::Closed => "CLOSED",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether an order may go from here to `next`, whoever moves it.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => match next {
                Self::Process | Self::Paid | Self::Expired | Self::Closed => true,
                Self::Pending => false,
            },
            Self::Process => match next {
                Self::Paid | Self::Closed => true,
                Self::Pending | Self::Process | Self::Expired => false,
            },
            Self::Paid | Self::Expired | Self::Closed => false,
        }
    }
}

/// Which operation made an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentKind {
    /// Any terminal.
    Order,
    /// A personal QR code.
    Native,
}

impl PaymentKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Order, Self::Native];

    /// Its name in rows and for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Native => "native",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The largest amount.
    pub const fn amount_max(self) -> Amount {
        match self {
            Self::Order => TRANSACTION_MAX,
            Self::Native => QR_MAX,
        }
    }

    /// How far ahead the expire time may lie, in ms.
    pub const fn life_ms_max(self) -> i64 {
        match self {
            Self::Order => LIFE_MS_MAX,
            Self::Native => LIFE_MS_DEFAULT,
        }
    }
}

/// An order's public number: a number that grows with time, and six digits of chance behind it. Two nodes may draw the same first part in one
/// millisecond; the second tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrepayId {
    number: i64,
    tail: i64,
}

/// One more than the largest tail.
const TAILS: i64 = 1_000_000;
const TAIL_DIGITS: usize = 6;

impl PrepayId {
    /// Of a number that grows with time, at least 1, and chance.
    pub const fn new(number: i64, chance: u64) -> Self {
        #[expect(clippy::cast_possible_wrap, reason = "less than a million")]
        let tail = (chance % TAILS as u64) as i64;
        Self { number, tail }
    }

    /// Of the two parts that rows keep.
    pub fn from_parts(number: i64, tail: i64) -> Option<Self> {
        (number >= 1 && (0..TAILS).contains(&tail)).then_some(Self { number, tail })
    }

    /// Reads 7 to 24 ASCII digits without a leading zero.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() <= 24 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        let (number, tail) = text.split_at_checked(text.len().checked_sub(TAIL_DIGITS)?).filter(|_| digits)?;
        Self::from_parts(number.parse().ok()?, tail.parse().ok()?)
    }

    /// The part that grows with time.
    pub const fn number(self) -> i64 {
        self.number
    }

    /// The part of chance, 0 to 999,999.
    pub const fn tail(self) -> i64 {
        self.tail
    }

    /// The next id that there could be. A list by number, newest first, that goes on behind it still has this id.
    #[must_use]
    pub const fn next(self) -> Self {
        if self.tail + 1 < TAILS {
            Self { tail: self.tail + 1, ..self }
        } else {
            Self { number: self.number + 1, tail: 0 }
        }
    }
}

impl fmt::Display for PrepayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:06}", self.number, self.tail)
    }
}

/// Whether a text may be a merchant's trade number: 1 to 100 of `A-Z a-z 0-9 _ -`.
pub fn is_trade_no(text: &str) -> bool {
    (1..=TRADE_NO_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// What makes two requests with one trade number the same request. Nothing else counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Which operation.
    pub kind: PaymentKind,
    /// What is to be paid in.
    pub currency: Currency,
    /// How much.
    pub amount: Amount,
    /// The payer as the merchant names it.
    pub merchant_user_id: Option<String>,
    /// The merchant's channel.
    pub channel_id: Option<String>,
    /// What is sold.
    pub goods_name: Option<String>,
    /// More about it.
    pub goods_detail: Option<String>,
}

/// A payment order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentOrder {
    /// Its public number.
    pub prepay_id: PrepayId,
    /// The merchant's own number, unique in the merchant for ever.
    pub trade_no: String,
    /// What was asked for.
    pub content: Content,
    /// The payer's terminal, as the merchant said.
    pub terminal_type: Option<String>,
    /// Where the payer goes afterwards.
    pub return_url: Option<String>,
    /// Where the payer goes who gives up.
    pub cancel_url: Option<String>,
    /// As stored; see [`PaymentOrder::status_at`].
    pub status: PaymentStatus,
    /// When it was made.
    pub created_at: UnixMillis,
    /// From this instant on it is expired, unless it was moved before.
    pub expires_at: UnixMillis,
    /// What was really paid; known when it is paid, or when the back end says so.
    pub actual_amount: Option<Amount>,
    /// When the payer paid, as the back end says. Nothing is decided by it.
    pub transact_at: Option<UnixMillis>,
    /// The instant of PAID, which is the server's; none before.
    pub paid_at: Option<UnixMillis>,
    /// Fixed at PAID; none before, and for merchants without fee rules.
    pub fee: Option<OrderFee>,
    /// Grows by one with each move; 1 at creation.
    pub revision: i64,
}

impl PaymentOrder {
    /// Where it stands at `now`.
    pub fn status_at(&self, now: UnixMillis) -> PaymentStatus {
        status_at(self.status, self.expires_at, now)
    }
}

/// Where an order stands that is stored as `stored`. Only what is pending expires.
pub fn status_at(stored: PaymentStatus, expires_at: UnixMillis, now: UnixMillis) -> PaymentStatus {
    match stored {
        PaymentStatus::Pending if now >= expires_at => PaymentStatus::Expired,
        PaymentStatus::Pending
        | PaymentStatus::Process
        | PaymentStatus::Paid
        | PaymentStatus::Expired
        | PaymentStatus::Closed => stored,
    }
}

/// Who moves an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The platform's back end.
    BackEnd,
    /// The back end that tells a restored deployment what has become of an order meanwhile: by what is stored, not by the time.
    BackEndOfRestored,
    /// The merchant whose order it is: may close what is pending.
    Merchant,
    /// Nobody: its time is over.
    Time,
}

/// Where an order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The new status.
    pub to: PaymentStatus,
    /// What was really paid, where it is said.
    pub actual_amount: Option<Amount>,
    /// When, where it is said.
    pub transact_at: Option<UnixMillis>,
}

/// A move that the machine does not have, or not for this mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a payment order that is {from} cannot become {to}{why}", from = .from.name(), to = .to.name(), why = self.why())]
pub struct MoveRefused {
    /// Where it stands.
    pub from: PaymentStatus,
    /// Where it was to go.
    pub to: PaymentStatus,
}

impl MoveRefused {
    const fn why(self) -> &'static str {
        let is_to_expire = matches!(self.to, PaymentStatus::Expired);
        // The back end may.
        let is_to_close = matches!(self.to, PaymentStatus::Closed);
        match self.from {
            from if from as u8 == self.to as u8 => ": it is so already",
            PaymentStatus::Pending if is_to_expire => ": orders expire by themselves, at their expireTime",
            PaymentStatus::Process if is_to_expire => ": only what is PENDING expires, and by itself",
            PaymentStatus::Process if is_to_close => {
                " by its merchant: it is being paid, and only what is PENDING can be closed so"
            }
            PaymentStatus::Pending => ": it may become PROCESS, PAID or CLOSED",
            PaymentStatus::Process => ": it may become PAID or CLOSED",
            PaymentStatus::Paid | PaymentStatus::Expired | PaymentStatus::Closed => ": that is final",
        }
    }
}

/// The order after a step. What is paid has no fee yet: it depends on the rule in force at that instant.
pub fn advance(order: &PaymentOrder, mover: Mover, step: Step, now: UnixMillis) -> Result<PaymentOrder, MoveRefused> {
    let from = if mover == Mover::BackEndOfRestored { order.status } else { order.status_at(now) };
    let to = step.to;
    let may = match mover {
        Mover::BackEnd | Mover::BackEndOfRestored => from.may_become(to) && to != PaymentStatus::Expired,
        Mover::Merchant => from == PaymentStatus::Pending && to == PaymentStatus::Closed,
        Mover::Time => {
            order.status == PaymentStatus::Pending && from == PaymentStatus::Expired && to == PaymentStatus::Expired
        }
    };
    if !may {
        return Err(MoveRefused { from, to });
    }
    let is_paid = to == PaymentStatus::Paid;
    let actual_amount = step.actual_amount.or(order.actual_amount);
    let transact_at = step.transact_at.or(order.transact_at);
    Ok(PaymentOrder {
        status: to,
        revision: order.revision + 1,
        actual_amount: if is_paid { actual_amount.or(Some(order.content.amount)) } else { actual_amount },
        transact_at: if is_paid { transact_at.or(Some(now)) } else { transact_at },
        paid_at: is_paid.then_some(now),
        ..order.clone()
    })
}

/// Why an expire time is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExpiryRefused {
    /// Now, or before.
    #[error("must be in the future, in Unix milliseconds (13 digits)")]
    Past,
    /// Later than the kind of order allows: by so many ms at the most.
    #[error("must be at most {} ahead, in Unix milliseconds (13 digits)", span(*.0))]
    TooFar(i64),
}

/// A length of time in its largest whole unit: `30 days`, `1 hour`.
fn span(ms: i64) -> String {
    let units = [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second")];
    let largest = units.into_iter().find(|(unit, _)| ms % unit == 0);
    let (count, name) = largest.map_or((ms, "millisecond"), |(unit, name)| (ms / unit, name));
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// When an order that is made now expires.
pub fn expiry(kind: PaymentKind, asked: Option<UnixMillis>, now: UnixMillis) -> Result<UnixMillis, ExpiryRefused> {
    let Some(asked) = asked else { return Ok(now.plus_ms(LIFE_MS_DEFAULT)) };
    if asked <= now {
        return Err(ExpiryRefused::Past);
    }
    if asked > now.plus_ms(kind.life_ms_max()) {
        return Err(ExpiryRefused::TooFar(kind.life_ms_max()));
    }
    Ok(asked)
}
