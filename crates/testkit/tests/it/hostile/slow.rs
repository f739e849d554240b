//! Clients that dawdle, in small; `cargo xtask slow` has two thousand of them, of slowhttptest's too.

use std::time::Duration;

use countersign_testkit::hostile::slow::{self, Generator, Mode, Plan};

async fn honest_clients_notice_nothing(mode: Mode, is_counted: bool) -> slow::Report {
    let lasts = Duration::from_secs(2);
    let report = slow::run(Plan { mode, generator: Generator::Own, connections: 300, lasts, is_counted })
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
