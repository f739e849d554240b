//! `rotation ROUNDS [sqlite|postgres]`: rotates secrets that often under load and prints what was found.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::rotation;
use countersign_testkit::wire::wall_ms;

/// Applications whose secrets are rotated in each round.
const APPLICATIONS: usize = 8;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds =
        words.next().context("usage: rotation ROUNDS [sqlite|postgres]")?.parse().context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let seed = u64::try_from(wall_ms()).context("a clock before 1970")?;
    println!("seed                                    {seed}");
    let report = tokio::runtime::Runtime::new()?.block_on(rotation::run(kind, rounds, APPLICATIONS, seed))?;
    rotation::print(&report);
    Ok(())
}
