//! A node behind a load balancer is told to stop: it says so first, and serves on until nobody should ask it any more.

use std::path::Path;
use std::time::{Duration, Instant};

use countersign_testkit::backing::{Backing, StoreKind};
use countersign_testkit::patience::until;
use countersign_testkit::process::{Deployment, Server};
use countersign_testkit::receiver::Receiver;
use countersign_testkit::wire::{Draft, once};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that lingers for so long when it is told to stop, and what its rows are in.
async fn lingering(folder: &Path, stop_delay: &str) -> (Server, Backing) {
    let backing = Backing::fresh(StoreKind::of_this_run()).await;
    let mut deployment = Deployment::init_on(&folder.join("data"), &backing).expect("init works");
    deployment.config = format!("[limits]\nstop_delay = \"{stop_delay}\"\n");
    (deployment.serve().expect("it starts"), backing)
}

async fn health(server: &Server, path: &str) -> (u16, String) {
    let draft = Draft { method: "GET".into(), target: path.into(), headers: vec![], body: vec![] };
    let answer = once(server.access.address, &draft.bytes()).await.expect("an answer");
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

/// Told to stop, and heard it.
async fn leaves(server: &Server) {
    assert_eq!(health(server, "/readyz").await.0, 200);
    assert!(counted_ready(server, 1).await);
    server.tell_to_stop().expect("it is there");
    let heard = async || Ok((health(server, "/readyz").await.0 == 503).then_some(()));
    until("it is not ready", PATIENCE, heard).await.expect("it says so");
    assert!(counted_ready(server, 0).await);
}

/// Whether metrics say that it is ready, 1, or is not, 0.
async fn counted_ready(server: &Server, is_ready: u8) -> bool {
    health(server, "/metrics").await.1.lines().any(|line| line == format!("countersign_ready {is_ready}"))
}

#[tokio::test]
async fn a_node_that_lingers_is_not_ready_and_does_everything_else_until_it_is_told_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _backing) = lingering(folder.path(), "10m").await;
    let endpoint = Receiver::start().await.expect("a receiver");
    let signer = server.access.institution("bank", 0, Some(&endpoint.url())).await.expect("provisioned");
    leaves(&server).await;
    let (status, said) = health(&server, "/readyz").await;
    assert!(status == 503 && said.contains("this node was told to stop"), "{said}");
    assert_eq!(health(&server, "/healthz").await.0, 200);

    let ask = signer.draft("GET", "/v1/pay/events?after=0", b"");
    assert_eq!(once(server.listen, &ask.bytes()).await.expect("merchants are answered").status, 200);
    let event = json!({
        "client_id": signer.client_id, "bizType": "PAYMENT_ORDER", "bizId": "1", "bizStatus": "SUCCESS", "data": "{}",
    });
    let emitted = server.access.call("POST", "/operator/v1/events", Some(event)).await.expect("operators are answered");
    assert_eq!(emitted.status, 200);
    endpoint.wait_for(1, PATIENCE).await.expect("callbacks go out");

    assert!(server.terminate().expect("it ends at the second word"));
}

#[tokio::test]
async fn a_node_that_has_lingered_ends_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _backing) = lingering(folder.path(), "2s").await;
    let told = Instant::now();
    server.tell_to_stop().expect("it is there");
    server.wait().expect("it ends");
    assert!(told.elapsed() >= Duration::from_secs(2), "it goes on for a while");
}
