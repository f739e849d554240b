//! Attempts and what went over the wire in them: how they are noted, read and forgotten; and how events are forgotten.

use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
use countersign_domain::time::UnixMillis;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::fault::fault;
use super::queries::{Found, many, one};
use super::rows::{self, Fields};
use super::statements::{Kept, Sql};
use crate::asker::Asker;
use crate::attempt_log::{
    self, AttemptBytes, BYTES_FORGOTTEN_MAX, BytesPlace, EVENTS_FORGOTTEN_MAX, Forgotten, OldBytes, OldEvents, OldRows,
    OldStretch, TooOld,
};
use crate::batch::Write;
use crate::conditions::is_too_old;
use crate::contract::{AttemptRow, Cursor, StoreError};

impl OldRows for SqliteStore {
    async fn old_bytes_of(
        &self,
        asker: Asker,
        tenant: TenantNo,
        begun_before: UnixMillis,
        page: Cursor<BytesPlace>,
    ) -> Result<OldStretch<BytesPlace>, StoreError> {
        self.readers.away(asker, move |conn| old_bytes_of(conn, tenant, begun_before, &page)).await
    }

    async fn old_events_of(
        &self,
        asker: Asker,
        of: (TenantNo, ApplicationNo),
        old: TooOld,
        page: Cursor,
    ) -> Result<OldStretch<i64>, StoreError> {
        self.readers.away(asker, move |conn| old_events_of(conn, of, old, &page)).await
    }
}

pub(super) fn insert_attempt(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    attempt: &AttemptRow,
    bytes: Option<&AttemptBytes>,
) -> rusqlite::Result<()> {
    let phases = &attempt.phases;
    kept.run(
        Sql::AttemptInsert,
        params![
            tenant.0,
            attempt.event.0,
            attempt.attempt,
            attempt.at.0,
            attempt.outcome.name(),
            attempt.http_status,
            attempt.duration_ms,
            attempt.address,
            attempt.detail,
            attempt.fence.0,
            phases.dns_us,
            phases.connect_us,
            phases.tls_us,
            phases.first_byte_us,
            phases.total_us,
            phases.reused
        ],
    )?;
    if let Some(bytes) = bytes {
        kept.run(
            Sql::BytesInsert,
            params![
                tenant.0,
                attempt.event.0,
                attempt.attempt,
                attempt.at.0,
                bytes.sent_head,
                bytes.answer_head,
                bytes.answer_body,
                bytes.answer_length,
                bytes.is_cut
            ],
        )?;
    }
    Ok(())
}

/// Either of the two writes that forget here; how many events.
pub(super) fn forget(kept: &mut Kept<'_>, write: &Write) -> rusqlite::Result<Forgotten> {
    if let Write::ForgetBytes { tenant, begun_before } = write {
        forget_bytes(kept, *tenant, *begun_before)?;
    }
    if let Write::ForgetEvents { tenant, application, old } = write {
        return forget_events(kept, *tenant, *application, *old);
    }
    Ok(Forgotten::NONE)
}

fn forget_bytes(kept: &mut Kept<'_>, tenant: TenantNo, begun_before: UnixMillis) -> rusqlite::Result<()> {
    let most = i64::try_from(BYTES_FORGOTTEN_MAX).unwrap_or(i64::MAX);
    kept.run(Sql::BytesForget, [tenant.0, begun_before.0, most])?;
    Ok(())
}

fn forget_events(
    kept: &mut Kept<'_>,
    tenant: TenantNo,
    application: ApplicationNo,
    TooOld { made_before, held_before }: TooOld,
) -> rusqlite::Result<Forgotten> {
    // One more than may go: whatever goes has another behind it.
    let looked_at = i64::try_from(EVENTS_FORGOTTEN_MAX).unwrap_or(i64::MAX).saturating_add(1);
    let of = [tenant.0, application.0, made_before.0, looked_at, held_before.0];
    let mut first: Vec<(i64, bool, Option<bool>)> = kept
        .get(Sql::EventsOldest)?
        .query_map(of, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    first.pop();
    let mut forgotten = Forgotten::NONE;
    for (event, _, is_held) in first.into_iter().take_while(|(_, goes, _)| *goes) {
        for part in [Sql::EventBytesDelete, Sql::EventAttemptsDelete, Sql::EventDeliveryDelete, Sql::EventDelete] {
            kept.run(part, [event])?;
        }
        forgotten += Forgotten { events: 1, held: usize::from(is_held == Some(true)) };
    }
    Ok(forgotten)
}

pub(super) fn attempt_bytes(
    conn: &Connection,
    (tenant, event): (TenantNo, EventNo),
    attempt: i64,
    at: UnixMillis,
) -> Found<Option<AttemptBytes>> {
    let sql = "SELECT event_no, sent_head, answer_head, answer_body, answer_length, is_cut FROM attempt_bytes
               WHERE tenant_no = ?1 AND at = ?2 AND event_no = ?3 AND attempt = ?4";
    one(conn, sql, params![tenant.0, at.0, event.0, attempt], rows::attempt_bytes)
}

pub(super) fn old_bytes(
    conn: &Connection,
    begun_before: UnixMillis,
    most: u32,
    page: &Cursor<TenantNo>,
) -> Found<Vec<OldBytes>> {
    let tenants = "SELECT m.merchant_no FROM merchant m WHERE m.tenant_no = m.merchant_no AND m.merchant_no > ?1
                   AND EXISTS (SELECT 1 FROM attempt_bytes b WHERE b.tenant_no = m.merchant_no AND b.at < ?2)
                   ORDER BY m.merchant_no LIMIT ?3";
    let after = page.after.map_or(i64::MIN, |tenant| tenant.0);
    let tenants = many(conn, tenants, params![after, begun_before.0, page.limit], |row| {
        Fields::new(row, "merchant", 0, 0).int()
    })?;
    let count = "SELECT count(*), coalesce(sum(size), 0) FROM (SELECT coalesce(octet_length(sent_head), 0)
                 + coalesce(octet_length(answer_head), 0) + coalesce(octet_length(answer_body), 0) AS size
                 FROM attempt_bytes WHERE tenant_no = ?1 AND at < ?2 LIMIT ?3)";
    let of = |tenant: i64| {
        let found = one(conn, count, params![tenant, begun_before.0, most], |row| {
            let mut f = Fields::new(row, "attempt_bytes", 0, 0);
            Ok((f.int()?, f.int()?))
        })?;
        let (rows, bytes) = found.unwrap_or_default();
        Ok(OldBytes { tenant: TenantNo(tenant), rows, bytes })
    };
    tenants.into_iter().map(of).collect()
}

/// A page of the applications that have events. By the number alone, which is the key: of each application there is one in the deployment.
const WITH_EVENTS: &str =
    "SELECT tenant_no, application_no FROM event_counter WHERE application_no > ?1 ORDER BY application_no LIMIT ?2";

pub(super) fn old_events(
    conn: &Connection,
    too_old: TooOld,
    most: u32,
    page: &Cursor<(TenantNo, ApplicationNo)>,
) -> Found<Vec<OldEvents>> {
    let after = page.after.map_or(i64::MIN, |(_, application)| application.0);
    let applications = many(conn, WITH_EVENTS, [after, i64::from(page.limit)], |row| {
        let mut f = Fields::new(row, "event_counter", 0, 1);
        Ok((TenantNo(f.int()?), ApplicationNo(f.int()?)))
    })?;
    let old = |of: (TenantNo, ApplicationNo)| {
        let old = old_events_of(conn, of, too_old, &Cursor { after: None, limit: most })?;
        let (tenant, application) = of;
        Ok(OldEvents {
            tenant,
            application,
            events: old.rows,
            held: old.held,
            attempts: old.attempts,
            bytes: old.bytes,
        })
    };
    applications.into_iter().map(old).collect()
}

/// The first events of an application, and whether each may go. Read row by row: what is behind the first that stays is not looked at.
const FIRST_EVENTS: &str = concat!(
    "SELECT e.seq, ",
    is_too_old!("?3", "?6"),
    ", d.state = 'held', d.attempts, octet_length(e.body) + octet_length(e.data) FROM event e LEFT JOIN delivery d ON d.event_no = e.event_no
     WHERE e.application_no = ?2 AND e.tenant_no = ?1 AND e.seq > ?4 ORDER BY e.seq LIMIT ?5"
);

fn old_events_of(
    conn: &Connection,
    (tenant, application): (TenantNo, ApplicationNo),
    TooOld { made_before, held_before }: TooOld,
    page: &Cursor,
) -> Found<OldStretch<i64>> {
    let (after, looked_at) = (page.after.unwrap_or(i64::MIN), i64::from(page.limit).saturating_add(1));
    let of = [tenant.0, application.0, made_before.0, after, looked_at, held_before.0];
    let mut statement = conn.prepare_cached(FIRST_EVENTS).map_err(fault)?;
    let mut rows = statement.query(of).map_err(fault)?;
    let mut old = OldStretch { rows: 0, held: 0, attempts: 0, bytes: 0, last: None };
    let mut before: Option<(i64, bool, i64, i64)> = None;
    while let Some(row) = rows.next().map_err(fault)? {
        // Whatever goes has another behind it.
        if let Some((seq, is_held, attempts, bytes)) = before.take() {
            old.held += i64::from(is_held);
            (old.rows, old.attempts, old.bytes) = (old.rows + 1, old.attempts + attempts, old.bytes + bytes);
            old.last = Some(seq);
        }
        let mut f = Fields::new(row, "event", 0, 0);
        let (seq, goes) = (f.int()?, f.flag()?);
        if !goes {
            break;
        }
        before = Some((seq, f.flag()?, f.int()?, f.int()?));
    }
    Ok(old)
}

fn old_bytes_of(
    conn: &Connection,
    tenant: TenantNo,
    begun_before: UnixMillis,
    page: &Cursor<BytesPlace>,
) -> Found<OldStretch<BytesPlace>> {
    let sql = "SELECT at, event_no, attempt, coalesce(octet_length(sent_head), 0) + coalesce(octet_length(answer_head), 0)
               + coalesce(octet_length(answer_body), 0) FROM attempt_bytes
               WHERE tenant_no = ?1 AND (at, event_no, attempt) > (?2, ?3, ?4) AND at < ?5 ORDER BY at, event_no, attempt LIMIT ?6";
    let BytesPlace { at, event, attempt } = page.after.unwrap_or(BytesPlace::BEGIN);
    let of = params![tenant.0, at.0, event.0, attempt, begun_before.0, page.limit];
    Ok(attempt_log::stretch_of_bytes(&many(conn, sql, of, |row| attempt_log::sized(row))?))
}

#[cfg(test)]
pub(super) mod tests {
    use rusqlite::StatementStatus;

    use super::super::{open::connect, schema};
    use super::*;

    const fn too_old(before: i64) -> TooOld {
        TooOld { made_before: UnixMillis(before), held_before: UnixMillis(before) }
    }

    /// An application with 5,000 events, all delivered, a millisecond apart.
    pub(in super::super) const MANY: &str = "
        INSERT INTO merchant (tenant_no, merchant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
          VALUES (1, 1, 'm', 'merchant', 'm', '0', 0, 1, 1, 1, 1);
        INSERT INTO application (tenant_no, application_no, client_id, merchant_no, name, enabled, callback_enabled, callback_encoding,
          callback_vocabulary, revision, created_at) VALUES (1, 1, 'app', 1, 'a', 1, 1, 'hex', 'standard', 1, 1);
        WITH RECURSIVE o (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM o WHERE n < 5000)
        INSERT INTO event (tenant_no, event_no, application_no, client_id, event_id, seq, sequence, biz_type, biz_id, biz_status, data, body,
          created_at) SELECT 1, n, 1, 'app', CAST(format('%016d', n) AS BLOB), n, n, 'T', 'b', 'S', '{}', x'00', n FROM o;
        INSERT INTO delivery (tenant_no, event_no, application_no, state, attempts) SELECT 1, event_no, 1, 'delivered', 2 FROM event;";

    #[test]
    fn a_look_at_what_is_old_ends_at_the_first_event_that_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut conn = connect(&dir.path().join("db"), 1000).expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        conn.execute_batch(MANY).expect("fits");
        // Of each look the steps of SQLite's machine, which take no time of their own.
        let look = |before, most| {
            let page = Cursor { after: None, limit: most };
            let old = old_events_of(&conn, (TenantNo(1), ApplicationNo(1)), too_old(before), &page).expect("reads");
            let steps = conn.prepare_cached(FIRST_EVENTS).expect("is kept").reset_status(StatementStatus::VmStep);
            (old.rows, old.attempts, old.bytes, steps)
        };
        let (events, .., begin) = look(1, 1_000_000);
        assert_eq!(events, 0);
        assert!(begin < 100, "the first event tells: {begin} steps");
        let (events, attempts, bytes, some) = look(11, 1_000_000);
        assert_eq!((events, attempts, bytes), (10, 20, 30));
        assert!(some < 600, "eleven events are looked at: {some} steps");
        let (events, .., all) = look(9_999, 1_000_000);
        assert_eq!(events, 4999, "the last one never goes");
        assert!(all > 50_000, "steps are counted: {all}");
        assert_eq!(look(9_999, 7).0, 7);
    }

    #[test]
    fn a_page_of_the_applications_that_have_events_costs_the_same_however_many_there_are() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        let more = "WITH RECURSIVE o (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM o WHERE n < ?2)
                    INSERT INTO event_counter (tenant_no, application_no, seq) SELECT n % 7, n, 1 FROM o";
        let steps = || {
            let page = Cursor { after: Some((TenantNo(50 % 7), ApplicationNo(50))), limit: 3 };
            let found = old_events(&conn, too_old(1), 1, &page).expect("reads");
            assert_eq!(found.iter().map(|old| old.application.0).collect::<Vec<_>>(), [51, 52, 53]);
            conn.prepare_cached(WITH_EVENTS).expect("is kept").reset_status(StatementStatus::VmStep)
        };
        conn.execute(more, [1, 100]).expect("fits");
        let few = steps();
        conn.execute(more, [101, 9000]).expect("fits");
        assert_eq!(steps(), few);
    }
}
