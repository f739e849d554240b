//! Answers to idempotency keys, where one is renewed while old ones are forgotten.

use std::pin::pin;

use countersign_store::Store as _;
use countersign_store::batch::{Batch, Write};
use countersign_store::testing::Database;

use crate::fixtures::*;
use crate::postgres::begin;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_renewed_while_old_ones_are_forgotten_is_kept() {
    let database = Database::new().await;
    let store = open_postgres(&database, 1).await;
    furnish(&store).await;
    commit(&store, vec![remember(answer("renewed")), remember(answer("old"))]).await;
    let other = database.client().await;
    let renew = format!("BEGIN; UPDATE idempotency SET created_at = {} WHERE key = 'renewed'", at(20).0);
    other.batch_execute(&renew).await.expect("is renewed, and not committed yet");
    let mut forgetting = pin!(store.commit(Batch(vec![Write::ForgetAnswers { kept_before: at(10) }])));
    begin(forgetting.as_mut()).await;
    database.somebody_waits().await;
    other.batch_execute("COMMIT").await.expect("is committed");
    assert_eq!(forgetting.await.expect("is applied").answers_forgotten, 1);
    let scope = answer("").scope;
    for (key, there) in [("renewed", true), ("old", false)] {
        assert_eq!(store.remembered(&scope, key).await.expect("reads").is_some(), there, "{key}");
    }
}
