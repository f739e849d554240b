//! Whatever is changed in the audit log behind our back is found, and its place is named.

use countersign_store::Store;
use countersign_store::chain::{ChainHead, ChainKey, ChainWalk};
use countersign_store::contract::{Cursor, StoreError};
use rusqlite::Connection;
use tokio_postgres::Client;

use crate::fixtures::{Fresh, OTHER_TENANT, TENANT, audit_of, commit, furnish, postgres, sqlite};

const LINES: i64 = 12;
const TEXTS: [&str; 7] = ["actor", "source", "action", "subject", "before", "after", "request_id"];

/// A way around the store.
enum Behind {
    File(Connection),
    Database(Client),
}

impl Behind {
    async fn run(&self, sql: &str) {
        match self {
            Self::File(conn) => conn.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}")),
            Self::Database(client) => client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")),
        }
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = digits.concat();
        match self {
            Self::File(_) => format!("x'{digits}'"),
            Self::Database(_) => format!("'\\x{digits}'::bytea"),
        }
    }

    /// The whole log as it was.
    async fn put_back(&self) {
        self.run(
            "DELETE FROM audit; INSERT INTO audit SELECT * FROM audit_kept;
                  DELETE FROM audit_head; INSERT INTO audit_head SELECT * FROM audit_head_kept;",
        )
        .await;
    }
}

/// Always the same numbers, so that a failure comes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn key() -> ChainKey {
    ChainKey::new(&[42; 32])
}

/// What a walk over the whole log says; none: it holds.
async fn found(store: &impl Store, kept: &[ChainHead]) -> Option<String> {
    let heads = store.audit_heads(Cursor { after: None, limit: 100 }).await.expect("reads");
    let lines = match store.audit_chain(Cursor { after: None, limit: 1000 }).await {
        Ok(lines) => lines,
        Err(StoreError::Corrupt { row, .. }) => return Some(format!("corrupt {row}")),
        Err(error) => panic!("{error}"),
    };
    let mut walk = ChainWalk::new(key(), heads.iter().copied().chain(kept.iter().copied()), "audit.begin");
    for line in &lines {
        walk.line(line);
    }
    let (report, faults) = walk.end(heads);
    if faults.is_empty() {
        return (report.unlinked > 0).then(|| "lines without a link".to_owned());
    }
    let said = faults.iter().map(|fault| format!("{:?}/{}: {}", fault.tenant.map(|t| t.0), fault.no, fault.what));
    Some(said.collect::<Vec<_>>().join("; "))
}

async fn written(fresh: &Fresh) {
    furnish(&*fresh.store).await;
    fresh.store.chain_audit(key());
    for no in 0..LINES / 4 {
        commit(&*fresh.store, vec![audit_of(Some(TENANT), no, "one"), audit_of(Some(TENANT), no, "two")]).await;
        commit(&*fresh.store, vec![audit_of(Some(OTHER_TENANT), no, "three")]).await;
        commit(&*fresh.store, vec![audit_of(None, no, "four")]).await;
    }
}

/// One change at random. What it is, in SQL.
fn a_change(behind: &Behind, dice: &mut Dice) -> String {
    let row = |dice: &mut Dice| {
        let (tenant, count) =
            [(0, 3), (TENANT.0, 6), (OTHER_TENANT.0, 3)][usize::try_from(dice.below(3)).expect("small")];
        (tenant, 1 + i64::try_from(dice.below(count)).expect("small"))
    };
    let (tenant, no) = row(dice);
    let here = format!("WHERE tenant_no = {tenant} AND audit_no = {no}");
    match dice.below(12) {
        0 => format!("DELETE FROM audit {here}"),
        1 => format!("UPDATE audit SET audit_no = audit_no + {} {here}", 100 + dice.below(100)),
        2 => format!("UPDATE audit SET tenant_no = tenant_no + {} {here}", 100 + dice.below(100)),
        3 => format!("UPDATE audit SET at = at + {} {here}", 1_i64 << dice.below(40)),
        4 => format!("UPDATE audit SET link = NULL {here}"),
        5 => {
            let link: Vec<u8> = (0..32).map(|_| u8::try_from(dice.below(256)).expect("a byte")).collect();
            format!("UPDATE audit SET link = {} {here}", behind.bytes(&link))
        }
        6 => {
            // Two lines of one tenant change places.
            let other = if no == 1 { 2 } else { no - 1 };
            format!(
                "UPDATE audit SET audit_no = 999 {here};
                 UPDATE audit SET audit_no = {no} WHERE tenant_no = {tenant} AND audit_no = {other};
                 UPDATE audit SET audit_no = {other} WHERE tenant_no = {tenant} AND audit_no = 999"
            )
        }
        7 => {
            // A line goes, and those behind it move up with their heads: the log looks whole.
            format!(
                "DELETE FROM audit {here};
                 UPDATE audit SET audit_no = audit_no + 1000 WHERE tenant_no = {tenant} AND audit_no > {no};
                 UPDATE audit SET audit_no = audit_no - 1001 WHERE tenant_no = {tenant} AND audit_no > 1000;
                 UPDATE audit_head SET audit_no = audit_no - 1 WHERE tenant_no = {tenant}"
            )
        }
        8 => {
            // A line is there twice.
            format!(
                "INSERT INTO audit (tenant_no, audit_no, at, actor, source, action, subject, before, after, request_id, link)
                 SELECT tenant_no, 50, at, actor, source, action, subject, before, after, request_id, link FROM audit {here};
                 UPDATE audit SET audit_no = (SELECT audit_no + 1 FROM audit_head h WHERE h.tenant_no = audit.tenant_no)
                 WHERE tenant_no = {tenant} AND audit_no = 50"
            )
        }
        _ => {
            let column = TEXTS[usize::try_from(dice.below(7)).expect("small")];
            let (at, with) = (dice.below(4), char::from(b'A' + u8::try_from(dice.below(26)).expect("a letter")));
            format!(
                "UPDATE audit SET {column} = substr({column}, 1, {at}) || '{with}' || substr({column}, {at} + 1) {here}"
            )
        }
    }
}

async fn every_change_is_found(fresh: Fresh, behind: Behind) {
    written(&fresh).await;
    assert_eq!(found(&*fresh.store, &[]).await, None);
    behind
        .run(
            "CREATE TABLE audit_kept AS SELECT * FROM audit; CREATE TABLE audit_head_kept AS SELECT * FROM audit_head;",
        )
        .await;
    let mut dice = Dice(7);
    for _ in 0..300 {
        let change = a_change(&behind, &mut dice);
        behind.run(&change).await;
        let said = found(&*fresh.store, &[]).await;
        assert!(said.is_some(), "not found: {change}");
        behind.put_back().await;
    }
    assert_eq!(found(&*fresh.store, &[]).await, None);

    // The first wrong line is the one that is named.
    behind
        .run(&format!("UPDATE audit SET after = '{{\"a\":1}}' WHERE tenant_no = {} AND audit_no = 4", TENANT.0))
        .await;
    let said = found(&*fresh.store, &[]).await.expect("is found");
    assert!(said.starts_with("Some(1)/4: its link does not fit"), "{said}");
    behind.put_back().await;

    // Each of several faults is named, and nothing between them is.
    behind
        .run(&format!(
            "UPDATE audit SET after = 'x' WHERE tenant_no = {0} AND audit_no IN (1, 6);
             UPDATE audit SET link = NULL WHERE tenant_no = {1} AND audit_no = 2",
            TENANT.0, OTHER_TENANT.0
        ))
        .await;
    let said = found(&*fresh.store, &[]).await.expect("is found");
    let places: Vec<&str> = said.split("; ").filter_map(|fault| fault.split(':').next()).collect();
    for place in ["Some(1)/1", "Some(1)/6", "Some(2)/2"] {
        assert!(places.contains(&place), "{place} is not named: {said}");
    }
    for place in ["Some(1)/3", "Some(1)/4", "Some(2)/1", "None/1"] {
        assert!(!places.contains(&place), "{place} is named: {said}");
    }
    behind.put_back().await;

    // A tail that was cut off with its head looks whole, but not to who kept the head.
    let kept = fresh.store.audit_heads(Cursor { after: None, limit: 100 }).await.expect("reads");
    behind
        .run(&format!(
            "UPDATE audit_head SET audit_no = 4, link = (SELECT link FROM audit a WHERE a.tenant_no = {0} AND a.audit_no = 4)
             WHERE tenant_no = {0}; DELETE FROM audit WHERE tenant_no = {0} AND audit_no > 4",
            TENANT.0
        ))
        .await;
    assert_eq!(found(&*fresh.store, &[]).await, None, "nothing here says that there was more");
    let said = found(&*fresh.store, &kept).await.expect("is found");
    assert!(said.starts_with("Some(1)/5: it is missing"), "{said}");
    behind.put_back().await;
    assert_eq!(found(&*fresh.store, &kept).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_of_a_file_behind_our_back_is_found() {
    let fresh = sqlite().await;
    let dir = fresh.dir.as_ref().expect("a folder").path().join("countersign.db");
    let conn = Connection::open(dir).expect("opens");
    conn.busy_timeout(std::time::Duration::from_secs(10)).expect("is set");
    every_change_is_found(fresh, Behind::File(conn)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_of_a_database_behind_our_back_is_found() {
    let fresh = postgres().await;
    let client = fresh.database.as_ref().expect("a database").client().await;
    every_change_is_found(fresh, Behind::Database(client)).await;
}
