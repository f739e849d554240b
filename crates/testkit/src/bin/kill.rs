//! `kill ROUNDS [sqlite|postgres]`: kills the real server that often under load and prints what was found.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::kill;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds = words.next().context("usage: kill ROUNDS [sqlite|postgres]")?.parse().context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let report = tokio::runtime::Runtime::new()?.block_on(kill::run(kind, rounds))?;
    kill::print(&report);
    Ok(())
}
