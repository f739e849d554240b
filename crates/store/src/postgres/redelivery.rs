//! Redeliveries of many events: what becomes of them, and how their events are found.

use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};

use tokio_postgres::Row;

use super::alone::{Stop, guard};
use super::nodes::numbers;
use super::queries::{Found, many, one};
use super::readers::Readers;
use super::rows::Fields;
use super::session::{Params, Session};
use super::statements::Sql;
use crate::backlog;
use crate::batch::{Conflict, Key};
use crate::redelivery::{
    Counted, Fared, Redeliveries, RedeliveryRow, RedeliveryWrite, Span, Walked, read, read_counted, read_fared,
};

/// Does a write, and judges its guard by what it finds.
pub(super) async fn write(on: &Session, write: &RedeliveryWrite) -> Result<(), Stop> {
    let (TenantNo(tenant), of @ ApplicationNo(application)) = write.of();
    let moved = Conflict::Moved(Key::Redelivery(of));
    match write {
        RedeliveryWrite::Start(row) => start(on, row).await,
        RedeliveryWrite::Advance { id, was, from, to, events, due_at, ended_at, .. } => {
            let id = id.0.to_be_bytes();
            let events: Vec<i64> = events.iter().map(|event| event.0).collect();
            let mut done = 0;
            if !events.is_empty() {
                // In the order of their keys, as everywhere.
                on.run(Sql::DeliveriesLock, &[&vec![tenant; events.len()], &events]).await?;
                let again: Params<'_> = &[&tenant, &events, &was.name(), &due_at.0, &application, &id.as_slice()];
                done = i64::try_from(on.run(Sql::DeliveriesAgain, again).await?.len()).unwrap_or(i64::MAX);
            }
            let ended_at = ended_at.map(|at| at.0);
            let place: Params<'_> = &[&tenant, &id.as_slice(), &application, from, to, &done, &ended_at];
            guard(&on.run(Sql::RedeliveryMove, place).await?, moved)
        }
        RedeliveryWrite::Stop { id, from, at, .. } => {
            let id = id.0.to_be_bytes();
            let of: Params<'_> = &[&tenant, &id.as_slice(), &application, &at.0, from];
            guard(&on.run(Sql::RedeliveryStop, of).await?, moved)
        }
    }
}

async fn start(on: &Session, row: &RedeliveryRow) -> Result<(), Stop> {
    let (sought, id) = (&row.sought, row.id.0.to_be_bytes());
    let (outcome, http_status) = sought.died_of.as_kept();
    let params: Params<'_> = &[
        &sought.tenant.0,
        &id.as_slice(),
        &sought.application.0,
        &row.client_id,
        &sought.state.name(),
        &sought.biz_id,
        &sought.from.map(|from| from.0),
        &sought.to.map(|to| to.0),
        &row.rate_per_s,
        &row.cursor_seq,
        &row.count,
        &row.is_at_least,
        &row.created_at.0,
        &outcome,
        &http_status,
    ];
    // Behind whoever forgets: what that one deletes now, this redelivery never comes to.
    on.run(Sql::RedeliveryTurn, &[&sought.application.0]).await?;
    guard(&on.run(Sql::RedeliveryInsert, params).await?, Conflict::Taken(Key::Redelivery(sought.application)))
}

/// What a statement about the events of a stretch finds.
async fn of_span<T>(from: &Readers, sql: Sql, span: &Span, read: impl Fn(&Row) -> Found<T>) -> Found<Vec<T>> {
    let (of, (begin, end)) = (&span.of, span.of.times());
    let (tenant, application) = (of.tenant.0, of.application.0);
    let (most, state, (outcome, http_status)) = (i64::from(span.most), of.state.name(), of.died_of.as_kept());
    let (after, through, biz_id) = (&span.after, &span.through, &of.biz_id);
    let params: Params<'_> =
        &[&tenant, &application, after, through, &most, &state, biz_id, &begin, &end, &outcome, &http_status];
    many(from, sql, params, read).await
}

pub(super) async fn sought(from: &Readers, span: &Span) -> Found<Vec<(EventNo, i64)>> {
    of_span(from, Sql::Sought, span, |row| {
        let mut f = Fields::new(row, "event", 0, 0);
        Ok((EventNo(f.int()?), f.int()?))
    })
    .await
}

pub(super) async fn count(from: &Readers, span: &Span) -> Found<Counted> {
    let found = of_span(from, Sql::SoughtCount, span, read_counted);
    Ok(found.await?.pop().unwrap_or_default())
}

pub(super) async fn fared(from: &Readers, walked: &Walked) -> Found<Fared> {
    let (id, Walked { tenant, application, after, through, .. }) = (walked.id.0.to_be_bytes(), walked);
    let of: Params<'_> = &[&tenant.0, &application.0, after, through, &i64::from(walked.most), &id.as_slice()];
    Ok(one(from, Sql::Fared, of, read_fared).await?.unwrap_or_default())
}

pub(super) async fn list(from: &Readers, which: &Redeliveries, limit: u32) -> Found<Vec<RedeliveryRow>> {
    let limit = i64::from(limit);
    match which {
        Redeliveries::One(id) => {
            let id = id.0.to_be_bytes();
            many(from, Sql::Redelivery, &[&id.as_slice(), &limit], read).await
        }
        Redeliveries::All { client_id, after } => {
            let before = after.map_or(u128::MAX, |after| after.0).to_be_bytes();
            match client_id {
                None => many(from, Sql::Redeliveries, &[&before.as_slice(), &limit], read).await,
                Some(client_id) => {
                    let place = one(from, Sql::ApplicationPlace, &[client_id], backlog::place).await?;
                    let Some((tenant, _)) = place else { return Ok(Vec::new()) };
                    many(from, Sql::RedeliveriesOf, &[&tenant.0, &before.as_slice(), client_id, &limit], read).await
                }
            }
        }
        Redeliveries::Running { lanes, after } => {
            let (TenantNo(tenant), ApplicationNo(of)) = after.unwrap_or((TenantNo(i64::MIN), ApplicationNo(i64::MIN)));
            many(from, Sql::RedeliveriesRunning, &[&tenant, &of, &numbers(*lanes), &limit], read).await
        }
    }
}
