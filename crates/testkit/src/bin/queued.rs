//! `queued EVENTS [sqlite|postgres]`: a server starts with so many events queued, and then all endpoints come back.

use std::time::Duration;

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::queued::{self, Plan};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let events =
        words.next().context("usage: queued EVENTS [sqlite|postgres]")?.parse().context("EVENTS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let plan = Plan { events, endpoints: 50, rate_per_s: 20, watched: Duration::from_secs(15) };
    let report = tokio::runtime::Runtime::new()?.block_on(queued::run(kind, plan))?;
    queued::print(&report, plan);
    report.rates(plan)?;
    report.figures()
}
