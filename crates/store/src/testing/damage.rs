//! Rows that cannot be read back: their numbers that grow from 1 are below zero, which the schema lets nobody write. Done once more, a row is
//! as it was.

use std::path::Path;

use countersign_domain::ids::{EventNo, TenantNo};
use countersign_domain::payment_order::PrepayId;
use rusqlite::Connection;

use super::Database;

/// What is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// An event.
    Event(EventNo),
    /// An application, by its ClientId.
    Application(String),
    /// Payment orders up to this one.
    PaymentOrdersTo(PrepayId),
    /// A payment order, which has had so many revisions that there is no next one; once only.
    LastRevision(PrepayId),
    /// No attempt can be recorded.
    Attempts,
    /// No redelivery of this application, by its ClientId, can begin.
    Redelivery(String),
    /// No answer can be kept for an `Idempotency-Key`.
    Answers,
    /// What went over the wire in attempts of this tenant can be forgotten by nobody.
    Bytes(TenantNo),
    /// A table has another name.
    Renamed(&'static str, &'static str),
}

impl Damage {
    /// `refuse` makes a table take no row, or none of a ClientId.
    fn sql(&self, refuse: impl Fn(&str, Option<&str>) -> String, keep: impl Fn(TenantNo) -> String) -> String {
        let turn = |table, column, which| format!("UPDATE {table} SET {column} = -{column} WHERE {which}");
        match self {
            Self::Event(no) => turn("event", "seq", format!("event_no = {}", no.0)),
            Self::Application(client_id) => turn("application", "revision", format!("client_id = '{client_id}'")),
            Self::PaymentOrdersTo(id) => turn("payment_order", "revision", format!("order_no <= {}", id.number())),
            Self::LastRevision(id) => {
                format!("UPDATE payment_order SET revision = {} WHERE order_no = {}", i64::MAX, id.number())
            }
            Self::Attempts => refuse("attempt", None),
            Self::Redelivery(client_id) => refuse("redelivery", Some(client_id)),
            Self::Answers => refuse("idempotency", None),
            Self::Bytes(tenant) => keep(*tenant),
            Self::Renamed(table, name) => format!("ALTER TABLE {table} RENAME TO {name}"),
        }
    }

    /// Damages a file that a store has open. What has read it looks again after the store's next commit.
    pub fn file(&self, file: &Path) {
        let refuse = |table: &str, client_id: Option<&str>| {
            let which = client_id.map_or_else(String::new, |client_id| format!("WHEN NEW.client_id = '{client_id}'"));
            format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} {which} BEGIN SELECT RAISE(ABORT, 'refused'); END")
        };
        let sql = self.sql(refuse, |TenantNo(tenant)| {
            format!(
                "CREATE TRIGGER keep BEFORE DELETE ON attempt_bytes WHEN OLD.tenant_no = {tenant}
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
        });
        let conn = Connection::open(file).expect("opens");
        conn.execute_batch(&format!("PRAGMA ignore_check_constraints = ON; {sql}")).expect("damages");
    }
}

impl Database {
    /// Damages it.
    pub async fn damage(&self, with: &Damage) {
        let constraints = [
            "event DROP CONSTRAINT IF EXISTS event_seq",
            "application DROP CONSTRAINT IF EXISTS application_revision",
            "payment_order DROP CONSTRAINT IF EXISTS payment_order_revision",
        ];
        let loosen = constraints.map(|drop| format!("ALTER TABLE {drop}_check;")).concat();
        let refuse = |table: &str, client_id: Option<&str>| {
            let which = client_id.map_or_else(|| "false".to_owned(), |client_id| format!("client_id <> '{client_id}'"));
            format!("ALTER TABLE {table} ADD CONSTRAINT refuse CHECK ({which}) NOT VALID")
        };
        let sql = with.sql(refuse, |TenantNo(tenant)| {
            format!(
                "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
                 CREATE TRIGGER keep BEFORE DELETE ON attempt_bytes FOR EACH ROW WHEN (OLD.tenant_no = {tenant})
                 EXECUTE FUNCTION keep()"
            )
        });
        self.client().await.batch_execute(&format!("{loosen}{sql}")).await.expect("damages");
    }
}
