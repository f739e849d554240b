//! Nodes whose database is dropped, renamed or filled from a backup while they run.

use std::time::Duration;

use countersign_store::testing::Database;
use countersign_store::{Batch, PostgresStore, Store as _, StoreError, Write};
use tokio::time::{sleep, timeout};

use crate::fixtures::*;

/// A database of the present schema, and what is in it beside that.
async fn filled(statements: &str) -> Database {
    let database = Database::new().await;
    PostgresStore::migrate(&postgres_options(&database, 9)).await.expect("migrates");
    database.client().await.batch_execute(statements).await.expect("is filled");
    database
}

/// Nothing can be read, and this is why.
async fn refused(node: &PostgresStore, wanted: &str) {
    // A connection that was ended is found to be gone by whoever asks first; for a moment everybody is told what the last one was.
    let read = async {
        loop {
            match node.merchant("inst").await {
                Err(StoreError::Unavailable(why)) if why.contains(wanted) => return,
                Err(StoreError::Unavailable(_)) => sleep(Duration::from_millis(5)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    timeout(Duration::from_secs(20), read).await.unwrap_or_else(|_| panic!("it is not refused with: {wanted}"));
}

const INITIALISED: &str = "INSERT INTO setting (name, value) VALUES ('initialised_at', '2026-01-01T00:00:00.000Z')";

#[tokio::test]
async fn a_node_whose_database_was_replaced_does_nothing_in_the_other_one_until_it_is_started_again() {
    let database = filled(INITIALISED).await;
    let node = open_postgres(&database, 1).await;
    furnish(&node).await;
    assert!(node.merchant("inst").await.expect("reads").is_some());

    database.give_way_to(Database::new().await).await;
    refused(&node, "no tables of ours").await;
    database.give_way_to(filled("").await).await;
    refused(&node, "holds no deployment").await;
    let begun = "INSERT INTO move_record (one, move_id, began_at) VALUES (1, 'restore-1', 1)";
    database.give_way_to(filled(&format!("{INITIALISED}; {begun}")).await).await;
    refused(&node, "is not finished").await;
    assert!(timeout(Duration::ZERO, node.replaced()).await.is_err(), "it may be its own yet");

    let restored = "INSERT INTO move_record (one, move_id, began_at, completed_at) VALUES (1, 'restore-1', 1, 2)";
    let copy = filled(&format!("{INITIALISED}; {restored}")).await;
    database.give_way_to(copy).await;
    refused(&node, "a restored copy").await;
    timeout(Duration::from_secs(30), node.replaced()).await.expect("whoever waits for it is told");
    let put = Write::PutSetting { name: "last_trial_at".to_owned(), value: "late".to_owned() };
    node.commit(Batch(vec![put])).await.expect_err("nothing is written");
    let again = open_postgres(&database, 2).await;
    assert_eq!(again.setting("last_trial_at").await.expect("reads"), None);
    assert!(timeout(Duration::ZERO, again.replaced()).await.is_err());
}

#[tokio::test]
async fn a_node_whose_connections_end_goes_on_with_the_deployment_that_it_knows() {
    let database = filled(INITIALISED).await;
    let node = open_postgres(&database, 1).await;
    furnish(&node).await;
    database.take_away().await;
    database.bring_back().await;
    let read = async {
        while node.merchant("inst").await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), read).await.expect("it reads again");
    assert!(timeout(Duration::ZERO, node.replaced()).await.is_err());
}

#[tokio::test]
async fn a_schema_that_is_replaced_under_connections_that_stay_is_noticed_with_the_next_look() {
    let database = filled(INITIALISED).await;
    let node = open_postgres(&database, 1).await;
    furnish(&node).await;
    assert!(node.merchant("inst").await.expect("reads").is_some());
    node.directory_changes(0, NOBODY).await.expect("is looked at");
    // What tells a copy from its original changes under connections that stay, as where a schema takes the place of another one.
    let restored = "INSERT INTO move_record (one, move_id, began_at, completed_at) VALUES (1, 'restore-1', 1, 2)";
    database.client().await.batch_execute(restored).await.expect("is another one now");
    assert!(node.merchant("inst").await.expect("reads").is_some(), "on a connection that was there");
    node.directory_changes(0, NOBODY).await.expect_err("it is noticed");
    timeout(Duration::from_secs(30), node.replaced()).await.expect("whoever waits for it is told");
    refused(&node, "a restored copy").await;
    let put = Write::PutSetting { name: "last_trial_at".to_owned(), value: "late".to_owned() };
    node.commit(Batch(vec![put])).await.expect_err("nothing is written");
}
