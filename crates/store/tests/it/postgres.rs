//! What only a shared database promises: many nodes, connections that break, a database that goes away.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, MerchantNo};
use countersign_store::batch::{Batch, Conflict, EventNumbers, Write};
use countersign_store::contract::{Asker, Claimed, CommitError, EventFilter, RuleFilter, StoreError};
use countersign_store::conversion::ConvertOrderFilter;
use countersign_store::testing::Database;
use countersign_store::{ConvertStore as _, PostgresOptions, PostgresStore, Store};

use crate::fixtures::*;
use crate::proxy::{Break, Proxy};
use crate::until::{answered, read, so_many_wait};

/// A database and two nodes on it, furnished.
pub async fn two_nodes() -> (Database, [Arc<PostgresStore>; 2]) {
    let database = Database::new().await;
    let nodes = [Arc::new(open_postgres(&database, 1).await), Arc::new(open_postgres(&database, 2).await)];
    furnish(&*nodes[0]).await;
    (database, nodes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_nodes_that_start_at_once_on_an_empty_database_all_come_up() {
    let database = Arc::new(Database::new().await);
    let nodes: Vec<_> = (0..8)
        .map(|node| {
            let database = Arc::clone(&database);
            tokio::spawn(async move { open_postgres(&database, node).await })
        })
        .collect();
    let mut open = Vec::new();
    for node in nodes {
        open.push(node.await.expect("opens"));
    }
    furnish(&open[0]).await;
    for node in &open {
        assert!(node.merchant("inst").await.expect("reads").is_some());
    }
}

fn refusal(opened: Result<PostgresStore, StoreError>) -> String {
    match opened {
        Err(StoreError::Unfit(why)) => why,
        other => panic!("unfit was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_newer_schema_and_a_changed_step_are_refused() {
    let database = Database::new().await;
    assert_eq!(PostgresStore::schema_state(&postgres_options(&database, 1)).await.expect("reads").applied, 0);
    let state = PostgresStore::migrate(&postgres_options(&database, 1)).await.expect("migrates");
    assert_eq!(state.applied, state.known);
    assert_eq!(PostgresStore::schema_state(&postgres_options(&database, 1)).await.expect("reads"), state);
    let client = database.client().await;
    let next = state.known + 1;
    client.batch_execute(&format!("INSERT INTO schema_step VALUES ({next}, 'later', 'x')")).await.expect("is written");
    assert!(refusal(PostgresStore::open(postgres_options(&database, 1)).await).contains("use a newer program"));
    client
        .batch_execute(&format!("DELETE FROM schema_step WHERE number = {next}; UPDATE schema_step SET digest = 'x'"))
        .await
        .expect("is written");
    assert!(refusal(PostgresStore::open(postgres_options(&database, 1)).await).contains("is not the one"));
}

#[tokio::test]
async fn an_address_that_is_none_and_a_database_of_another_encoding_are_refused() {
    let options = |url: &str| PostgresOptions::new(url, [1; 16], [1; 16]);
    assert!(refusal(PostgresStore::open(options("postgres://h/d?nonsense=1")).await).contains("address"));
    assert!(refusal(PostgresStore::open(options("postgres://h/d?sslmode=require")).await).contains("sslmode=require"));
    let secret = options("postgres://somebody:letmein@h/d");
    assert!(!format!("{secret:?}").contains("letmein"));
    let database = Database::new().await;
    let name = format!("{}_ascii", database.url().rsplit('/').next().expect("a name"));
    let server = database.client().await;
    let make = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII'");
    server.batch_execute(&make).await.expect("makes a database");
    let refused = refusal(PostgresStore::open(options(&format!("{}_ascii", database.url()))).await);
    server.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("drops it");
    assert!(refused.contains("encoding must be UTF8"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_use_one_nonce_one_is_refused() {
    let (_database, nodes) = two_nodes().await;
    for round in 0..300 {
        let text = format!("n{round}");
        let settles = |node: usize| {
            let (node, text) = (Arc::clone(&nodes[node]), text.clone());
            tokio::spawn(async move {
                assert_eq!(node.reserve(&nonce(&text, 0)).await.expect("answers"), Claimed::Fresh, "only known here");
                node.settle(nonce(&text, 0)).await.expect("answers") == Claimed::Fresh
            })
        };
        let commits = |node: usize| {
            let (node, text) = (Arc::clone(&nodes[node]), text.clone());
            tokio::spawn(async move {
                match node.commit(Batch(vec![claim(&text, 0), audit(&text)])).await {
                    Ok(_) => true,
                    Err(CommitError::Conflict(Conflict::NonceUsed)) => false,
                    other => panic!("{other:?}"),
                }
            })
        };
        let (one, other) = match round % 3 {
            0 => (settles(0), settles(1)),
            1 => (commits(0), commits(1)),
            _ => (settles(0), commits(1)),
        };
        let accepted = usize::from(one.await.expect("ends")) + usize::from(other.await.expect("ends"));
        assert_eq!(accepted, 1, "{text}");
        // Whoever lost knows from now on.
        for node in &nodes {
            assert_eq!(node.reserve(&nonce(&text, 0)).await.expect("answers"), Claimed::Used);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_append_to_one_history_leave_no_gap_and_no_fork() {
    let (_database, nodes) = two_nodes().await;
    let tasks: Vec<_> = nodes
        .iter()
        .map(|node| {
            let node = Arc::clone(node);
            tokio::spawn(async move {
                let mut done = 0;
                while done < 40 {
                    let next = node
                        .rule_head(TENANT, SUB, None)
                        .await
                        .expect("reads")
                        .map_or(1, |head| head.last.version_no + 1);
                    match node.commit(Batch(vec![append(SUB, version(next)), audit("append")])).await {
                        Ok(_) => done += 1,
                        Err(CommitError::Conflict(Conflict::Moved(_))) => {}
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("ends");
    }
    let versions = nodes[0].rule_versions(TENANT, SUB, all()).await.expect("reads");
    assert!(versions.iter().map(|v| v.version_no).eq((1..=80).rev()));
    let lines = nodes[1].audit(all()).await.expect("reads");
    assert!(lines.iter().map(|line| line.no).eq((1..=80).rev()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_two_nodes_are_numbered_without_gap() {
    let (_database, nodes) = two_nodes().await;
    let tasks: Vec<_> = (1..=120)
        .map(|no| {
            let node = Arc::clone(&nodes[usize::try_from(no % 2).expect("0 or 1")]);
            tokio::spawn(async move {
                let mut writes =
                    vec![enqueue(event(no, if no % 3 == 0 { "a" } else { "b" })), enqueue(event(no + 1000, "c"))];
                if no % 10 == 0 {
                    writes.push(append(SUB, version(99)));
                }
                node.commit(Batch(writes)).await.is_ok()
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += i64::from(task.await.expect("ends"));
    }
    assert_eq!(done, 108);
    let events = nodes[0].events_after(TENANT, APP, 0, 1000).await.expect("reads");
    assert!(events.iter().map(|e| e.seq).eq(1..=2 * done));
    for biz in ["a", "b", "c"] {
        let of_biz: Vec<i64> = events.iter().filter(|e| e.biz_id == biz).map(|e| e.sequence).collect();
        assert!(of_biz.iter().copied().eq(1..=i64::try_from(of_biz.len()).expect("few")), "{biz}: {of_biz:?}");
    }
}

#[tokio::test]
async fn another_opening_knows_what_was_used_and_keeps_the_key() {
    let (database, nodes) = two_nodes().await;
    commit(&*nodes[0], vec![claim("written", 0)]).await;
    assert_eq!(nodes[1].settle(nonce("read", 0)).await.expect("answers"), Claimed::Fresh);
    drop(nodes);
    let again = open_postgres(&database, 9).await;
    for text in ["written", "read"] {
        assert_eq!(again.settle(nonce(text, 0)).await.expect("answers"), Claimed::Used);
        assert_eq!(conflict(&again, vec![claim(text, 0)]).await, Conflict::NonceUsed);
    }
}

#[tokio::test]
async fn the_horizon_of_one_node_is_every_nodes() {
    let (database, nodes) = two_nodes().await;
    commit(&*nodes[0], vec![claim("old", 10)]).await;
    nodes[0].purge_nonces(at(10)).await.expect("purges");
    // Whoever has not heard of it does not take it back.
    nodes[1].purge_nonces(at(5)).await.expect("purges");
    assert_eq!(nodes[1].settle(nonce("old", 10)).await.expect("answers"), Claimed::TooOld);
    assert_eq!(conflict(&*nodes[1], vec![claim("older", 9)]).await, Conflict::NonceUsed);
    assert_eq!(nodes[1].settle(nonce("old", 11)).await.expect("answers"), Claimed::Fresh);
    let rows = database.client().await.query_one("SELECT count(*) FROM nonce", &[]).await.expect("reads");
    assert_eq!(rows.get::<_, i64>(0), 1, "what is too old is deleted, and not claimed again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_breaks_its_group_breaks_nobody_else() {
    let (_database, nodes) = two_nodes().await;
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let node = Arc::clone(&nodes[0]);
            let rule = if n % 16 == 3 { append(MerchantNo(404), version(1)) } else { claim(&format!("n{n}"), 0) };
            tokio::spawn(async move { node.commit(Batch(vec![rule, audit("group")])).await })
        })
        .collect();
    let mut unfit = 0;
    for task in tasks {
        match task.await.expect("ends") {
            Ok(_) => {}
            Err(CommitError::Store(StoreError::Unfit(_))) => unfit += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(unfit, 4);
    assert_eq!(nodes[0].audit(all()).await.expect("reads").len(), 60);
}

/// Returns when a transaction of this database waits for a lock.
pub async fn waits(database: &Database) {
    so_many_wait(database, 1).await;
}

/// Polls once: what is asked is on its way, and not done.
pub async fn begin<F: Future>(mut asked: Pin<&mut F>) {
    std::future::poll_fn(|cx| {
        assert!(asked.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_its_group_leaves_behind_leaves_its_nonce_to_others() {
    let (database, nodes) = two_nodes().await;
    commit(&*nodes[0], vec![append(SUB, version(1))]).await;
    let holder = database.client().await;
    holder.batch_execute("BEGIN; SELECT * FROM fee_rule_head FOR UPDATE").await.expect("holds the head");
    // The first waits for the head; the two behind it are one group then.
    let mut first = pin!(nodes[0].commit(Batch(vec![append(SUB, version(2))])));
    begin(first.as_mut()).await;
    waits(&database).await;
    let mut refused = pin!(nodes[0].commit(Batch(vec![claim("left", 0), append(SUB, version(99))])));
    let mut done = pin!(nodes[0].commit(Batch(vec![claim("kept", 0), append(SUB, version(3)), audit("kept")])));
    begin(refused.as_mut()).await;
    begin(done.as_mut()).await;
    holder.batch_execute("COMMIT").await.expect("lets go");
    first.await.expect("is applied");
    assert!(matches!(refused.await, Err(CommitError::Conflict(Conflict::Moved(_)))));
    done.await.expect("is applied");
    assert_eq!(nodes[1].settle(nonce("kept", 0)).await.expect("answers"), Claimed::Used);
    assert_eq!(nodes[1].settle(nonce("left", 0)).await.expect("answers"), Claimed::Fresh);
}

/// Ends all connections but one's own, and waits until they are gone.
pub const END_ALL: &str = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_are_made_again_and_nobody_notices() {
    let database = Database::new().await;
    // By an opening that is gone: who has a change of the directory to call out may be about to connect, and when that fails all wait a moment.
    furnish(&open_postgres(&database, 9).await).await;
    let nodes = [open_postgres(&database, 1).await, open_postgres(&database, 2).await];
    let killer = database.client().await;
    // Some end while they are used.
    let end_all = END_ALL.replace(", 60000", "");
    for no in 1..=20 {
        killer.batch_execute(&end_all).await.expect("ends them");
        commit(&nodes[0], vec![append(SUB, version(no)), audit("append")]).await;
        assert_eq!(
            nodes[0].rule_versions(TENANT, SUB, all()).await.expect("reads").len(),
            usize::try_from(no).expect("small")
        );
        assert_eq!(nodes[1].settle(nonce(&format!("n{no}"), 0)).await.expect("answers"), Claimed::Fresh);
    }
    assert_eq!(nodes[1].audit(all()).await.expect("reads").len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_is_unavailable_and_back_when_it_is_back() {
    let database = Database::new().await;
    let proxy = Proxy::before(database.folder());
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [1; 16]);
    let store = PostgresStore::open(options).await.expect("opens");
    furnish(&store).await;
    proxy.set(Break::Closed);
    database.client().await.batch_execute(END_ALL).await.expect("ends them");
    let away =
        |answer: Result<(), StoreError>| assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    away(store.ping().await.map(drop));
    away(store.settle(nonce("n", 0)).await.map(|_| ()));
    away(store.purge_nonces(at(-5)).await);
    match store.commit(Batch(vec![put("a", "1"), claim("m", 0)])).await {
        Err(CommitError::Store(error)) => away(Err(error)),
        other => panic!("{other:?}"),
    }
    proxy.set(Break::Never);
    read(|| store.ping()).await;
    for text in ["n", "m"] {
        store.release(&nonce(text, 0));
        let claimed = answered(&store, &nonce(text, 0), || Batch(vec![claim(text, 0)])).await;
        claimed.expect("nothing was done before");
    }
}

/// One node behind a proxy, furnished.
pub async fn behind_proxy() -> (Database, Proxy, PostgresStore) {
    let database = Database::with_schema().await;
    let proxy = Proxy::before(database.folder());
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [1; 16]);
    let store = PostgresStore::open(options).await.expect("opens");
    furnish(&store).await;
    (database, proxy, store)
}

/// A batch that a group does, and one that runs alone.
pub fn both_ways(no: i64) -> [Vec<Write>; 2] {
    let grouped = vec![
        claim(&format!("g{no}"), 0),
        append(SUB, version(no)),
        enqueue(event(no, "a")),
        enqueue(event(no + 100, "a")),
        audit("grouped"),
    ];
    [
        grouped,
        vec![claim(&format!("a{no}"), 0), put("last", &no.to_string()), enqueue(event(no + 200, "a")), audit("alone")],
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_in_a_commit_does_nothing_twice_and_loses_nothing() {
    let (_database, proxy, store) = behind_proxy().await;
    let mut seq = 0;
    for (no, mode) in (1..).zip([Break::BeforeCommit, Break::AfterCommit, Break::AfterCommit, Break::BeforeCommit]) {
        for writes in both_ways(no) {
            proxy.set(mode);
            let events = commit(&store, writes).await.events;
            assert_eq!(proxy.mode(), Break::Never, "it broke");
            for given in events {
                seq += 1;
                assert_eq!(given, EventNumbers { seq, sequence: seq });
            }
        }
    }
    assert_eq!(store.audit(all()).await.expect("reads").len(), 8);
    assert_eq!(store.rule_versions(TENANT, SUB, all()).await.expect("reads").len(), 4);
    assert_eq!(store.events(EventFilter::default(), all(), 9).await.expect("reads").events.len(), 12);
    for no in 1..=4 {
        for text in ["g", "a"] {
            assert_eq!(conflict(&store, vec![claim(&format!("{text}{no}"), 0)]).await, Conflict::NonceUsed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_commit_was_not_answered_is_never_said_to_be_fresh_twice() {
    let (database, proxy, store) = behind_proxy().await;
    commit(&open_postgres(&database, 2).await, vec![claim("taken", 0)]).await;
    proxy.set(Break::BeforeCommit);
    assert_eq!(
        store.settle(nonce("taken", 0)).await.expect("answers"),
        Claimed::Used,
        "another node's row is not its own"
    );
    proxy.set(Break::BeforeCommit);
    assert_eq!(store.settle(nonce("before", 0)).await.expect("answers"), Claimed::Fresh, "claimed on the second try");
    proxy.set(Break::AfterCommit);
    assert_eq!(store.settle(nonce("after", 0)).await.expect("answers"), Claimed::Fresh, "its own row is found");
    for text in ["before", "after"] {
        assert_eq!(store.settle(nonce(text, 0)).await.expect("answers"), Claimed::Used);
    }
}

/// Reads everything there is; what each read said if it found no sound row.
async fn everything(store: &PostgresStore) -> Vec<StoreError> {
    let mut errors = Vec::new();
    macro_rules! read {
        ($($call:expr),* $(,)?) => { $( errors.extend($call.await.err()); )* };
    }
    read!(
        store.application("app_one"),
        store.applications(Asker::Operator, countersign_store::rows::ApplicationFilter::default(), all()),
        store.merchants(None, None, all()),
        store.token(&[1; 32]),
        store.rule_head(TENANT, SUB, None),
        store.rule_versions(TENANT, SUB, all()),
        store.rule_page(TENANT, RuleFilter::default(), at(3_000), 0, 100),
        store.convert_order(TENANT, SUB, order(7).order_id),
        store.convert_moves(TENANT, order(7).order_id),
        store.convert_orders(Asker::Operator, ConvertOrderFilter::default(), all(), 9),
        store.quote(TENANT, SUB, "PAY-1"),
        store.rates(all()),
        store.events(EventFilter::default(), all(), 9),
        store.event(Asker::Operator, event(1, "a").event_id),
        store.remembered(&answer("k").scope, "k"),
    );
    errors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_back_is_corrupt_and_named() {
    let (database, nodes) = two_nodes().await;
    let store = &*nodes[0];
    commit(store, vec![append(SUB, version(1))]).await;
    commit(store, vec![append(SUB, version(2)), enqueue(event(1, "a")), insert_order(SUB, 7)]).await;
    commit(store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(60)))]).await;
    commit(store, vec![Write::InsertToken(Box::new(token("tok_1", 1)))]).await;
    commit(store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    commit(store, vec![remember(answer("k"))]).await;
    commit(store, vec![put_rate(rate("BTC_USDT", 1)), add_quote(quote("PAY-1", 30))]).await;
    assert!(everything(store).await.is_empty(), "all is sound before");
    let client = database.client().await;
    let loosen = "DO $$ DECLARE k record; BEGIN FOR k IN SELECT conrelid::regclass AS of, conname FROM pg_constraint
                  WHERE connamespace = 'public'::regnamespace AND contype = 'c'
                  LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', k.of, k.conname); END LOOP; END $$";
    client.batch_execute(loosen).await.expect("drops the checks");
    let damages = [
        ("merchant", "kind", "'nobody'", "1"),
        ("merchant", "base_r", "'1_000'", "1"),
        ("application", "revision", "0", "100"),
        ("application", "rate_limit_per_s", "-1", "100"),
        ("application", "callback_rate_per_s", "-1", "100"),
        ("application", "callback_concurrency", "0", "100"),
        ("application", "callback_schedule", "'5s,30s'", "100"),
        ("operator_token", "role", "'root'", "tok_1"),
        ("operator_token", "digest", "'\\x01'", ""),
        ("fee_rule", "config_id", "'\\x01'", "10"),
        ("fee_rule", "r_markup", "'x'", "10"),
        ("fee_rule", "base_version_no", "9", "10"),
        ("fee_rule_head", "version_no", "9", "10"),
        ("convert_order", "sell_currency", "'usdt'", "7"),
        ("convert_order", "status", "5", "7"),
        ("convert_order_move", "status", "5", "7"),
        ("convert_quote", "rate", "'-1'", "PAY-1"),
        ("convert_quote", "sell_amount", "0", "PAY-1"),
        ("convert_quote", "pair", "'BTC'", "PAY-1"),
        ("pair_rate", "rate", "'0'", "BTC_USDT"),
        ("pair_rate", "base_min", "-1", "BTC_USDT"),
        ("event", "event_id", "'\\x01'", "1"),
        ("delivery", "state", "'lost'", "1"),
        ("attempt", "outcome", "'lost'", "1"),
        ("attempt", "http_status", "-1", "1"),
        ("idempotency", "body_digest", "'\\x01'", "k"),
    ];
    for (table, column, value, row) in damages {
        let damage = format!("CREATE TEMP TABLE sound AS SELECT * FROM {table}; UPDATE {table} SET {column} = {value}");
        client.batch_execute(&damage).await.expect("damages");
        let errors = everything(store).await;
        assert!(errors.iter().all(|e| matches!(e, StoreError::Corrupt { .. })), "{table}.{column}: {errors:?}");
        // A token is found by its digest: with another one it is not found.
        let named = |e: &StoreError| matches!(e, StoreError::Corrupt { table: t, row: r } if *t == table && r == row);
        assert!(row.is_empty() || errors.iter().any(named), "{table}.{column} in {errors:?}");
        let mend = format!(
            "ALTER TABLE {table} DISABLE TRIGGER ALL; DELETE FROM {table}; INSERT INTO {table} SELECT * FROM sound;
             ALTER TABLE {table} ENABLE TRIGGER ALL; DROP TABLE sound"
        );
        client.batch_execute(&mend).await.expect("mends");
    }
    assert!(everything(store).await.is_empty(), "all is sound after");
    client.batch_execute("UPDATE delivery SET state = 'lost'").await.expect("damages");
    let refused = store.commit(Batch(vec![attempt(1, 2, DeliveryState::Dead, None)])).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Corrupt { table: "delivery", .. }))), "{refused:?}");
    let refused = store
        .commit(Batch(vec![Write::Redeliver { tenant: TENANT, event: event(1, "a").no, attempts: 1, due_at: at(0) }]))
        .await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Corrupt { table: "delivery", .. }))), "{refused:?}");
}

#[tokio::test]
async fn marks_of_commits_do_not_pile_up() {
    let (database, nodes) = two_nodes().await;
    for n in 0..30 {
        commit(&*nodes[n % 2], vec![put("a", &n.to_string())]).await;
        let hold = Write::HoldPending { tenant: TENANT, application: ApplicationNo(i64::try_from(n).expect("small")) };
        commit(&*nodes[n % 2], vec![hold]).await;
    }
    let rows = database.client().await.query_one("SELECT count(*) FROM commit_mark", &[]).await.expect("reads");
    assert!(rows.get::<_, i64>(0) <= 4, "one for each lane of each node");
}
