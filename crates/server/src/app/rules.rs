//! Fee rules: upgrade, create, query, list.

use std::sync::Arc;

use countersign_domain::ids::{TenantNo, config_id};
use countersign_domain::rules::{self, MarkupRefused, RuleAsk, RuleHead, RuleRefused, RuleVersion};
use countersign_domain::time::{CLOCKS_APART_MS_MAX, RuleZone, UnixMillis, rfc3339};
use countersign_protocol::sentence::of_field;
use countersign_store::batch::{Conflict, Guard, Write};
use countersign_store::contract::{ClaimKey, CommitError, MerchantKind, MerchantRow, RuleFilter, RulePage, Store};
use rust_decimal::Decimal;

use super::error::AppError;
use super::hints::SubAccount;
use super::turns::{TurnKey, read_in_turn};
use super::{Actor, App, Deed};

/// Which of the two ways to make a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// Whatever is there: `POST /rate/commission_rule/upgrade`.
    Upgrade,
    /// Only where nothing is effective or pending: `POST /rate/commission_rule`.
    Create,
}

impl Making {
    const fn action(self) -> &'static str {
        match self {
            Self::Upgrade => "fee_rule.upgrade",
            Self::Create => "fee_rule.create",
        }
    }
}

/// A version asked for by an institution.
#[derive(Clone, Debug)]
pub struct RuleChange {
    /// Upgrade or creation.
    pub making: Making,
    /// The sub-account, as named by the caller.
    pub sub_merchant_id: String,
    /// What the version shall say.
    pub ask: RuleAsk,
}

/// Makes a version of a sub-account's rule. The nonce is used up in the same batch.
pub async fn change(
    app: &App,
    institution: &MerchantRow,
    change: &RuleChange,
    claim: &ClaimKey,
    actor: &Actor,
) -> Result<RuleVersion, AppError> {
    within_unit(app, "r_markup", change.ask.markup.r())?;
    let sub = whose(app, institution, &change.sub_merchant_id).await?;
    let _turn = app.turns.take_soon(TurnKey::Rules(sub.no)).await?;
    let arrived = app.clock.now();
    let mut hint = app.hints.head(sub.no);
    let mut not_before = UnixMillis(i64::MIN);
    loop {
        actor.may_still(app).await?;
        let is_hint = hint.is_some();
        let head = match hint.take() {
            Some(head) => Some(head),
            None => app.store.rule_head(sub.tenant, sub.no, None).await?,
        };
        let version = match decide(app, change, head.as_ref(), not_before) {
            Ok(version) => version,
            // Others may have moved the head that refuses.
            Err(_) if is_hint => continue,
            Err(refused) => return Err(refused),
        };
        let mut writes = vec![
            Write::ClaimNonce(claim.clone()),
            Write::AppendRule { tenant: sub.tenant, merchant: sub.no, version: Box::new(version.clone()) },
            audit(sub.tenant, change, head.as_ref(), &version, actor),
        ];
        writes.extend(head.as_ref().and_then(|head| before_it_starts(app, head, &version)));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => {
                if app.store.reads_cost_a_round_trip() {
                    app.hints.saw_head(sub.no, RuleHead::moved(head, version.clone()), app.clock.now());
                }
                return Ok(version);
            }
            Err(lost) if actor.has_lost(&lost) => return Err(lost.into()),
            Err(CommitError::Conflict(Conflict::NonceUsed)) => return Err(AppError::NonceReused),
            Err(CommitError::Conflict(conflict)) if app.may_decide_anew(arrived) => {
                match conflict {
                    // A fee was worked out without this version meanwhile, so the version begins behind that payment. The head is as it was read.
                    Conflict::PaidSince(_, paid_at) => (not_before, hint) = (paid_at.plus_ms(1), head),
                    // The pending version has started meanwhile: the head is as it was read.
                    Conflict::Late(_) => hint = head,
                    // Another node was first: read again, decide again.
                    Conflict::NonceUsed
                    | Conflict::Taken(_)
                    | Conflict::Moved(_)
                    | Conflict::Fenced(_)
                    | Conflict::Early(_)
                    | Conflict::Crowded
                    | Conflict::TokenRevoked => app.hints.moved_by_others(sub.no, app.clock.now()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What invalidates a pending version rests on that it has not started when that is applied: one that somebody saw in force is replaced from
/// then on, and an older one never comes back.
fn before_it_starts(app: &App, head: &RuleHead, version: &RuleVersion) -> Option<Write> {
    let instant = head.last.starts_at();
    let is_pending = instant > version.created_at;
    is_pending.then(|| Write::Guard(Guard::Before { instant, time: app.clock.source() }))
}

/// Refuses what a deployment that reads fractions would read as more than the whole amount.
pub fn within_unit(app: &App, field: &'static str, r: Decimal) -> Result<(), AppError> {
    let unit = app.policy.markup_unit;
    if r <= unit.most() {
        return Ok(());
    }
    Err(AppError::InvalidParameter(of_field(field, MarkupRefused::Percentage.must(unit))))
}

/// The version, made now, but no earlier than `not_before`.
fn decide(
    app: &App,
    change: &RuleChange,
    head: Option<&RuleHead>,
    not_before: UnixMillis,
) -> Result<RuleVersion, AppError> {
    let make = match change.making {
        Making::Upgrade => rules::upgrade,
        Making::Create => rules::create,
    };
    let (clock, zone) = (app.clock.now(), &app.policy.rule_zone);
    let now = clock.max(not_before);
    let made = make(head, &change.ask, now, app.chance.config_bits(now)).map_err(|refused| match refused {
        RuleRefused::Period => {
            let now = head.map_or(now, |head| now.max(head.last.created_at));
            let why = format!("{refused}, which is {} in {}", zone.format(now), zone.name());
            AppError::InvalidRulePeriod(of_field("due_date", why))
        }
        RuleRefused::Exists => AppError::FeeRuleExists,
    })?;
    demand_its_own_time(&made, clock, zone)?;
    Ok(made)
}

/// A version comes after what was made and paid before it, also where a clock that was ahead made that. Then it cannot begin at an instant before
/// that and after now: it would be in force at once. Refused, since that may be another fee for as long as the clock was ahead.
fn demand_its_own_time(version: &RuleVersion, clock: UnixMillis, zone: &RuleZone) -> Result<(), AppError> {
    let is_ahead = version.created_at > clock.plus_ms(CLOCKS_APART_MS_MAX);
    if !is_ahead || version.effective_at <= clock || version.effective_at >= version.created_at {
        return Ok(());
    }
    let why = format!(
        "must be {} in {} or later, or not in the future: a version or a payment of this sub-account was made just before that, by a clock that was \
         ahead, and no version can begin between now and then",
        zone.format(version.created_at.plus_ms(999)),
        zone.name()
    );
    Err(AppError::InvalidRulePeriod(of_field("effective_date", why)))
}

fn audit(
    tenant: TenantNo,
    change: &RuleChange,
    head: Option<&RuleHead>,
    version: &RuleVersion,
    actor: &Actor,
) -> Write {
    let before = head.map(|h| describe(&h.last)).unwrap_or_default();
    actor.records(Deed {
        tenant: Some(tenant),
        at: version.created_at,
        action: change.making.action(),
        subject: &change.sub_merchant_id,
        before,
        after: describe(version),
    })
}

/// A version as a JSON text for the audit log. All of it is numbers, ids and instants, so nothing needs escaping.
fn describe(version: &RuleVersion) -> String {
    let due = version.due_at.map_or_else(|| "null".to_owned(), |due| format!(r#""{}""#, rfc3339(due)));
    format!(
        r#"{{"version_no":{},"config_id":"{}","r_markup":{},"f_markup":{},"effective_at":"{}","due_at":{due}}}"#,
        version.version_no,
        config_id(version.config_id),
        version.markup.r(),
        version.markup.f(),
        rfc3339(version.effective_at),
    )
}

/// A sub-account of this institution, read only where this node has not seen it.
async fn whose(app: &App, institution: &MerchantRow, sub_merchant_id: &str) -> Result<SubAccount, AppError> {
    if let Some(seen) = app.hints.sub_account(sub_merchant_id).filter(|seen| seen.tenant == institution.tenant) {
        return Ok(seen);
    }
    let found = sub_account(app, institution, sub_merchant_id).await?;
    let found = SubAccount { tenant: found.tenant, no: found.no };
    if app.store.reads_cost_a_round_trip() {
        app.hints.saw_sub_account(sub_merchant_id, found);
    }
    Ok(found)
}

/// A sub-account of this institution; absent and foreign are one answer.
pub async fn sub_account(app: &App, institution: &MerchantRow, sub_merchant_id: &str) -> Result<MerchantRow, AppError> {
    let found = app.store.merchant(sub_merchant_id).await?;
    found
        .filter(|m| m.kind == MerchantKind::SubAccount && m.tenant == institution.tenant)
        .ok_or(AppError::SubMerchantNotFound)
}

/// The version of a sub-account's rule that is in force at `at`, or now. One made after `at` is not shown.
pub async fn in_force(
    app: &App,
    institution: &MerchantRow,
    sub_merchant_id: &str,
    at: Option<UnixMillis>,
) -> Result<Option<RuleVersion>, AppError> {
    let sub = sub_account(app, institution, sub_merchant_id).await?;
    let head = app.store.rule_head(sub.tenant, sub.no, at).await?;
    // A node whose clock is behind must not miss a version that was acknowledged.
    let now = |head: &RuleHead| app.clock.now().max(head.last.created_at);
    Ok(head.and_then(|h| rules::in_force(&h, at.unwrap_or_else(|| now(&h))).cloned()))
}

/// A page of an institution's rules as they are now.
pub async fn page(
    app: &Arc<App>,
    institution: &MerchantRow,
    filter: RuleFilter,
    offset: u64,
    limit: u32,
) -> Result<RulePage, AppError> {
    const CROWDED: &str = "other lists of this institution are being read; ask for one after the other";
    // An institution with very many sub-accounts has one of its lists read at a time, and leaves the other places of all merchants' lists to others.
    let (key, tenant) = (TurnKey::RuleList(institution.no), institution.tenant);
    let read =
        move |app: Arc<App>| async move { app.store.rule_page(tenant, filter, app.clock.now(), offset, limit).await };
    read_in_turn(app, key, CROWDED, read).await
}

#[cfg(test)]
mod tests {
    use countersign_domain::money::Amount;
    use countersign_domain::rules::Markup;
    use countersign_store::contract::{Cursor, EndpointSettings};

    use super::*;
    use crate::app::fixtures::{Deployment, claim, nobody};
    use crate::app::identity::{
        NewApplication, NewMerchant, Standing, create_application, create_merchant, find_merchant,
    };

    async fn merchant(app: &App, id: &str, standing: Standing) -> MerchantRow {
        let new = NewMerchant { merchant_id: Some(id.to_owned()), name: id.to_owned(), standing, user_id: None };
        create_merchant(app, &new, &|_| None, &nobody()).await.expect("is made");
        find_merchant(app, id).await.expect("is there")
    }

    /// Whoever asked was told that it is in force.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_version_that_starts_while_an_upgrade_waits_is_replaced_and_not_invalidated() {
        let deployment = Deployment::on_postgres().await;
        let app = deployment.open().await;
        let bank = merchant(&app, "bank", Standing::Institution { base_r: Decimal::ZERO, base_f: Amount::ZERO }).await;
        let sub = merchant(&app, "shop", Standing::SubAccountOf("bank".to_owned())).await;
        let desk = NewApplication {
            merchant_id: "bank".to_owned(),
            name: "desk".to_owned(),
            callback_url: None,
            endpoint: EndpointSettings::default(),
        };
        let of = create_application(&app, &desk, &|_| None, &nobody()).await.expect("is made").application;
        let upgrade = async |nonce: &str, in_ms: i64| {
            let now = app.clock.now();
            let ask = RuleAsk {
                markup: Markup::new(Decimal::ONE, Decimal::ZERO).expect("a markup"),
                effective_at: now.plus_ms(in_ms),
                due_at: None,
            };
            let asked = RuleChange { making: Making::Upgrade, sub_merchant_id: "shop".to_owned(), ask };
            change(&app, &bank, &asked, &claim(&of, nonce, now), &nobody()).await
        };
        upgrade("first", 0).await.expect("is in force");
        deployment.clock.advance_ms(1);
        upgrade("pending", 1_000).await.expect("is pending");
        deployment.clock.advance_ms(999);
        let held = deployment.database().hold_rules().await;
        let waits = async {
            deployment.database().somebody_waits().await;
            deployment.clock.advance_ms(1);
            drop(held);
        };
        let (made, ()) = tokio::join!(upgrade("late", 3_600_000), waits);
        let made = made.expect("is decided anew");
        assert_eq!((made.version_no, made.base_version_no), (3, Some(2)), "what it replaces has started");
        let versions =
            app.store.rule_versions(sub.tenant, sub.no, Cursor { after: None, limit: 9 }).await.expect("reads");
        assert_eq!(versions.len(), 3);
        Deployment::close(&app);
    }
}
