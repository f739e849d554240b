//! `victim SECONDS [sqlite|postgres]`: sends bad signatures in a merchant's name for so long and prints how the merchant was served.

use anyhow::{Context, Result, ensure};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::victim;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let seconds =
        words.next().context("usage: victim SECONDS [sqlite|postgres]")?.parse().context("SECONDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let report = tokio::runtime::Runtime::new()?.block_on(victim::run(kind, seconds))?;
    victim::print(&report);
    let is_served = |(good, all): (usize, usize)| good == all && all > 0;
    ensure!(is_served(report.own) && is_served(report.shared), "an honest request was refused");
    Ok(())
}
