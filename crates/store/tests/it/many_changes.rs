//! More changes of the directory than an answer names.

use std::sync::Arc;

use countersign_store::Store as _;
use countersign_store::nodes::{DIRECTORY_CHANGES_MAX, NodeId};
use countersign_store::testing::Database;

use crate::fixtures::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_more_changes_than_an_answer_names_none_is_named_and_the_next_look_goes_on_behind_them() {
    let database = Database::new().await;
    let store = Arc::new(open_postgres(&database, 1).await);
    furnish(&*store).await;
    let node = NodeId([9; 16]);
    let before = store.directory_changes(i64::MAX, node).await.expect("reads").revision;
    let client = database.client().await;
    let many = DIRECTORY_CHANGES_MAX + 1;
    let change = format!(
        "INSERT INTO application SELECT (jsonb_populate_record(a, jsonb_build_object(
           'application_no', 1000000 + n, 'client_id', 'app_many_' || n, 'directory_revision', d.revision + 1))).*
         FROM application a, directory d, generate_series(1, {many}) n WHERE a.client_id = 'app_one';
         UPDATE directory SET revision = revision + 1"
    );
    client.batch_execute(&change).await.expect("changes");
    let changes = store.directory_changes(before, node).await.expect("reads");
    assert_eq!((changes.are_too_many, changes.client_ids.len(), changes.revision), (true, 0, before + 1));
    let changes = store.directory_changes(changes.revision, node).await.expect("reads");
    assert_eq!((changes.are_too_many, changes.client_ids.len(), changes.revision), (false, 0, before + 1));

    client.batch_execute("DELETE FROM application WHERE client_id = 'app_many_1'").await.expect("deletes");
    let changes = store.directory_changes(before, node).await.expect("reads");
    assert_eq!((changes.are_too_many, changes.client_ids.len()), (false, DIRECTORY_CHANGES_MAX));
}
