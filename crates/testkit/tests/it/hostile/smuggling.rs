//! No request hides inside of another: not at the server itself, and not behind a proxy.

use countersign_testkit::hostile::nginx::Nginx;
use countersign_testkit::hostile::shapes::Targets;
use countersign_testkit::hostile::smuggling::{
    Asked, SHORT, faults, faults_behind, honest_ones_get_their_own, no_bait_was_taken, send_all,
};
use countersign_testkit::process::{Deployment, Server};

const MERCHANTS: Targets = Targets { get: "/v1/time", post: "/rate/commission_rule/upgrade" };
const OPERATORS: Targets = Targets { get: "/healthz", post: "/operator/v1/merchants" };

struct Place {
    folder: tempfile::TempDir,
    server: Server,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let mut deployment = Deployment::init(&folder.path().join("data")).expect("made");
    SHORT.clone_into(&mut deployment.config);
    let server = deployment.serve().expect("it serves");
    Place { folder, server }
}

impl Place {
    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("data/serve.log")
    }
}

#[tokio::test]
async fn every_odd_shape_is_refused_or_answered_once_at_the_merchants_listener() {
    let place = place();
    let outcomes = send_all(Asked::Server, place.server.listen, MERCHANTS).await.expect("sent");
    assert_eq!(faults(&outcomes), Vec::<String>::new());
    no_bait_was_taken(place.server.listen, &place.log(), "/the-last-one").await.expect("no bait");
}

#[tokio::test]
async fn every_odd_shape_is_refused_or_answered_once_at_the_operators_listener() {
    let place = place();
    let outcomes = send_all(Asked::Server, place.server.access.address, OPERATORS).await.expect("sent");
    assert_eq!(faults(&outcomes), Vec::<String>::new());
    no_bait_was_taken(place.server.access.address, &place.log(), "/the-last-one").await.expect("no bait");
}

#[tokio::test]
async fn every_odd_shape_is_refused_or_answered_once_behind_nginx() {
    let place = place();
    let nginx = Nginx::start(place.folder.path(), place.server.listen).await.expect("nginx starts");
    let outcomes = send_all(Asked::Proxy, nginx.listen, MERCHANTS).await.expect("sent");
    assert_eq!(faults_behind(&outcomes), Vec::<String>::new());
    honest_ones_get_their_own(nginx.listen, 64).await.expect("nobody gets another's answer");
    no_bait_was_taken(nginx.listen, &place.log(), "/the-last-one").await.expect("no bait");
}
