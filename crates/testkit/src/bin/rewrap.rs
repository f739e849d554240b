//! `rewrap ROUNDS [sqlite|postgres]`: changes the master key that often, with a kill in each, and prints what was found.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::rewraps;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds =
        words.next().context("usage: rewrap ROUNDS [sqlite|postgres]")?.parse().context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let report = tokio::runtime::Runtime::new()?.block_on(rewraps::run(kind, rounds, 1))?;
    rewraps::print(&report);
    report.verdict()
}
