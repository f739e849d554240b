//! `backups ROUNDS [sqlite|postgres]`: takes and restores that many backups under load, and prints what was found.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::backups;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds =
        words.next().context("usage: backups ROUNDS [sqlite|postgres]")?.parse().context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let report = tokio::runtime::Runtime::new()?.block_on(backups::run(kind, rounds))?;
    backups::print(&report);
    Ok(())
}
