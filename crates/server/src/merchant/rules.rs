//! What the fee-rule operations share: words of the wire to values of the domain, and back.

use countersign_domain::ids::config_id;
use countersign_domain::rules::{Markup, MarkupRefused, RuleAsk, RuleVersion};
use countersign_domain::time::{DateRefused, UnixMillis};
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::RuleStatus;
use countersign_protocol::endpoint::rule_query::{ActualRate, Record};
use countersign_protocol::endpoint::rule_upgrade::Response;
use countersign_protocol::exact::Exact;
use countersign_store::contract::{MerchantRow, RuleRecord, RuleStanding};
use rust_decimal::Decimal;

use super::answer::{Failure, success};
use super::signed::Signed;
use crate::app::App;
use crate::app::rules::{self, Making, RuleChange};

/// A version as the wire asks for it.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Upgrade or creation.
    pub making: Making,
    /// For which sub-account.
    pub sub_merchant_id: &'a str,
    /// Percentage.
    pub r_markup: Decimal,
    /// USDT.
    pub f_markup: Decimal,
    /// `yyyy-MM-dd HH:mm:ss`.
    pub effective_date: &'a str,
    /// The same, if it ends.
    pub due_date: Option<&'a str>,
}

/// Upgrade and creation: read, decide, answer.
pub async fn change<T>(app: &App, signed: &Signed<'_, T>, wanted: Wanted<'_>) -> Result<Vec<u8>, Failure> {
    let markup = Markup::new(wanted.r_markup, wanted.f_markup).map_err(|refused| refused_markup(app, refused))?;
    let effective_at = date(app, "effective_date", wanted.effective_date)?;
    let due_at = wanted.due_date.map(|d| date(app, "due_date", d)).transpose()?;
    let change = RuleChange {
        making: wanted.making,
        sub_merchant_id: wanted.sub_merchant_id.to_owned(),
        ask: RuleAsk { markup, effective_at, due_at },
    };
    let version = rules::change(app, signed.institution(), &change, signed.claim(), &signed.actor()).await?;
    success(&made(app, wanted.sub_merchant_id, &version))
}

fn refused_markup(app: &App, refused: MarkupRefused) -> Failure {
    Failure::of_field(Code::InvalidParameter, refused.field(), refused.must(app.policy.markup_unit))
}

/// A date of the wire as an instant; the answer names the field.
pub fn date(app: &App, field: &str, text: &str) -> Result<UnixMillis, Failure> {
    app.policy.rule_zone.parse(text).map_err(|refused| {
        let code = match refused {
            DateRefused::Form => Code::InvalidParameter,
            DateRefused::NoSuchMoment | DateRefused::Skipped(_) | DateRefused::Twice(_) => Code::InvalidRulePeriod,
        };
        Failure::of_field(code, field, refused)
    })
}

/// A version as its maker sees it.
fn made(app: &App, sub_merchant_id: &str, version: &RuleVersion) -> Response {
    let created_at = countersign_domain::time::rfc3339(version.created_at);
    let is_pending = version.starts_at() > version.created_at;
    Response {
        config_id: config_id(version.config_id),
        previous_config_id: version.previous.map(config_id),
        version_no: version.version_no,
        sub_merchant_id: sub_merchant_id.to_owned(),
        r_markup: Exact(version.markup.r()),
        f_markup: Exact(version.markup.f().to_decimal()),
        status: status(is_pending),
        effective_date: app.policy.rule_zone.format(version.effective_at),
        due_date: version.due_at.map(|due| app.policy.rule_zone.format(due)),
        updated_at: created_at.clone(),
        created_at,
    }
}

fn status(is_pending: bool) -> RuleStatus {
    if is_pending { RuleStatus::PendingEffective } else { RuleStatus::Effective }
}

/// A record of query and list: a version that is in force or pending, or none.
pub fn record(app: &App, institution: &MerchantRow, listed: &RuleRecord) -> Record {
    let RuleRecord { sub_merchant_id, rule } = listed;
    let (version, in_force) = (rule.version(), rule.markup_in_force());
    let (base_r, base_f) = (institution.base_r, institution.base_f.to_decimal());
    let due_date = version.and_then(|v| v.due_at).map(|due| app.policy.rule_zone.format(due));
    Record {
        sub_merchant_id: sub_merchant_id.clone(),
        has_markup: version.is_some(),
        config_id: version.map(|v| config_id(v.config_id)),
        version_no: version.map(|v| v.version_no),
        r_markup: version.map(|v| Exact(v.markup.r())),
        f_markup: version.map(|v| Exact(v.markup.f().to_decimal())),
        status: rule.standing().map(|standing| status(standing == RuleStanding::Pending)),
        effective_date: version.map(|v| app.policy.rule_zone.format(v.effective_at)),
        expired_date: due_date.clone(),
        due_date,
        actual_rate: ActualRate {
            r_total: Exact(base_r + in_force.map_or(Decimal::ZERO, |markup| markup.r())),
            f_total: Exact(base_f + in_force.map_or(Decimal::ZERO, |markup| markup.f().to_decimal())),
        },
        updated_at: version.map(|v| countersign_domain::time::rfc3339(v.created_at)),
    }
}
