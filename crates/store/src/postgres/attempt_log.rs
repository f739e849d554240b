//! What went over the wire in attempts: how it is read and forgotten; and how events are forgotten.

use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::time::UnixMillis;

use super::PostgresStore;
use super::alone::Stop;
use super::queries::{Found, many, one};
use super::readers::Readers;
use super::rows::{self, Fields};
use super::session::{Params, Session};
use super::statements::Sql;
use crate::asker::Asker;
use crate::attempt_log::{
    self, AttemptBytes, BYTES_FORGOTTEN_MAX, BytesPlace, EVENTS_FORGOTTEN_MAX, Forgotten, OldBytes, OldEvents, OldRows,
    OldStretch, TooOld,
};
use crate::batch::Write;
use crate::contract::{Cursor, StoreError};

impl OldRows for PostgresStore {
    async fn old_bytes_of(
        &self,
        asker: Asker,
        tenant: TenantNo,
        begun_before: UnixMillis,
        page: Cursor<BytesPlace>,
    ) -> Result<OldStretch<BytesPlace>, StoreError> {
        let (BytesPlace { at, event, attempt }, limit) =
            (page.after.unwrap_or(BytesPlace::BEGIN), i64::from(page.limit));
        let of: Params<'_> = &[&tenant.0, &at.0, &event.0, &attempt, &begun_before.0, &limit];
        let sized = many(self.lists(asker), Sql::OldBytesOf, of, attempt_log::sized).await?;
        Ok(attempt_log::stretch_of_bytes(&sized))
    }

    async fn old_events_of(
        &self,
        asker: Asker,
        (tenant, application): (TenantNo, ApplicationNo),
        TooOld { made_before, held_before }: TooOld,
        page: Cursor,
    ) -> Result<OldStretch<i64>, StoreError> {
        let (after, looked_at) = (page.after.unwrap_or(i64::MIN), i64::from(page.limit).saturating_add(1));
        let of: Params<'_> = &[&made_before.0, &looked_at, &tenant.0, &application.0, &after, &held_before.0];
        let found = one(self.lists(asker), Sql::OldEventsOf, of, attempt_log::stretch_of_events).await?;
        Ok(found.unwrap_or(OldStretch { rows: 0, held: 0, attempts: 0, bytes: 0, last: None }))
    }
}

pub(super) async fn attempt_bytes(
    from: &Readers,
    (tenant, event): (TenantNo, EventNo),
    attempt: i64,
    at: UnixMillis,
) -> Found<Option<AttemptBytes>> {
    one(from, Sql::AttemptBytes, &[&tenant.0, &at.0, &event.0, &attempt], rows::attempt_bytes).await
}

pub(super) async fn old_bytes(
    from: &Readers,
    begun_before: UnixMillis,
    most: u32,
    page: &Cursor<TenantNo>,
) -> Found<Vec<OldBytes>> {
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let (mut after, mut found) = (page.after.map_or(i64::MIN, |tenant| tenant.0), Vec::new());
    // However many tenants have nothing old: one statement looks at few of them, and ends within its time.
    while found.len() < limit {
        let params: Params<'_> = &[&begun_before.0, &i64::from(most), &after, &i64::from(page.limit)];
        let looked_at = many(from, Sql::OldBytes, params, rows::old_bytes).await?;
        let Some(last) = looked_at.last() else { break };
        after = last.tenant.0;
        found.extend(looked_at.into_iter().filter(|old| old.rows > 0));
    }
    found.truncate(limit);
    Ok(found)
}

pub(super) async fn old_events(
    from: &Readers,
    TooOld { made_before, held_before }: TooOld,
    most: u32,
    page: &Cursor<(TenantNo, ApplicationNo)>,
) -> Found<Vec<OldEvents>> {
    let (tenant, application) = page.after.map_or((i64::MIN, i64::MIN), |(tenant, of)| (tenant.0, of.0));
    let looked_at = i64::from(most).saturating_add(1);
    let limit = i64::from(page.limit);
    let params: Params<'_> = &[&made_before.0, &looked_at, &tenant, &application, &limit, &held_before.0];
    many(from, Sql::OldEvents, params, rows::old_events).await
}

/// Either of the two writes that forget here; how many events.
pub(super) async fn forget(on: &Session, write: &Write) -> Result<Forgotten, Stop> {
    if let Write::ForgetBytes { tenant, begun_before } = write {
        forget_bytes(on, *tenant, *begun_before).await?;
    }
    if let Write::ForgetEvents { tenant, application, old } = write {
        return forget_events(on, *tenant, *application, *old).await;
    }
    Ok(Forgotten::NONE)
}

/// What others forget at this moment is left to them.
async fn forget_bytes(on: &Session, tenant: TenantNo, begun_before: UnixMillis) -> Result<(), Stop> {
    let most = i64::try_from(BYTES_FORGOTTEN_MAX).unwrap_or(i64::MAX);
    on.run(Sql::BytesForget, &[&tenant.0, &begun_before.0, &most]).await?;
    Ok(())
}

/// All that may go is locked first, and goes only if all of it still is as it was seen: what is left of an application's events has no gap,
/// also where two nodes forget at once and one of them is broken off.
async fn forget_events(
    on: &Session,
    tenant: TenantNo,
    application: ApplicationNo,
    old: TooOld,
) -> Result<Forgotten, Stop> {
    let events = may_go(on, tenant, application, old).await?;
    if events.is_empty() {
        return Ok(Forgotten::NONE);
    }
    let still = on.run(Sql::DeliveriesForgetLock, &[&tenant.0, &events]).await?;
    if still.len() != events.len() {
        return Ok(Forgotten::NONE);
    }
    // While it waited, what was held may have become what is about to go out, and a redelivery may have begun that has yet to come to them. From here to
    // the commit nobody lets the application's deliveries go out, and no redelivery begins. A 410 disables an application and then holds its deliveries,
    // in the other order; but only under the revision that its attempt began under, and under that one nothing of it is held.
    on.run(Sql::ApplicationsGuard, &[&vec![application.0]]).await?;
    on.run(Sql::RedeliveryTurn, &[&application.0]).await?;
    if !may_go(on, tenant, application, old).await?.starts_with(&events) {
        return Ok(Forgotten::NONE);
    }
    for part in [Sql::EventsBytesDelete, Sql::EventsAttemptsDelete, Sql::EventsDeliveriesDelete, Sql::EventsDelete] {
        on.run(part, &[&tenant.0, &events]).await?;
    }
    let held = |row: &tokio_postgres::Row| Fields::new(row, "delivery", 1, 0).flag().map(usize::from);
    let held = still.iter().map(held).sum::<Found<usize>>()?;
    Ok(Forgotten { events: events.len(), held })
}

/// The first events of an application that are too old, and that no redelivery awaits.
async fn may_go(
    on: &Session,
    tenant: TenantNo,
    application: ApplicationNo,
    TooOld { made_before, held_before }: TooOld,
) -> Result<Vec<i64>, Stop> {
    // One more than may go: whatever goes has another behind it.
    let looked_at = i64::try_from(EVENTS_FORGOTTEN_MAX).unwrap_or(i64::MAX).saturating_add(1);
    let of: Params<'_> = &[&tenant.0, &application.0, &made_before.0, &looked_at, &held_before.0];
    let found = on.run(Sql::EventsOldest, of).await?;
    let read = |row: &tokio_postgres::Row| {
        let mut f = Fields::new(row, "event", 0, 0);
        Ok((f.int()?, f.flag()?))
    };
    let mut first = found.iter().map(read).collect::<Found<Vec<(i64, bool)>>>()?;
    first.pop();
    Ok(first.into_iter().take_while(|(_, goes)| *goes).map(|(event, _)| event).collect())
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::super::event_texts::{MANY, OLD, OLD_OF};
    use super::super::tenancy::plan_tests::{empty, lines};

    #[tokio::test]
    async fn a_look_at_what_is_old_ends_at_the_first_event_of_each_application_that_stays() {
        let (_database, session) = empty().await;
        let client = session.client();
        let looks = [("old", OLD, "1000001, 0, 0, 9"), ("old_of", OLD_OF, "1000001, 1, 1, 0")];
        for (name, text, of) in looks {
            client.batch_execute(&format!("PREPARE {name} AS {text}; EXECUTE {name}(1, {of}, 1)")).await.expect("runs");
        }
        for step in [MANY, "ANALYZE event, delivery, event_counter"] {
            client.batch_execute(step).await.expect("is done");
            // Written a millisecond apart, of three applications in turns.
            for ((name, _, of), created_before, looked_at) in
                looks.iter().flat_map(|look| [(look, 0, 1), (look, 31, 11)])
            {
                let asked = format!(
                    "EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE {name}({created_before}, {of}, {created_before})"
                );
                let plan = lines(client, &asked).await;
                let rows = |line: &String| {
                    let (_, rows) = line.split_once(" on event e")?.1.split_once("actual rows=")?;
                    rows.split(' ').next()?.parse::<u32>().ok()
                };
                let looked: Vec<u32> = plan.iter().filter_map(rows).collect();
                assert!(!looked.is_empty() && looked.iter().all(|rows| *rows <= looked_at), "{plan:#?}");
                assert!(
                    !plan.iter().any(|line| line.contains("Sort") || line.contains("Seq Scan on event")),
                    "{plan:#?}"
                );
            }
        }
    }
}
