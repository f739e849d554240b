//! The steps that make the schema, and the runner that applies each once, however many nodes start at once.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, GenericClient};

use super::dial::Dial;
use super::fault::fault;
use super::session::Session;
use crate::contract::StoreError;
use crate::steps::{self, Applied, SchemaState, Step, pending, sha256, words};

pub(super) const STEPS: &[Step] = &[
    Step { number: 1, name: "begin", sql: include_str!("../../migrations/postgres/0001_begin.sql") },
    Step {
        number: 2,
        name: "audit_by_tenant",
        sql: include_str!("../../migrations/postgres/0002_audit_by_tenant.sql"),
    },
    Step { number: 3, name: "lanes", sql: include_str!("../../migrations/postgres/0003_lanes.sql") },
    Step { number: 4, name: "identities", sql: include_str!("../../migrations/postgres/0004_identities.sql") },
    Step { number: 5, name: "audit_chain", sql: include_str!("../../migrations/postgres/0005_audit_chain.sql") },
    Step { number: 6, name: "delivery_turn", sql: include_str!("../../migrations/postgres/0006_delivery_turn.sql") },
    Step { number: 7, name: "delivery_order", sql: include_str!("../../migrations/postgres/0007_delivery_order.sql") },
    Step { number: 8, name: "attempt_log", sql: include_str!("../../migrations/postgres/0008_attempt_log.sql") },
    Step { number: 9, name: "redelivery", sql: include_str!("../../migrations/postgres/0009_redelivery.sql") },
    Step {
        number: 10,
        name: "endpoint_settings",
        sql: include_str!("../../migrations/postgres/0010_endpoint_settings.sql"),
    },
    Step { number: 11, name: "convert", sql: include_str!("../../migrations/postgres/0011_convert.sql") },
    Step { number: 12, name: "payment_orders", sql: include_str!("../../migrations/postgres/0012_payment_orders.sql") },
    Step { number: 13, name: "paid_orders", sql: include_str!("../../migrations/postgres/0013_paid_orders.sql") },
    Step { number: 14, name: "order_request", sql: include_str!("../../migrations/postgres/0014_order_request.sql") },
    Step { number: 15, name: "conditions", sql: include_str!("../../migrations/postgres/0015_conditions.sql") },
    Step { number: 16, name: "paid_by_number", sql: include_str!("../../migrations/postgres/0016_paid_by_number.sql") },
    Step { number: 17, name: "convert_lists", sql: include_str!("../../migrations/postgres/0017_convert_lists.sql") },
    Step { number: 18, name: "last_paid", sql: include_str!("../../migrations/postgres/0018_last_paid.sql") },
    Step { number: 19, name: "answers", sql: include_str!("../../migrations/postgres/0019_answers.sql") },
    Step {
        number: 20,
        name: "nodes_and_lists",
        sql: include_str!("../../migrations/postgres/0020_nodes_and_lists.sql"),
    },
    Step {
        number: 21,
        name: "redelivery_outcomes",
        sql: include_str!("../../migrations/postgres/0021_redelivery_outcomes.sql"),
    },
    Step { number: 22, name: "gone", sql: include_str!("../../migrations/postgres/0022_gone.sql") },
    Step { number: 23, name: "node_settings", sql: include_str!("../../migrations/postgres/0023_node_settings.sql") },
    Step { number: 24, name: "node_leaves", sql: include_str!("../../migrations/postgres/0024_node_leaves.sql") },
];

/// Held by whoever migrates, over all steps; everybody else waits.
const LOCK: &str = "SELECT pg_advisory_lock(4851337200)";
const UNLOCK: &str = "SELECT pg_advisory_unlock(4851337200)";

/// How often a migration that meets a held table is begun again, at the step that met it.
const TRIES_MAX: u32 = 30;

/// Why steps were not applied.
enum Stopped {
    /// A lock was not let go in time, or transactions waited for each other.
    InTheWay(StoreError),
    Refused(StoreError),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED) => Self::InTheWay(fault(error)),
            _ => Self::Refused(fault(error)),
        }
    }
}

fn known() -> i32 {
    i32::try_from(STEPS.len()).unwrap_or(i32::MAX)
}

async fn applied(client: &impl GenericClient) -> Result<Vec<Applied>, StoreError> {
    // Asked of the catalog's own tables: a look-up by name may still remember that the table was not there.
    let there = "SELECT c.relkind = 'r' AND (SELECT count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped
                   AND (a.attname, a.atttypid) IN (('number', 'bigint'::regtype), ('name', 'text'::regtype), ('digest', 'text'::regtype))) = 3,
                   current_schema()::text
                 FROM pg_catalog.pg_class c WHERE c.relname = 'schema_step' AND c.relnamespace = current_schema()::regnamespace";
    let Some(there) = client.query_opt(there, &[]).await.map_err(fault)? else { return Ok(Vec::new()) };
    if !there.get::<_, bool>(0) {
        return Err(taken(there.get(1), "schema_step"));
    }
    let select = "SELECT number, name, digest FROM schema_step ORDER BY number";
    let rows = client.query(select, &[]).await.map_err(fault)?;
    let read = |row: &tokio_postgres::Row| {
        let number = i32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(i32::MAX);
        Ok((number, row.try_get(1)?, row.try_get(2)?))
    };
    rows.iter().map(|row| read(row).map_err(fault)).collect()
}

fn taken(schema: &str, names: &str) -> StoreError {
    StoreError::Unfit(format!(
        "the schema {schema} of the database holds {names} of somebody else: name a database, or in its address another schema, without them"
    ))
}

/// What steps make: its name, and of an index the table.
fn names(steps: &[Step]) -> Vec<(&'static str, Option<&'static str>)> {
    let words = words(steps);
    let made = (0..words.len()).filter_map(|at| match words[at..] {
        ["CREATE", "TABLE", name, ..] => Some((name, None)),
        ["INDEX", "IF", "NOT", "EXISTS", name, "ON", table, ..] | ["INDEX", name, "ON", table, ..] => {
            Some((name, Some(table)))
        }
        _ => None,
    });
    made.collect()
}

/// All tables that are ours.
pub(super) fn tables() -> Vec<&'static str> {
    steps::tables(STEPS)
}

/// Refuses a schema where something of somebody else has a name that steps will make: a table would stop the step without saying why, and the
/// name of an index would be taken for the index. One that was made beforehand, on our table, may be there.
async fn expect_free(client: &impl GenericClient, steps: &[Step]) -> Result<(), StoreError> {
    let names = names(steps);
    if names.is_empty() {
        return Ok(());
    }
    let (all, tables): (Vec<&str>, Vec<Option<&str>>) = names.into_iter().unzip();
    let select = "
        WITH wanted AS (SELECT * FROM unnest($1::text[], $2::text[]) AS w (name, of_table)), here AS (SELECT current_schema()::regnamespace AS id)
        SELECT w.name, current_schema()::text FROM wanted w, here, pg_catalog.pg_class c
          WHERE c.relname = w.name AND c.relnamespace = here.id AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
            WHERE i.indexrelid = c.oid AND t.relname = w.of_table)
        UNION
        SELECT w.name, current_schema()::text FROM wanted w, here, pg_catalog.pg_type t
          WHERE w.of_table IS NULL AND t.typname = w.name AND t.typnamespace = here.id
        ORDER BY 1";
    let rows = client.query(select, &[&all, &tables]).await.map_err(fault)?;
    let found: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let (Some((last, before)), Some(row)) = (found.split_last(), rows.first()) else { return Ok(()) };
    let list = if before.is_empty() { (*last).to_owned() } else { format!("{} and {last}", before.join(", ")) };
    Err(taken(row.get(1), &list))
}

/// Refuses a database that cannot hold what we write.
async fn usable(client: &impl GenericClient) -> Result<(), StoreError> {
    let about = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')";
    let row = client.query_one(about, &[]).await.map_err(fault)?;
    let (version, encoding): (i32, String) = (row.get(0), row.get(1));
    if version < 150_000 {
        return Err(StoreError::Unfit(format!("PostgreSQL 15 or newer is needed, this one is {}", version / 10_000)));
    }
    if encoding != "UTF8" {
        return Err(StoreError::Unfit(format!("the database's encoding must be UTF8, it is {encoding}")));
    }
    Ok(())
}

/// Applies what is pending, if anything is, and gives a connection for what comes next: after a migration, which may take hours, a new one.
pub(super) async fn up_to_date(dial: &Dial, mut session: Session) -> Result<Session, StoreError> {
    if state_on(dial, &mut session).await?.is_current() {
        return Ok(session);
    }
    drop(session);
    migrate(dial).await?;
    dial.session().await
}

/// Applies what is pending. Where somebody holds a table that a step changes, it lets go now and then: nodes that run must not wait
/// behind it for as long as that takes.
pub(super) async fn migrate(dial: &Dial) -> Result<SchemaState, StoreError> {
    let mut tries = 1;
    loop {
        match apply(dial).await {
            Err(Stopped::InTheWay(StoreError::Unavailable(why))) if tries < TRIES_MAX => {
                tracing::warn!("A table that a migration changes is held by somebody ({why}); this is tried again");
                tries += 1;
                sleep(dial.limits().lock()).await;
            }
            Err(Stopped::InTheWay(error) | Stopped::Refused(error)) => return Err(error),
            Ok(state) => return Ok(state),
        }
    }
}

/// Applies what is pending, each step in a transaction of its own, so that what one of them locks is let go before the next one reads a large
/// table. Whoever is cut off between two of them goes on there. Where nothing is applied yet nothing is large, and all of them are one transaction: a new
/// database has the whole schema or nothing. A step may take hours, and nobody can tell one that is at work from a server that is
/// silent.
async fn apply(dial: &Dial) -> Result<SchemaState, Stopped> {
    let state = state(dial).await?;
    // Nodes that run are not held up where there is nothing to do.
    if state.is_current() {
        return Ok(state);
    }
    let mut session = dial.session().await?;
    // Whoever ends this process ends the step that is at work, too; a server that cannot see that lets it go on and undoes it.
    let _ = session.client().batch_execute("SET client_connection_check_interval = '5s'").await;
    // Another node may migrate for longer than statements may wait elsewhere; the steps themselves must not wait so long.
    session.client().batch_execute("SET lock_timeout = 0").await?;
    session.client().batch_execute(LOCK).await?;
    let looked = session.transaction().await?;
    let done = applied(&looked).await?;
    let steps = pending(&done, STEPS)?;
    expect_free(&looked, steps).await?;
    looked.rollback().await?;
    let at_once = if done.is_empty() { steps.len() } else { 1 };
    for steps in steps.chunks(at_once) {
        take(&mut session, steps, dial.limits().lock()).await?;
    }
    // The lock would go with the connection as well, but not before the server has seen its end.
    session.client().batch_execute(UNLOCK).await?;
    Ok(SchemaState { applied: known(), known: known() })
}

/// Some steps, and the note of each.
async fn take(session: &mut Session, steps: &[Step], patience: Duration) -> Result<(), Stopped> {
    let transaction = session.transaction().await?;
    let patience = format!("SET LOCAL lock_timeout = {}", patience.as_millis());
    transaction.batch_execute(&patience).await?;
    let make =
        "CREATE TABLE IF NOT EXISTS schema_step (number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL)";
    transaction.batch_execute(make).await?;
    let insert = "INSERT INTO schema_step VALUES ($1, $2, $3)";
    for step in steps {
        transaction.batch_execute(step.sql).await?;
        let row: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&i64::from(step.number), &step.name, &sha256(step.sql)];
        transaction.execute(insert, &row).await?;
    }
    Ok(transaction.commit().await?)
}

/// Where a database stands, without changing it. `Unavailable` also: it does not answer in time.
pub(super) async fn state(dial: &Dial) -> Result<SchemaState, StoreError> {
    state_on(dial, &mut dial.session().await?).await
}

/// The same over a connection that is there.
pub(super) async fn state_on(dial: &Dial, session: &mut Session) -> Result<SchemaState, StoreError> {
    dial.in_time(Box::pin(look(session))).await
}

async fn look(session: &mut Session) -> Result<SchemaState, StoreError> {
    let transaction = session.transaction().await.map_err(fault)?;
    // One moment: what another node makes meanwhile would be taken for somebody else's.
    let moment = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    transaction.batch_execute(moment).await.map_err(fault)?;
    usable(&transaction).await?;
    let done = applied(&transaction).await?;
    expect_free(&transaction, pending(&done, STEPS)?).await?;
    Ok(SchemaState { applied: i32::try_from(done.len()).unwrap_or(i32::MAX), known: known() })
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use tokio::task::JoinHandle;
    use tokio_postgres::Client;

    use super::*;
    use crate::testing::Database;

    /// A database whose last step has this number.
    async fn through(last: usize) -> (Database, Client) {
        let database = Database::new().await;
        let client = database.client().await;
        let make = "CREATE TABLE schema_step (number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL)";
        client.batch_execute(make).await.expect("is made");
        for step in &STEPS[..last] {
            client.batch_execute(step.sql).await.expect("makes the step");
            let (number, digest) = (step.number, sha256(step.sql));
            let note = format!("INSERT INTO schema_step VALUES ({number}, '{}', '{digest}')", step.name);
            client.batch_execute(&note).await.expect("notes it");
        }
        (database, client)
    }

    /// Two orders, of which the second is paid.
    const TWO_ORDERS: &str = "
        INSERT INTO public.merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, created_at)
          VALUES (1, 1, 'm', 'merchant', 'm', '0', 0, 1, 1);
        INSERT INTO public.payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount,
          status, created_at, expire_at, paid_at, revision, actor, request_id)
          VALUES (1, 900, 7, 1, 5, 'app', 'T-1', 'order', 'USDT', 1, 'PENDING', 3, 4, NULL, 1, 'who', 'req'),
            (1, 800, 8, 1, 5, 'app', 'T-2', 'order', 'BTC', 5, 'PAID', 3, 4, 5, 2, 'who', 'req')";

    /// Until a migration under way waits for the orders, which somebody holds.
    async fn until_it_waits<T>(beside: &Client, migration: &JoinHandle<T>) {
        let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'payment_order'::regclass AND NOT granted";
        while beside.query_one(waits, &[]).await.expect("reads").get::<_, i64>(0) == 0 {
            assert!(!migration.is_finished(), "it does not wait");
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_node_that_holds_an_order_and_the_step_about_what_was_paid_do_not_wait_for_each_other() {
        let (database, node) = through(15).await;
        node.batch_execute(TWO_ORDERS).await.expect("is written");
        let held = "BEGIN; SELECT 1 FROM public.payment_order WHERE order_no = 900 FOR NO KEY UPDATE";
        node.batch_execute(held).await.expect("is held");
        let dial = Dial::new(&database.url(), None).expect("an address");
        let step = tokio::spawn(async move { migrate(&dial).await });
        let beside = database.client().await;
        until_it_waits(&beside, &step).await;
        let moved =
            "UPDATE public.payment_order SET status = 'PAID', paid_at = 9, revision = 2 WHERE order_no = 900; COMMIT";
        node.batch_execute(moved).await.expect("is not what is given up");
        assert_eq!(step.await.expect("ends").expect("migrates").applied, known());
        let late = "SELECT count(*) FROM public.payment_order WHERE (order_no >> 19) + 1735689600000 NOT BETWEEN paid_at - 86400000 AND paid_at";
        assert_eq!(beside.query_one(late, &[]).await.expect("reads").get::<_, i64>(0), 2);
    }

    /// Why a database is not migrated. Nothing is made in it.
    async fn refused(client: &Client, dial: &Dial) -> String {
        let count = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace";
        let count = async || client.query_one(count, &[]).await.expect("reads").get::<_, i64>(0);
        let before = count().await;
        let Err(StoreError::Unfit(looked)) = state(dial).await else { panic!("it is looked at and not refused") };
        let Err(StoreError::Unfit(why)) = migrate(dial).await else { panic!("it is migrated") };
        assert_eq!((looked.as_str(), count().await), (why.as_str(), before));
        why
    }

    #[tokio::test]
    async fn whatever_has_a_name_that_we_would_make_is_refused_and_other_names_are_fine() {
        let database = Database::new().await;
        let client = database.client().await;
        let dial = Dial::new(&database.url(), None).expect("an address");
        client
            .batch_execute("CREATE TABLE customer (a int); CREATE SCHEMA other; CREATE TABLE other.merchant (a int)")
            .await
            .expect("is made");
        for (make, name, drop) in [
            ("CREATE TABLE merchant (a int)", "merchant", "DROP TABLE merchant"),
            ("CREATE VIEW last_paid AS SELECT 1 AS a", "last_paid", "DROP VIEW last_paid"),
            ("CREATE TYPE event AS ENUM ('a')", "event", "DROP TYPE event"),
            // It would be taken for the index that a step makes where it is not there.
            ("CREATE TABLE convert_order_open (a int)", "convert_order_open", "DROP TABLE convert_order_open"),
            ("CREATE INDEX delivery_dead ON customer (a)", "delivery_dead", "DROP INDEX delivery_dead"),
            ("CREATE TABLE schema_step (version int)", "schema_step", "DROP TABLE schema_step"),
            ("CREATE TABLE schema_step (number int, name text, digest text)", "schema_step", "DROP TABLE schema_step"),
        ] {
            client.batch_execute(make).await.expect("is made");
            let why = refused(&client, &dial).await;
            assert!(
                why.starts_with(&format!("the schema public of the database holds {name} of somebody else: ")),
                "{make}: {why}"
            );
            client.batch_execute(drop).await.expect("is dropped");
        }
        assert_eq!(migrate(&dial).await.expect("migrates").applied, known());
        let quoting = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET quote_all_identifiers = on', current_database()); END $$";
        client.batch_execute(quoting).await.expect("is set");
        assert_eq!(state(&dial).await.expect("our own table is ours however types are named").applied, known());
        // Every name that the steps make is known beforehand: what constraints make besides gives way by itself.
        let made =
            "SELECT relname::text FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')
                    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid) AND relname <> 'customer'";
        let named: Vec<&str> = names(STEPS).into_iter().map(|(name, _)| name).collect();
        let made = client.query(made, &[]).await.expect("reads");
        let unknown: Vec<String> =
            made.iter().map(|row| row.get(0)).filter(|name: &String| !named.contains(&name.as_str())).collect();
        assert_eq!((unknown, made.len() > 60), (vec!["schema_step".to_owned()], true));
    }

    #[tokio::test]
    async fn a_name_of_a_later_step_is_refused_unless_it_is_the_index_of_that_step() {
        let (database, client) = through(15).await;
        let dial = Dial::new(&database.url(), None).expect("an address");
        client.batch_execute("CREATE TABLE last_paid (a int)").await.expect("is made");
        assert!(refused(&client, &dial).await.contains("last_paid of somebody else"));
        let beforehand = "DROP TABLE last_paid; CREATE INDEX payment_order_paid_of_tenant ON payment_order (tenant_no, order_no, paid_at)
                          WHERE paid_at IS NOT NULL";
        client.batch_execute(beforehand).await.expect("is made");
        assert_eq!(migrate(&dial).await.expect("migrates").applied, known());
    }

    #[tokio::test]
    async fn an_index_that_was_made_beforehand_by_half_is_not_taken_for_one() {
        let (database, client) = through(15).await;
        client.batch_execute(TWO_ORDERS).await.expect("is written");
        // Both orders are of one tenant: it is broken off, and stays.
        let broken = "CREATE UNIQUE INDEX CONCURRENTLY payment_order_late ON payment_order (tenant_no)";
        client.batch_execute(broken).await.expect_err("two have the same");
        let dial = Dial::new(&database.url(), None).expect("an address");
        let Err(StoreError::Unfit(why)) = migrate(&dial).await else { panic!("it is taken for one") };
        let told =
            "an index of payment_order is not valid, since what made it was broken off: drop it (payment_order_late)";
        assert!(why.contains(told), "{why}");
        assert_eq!(state(&dial).await.expect("reads").applied, 15, "nothing is left behind");
        client.batch_execute("DROP INDEX payment_order_late").await.expect("is dropped");
        assert_eq!(migrate(&dial).await.expect("migrates").applied, known());
    }

    #[tokio::test]
    async fn a_step_that_is_refused_leaves_those_before_it_and_the_next_migration_goes_on_there() {
        let (database, client) = through(13).await;
        // Step 16 is refused by it.
        let broken = "INSERT INTO public.merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, created_at)
                        VALUES (1, 1, 'm', 'merchant', 'm', '0', 0, 1, 1);
                      INSERT INTO public.payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency,
                        amount, status, created_at, expire_at, revision, actor, request_id, request_head, request_body)
                        SELECT 1, 900 + n, n, 1, 5, 'app', 'T-' || n, 'order', 'USDT', 1, 'PENDING', 3, 4, 1, 'who', 'req', '', ''
                        FROM generate_series(1, 2) AS n";
        client.batch_execute(broken).await.expect("is written");
        let broken = "CREATE UNIQUE INDEX CONCURRENTLY payment_order_late ON payment_order (tenant_no)";
        client.batch_execute(broken).await.expect_err("two have the same");
        let dial = Dial::new(&database.url(), None).expect("an address");
        let Err(StoreError::Unfit(why)) = migrate(&dial).await else { panic!("it is not refused") };
        assert!(why.contains("payment_order_late"), "{why}");
        assert_eq!(state(&dial).await.expect("reads").applied, 15, "those before it are kept");
        client.batch_execute("DROP INDEX payment_order_late").await.expect("is dropped");
        let (one, other) = tokio::join!(migrate(&dial), migrate(&dial));
        assert_eq!((one.expect("migrates").applied, other.expect("waits").applied), (known(), known()));
        let noted = "SELECT count(*), count(DISTINCT number) FROM schema_step";
        let noted = client.query_one(noted, &[]).await.expect("reads");
        assert_eq!((noted.get::<_, i64>(0), noted.get::<_, i64>(1)), (i64::from(known()), i64::from(known())));
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        assert_eq!(
            client.query_one(held, &[]).await.expect("reads").get::<_, i64>(0),
            0,
            "nobody waits for a lock that is over"
        );
    }

    #[tokio::test]
    async fn while_a_step_waits_for_a_table_what_the_steps_before_it_changed_is_free() {
        let (database, node) = through(14).await;
        node.batch_execute("BEGIN; LOCK TABLE payment_order IN ROW EXCLUSIVE MODE").await.expect("is held");
        let dial = Dial::new(&database.url(), None).expect("an address");
        let steps = tokio::spawn(async move { migrate(&dial).await });
        let beside = database.client().await;
        until_it_waits(&beside, &steps).await;
        let noted = "SELECT max(number) FROM schema_step";
        assert_eq!(beside.query_one(noted, &[]).await.expect("reads").get::<_, i64>(0), 15);
        node.batch_execute("COMMIT").await.expect("is let go");
        assert_eq!(steps.await.expect("ends").expect("migrates").applied, known());
    }

    #[tokio::test]
    async fn a_payment_order_of_a_database_from_before_keeps_its_request_byte_for_byte() {
        let (database, client) = through(13).await;
        client
            .batch_execute(
                "INSERT INTO public.merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, created_at)
                   VALUES (1, 1, 'm', 'merchant', 'm', '0', 0, 1, 1);
                 INSERT INTO public.payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency,
                   amount, status, created_at, expire_at, revision, actor, request_id, request_head, request_body)
                   VALUES (1, 900, 77, 1, 5, 'app', 'T-1', 'order', 'USDT', 1000001, 'PENDING', 3, 4, 1, 'who', 'req',
                     'POST /v1/pay/order' || chr(10) || 'x-service-nonce: \u{e9}', '\\x7b00ff0a7d20'),
                   (1, 800, 78, 1, 5, 'app', 'T-2', 'native', 'BTC', 5, 'CLOSED', 3, 4, 2, 'who', 'req', '', '')",
            )
            .await
            .expect("is written");
        let read = async |what: &str, table: &str| -> Vec<String> {
            let sql = format!("SELECT ({what})::text FROM {table} o ORDER BY order_no");
            client.query(&sql, &[]).await.expect("reads").iter().map(|row| row.get(0)).collect()
        };
        let requests = "(tenant_no, order_no, request_head, request_body)";
        let before = read(requests, "payment_order").await;
        assert!(before[1].contains("7b00ff0a7d20") && before[1].contains('\u{e9}'), "{before:?}");
        let orders = read("to_jsonb(o) - 'request_head' - 'request_body'", "payment_order").await;
        migrate(&Dial::new(&database.url(), None).expect("an address")).await.expect("migrates");
        assert_eq!(read(requests, "payment_order_request").await, before);
        assert_eq!(read("to_jsonb(o)", "payment_order").await, orders);
    }
}
