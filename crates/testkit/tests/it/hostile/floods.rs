//! One connection cannot tire the server, whatever it sends over HTTP/2: others are served, and the memory has a bound.

use countersign_testkit::hostile::flood::{Ending, Flood, send};
use countersign_testkit::process::{Deployment, Server};
use countersign_testkit::wire::once;

/// What a flood may cost while it lasts, in KiB: far less than what it sends.
const MEMORY_KIB_MAX: u64 = 64 * 1024;

fn server() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Deployment::init(&folder.path().join("data")).expect("made").serve().expect("it serves");
    (folder, server)
}

/// The most memory that the process ever had, in KiB.
fn peak_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

async fn survives(flood: Flood, count: u32, reads: bool) -> Vec<Ending> {
    let (_folder, server) = server();
    let before = peak_kib(&server);
    let mut endings = Vec::new();
    for address in [server.listen, server.access.address] {
        endings.push(send(address, flood, count, reads).await.expect("sent"));
        let honest = b"GET /v1/time HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        assert_eq!(once(server.listen, honest).await.expect("others are served").status, 200, "{flood:?}");
    }
    let cost = peak_kib(&server) - before;
    assert!(cost < MEMORY_KIB_MAX, "{flood:?} cost {cost} KiB");
    endings
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_end_the_connection() {
    assert!(survives(Flood::RapidReset, 100_000, true).await.iter().all(Ending::is_ended));
}

#[tokio::test]
async fn a_head_that_never_ends_ends_the_connection() {
    assert!(survives(Flood::Continuation, 100_000, true).await.iter().all(Ending::is_ended));
}

#[tokio::test]
async fn heads_that_unpack_to_more_than_they_are_cost_nothing_that_lasts() {
    survives(Flood::HeaderBomb, 1_000, true).await;
}

#[tokio::test]
async fn pings_and_settings_whose_answers_nobody_reads_are_not_gathered() {
    for flood in [Flood::Pings, Flood::Settings] {
        survives(flood, 300_000, false).await;
    }
}

#[tokio::test]
async fn frames_without_anything_in_them_tire_nobody() {
    assert!(survives(Flood::Empty, 100_000, true).await.iter().all(Ending::is_ended));
}
