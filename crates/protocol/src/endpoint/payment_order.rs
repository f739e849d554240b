//! What the operations about payment orders share.

use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RequestRefused;
use crate::body::{FieldRefused, Fields, UNIX_MILLIS_MAX};
use crate::code::Code;
use crate::exact::Exact;

/// Longest `merchantTradeNo`.
pub const TRADE_NO_LEN_MAX: usize = 100;
/// Longest `goodsName`, in characters.
pub const GOODS_NAME_CHARS_MAX: usize = 160;
/// Longest `goodsDetail`, in characters.
pub const GOODS_DETAIL_CHARS_MAX: usize = 256;
/// Longest `channelId`, in characters.
pub const CHANNEL_ID_CHARS_MAX: usize = 50;
/// Longest `terminalType`, in characters.
pub const TERMINAL_TYPE_CHARS_MAX: usize = 32;
/// The payer in a request, as the merchant names it.
// For the documents only: nothing is read by it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MerchantUserId)]
#[serde(untagged)]
pub enum UserId {
    /// At most 64 characters.
    Text(String),
    /// Kept as its digits.
    Number(i64),
}

/// Longest `merchantUserId`, in characters.
pub const USER_ID_CHARS_MAX: usize = 64;
/// Longest `returnUrl` and `cancelUrl`, in characters.
pub const URL_CHARS_MAX: usize = 1_024;

/// An order that is asked for. Forms are checked, meanings are not: the amount is a text here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderRequest)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// 1 to 100 of `A-Z a-z 0-9 _ -`, unique in the merchant for ever: the same number with the same content answers the order that is there.
    pub merchant_trade_no: String,
    /// 2 to 10 of `A-Z 0-9`.
    pub currency: String,
    /// Numeric text with at most 6 decimals, 0.0001 to 5000000; by a QR code at most 10000. Never rounded.
    pub order_amount: String,
    /// About the payer's terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Env>,
    /// What is sold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goods: Option<Goods>,
    /// Unix milliseconds, in the future, at most 30 days ahead (by a QR code 1 hour); absent: in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_expire_time: Option<i64>,
    /// The merchant's channel, at most 50 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_id: Option<String>,
    /// The payer as the merchant names it: a text of at most 64 characters, or a whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UserId>)]
    pub merchant_user_id: Option<String>,
    /// Where the payer goes afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_url: Option<String>,
    /// Where the payer goes who gives up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_url: Option<String>,
}

/// About the payer's terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderEnv)]
#[serde(rename_all = "camelCase")]
pub struct Env {
    /// `APP`, `WEB`, ...: at most 32 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_type: Option<String>,
}

/// What is sold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderGoods)]
#[serde(rename_all = "camelCase")]
pub struct Goods {
    /// At most 160 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goods_name: Option<String>,
    /// At most 256 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goods_detail: Option<String>,
}

impl Request {
    /// An order of so much of this currency, with nothing said that need not be. The amount is a number, and stands between the two texts, so that
    /// they are not mixed up unseen. Write the whole request down before you send it: after a lost answer the same is to be sent again.
    pub fn new(merchant_trade_no: impl Into<String>, order_amount: Decimal, currency: impl Into<String>) -> Self {
        let order_amount = Exact(order_amount).to_string();
        Self { merchant_trade_no: merchant_trade_no.into(), currency: currency.into(), order_amount, ..Self::default() }
    }

    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let merchant_trade_no = trade_no(fields.required_text("merchantTradeNo")?)?;
        let currency = fields.required_text("currency")?;
        Ok(Self {
            merchant_trade_no,
            currency,
            order_amount: amount(&fields, "orderAmount")?,
            env: fields
                .object("env", |env| Ok(Env { terminal_type: short(env, "terminalType", TERMINAL_TYPE_CHARS_MAX)? }))?,
            goods: fields.object("goods", |goods| {
                let goods_name = short(goods, "goodsName", GOODS_NAME_CHARS_MAX)?;
                Ok(Goods { goods_name, goods_detail: short(goods, "goodsDetail", GOODS_DETAIL_CHARS_MAX)? })
            })?,
            order_expire_time: fields.integer_within("orderExpireTime", 0, UNIX_MILLIS_MAX)?,
            channel_id: short(&fields, "channelId", CHANNEL_ID_CHARS_MAX)?,
            merchant_user_id: user_id(&fields)?,
            return_url: short(&fields, "returnUrl", URL_CHARS_MAX)?,
            cancel_url: short(&fields, "cancelUrl", URL_CHARS_MAX)?,
        })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        super::to_json(self)
    }
}

/// Which order is meant: by our number or by the merchant's own. Where both are given, both must be its. Empty counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrderName)]
#[serde(rename_all = "camelCase")]
pub struct Name {
    /// Our number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepay_id: Option<String>,
    /// The merchant's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merchant_trade_no: Option<String>,
}

impl Name {
    /// The order with this `merchantTradeNo`.
    pub fn trade_no(trade_no: impl Into<String>) -> Self {
        Self { prepay_id: None, merchant_trade_no: Some(trade_no.into()) }
    }

    /// The order with this `prepayId`.
    pub fn prepay_id(prepay_id: impl Into<String>) -> Self {
        Self { prepay_id: Some(prepay_id.into()), merchant_trade_no: None }
    }

    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let given = |name| fields.text(name).map(|text| text.filter(|text| !text.is_empty()));
        let prepay_id = given("prepayId")?;
        let merchant_trade_no = given("merchantTradeNo")?.map(trade_no).transpose()?;
        if prepay_id.is_none() && merchant_trade_no.is_none() {
            return Err(FieldRefused::new("prepayId", "is required, or merchantTradeNo in its place").into());
        }
        Ok(Self { prepay_id, merchant_trade_no })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        super::to_json(self)
    }
}

/// A payment order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaymentOrder)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Our number: digits, unique in the deployment.
    pub prepay_id: String,
    /// The merchant's own.
    pub merchant_trade_no: String,
    /// Currency.
    pub currency: String,
    /// Numeric text without trailing zeros.
    pub order_amount: String,
    /// `PENDING`, `PROCESS`, `PAID`, `EXPIRED` or `CLOSED`. `PAID` does not say that `orderAmount` was paid: the query tells `actualAmount`.
    pub status: String,
    /// As asked for.
    pub terminal_type: Option<String>,
    /// Unix milliseconds.
    pub create_time: i64,
    /// Unix milliseconds; from then on it is `EXPIRED` unless it was moved before.
    pub expire_time: i64,
}

impl Order {
    /// The status by its name.
    pub fn status(&self) -> Status {
        Status::from(self.status.as_str())
    }
}

/// Where a payment order stands. Source: docs/PROTOCOL.md, "POST /v1/pay/order".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum Status {
    /// Waits to be paid.
    Pending,
    /// Paid in time, not yet confirmed: it may still become paid or closed.
    Process,
    /// Paid. Final.
    Paid,
    /// Its time was over before it was paid. Final.
    Expired,
    /// Given up. Final.
    Closed,
    /// A word that is newer than this program, as it came.
    Other(String),
}

impl Status {
    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "PENDING",
            Self::Process => "PROCESS",
            Self::Paid => "PAID",
            Self::Expired => "EXPIRED",
            Self::Closed => "CLOSED",
            Self::Other(word) => word,
        }
    }

    /// Whether an order with this status keeps it for ever. False for a status that this program does not know: ask again.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Paid | Self::Expired | Self::Closed => true,
            Self::Pending | Self::Process | Self::Other(_) => false,
        }
    }
}

impl From<String> for Status {
    fn from(word: String) -> Self {
        match word.as_str() {
            "PENDING" => Self::Pending,
            "PROCESS" => Self::Process,
            "PAID" => Self::Paid,
            "EXPIRED" => Self::Expired,
            "CLOSED" => Self::Closed,
            _ => Self::Other(word),
        }
    }
}

impl From<&str> for Status {
    fn from(word: &str) -> Self {
        word.to_owned().into()
    }
}

impl From<Status> for String {
    fn from(status: Status) -> Self {
        status.as_str().to_owned()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a paid order cost: fixed at that instant, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OrderFee)]
pub struct Fee {
    /// The rule version in force when it was paid; null where there was none, and then both markups are 0 and both fees `0`.
    pub config_id: Option<String>,
    /// Its number; null as above.
    pub version_no: Option<i64>,
    /// Markup in percent; a fraction where the deployment has `markup_unit = "fraction"`.
    pub r_markup: Exact,
    /// Fixed markup in USDT.
    pub f_markup: Exact,
    /// The part that grows with the amount, in the order's currency; rounded half up to 6 decimals.
    pub r_fee: String,
    /// The fixed part, in USDT.
    pub f_fee: String,
    /// The sum worked out, with every figure in it.
    pub worked_sum: String,
}

fn trade_no(text: String) -> Result<String, FieldRefused> {
    let fits = (1..=TRADE_NO_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits { Ok(text) } else { Err(FieldRefused::new("merchantTradeNo", "must be 1 to 100 of A-Z a-z 0-9 _ -")) }
}

/// An amount as it was written. What is no text is no amount.
fn amount(fields: &Fields<'_>, name: &str) -> Result<String, RequestRefused> {
    let why = "must be a text of plain digits such as \"12.5\"";
    let text = fields.text(name).map_err(|_| RequestRefused::of_field(Code::InvalidAmount, name, why))?;
    text.ok_or_else(|| crate::body::missing(name).into())
}

/// A text of at most so many characters.
fn short(fields: &Fields<'_>, name: &str, max: usize) -> Result<Option<String>, FieldRefused> {
    match fields.text(name)? {
        Some(text) if text.chars().count() > max => {
            Err(FieldRefused::new(name, format!("must be at most {max} characters")))
        }
        text => Ok(text),
    }
}

/// A text, or a whole number as its digits.
fn user_id(fields: &Fields<'_>) -> Result<Option<String>, FieldRefused> {
    const NAME: &str = "merchantUserId";
    if let Ok(number) = fields.integer(NAME) {
        return Ok(number.map(|number| number.to_string()));
    }
    let is_text = fields.raw(NAME).is_some_and(|raw| raw.get().starts_with('"'));
    short(fields, NAME, USER_ID_CHARS_MAX).map_err(|refused| {
        let why = "must be a text of at most 64 characters, or a whole number from -9223372036854775808 to 9223372036854775807";
        if is_text { refused } else { FieldRefused::new(NAME, why) }
    })
}
