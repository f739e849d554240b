//! Public ids.

use std::collections::BTreeMap;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use rusqlite::params;

use super::SqliteStore;
use super::queries::{Found, many, one};
use crate::asker::Asker;
use crate::contract::Cursor;
use crate::public_ids::{PublicIds, client_id, numbered_tenant_id};

const TENANT: &str = "SELECT merchant_no, merchant_id FROM merchant WHERE merchant_no = ?1 AND tenant_no = ?1";

impl PublicIds for SqliteStore {
    async fn client_ids(&self, page: Cursor) -> Found<Vec<(ApplicationNo, String)>> {
        let sql = "SELECT application_no, client_id FROM application WHERE application_no > ?1 ORDER BY application_no LIMIT ?2";
        let read =
            move |conn: &_| many(conn, sql, params![page.after.unwrap_or(i64::MIN), page.limit], |row| client_id(row));
        self.readers.away(Asker::Server, read).await
    }

    async fn tenant_ids(&self, tenants: Vec<TenantNo>) -> Found<BTreeMap<TenantNo, String>> {
        let read = move |conn: &_| {
            let found = tenants.iter().map(|tenant| one(conn, TENANT, [tenant.0], |row| numbered_tenant_id(row)));
            found.filter_map(Result::transpose).collect()
        };
        self.readers.away(Asker::Operator, read).await
    }

    async fn tenant_id(&self, tenant: TenantNo) -> Found<Option<String>> {
        let read = |conn: &_| one(conn, TENANT, [tenant.0], |row| numbered_tenant_id(row));
        Ok(self.readers.here(read)?.map(|(_, id)| id))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::SqliteOptions;
    use super::*;

    #[tokio::test]
    async fn the_id_of_one_tenant_waits_for_no_list() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::new([1; 16], "boot")).expect("opens");
        let lists = store.readers.hold_lists();
        let mut context = Context::from_waker(Waker::noop());
        let (mut one, mut many) = (pin!(store.tenant_id(TenantNo(1))), pin!(store.tenant_ids(vec![TenantNo(1)])));
        assert!(matches!(one.as_mut().poll(&mut context), Poll::Ready(Ok(None))));
        assert!(many.as_mut().poll(&mut context).is_pending(), "it is a list");
        drop(lists);
    }
}
