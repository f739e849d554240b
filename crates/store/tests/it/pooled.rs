//! A pooler between a node and its database.

use countersign_store::moving::{self, Move, MoveError};
use countersign_store::testing::{Database, PoolMode, Pooler};
use countersign_store::{PostgresOptions, PostgresStore, StoreError, backup};

use crate::fixtures::{self, *};

#[tokio::test]
async fn a_pooler_that_shares_connections_between_sessions_is_refused_before_anything_is_made() {
    for mode in [PoolMode::Transaction, PoolMode::InTurn] {
        let database = Database::new().await;
        let pooler = Pooler::start(&database, mode);
        pooler.hold_two().await;
        let options = PostgresOptions::new(pooler.url(), [1; 16], [1; 16]);
        let told = |outcome: Result<(), StoreError>, what: &str| match outcome {
            Err(StoreError::Unfit(why)) => assert!(why.contains("pool_mode = session"), "{mode:?} {what}: {why}"),
            other => panic!("{mode:?} {what}: {other:?}"),
        };
        told(PostgresStore::refuse_shared(&options).await, "a look");
        told(PostgresStore::open(options.clone()).await.map(drop), "a start");
        told(PostgresStore::migrate(&options).await.map(drop), "an upgrade");
        told(PostgresStore::keep_moves_out(&options).await.map(drop), "an init");
        let source = tempfile::tempdir().expect("a folder");
        told(backup::of_postgres(&options, &source.path().join("copy")).await, "a backup");
        commit(&open(source.path()), vec![put("initialised_at", "then")]).await;
        let order = Move {
            from: source.path().join("countersign.db"),
            sqlite: fixtures::options(),
            to: options,
            id: [1; 16],
            now: at(1_000_000),
            rows_per_portion: 2,
            refuse_ahead_ms: None,
        };
        match moving::run(order, |_| {}).await {
            Err(MoveError::Store(error)) => told(Err(error), "a move"),
            other => panic!("{mode:?} a move: {other:?}"),
        }
        let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
        assert_eq!(database.client().await.query_one(tables, &[]).await.expect("counts").get::<_, i64>(0), 0);
    }
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
