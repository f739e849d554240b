//! A request whose client goes away before it is answered, and before anything was done for it, may be sent again.

use std::time::Duration;

use countersign::app::turns::TurnKey;
use countersign_store::Store as _;
use countersign_testkit::backing::Backing;
use countersign_testkit::patience::until;
use countersign_testkit::process::Deployment;
use countersign_testkit::wire::{Connection, once};
use countersign_testkit::world::World;
use serde_json::json;

use crate::journey_rule_upgrade::{UPGRADE, bank, date};

const SOON: Duration = Duration::from_secs(20);
/// An answer that waits for its turn does not come within this time.
const WAITS: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cut_off_before_anything_was_done_leaves_its_nonce_open() {
    let (world, signer) = bank().await;
    let rule = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date(&world, -10)}).to_string();
    let app = &world.running.app;
    let sub = app.store.merchant("bank-1").await.expect("reads").expect("is there");
    let turn = app.turns.take(TurnKey::Rules(sub.no)).await;
    // One that took the nonce and waits for its turn: the same sent behind it is refused. Where that one was first, there is another try.
    let begin = async || {
        let bytes = world.draft(&signer, "POST", UPGRADE, &rule).bytes();
        let mut cut_off = Connection::open(world.listen()).await?;
        cut_off.write(&bytes).await?;
        Ok((answer_now(&world, &bytes).await?.as_deref() == Some("400021")).then_some((cut_off, bytes)))
    };
    let ((cut_off, bytes), _) = until("a request waits for its turn", SOON, begin).await.expect("it is taken in");
    drop(cut_off);
    // Taken in, it waits for its turn, too; refused, it is answered now.
    let waits = async || {
        let mut again = Connection::open(world.listen()).await?;
        again.write(&bytes).await?;
        match tokio::time::timeout(WAITS, again.read()).await {
            Ok(answer) => answer.map(|_| None).map_err(Into::into),
            Err(_) => Ok(Some(again)),
        }
    };
    let (mut again, _) = until("the same request is taken in again", SOON, waits).await.expect("the nonce is open");
    drop(turn);
    assert_eq!(again.read().await.expect("an answer").code(), "000000", "it is done");
    assert_eq!(answer_now(&world, &bytes).await.expect("an answer").as_deref(), Some("400021"), "once");
}

/// The code of the answer; none where it does not come now.
async fn answer_now(world: &World, bytes: &[u8]) -> anyhow::Result<Option<String>> {
    match tokio::time::timeout(WAITS, once(world.listen(), bytes)).await {
        Ok(answer) => Ok(Some(answer?.code())),
        Err(_) => Ok(None),
    }
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
