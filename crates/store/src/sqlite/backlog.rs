//! What waits, and what the dead ones died of. The planner takes the indexes of what is dead only where it is told to.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::lanes::LaneSet;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::queries::{Found, many, one};
use crate::asker::Asker;
use crate::backlog::{self, Backlog, Backlogs, DeadRow, NodeBacklog, WithDead, dead_columns};
use crate::contract::{Cursor, StoreError};

impl Backlogs for SqliteStore {
    async fn backlog(&self, tenant: TenantNo, of: ApplicationNo, most: u32) -> Result<Backlog, StoreError> {
        self.readers.away(Asker::Operator, move |conn| count(conn, tenant, of, most)).await
    }

    async fn dead(&self, of: Option<(TenantNo, ApplicationNo)>, page: Cursor) -> Result<Vec<DeadRow>, StoreError> {
        self.readers.away(Asker::Operator, move |conn| dead(conn, of, &page)).await
    }

    async fn with_dead(
        &self,
        after: Option<(TenantNo, ApplicationNo)>,
        limit: u32,
    ) -> Result<Vec<WithDead>, StoreError> {
        self.readers.away(Asker::Operator, move |conn| with_dead(conn, after, limit)).await
    }

    async fn place_of(&self, client_id: &str) -> Result<Option<(TenantNo, ApplicationNo)>, StoreError> {
        let sql = "SELECT tenant_no, application_no FROM application WHERE client_id = ?1";
        self.readers.here(|conn| one(conn, sql, [client_id], |row| backlog::place(row)))
    }

    async fn waiting(&self, _: LaneSet, most: u32) -> Result<NodeBacklog, StoreError> {
        self.readers.away(Asker::Server, move |conn| waiting(conn, most)).await
    }
}

/// A walk from one application to the next, however much of each is dead.
fn with_dead(conn: &Connection, after: Option<(TenantNo, ApplicationNo)>, limit: u32) -> Found<Vec<WithDead>> {
    let sql = "WITH RECURSIVE a (no) AS (
                 SELECT (SELECT d.application_no FROM delivery d INDEXED BY delivery_dead
                         WHERE d.state = 'dead' AND d.application_no > ?1 ORDER BY d.application_no LIMIT 1)
                 UNION ALL
                 SELECT (SELECT d.application_no FROM delivery d INDEXED BY delivery_dead
                         WHERE d.state = 'dead' AND d.application_no > a.no ORDER BY d.application_no LIMIT 1)
                 FROM a WHERE a.no IS NOT NULL)
               SELECT p.tenant_no, p.application_no, p.client_id FROM a CROSS JOIN application p ON p.application_no = a.no LIMIT ?2";
    let after = after.map_or(i64::MIN, |(_, application)| application.0);
    many(conn, sql, params![after, limit], |row| backlog::with_dead(row))
}

/// Each index is walked once and up to the limit; nothing is kept of it.
fn waiting(conn: &Connection, most: u32) -> Found<NodeBacklog> {
    let sql = "SELECT p.count, (SELECT e.created_at FROM event e WHERE e.event_no = p.oldest), d.count
               FROM (SELECT count(*) AS count, min(event_no) AS oldest FROM (SELECT event_no FROM delivery INDEXED BY delivery_next
                     WHERE state = 'pending' LIMIT ?1)) p,
                    (SELECT count(*) AS count FROM (SELECT 1 FROM delivery INDEXED BY delivery_dead_by_no WHERE state = 'dead' LIMIT ?1)) d";
    Ok(one(conn, sql, params![most], |row| backlog::read_waiting(row))?.unwrap_or_default())
}

fn count(conn: &Connection, tenant: TenantNo, of: ApplicationNo, most: u32) -> Found<Backlog> {
    let sql =
        "WITH open AS MATERIALIZED (SELECT event_no FROM delivery INDEXED BY delivery_held WHERE application_no = ?2
               AND state = 'held' AND tenant_no = ?1 UNION ALL SELECT event_no FROM delivery INDEXED BY delivery_next
               WHERE application_no = ?2 AND state = 'pending' AND tenant_no = ?1 LIMIT ?3)
               SELECT (SELECT count(*) FROM open),
               (SELECT e.created_at FROM event e WHERE e.event_no = (SELECT min(event_no) FROM open)),
               (SELECT count(*) FROM (SELECT 1 FROM delivery INDEXED BY delivery_dead WHERE application_no = ?2
                AND state = 'dead' AND tenant_no = ?1 LIMIT ?3))";
    Ok(one(conn, sql, params![tenant.0, of.0, most], |row| backlog::read(row))?.unwrap_or_default())
}

macro_rules! last_attempts {
    () => {
        " CROSS JOIN event e ON e.event_no = d.event_no CROSS JOIN attempt a ON a.event_no = d.event_no AND a.attempt = d.attempts "
    };
}

fn dead(conn: &Connection, of: Option<(TenantNo, ApplicationNo)>, page: &Cursor) -> Found<Vec<DeadRow>> {
    let before = page.after.unwrap_or(i64::MAX);
    let Some((tenant, application)) = of else {
        let sql = concat!(
            "SELECT ",
            dead_columns!(),
            " FROM delivery d INDEXED BY delivery_dead_by_no",
            last_attempts!(),
            "WHERE d.state = 'dead' AND d.event_no < ?1 ORDER BY d.event_no DESC LIMIT ?2"
        );
        return many(conn, sql, params![before, page.limit], |row| backlog::dead(row));
    };
    let sql = concat!(
        "SELECT ",
        dead_columns!(),
        " FROM delivery d INDEXED BY delivery_dead",
        last_attempts!(),
        "WHERE d.state = 'dead' AND d.application_no = ?2 AND d.tenant_no = ?1 AND d.event_no < ?3
         ORDER BY d.event_no DESC LIMIT ?4"
    );
    many(conn, sql, params![tenant.0, application.0, before, page.limit], |row| backlog::dead(row))
}
