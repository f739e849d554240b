//! A full disk: nothing is acknowledged that is not kept, a balancer is told, the log is not filled with it, and it ends by itself.

use std::time::Duration;

use countersign_domain::time::{RuleZone, UnixMillis};
use countersign_testkit::hostile::full_disk::Cramped;
use countersign_testkit::patience::until;
use countersign_testkit::wire::{Signer, once, wall_ms};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);
/// More than fill two MiB.
const UPGRADES_MAX: usize = 5_000;

async fn upgrade(cramped: &Cramped, signer: &Signer) -> String {
    let date = RuleZone::utc().format(UnixMillis(wall_ms() - 1_000));
    let body = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": date}).to_string();
    let draft = signer.draft("POST", "/rate/commission_rule/upgrade", body.as_bytes());
    once(cramped.server.listen, &draft.bytes()).await.expect("an answer").code()
}

async fn readiness(cramped: &Cramped) -> (u16, String) {
    let answer = cramped.server.access.call("GET", "/readyz", None).await.expect("an answer");
    (answer.status, answer.json()["detail"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_full_disk_is_told_once_makes_the_node_unready_and_ends_when_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let cramped = Cramped::start(folder.path()).expect("it starts");
    let signer = cramped.server.access.institution("bank", 1, None).await.expect("provisioned");
    let mut done = 0;
    while done < UPGRADES_MAX && upgrade(&cramped, &signer).await == "000000" {
        done += 1;
    }
    assert!(done < UPGRADES_MAX, "the disk did not fill");
    until("the node is not ready", PATIENCE, async || {
        assert_ne!(upgrade(&cramped, &signer).await, "300001", "a full disk is no fault of ours");
        let (status, detail) = readiness(&cramped).await;
        Ok((status == 503 && detail.contains("takes no changes")).then_some(()))
    })
    .await
    .expect("not ready");
    let metrics = cramped.server.access.call("GET", "/metrics", None).await.expect("an answer");
    assert!(String::from_utf8_lossy(&metrics.body).contains("\ncountersign_ready 0\n"));
    for _ in 0..200 {
        assert_eq!(upgrade(&cramped, &signer).await, "300503");
    }
    let said = std::fs::read_to_string(&cramped.log).expect("a log");
    let told = said.lines().filter(|line| line.contains("The store could not answer")).count();
    assert!((1..20).contains(&told), "{told} lines for some hundred refusals");
    cramped.make_room().expect("room");
    until("the node is ready again", PATIENCE, async || Ok((readiness(&cramped).await.0 == 200).then_some(())))
        .await
        .expect("ready");
    assert_eq!(upgrade(&cramped, &signer).await, "000000");
}
