//! A database whose disk is full for all that grows.

use countersign_store::contract::{MerchantKind, StoreError};
use countersign_store::testing::Database;
use countersign_store::{Batch, CommitError, Store as _, Write};

use crate::fixtures::*;

/// Stands for the disk: what grows is refused as PostgreSQL refuses it. What is written in place is not.
const FULL: &str = "
    CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$;
    CREATE FUNCTION full_disk_of_all() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$;
    CREATE TRIGGER no_room BEFORE INSERT ON merchant FOR EACH ROW EXECUTE FUNCTION full_disk();
    CREATE EVENT TRIGGER no_room_at_all ON ddl_command_end WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION full_disk_of_all();";

fn trial() -> Batch {
    Batch(vec![Write::PutSetting { name: "last_trial_at".to_owned(), value: "now".to_owned() }])
}

#[tokio::test]
async fn once_a_change_found_the_disk_full_a_small_one_that_passes_proves_no_room() {
    let database = Database::new().await;
    let store = open_postgres(&database, 1).await;
    store.commit(trial()).await.expect("a row is made");
    let disk = database.client().await;
    disk.batch_execute(FULL).await.expect("is full");
    store.commit(trial()).await.expect("is written in place");
    store.has_room().await.expect("nobody has found otherwise");

    let grows = store
        .commit(Batch(vec![Write::InsertMerchant(Box::new(merchant(
            INSTITUTION,
            "inst",
            TENANT,
            MerchantKind::Institution,
        )))]))
        .await;
    assert!(
        matches!(&grows, Err(CommitError::Store(StoreError::Unavailable(why))) if why.contains("no space")),
        "{grows:?}"
    );
    for _ in 0..3 {
        store.commit(trial()).await.expect("is written in place");
        store.has_room().await.expect_err("what grows finds no room");
    }
    disk.batch_execute("DROP EVENT TRIGGER no_room_at_all").await.expect("has room");
    store.has_room().await.expect("there is room");
    let left = "SELECT count(*) FROM pg_class WHERE relname = 'countersign_room'";
    assert_eq!(disk.query_one(left, &[]).await.expect("reads").get::<_, i64>(0), 0);
}
