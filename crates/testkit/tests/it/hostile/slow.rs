//! Clients that dawdle, in small; `cargo xtask slow` has two thousand of them, of slowhttptest's too.

use std::time::Duration;

use countersign_testkit::hostile::slow::{self, Generator, Mode, Plan, Scarce};

async fn honest_clients_notice_nothing(mode: Mode, is_counted: bool) -> slow::Report {
    let lasts = Duration::from_secs(2);
    let report = slow::run(Plan { mode, generator: Generator::Own, connections: 300, lasts, is_counted, scarce: None })
        .await
        .expect("it runs");
    report.verdict().expect("honest clients are served");
    report
}

#[tokio::test]
async fn honest_clients_notice_nothing_of_slow_heads() {
    let counted = honest_clients_notice_nothing(Mode::Headers, true).await;
    assert!((200..=256 + 20).contains(&counted.held_max), "one address has its share and no more: {counted:?}");
}

#[tokio::test]
async fn honest_clients_notice_nothing_of_slow_bodies_ranges_and_readers() {
    for mode in [Mode::Body, Mode::Range, Mode::Read] {
        honest_clients_notice_nothing(mode, false).await;
    }
}

/// More clients than places; a head may take so long.
async fn scarce(mode: Mode, patience: Duration) -> slow::Report {
    let plan = Plan {
        mode,
        generator: Generator::Own,
        connections: 100,
        lasts: Duration::from_secs(8),
        is_counted: false,
        scarce: Some(Scarce { places: 80, patience }),
    };
    slow::run(plan).await.expect("it runs")
}

#[tokio::test]
async fn who_dawdles_over_a_head_loses_the_place_to_honest_clients_where_there_are_too_few() {
    scarce(Mode::Headers, Duration::from_millis(500)).await.verdict().expect("honest clients are served");
}

#[tokio::test]
async fn who_dawdles_over_a_body_loses_the_place_to_honest_clients_where_there_are_too_few() {
    scarce(Mode::Body, Duration::from_millis(500)).await.verdict().expect("honest clients are served");
}

#[tokio::test]
async fn a_server_that_gives_no_place_back_would_be_noticed() {
    let report = scarce(Mode::Body, Duration::from_secs(600)).await;
    assert!(report.is_noticed(), "{report:?}");
}

#[tokio::test]
async fn who_has_asked_for_nothing_gives_way_at_once_where_there_are_too_few_places() {
    scarce(Mode::Headers, Duration::from_secs(600)).await.verdict().expect("honest clients are served");
}
