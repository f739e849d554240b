//! `POST /rate/commission_rule/upgrade`: a new version of a sub-account's fee rule.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{RequestRefused, RuleStatus, as_exact, checked_name, of_exact, to_json};
use crate::body::Fields;
use crate::code::Code;
use crate::exact::Exact;

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/rate/commission_rule/upgrade";

/// What is asked for. Forms are checked, meanings are not: dates are texts here, markups any numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleRequest)]
pub struct Request {
    /// Sub-account ID.
    pub sub_merchant_id: String,
    /// Markup in percent, 0 to 100 with at most 8 decimals. In a deployment with `markup_unit = "fraction"` 0 to 1, and 0.3 is 30 %.
    #[serde(serialize_with = "as_exact", deserialize_with = "of_exact")]
    #[schema(value_type = Exact)]
    pub r_markup: Decimal,
    /// Fixed markup in USDT, 0 to 5,000,000 with at most 6 decimals; 0 where absent.
    #[serde(default, serialize_with = "as_exact", deserialize_with = "of_exact")]
    #[schema(value_type = Option<Exact>)]
    pub f_markup: Decimal,
    /// `yyyy-MM-dd HH:mm:ss`, in UTC unless the deployment has set another time zone (`rule_timezone`).
    pub effective_date: String,
    /// `yyyy-MM-dd HH:mm:ss` in the same zone; open-ended where absent or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_date: Option<String>,
}

impl Request {
    /// A version with this percentage, without a fixed markup and without an end. Write the whole request down before you send it, as JSON text: through a
    /// `serde_json::Value` its numbers would become floating point.
    pub fn new(sub_merchant_id: impl Into<String>, r_markup: Decimal, effective_date: impl Into<String>) -> Self {
        let (sub_merchant_id, effective_date) = (sub_merchant_id.into(), effective_date.into());
        Self { sub_merchant_id, r_markup, f_markup: Decimal::ZERO, effective_date, due_date: None }
    }

    /// Reads a body. One that carries a `config_id` is refused: the sub-account says which rule is meant. As `null` it carries none.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        if fields.is_given("config_id") {
            let why = "is not accepted; name the sub-account in sub_merchant_id instead";
            return Err(RequestRefused::of_field(Code::ConfigIdNotAccepted, "config_id", why));
        }
        Self::from_fields(&fields)
    }

    /// Reads the fields that upgrade and creation share.
    pub(super) fn from_fields(fields: &Fields<'_>) -> Result<Self, RequestRefused> {
        Ok(Self {
            sub_merchant_id: checked_name("sub_merchant_id", fields.required_text("sub_merchant_id")?)?,
            r_markup: fields.required_number("r_markup")?.0,
            f_markup: fields.number("f_markup")?.unwrap_or_default().0,
            effective_date: fields.required_text("effective_date")?,
            due_date: fields.text("due_date")?,
        })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// The version that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleVersion)]
pub struct Response {
    /// ID of this version.
    pub config_id: String,
    /// ID of the version made just before; null for the first.
    pub previous_config_id: Option<String>,
    /// 1, 2, 3 ... per sub-account.
    pub version_no: i64,
    /// Sub-account ID.
    pub sub_merchant_id: String,
    /// Markup in percent, or a fraction, as asked for.
    pub r_markup: Exact,
    /// Fixed markup in USDT.
    pub f_markup: Exact,
    /// The state at creation.
    pub status: RuleStatus,
    /// `yyyy-MM-dd HH:mm:ss`, in UTC or the deployment's `rule_timezone`.
    pub effective_date: String,
    /// `yyyy-MM-dd HH:mm:ss` in the same zone, exclusive; null where open-ended.
    pub due_date: Option<String>,
    /// ISO 8601, UTC.
    pub created_at: String,
    /// ISO 8601, UTC; equal to `created_at`, since versions never change.
    pub updated_at: String,
}
