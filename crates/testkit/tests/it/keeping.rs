//! Another master key, backups and restores, in small; `cargo xtask rewrap 50` and `cargo xtask backups 20` are the same in large.

use std::path::{Path, PathBuf};

use countersign::config::Config;
use countersign_store::batch::{Batch, Write};
use countersign_store::{AnyStore, Store as _};
use countersign_testkit::backing::{Backing, StoreKind};
use countersign_testkit::process::{Deployment, Server};
use countersign_testkit::wire::{Signer, once};
use countersign_testkit::{backups, rewraps};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_master_key_that_is_killed_leaves_every_secret_readable() {
    let report = rewraps::run(StoreKind::of_this_run(), 3, 7).await.expect("every secret is readable");
    rewraps::print(&report);
    report.verdict().expect("kills came in the middle");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_a_prefix_and_sends_nothing_until_it_is_told() {
    let report = backups::run(StoreKind::of_this_run(), 2).await.expect("what is restored is a prefix");
    backups::print(&report);
    assert!(report.acknowledged > 50 && report.lines > 100 && report.replays_refused > 10, "{report:?}");
}

/// Another master key, in a file of that folder.
fn next_key(folder: &Path) -> PathBuf {
    let next = folder.join("next.key");
    std::fs::write(&next, "5a".repeat(32)).expect("written");
    std::fs::set_permissions(&next, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
    next
}

/// The store of a deployment that nobody serves.
async fn store_of(deployment: &Deployment, backing: &Backing) -> AnyStore {
    let mut config = Config { data: deployment.data.clone(), ..Config::default() };
    backing.lay(&mut config);
    countersign::run::open_app(&config, countersign::clock::Clock::System, None).await.expect("opens").store
}

/// Changes the row of the only secret of an application of a stopped deployment; its id.
async fn spoil(deployment: &Deployment, backing: &Backing, signer: &Signer) -> String {
    let store = store_of(deployment, backing).await;
    let mut secrets = store.secrets_not_under("", None, 10).await.expect("reads");
    secrets.retain(|secret| secret.client_id == signer.client_id);
    let secret = secrets.remove(0).row;
    let (secret_id, key_id) = (secret.secret_id.clone(), secret.key_id);
    let sealed = vec![0; secret.sealed.len()];
    let spoil = Write::RewrapSecret { secret_id: secret_id.clone(), from: key_id.clone(), key_id, sealed };
    store.commit(Batch(vec![spoil])).await.expect("is written");
    countersign::run::close_store(&store).expect("closes");
    secret_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_does_not_open_is_named_by_doctor() {
    let (folder, backing) = (tempfile::tempdir().expect("a folder"), Backing::of_this_run().await);
    let deployment = Deployment::init_on(&folder.path().join("data"), &backing).expect("is made");
    let server = deployment.serve().expect("it starts");
    let signer = server.access.institution("bank", 0, None).await.expect("is made");
    let (whole, revoked) = (
        server.access.application("bank", None).await.expect("is made"),
        server.access.application("bank", None).await.expect("is made"),
    );
    assert!(server.terminate().expect("it ends"));
    assert!(deployment.doctor().expect("runs").1.contains("each one in force opens"));
    let secret_id = spoil(&deployment, &backing, &signer).await;
    let gone = spoil(&deployment, &backing, &revoked).await;

    let server = deployment.serve().expect("it starts");
    let revoke = format!("/operator/v1/applications/{}/secrets/{gone}", revoked.client_id);
    assert_eq!(server.access.call("DELETE", &revoke, None).await.expect("answers").status, 200);
    let asked = async |signer: &Signer| {
        let draft = signer.draft("GET", "/v1/pay/events", b"");
        let answer = once(server.listen, &draft.bytes()).await.expect("an answer");
        (answer.status, answer.code())
    };
    assert_eq!(asked(&signer).await, (500, "300001".to_owned()), "the request is right");
    assert_eq!(asked(&whole).await.0, 200);
    assert!(server.terminate().expect("it ends"));

    let (is_well, said) = deployment.doctor().expect("runs");
    assert!(!is_well && said.contains(&secret_id) && !said.contains(&gone), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoiled_secret_demands_the_old_master_key_until_it_is_revoked() {
    let (folder, backing) = (tempfile::tempdir().expect("a folder"), Backing::of_this_run().await);
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing).expect("is made");
    let server = deployment.serve().expect("it starts");
    let signer = server.access.institution("bank", 0, None).await.expect("is made");
    assert!(server.terminate().expect("it ends"));

    let secret_id = spoil(&deployment, &backing, &signer).await;

    let next = next_key(folder.path());
    let old = deployment.data.join("master.key");
    let alone = format!("master_key_file = \"{}\"\n", next.display());
    let both = format!("{alone}master_key_previous_file = \"{}\"\n", old.display());
    deployment.config.clone_from(&both);
    let server = deployment.serve().expect("it starts");
    let begun = server.access.provision("POST", "/master-key/rewrap", json!({})).await.expect("answers");
    assert_eq!(begun["unreadable"], json!([secret_id]));
    assert!(server.terminate().expect("it ends"));
    deployment.config.clone_from(&alone);
    let (is_well, said) = deployment.doctor().expect("runs");
    assert!(!is_well && said.contains("each one in force opens, but for what is sealed under "), "{said}");

    deployment.config = both;
    let server = deployment.serve().expect("it starts");
    let rewrap = async || server.access.provision("POST", "/master-key/rewrap", json!({})).await.expect("answers");
    let shown = async || server.access.call("GET", "/operator/v1/master-key", None).await.expect("answers").json();
    assert_eq!(rewrap().await["unreadable"], json!([secret_id]));
    assert_eq!(shown().await["all_rewrapped"], json!(false));
    let of = format!("/applications/{}/secrets", signer.client_id);
    server.access.provision("POST", &of, json!({ "overlap_s": 60 })).await.expect("is rotated");
    let revoke = format!("/operator/v1{of}/{secret_id}");
    assert_eq!(server.access.call("DELETE", &revoke, None).await.expect("answers").status, 200);
    let done = rewrap().await;
    assert_eq!((&done["unreadable"], &done["done"]), (&json!([]), &json!(true)));
    assert_eq!(shown().await["all_rewrapped"], json!(true));
    assert!(server.terminate().expect("it ends"));
    deployment.config = alone;
    let server = deployment.serve().expect("it starts without the old key");
    assert!(server.terminate().expect("it ends"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewrap_that_died_after_its_first_write_is_no_finished_one_for_who_goes_back() {
    let (folder, backing) = (tempfile::tempdir().expect("a folder"), Backing::of_this_run().await);
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing).expect("is made");
    let next = next_key(folder.path());
    let shown = async |server: &Server| {
        server.access.call("GET", "/operator/v1/master-key", None).await.expect("answers").json()
    };
    let old = deployment.data.join("master.key");
    deployment.config =
        format!("master_key_file = \"{}\"\nmaster_key_previous_file = \"{}\"\n", next.display(), old.display());
    let server = deployment.serve().expect("it starts");
    let key = shown(&server).await;
    let id = |name: &str| key[name].as_str().expect("a key").to_owned();
    assert!(server.terminate().expect("it ends"));
    let store = store_of(&deployment, &backing).await;
    let first =
        Write::MoveSetting { name: "master_key_id".to_owned(), from: Some(id("previous_key_id")), to: id("key_id") };
    store.commit(Batch(vec![first])).await.expect("is written");
    countersign::run::close_store(&store).expect("closes");

    deployment.config = format!("master_key_previous_file = \"{}\"\n", next.display());
    let server = deployment.serve().expect("it starts");
    let back = shown(&server).await;
    assert_eq!((&back["sealing_key_id"], &back["all_rewrapped"]), (&key["key_id"], &json!(false)), "{back}");
    assert_eq!(server.access.provision("POST", "/master-key/rewrap", json!({})).await.expect("answers")["done"], true);
    let back = shown(&server).await;
    assert_eq!((&back["sealing_key_id"], &back["all_rewrapped"]), (&key["previous_key_id"], &json!(true)), "{back}");
    assert!(server.terminate().expect("it ends"));
    deployment.config = String::new();
    let server = deployment.serve().expect("it starts without the other key");
    assert!(server.terminate().expect("it ends"));
}
