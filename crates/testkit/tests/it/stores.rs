//! A run that is about a store is really on it.

use countersign_store::AnyStore;
use countersign_testkit::backing::{Backing, StoreKind};
use countersign_testkit::process::Deployment;
use countersign_testkit::world::World;

use crate::operator::listener::House;

/// The kind of store under an application.
fn kind_of(store: &AnyStore) -> StoreKind {
    match store {
        AnyStore::Model(_) => StoreKind::Model,
        AnyStore::Sqlite(_) => StoreKind::Sqlite,
        AnyStore::Postgres(_) => StoreKind::Postgres,
    }
}

#[tokio::test]
async fn whole_servers_are_on_the_store_that_this_run_is_about() {
    let wanted = StoreKind::of_this_run();
    let world = World::start().await.expect("a world starts");
    assert_eq!(kind_of(&world.running.app.store), wanted);
    assert_eq!(world.data().join("countersign.db").exists(), wanted == StoreKind::Sqlite);
    let world = world.restart().await.expect("it starts again");
    assert_eq!(kind_of(&world.running.app.store), wanted);
    assert_eq!(kind_of(&House::open().await.app.store), wanted);
}

#[tokio::test]
async fn the_real_binary_is_on_the_store_that_it_is_given() {
    for (kind, has_file) in [(StoreKind::Sqlite, true), (StoreKind::Postgres, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let backing = Backing::fresh(kind).await;
        let deployment = Deployment::init_on(&folder.path().join("data"), &backing).expect("init works");
        let server = deployment.serve().expect("it starts");
        server.access.institution("bank", 1, None).await.expect("provisioned");
        assert_eq!(deployment.data.join("countersign.db").exists(), has_file, "{kind:?}");
        if let Some(database) = backing.database() {
            assert_eq!(database.count_rows("merchant").await, 2, "the institution and its sub-account");
        }
        assert!(server.terminate().expect("it ends"), "{kind:?}");
    }
}
