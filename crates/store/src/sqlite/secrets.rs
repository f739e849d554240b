//! Reads of Payment API Secrets.

use countersign_domain::ids::ApplicationNo;
use rusqlite::{Connection, params};

use super::queries::many;
use super::rows;
use crate::contract::{SealedSecret, SecretRow, StoreError};

type Found<T> = Result<T, StoreError>;

const IN_FORCE: &str = "SELECT application_no, secret_id, key_id, sealed, fingerprint, last4, signs_callbacks, created_at, not_after, \
    revoked_at, last_used_at FROM secret WHERE application_no = ?1 AND revoked_at IS NULL ORDER BY created_at DESC, secret_id DESC";

/// Those of an application that are not revoked, newest first.
pub(super) fn of(conn: &Connection, of: ApplicationNo) -> Found<Vec<SecretRow>> {
    many(conn, IN_FORCE, [of.0], rows::secret)
}

pub(super) fn not_under(conn: &Connection, key_id: &str, after: Option<&str>, limit: u32) -> Found<Vec<SealedSecret>> {
    let sql = "SELECT s.application_no, s.secret_id, s.key_id, s.sealed, s.fingerprint, s.last4, s.signs_callbacks, s.created_at,
               s.not_after, s.revoked_at, s.last_used_at, a.client_id FROM secret s JOIN application a ON a.application_no = s.application_no
               WHERE s.key_id <> ?1 AND s.secret_id > ?2 ORDER BY s.secret_id LIMIT ?3";
    many(conn, sql, params![key_id, after.unwrap_or_default(), limit], rows::sealed)
}

pub(super) fn uses(conn: &Connection, of: ApplicationNo, since_minute: i64) -> Found<Vec<(String, i64)>> {
    let sql = "SELECT u.secret_id, sum(u.uses) FROM secret s JOIN secret_use u ON u.secret_id = s.secret_id
               WHERE s.application_no = ?1 AND u.minute >= ?2 GROUP BY u.secret_id ORDER BY u.secret_id";
    many(conn, sql, [of.0, since_minute], rows::uses)
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    #[test]
    fn no_revoked_secret_is_read_past() {
        let mut conn = Connection::open_in_memory().expect("opens");
        schema::migrate(&mut conn).expect("migrates");
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {IN_FORCE}")).expect("prepares");
        let lines = plan.query_map([1], |row| row.get(3)).expect("reads");
        let lines: Vec<String> = lines.map(|line| line.expect("reads")).collect();
        assert_eq!(lines, ["SEARCH secret USING INDEX secret_in_force (application_no=?)"]);
    }
}
