//! `victim SECONDS [sqlite|postgres]`: sends bad signatures in a merchant's name for so long and prints how the merchant was served.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::victim;

/// Bad signatures a second, of 1,000 that are meant.
const RATE_MIN: u128 = 900;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let seconds =
        words.next().context("usage: victim SECONDS [sqlite|postgres]")?.parse().context("SECONDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let report = tokio::runtime::Runtime::new()?.block_on(victim::run(kind, seconds, ""))?;
    victim::print(&report);
    report.verdict(RATE_MIN)
}
