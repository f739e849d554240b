//! All versions of a sub-account's fee rule, with the states that merchants do not see.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::ids::{MerchantNo, config_id};
use countersign_domain::rules::{RuleState, RuleVersion};
use countersign_domain::time::{RuleZone, UnixMillis, rfc3339};
use countersign_protocol::exact::Exact;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Reply, json};
use super::filters::needed;
use super::paging::{Asked, Mark, NUMBER, Page};
use super::problem::ProblemDocument;
use crate::app::identity::{self, RulePlace, SeenVersion};

/// A version of a fee rule.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeeRule {
    /// Its id.
    pub config_id: String,
    /// The version made just before.
    pub previous_config_id: Option<String>,
    /// 1, 2, 3 ... without gap.
    pub version_no: i64,
    /// Whose.
    pub sub_merchant_id: String,
    /// Percent (or a fraction).
    pub r_markup: Exact,
    /// USDT.
    pub f_markup: Exact,
    /// `EFFECTIVE`, `PENDING_EFFECTIVE`, `INVALIDATED`, `SUPERSEDED` or `EXPIRED`, now.
    pub status: &'static str,
    /// `yyyy-MM-dd HH:mm:ss` in the zone of the rules.
    pub effective_date: String,
    /// Exclusive end.
    pub due_date: Option<String>,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// Versions never change: as `created_at`.
    pub updated_at: String,
}

impl FeeRule {
    fn of(sub_merchant_id: &str, version: &RuleVersion, state: RuleState, zone: &RuleZone) -> Self {
        Self {
            config_id: config_id(version.config_id),
            previous_config_id: version.previous.map(config_id),
            version_no: version.version_no,
            sub_merchant_id: sub_merchant_id.to_owned(),
            r_markup: Exact(version.markup.r()),
            f_markup: Exact(version.markup.f().to_decimal()),
            status: state_name(state),
            effective_date: zone.format(version.effective_at),
            due_date: version.due_at.map(|due| zone.format(due)),
            created_at: rfc3339(version.created_at),
            updated_at: rfc3339(version.created_at),
        }
    }
}

const fn state_name(state: RuleState) -> &'static str {
    match state {
        RuleState::Effective => "EFFECTIVE",
        RuleState::PendingEffective => "PENDING_EFFECTIVE",
        RuleState::Invalidated => "INVALIDATED",
        RuleState::Superseded => "SUPERSEDED",
        RuleState::Expired => "EXPIRED",
    }
}

const MARK: Mark<RulePlace> = Mark { read: place, write: cursor };

fn cursor(place: &RulePlace) -> String {
    let RulePlace { of, version_no, made_at, starts_at, as_of } = place;
    format!("{}.{version_no}.{}.{}.{}", of.0, made_at.0, starts_at.0, as_of.0)
}

fn place(text: &str) -> Option<RulePlace> {
    let mut numbers = text.splitn(5, '.').map(NUMBER.read);
    let mut next = || numbers.next().flatten();
    let (of, version_no) = (MerchantNo(next()?), next()?);
    let (made_at, starts_at, as_of) = (UnixMillis(next()?), UnixMillis(next()?), UnixMillis(next()?));
    Some(RulePlace { of, version_no, made_at, starts_at, as_of })
}

/// All versions of a sub-account's rule, newest first.
#[utoipa::path(get, path = "/operator/v1/fee-rules", tag = "Fee rules", operation_id = "list_fee_rules",
    params(("sub_merchant_id" = String, Query, description = "Whose"), ("limit" = Option<u32>, Query, description = "1 to 500, default 50"),
        ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<FeeRule>), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let sub = needed("sub_merchant_id", asked.filters.id("sub_merchant_id")?)?;
    let after = asked.after(&MARK)?;
    let rows = identity::rule_versions(&desk.app, &sub, after, asked.limit_and_one()).await?;
    let zone = &desk.app.policy.rule_zone;
    let view = |seen: &SeenVersion| FeeRule::of(&sub, &seen.version, seen.state, zone);
    Ok(json(&asked.page(rows, &MARK, |seen| seen.place, view)))
}
