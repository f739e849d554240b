//! Every read: which statement, and what its rows mean.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::LazyLock;

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use futures_core::Stream as _;
use tokio_postgres::Row;

use super::fault::fault;
use super::nodes::numbers;
use super::readers::Readers;
use super::session::Params;
use super::statements::Sql;
use super::{rows, schema};
use crate::chain::{ChainHead, ChainLine, ChainPlace};
use crate::contract::{
    ApplicationFilter, ApplicationView, AttemptRow, AuditKey, AuditRow, Cursor, EventRow, IdempotencyRow, MerchantKind,
    MerchantRow, OwedRow, Pending, Portion, RuleFilter, RulePage, SealedSecret, StoreError, TokenRow, TurningRow,
};
use crate::joined;
use crate::own_events::OWN_EVENTS_BYTES_MAX;
use crate::rule_page::RulePageBuilder;
use crate::{earlier_event, steps, words};

pub(super) type Found<T> = Result<T, StoreError>;

/// The first row, read.
pub(super) async fn one<T>(
    from: &Readers,
    sql: Sql,
    params: Params<'_>,
    read: impl FnOnce(&Row) -> Found<T>,
) -> Found<Option<T>> {
    from.rows(sql, params).await?.first().map(read).transpose()
}

/// Every row, read.
pub(super) async fn many<T>(
    from: &Readers,
    sql: Sql,
    params: Params<'_>,
    read: impl FnMut(&Row) -> Found<T>,
) -> Found<Vec<T>> {
    from.rows(sql, params).await?.iter().map(read).collect()
}

pub(super) async fn ping(from: &Readers) -> Found<Option<String>> {
    static TABLES: LazyLock<Vec<&str>> = LazyLock::new(schema::tables);
    let found = from.rows(Sql::Ping, &[&*TABLES]).await?;
    let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    let found = found.iter().map(|row| read(row).map_err(fault)).collect::<Found<Vec<(String, bool)>>>()?;
    let of =
        |is_gone| found.iter().filter(|found| found.1 == is_gone).map(|(table, _)| table.clone()).collect::<Vec<_>>();
    Ok(steps::gone(&of(true), TABLES.len()).or_else(|| steps::locked(&of(false))))
}

pub(super) async fn setting(from: &Readers, name: &str) -> Found<Option<String>> {
    one(from, Sql::Setting, &[&name], |row| rows::Fields::new(row, "setting", 1, 0).text()).await
}

/// Where the ClientId stands among an application's columns.
const CLIENT_ID: usize = 2;

/// Applications, each made of all its rows: they come together, one for each secret.
fn views(found: &[Row]) -> Found<Vec<ApplicationView>> {
    let mut views: Vec<ApplicationView> = Vec::new();
    for row in found {
        let (view, secret) = joined::application_view(row)?;
        if views.last().is_none_or(|last| last.application.no != view.application.no) {
            views.push(view);
        }
        let is_there = rows::Fields::new(row, "secret", secret, secret + 1).opt_int()?.is_some();
        if let Some(view) = views.last_mut().filter(|_| is_there) {
            view.secrets.push(rows::secret_at(row, secret)?);
        }
    }
    Ok(views)
}

pub(super) async fn application(from: &Readers, client_id: &str) -> Found<Option<ApplicationView>> {
    // Where there is none, another one is read and left: strangers must not see from the time which ClientIds exist.
    let rows = from.rows(Sql::Application, &[&client_id]).await?;
    let found = views(&rows);
    let is_it = rows.first().is_some_and(|row| row.try_get::<_, &str>(CLIENT_ID).is_ok_and(|id| id == client_id));
    if is_it { Ok(found?.pop()) } else { Ok(None) }
}

pub(super) async fn application_revision(from: &Readers, client_id: &str) -> Found<Option<i64>> {
    // Always one row: an answer without one would be sooner here, and tell strangers which ClientIds exist.
    let read = |row: &Row| rows::Fields::new(row, "application", 1, 0).opt_int();
    Ok(one(from, Sql::ApplicationRevision, &[&client_id], read).await?.flatten())
}

pub(super) async fn applications(
    from: &Readers,
    filter: ApplicationFilter,
    page: &Cursor,
) -> Found<Vec<ApplicationView>> {
    let (after, limit, enabled) = (page.after.unwrap_or(i64::MIN), i64::from(page.limit), filter.callback_enabled);
    let found = match (filter.merchant, enabled) {
        (Some(merchant), _) => from.rows(Sql::ApplicationsOf, &[&after, &limit, &enabled, &merchant.0]).await?,
        (None, Some(false)) => from.rows(Sql::ApplicationsPaused, &[&after, &limit]).await?,
        (None, Some(true) | None) => from.rows(Sql::Applications, &[&after, &limit, &enabled]).await?,
    };
    views(&found)
}

pub(super) async fn secrets_not_under(
    from: &Readers,
    key_id: &str,
    after: Option<&str>,
    limit: u32,
) -> Found<Vec<SealedSecret>> {
    many(from, Sql::SecretsNotUnder, &[&key_id, &after.unwrap_or_default(), &i64::from(limit)], rows::sealed).await
}

pub(super) async fn merchant(from: &Readers, merchant_id: &str) -> Found<Option<MerchantRow>> {
    one(from, Sql::Merchant, &[&merchant_id], |row| Ok(rows::merchant(row, 0)?.0)).await
}

pub(super) async fn merchants(
    from: &Readers,
    tenant: Option<TenantNo>,
    kind: Option<MerchantKind>,
    page: &Cursor,
) -> Found<Vec<MerchantRow>> {
    let (after, limit) = (page.after.unwrap_or(i64::MIN), i64::from(page.limit));
    let read = |row: &Row| Ok(rows::merchant(row, 0)?.0);
    match (tenant, kind) {
        (Some(tenant), kind) => {
            let kind = kind.map(words::of_kind);
            many(from, Sql::MerchantsUnder, &[&after, &limit, &kind, &tenant.0], read).await
        }
        (None, Some(MerchantKind::Institution)) => many(from, Sql::Institutions, &[&after, &limit], read).await,
        (None, Some(MerchantKind::Merchant)) => many(from, Sql::MerchantsPlain, &[&after, &limit], read).await,
        (None, Some(MerchantKind::SubAccount)) => many(from, Sql::SubAccounts, &[&after, &limit], read).await,
        (None, None) => many(from, Sql::Merchants, &[&after, &limit], read).await,
    }
}

pub(super) async fn token(from: &Readers, digest: &[u8; 32]) -> Found<Option<TokenRow>> {
    one(from, Sql::Token, &[&digest.as_slice()], rows::token).await
}

pub(super) async fn token_by_id(from: &Readers, token_id: &str) -> Found<Option<TokenRow>> {
    one(from, Sql::TokenById, &[&token_id], rows::token).await
}

pub(super) async fn tokens(from: &Readers, page: &Cursor<String>) -> Found<Vec<TokenRow>> {
    let after = page.after.as_deref().unwrap_or("");
    many(from, Sql::Tokens, &[&after, &i64::from(page.limit)], rows::token).await
}

pub(super) async fn secret_uses(from: &Readers, of: ApplicationNo, since_minute: i64) -> Found<Vec<(String, i64)>> {
    many(from, Sql::SecretUses, &[&of.0, &since_minute], rows::uses).await
}

pub(super) async fn rule_head(
    from: &Readers,
    tenant: TenantNo,
    of: MerchantNo,
    as_of: Option<UnixMillis>,
) -> Found<Option<RuleHead>> {
    let read = |row: &Row| joined::rule_head(row, 2, Some(rows::Fields::new(row, "fee_rule_head", 1, 0).int()?));
    match as_of {
        None => one(from, Sql::RuleHead, &[&tenant.0, &of.0], read).await,
        Some(as_of) => one(from, Sql::RuleHeadBy, &[&tenant.0, &of.0, &as_of.0], read).await,
    }
}

pub(super) async fn rule_versions(
    from: &Readers,
    tenant: TenantNo,
    of: MerchantNo,
    page: &Cursor,
) -> Found<Vec<RuleVersion>> {
    let (before, limit) = (page.after.unwrap_or(i64::MAX), i64::from(page.limit));
    many(from, Sql::RuleVersions, &[&tenant.0, &of.0, &before, &limit], |row| {
        let (version, _) = rows::rule(row, 0)?;
        version.ok_or_else(|| rows::Fields::new(row, "fee_rule", 0, 0).corrupt())
    })
    .await
}

pub(super) async fn rule_page(
    from: &Readers,
    tenant: TenantNo,
    filter: &RuleFilter,
    now: UnixMillis,
    offset: u64,
    limit: u32,
) -> Found<RulePage> {
    let read = |page: &mut RulePageBuilder<'_>, row: &Row| {
        let mut fields = rows::Fields::new(row, "merchant", 1, 0);
        let (merchant_id, version_no) = (fields.text()?, fields.opt_int()?);
        let found = version_no.map(|no| joined::rule_head(row, 3, Some(no))).transpose()?;
        page.add(&merchant_id, found.as_ref());
        Ok(())
    };
    // An institution may have a hundred thousand sub-accounts: they are never in memory together.
    let walked = from.read(|session| async move {
        let mut page = RulePageBuilder::new(filter, now, offset, limit);
        let (all, of_one) = ([&tenant.0 as _], [&tenant.0 as _, &filter.sub_merchant_id as _]);
        let (sql, of): (_, Params<'_>) =
            if filter.sub_merchant_id.is_some() { (Sql::RulePageOfOne, &of_one) } else { (Sql::RulePage, &all) };
        let mut found = pin!(session.stream(sql, of).await?);
        while let Some(row) = poll_fn(|cx| found.as_mut().poll_next(cx)).await {
            if let Err(error) = read(&mut page, &row?) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(page.finish()))
    });
    Box::pin(walked).await?
}

pub(super) async fn convert_order(
    from: &Readers,
    tenant: TenantNo,
    of: MerchantNo,
    order: OrderId,
) -> Found<Option<ConvertOrder>> {
    one(from, Sql::ConvertOrder, &[&tenant.0, &order.get(), &of.0], |row| rows::convert_order(row, 0)).await
}

pub(super) async fn convert_order_owner(from: &Readers, order: OrderId) -> Found<Option<(MerchantRow, ConvertOrder)>> {
    let tenant = |row: &Row| rows::Fields::new(row, "order_directory", 1, 0).int();
    let Some(tenant) = one(from, Sql::ConvertOrderTenant, &[&order.get()], tenant).await? else { return Ok(None) };
    one(from, Sql::ConvertOrderOwner, &[&tenant, &order.get()], |row| {
        let (merchant, next) = rows::merchant(row, 0)?;
        Ok((merchant, rows::convert_order(row, next)?))
    })
    .await
}

pub(super) async fn owed(from: &Readers, lanes: LaneSet, page: &Cursor<ApplicationNo>) -> Found<Vec<OwedRow>> {
    let after = page.after.map_or(i64::MIN, |of| of.0);
    many(from, Sql::Owed, &[&numbers(lanes), &after, &i64::from(page.limit)], rows::owed).await
}

pub(super) async fn pending_of(from: &Readers, portion: &Portion) -> Found<Pending> {
    let (limit, known) = (i64::from(portion.limit), portion.known.iter().map(|event| event.0).collect::<Vec<i64>>());
    let (tenants, applications): (Vec<i64>, Vec<i64>) = portion.of.iter().map(|(tenant, of)| (tenant.0, of.0)).unzip();
    let found = from.rows(Sql::PendingOf, &[&tenants, &applications, &limit, &known]).await?;
    let mut pending = Pending { rows: Vec::with_capacity(found.len()), unreadable: Vec::new() };
    for row in &found {
        let mut f = rows::Fields::new(row, "delivery", rows::EVENT_COLUMNS, 1);
        let of = (TenantNo(f.int()?), ApplicationNo(f.int()?));
        pending.add(of, EventNo(f.int()?), rows::event(row));
    }
    Ok(pending)
}

pub(super) async fn open_before(from: &Readers, event: &EventRow) -> Found<Option<EventNo>> {
    let read = |row: &Row| rows::Fields::new(row, "event", 0, 0).int().map(EventNo);
    let walk = async |(start, end, most): (i64, i64, i64)| {
        let of: Params<'_> =
            &[&event.tenant.0, &event.biz_id, &start, &end, &event.application.0, &event.sequence, &most];
        one(from, Sql::OpenBefore, of, read).await
    };
    if earlier_event::may_walk_far(event) {
        let near = walk(earlier_event::nearest(event)).await?;
        if near.is_some() {
            return Ok(near);
        }
        let of: Params<'_> = &[&event.tenant.0, &event.application.0, &earlier_event::few_open(event)];
        if one(from, Sql::ManyOpen, of, |_| Ok(())).await?.is_none() {
            let of: Params<'_> = &[&event.tenant.0, &event.biz_id, &event.no.0, &event.application.0, &event.sequence];
            return one(from, Sql::OpenAmong, of, read).await;
        }
    }
    for range in earlier_event::before(event) {
        let found = walk(range).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub(super) async fn turning(
    from: &Readers,
    lanes: LaneSet,
    page: &Cursor<(TenantNo, ApplicationNo)>,
) -> Found<Vec<TurningRow>> {
    let (tenant, application) =
        page.after.map_or((i64::MIN, i64::MIN), |(tenant, application)| (tenant.0, application.0));
    let params: Params<'_> = &[&tenant, &application, &numbers(lanes), &i64::from(page.limit)];
    many(from, Sql::Turning, params, rows::turning).await
}

pub(super) async fn event(from: &Readers, event_id: SortedId) -> Found<Option<(EventRow, Vec<AttemptRow>)>> {
    let Some(event) = one(from, Sql::Event, &[&event_id.0.to_be_bytes().as_slice()], rows::event).await? else {
        return Ok(None);
    };
    let attempts = many(from, Sql::Attempts, &[&event.tenant.0, &event.no.0], rows::attempt).await?;
    Ok(Some((event, attempts)))
}

pub(super) async fn events_after(
    from: &Readers,
    tenant: TenantNo,
    of: ApplicationNo,
    after: i64,
    limit: u32,
) -> Found<Vec<EventRow>> {
    let most = i64::try_from(OWN_EVENTS_BYTES_MAX).unwrap_or(i64::MAX);
    many(from, Sql::EventsAfter, &[&tenant.0, &of.0, &after, &i64::from(limit), &most], rows::event).await
}

pub(super) async fn remembered(from: &Readers, scope: &str, key: &str) -> Found<Option<IdempotencyRow>> {
    one(from, Sql::Remembered, &[&scope, &key], rows::remembered).await
}

pub(super) async fn audit(from: &Readers, page: &Cursor<AuditKey>) -> Found<Vec<AuditRow>> {
    let (at, tenant, no) = words::of_audit_place(page.after);
    many(from, Sql::Audit, &[&at, &tenant, &no, &i64::from(page.limit)], rows::audit).await
}

pub(super) async fn audit_chain(from: &Readers, page: &Cursor<ChainPlace>) -> Found<Vec<ChainLine>> {
    let ChainPlace(tenant, no) = page.after.unwrap_or(ChainPlace(i64::MIN, i64::MIN));
    many(from, Sql::AuditChain, &[&tenant, &no, &i64::from(page.limit)], rows::chain_line).await
}

pub(super) async fn audit_heads(from: &Readers, page: &Cursor) -> Found<Vec<ChainHead>> {
    many(from, Sql::AuditHeads, &[&page.after.unwrap_or(i64::MIN), &i64::from(page.limit)], rows::chain_head).await
}
