//! `GET /rate/commission_rule`: the fee rule in force at an instant.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{RequestRefused, RuleStatus, checked_name};
use crate::exact::Exact;
use crate::query::{Query, encode};

/// HTTP method.
pub const METHOD: &str = "GET";
/// Path.
pub const PATH: &str = "/rate/commission_rule";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Request {
    /// Sub-account ID.
    pub sub_merchant_id: String,
    /// `yyyy-MM-dd HH:mm:ss`, in UTC or the deployment's `rule_timezone`; now where absent.
    pub query_time: Option<String>,
}

impl Request {
    /// The rule of this sub-account, as it is now.
    pub fn new(sub_merchant_id: impl Into<String>) -> Self {
        Self { sub_merchant_id: sub_merchant_id.into(), query_time: None }
    }

    /// Reads a raw query string.
    pub fn parse(query: &str) -> Result<Self, RequestRefused> {
        let query = Query::parse(query);
        Ok(Self {
            sub_merchant_id: checked_name("sub_merchant_id", query.required_text("sub_merchant_id")?)?,
            query_time: query.text("query_time")?,
        })
    }

    /// The query string that asks for it, without `?`.
    pub fn to_query(&self) -> String {
        let time = self.query_time.as_deref().map(|time| format!("&query_time={}", encode(time))).unwrap_or_default();
        format!("sub_merchant_id={}{time}", encode(&self.sub_merchant_id))
    }
}

/// The answer is one record.
pub type Response = Record;

/// One sub-account's rule, or the fact that it has none: then the rule's own fields are null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleRecord)]
pub struct Record {
    /// Sub-account ID.
    pub sub_merchant_id: String,
    /// Whether there is a rule.
    pub has_markup: bool,
    /// ID of the version.
    pub config_id: Option<String>,
    /// Its number.
    pub version_no: Option<i64>,
    /// Markup in percent; a fraction where the deployment has `markup_unit = "fraction"`.
    pub r_markup: Option<Exact>,
    /// Fixed markup in USDT.
    pub f_markup: Option<Exact>,
    /// Its state.
    pub status: Option<RuleStatus>,
    /// `yyyy-MM-dd HH:mm:ss`, in UTC or the deployment's `rule_timezone`.
    pub effective_date: Option<String>,
    /// `yyyy-MM-dd HH:mm:ss` in the same zone, exclusive; null where open-ended.
    pub due_date: Option<String>,
    /// The same as `due_date`.
    pub expired_date: Option<String>,
    /// What is charged in all: the institution's base rate plus the markup in force.
    pub actual_rate: ActualRate,
    /// ISO 8601, UTC.
    pub updated_at: Option<String>,
}

/// A rate with both of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualRate {
    /// In percent; a fraction where the deployment has `markup_unit = "fraction"`.
    pub r_total: Exact,
    /// Fixed, in USDT.
    pub f_total: Exact,
}
