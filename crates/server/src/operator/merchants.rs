//! Institutions, merchants and sub-accounts.

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use countersign_domain::fees::MarkupUnit;
use countersign_domain::ids::TenantNo;
use countersign_domain::money::Amount;
use countersign_domain::rules::{Markup, MarkupRefused};
use countersign_domain::time::rfc3339;
use countersign_protocol::body::Fields;
use countersign_protocol::exact::Exact;
use countersign_store::contract::{MerchantKind, MerchantRow};
use rust_decimal::Decimal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::fields::{chosen_id, display_name, whole};
use super::paging::{Asked, Mark, Page, lettered};
use super::problem::{Problem, ProblemDocument};
use crate::app::App;
use crate::app::identity::{self, Listed, MerchantChange, NewMerchant, Standing, kind_from_name, kind_name};

/// Largest user id: every client reads integers up to here exactly.
pub(crate) const USER_ID_MAX: i64 = 9_007_199_254_740_991;

/// What an institution's sub-accounts pay before any markup.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct BaseRate {
    /// Percent (or a fraction, where the deployment says so), 0 to 100, at most 8 decimals.
    pub r_total: Exact,
    /// USDT, 0 to 5000000, at most 6 decimals.
    pub f_total: Exact,
}

/// What sub-accounts are to pay before any markup.
#[derive(Debug, ToSchema)]
pub struct BaseRateRequest {
    /// Percent (or a fraction, where the deployment says so), 0 to 100, at most 8 decimals; absent: 0, and in a change as it was.
    pub r_total: Option<Exact>,
    /// USDT, 0 to 5000000, at most 6 decimals; absent: 0, and in a change as it was.
    pub f_total: Option<Exact>,
}

/// An institution to be made.
#[derive(Debug, ToSchema)]
pub struct InstitutionRequest {
    /// A name for people, 1 to 100 characters.
    pub name: String,
    /// Its public id, 1 to 64 of `A-Z a-z 0-9 _ -`; absent: made.
    pub merchant_id: Option<String>,
    /// Absent: zero.
    pub base_rate: Option<BaseRateRequest>,
    /// The user id of its conversions; absent: made.
    pub user_id: Option<i64>,
}

/// A plain merchant to be made.
#[derive(Debug, ToSchema)]
pub struct MerchantRequest {
    /// A name for people, 1 to 100 characters.
    pub name: String,
    /// Its public id, 1 to 64 of `A-Z a-z 0-9 _ -`; absent: made.
    pub merchant_id: Option<String>,
    /// The user id of its conversions; absent: made.
    pub user_id: Option<i64>,
}

/// A sub-account to be made.
#[derive(Debug, ToSchema)]
pub struct SubAccountRequest {
    /// A name for people, 1 to 100 characters.
    pub name: String,
    /// Its public id, of one namespace with `merchant_id`; absent: made.
    pub sub_merchant_id: Option<String>,
    /// The user id of its conversions; absent: made.
    pub user_id: Option<i64>,
}

/// What to change. What is absent stays.
#[derive(Debug, ToSchema)]
pub struct MerchantPatch {
    /// A name for people, 1 to 100 characters.
    pub name: Option<String>,
    /// False: requests of its applications are refused as from nobody, and their events are held. Of an institution it counts for its sub-accounts too.
    pub enabled: Option<bool>,
    /// Institutions only; what is absent of it stays. Within a second it is in every `actual_rate` that is asked for. Fees are of the markup alone.
    pub base_rate: Option<BaseRateRequest>,
}

/// A merchant of any kind.
#[derive(Debug, Serialize, ToSchema)]
pub struct Merchant {
    /// Its public id.
    pub merchant_id: String,
    /// `institution`, `merchant` or `sub_account`.
    pub kind: &'static str,
    /// The public id of its institution. Sub-accounts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub institution_id: Option<String>,
    /// A name for people.
    pub name: String,
    /// Institutions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_rate: Option<BaseRate>,
    /// The user id of its conversions.
    pub user_id: i64,
    /// Whether it may do anything: see `MerchantPatch`.
    pub enabled: bool,
    /// When it was made, RFC 3339.
    pub created_at: String,
}

/// A sub-account.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubAccount {
    /// Its public id.
    pub sub_merchant_id: String,
    /// Its institution's public id.
    pub merchant_id: String,
    /// A name for people.
    pub name: String,
    /// The user id of its conversions.
    pub user_id: i64,
    /// Whether it may do anything. Where its institution is disabled, it may not either.
    pub enabled: bool,
    /// When it was made, RFC 3339.
    pub created_at: String,
}

/// Public ids of institutions, by tenant.
type Institutions = BTreeMap<TenantNo, String>;

impl Merchant {
    /// Of one that has no institution over it.
    fn alone(row: &MerchantRow) -> Self {
        Self::under(&Institutions::new(), row)
    }

    fn under(institutions: &Institutions, row: &MerchantRow) -> Self {
        let is_below = row.kind == MerchantKind::SubAccount;
        let base_rate = BaseRate { r_total: Exact(row.base_r), f_total: Exact(row.base_f.to_decimal()) };
        Self {
            merchant_id: row.merchant_id.clone(),
            kind: kind_name(row.kind),
            institution_id: institutions.get(&row.tenant).filter(|_| is_below).cloned(),
            name: row.name.clone(),
            base_rate: (row.kind == MerchantKind::Institution).then_some(base_rate),
            user_id: row.user_id,
            enabled: row.enabled,
            created_at: rfc3339(row.created_at),
        }
    }
}

impl SubAccount {
    fn of(institution: &str, row: &MerchantRow) -> Self {
        Self {
            sub_merchant_id: row.merchant_id.clone(),
            merchant_id: institution.to_owned(),
            name: row.name.clone(),
            user_id: row.user_id,
            enabled: row.enabled,
            created_at: rfc3339(row.created_at),
        }
    }
}

/// Who is to be made: `id_field` names the public id.
fn parse(
    body: &[u8],
    id_field: &str,
    standing: impl FnOnce(&Fields<'_>) -> Result<Standing, Problem>,
) -> Result<NewMerchant, Problem> {
    let fields = Fields::parse(body)?;
    Ok(NewMerchant {
        name: display_name(fields.required_text("name")?)?,
        merchant_id: chosen_id(&fields, id_field)?,
        user_id: whole(&fields, "user_id", 1, USER_ID_MAX)?,
        standing: standing(&fields)?,
    })
}

fn institution_standing(fields: &Fields<'_>, unit: MarkupUnit) -> Result<Standing, Problem> {
    let (r, f) = base_rate(fields, unit)?;
    Ok(Standing::Institution { base_r: r.unwrap_or_default(), base_f: f.unwrap_or(Amount::ZERO) })
}

/// Whoever sends one to the wrong path would believe that it counts.
fn without_base_rate(fields: &Fields<'_>) -> Result<(), Problem> {
    let is_given = fields.object("base_rate", |_| Ok(()))?.is_some();
    if is_given { Err(Problem::field("base_rate", "is of institutions alone: leave it out")) } else { Ok(()) }
}

/// As far as it is given. The limits of a markup are those of a base rate.
fn base_rate(fields: &Fields<'_>, unit: MarkupUnit) -> Result<(Option<Decimal>, Option<Amount>), Problem> {
    let given = fields.object("base_rate", |rate| Ok((rate.number("r_total")?, rate.number("f_total")?)))?;
    let (r, f) = given.unwrap_or_default();
    let of = |part: Option<Exact>| part.unwrap_or_default().0;
    let rate = Markup::new(of(r), of(f)).map_err(|refused| {
        let field = match refused {
            MarkupRefused::Percentage => "base_rate.r_total",
            MarkupRefused::Fixed => "base_rate.f_total",
        };
        Problem::field(field, refused.must(unit))
    })?;
    Ok((r.map(|_| rate.r()), f.map(|_| rate.f())))
}

/// Institutions and sub-accounts are merchants, and one order has them all.
const MARK: Mark<i64> = lettered::<'m'>();

/// Adds an institution.
#[utoipa::path(post, path = "/operator/v1/institutions", tag = "Identities", operation_id = "create_institution",
    request_body = InstitutionRequest, responses((status = 200, body = Merchant), (status = 409, body = ProblemDocument)))]
pub async fn create_institution(call: Call) -> Reply {
    call.once(async {
        let ask =
            parse(&call.body, "merchant_id", |fields| institution_standing(fields, call.app().policy.markup_unit))?;
        let made =
            identity::create_merchant(call.app(), &ask, &|row| call.keep(&Merchant::alone(row)), &call.actor).await?;
        Ok(Merchant::alone(&made))
    })
    .await
}

/// Adds a plain merchant.
#[utoipa::path(post, path = "/operator/v1/merchants", tag = "Identities", operation_id = "create_merchant",
    request_body = MerchantRequest, responses((status = 200, body = Merchant), (status = 409, body = ProblemDocument)))]
pub async fn create_merchant(call: Call) -> Reply {
    call.once(async {
        let ask = parse(&call.body, "merchant_id", |fields| without_base_rate(fields).map(|()| Standing::Merchant))?;
        let made =
            identity::create_merchant(call.app(), &ask, &|row| call.keep(&Merchant::alone(row)), &call.actor).await?;
        Ok(Merchant::alone(&made))
    })
    .await
}

/// Adds a sub-account to an institution.
#[utoipa::path(post, path = "/operator/v1/institutions/{merchant_id}/sub-accounts", tag = "Identities", operation_id = "create_sub_account",
    params(("merchant_id" = String, Path, description = "The institution")), request_body = SubAccountRequest,
    responses((status = 200, body = SubAccount), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn create_sub_account(Named(institution): Named<String>, call: Call) -> Reply {
    call.once(async {
        let ask = parse(&call.body, "sub_merchant_id", |fields| {
            without_base_rate(fields).map(|()| Standing::SubAccountOf(institution.clone()))
        })?;
        let keep = |row: &MerchantRow| call.keep(&SubAccount::of(&institution, row));
        let made = identity::create_merchant(call.app(), &ask, &keep, &call.actor).await?;
        Ok(SubAccount::of(&institution, &made))
    })
    .await
}

/// Merchants of every kind, in the order they were made.
#[utoipa::path(get, path = "/operator/v1/merchants", tag = "Identities", operation_id = "list_merchants",
    params(("kind" = Option<String>, Query, description = "Only `institution`, `merchant` or `sub_account`"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Merchant>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let kind = asked.filters.read("kind", kind_from_name, "must be institution, merchant or sub_account")?;
    listed(&desk, Listed::All(kind), &asked).await
}

async fn listed(desk: &Desk, which: Listed<'_>, asked: &Asked) -> Reply {
    let rows = identity::list_merchants(&desk.app, which, asked.after(&MARK)?, asked.limit_and_one()).await?;
    let institutions = identity::institutions_over(&desk.app, &rows).await?;
    Ok(json(&asked.page(rows, &MARK, |row| row.no.0, |row| Merchant::under(&institutions, row))))
}

/// Institutions, in the order they were made.
#[utoipa::path(get, path = "/operator/v1/institutions", tag = "Identities", operation_id = "list_institutions",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Merchant>)))]
pub async fn list_institutions(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    listed(&desk, Listed::All(Some(MerchantKind::Institution)), &asked).await
}

/// Changes a merchant of any kind. Renames, disables or enables it, and gives an institution another base rate.
#[utoipa::path(patch, path = "/operator/v1/merchants/{merchant_id}", tag = "Identities", operation_id = "update_merchant",
    params(("merchant_id" = String, Path, description = "A merchant_id or sub_merchant_id")), request_body = MerchantPatch,
    responses((status = 200, body = Merchant), (status = 404, body = ProblemDocument)))]
pub async fn update(Named(merchant_id): Named<String>, call: Call) -> Reply {
    call.once_everywhere(async {
        let fields = Fields::parse(&call.body)?;
        let name = fields.text("name")?.map(display_name).transpose()?;
        let (base_r, base_f) = base_rate(&fields, call.app().policy.markup_unit)?;
        let change = MerchantChange { name, enabled: fields.boolean("enabled")?, base_r, base_f };
        let (known, institutions) = with_institution(call.app(), &merchant_id).await?;
        if known.kind != MerchantKind::Institution {
            without_base_rate(&fields)?;
        }
        let keep = |row: &MerchantRow| call.keep(&Merchant::under(&institutions, row));
        let row = identity::update_merchant(call.app(), &merchant_id, &change, &keep, &call.actor).await?;
        Ok(Merchant::under(&institutions, &row))
    })
    .await
}

/// One merchant of any kind.
#[utoipa::path(get, path = "/operator/v1/merchants/{merchant_id}", tag = "Identities", operation_id = "show_merchant",
    params(("merchant_id" = String, Path, description = "A merchant_id or sub_merchant_id")),
    responses((status = 200, body = Merchant), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(merchant_id): Named<String>) -> Result<Response<Body>, Problem> {
    let (row, institutions) = with_institution(&desk.app, &merchant_id).await?;
    Ok(json(&Merchant::under(&institutions, &row)))
}

/// A merchant, and the institution over it where there is one.
async fn with_institution(app: &App, merchant_id: &str) -> Result<(MerchantRow, Institutions), Problem> {
    let row = identity::find_merchant(app, merchant_id).await?;
    let institution_id = identity::institution_over(app, &row).await?;
    let institutions = institution_id.into_iter().map(|id| (row.tenant, id)).collect();
    Ok((row, institutions))
}

/// An institution's sub-accounts, in the order they were made.
#[utoipa::path(get, path = "/operator/v1/institutions/{merchant_id}/sub-accounts", tag = "Identities", operation_id = "list_sub_accounts",
    params(("merchant_id" = String, Path, description = "The institution"), ("limit" = Option<u32>, Query, description = "1 to 500, default 50"),
        ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<SubAccount>), (status = 404, body = ProblemDocument)))]
pub async fn list_sub_accounts(
    State(desk): State<Arc<Desk>>,
    Named(institution): Named<String>,
    asked: Asked,
) -> Reply {
    let (which, after) = (Listed::Under(&institution), asked.after(&MARK)?);
    let rows = identity::list_merchants(&desk.app, which, after, asked.limit_and_one()).await?;
    Ok(json(&asked.page(rows, &MARK, |row| row.no.0, |row| SubAccount::of(&institution, row))))
}
