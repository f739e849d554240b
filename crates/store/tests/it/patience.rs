//! Servers that stand still, locks that are held, clocks that are wrong: nobody waits long, and nothing piles up.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{ClaimKey, Claimed, CommitError, StoreError};
use countersign_store::testing::Database;
use countersign_store::{PostgresOptions, PostgresStore, Store};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Instant, timeout};

use crate::breaks::SHORT_SECOND;
use crate::fixtures::*;
use crate::postgres::{END_ALL, behind_proxy, two_nodes, waits};
use crate::proxy::{Break, Proxy};
use crate::until::{PATIENCE, counted, done, opened, read, until_so};

fn short(url: String) -> PostgresOptions {
    PostgresOptions { second: SHORT_SECOND, ..PostgresOptions::new(url, [1; 16], [3; 16]) }
}

fn name(database: &Database) -> String {
    database.url().rsplit('/').next().expect("a name").to_owned()
}

/// The same where what is asked must succeed: a loaded machine may stand still for as long as a short limit.
fn with_a_second_of(ms: u64, url: String) -> PostgresOptions {
    PostgresOptions { second: Duration::from_millis(ms), ..short(url) }
}

/// A database with some rows, which whoever made them has left.
async fn furnished() -> Database {
    let database = Database::with_schema().await;
    furnish(&open_postgres(&database, 9).await).await;
    database
}

/// What an answer was, once it came; whoever waits for what stands still waits for ever.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("is answered")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_connections_and_says_nothing_is_unavailable_to_everybody() {
    let database = Database::with_schema().await;
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join(".s.PGSQL.5432");
    // First the real one, then one that stands still.
    std::os::unix::fs::symlink(database.folder().join(".s.PGSQL.5432"), &socket).expect("links");
    let place = folder.path().to_str().expect("a temporary folder is UTF-8").replace('/', "%2F");
    let url = format!("postgres://postgres@{place}/{}", name(&database));
    let store = opened(&short(url)).await;
    done(&store, || vec![put("a", "1")]).await;
    std::fs::remove_file(&socket).expect("is there");
    let _still = UnixListener::bind(&socket).expect("listens");
    database.client().await.batch_execute(END_ALL).await.expect("ends them");
    let (read, change, claim, purge) = soon(async {
        tokio::join!(
            store.setting("a"),
            store.commit(Batch(vec![put("a", "2")])),
            store.settle(nonce("q", 0)),
            store.purge_nonces(at(-1)),
        )
    })
    .await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(matches!(change, Err(CommitError::Store(StoreError::Unavailable(_)))), "{change:?}");
    assert!(matches!(claim, Err(StoreError::Unavailable(_))), "{claim:?}");
    assert!(matches!(purge, Err(StoreError::Unavailable(_))), "{purge:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_stands_still_keeps_nobody_from_the_next_one() {
    let database = Database::with_schema().await;
    let still = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listens");
    let port = still.local_addr().expect("is bound").port();
    let place = database.folder().to_str().expect("a temporary folder is UTF-8").replace('/', "%2F");
    let url = format!("postgres://postgres@127.0.0.1:{port},{place}:5432/{}", name(&database));
    let store = soon(PostgresStore::open(with_a_second_of(2_000, url))).await.expect("opens");
    soon(commit(&store, vec![put("a", "1")])).await;
    assert_eq!(soon(store.setting("a")).await.expect("reads").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_is_waited_for_once_and_not_by_each_change_in_turn() {
    let database = furnished().await;
    let options = with_a_second_of(1_000, database.url());
    let (lock, store) = (options.second * 4, Arc::new(opened(&options).await));
    done(&*store, || vec![audit("makes the head")]).await;
    let (watcher, holder) = (database.client().await, database.client().await);
    holder.batch_execute("BEGIN; SELECT * FROM audit_head FOR UPDATE").await.expect("holds the numbers");
    let begun = Instant::now();
    let ask = |writes: Vec<Write>| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.commit(Batch(writes)).await })
    };
    // Groups, and batches that run alone.
    let mut tasks: Vec<_> = (0..6).map(|n| ask(vec![claim(&format!("g{n}"), 0), audit("group")])).collect();
    tasks.extend((0..6).map(|n| ask(vec![put("a", &n.to_string()), audit("alone")])));
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    counted(&watcher, waiting).await;
    tasks.extend((6..12).map(|n| ask(vec![claim(&format!("g{n}"), 0), audit("group")])));
    for task in tasks {
        let answer = task.await.expect("ends");
        assert!(matches!(answer, Err(CommitError::Store(StoreError::Unavailable(_)))), "{answer:?}");
    }
    // Twice the wait for a lock, and much time to work: not once more for each of six that run alone.
    assert!(begun.elapsed() < lock * 6, "{:?}", begun.elapsed());
    holder.batch_execute("COMMIT").await.expect("lets go");
    done(&*store, || vec![claim("g0", 0), audit("again")]).await;
    assert_eq!(store.audit(all()).await.expect("reads").len(), 2, "nothing was done before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_a_held_table_refuses_costs_the_next_ones_nothing() {
    let database = furnished().await;
    let store = opened(&PostgresOptions { lanes: 1, ..with_a_second_of(2_000, database.url()) }).await;
    done(&store, || vec![audit("makes the head")]).await;
    let holder = database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE event_counter IN ACCESS EXCLUSIVE MODE").await.expect("holds the table");
    let refused = soon(store.commit(Batch(vec![enqueue(event(1, "biz"))]))).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    // On the same connection: another one would have to wait for the table, to prepare statements for it.
    for n in 0..3 {
        let beside = soon(store.commit(Batch(vec![claim(&format!("n{n}"), 0), audit("beside")]))).await;
        assert!(beside.is_ok(), "{beside:?}");
    }
    holder.batch_execute("COMMIT").await.expect("lets go");
    done(&store, || vec![enqueue(event(1, "biz"))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_waits_for_long_makes_the_store_not_ready() {
    let database = Database::with_schema().await;
    let options = PostgresOptions { lanes: 1, ..with_a_second_of(1_500, database.url()) };
    let store = Arc::new(opened(&options).await);
    read(|| store.ping()).await;
    let holder = database.client().await;
    holder
        .batch_execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(600); RETURN NEW; END'; CREATE TRIGGER slow BEFORE INSERT ON setting
        FOR EACH ROW EXECUTE FUNCTION slow()",
        )
        .await
        .expect("makes a slow table");
    let writer = Arc::clone(&store);
    let slow = tokio::spawn(async move { writer.commit(Batch(vec![put("a", "1")])).await });
    until_so("it stands still", async || store.is_stalled()).await;
    let said = store.ping().await;
    let why = "changes have waited for the database for";
    assert!(matches!(&said, Err(StoreError::Unavailable(said)) if said.contains(why)), "{said:?}");
    assert!(slow.await.expect("ends").is_err(), "it took too long");
    // Whoever is answered may be so before the writer has done with it.
    read(|| store.ping()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_wait_for_a_lock_do_not_open_connection_after_connection() {
    let database = Database::with_schema().await;
    let options = PostgresOptions { readers: 2, lanes: 1, ..with_a_second_of(500, database.url()) };
    let store = Arc::new(opened(&options).await);
    done(&*store, || vec![put("a", "1")]).await;
    let (watcher, holder) = (database.client().await, database.client().await);
    holder.batch_execute("BEGIN; LOCK TABLE setting").await.expect("holds the table");
    let count = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend'";
    let (begun, mut most, mut reads) = (Instant::now(), 0, Vec::new());
    // Three times as long as a read may take.
    while begun.elapsed() < options.second * 15 {
        let store = Arc::clone(&store);
        reads.push(tokio::spawn(async move { store.setting("a").await }));
        most = most.max(watcher.query_one(count, &[]).await.expect("reads").get::<_, i64>(0));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    holder.batch_execute("COMMIT").await.expect("lets go");
    for read in reads {
        let read = read.await.expect("ends");
        assert!(matches!(read, Ok(_) | Err(StoreError::Unavailable(_))), "{read:?}");
    }
    // This test's two, a lane, the settler, housekeeping; for each place of a reader one that is used and one that ends.
    assert!(most <= 10, "{most} connections at once");
    assert_eq!(read(|| store.setting("a")).await.as_deref(), Some("1"));
    let left = "SELECT (count(*) = 0)::int::bigint FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
    counted(&watcher, left).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_wait_keep_neither_a_point_read_waiting_nor_lists_of_others() {
    let database = Database::with_schema().await;
    let options = PostgresOptions { readers: 1, lanes: 1, ..with_a_second_of(4_000, database.url()) };
    let store = Arc::new(opened(&options).await);
    done(&*store, || vec![put("a", "1")]).await;
    let (watcher, holder) = (database.client().await, database.client().await);
    holder.batch_execute("BEGIN; LOCK TABLE audit").await.expect("holds the table");
    let lists: Vec<_> = (0..5)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.audit(all()).await })
        })
        .collect();
    // Two have a connection, the others wait for a place; the first of them ends after 16 s.
    let waiting = "SELECT (count(*) = 2)::int::bigint FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    counted(&watcher, waiting).await;
    // Whoever gives up leaves no question behind that the next one would wait for.
    lists[0].abort();
    let at_once = Duration::from_secs(12);
    let point = timeout(at_once, store.setting("a")).await.expect("does not wait");
    assert_eq!(point.expect("reads").as_deref(), Some("1"));
    let list = timeout(at_once, store.events_after(TENANT, APP, 0, 9)).await.expect("does not wait");
    assert_eq!(list.expect("reads"), []);
    holder.batch_execute("COMMIT").await.expect("lets go");
    for list in lists.into_iter().skip(1) {
        list.await.expect("ends").expect("reads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_nobody_waits_for_any_more_ends_long_before_its_time() {
    let database = Database::with_schema().await;
    // What a statement may take is longer than this test waits.
    let store = Arc::new(opened(&with_a_second_of(6_000, database.url())).await);
    let (watcher, holder) = (database.client().await, database.client().await);
    holder.batch_execute("BEGIN; LOCK TABLE audit").await.expect("holds the table");
    let waiting = |count| {
        format!(
            "SELECT (count(*) = {count})::int::bigint FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    };
    for _ in 0..3 {
        let store = Arc::clone(&store);
        let list = tokio::spawn(async move { store.audit(all()).await });
        counted(&watcher, &waiting(1)).await;
        list.abort();
        counted(&watcher, &waiting(0)).await;
    }
}

#[tokio::test]
async fn a_node_whose_clock_is_ahead_does_not_make_all_nodes_refuse() {
    let (database, nodes) = two_nodes().await;
    let client = database.client().await;
    let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now: i64 = client.query_one(clock, &[]).await.expect("reads").get(0);
    nodes[0].purge_nonces(UnixMillis(now + 86_400_000)).await.expect("purges");
    let stamped = |ms: i64| ClaimKey { stamped_at: UnixMillis(now + ms), ..nonce(&format!("{ms}"), 0) };
    for (node, ms) in [(0, 0), (1, 0), (0, -10_000), (1, -10_001)] {
        let fresh = nodes[node].settle(ClaimKey { nonce: format!("{node} {ms}"), ..stamped(ms) }).await;
        assert_eq!(fresh.expect("answers"), Claimed::Fresh, "{ms}");
    }
    let old = nodes[1].settle(stamped(-36_000)).await;
    assert_eq!(old.expect("answers"), Claimed::TooOld, "as far as the database's own time allows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_while_it_is_looked_at_holds_up_no_start() {
    let database = Database::with_schema().await;
    drop(open_postgres(&database, 9).await);
    let proxy = Proxy::before(database.folder());
    for look in ["schema_step", "FROM move_record", "FROM replay"] {
        proxy.set(Break::Silent(look));
        let opening = PostgresStore::open(short(proxy.url(&database.url())));
        let opened = timeout(PATIENCE, opening).await.expect("it is given up");
        assert!(
            matches!(&opened, Err(StoreError::Unavailable(why)) if why.contains("does not answer")),
            "{look}: {opened:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_horizon_is_raised_in_one_round_trip() {
    let (_database, proxy, store) = behind_proxy().await;
    store.purge_nonces(at(-2)).await.expect("purges");
    // Whoever waits for an answer in between never sends its commit.
    proxy.set(Break::Mute);
    let raised = timeout(Duration::from_secs(10), store.purge_nonces(at(-1))).await;
    raised.expect("a node that stands still in between would keep all from claiming").expect("purges");
    assert_eq!(proxy.mode(), Break::Never, "a commit came by");
    assert_eq!(store.settle(nonce("old", -1)).await.expect("answers"), Claimed::TooOld);
}

#[tokio::test]
async fn a_commit_looks_at_few_marks_while_somebody_holds_a_snapshot() {
    const COMMITS: i64 = 200;
    let database = Database::new().await;
    let store = PostgresStore::open(PostgresOptions { lanes: 1, ..postgres_options(&database, 1) }).await;
    let store = store.expect("opens");
    furnish(&store).await;
    let holder = database.client().await;
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM setting").await.expect("a snapshot");
    for _ in 0..COMMITS {
        commit(&store, vec![audit("one more")]).await;
    }
    // What a session has counted is seen at the latest when it ends.
    drop(store);
    let client = database.client().await;
    client.batch_execute(END_ALL).await.expect("ends them");
    let read = "SELECT coalesce(idx_tup_read, 0) FROM pg_stat_user_indexes WHERE indexrelname = 'commit_mark_pkey'";
    let read = counted(&client, read).await;
    assert!(read <= 20 * COMMITS, "{read} entries for {COMMITS} commits");
}

#[tokio::test]
async fn marks_of_lanes_that_are_gone_are_deleted_by_housekeeping_and_opening_changes_nothing() {
    let (database, nodes) = two_nodes().await;
    let client = database.client().await;
    client.batch_execute("INSERT INTO commit_mark VALUES (0, '\\x01', 1, 1, true)").await.expect("is written");
    let old = "SELECT count(*) FROM commit_mark WHERE lane = '\\x01'";
    drop(open_postgres(&database, 3).await);
    assert_eq!(client.query_one(old, &[]).await.expect("reads").get::<_, i64>(0), 1, "doctor opens it, too");
    nodes[0].purge_nonces(at(-1)).await.expect("purges");
    assert_eq!(client.query_one(old, &[]).await.expect("reads").get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_meets_a_held_table_lets_others_through_and_goes_on_later() {
    let database = Database::new().await;
    let (client, holder) = (database.client().await, database.client().await);
    let make = "CREATE TABLE schema_step (number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL)";
    client.batch_execute(make).await.expect("makes it");
    // Reads of it are let through; the new rows of a migration are not.
    holder.batch_execute("BEGIN; LOCK TABLE schema_step IN SHARE MODE").await.expect("holds it");
    let options = with_a_second_of(2_000, database.url());
    let opening = tokio::spawn(async move { PostgresStore::open(options).await });
    waits(&database).await;
    let gone = "SELECT (count(*) = 0)::int::bigint FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
    counted(&client, gone).await;
    assert!(!opening.is_finished(), "it tries again");
    holder.batch_execute("COMMIT").await.expect("lets go");
    opening.await.expect("ends").expect("opens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_rules_of_a_group_are_inserted_in_the_order_of_their_keys() {
    let (database, nodes) = two_nodes().await;
    commit(&*nodes[0], vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
    let second = countersign_domain::ids::MerchantNo(11);
    // Somebody is about to insert the first rule of the lower one.
    let mut holder = database.client().await;
    let insert =
        "INSERT INTO fee_rule (tenant_no, merchant_no, version_no, config_id, r_markup, f_markup, effective_at,
                  created_at) VALUES (1, $1, 1, decode(repeat('00', 16), 'hex'), '0', 0, 0, 0)";
    let held = holder.transaction().await.expect("begins");
    held.execute(insert, &[&SUB.0]).await.expect("is written");
    let node = Arc::clone(&nodes[0]);
    let first = version(1);
    let both = vec![append(second, first.clone()), append(SUB, first)];
    let asked = tokio::spawn(async move { node.commit(Batch(both)).await });
    waits(&database).await;
    // The batch waits for that one, so it has not touched the other yet.
    held.execute("SET LOCAL lock_timeout = '100ms'", &[]).await.expect("is set");
    held.execute(insert, &[&second.0]).await.expect("nobody holds the other one");
    held.rollback().await.expect("lets go");
    asked.await.expect("ends").expect("is applied");
}

#[tokio::test]
async fn an_address_that_asks_for_servers_without_writes_is_used_for_writes_all_the_same() {
    let database = Database::new().await;
    let options = PostgresOptions::new(format!("{}?target_session_attrs=read-only", database.url()), [1; 16], [1; 16]);
    let store = PostgresStore::open(options).await.expect("opens");
    commit(&store, vec![put("a", "1")]).await;
}

#[tokio::test]
async fn an_address_over_a_network_must_say_whether_the_connection_is_protected() {
    let opened = |url: &'static str| async move {
        let options =
            PostgresOptions { second: Duration::from_millis(30), ..PostgresOptions::new(url, [1; 16], [1; 16]) };
        PostgresStore::open(options).await.expect_err("nobody is there")
    };
    for url in [
        "postgres://u:letmein@192.0.2.1/d",
        "postgres://u:letmein@db.invalid/d?sslmode=prefer",
        "postgres://u:letmein@localhost,db.invalid/d",
        "postgres://u:letmein@localhost/d?hostaddr=192.0.2.1",
    ] {
        match opened(url).await {
            StoreError::Unfit(why) => {
                assert!(why.contains("write sslmode=require or") && why.contains("sslmode=disable"), "{why}");
                assert!(!why.contains("letmein"), "{why}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
    for url in [
        "postgres://u@192.0.2.1/d?sslmode=disable",
        "postgres://u@127.0.0.1:1/d",
        "postgres://u@[::1]:1/d",
        "postgres://u@localhost:1/d",
        "postgres://u@db.invalid:1/d?hostaddr=127.0.0.1",
        "postgres://u@%2Fnowhere/d",
    ] {
        let away = opened(url).await;
        assert!(matches!(away, StoreError::Unavailable(_)), "{url}: {away:?}");
    }
}
