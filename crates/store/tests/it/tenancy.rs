//! Transactions of one tenant each: a trigger on every table of tenants refuses, and counts, one that touches two.

use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, TenantNo};
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{AuditRow, ClaimKey, Claimed, EventRow, MerchantKind};
use countersign_store::testing::Database;
use countersign_store::{PostgresOptions, PostgresStore, Store};

use crate::fixtures::*;
use crate::postgres::{begin, waits};
use crate::proxy::{Break, Proxy};

/// Every table whose key begins with the tenant. What a transaction has touched is a setting of its own; the count survives it.
const WATCH: &str = r"
    CREATE SEQUENCE violations MINVALUE 0 START 0;
    CREATE FUNCTION one_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE touched text := current_setting('watch.tenant', true);
            this text := (CASE TG_OP WHEN 'DELETE' THEN OLD.tenant_no ELSE NEW.tenant_no END)::text;
    BEGIN
        IF TG_TABLE_NAME = 'commit_mark' AND this = '0' THEN
            RETURN NULL;
        END IF;
        IF touched <> '' AND touched <> this THEN
            PERFORM nextval('violations');
            RAISE EXCEPTION 'a transaction touches tenants % and %', touched, this;
        END IF;
        PERFORM set_config('watch.tenant', this, true);
        RETURN NULL;
    END $$;
    DO $$ DECLARE t record; BEGIN
        FOR t IN SELECT c.conrelid::regclass AS name FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid
            WHERE c.contype = 'p' AND c.connamespace = 'public'::regnamespace AND a.attnum = c.conkey[1] AND a.attname = 'tenant_no'
        LOOP EXECUTE format('CREATE TRIGGER one_tenant AFTER INSERT OR UPDATE OR DELETE ON %s
            FOR EACH ROW EXECUTE FUNCTION one_tenant()', t.name);
        END LOOP;
    END $$;
    SELECT nextval('violations')";

/// Puts the triggers on a database that has its schema.
pub async fn watch(database: &Database) {
    let client = database.client().await;
    client.batch_execute(WATCH).await.expect("makes the triggers");
    let made = "SELECT count(DISTINCT tgrelid) FROM pg_trigger WHERE tgname = 'one_tenant'";
    assert_eq!(client.query_one(made, &[]).await.expect("reads").get::<_, i64>(0), 22, "tables of tenants");
}

/// How often a transaction was about to touch a second tenant.
pub async fn violations(database: &Database) -> i64 {
    let rows = database.client().await.query_one("SELECT last_value FROM violations", &[]).await.expect("reads");
    rows.get(0)
}

/// More than a lane has transactions between two of one tenant.
const TENANTS: i64 = 40;

/// Institution `n`, its sub-account and its application.
const fn of(n: i64) -> (TenantNo, MerchantNo, ApplicationNo) {
    (TenantNo(1_000 + n), MerchantNo(2_000 + n), ApplicationNo(3_000 + n))
}

async fn furnish_tenants(store: &PostgresStore) {
    for n in 0..TENANTS {
        let (tenant, sub, app) = of(n);
        let institution = MerchantNo(tenant.0);
        commit(
            store,
            vec![
                Write::InsertMerchant(Box::new(merchant(
                    institution,
                    &format!("i{n}"),
                    tenant,
                    MerchantKind::Institution,
                ))),
                Write::InsertMerchant(Box::new(merchant(sub, &format!("s{n}"), tenant, MerchantKind::SubAccount))),
                Write::InsertApplication(Box::new(application(app, &format!("app_{n}"), institution, tenant))),
            ],
        )
        .await;
    }
}

/// Batches of every kind for one tenant, the last depending on the ones before.
fn batches(n: i64) -> Vec<Vec<Write>> {
    let (tenant, sub, app) = of(n);
    let claim = |text: &str| {
        Write::ClaimNonce(ClaimKey { tenant, application: app, nonce: text.to_owned(), stamped_at: at(0) })
    };
    let no = 10 * n + 1;
    let row = EventRow { tenant, application: app, client_id: format!("app_{n}"), ..event(no, "a") };
    let Write::RecordAttempt { attempt, .. } = attempt(no, 1, DeliveryState::Dead, None) else { panic!("an attempt") };
    let rule = |no| Write::AppendRule { tenant, merchant: sub, version: Box::new(version(no)) };
    vec![
        vec![claim("one"), rule(1), audit_of(Some(tenant), 0, "one"), enqueue(row)],
        vec![claim("two"), rule(2), audit_of(Some(tenant), 0, "two")],
        vec![Write::InsertConvertOrder { tenant, merchant: sub, order: Box::new(order(n + 1)) }],
        vec![Write::RecordAttempt {
            tenant,
            application: APP,
            attempt,
            bytes: Some(Arc::new(wire(1))),
            state: DeliveryState::Dead,
            due_at: None,
        }],
        vec![Write::ForgetBytes { tenant, begun_before: at(9) }],
        vec![Write::ForgetEvents { tenant, application: app, old: too_old(at(9)) }],
        vec![
            Write::Redeliver { tenant, event: EventNo(no), attempts: 1, due_at: at(1) },
            audit_of(Some(tenant), 0, "three"),
        ],
        vec![Write::HoldPending { tenant, application: app }],
        vec![Write::ReleaseHeld { tenant, application: app, due_at: at(2) }],
        // One that its group leaves behind: its nonce is taken back out.
        vec![claim("left"), rule(9)],
    ]
}

/// All tenants at once, each in its own order; then what each reads.
async fn load(store: &Arc<PostgresStore>) {
    let tasks: Vec<_> = (0..TENANTS)
        .map(|n| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let last = batches(n).len() - 1;
                for (number, writes) in batches(n).into_iter().enumerate() {
                    let done = store.commit(Batch(writes)).await;
                    assert_eq!(done.is_ok(), number != last, "batch {number} of tenant {n}: {done:?}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("ends");
    }
    for n in 0..TENANTS {
        let (tenant, sub, app) = of(n);
        assert_eq!(store.rule_versions(tenant, sub, all()).await.expect("reads").len(), 2);
        assert_eq!(store.events_after(tenant, app, 0, 10).await.expect("reads").len(), 1);
        let key = ClaimKey { tenant, application: app, nonce: "left".to_owned(), stamped_at: at(0) };
        assert_eq!(store.settle(key).await.expect("answers"), Claimed::Fresh, "it was left to others");
    }
    let lines: Vec<AuditRow> = store.audit(all()).await.expect("reads");
    assert_eq!(lines.len(), 3 * usize::try_from(TENANTS).expect("few"));
    assert!(lines.iter().rev().map(|line| line.no).eq((0..TENANTS).flat_map(|_| 1..=3)), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_several_tenants_that_wait_for_a_lane_are_one_transaction() {
    let database = Database::new().await;
    let options = PostgresOptions { lanes: 1, ..postgres_options(&database, 1) };
    let store = PostgresStore::open(options).await.expect("opens");
    furnish_tenants(&store).await;
    let (tenant, merchant, _) = of(0);
    let rule = |no| Write::AppendRule { tenant, merchant, version: Box::new(version(no)) };
    let line = |n: i64, action: &str| audit_of(Some(of(n).0), 0, action);
    commit(&store, vec![rule(1)]).await;
    for n in 0..TENANTS {
        commit(&store, vec![line(n, "before")]).await;
    }
    let holder = database.client().await;
    holder.batch_execute("BEGIN; SELECT * FROM fee_rule_head FOR UPDATE").await.expect("holds the head");
    let mut first = std::pin::pin!(store.commit(Batch(vec![rule(2)])));
    begin(first.as_mut()).await;
    waits(&database).await;
    let mut behind: Vec<_> =
        (0..TENANTS).map(|n| Box::pin(store.commit(Batch(vec![line(n, "one"), line(n, "two")])))).collect();
    for asked in &mut behind {
        begin(asked.as_mut()).await;
    }
    holder.batch_execute("COMMIT").await.expect("lets go");
    first.await.expect("is applied");
    for asked in behind {
        asked.await.expect("is applied");
    }
    let client = database.client().await;
    let found = "SELECT count(DISTINCT xmin::text), count(*), count(DISTINCT tenant_no) FROM audit WHERE audit_no > 1";
    let row = client.query_one(found, &[]).await.expect("reads");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (1, 2 * TENANTS, TENANTS));
    for n in 0..TENANTS {
        let actions = "SELECT array_agg(action ORDER BY audit_no) FROM audit WHERE tenant_no = $1";
        let row = client.query_one(actions, &[&of(n).0.0]).await.expect("reads");
        assert_eq!(row.get::<_, Vec<String>>(0), ["before", "one", "two"]);
    }
}

/// Claims of all tenants, many at once.
async fn settle_all(store: &Arc<PostgresStore>) {
    let tasks: Vec<_> = (0..20 * TENANTS)
        .map(|n| {
            let store = Arc::clone(store);
            let (tenant, _, application) = of(n % TENANTS);
            let claim = ClaimKey { tenant, application, nonce: format!("read {n}"), stamped_at: at(0) };
            tokio::spawn(async move { store.settle(claim).await.expect("answers") })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("ends"), Claimed::Fresh);
    }
}

async fn watched(by_tenant: bool) -> (Database, Arc<PostgresStore>) {
    let database = Database::new().await;
    let options = PostgresOptions { group_by_tenant: by_tenant, ..postgres_options(&database, 1) };
    let store = Arc::new(PostgresStore::open(options).await.expect("opens"));
    furnish_tenants(&store).await;
    watch(&database).await;
    (database, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_touches_two_tenants_where_they_are_grouped_by_tenant() {
    let (database, store) = watched(true).await;
    load(&store).await;
    settle_all(&store).await;
    assert_eq!(violations(&database).await, 0);
    let of_many = "SELECT count(*) FROM commit_mark m JOIN merchant t ON t.merchant_no = m.tenant_no";
    let marks = database.client().await.query_one(of_many, &[]).await.expect("reads").get::<_, i64>(0);
    assert_eq!(marks, TENANTS, "one mark for each tenant, in its lane");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_option_transactions_do_touch_several_tenants_and_the_watch_sees_it() {
    let (database, store) = watched(false).await;
    // The groups fail, and each batch runs alone: everything is done all the same.
    load(&store).await;
    assert!(violations(&database).await > 0, "the watch sees nothing, so it proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_several_tenants_whose_commits_were_not_answered_are_never_fresh_twice() {
    let database = Database::new().await;
    let proxy = Proxy::before(database.folder());
    let url = proxy.url(&database.url());
    let options = PostgresOptions { group_by_tenant: true, ..PostgresOptions::new(url, [1; 16], [1; 16]) };
    let store = Arc::new(PostgresStore::open(options).await.expect("opens"));
    furnish_tenants(&store).await;
    for (round, mode) in
        [Break::BeforeCommit, Break::AfterCommit, Break::BeforeCommit, Break::AfterCommit].into_iter().enumerate()
    {
        let claim = |n: i64| {
            let (tenant, _, application) = of(n);
            ClaimKey { tenant, application, nonce: format!("round {round}"), stamped_at: at(0) }
        };
        proxy.set(mode);
        let tasks: Vec<_> = (0..TENANTS)
            .map(|n| {
                let (store, claim) = (Arc::clone(&store), claim(n));
                tokio::spawn(async move { store.settle(claim).await })
            })
            .collect();
        let mut fresh = 0;
        for (n, task) in (0..).zip(tasks) {
            match task.await.expect("ends") {
                Ok(Claimed::Fresh) => fresh += 1,
                // Nobody knows whether it was done: it is refused for now, and from then on.
                Err(_) => store.release(&claim(n)),
                Ok(other) => panic!("{other:?}: nobody else claimed it"),
            }
        }
        assert_eq!(proxy.mode(), Break::Never, "it broke");
        assert!(mode == Break::AfterCommit || fresh == TENANTS, "what was not done was done again: {fresh}");
        for n in 0..TENANTS {
            assert_eq!(store.settle(claim(n)).await.expect("answers"), Claimed::Used);
        }
    }
}
