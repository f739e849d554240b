//! A pooler between a node and its database.

use countersign_store::testing::{Database, PoolMode, Pooler};
use countersign_store::{PostgresOptions, PostgresStore, StoreError};

use crate::fixtures::*;

#[tokio::test]
async fn a_pooler_that_shares_connections_between_sessions_is_refused_before_anything_is_made() {
    let database = Database::new().await;
    let pooler = Pooler::start(&database, PoolMode::Transaction);
    let options = PostgresOptions::new(pooler.url(), [1; 16], [1; 16]);
    let refused = PostgresStore::open(options.clone()).await.expect_err("sessions share connections");
    assert!(matches!(&refused, StoreError::Unfit(why) if why.contains("pool_mode = session")), "{refused:?}");
    assert!(matches!(PostgresStore::refuse_shared(&options).await, Err(StoreError::Unfit(_))));
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(database.client().await.query_one(tables, &[]).await.expect("counts").get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_pooler_that_keeps_a_connection_for_each_session_is_not() {
    let database = Database::new().await;
    let pooler = Pooler::start(&database, PoolMode::Session);
    let options = PostgresOptions::new(pooler.url(), [1; 16], [1; 16]);
    let store = PostgresStore::open(options).await.expect("each session has its own");
    furnish(&store).await;
    drop(store);
    // Connections that somebody before has used come back as new ones.
    PostgresStore::open(PostgresOptions::new(pooler.url(), [1; 16], [2; 16])).await.expect("once more");
}
