//! Failovers: a standby that is waited for has everything, and nobody goes on reading from the server before.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::LaneSet;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{CommitError, EventFilter};
use countersign_store::nodes::Signal;
use countersign_store::postgres::{Durability, NotedOffice};
use countersign_store::testing::{Server, ServerOptions};
use countersign_store::{PostgresOptions, PostgresStore, Store, StoreError};
use tokio::time::timeout;

use crate::fixtures::*;
use crate::until::{PATIENCE, done, opened, read, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_with_a_synchronous_standby_is_on_it_when_the_primary_dies() {
    for tcp in [false, true] {
        let mut primary = Server::start(ServerOptions { fsync: false, tcp, ..ServerOptions::default() });
        let standby = primary.standby("b");
        primary.set_synchronous("*");
        let url = Server::url_of(&[&primary, &standby], "postgres");
        let options = PostgresOptions::new(url, [1; 16], [1; 16]);
        let store = PostgresStore::open(options.clone()).await.expect("opens");
        furnish(&store).await;
        primary.stop_immediately();
        assert!(store.ping().await.is_err(), "nobody takes writes");
        standby.promote();
        let store = PostgresStore::open(options).await.expect("opens on the standby");
        assert!(store.merchant("inst").await.expect("reads").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_without_waiting_for_the_standby_can_be_lost() {
    let mut primary = Server::start(ServerOptions::default());
    let standby = primary.standby("b");
    let options = PostgresOptions::new(Server::url_of(&[&primary, &standby], "postgres"), [1; 16], [1; 16]);
    let store = PostgresStore::open(options.clone()).await.expect("opens");
    standby.wait_until("SELECT 1 FROM pg_class WHERE relname = 'audit'");
    primary.hold_back();
    furnish(&store).await;
    primary.stop_immediately();
    standby.promote();
    let store = PostgresStore::open(options).await.expect("opens on the standby");
    assert_eq!(store.merchant("inst").await.expect("reads"), None);
}

async fn open_on(server: &Server, user: &str) -> Result<PostgresStore, StoreError> {
    let url = server.url("postgres").replace("postgres://postgres@", &format!("postgres://{user}@"));
    PostgresStore::open(PostgresOptions::new(url, [1; 16], [1; 16])).await
}

async fn store_on(server: &Server, user: &str) -> PostgresStore {
    open_on(server, user).await.expect("opens")
}

#[tokio::test]
async fn a_role_that_may_make_nothing_is_told_what_it_needs() {
    let server = Server::start(ServerOptions::default());
    server.ask("postgres", "CREATE ROLE guest LOGIN");
    let Err(StoreError::Unfit(why)) = open_on(&server, "guest").await else { panic!("it was not refused") };
    assert!(
        why.contains("(42501)")
            && why.contains("has to own the database, or a schema made for it")
            && why.contains("`countersign doctor`"),
        "{why}"
    );
    server.ask("postgres", "CREATE SCHEMA AUTHORIZATION guest");
    store_on(&server, "guest").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_says_which_standbys_commits_wait_for() {
    let primary = Server::start(ServerOptions { fsync: true, ..ServerOptions::default() });
    let store = store_on(&primary, "postgres").await;
    let alone = Durability {
        standbys: 0,
        synchronous: 0,
        is_hidden: false,
        is_demanded: false,
        fsync: true,
        full_page_writes: true,
        synchronous_commit: "on".to_owned(),
    };
    assert_eq!(store.durability().await.expect("answers"), alone);
    primary.ask("postgres", "ALTER SYSTEM SET full_page_writes = off");
    primary.ask("postgres", "SELECT pg_reload_conf()");
    primary.wait_until("SELECT 1 WHERE current_setting('full_page_writes') = 'off'");
    let torn = Durability { full_page_writes: false, ..alone.clone() };
    assert_eq!(store.durability().await.expect("answers"), torn);
    primary.ask("postgres", "ALTER SYSTEM RESET full_page_writes");
    primary.ask("postgres", "SELECT pg_reload_conf()");
    primary.wait_until("SELECT 1 WHERE current_setting('full_page_writes') = 'on'");

    let standby = primary.standby("b");
    let asynchronous = Durability { standbys: 1, ..alone.clone() };
    assert_eq!(store.durability().await.expect("answers"), asynchronous);
    primary.set_synchronous("*");
    let synchronous = Durability { synchronous: 1, is_demanded: true, ..asynchronous.clone() };
    assert_eq!(store.durability().await.expect("answers"), synchronous);
    primary.set_synchronous("");
    primary.set_synchronous("ANY 1 (b)");
    assert_eq!(store.durability().await.expect("answers"), synchronous);
    primary.set_synchronous("");

    // The setting of a role, which our sessions raise, and a role that may not see.
    primary.ask("postgres", "CREATE ROLE app LOGIN; ALTER ROLE app SET synchronous_commit = 'local'");
    primary.ask("postgres", "CREATE SCHEMA AUTHORIZATION app; ALTER ROLE app SET search_path = app");
    let store = store_on(&primary, "app").await;
    let hidden = Durability { is_hidden: true, synchronous_commit: "local".to_owned(), ..asynchronous.clone() };
    assert_eq!(store.durability().await.expect("answers"), hidden);
    primary.ask("postgres", "GRANT pg_monitor TO app");
    assert_eq!(store.durability().await.expect("answers"), Durability { is_hidden: false, ..hidden });
    drop(standby);
}

/// A setting as each of some reads finds it: every thread has a connection of its own for them.
async fn read_by_many(store: &Arc<PostgresStore>, name: &'static str) -> Vec<Option<String>> {
    let reads = |store: Arc<PostgresStore>| tokio::spawn(async move { read(|| store.setting(name)).await });
    let reading: Vec<_> = (0..8).map(|_| reads(Arc::clone(store))).collect();
    let mut found = Vec::new();
    for reads in reading {
        found.push(reads.await.expect("ends"));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_from_a_server_that_was_left_behind_though_it_goes_on_answering() {
    for is_fenced in [true, false] {
        let primary = Server::start(ServerOptions::default());
        let standby = primary.standby("b");
        primary.set_synchronous("*");
        let options = PostgresOptions::new(Server::url_of(&[&primary, &standby], "postgres"), [1; 16], [9; 16]);
        let options = PostgresOptions { second: LONG_SECOND, ..options };
        furnish(&PostgresStore::open(options.clone()).await.expect("opens")).await;
        // A short one: a commit that waits for the server before is given up after ten of them.
        let options = PostgresOptions { second: Duration::from_millis(300), node: [1; 16], ..options };
        let store = Arc::new(opened(&options).await);
        let mut heard = store.signals().expect("nodes hear each other");
        // What is told whenever it begins to listen; nobody calls out anything here.
        let mut begins = async || while heard.recv().await.expect("is told") != Signal::Due(LaneSet::ALL) {};
        timeout(PATIENCE, begins()).await.expect("it listens");
        let revision = read(|| store.directory_changes(i64::MAX, NOBODY)).await.revision;
        assert_eq!(read_by_many(&store, "after").await, vec![None; 8]);
        // Lists have connections, too.
        read(|| store.events(EventFilter::default(), all(), 9)).await;
        if is_fenced {
            primary.ask("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
            primary.ask("postgres", "SELECT pg_reload_conf()");
        }
        standby.promote();
        // Whoever waits for the server before is told so, after its time.
        let put = || Batch(vec![put("after", "yes")]);
        while !matches!(store.commit(put()).await, Ok(_) | Err(CommitError::Conflict(_))) {}
        let found = read_by_many(&store, "after").await;
        assert!(
            found.iter().all(|found| found.as_deref() == Some("yes")),
            "{is_fenced}: a caller reads what it wrote: {found:?}"
        );
        done(&*store, || vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
        let found = read(|| store.merchants(None, None, all())).await;
        assert!(found.iter().any(|merchant| merchant.merchant_id == "sub-b"), "lists, too: {is_fenced}");
        assert_eq!(
            primary.ask("postgres", "SELECT count(*) FROM setting WHERE name = 'after'"),
            "0",
            "it is still there"
        );
        let connections = read(|| store.directory_changes(revision, NOBODY)).await.connection;
        assert!(connections > 1, "the look at the directory is at the new one");
        timeout(PATIENCE, begins()).await.expect("it listens anew");
    }
}

/// The error of an opening that is refused.
async fn refused(options: PostgresOptions) -> String {
    PostgresStore::open(options).await.expect_err("it is refused").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_opens_takes_no_server_that_was_left_behind_though_it_takes_writes() {
    let primary = Server::start(ServerOptions::default());
    let (standby, other) = (primary.standby("b"), primary.standby("c"));
    let options = |servers: &[&Server]| PostgresOptions {
        second: LONG_SECOND,
        ..PostgresOptions::new(Server::url_of(servers, "postgres"), [1; 16], [1; 16])
    };
    let both = || options(&[&primary, &standby]);
    drop(PostgresStore::open(both()).await.expect("opens"));
    assert_eq!(PostgresStore::split(&both()).await.expect("answers"), None);
    let steps = primary.ask("postgres", "SELECT count(*) FROM schema_step");
    for standby in [&standby, &other] {
        standby.wait_until(&format!("SELECT 1 FROM schema_step HAVING count(*) = {steps}"));
    }
    standby.promote();
    let store = PostgresStore::open(both()).await.expect("opens");
    commit(&store, vec![put("after", "yes")]).await;
    let found = |server: &Server| server.ask("postgres", "SELECT count(*) FROM setting WHERE name = 'after'");
    assert_eq!((found(&standby).as_str(), found(&primary).as_str()), ("1", "0"));
    // When one has answered, the other has two seconds: a loaded machine may take longer.
    let split = until("both take writes", async || PostgresStore::split(&both()).await.expect("answers")).await;
    assert!(split.contains(" on timeline 1, ") && split.ends_with(" on timeline 2"), "{split}");

    let office = store.office().expect("it says who it is");
    let served = Some(NotedOffice { office, noted_in: "data/database.timeline".into() });
    let alone = PostgresOptions { served: served.clone(), ..options(&[&primary]) };
    let why = refused(alone).await;
    assert!(why.contains("the server is on timeline 1") && why.contains("served with timeline 2"), "{why}");
    PostgresStore::open(PostgresOptions { served: served.clone(), ..both() }).await.expect("the newer one is there");
    let cluster = Server::start(ServerOptions::default());
    let elsewhere = PostgresOptions { served, ..options(&[&cluster]) };
    PostgresStore::open(elsewhere).await.expect("nothing is known of another cluster");

    other.promote();
    let why = refused(options(&[&primary, &standby, &other])).await;
    assert!(why.contains("none of them is the newer one"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_servers_each_is_told_of_in_the_order_of_the_address_whichever_was_asked_last() {
    let server = Server::start(ServerOptions::default());
    server.ask("postgres", "CREATE ROLE guest NOLOGIN");
    server.ask("postgres", "CREATE ROLE reader LOGIN");
    server.ask("postgres", "ALTER ROLE reader SET default_transaction_read_only = on");
    server.ask("postgres", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0");
    let url = server.url("postgres");
    let host = url.strip_prefix("postgres://postgres@").and_then(|url| url.strip_suffix("/postgres")).expect("a host");
    let told = async |user: &str, hosts: [&str; 2]| {
        let address = format!("postgres://{user}@{}/postgres", hosts.join(","));
        refused(PostgresOptions::new(address, [1; 16], [1; 16])).await
    };
    let nobody = "127.0.0.1:1";
    for (user, why) in [
        ("guest", "is not permitted to log in (28000): put another user"),
        ("reader", "database does not allow writes"),
        ("crowd", "too many connections for role \"crowd\" (53300)"),
    ] {
        for hosts in [[host, nobody], [nobody, host]] {
            let said = told(user, hosts).await;
            let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}: {said}"));
            let away = at("127.0.0.1:1: error connecting to server: ");
            assert_eq!(at(why) < away, hosts[0] == host, "{said}");
            assert!(said.contains("the database cannot be reached: "), "one of them may be back soon: {said}");
        }
    }
    let said = told("guest", [host, host]).await;
    assert!(said.contains("the PostgreSQL server refuses the address: "), "both refuse it: {said}");
}
