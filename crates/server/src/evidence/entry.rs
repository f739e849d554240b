//! The entries of a file: what each says, and the one way in which it is written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_domain::time::{UnixMillis, parse_rfc3339, rfc3339};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes: as a text where they are UTF-8, else in Base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Octets {
    /// They are this text.
    Text(String),
    /// They are no UTF-8.
    Base64(String),
}

/// Blind: these are the merchant's.
impl std::fmt::Debug for Octets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Octets(..)")
    }
}

impl Octets {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    /// The bytes; none where they are not written as they should be.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).ok().filter(|bytes| std::str::from_utf8(bytes).is_err()),
        }
    }
}

/// An instant: RFC 3339 in UTC with milliseconds, and in no other form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub UnixMillis);

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339(self.0))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_rfc3339(&text).map(Self).ok_or_else(|| D::Error::custom("an instant is written as RFC 3339"))
    }
}

/// What a file is, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`super::FORMAT`].
    pub format: String,
    /// [`super::VERSION`].
    pub version: u32,
    /// When the deployment was initialised.
    pub deployment: At,
    /// Which order.
    #[serde(rename = "prepayId")]
    pub prepay_id: String,
    /// When the file was made.
    pub made_at: At,
    /// By whom, as in the audit log.
    pub made_by: String,
    /// By which request.
    pub request_id: String,
    /// How a markup is read: `percent` or `fraction`.
    pub markup_unit: String,
    /// The zone that dates of rules are written in by merchants.
    pub rule_timezone: String,
    /// The deployment's Ed25519 key, hexadecimal.
    pub public_key: String,
}

/// The order as it stood when the file was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    #[serde(rename = "prepayId")]
    pub prepay_id: String,
    /// The merchant's own.
    #[serde(rename = "merchantTradeNo")]
    pub trade_no: String,
    /// Whose it is.
    pub merchant_id: String,
    /// `merchant`, `institution` or `sub_account`: only the last has fee rules.
    pub merchant_kind: String,
    /// The application that made it, and gets its callbacks.
    pub client_id: String,
    /// `order` or `native`.
    pub order_kind: String,
    /// What is to be paid in.
    pub currency: String,
    /// How much.
    #[serde(rename = "orderAmount")]
    pub amount: String,
    /// The payer as the merchant names it.
    #[serde(rename = "merchantUserId")]
    pub merchant_user_id: Option<String>,
    /// The merchant's channel.
    #[serde(rename = "channelId")]
    pub channel_id: Option<String>,
    /// What is sold.
    #[serde(rename = "goodsName")]
    pub goods_name: Option<String>,
    /// More about it.
    #[serde(rename = "goodsDetail")]
    pub goods_detail: Option<String>,
    /// The payer's terminal.
    #[serde(rename = "terminalType")]
    pub terminal_type: Option<String>,
    /// Where the payer goes afterwards.
    #[serde(rename = "returnUrl")]
    pub return_url: Option<String>,
    /// Where the payer goes who gives up.
    #[serde(rename = "cancelUrl")]
    pub cancel_url: Option<String>,
    /// Where it stood when the file was made; what was pending by then and over is `EXPIRED`.
    pub status: String,
    /// When it was made.
    pub created_at: At,
    /// When it expires, or did.
    pub expire_at: At,
    /// What was really paid; null: nothing was said.
    #[serde(rename = "actualAmount")]
    pub actual_amount: Option<String>,
    /// When the payer paid, as the back end says.
    pub transact_at: Option<At>,
    /// The instant of `PAID`, which is the server's.
    pub paid_at: Option<At>,
    /// 1 at creation, one more with each move.
    pub revision: i64,
}

/// The request that made the order, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its line and the headers that signature and right rest on, each on a line.
    pub head: String,
    /// The body, byte for byte.
    pub body: Octets,
    /// Its SHA-256, hexadecimal.
    pub body_sha256: String,
}

/// The fee rule version that was in force when the order was paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleVersion {
    /// Its public id.
    pub config_id: String,
    /// Its number in the sub-account.
    pub version_no: i64,
    /// What it adds: percent, or a fraction.
    pub r_markup: String,
    /// Fixed, in USDT.
    pub f_markup: String,
    /// From when on, as asked for.
    pub effective_at: At,
    /// Until when; null: open.
    pub due_at: Option<At>,
    /// When it was made; it was never in force before.
    pub created_at: At,
    /// Who made it, as the audit log says; null: the line was not found.
    pub made_by: Option<String>,
    /// By which request; null as above.
    pub request_id: Option<String>,
}

/// The fee with the steps that lead to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fee {
    /// The sum; null where there is none.
    pub sum: Option<Sum>,
    /// Why there is none: `not_paid`, or `no_rules` where the merchant is no sub-account; null where there is one.
    pub none_because: Option<String>,
}

/// Every figure of a fee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The rule version; null: none was in force, and nothing is added.
    pub config_id: Option<String>,
    /// Its number; null as above.
    pub version_no: Option<i64>,
    /// What was really paid.
    pub amount: String,
    /// In this currency.
    pub currency: String,
    /// Percent, or a fraction.
    pub r_markup: String,
    /// Fixed, in USDT.
    pub f_markup: String,
    /// `percent` or `fraction`.
    pub markup_unit: String,
    /// `amount` times `r_markup`, divided by 100 where that is percent; every digit.
    pub product: String,
    /// `half_up_to_6_decimals`, or `none` where the product has no more.
    pub rounding: String,
    /// The product, rounded.
    pub r_fee: String,
    /// The fixed fee, in USDT.
    pub f_fee: String,
    /// The same in one line, as merchants got it.
    pub worked_sum: String,
}

/// A move of the order; the first is its making.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// 1, 2, ...
    pub revision: i64,
    /// Where it stood; null: it was made.
    pub from: Option<String>,
    /// Where it stood since.
    pub to: String,
    /// When.
    pub at: At,
    /// Who, as in the audit log.
    pub actor: String,
    /// By which request; empty where its time was over.
    pub request_id: String,
}

/// A callback about the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// Its public id.
    pub event_id: String,
    /// Its number among the application's.
    pub event_seq: i64,
    /// Its number among those of the order.
    pub sequence: i64,
    /// What kind of business.
    #[serde(rename = "bizType")]
    pub biz_type: String,
    /// What became of it.
    #[serde(rename = "bizStatus")]
    pub biz_status: String,
    /// When it was written.
    pub created_at: At,
    /// `pending`, `held`, `delivered` or `dead`.
    pub state: String,
    /// Attempts at it: so many entries follow.
    pub attempts: i64,
    /// The bytes of every attempt.
    pub body: Octets,
    /// Their SHA-256, hexadecimal.
    pub body_sha256: String,
}

/// What is kept of the bytes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// They are here.
    Kept,
    /// There was no connection that a request could go out on.
    NothingSent,
    /// They are not: freed when they were old enough, or the time was over before anything was sent, or a program made the attempt that kept none.
    NotKept,
}

/// An attempt at a callback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Of which event.
    pub event_id: String,
    /// 1, 2, ...
    pub attempt: i64,
    /// When it began.
    pub at: At,
    /// How it ended.
    pub outcome: String,
    /// The status, where an answer came.
    pub http_status: Option<u16>,
    /// How long it took.
    pub duration_ms: i64,
    /// The address that was connected to.
    pub address: Option<String>,
    /// What went wrong, in words.
    pub detail: String,
    /// The look-up of the name, in microseconds.
    pub dns_us: Option<i64>,
    /// The connection.
    pub connect_us: Option<i64>,
    /// The TLS handshake.
    pub tls_us: Option<i64>,
    /// From the request to the first byte of the answer.
    pub first_byte_us: Option<i64>,
    /// The whole.
    pub total_us: Option<i64>,
    /// Whether it went over a connection that was open already.
    pub reused: Option<bool>,
    /// What is kept of its bytes.
    pub wire: Wire,
    /// Request line and headers as they went out. The body is the callback's.
    pub sent_head: Option<Octets>,
    /// Status line and headers as they came in.
    pub answer_head: Option<Octets>,
    /// The beginning of the answer's body.
    pub answer_body: Option<Octets>,
    /// How many bytes of it were read.
    pub answer_body_bytes: Option<i64>,
    /// Whether it is longer, or may be.
    pub answer_body_is_cut: bool,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// Always first.
    Header(Header),
    /// The order.
    Order(Order),
    /// The request that made it.
    Request(Request),
    /// The rule version of its fee, where there is one.
    RuleVersion(RuleVersion),
    /// Its fee.
    Fee(Fee),
    /// Its making and each move.
    Move(Move),
    /// Callbacks that were freed when they were old enough.
    CallbacksFreed {
        /// All up to this number among those of the order.
        through_sequence: i64,
        /// Whether there may have been more.
        is_at_least: bool,
    },
    /// A callback; its attempts follow.
    Callback(Callback),
    /// An attempt at the callback before it.
    Attempt(Box<Attempt>),
}

/// An entry with its number, which is that of its line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) seq: u64,
    #[serde(flatten)]
    pub(super) entry: Entry,
}

/// Which entry it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See [`Entry::Header`].
    Header,
    /// See [`Entry::Order`].
    Order,
    /// See [`Entry::Request`].
    Request,
    /// See [`Entry::RuleVersion`].
    RuleVersion,
    /// See [`Entry::Fee`].
    Fee,
    /// See [`Entry::Move`].
    Move,
    /// See [`Entry::CallbacksFreed`].
    CallbacksFreed,
    /// See [`Entry::Callback`].
    Callback,
    /// See [`Entry::Attempt`].
    Attempt,
    /// The last line, which is no entry.
    Head,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Header,
        Self::Order,
        Self::Request,
        Self::RuleVersion,
        Self::Fee,
        Self::Move,
        Self::CallbacksFreed,
        Self::Callback,
        Self::Attempt,
        Self::Head,
    ];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Order => "order",
            Self::Request => "request",
            Self::RuleVersion => "rule_version",
            Self::Fee => "fee",
            Self::Move => "move",
            Self::CallbacksFreed => "callbacks_freed",
            Self::Callback => "callback",
            Self::Attempt => "attempt",
            Self::Head => "head",
        }
    }

    /// Whether it may come behind `before`; none: at the beginning.
    pub(super) const fn may_follow(self, before: Option<Self>) -> bool {
        match self {
            Self::Header => before.is_none(),
            Self::Order => matches!(before, Some(Self::Header)),
            Self::Request => matches!(before, Some(Self::Order)),
            Self::RuleVersion => matches!(before, Some(Self::Request)),
            Self::Fee => matches!(before, Some(Self::Request | Self::RuleVersion)),
            Self::Move => matches!(before, Some(Self::Fee | Self::Move)),
            Self::CallbacksFreed => matches!(before, Some(Self::Move)),
            Self::Callback | Self::Head => {
                matches!(before, Some(Self::Move | Self::CallbacksFreed | Self::Callback | Self::Attempt))
            }
            Self::Attempt => matches!(before, Some(Self::Callback | Self::Attempt)),
        }
    }
}

impl Entry {
    /// Which it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Header(_) => Kind::Header,
            Self::Order(_) => Kind::Order,
            Self::Request(_) => Kind::Request,
            Self::RuleVersion(_) => Kind::RuleVersion,
            Self::Fee(_) => Kind::Fee,
            Self::Move(_) => Kind::Move,
            Self::CallbacksFreed { .. } => Kind::CallbacksFreed,
            Self::Callback(_) => Kind::Callback,
            Self::Attempt(_) => Kind::Attempt,
        }
    }
}
