//! `POST /rate/commission_rule/list`: the fee rules of an institution's sub-accounts, by pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rule_query::Record;
use super::{RequestRefused, RuleStatus, checked_name, to_json};
use crate::body::{FieldRefused, Fields};

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/rate/commission_rule/list";
/// Records on a page where nothing is said.
pub const PAGE_SIZE_DEFAULT: u64 = 20;
/// Most records on a page.
pub const PAGE_SIZE_MAX: u64 = 100;
/// Last page that can be asked for; keeps page times size far from any overflow.
pub const PAGE_NUM_MAX: u64 = 1_000_000_000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = RuleListRequest)]
pub struct Request {
    /// Which page; 1 is the first, and the default. Alias `page`.
    #[serde(rename = "pageNum")]
    #[schema(value_type = Option<u64>)]
    pub page_num: u64,
    /// Records on a page, 1 to 100; 20 by default. Alias `page_size`.
    #[serde(rename = "pageSize")]
    #[schema(value_type = Option<u64>)]
    pub page_size: u64,
    /// Only sub-accounts with a rule, or without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_markup: Option<bool>,
    /// Only versions in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RuleStatus>,
    /// Only this sub-account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_merchant_id: Option<String>,
}

impl Default for Request {
    /// The first page, unfiltered.
    fn default() -> Self {
        Self { page_num: 1, page_size: PAGE_SIZE_DEFAULT, has_markup: None, status: None, sub_merchant_id: None }
    }
}

impl Request {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        let fields = Fields::parse(body)?;
        let status = fields.text("status")?.map(|text| {
            RuleStatus::from_wire(&text)
                .ok_or_else(|| FieldRefused::new("status", "must be EFFECTIVE or PENDING_EFFECTIVE"))
        });
        Ok(Self {
            page_num: paging(&fields, ["pageNum", "page"], PAGE_NUM_MAX)?.unwrap_or(1),
            page_size: paging(&fields, ["pageSize", "page_size"], PAGE_SIZE_MAX)?.unwrap_or(PAGE_SIZE_DEFAULT),
            has_markup: fields.boolean("has_markup")?,
            status: status.transpose()?,
            sub_merchant_id: fields
                .text("sub_merchant_id")?
                .map(|text| checked_name("sub_merchant_id", text))
                .transpose()?,
        })
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// A number from 1 to `max` under one of its two names.
fn paging(fields: &Fields<'_>, names: [&str; 2], max: u64) -> Result<Option<u64>, FieldRefused> {
    let [name, alias] = names;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    match (fields.integer_within(name, 1, max)?, fields.integer_within(alias, 1, max)?) {
        (Some(_), Some(_)) => Err(FieldRefused::new(alias, format!("must not be given beside {name}"))),
        (value, None) | (None, value) => Ok(value.and_then(|value| u64::try_from(value).ok())),
    }
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleList)]
pub struct Response {
    /// By `sub_merchant_id`, then version.
    pub records: Vec<Record>,
    /// Records on all pages.
    pub total: u64,
    /// Most records on a page, as asked for.
    pub size: u64,
    /// This page's number.
    pub current: u64,
    /// How many pages there are.
    pub pages: u64,
}
