//! Whether a store sees that the schema, which was right at its start, no longer is.

use std::time::Instant;

use countersign_store::testing::{Damage, Database};
use countersign_store::{PostgresStore, Store};

use crate::fixtures::{Fresh, commit, furnish, postgres, postgres_options, put, sqlite};
use crate::until::PATIENCE;

async fn damage(fresh: &Fresh, what: &Damage) {
    match (&fresh.database, &fresh.dir) {
        (Some(database), _) => database.damage(what).await,
        (None, Some(dir)) => what.file(&dir.path().join("countersign.db")),
        (None, None) => unreachable!("it lives somewhere"),
    }
}

/// Waits until `ping` says so of the schema. SQLite's readers look again after the next commit, or when nobody has read for a moment.
async fn says(store: &impl Store, wanted: impl Fn(Option<&str>) -> bool) {
    let began = Instant::now();
    loop {
        let said = store.ping().await.expect("it answers");
        if wanted(said.as_deref()) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{said:?}");
        commit(store, vec![put("a", "1")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_gone_is_named_until_it_is_back() {
    for fresh in [sqlite().await, postgres().await] {
        furnish(&*fresh.store).await;
        assert_eq!(fresh.store.ping().await.expect("answers"), None);
        damage(&fresh, &Damage::Renamed("pair_rate", "pair_rate_before")).await;
        says(&*fresh.store, |said| said.is_some_and(|said| said.starts_with("the table pair_rate of this deployment")))
            .await;
        damage(&fresh, &Damage::Renamed("pair_rate_before", "pair_rate")).await;
        says(&*fresh.store, |said| said.is_none()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_may_no_longer_be_written_is_named_and_nobody_s_role() {
    let database = Database::with_schema().await;
    let client = database.client().await;
    let role = format!("teller_{}", std::process::id());
    let grant = format!(
        "CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
    );
    client.batch_execute(&grant).await.expect("is granted");
    let mut options = postgres_options(&database, 1);
    options.url = database.url().replace("postgres@", &format!("{role}@"));
    let store = PostgresStore::open(options).await.expect("opens");
    assert_eq!(store.ping().await.expect("answers"), None);
    client.batch_execute(&format!("REVOKE UPDATE ON audit FROM {role}")).await.expect("is revoked");
    let named = |said: Option<&str>| {
        said == Some("this node may no longer read and write the table audit: `countersign doctor` says what to run")
    };
    says(&store, named).await;
    client.batch_execute(&format!("GRANT UPDATE ON audit TO {role}")).await.expect("is granted");
    says(&store, |said| said.is_none()).await;
    drop(store);
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.expect("is gone");
}
