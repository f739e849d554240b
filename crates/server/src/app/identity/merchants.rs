//! Institutions, merchants and sub-accounts: one namespace of public ids.

use std::collections::{BTreeMap, BTreeSet};

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::money::Amount;
use countersign_protocol::sentence::of_field;
use countersign_store::Store;
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{CommitError, Cursor, MerchantKind, MerchantRow};
use countersign_store::public_ids::PublicIds as _;
use rust_decimal::Decimal;
use serde_json::json;

use super::kind_name;
use crate::app::error::AppError;
use crate::app::idempotency::{Keep, kept};
use crate::app::rules::within_unit;
use crate::app::turns::TurnKey;
use crate::app::{Actor, App, Deed, nodes};

/// How often a merchant is written anew under another number before we say busy.
const NUMBER_TRIES_MAX: u32 = 5;
/// Made user ids have ten digits, so that every client reads them exactly.
const USER_ID_MIN: u64 = 1_000_000_000;

/// What kind of merchant it shall be.
#[derive(Clone, Debug)]
pub enum Standing {
    /// An institution with its base rate: percent (or a fraction), and USDT.
    Institution {
        /// Relative part.
        base_r: Decimal,
        /// Fixed part.
        base_f: Amount,
    },
    /// A plain merchant.
    Merchant,
    /// A sub-account of the institution with this public id.
    SubAccountOf(String),
}

/// A merchant to be made.
#[derive(Clone, Debug)]
pub struct NewMerchant {
    /// Its public id; none: made.
    pub merchant_id: Option<String>,
    /// A name for people.
    pub name: String,
    /// Which kind.
    pub standing: Standing,
    /// The user id of its conversions; none: made.
    pub user_id: Option<i64>,
}

/// Makes a merchant of any kind.
pub async fn create_merchant(
    app: &App,
    ask: &NewMerchant,
    keep: &Keep<'_, MerchantRow>,
    actor: &Actor,
) -> Result<MerchantRow, AppError> {
    if let Standing::Institution { base_r, .. } = ask.standing {
        within_unit(app, "base_rate.r_total", base_r)?;
    }
    let institution = match &ask.standing {
        Standing::SubAccountOf(id) => Some(institution(app, id).await?),
        Standing::Institution { .. } | Standing::Merchant => None,
    };
    for _ in 0..NUMBER_TRIES_MAX {
        let row = new_row(app, ask, institution.as_ref());
        let audit = audit(&row, institution.as_ref(), actor);
        let mut writes = vec![Write::InsertMerchant(Box::new(row.clone())), audit];
        writes.extend(kept(keep, &row));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => return Ok(row),
            // The id, or the number that another node drew in the same millisecond: only the id is the caller's affair.
            Err(CommitError::Conflict(Conflict::Taken(Key::Merchant(_)))) => {
                if app.store.merchant(&row.merchant_id).await?.is_some() && ask.merchant_id.is_some() {
                    return Err(AppError::AlreadyExists(format!(
                        "a merchant or sub-account has the id {}; send another, or none",
                        row.merchant_id
                    )));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

fn new_row(app: &App, ask: &NewMerchant, institution: Option<&MerchantRow>) -> MerchantRow {
    let now = app.clock.now();
    let no = app.chance.number(now);
    let (kind, base_r, base_f) = match ask.standing {
        Standing::Institution { base_r, base_f } => (MerchantKind::Institution, base_r, base_f),
        Standing::Merchant => (MerchantKind::Merchant, Decimal::ZERO, Amount::ZERO),
        Standing::SubAccountOf(_) => (MerchantKind::SubAccount, Decimal::ZERO, Amount::ZERO),
    };
    MerchantRow {
        no: MerchantNo(no),
        merchant_id: ask.merchant_id.clone().unwrap_or_else(|| no.to_string()),
        tenant: institution.map_or(TenantNo(no), |i| i.tenant),
        kind,
        name: ask.name.clone(),
        base_r,
        base_f,
        user_id: ask.user_id.unwrap_or_else(|| made_user_id(app)),
        enabled: true,
        revision: 1,
        created_at: now,
    }
}

fn made_user_id(app: &App) -> i64 {
    i64::try_from(USER_ID_MIN + app.chance.bits64() % (9 * USER_ID_MIN)).unwrap_or(i64::MAX)
}

fn audit(row: &MerchantRow, institution: Option<&MerchantRow>, actor: &Actor) -> Write {
    let mut after = json!({
        "merchant_id": row.merchant_id,
        "kind": kind_name(row.kind),
        "name": row.name,
        "user_id": row.user_id,
    });
    if row.kind == MerchantKind::Institution {
        after["base_rate"] = json!({ "r_total": row.base_r.to_string(), "f_total": row.base_f.to_string() });
    }
    if let Some(institution) = institution {
        after["institution_id"] = json!(institution.merchant_id);
    }
    let action = match row.kind {
        MerchantKind::Institution => "institution.create",
        MerchantKind::Merchant => "merchant.create",
        MerchantKind::SubAccount => "sub_account.create",
    };
    actor.records(Deed {
        tenant: Some(row.tenant),
        at: row.created_at,
        action,
        subject: &row.merchant_id,
        before: String::new(),
        after: after.to_string(),
    })
}

async fn institution(app: &App, merchant_id: &str) -> Result<MerchantRow, AppError> {
    let found = app.store.merchant(merchant_id).await?.filter(|m| m.kind == MerchantKind::Institution);
    found.ok_or_else(|| AppError::NotFound(format!("no institution has the id {merchant_id}")))
}

/// A sub-account of any institution by its public id.
pub async fn find_sub_account(app: &App, sub_merchant_id: &str) -> Result<MerchantRow, AppError> {
    let found = app.store.merchant(sub_merchant_id).await?;
    found.filter(|found| found.kind == MerchantKind::SubAccount).ok_or(AppError::SubMerchantNotFound)
}

/// A merchant of any kind by its public id.
pub async fn find_merchant(app: &App, merchant_id: &str) -> Result<MerchantRow, AppError> {
    let found = app.store.merchant(merchant_id).await?;
    found.ok_or_else(|| AppError::NotFound(format!("no merchant has the id {merchant_id}")))
}

/// The public ids of the institutions over those of these merchants that are sub-accounts, by tenant.
pub async fn institutions_over(app: &App, rows: &[MerchantRow]) -> Result<BTreeMap<TenantNo, String>, AppError> {
    let below = rows.iter().filter(|row| row.kind == MerchantKind::SubAccount);
    let tenants: BTreeSet<TenantNo> = below.map(|row| row.tenant).collect();
    if tenants.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(app.store.tenant_ids(tenants.into_iter().collect()).await?)
}

/// The public id of the institution over this merchant; none: there is none. Whoever disables a sub-account waits for nobody's list here.
pub async fn institution_over(app: &App, row: &MerchantRow) -> Result<Option<String>, AppError> {
    if row.kind == MerchantKind::SubAccount { Ok(app.store.tenant_id(row.tenant).await?) } else { Ok(None) }
}

/// Which merchants to list.
#[derive(Clone, Copy, Debug)]
pub enum Listed<'a> {
    /// Every one, or of one kind.
    All(Option<MerchantKind>),
    /// The sub-accounts of the institution with this public id.
    Under(&'a str),
}

/// Merchants in the order they were made. `after`: the number of the last one seen.
pub async fn list_merchants(
    app: &App,
    which: Listed<'_>,
    after: Option<i64>,
    limit: u32,
) -> Result<Vec<MerchantRow>, AppError> {
    let (tenant, kind) = match which {
        Listed::All(kind) => (None, kind),
        Listed::Under(id) => (Some(institution(app, id).await?.tenant), Some(MerchantKind::SubAccount)),
    };
    Ok(app.store.merchants(tenant, kind, Cursor { after, limit }).await?)
}

/// A change of a merchant of any kind; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct MerchantChange {
    /// A name for people.
    pub name: Option<String>,
    /// Whether its applications' requests are accepted and their callbacks go out; an institution's counts for its sub-accounts too.
    pub enabled: Option<bool>,
    /// Base rate of an institution.
    pub base_r: Option<Decimal>,
    /// Base fee of an institution.
    pub base_f: Option<Amount>,
}

/// Changes a merchant of any kind. Where it is disabled, pending events of its applications are held; where it is enabled, held ones are
/// released, unless something else holds them. That is noted here, and done in portions by the dispatcher. Nodes answer with another base rate
/// within a second. That one was disabled is answered when no node accepts its requests any more.
pub async fn update_merchant(
    app: &App,
    merchant_id: &str,
    change: &MerchantChange,
    keep: &Keep<'_, MerchantRow>,
    actor: &Actor,
) -> Result<MerchantRow, AppError> {
    let row = change_merchant(app, merchant_id, change, keep, actor).await?;
    if change.enabled == Some(false) {
        nodes::until_all_know(app).await;
    }
    Ok(row)
}

async fn change_merchant(
    app: &App,
    merchant_id: &str,
    change: &MerchantChange,
    keep: &Keep<'_, MerchantRow>,
    actor: &Actor,
) -> Result<MerchantRow, AppError> {
    within_unit(app, "base_rate.r_total", change.base_r.unwrap_or_default())?;
    let _turn = app.turns.take_soon(TurnKey::Merchant(merchant_id.to_owned())).await?;
    let arrived = app.clock.now();
    loop {
        let before = find_merchant(app, merchant_id).await?;
        let now = app.clock.now();
        if before.kind != MerchantKind::Institution && (change.base_r.is_some() || change.base_f.is_some()) {
            let why = format_args!("is of institutions alone, and {merchant_id} is none");
            return Err(AppError::InvalidParameter(of_field("base_rate", why)));
        }
        let row = MerchantRow {
            name: change.name.clone().unwrap_or_else(|| before.name.clone()),
            enabled: change.enabled.unwrap_or(before.enabled),
            base_r: change.base_r.unwrap_or(before.base_r),
            base_f: change.base_f.unwrap_or(before.base_f),
            revision: before.revision + 1,
            ..before.clone()
        };
        let turns = row.enabled != before.enabled;
        // An institution is the tenant of its sub-accounts. Its base rate is read by its own applications alone.
        let below = Some(row.no).filter(|_| row.kind == MerchantKind::SubAccount || !turns);
        let mut writes = vec![Write::UpdateMerchant(Box::new(row.clone()))];
        // Nodes keep merchants in memory: this makes them read the merchant again.
        let reads = turns || (row.base_r, row.base_f) != (before.base_r, before.base_f);
        if reads {
            writes.push(Write::Reassess { tenant: row.tenant, merchant: below, due_at: now });
        }
        let audit = actor.records(Deed {
            tenant: Some(row.tenant),
            at: now,
            action: update_name(row.kind),
            subject: merchant_id,
            before: describe(&before),
            after: describe(&row),
        });
        writes.push(audit);
        writes.extend(kept(keep, &row));
        let outcome = app.store.commit(actor.batch(writes)).await;
        // Whatever became of it: what is kept in memory may be old now, and deliveries that waited may be able to go.
        let forgotten = if reads { app.callers.forget_of(row.tenant, below) } else { Vec::new() };
        if turns {
            // Their endpoints are known no more where callbacks stop.
            for client_id in &forgotten {
                app.bell.change(client_id);
            }
            app.ring_all();
        }
        match outcome {
            Ok(_) => return Ok(row),
            Err(CommitError::Conflict(Conflict::Moved(Key::Merchant(_)))) if app.may_decide_anew(arrived) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

const fn update_name(kind: MerchantKind) -> &'static str {
    match kind {
        MerchantKind::Institution => "institution.update",
        MerchantKind::Merchant => "merchant.update",
        MerchantKind::SubAccount => "sub_account.update",
    }
}

/// What can change of a merchant, as a JSON text for the audit log.
fn describe(row: &MerchantRow) -> String {
    let mut told = json!({ "name": row.name, "enabled": row.enabled });
    if row.kind == MerchantKind::Institution {
        told["base_rate"] = json!({ "r_total": row.base_r.to_string(), "f_total": row.base_f.to_string() });
    }
    told.to_string()
}
