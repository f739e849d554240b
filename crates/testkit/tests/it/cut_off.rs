//! A request whose client goes away before it is answered, and before anything was done for it, may be sent again.

use std::time::Duration;

use countersign::app::turns::TurnKey;
use countersign_store::Store as _;
use countersign_testkit::backing::Backing;
use countersign_testkit::patience::until;
use countersign_testkit::process::Deployment;
use countersign_testkit::wire::{Connection, once, once_served};
use countersign_testkit::world::World;
use serde_json::{Value, json};

use crate::journey_rule_upgrade::{UPGRADE, bank, date, in_force};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cut_off_before_anything_was_done_leaves_its_nonce_open() {
    let (world, signer) = bank().await;
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
    let app = &world.running.app;
    let sub = app.store.merchant("bank-1").await.expect("reads").expect("is there");
    // From here on no request of this moment waits for the disk as its nonce is taken: one that is cut off there never had it.
    in_force(&world, &signer, "bank-1").await;
    let turn = app.turns.take(TurnKey::Rules(sub.no)).await;
    let mut sent = 0;
    // One that took the nonce and waits for its turn: the same sent behind it is refused. Where that one was first, or where the turn was waited for
    // too long, there is another try.
    let cut_off = async || {
        let bytes = world.draft(&signer, "POST", UPGRADE, &rule).bytes();
        let mut waits = Connection::open(world.listen()).await?;
        waits.write(&bytes).await?;
        let is_second = once(world.listen(), &bytes).await?.code() == "400021";
        drop(waits);
        sent += 2;
        let ended = async || Ok(Some(lines(&world)).filter(|lines| lines.len() == sent));
        let (lines, _) = until("both have their lines", SOON, ended).await?;
        let is_gone = lines[sent - 2..].iter().any(|line| line["reason"] == "client_gone");
        Ok((is_second && is_gone).then_some(bytes))
    };
    let (bytes, _) = until("a request is cut off as it waits for its turn", 3 * SOON, cut_off).await.expect("one is");
    drop(turn);
    assert_eq!(once_served(world.listen(), &bytes).await.expect("an answer").code(), "000000", "the nonce is open");
    assert_eq!(once(world.listen(), &bytes).await.expect("an answer").code(), "400021", "it is done, once");
}

/// Of the upgrades that have ended so far.
fn lines(world: &World) -> Vec<Value> {
    world.heard.lines().into_iter().filter(|line| line["path"] == UPGRADE).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_client_goes_away_within_its_body_is_counted_as_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let backing = Backing::of_this_run().await;
    let server = Deployment::init_on(&folder.path().join("data"), &backing).and_then(|d| d.serve()).expect("it starts");
    let signer = server.access.institution("bank", 1, None).await.expect("provisioned");
    let bytes = signer.draft("POST", UPGRADE, b"{\"sub_merchant_id\":\"bank-1\"}").bytes();
    let mut cut_off = Connection::open(server.listen).await.expect("connects");
    cut_off.write(&bytes[..bytes.len() - 5]).await.expect("is sent");
    drop(cut_off);
    let counted = async || {
        let metrics = server.access.call("GET", "/metrics", None).await?;
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        Ok(metrics.lines().any(|line| line == "countersign_requests_cut_off_total 1").then_some(metrics))
    };
    let (metrics, _) = until("it is counted", SOON, counted).await.expect("it is");
    assert!(!metrics.lines().any(|line| line.starts_with("countersign_requests_total{")), "{metrics}");
}
