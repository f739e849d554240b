//! Waiting for what others do, and asking as callers do: what was answered 503 was not done, and is said again. A loaded machine may stand still for longer
//! than a short limit allows; where a test is not about that limit, it says so again.

use std::time::Duration;

use countersign_store::batch::{Batch, Committed, Write};
use countersign_store::contract::{ClaimKey, Claimed, CommitError, StoreError};
use countersign_store::testing::Database;
use countersign_store::{PostgresOptions, PostgresStore, Store};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

/// For what must come at last.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The same where what would come too late comes after 24 s.
const COUNTED_WITHIN: Duration = Duration::from_secs(20);
const PERIOD: Duration = Duration::from_millis(5);

/// Asks until there is an answer.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        sleep(PERIOD).await;
    }
}

/// Asks until it is so.
pub async fn until_so(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}

/// Waits until a query counts something, and says how much.
pub async fn counted(client: &Client, query: &str) -> i64 {
    let deadline = Instant::now() + COUNTED_WITHIN;
    loop {
        let count: i64 = client.query_one(query, &[]).await.expect("reads").get(0);
        if count > 0 {
            return count;
        }
        assert!(Instant::now() < deadline, "nothing yet: {query}");
        sleep(PERIOD).await;
    }
}

/// Returns when so many transactions of this database wait for a lock.
pub async fn so_many_wait(database: &Database, count: i64) {
    let waiting = format!(
        "SELECT (count(*) >= {count})::int::bigint FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'"
    );
    counted(&database.client().await, &waiting).await;
}

/// Asks a store until it has an answer.
pub async fn read<T, F: Future<Output = Result<T, StoreError>>>(mut ask: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable(why)) => assert!(Instant::now() < deadline, "{why}"),
            Err(other) => panic!("{other}"),
        }
        sleep(PERIOD).await;
    }
}

/// Opens a store.
pub async fn opened(options: &PostgresOptions) -> PostgresStore {
    read(|| PostgresStore::open(options.clone())).await
}

/// Has a change done.
pub async fn done(store: &impl Store, writes: impl Fn() -> Vec<Write>) -> Committed {
    read(async || match store.commit(Batch(writes())).await {
        Err(CommitError::Store(error)) => Err(error),
        answer => Ok(answer.expect("is applied")),
    })
    .await
}

/// Sends a change with a nonce, which is given back with each 503, until something else is said of it.
pub async fn answered(
    store: &PostgresStore,
    nonce: &ClaimKey,
    change: impl Fn() -> Batch,
) -> Result<Committed, CommitError> {
    read(async || {
        assert_eq!(store.reserve(nonce).await?, Claimed::Fresh, "this node has no opinion");
        match store.commit(change()).await {
            Err(CommitError::Store(error)) => {
                store.release(nonce);
                Err(error)
            }
            answer => Ok(answer),
        }
    })
    .await
}
