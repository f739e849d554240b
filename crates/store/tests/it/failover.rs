//! The test's own helpers for failovers do what they say: a standby that is waited for has everything.

use countersign_store::postgres::Durability;
use countersign_store::testing::{Server, ServerOptions};
use countersign_store::{PostgresOptions, PostgresStore, Store, StoreError};

use crate::fixtures::*;

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
    assert!(why.contains("(42501)") && why.contains("has to own the database, or a schema made for it"), "{why}");
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
        synchronous_commit: "on".to_owned(),
    };
    assert_eq!(store.durability().await.expect("answers"), alone);

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
