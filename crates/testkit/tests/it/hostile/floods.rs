//! One connection cannot tire the server, whatever it sends over HTTP/2: others are served, and the memory has a bound.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use countersign_testkit::hostile::flood::{Ending, Flood, STREAMS, Unfinished, is_served, send};
use countersign_testkit::patience::until;
use countersign_testkit::process::{Deployment, Server};
use countersign_testkit::wire::once;

/// For what must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a flood may cost while it lasts, in KiB: far less than what it sends.
const MEMORY_KIB_MAX: u64 = 64 * 1024;

/// Enough for the kernel's buffers on both sides, and far more than [`MEMORY_KIB_MAX`].
const UNREAD: u32 = 16_000_000;

fn server() -> (tempfile::TempDir, Server) {
    server_with("")
}

fn server_with(settings: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut deployment = Deployment::init(&folder.path().join("data")).expect("made");
    settings.clone_into(&mut deployment.config);
    let server = deployment.serve().expect("it serves");
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
    let endings = survives(Flood::HeaderBomb, 1_000, true).await;
    // Each is refused by itself.
    assert!(endings.iter().all(|ending| ending.is_ended() || ending.answers == 1_000), "{endings:?}");
}

#[tokio::test]
async fn pings_and_settings_whose_answers_nobody_reads_are_not_gathered() {
    for flood in [Flood::Pings, Flood::Settings] {
        let endings = survives(flood, UNREAD, false).await;
        assert!(
            endings.iter().all(|ending| ending.is_stuck || ending.is_cut_off),
            "{flood:?} is gathered: {endings:?}"
        );
    }
}

#[tokio::test]
async fn frames_without_anything_in_them_tire_nobody() {
    assert!(survives(Flood::Empty, 100_000, true).await.iter().all(Ending::is_ended));
}

#[tokio::test]
async fn requests_that_never_end_have_a_bound_over_all_connections_and_others_are_served() {
    const CONNECTIONS: usize = 32;
    const SHARE: usize = 256;
    let address = |n| IpAddr::V4(Ipv4Addr::new(127, 0, 0, n));
    // Nothing is given up in the time that this takes.
    let limits = "[limits]\nbody_timeout = \"5m\"\nhead_timeout = \"5m\"\n";
    let (_folder, server) = server_with(&format!("limit_loopback = true\nfailed_auth_per_s = 0\n{limits}"));
    let before = peak_kib(&server);
    let flood = Unfinished::open(address(3), server.listen, CONNECTIONS).await.expect("opened");
    let wanted = CONNECTIONS * STREAMS - SHARE;
    let refused =
        until("all but one share are refused", PATIENCE, async || Ok((flood.refused() >= wanted).then_some(()))).await;
    refused.unwrap_or_else(|late| panic!("{late}: {} of {wanted}", flood.refused()));
    assert!(is_served(address(2), server.listen).await.expect("an answer"), "another address is served");
    assert!(!is_served(address(3), server.listen).await.expect("an answer"), "this one has its share");
    let honest = b"GET /v1/time HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(once(server.listen, honest).await.expect("others are served").status, 200);
    let cost = peak_kib(&server) - before;
    assert!(cost < MEMORY_KIB_MAX, "they cost {cost} KiB");
}
