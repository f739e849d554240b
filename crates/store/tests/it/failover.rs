//! The test's own helpers for failovers do what they say: a standby that is waited for has everything.

use countersign_store::testing::{Server, ServerOptions};
use countersign_store::{PostgresOptions, PostgresStore, Store};

use crate::fixtures::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_with_a_synchronous_standby_is_on_it_when_the_primary_dies() {
    for tcp in [false, true] {
        let mut primary = Server::start(ServerOptions { fsync: false, tcp });
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
